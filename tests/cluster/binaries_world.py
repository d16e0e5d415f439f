"""A Linux node and a Windows node on virtual time, for tests of the Windows node's programs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.simulation.loop import LoopClock, run

from transom.apiserver.context import User
from transom.apiserver.inprocess import InProcessClient
from transom.apiserver.server import ServerOptions, build
from transom.client.api import Client
from transom.client.resources import EVENTS, NODES, PODS, SERVICES
from transom.cluster import nodes as specs
from transom.cluster.binaries import NodeBinaries, Process
from transom.cluster.config import ClusterConfig
from transom.cluster.fleet import Fleet
from transom.cluster.netconfig import NetworkSettings
from transom.cluster.network import make_dataplane, make_fabric, ranges_of
from transom.cluster.nodenet_windows import WindowsNodeNet
from transom.cluster.pki import ClusterPki
from transom.cluster.run import supervised
from transom.controllers.base import Settings
from transom.controllers.manager import USER, ControllerManager
from transom.machinery.objects import Object
from transom.machinery.serviceaccounts import group_names, user_name
from transom.store.memory import MemoryStore

IMAGE = "mcr.microsoft.com/windows/nanoserver:{}"
CONTROLLERS = ("endpoint", "endpointslice", "nodeipam", "nodelifecycle", "serviceaccount")


class World:
    def __init__(self, clock: LoopClock, network: NetworkSettings | None = None, **windows: Any) -> None:
        self.clock = clock
        self.image = IMAGE.format({19041: "2004"}.get(windows.get("build", 0), "1809"))
        self.rng = random.Random(5)
        config = ClusterConfig(name="bins", port=6443, network=network or NetworkSettings())
        config.state.mkdir(parents=True, exist_ok=True)
        self.api = build(ServerOptions(store=MemoryStore(clock), clock=clock, rng=self.rng))
        self.client = InProcessClient(self.api, User("admin", ("system:masters", "system:authenticated")))
        nodes = specs.settle(config, [specs.NodeSpec("l"), specs.NodeSpec("w", os="windows", **windows)])
        fabric = make_fabric(ranges_of(config))
        self.fleet = Fleet(
            self.api, config, ClusterPki(Path()), nodes, fabric, make_dataplane(config, fabric, clock, self.rng), supervised
        )

    async def play(self, scenario: Callable[[World], Awaitable[None]]) -> None:
        await self.api.start()
        settings = Settings(root_ca="-", sign=lambda claims: "token of " + claims["sub"], pod_cidrs=("10.244.0.0/16",))

        def client(identity: str) -> Client:
            name = user_name("kube-system", identity) if identity else USER
            return InProcessClient(self.api, User(name, (*group_names("kube-system"), "system:authenticated")))

        manager = ControllerManager(client, self.clock, self.rng, settings)
        tasks = [asyncio.create_task(life) for life in (manager.run(), self.fleet.run())]
        try:
            await self.until(lambda: self.fleet.all_ready())
            await scenario(self)
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

    # ---- the Windows node ----------------------------------------------------------------------------------------------

    @property
    def binaries(self) -> NodeBinaries:
        return self.fleet.binaries("w")

    @property
    def net(self) -> WindowsNodeNet:
        found = self.fleet.machine("w").network
        assert isinstance(found, WindowsNodeNet)
        return found

    @property
    def files(self) -> Any:
        assert self.binaries  # they put their own files there
        return self.fleet.machine("w").host.files

    async def stop(self, binary: str) -> None:
        process = self.binaries.running(binary)
        assert process is not None
        await process.stop()

    async def launch(self, binary: str, *argv: str, **environment: str) -> Said:
        said = Said()
        said.process = await self.binaries.launch(binary, argv, environment, "C:\\k", said)
        return said

    async def relaunch(self, binary: str, *more: str, without: str = "", **environment: str) -> Said:
        """With its usual line, without some of its flags, and with others."""
        if self.binaries.running(binary) is not None:
            await self.stop(binary)
        usual = [word for word in self.binaries.usual(binary)[1] if not without or not word.startswith(f"--{without}")]
        return await self.launch(binary, *usual, *more, **{**self.binaries.environment(binary), **environment})

    # ---- the cluster -------------------------------------------------------------------------------------------------

    async def pod(self, name: str, node: str = "w", **annotations: str) -> None:
        container = {"name": "c", "image": self.image, "command": ["cmd", "/c", "ping -t localhost"]}
        if node == "l":
            container = {"name": "c", "image": "nginx:1.19"}
        marks = {f"sim.transom.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
        await self.client.create(PODS, "default", {
            "metadata": {"name": name, "labels": {"app": name}, "annotations": marks},
            "spec": {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 1},
        })  # fmt: skip

    async def runs(self, name: str, node: str = "w", **annotations: str) -> Object:
        await self.pod(name, node, **annotations)
        await self.until(lambda: self._phase(name, "Running"))
        return await self.client.get(PODS, "default", name)

    async def _phase(self, name: str, phase: str) -> bool:
        return bool((await self.client.get(PODS, "default", name))["status"].get("phase") == phase)

    async def service(self, name: str) -> str:
        made = await self.client.create(SERVICES, "default", {
            "metadata": {"name": name}, "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 80}]},
        })  # fmt: skip
        return str(made["spec"]["clusterIP"])

    async def node(self, name: str = "w") -> Object:
        return await self.client.get(NODES, "", name)

    async def events(self, reason: str) -> list[str]:
        return [e["message"] for e in (await self.client.list(EVENTS, "")).items if e["reason"] == reason]

    def balancers(self, address: str) -> list[Any]:
        self.fleet.network.fabric.look("w")
        return [b for b in self.net.hns.loadbalancers.values() if address in str(b)]

    def routes(self) -> set[str]:
        self.fleet.network.fabric.look("w")
        return {str(route.destination) for route in self.net.stack.routes()}


class Said:
    """What a program wrote to its standard output and error."""

    process: Process

    def __init__(self) -> None:
        self.data = b""

    def __call__(self, data: bytes) -> None:
        self.data += data

    @property
    def text(self) -> str:
        return self.data.decode()

    async def end(self) -> int:
        return await asyncio.wait_for(self.process.wait(), 60)


def play(scenario: Callable[[World], Awaitable[None]], network: NetworkSettings | None = None, **windows: Any) -> None:
    run(lambda clock: World(clock, network, **windows).play(scenario))
