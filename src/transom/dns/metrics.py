"""The server's figures, by the names that CoreDNS has for them, and the few words of HTTP that it takes to read them."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Final

from transom.dns.server import DnsServer
from transom.kit import dnswire as wire
from transom.kit.clock import Clock
from transom.network.resolver import limited

log = logging.getLogger("transom.dns")

_PATIENCE = 10.0
_LARGEST = 8192
_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_HEADS: Final = {200: "200 OK", 404: "404 Not Found"}


def text(server: DnsServer) -> str:
    rows = ["# TYPE coredns_dns_responses_total counter"]
    for rcode, count in enumerate(server.responses):
        if count:
            name = wire.RCODES.get(rcode, str(rcode))
            rows.append(f'coredns_dns_responses_total{{rcode="{name}",server="dns://:53",zone="."}} {count}')
    figures = (
        ("coredns_cache_hits_total", "counter", server.cache.hits),
        ("coredns_cache_entries", "gauge", len(server.cache) + server.kept),
        ("coredns_forward_requests_total", "counter", server.forwarder.sent),
    )
    for name, kind, value in figures:
        rows += [f"# TYPE {name} {kind}", f"{name} {value}"]
    return "\n".join(rows) + "\n"


class Metrics:
    """`accept` is what a data plane's `listen` wants: it answers one request and closes."""

    def __init__(self, server: DnsServer, clock: Clock) -> None:
        self._server = server
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()

    def accept(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        task = asyncio.get_running_loop().create_task(self._serve(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                await limited(self._clock, _PATIENCE, self._answer(connection))
            except OSError as problem:
                log.debug("metrics: %s", problem)

    async def _answer(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        data = b""
        while b"\r\n\r\n" not in data and len(data) < _LARGEST:
            piece = await loop.sock_recv(connection, _LARGEST)
            if not piece:
                return
            data += piece
        target = (data.split(b" ", 2)[1:2] or [b""])[0].partition(b"?")[0]
        status, body = (200, text(self._server)) if target == b"/metrics" else (404, "404 page not found\n")
        content = body.encode()
        lines = (f"HTTP/1.1 {_HEADS[status]}", f"Content-Type: {_TYPE}", f"Content-Length: {len(content)}", "Connection: close")
        await loop.sock_sendall(connection, "\r\n".join((*lines, "", "")).encode() + content)
