"""The server's metrics, with CoreDNS' names, and the minimal HTTP server that exposes them."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Final

from transom.dns.server import DnsServer
from transom.kit import dnswire as wire
from transom.kit.clock import Clock
from transom.kit.prometheus import CONTENT_TYPE, Family, Sample, render_metrics
from transom.kit.task_set import TaskSet
from transom.network.resolver import limited_config

log = logging.getLogger("transom.dns")

_TIMEOUT_SECONDS = 10.0
_LARGEST = 8192
_HEADS: Final = {200: "200 OK", 404: "404 Not Found"}


def metrics_text(server: DnsServer) -> str:
    responses = [
        Sample(
            (("rcode", wire.RCODES.get(rcode, str(rcode))), ("server", "dns://:53"), ("zone", ".")),
            count,
        )
        for rcode, count in enumerate(server.responses)
        if count
    ]
    entries = len(server.cache) + server.kept
    return render_metrics(
        (
            Family("coredns_dns_responses_total", "counter", "", responses),
            Family("coredns_cache_hits_total", "counter", "", [Sample((), server.cache.hits)]),
            Family("coredns_cache_entries", "gauge", "", [Sample((), entries)]),
            Family(
                "coredns_forward_requests_total",
                "counter",
                "",
                [Sample((), server.forwarder.sent)],
            ),
        )
    )


class DnsMetrics:
    """`accept` fits a data plane's `listen`: it answers one request and closes."""

    def __init__(self, server: DnsServer, clock: Clock) -> None:
        self._server = server
        self._clock = clock
        self._tasks = TaskSet()

    def accept(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._tasks.start(self._serve(connection))

    async def close(self) -> None:
        await self._tasks.close()

    async def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                await limited_config(self._clock, _TIMEOUT_SECONDS, self._answer(connection))
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
        status, body = (
            (200, metrics_text(self._server))
            if target == b"/metrics"
            else (404, "404 page not found\n")
        )
        content = body.encode()
        lines = (
            f"HTTP/1.1 {_HEADS[status]}",
            f"Content-Type: {CONTENT_TYPE}",
            f"Content-Length: {len(content)}",
            "Connection: close",
        )
        await loop.sock_sendall(connection, "\r\n".join((*lines, "", "")).encode() + content)
