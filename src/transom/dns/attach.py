"""The server at addresses of the cluster's network: datagrams, connections, and its figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from transom.dns.metrics import Metrics
from transom.dns.objects import METRICS_PORT
from transom.dns.server import DnsServer
from transom.dns.settings import PORT
from transom.dns.transport import Connections
from transom.kit.clock import Clock
from transom.network.api import Dataplane


class Attached:
    """From now on `addresses`, of the control plane's node, answer. OSError when somebody else has one of the ports."""

    def __init__(self, server: DnsServer, dataplane: Dataplane, addresses: Sequence[str], clock: Clock) -> None:
        self._server = server
        self._connections = Connections(server.take, clock)
        self._metrics = Metrics(server, clock)
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
        """And the server with it."""
        self._detach()
        await self._connections.close()
        await self._metrics.close()
        await self._server.close()
