"""Nodes on virtual time: an API server on a memory store, and a kubelet.

`core` gives the core of a kubelet with fakes around it, `node` a whole one on a simulated machine
and runtime:

    def test_it(node):
        async def scenario(node: Node) -> None: ...
        node("linux", scenario)  # or "windows"; settings of KubeletConfig may follow
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from socket import socket
from typing import Any

import pytest
from tests.conftest import ContextFactory
from tests.inline_workers import InlineWorkers
from tests.runtime.tablenet import TableDataplane, TableNetwork

from transom.apiserver.core.context import UserInfo
from transom.apiserver.server import ServerOptions, build_api_server
from transom.apiserver.serving.inprocess import InProcessClient
from transom.client.api import ApiUnreachable
from transom.client.events import EventRecorder
from transom.client.resources import EVENTS, NODES, PODS, SERVICE_ACCOUNTS
from transom.cloud.provider import CloudProvider
from transom.controllers.base import ControllerSettings
from transom.controllers.manager import USER as CONTROLLERS_USER
from transom.controllers.manager import ControllerManager
from transom.kit.clock import VirtualClock
from transom.kubelet import os_linux, os_windows
from transom.kubelet.base import KubeletContext
from transom.kubelet.config import KubeletConfig
from transom.kubelet.core import KubeletCore
from transom.kubelet.decoding import pod_decoder
from transom.kubelet.interfaces import PodSource
from transom.kubelet.kubelet import Kubelet
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.machinery.releases import BUILDS, DEFAULT, Release
from transom.machinery.serviceaccounts import group_names, user_name
from transom.machines.linux import LinuxHost
from transom.machines.windows.host import WindowsHost
from transom.runtime.sim.engine import SimRuntime
from transom.store.memory import MemoryStore

from .fakes import FakeParts, FakeRuntime

NODE, IP = "node1", "192.168.0.1"


class NoServices:
    async def synced(self) -> None: ...

    def list(self, namespace: str) -> list[Object]:
        return []


async def no_dial(address: str, port: int) -> Any:
    raise ConnectionRefusedError(address, port)


class Cluster:
    """An API server; `client` is the administrator's. Namespace default has its account, and node1
    is registered.
    """

    def __init__(
        self, release: Release = DEFAULT, api_gates: Mapping[str, bool] | None = None
    ) -> None:
        self.release = release
        self.clock = VirtualClock()
        self.rng = random.Random(7)
        self.api = build_api_server(
            ServerOptions(
                store=MemoryStore(self.clock),
                workers=InlineWorkers(),
                clock=self.clock,
                rng=self.rng,
                release=str(release),
                feature_gates=api_gates or {},
            )
        )
        self.client = InProcessClient(
            self.api, UserInfo("admin", ("system:masters", "system:authenticated"))
        )

    async def start(self) -> None:
        await self.api.start()
        await self.settle()
        await self.client.create(
            SERVICE_ACCOUNTS, "default", {"metadata": {"name": "default", "namespace": "default"}}
        )
        await self.client.create(NODES, "", {"metadata": {"name": NODE}})

    def node_client(self, name: str = NODE) -> InProcessClient:
        user = UserInfo(f"system:node:{name}", ("system:nodes", "system:authenticated"))
        return InProcessClient(self.api, user, user_agent="kubelet")

    async def settle(self, seconds: float = 0.5) -> None:
        """Run all tasks that are due, for so long on the clock."""
        await self.clock.run_for(seconds, turns=100)

    async def create(self, name: str, **spec: Any) -> Object:
        """A pod on node1 with one container `c`, unless the test says otherwise."""
        status: Mapping[str, Any] = spec.pop("metadata", {})
        pod = {
            "metadata": {"name": name, **status},
            "spec": {
                "nodeName": NODE,
                "automountServiceAccountToken": False,
                "containers": [{"name": "c", "image": "image"}],
                **spec,
            },
        }
        return await self.client.create(PODS, "default", pod)

    async def pod(self, name: str) -> Object:
        return await self.client.get(PODS, "default", name)

    async def missing(self, name: str) -> bool:
        with suppress(ApiError):
            await self.pod(name)
            return False
        return True

    async def events(self) -> list[tuple[str, str, str]]:
        """All events as (type, reason, message), in the order in which they were recorded."""
        found = (await self.client.list(EVENTS, "default")).items
        found.sort(key=lambda e: int(e["metadata"]["name"].rpartition(".")[2], 16))
        return [(e["type"], e["reason"], e["message"]) for e in found]


class CoreNode(Cluster):
    """A node with the core of a kubelet; everything around it is `parts`, and `runtime` does what
    the test says.
    """

    def __init__(self, release: Release = DEFAULT) -> None:
        super().__init__(release)
        self.parts = FakeParts()
        self.runtime = FakeRuntime(self.clock)
        self.host = LinuxHost(NODE, self.clock)
        self.sources: dict[str, PodSource] = {}
        self.writes: list[tuple[str, Any]] = []
        self.fail_writes = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await super().start()
        await self.start_kubelet()

    async def start_kubelet(self) -> None:
        client = self.node_client()
        self._count_writes(client)
        events = EventRecorder(client, "kubelet", self.clock, self.rng, release=DEFAULT, host=NODE)
        node = await self.client.get(NODES, "", NODE)
        env = KubeletContext(
            KubeletConfig(NODE, IP, version=BUILDS[str(self.release)].git_version),
            os_linux.RULES,
            client,
            self.clock,
            self.rng,
            events,
            self.host,
            self.runtime,
            NoServices(),
            no_dial,
            lambda: node,  # type: ignore[arg-type]
        )
        parts = self.parts
        parts.clock = self.clock
        parts.short_hash = env.config.pod_features.short_hash
        self.core = KubeletCore(
            env,
            images=parts,
            builder=parts,
            hooks=parts,
            volumes=parts,
            admission=parts,
            mirrors=parts,
            prober=parts.prober,
            sources=self.sources,
        )
        self._tasks = [asyncio.create_task(self.core.run()), asyncio.create_task(events.run())]
        await self.settle()

    async def stop_kubelet(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _count_writes(self, client: InProcessClient) -> None:
        patch = client.patch

        async def counted(
            resource: Any, namespace: str, name: str, body: Any, *args: Any, **more: Any
        ) -> Object:
            if resource is PODS:
                self.writes.append((name, body))
                if self.fail_writes:
                    self.fail_writes -= 1
                    raise ApiUnreachable("the server is away")
            return await patch(resource, namespace, name, body, *args, **more)

        client.patch = counted  # type: ignore[method-assign]

    async def stop(self) -> None:
        await self.stop_kubelet()
        await self.api.stop()


class Node(Cluster):
    """A whole node: machine, runtime, network and kubelet. `runtime` and `host` stay while the
    kubelet is away.

    `machine` and `runtime` are options of the host (hardware, build) and of SimRuntime (version,
    catalogue).
    """

    def __init__(
        self,
        os: str,
        flavour: Any = "docker",
        *,
        machine: Mapping[str, Any] | None = None,
        runtime: Mapping[str, Any] | None = None,
        release: Release = DEFAULT,
        api_gates: Mapping[str, bool] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(release, api_gates)
        if release != DEFAULT:
            settings.setdefault("version", BUILDS[str(release)].git_version)
        self._server_release = release  # `version` may set an older kubelet
        self.windows = os == "windows"
        self.host: Any = (WindowsHost if self.windows else LinuxHost)(
            NODE, self.clock, **machine or {}
        )
        self.dataplane = TableDataplane()
        self.network = TableNetwork(
            self.dataplane, IP, "10.244.1.0/24", reserved=3 if self.windows else 2
        )
        self.runtime = SimRuntime(
            self.host,
            self.clock,
            self.rng,
            self.network,
            self.dataplane,
            flavour,
            addresses=(IP,),
            sandbox_image=settings.get("pod_infra_image", ""),
            hyperv_gate=settings.get("feature_gates", {}).get("HyperVContainer", False),
            **runtime or {},
        )
        if self.windows:
            settings = {
                "cgroups_per_qos": False,
                "enforce_node_allocatable": (),
                "resolv_conf": "",
                "root_dir": "C:\\var\\lib\\kubelet",
                "pod_logs_dir": "C:\\var\\log\\pods",
                **settings,
            }
        self.config = KubeletConfig(NODE, IP, cluster_dns=("10.96.0.10",), **settings)
        self.cloud = CloudProvider(self.clock)
        self._tasks: list[asyncio.Task[None]] = []
        self._controllers: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.api.start()
        await self.settle()
        await self.client.create(
            SERVICE_ACCOUNTS, "default", {"metadata": {"name": "default", "namespace": "default"}}
        )
        await self.start_kubelet()
        await self.settle(2)

    async def start_kubelet(self) -> None:
        client = self.node_client()
        events = EventRecorder(client, "kubelet", self.clock, self.rng, release=DEFAULT, host=NODE)
        env = KubeletContext(
            self.config,
            os_windows.RULES if self.windows else os_linux.RULES,
            client,
            self.clock,
            self.rng,
            events,
            self.host,
            self.runtime,
            NoServices(),
            self._dial,
            lambda: None,
            cloud=self.cloud,
            decode_pod=pod_decoder(
                self.config.release, self.config.feature_gates, self._server_release, ()
            ),
        )
        self.kubelet = Kubelet(env)
        self._tasks = [asyncio.create_task(self.kubelet.run()), asyncio.create_task(events.run())]
        await self.settle()

    async def _dial(self, address: str, port: int) -> socket:
        return await self.dataplane.connect(address, port, IP)

    async def stop_kubelet(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def start_controllers(self, *names: str) -> None:
        """Beside the kubelet, with the same cloud provider."""

        def client(identity: str) -> InProcessClient:
            name = user_name("kube-system", identity) if identity else CONTROLLERS_USER
            groups = (
                (*group_names("kube-system"), "system:authenticated")
                if identity
                else ("system:authenticated",)
            )
            return InProcessClient(self.api, UserInfo(name, groups))

        manager = ControllerManager(
            client, self.clock, self.rng, ControllerSettings(cloud=self.cloud), controllers=names
        )
        self._controllers = asyncio.create_task(manager.run())
        await self.settle()

    async def stop(self) -> None:
        await self.stop_kubelet()
        if self._controllers is not None:
            self._controllers.cancel()
            await asyncio.wait([self._controllers])
        await self.api.stop()


@pytest.fixture
def node() -> ContextFactory:
    """Runs a scenario on a whole node: node("linux", scenario, flavour="containerd",
    max_pods=3).
    """

    @asynccontextmanager
    async def run(os: str, **settings: Any) -> AsyncIterator[Node]:
        made = Node(os, **settings)
        async with asyncio.timeout(60):
            await made.start()
            try:
                yield made
            finally:
                await made.stop()

    return run


@pytest.fixture
def core() -> ContextFactory:
    """Runs a scenario against the core of a kubelet."""

    @asynccontextmanager
    async def run(release: Release = DEFAULT) -> AsyncIterator[CoreNode]:
        node = CoreNode(release)
        async with asyncio.timeout(30):
            await node.start()
            try:
                yield node
            finally:
                await node.stop()

    return run
