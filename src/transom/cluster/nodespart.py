"""The nodes as a part of a running cluster: brought up beside the API server, and reached through it.

Imports of kubelets and runtimes come late here: the API server is up before they are needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from transom.apiserver.kubelets.options import KubeletOptions
from transom.cluster.config import ClusterConfig
from transom.cluster.pki import ClusterPki
from transom.http.messages import Answer, Request
from transom.http.outgoing import ClientPair
from transom.kit.clock import RealClock
from transom.metrics.scraper import MetricsScraper

if TYPE_CHECKING:
    from transom.apiserver.server import ApiServer
    from transom.cluster.control import Control
    from transom.cluster.fleet import Fleet
    from transom.network.api import Dataplane

READY_SECONDS = 20.0
_TOLD_SINGLY = 8  # clusters with more nodes tell of them in steps


class NodesPart:
    def __init__(self, config: ClusterConfig, pki: ClusterPki) -> None:
        self._config = config
        self._pki = pki
        self._network: asyncio.Future[Dataplane] | None = None
        self._fleet: Fleet | None = None
        self._control: Control | None = None
        self._ready = asyncio.Event()
        self.metrics = MetricsScraper(self._running, self._usage, RealClock())

    def _running(self) -> Iterable[str]:
        return [m.spec.name for m in self._fleet.machines() if m.kubelet is not None] if self._fleet else ()

    async def _usage(self, node: str) -> Mapping[str, Any]:
        kubelet = self._fleet.machine(node).kubelet if self._fleet else None
        if kubelet is None:
            raise ConnectionRefusedError("its kubelet does not run")
        return kubelet.server.stats.cpu_and_memory()

    def kubelets(self) -> KubeletOptions:
        """How the API server reaches kubelets and pods: through the modelled network, as whom kubelets trust."""
        pair = ClientPair(self._pki.kubelet_client_cert, self._pki.kubelet_client_key)
        return KubeletOptions(self._way, pair, self._pki.ca.read_bytes())

    def _way(self, host: str, port: int) -> Awaitable[socket.socket] | None:
        """The network of the cluster carries its own addresses; everything else is reached from this machine."""
        from transom.cluster.network import ranges_of

        return self._connect(host, port) if ranges_of(self._config).have(host) else None

    async def _connect(self, address: str, port: int) -> socket.socket:
        """Who asks before the nodes are there waits for them."""
        return await (await self._dataplane()).connect(address, port)

    def _dataplane(self) -> asyncio.Future[Dataplane]:
        if self._network is None:
            self._network = asyncio.get_running_loop().create_future()
        return self._network

    async def run(self, api: ApiServer, report: Callable[[str], None]) -> None:
        from transom.cluster import nodes as specs
        from transom.cluster.control import Control
        from transom.cluster.fleet import Fleet
        from transom.cluster.network import make_dataplane, make_fabric, ranges_of
        from transom.cluster.run import supervised

        wanted = specs.load(self._config) or []

        def told(name: str, ready: int, of: int) -> None:
            if self._ready.is_set():
                return
            if of <= _TOLD_SINGLY or ready == of or ready % 100 == 0:
                of_all = f" ({ready} of {of})" if of > _TOLD_SINGLY else ""
                report(f"node {name} is ready{of_all}")
            if ready >= of:
                self._ready.set()

        rng = random.Random(random.SystemRandom().getrandbits(64))
        fabric = make_fabric(ranges_of(self._config))
        dataplane = make_dataplane(self._config, fabric, api.clock, rng)
        fleet = Fleet(api, self._config, self._pki, wanted, fabric, dataplane, supervised)
        self._dataplane().set_result(dataplane)
        fleet.on_ready = told
        self._fleet = fleet
        self._control = Control(self._config, fleet)
        if fleet.all_ready():  # there are none, or all are switched off
            self._ready.set()
        report(f"the control plane is up; starting {len(wanted)} nodes")
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(supervised("nodes", fleet.run))
                group.create_task(supervised("metrics", self.metrics.run))
        finally:
            closing = dataplane.close()
            if closing is not None:
                await closing

    async def ready_or(self, stopping: asyncio.Event) -> None:
        """Until all nodes are ready, the cluster is told to stop, or patience is at its end."""
        waiting = [asyncio.ensure_future(self._ready.wait()), asyncio.ensure_future(stopping.wait())]
        try:
            await asyncio.wait(waiting, timeout=READY_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            self._ready.set()

    async def control(self, request: Request) -> Answer:
        if self._control is None:
            from transom.apiserver.respond import plain_text

            return plain_text(503, "the nodes are not there yet\n")
        return await self._control(request)
