"""A Linux node and a Windows node on virtual time, for tests of the Windows node's programs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Self

from tests.inline_workers import InlineWorkers
from tests.node.pools import make_pool
from tests.simulation.loop import LoopClock, loop_clock

from transom.apiserver.core.context import UserInfo
from transom.apiserver.server import ServerOptions, build_api_server
from transom.apiserver.serving.inprocess import InProcessClient
from transom.client.api import ApiClient
from transom.client.resources import EVENTS, NODES, PODS, SERVICES
from transom.cloud.provider import CloudProvider
from transom.cluster.config import ClusterConfig
from transom.cluster.options import add_ipv6_ranges
from transom.controllers.base import ControllerSettings
from transom.controllers.manager import USER, ControllerManager
from transom.machinery.objects import Object
from transom.machinery.releases import DEFAULT, Release
from transom.machinery.serviceaccounts import group_names, user_name
from transom.node import spec as specs
from transom.node.machine_disks import MachineDisks
from transom.node.network_settings import NetworkSettings
from transom.node.network_windows import WindowsNodeNetwork
from transom.node.programs.node_programs import NodePrograms, ProgramProcess
from transom.store.memory import MemoryStore
from transom.windows.releases import node_build

TAGS = {17763: "1809", 19041: "2004", 20348: "ltsc2022", 26100: "ltsc2025"}
IMAGE = "mcr.microsoft.com/windows/nanoserver:{}"
CONTROLLERS = ("endpoint", "endpointslice", "nodeipam", "nodelifecycle", "serviceaccount")


class NodeTestCluster:
    def __init__(
        self,
        clock: LoopClock,
        network: NetworkSettings | None = None,
        *,
        store: MemoryStore | None = None,
        disks: MachineDisks | None = None,
        release: Release = DEFAULT,
        **windows: Any,
    ) -> None:
        self.clock = clock
        self.image = IMAGE.format(TAGS[windows.get("build") or node_build(release)])
        self.rng = random.Random(5)
        config = add_ipv6_ranges(
            ClusterConfig(
                name="bins", port=6443, network=network or NetworkSettings(), release=str(release)
            ),
            large=False,
        )
        self.pod_cidrs = tuple(config.pod_cidr.split(","))
        config.state.mkdir(parents=True, exist_ok=True)
        self.api = build_api_server(
            ServerOptions(
                store=store or MemoryStore(clock),
                workers=InlineWorkers(),
                clock=clock,
                rng=self.rng,
                release=str(release),
            )
        )
        self.client = InProcessClient(
            self.api, UserInfo("admin", ("system:masters", "system:authenticated"))
        )
        nodes = specs.complete_specs(
            config, [specs.NodeSpec("l"), specs.NodeSpec("w", os="windows", **windows)]
        )
        self.pool = make_pool(self.api, config, nodes, clock, self.rng, CloudProvider(clock), disks)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        await self.api.start()
        settings = ControllerSettings(
            root_ca="-",
            sign=lambda claims: "token of " + claims["sub"],
            pod_cidrs=self.pod_cidrs,
        )

        def client(identity: str) -> ApiClient:
            name = user_name("kube-system", identity) if identity else USER
            return InProcessClient(
                self.api, UserInfo(name, (*group_names("kube-system"), "system:authenticated"))
            )

        manager = ControllerManager(client, self.clock, self.rng, settings)
        tasks = [asyncio.create_task(life) for life in (manager.run(), self.pool.run())]
        try:
            await self.until(lambda: self.pool.all_ready())
            yield self
            assert not [task for task in tasks if task.done()]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.api.stop()

    async def until(self, seen: Callable[[], Any], seconds: float = 60) -> None:
        for _ in range(int(seconds * 4)):
            found = seen()
            if found if not isinstance(found, Awaitable) else await found:
                return
            await self.clock.sleep(0.25)
        raise AssertionError(f"not within {seconds} s: {await self.story()}")

    async def story(self) -> list[str]:
        events = (await self.client.list(EVENTS, "")).items
        return [f"{e['involvedObject'].get('name')} {e['reason']}: {e['message']}" for e in events]

    # ---- the Windows node ----

    @property
    def binaries(self) -> NodePrograms:
        programs = self.pool.node("w").programs
        programs.attach()
        return programs

    @property
    def net(self) -> WindowsNodeNetwork:
        found = self.pool.node("w").network
        assert isinstance(found, WindowsNodeNetwork)
        return found

    @property
    def files(self) -> Any:
        assert self.binaries  # they put their own files there
        return self.pool.node("w").machine.files

    async def stop(self, binary: str) -> None:
        process = self.binaries.running(binary)
        assert process is not None
        await process.stop()

    async def launch(self, binary: str, *argv: str, **environment: str) -> ProgramOutput:
        printed = ProgramOutput()
        printed.process = await self.binaries.launch(binary, argv, environment, "C:\\k", printed)
        return printed

    async def relaunch(
        self, binary: str, *more: str, without: str = "", **environment: str
    ) -> ProgramOutput:
        """With its usual line, without some of its flags, and with others."""
        if self.binaries.running(binary) is not None:
            await self.stop(binary)
        usual = [
            word
            for word in self.binaries.usual(binary)[1]
            if not without or not word.startswith(f"--{without}")
        ]
        return await self.launch(
            binary, *usual, *more, **{**self.binaries.environment(binary), **environment}
        )

    # ---- the cluster ----

    async def pod(self, name: str, node: str = "w", **annotations: str) -> None:
        container = {
            "name": "c",
            "image": self.image,
            "command": ["cmd", "/c", "ping -t localhost"],
        }
        if node == "l":
            container = {"name": "c", "image": "nginx:1.19"}
        marks = {
            f"sim.transom.dev/{key.replace('_', '-')}": value for key, value in annotations.items()
        }
        await self.client.create(
            PODS,
            "default",
            {
                "metadata": {"name": name, "labels": {"app": name}, "annotations": marks},
                "spec": {
                    "nodeName": node,
                    "containers": [container],
                    "terminationGracePeriodSeconds": 1,
                },
            },
        )

    async def runs(self, name: str, node: str = "w", **annotations: str) -> Object:
        await self.pod(name, node, **annotations)
        await self.until(lambda: self._phase(name, "Running"))
        return await self.client.get(PODS, "default", name)

    async def _phase(self, name: str, phase: str) -> bool:
        return bool((await self.client.get(PODS, "default", name))["status"].get("phase") == phase)

    async def service(self, name: str) -> str:
        made = await self.client.create(
            SERVICES,
            "default",
            {
                "metadata": {"name": name},
                "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 80}]},
            },
        )
        return str(made["spec"]["clusterIP"])

    async def node(self, name: str = "w") -> Object:
        return await self.client.get(NODES, "", name)

    async def events(self, reason: str) -> list[str]:
        return [
            e["message"]
            for e in (await self.client.list(EVENTS, "")).items
            if e["reason"] == reason
        ]

    def balancers(self, address: str) -> list[Any]:
        self.pool.cluster.network.fabric.refresh_node("w")
        return [b for b in self.net.hns.loadbalancers.values() if address in str(b)]

    def routes(self) -> set[str]:
        self.pool.cluster.network.fabric.refresh_node("w")
        return {str(route.destination) for route in self.net.stack.routes()}


class ProgramOutput:
    """What a program wrote to its standard output and error."""

    process: ProgramProcess

    def __init__(self) -> None:
        self.data = b""

    def __call__(self, data: bytes) -> None:
        self.data += data

    @property
    def text(self) -> str:
        return self.data.decode()

    async def end(self) -> int:
        return await asyncio.wait_for(self.process.wait(), 60)


@asynccontextmanager
async def simulated_cluster(
    network: NetworkSettings | None = None, **windows: Any
) -> AsyncIterator[NodeTestCluster]:
    """Needs the virtual loop."""
    async with NodeTestCluster(loop_clock(), network, **windows).running() as cluster:
        yield cluster
