"""The TCP ports that services of a simulated Windows machine listen on, from boot until the service
stops.

Port 135 and 445 accept connections and end them at the first request: neither RPC nor SMB is
implemented. Port 5985 answers as HTTP.sys and WinRM do without credentials. The IP Helper service
listens where users have configured port proxies (`port_proxy`).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Mapping
from typing import Final

from transom.http.messages import HttpRequest, HttpResponse
from transom.http.server import HttpServer
from transom.kit.named_tuple import NamedTuple
from transom.kit.task_set import TaskSet
from transom.machines.windows.port_proxy import PORT_PROXY_SERVICE
from transom.machines.windows.registry import WindowsRegistry
from transom.runtime.sim.port_proxy import PortProxies, ResolveName
from transom.runtime.sim.sockets import NetworkNamespace

_SERVICES: Final = r"HKLM\SYSTEM\CurrentControlSet\Services"
_AUTOMATIC: Final = 2
_KERNEL_PROCESS: Final = 4
_SERVER: Final = (b"Server", b"Microsoft-HTTPAPI/2.0")
_NOT_FOUND: Final = (
    b'<!DOCTYPE HTML PUBLIC "-//W3C//DTD HTML 4.01//EN""http://www.w3.org/TR/html4/strict.dtd">\r\n'
    b"<HTML><HEAD><TITLE>Not Found</TITLE>\r\n"
    b'<META HTTP-EQUIV="Content-Type" Content="text/html; charset=us-ascii"></HEAD>\r\n'
    b"<BODY><h2>Not Found</h2>\r\n"
    b"<hr><p>HTTP Error 404. The requested resource is not found.</p>\r\n"
    b"</BODY></HTML>\r\n"
)


def answer_winrm(request: HttpRequest) -> HttpResponse:
    if request.path.rstrip("/").lower() != "/wsman":
        kind = (b"Content-Type", b"text/html; charset=us-ascii")
        return HttpResponse(404, [kind, _SERVER], _NOT_FOUND)
    if request.method != "POST":
        return HttpResponse(405, [(b"Allow", b"POST"), _SERVER], b"")
    ways = [(b"WWW-Authenticate", way) for way in (b"Negotiate", b"Kerberos")]
    return HttpResponse(401, [_SERVER, *ways], b"")


async def _serve_winrm(connection: socket.socket) -> None:
    await HttpServer(answer_winrm, None).adopt(connection)


async def _end_at_first_request(connection: socket.socket) -> None:
    with connection:
        await asyncio.get_running_loop().sock_recv(connection, 1)


class _SystemPort(NamedTuple):
    port: int
    serve: Callable[[socket.socket], Coroutine[None, None, None]]
    in_kernel: bool = False


_PORTS: Final[Mapping[str, _SystemPort]] = {
    "RpcSs": _SystemPort(135, _end_at_first_request),
    "LanmanServer": _SystemPort(445, _end_at_first_request, in_kernel=True),
    "WinRM": _SystemPort(5985, _serve_winrm, in_kernel=True),
}


class SystemPorts:
    def __init__(self, namespace: NetworkNamespace) -> None:
        self._namespace = namespace
        self._open: dict[str, Callable[[], None]] = {}
        self._tasks = TaskSet()
        self._proxies: PortProxies | None = None

    def boot(self, registry: WindowsRegistry, resolve: ResolveName) -> None:
        """Opens the ports of the services that start with the machine."""
        self._proxies = PortProxies(self._namespace, registry, resolve)
        for service in (*_PORTS, PORT_PROXY_SERVICE):
            start = registry.get(rf"{_SERVICES}\{service}", "Start")
            if start in (None, _AUTOMATIC):
                self.open(service)

    def open(self, service: str, pid: int = 0) -> None:
        """The service runs; 0 if its process is not known yet."""
        if service == PORT_PROXY_SERVICE and self._proxies is not None:
            self._proxies.start(pid)
        row = _PORTS.get(service)
        if row is None:
            return
        self.close(service)
        owner = _KERNEL_PROCESS if row.in_kernel else pid

        def accept(connection: socket.socket) -> None:
            self._tasks.start(row.serve(connection))

        self._open[service] = self._namespace.listen(row.port, accept, pid=owner)

    def reload_port_proxies(self) -> None:
        if self._proxies is not None:
            self._proxies.reload()

    def close(self, service: str) -> None:
        if service == PORT_PROXY_SERVICE and self._proxies is not None:
            self._proxies.stop()
        close = self._open.pop(service, None)
        if close is not None:
            close()

    def shut_down(self) -> None:
        for service in (*self._open, PORT_PROXY_SERVICE):
            self.close(service)
        self._tasks.cancel()
