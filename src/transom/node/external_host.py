"""The external host, which stands for the Internet: a web server, so that `curl` can test
connectivity where `ping` cannot, and the DNS server of the nodes. It resolves its own name and
those of the nodes.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
import tempfile
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from transom.kit import dnswire as wire
from transom.kit import pki
from transom.kit.task_set import TaskSet
from transom.kit.tls_pairs import load_certificate_files
from transom.machines.linux import NAME_SERVER
from transom.network.api import Dataplane, DnsConfig
from transom.network.stacks import Fabric
from transom.node.network_settings import OUTSIDE_NAME
from transom.runtime.sim.resolve import answering_address

log = logging.getLogger("transom.network")

_DNS_PORT: Final = 53
_MOST_BYTES: Final = 65536
_TIMEOUT_SECONDS: Final = 30.0
_PAGE: Final = (
    b"<!doctype html>\n<html>\n<head><title>Example Domain</title></head>\n<body>\n<h1>Example Domain</h1>\n"
    b"<p>This host stands for the Internet outside of the cluster.</p>\n</body>\n</html>\n"
)


class ExternalHost:
    """`addresses` are its own; `nodes` maps node names to addresses."""

    def __init__(
        self,
        dataplane: Dataplane,
        fabric: Fabric,
        addresses: Sequence[str],
        nodes: Callable[[], Mapping[str, Sequence[str]]],
    ) -> None:
        self._dataplane = dataplane
        self._fabric = fabric
        self._stack = fabric.stacks["external"]
        self._addresses = addresses
        self._nodes = nodes
        self._closers: list[Callable[[], None]] = []
        self._tasks = TaskSet()
        self._tls: ssl.SSLContext | None = None

    def open(self) -> None:
        """Skips ports that the user's own relays occupy."""
        for address in self._addresses:
            self._listen(address, 80, lambda near: self._serve(near, None))
            self._listen(address, 443, self._serve_tls)
        if self._give_address():
            self._closers.append(self._dataplane.answer(NAME_SERVER, _DNS_PORT, self._respond))

    def close(self) -> None:
        for close in reversed(self._closers):
            close()
        self._closers.clear()
        self._tasks.cancel()

    def _give_address(self) -> bool:
        """Assigns the address that machines use as their name server, unless the cluster uses it
        for something else.
        """
        link = next(link for link in self._stack.links.values() if link.kind != "loopback")
        if self._fabric.owner(NAME_SERVER) is not None:
            return False
        self._stack.add_address(link.name, f"{NAME_SERVER}/32")
        self._closers.append(lambda: self._stack.delete_address(link.name, f"{NAME_SERVER}/32"))
        return True

    def _listen(
        self, address: str, port: int, handle: Callable[[socket.socket], Coroutine[Any, Any, None]]
    ) -> None:
        def accept(near: socket.socket) -> None:
            self._tasks.start(handle(near))

        try:
            self._closers.append(self._dataplane.listen(address, port, accept))
        except OSError as problem:
            if problem.errno != errno.EADDRINUSE:
                raise

    # ---- web ----

    async def _serve_tls(self, near: socket.socket) -> None:
        if self._tls is None:
            self._tls = await asyncio.to_thread(_server_context, list(self._addresses))
        await self._serve(near, self._tls)

    async def _serve(self, near: socket.socket, tls: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_MOST_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        near.setblocking(False)
        try:
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, near, ssl=tls)
        except (OSError, ssl.SSLError) as problem:
            log.debug("a client of the external host disconnected: %s", problem)
            near.close()
            return
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        with contextlib.suppress(
            OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError
        ):
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_answer(head))
                await writer.drain()
        writer.close()

    # ---- names ----

    async def _respond(self, question: bytes, _source: str) -> bytes | None:
        try:
            requested = wire.parse_dns_message(question).question
        except wire.MalformedDnsMessage:
            return None
        return (
            await answering_address(self._lookup, DnsConfig())("", _DNS_PORT, question)
            if requested is not None
            else None
        )

    async def _lookup(self, name: str, _dns: DnsConfig) -> Sequence[str]:
        folded = name.rstrip(".").lower()
        if folded in ("external", OUTSIDE_NAME):
            return self._addresses
        if folded == "localhost":
            return ("127.0.0.1",)
        return self._nodes().get(folded, ())


def _answer(head: bytes) -> bytes:
    method = head.split(b" ", 1)[0]
    body = b"" if method == b"HEAD" else _PAGE
    status = b"200 OK" if method in (b"GET", b"HEAD") else b"405 Method Not Allowed"
    return (
        b"HTTP/1.1 "
        + status
        + b"\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: "
        + str(len(_PAGE if method == b"HEAD" else body)).encode()
        + b"\r\nConnection: close\r\n\r\n"
        + body
    )


def _server_context(addresses: list[str]) -> ssl.SSLContext:
    """A certificate from its own authority, which no client trusts: curl needs -k."""
    authority = pki.make_ca("Example CA")
    issued = pki.issue_server(authority, OUTSIDE_NAME, [OUTSIDE_NAME], addresses)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = Path(folder) / "tls.crt", Path(folder) / "tls.key"
        pki.save_key_pair(issued, certificate, key)
        load_certificate_files(context, certificate, key)
    return context
