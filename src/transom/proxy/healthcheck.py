"""What kube-proxy serves about its node: the health checks of services for load balancers, and its
own /healthz.

Both are small HTTP servers on the data plane, so they are reachable over the proxied network. They
receive the local endpoints and the sync state from the proxier and look nothing up themselves.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Protocol

import orjson

from transom.http.messages import Handler, HttpRequest, HttpResponse
from transom.http.server import HttpServer
from transom.kit.clock import Clock
from transom.kit.task_set import TaskSet
from transom.network.api import Accept
from transom.proxy.tracker import ServiceName

log = logging.getLogger("transom.proxy")

_JSON: Final = [(b"Content-Type", b"application/json"), (b"X-Content-Type-Options", b"nosniff")]
_TEXT: Final = [
    (b"Content-Type", b"text/plain; charset=utf-8"),
    (b"X-Content-Type-Options", b"nosniff"),
]


class ListenFunction(Protocol):
    """The part of a data plane that this module uses."""

    def listen(self, address: str, port: int, accept: Accept) -> Callable[[], None]: ...


def serve_health_checks(
    dataplane: ListenFunction, addresses: Sequence[str], port: int, handler: Handler
) -> Callable[[], None]:
    """Starts an HTTP server at addresses of the data plane; returns a function that stops it.
    Raises OSError if another process already listens.
    """
    server = HttpServer(handler, None)
    tasks = TaskSet()

    def accept(connection: socket.socket) -> None:
        tasks.start(server.adopt(connection))

    closers: list[Callable[[], None]] = []
    try:
        for address in addresses:
            closers.append(dataplane.listen(address, port, accept))
    except OSError:
        for close in closers:
            close()
        raise

    def end() -> None:
        for close in closers:
            close()
        tasks.cancel()

    return end


def health_not_found() -> HttpResponse:
    return HttpResponse(404, list(_TEXT), b"404 page not found\n")


class ServiceHealth:
    """One server for each LoadBalancer service with the local traffic policy, on its health check
    port.
    """

    def __init__(
        self,
        node_name: str,
        dataplane: ListenFunction,
        addresses: Callable[[], Sequence[str]],
        event: Callable[[ServiceName, str], None] | None = None,
    ) -> None:
        self._node = node_name
        self._dataplane = dataplane
        self._addresses = addresses  # addresses of the node
        self._event = event  # called when a port cannot be opened
        self._open: dict[ServiceName, tuple[int, Callable[[], None]]] = {}
        self._local: dict[ServiceName, int] = {}

    def sync(self, ports: Mapping[ServiceName, int], local: Mapping[ServiceName, int]) -> None:
        for service, (port, close) in list(self._open.items()):
            if ports.get(service) != port:
                log.debug('Closing healthcheck "%s/%s" on port %d', *service, port)
                close()
                del self._open[service]
        for service, port in ports.items():
            if service not in self._open:
                self._start(service, port)
        self._local = {service: local.get(service, 0) for service in self._open}

    def close(self) -> None:
        self.sync({}, {})

    def answer(self, service: ServiceName) -> HttpResponse:
        count = self._local.get(service, 0)
        namespace, name = (orjson.dumps(part).decode() for part in service)
        body = (
            f'{{\n\t"service": {{\n\t\t"namespace": {namespace},\n\t\t"name": '
            f'{name}\n\t}},\n\t"localEndpoints": {count}\n}}'
        )
        return HttpResponse(200 if count else 503, list(_JSON), body.encode())

    def _start(self, service: ServiceName, port: int) -> None:
        log.debug('Opening healthcheck "%s/%s" on port %d', *service, port)
        try:
            close = serve_health_checks(
                self._dataplane, self._addresses(), port, lambda _request: self.answer(service)
            )
        except OSError as problem:
            text = (
                f'node {self._node} failed to start healthcheck "{service[0]}/{service[1]}" '
                f"on port {port}: "
                f"listen tcp :{port}: bind: {(problem.strerror or str(problem)).lower()}"
            )
            log.error("%s", text)
            if self._event is not None:
                self._event(service, text)
            return
        self._open[service] = (port, close)


class ProxierHealth:
    """/healthz: healthy if no change has waited for longer than twice the sync period."""

    def __init__(self, clock: Clock, timeout: float) -> None:
        self._clock = clock
        self._timeout = timeout
        self._queued = float("-inf")
        self._updated: float | None = None
        self._updated_at = 0.0

    def queued(self) -> None:
        self._queued = self._clock.monotonic()

    def updated(self) -> None:
        self._updated = self._clock.monotonic()
        self._updated_at = self._clock.time()

    @property
    def healthy(self) -> bool:
        return (
            self._updated is None
            or self._updated > self._queued
            or self._clock.monotonic() - self._queued < self._timeout
        )

    def handle(self, request: HttpRequest) -> HttpResponse:
        if request.path != "/healthz":
            return health_not_found()
        now, healthy = self._clock.time(), self.healthy
        current = _time_text(now, self._clock.monotonic())
        updated = current if healthy else _time_text(self._updated_at, self._updated or 0.0)
        body = f'{{"lastUpdated": "{updated}","currentTime": "{current}"}}'
        return HttpResponse(200 if healthy else 503, list(_JSON), body.encode())


def _time_text(moment: float, monotonic: float) -> str:
    """Formats a time like Go does, including the monotonic clock reading."""
    at = datetime.fromtimestamp(moment, UTC)
    fraction = f".{at.microsecond:06d}".rstrip("0").rstrip(".")
    return f"{at:%Y-%m-%d %H:%M:%S}{fraction} +0000 UTC m=+{monotonic:.9f}"
