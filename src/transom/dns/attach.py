"""Attaches the server to addresses of the cluster's network: UDP, TCP and metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from transom.dns.metrics import DnsMetrics
from transom.dns.objects import METRICS_PORT
from transom.dns.server import DnsServer
from transom.dns.settings import PORT
from transom.dns.transport import DnsConnections
from transom.kit.clock import Clock
from transom.network.api import Dataplane


class DnsAttachment:
    """Answers at `addresses`, those of the control-plane node. Raises OSError if another process
    uses one of the ports.
    """

    def __init__(
        self, server: DnsServer, dataplane: Dataplane, addresses: Sequence[str], clock: Clock
    ) -> None:
        self._server = server
        self._connections = DnsConnections(server.take, clock)
        self._metrics = DnsMetrics(server, clock)
        self._closers: list[Callable[[], None]] = []
        try:
            for address in addresses:
                self._closers.append(dataplane.answer(address, PORT, server.respond))
                self._closers.append(dataplane.listen(address, PORT, self._connections.accept))
                self._closers.append(dataplane.listen(address, METRICS_PORT, self._metrics.accept))
        except OSError:
            self._detach()
            raise

    def _detach(self) -> None:
        for close in self._closers:
            close()
        self._closers.clear()

    async def close(self) -> None:
        """Also closes the server."""
        self._detach()
        await self._connections.close()
        await self._metrics.close()
        await self._server.close()
