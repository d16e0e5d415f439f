"""The port proxies of the IP Helper service of a simulated Windows machine: it listens on each
configured address and port, and copies each connection to another one that it opens itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from transom.kit.ip_addresses import is_ip_address
from transom.kit.task_set import TaskSet
from transom.machines.windows.port_proxy import (
    ANY_ADDRESS,
    PORT_PROXY_KINDS,
    PortProxyEntry,
    port_proxy_entries,
)
from transom.machines.windows.registry import WindowsRegistry
from transom.runtime.sim.sockets import NetworkNamespace, is_loopback_address

log = logging.getLogger("transom.runtime")

ResolveName = Callable[[str], Awaitable[Sequence[str]]]
"""The addresses of a name. Raises OSError."""

_CHUNK: Final = 64 * 1024
_MAX_CONNECTIONS: Final = 500  # a proxy that connects to itself would open them without end
_LOOPBACK: Final = {4: "127.0.0.1", 6: "::1"}
_UNSPECIFIED: Final = {4: "0.0.0.0", 6: "::"}


class PortProxies:
    def __init__(
        self, namespace: NetworkNamespace, registry: WindowsRegistry, resolve: ResolveName
    ) -> None:
        self._namespace = namespace
        self._registry = registry
        self._resolve = resolve
        self._pid = 0
        self._running = False
        self._open: dict[PortProxyEntry, Callable[[], None]] = {}
        self._connections = TaskSet()

    def start(self, pid: int) -> None:
        """The service runs; connections that exist already continue."""
        self._close_listeners()
        self._pid = pid
        self._running = True
        self.reload()

    def stop(self) -> None:
        self._running = False
        self._close_listeners()
        self._connections.cancel()

    def reload(self) -> None:
        """Reads the configuration again. An entry whose address or port cannot be listened on is
        skipped, as Windows does without a message.
        """
        if not self._running:
            return
        wanted = [
            entry for kind in PORT_PROXY_KINDS for entry in port_proxy_entries(self._registry, kind)
        ]
        for entry in self._open.keys() - set(wanted):
            self._open.pop(entry)()
        for entry in wanted:
            if entry not in self._open:
                self._listen(entry)

    def _close_listeners(self) -> None:
        for close in self._open.values():
            close()
        self._open.clear()

    def _listen(self, entry: PortProxyEntry) -> None:
        version = PORT_PROXY_KINDS[entry.kind][0]
        address = self._local_address(entry.listen_address, version)
        port = _port_number(entry.listen_port)
        if address is None or port is None or _port_number(entry.connect_port) is None:
            return

        def accept(connection: socket.socket) -> None:
            if len(self._connections) >= _MAX_CONNECTIONS:
                connection.close()
                return
            self._connections.start(self._forward(entry, connection))

        try:
            self._open[entry] = self._namespace.listen(
                port, accept, address, pid=self._pid, version=version
            )
        except OSError as problem:
            log.debug("port proxy %s: %s", entry, problem)

    def _local_address(self, text: str, version: int) -> str | None:
        """None if it is no address of this machine."""
        if text in (ANY_ADDRESS, _UNSPECIFIED[version]):
            return _UNSPECIFIED[version]
        if text.lower() == "localhost":
            return _LOOPBACK[version]
        own = is_loopback_address(text) or text in self._namespace.addresses
        return text if own and is_ip_address(text) and (":" in text) == (version == 6) else None

    async def _forward(self, entry: PortProxyEntry, near: socket.socket) -> None:
        version = PORT_PROXY_KINDS[entry.kind][1]
        port = _port_number(entry.connect_port)
        with near:
            near.setblocking(False)
            if port is None:
                return
            try:
                far = await self._connect(entry.connect_address, port, version)
            except (OSError, TimeoutError) as problem:
                log.debug("port proxy %s: %s", entry, problem)
                return
            with far, contextlib.suppress(OSError):  # either end may close the connection
                await asyncio.gather(_copy(near, far), _copy(far, near))

    async def _connect(self, host: str, port: int, version: int) -> socket.socket:
        if host in (ANY_ADDRESS, "") or host.lower() == "localhost":
            host = _LOOPBACK[version]
        found = [host] if is_ip_address(host) else await self._resolve(host)
        for address in found:
            if (":" in address) == (version == 6):
                return await self._namespace.connect(address, port, self._pid)
        raise socket.gaierror(socket.EAI_NONAME, f"{host} has no IPv{version} address")


def _port_number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and 0 < int(text) < 65536 else None


async def _copy(source: socket.socket, target: socket.socket) -> None:
    """Until the source ends; the other direction may continue."""
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(source, _CHUNK):
        await loop.sock_sendall(target, data)
    target.shutdown(socket.SHUT_WR)
