"""Two fixtures for the scheduler: one without an API server, for single decisions, and one with, on
virtual time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.conftest import ContextFactory
from tests.inline_workers import InlineWorkers

from transom.apiserver.core.context import UserInfo
from transom.apiserver.server import ServerOptions, build_api_server
from transom.apiserver.serving.inprocess import InProcessClient
from transom.client.api import ObjectList
from transom.client.resources import EVENTS, NODES, PODS, SERVICE_ACCOUNTS
from transom.kit.clock import VirtualClock
from transom.machinery.releases import DEFAULT, Release
from transom.machinery.releases.features import FeatureSet
from transom.scheduler.config import KubeSchedulerConfiguration, decode_scheduler_config
from transom.scheduler.errors import SchedulingError
from transom.scheduler.framework import CycleState, Registry
from transom.scheduler.pods import PodInfo
from transom.scheduler.scheduler import USER, Scheduler
from transom.store.memory import MemoryStore

from .objects import Object


class EmptyClient:
    """A client of an empty cluster."""

    async def list(self, *_args: Any, **_options: Any) -> ObjectList:
        return ObjectList([], "0")


class SchedulerHarness:
    """A scheduler that only decides. Objects other than nodes and pods are put into its informers
    by hand.
    """

    def __init__(
        self,
        config: Object | None = None,
        seed: int = 1,
        plugins: Registry | None = None,
        release: Release = DEFAULT,
    ) -> None:
        settings = KubeSchedulerConfiguration()
        if config is not None:
            head = {
                "apiVersion": "kubescheduler.config.k8s.io/v1beta1",
                "kind": "KubeSchedulerConfiguration",
            }
            settings = decode_scheduler_config({**head, **config})
        self.clock = VirtualClock()
        client: Any = EmptyClient()
        rng = random.Random(seed)
        features = FeatureSet(release)
        self.scheduler = Scheduler(client, self.clock, rng, settings, plugins, features)
        self.snapshot = self.scheduler.snapshot

    def nodes(self, *nodes: Object) -> None:
        for node in nodes:
            self.snapshot.set_node(node)

    def running(self, *pods: Object) -> None:
        for pod in pods:
            self.scheduler.cache.set_pod(pod)

    def put(self, resource: Any, *objects: Object) -> None:
        informer = self.scheduler.informers(resource)
        for obj in objects:
            meta = obj["metadata"]
            meta.setdefault("resourceVersion", "1")
            informer._put(
                f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"],
                obj,
            )

    def decide(self, pod: Object) -> str:
        """The node, or the message of the event."""
        profile = self.scheduler.profiles[pod["spec"].get("schedulerName", "default-scheduler")]
        try:
            return self.scheduler.algorithm.schedule(profile, CycleState(), PodInfo(pod))
        except SchedulingError as error:
            return str(error)

    def place(self, pod: Object) -> str:
        """Decide, and let it run there."""
        chosen = self.decide(pod)
        if chosen in self.snapshot.nodes:
            self.running({**pod, "spec": {**pod["spec"], "nodeName": chosen}})
        return chosen


@pytest.fixture
def harness() -> SchedulerHarness:
    async def make() -> SchedulerHarness:
        return SchedulerHarness()

    return asyncio.run(make())


class Cluster:
    """An API server on a memory store with the scheduler beside it; `client` is the
    administrator's.
    """

    def __init__(self, seed: int = 7) -> None:
        self.clock = VirtualClock()
        self.rng = random.Random(seed)
        self.api = build_api_server(
            ServerOptions(
                store=MemoryStore(self.clock),
                workers=InlineWorkers(),
                clock=self.clock,
                rng=self.rng,
            )
        )
        self.client = InProcessClient(
            self.api, UserInfo("admin", ("system:masters", "system:authenticated"))
        )
        self.scheduler: Scheduler | None = None
        self._task: asyncio.Task[None] | None = None

    def own_client(self) -> Any:
        return InProcessClient(
            self.api, UserInfo(USER, ("system:authenticated",)), user_agent="kube-scheduler"
        )

    def start(
        self,
        client: Any = None,
        config: KubeSchedulerConfiguration | None = None,
        out_of_tree_registry: Registry | None = None,
    ) -> None:
        self.scheduler = Scheduler(
            client or self.own_client(), self.clock, self.rng, config, out_of_tree_registry
        )
        self._task = asyncio.create_task(self.scheduler.run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            self._task = None

    async def settle(self, seconds: float = 0.5) -> None:
        await self.clock.run_for(seconds, turns=100)

    async def add_node(self, node: Object) -> None:
        await self.client.create(NODES, "", node)
        # Admission gives each new node a taint, which the node controller would take away.
        await self.client.patch(
            NODES,
            "",
            node["metadata"]["name"],
            {"spec": {"taints": node["spec"]["taints"] or None}},
        )

    async def add_pod(self, pod: Object) -> None:
        spec = {"automountServiceAccountToken": False, **pod["spec"]}
        spec.pop("priority", None)
        meta = {k: v for k, v in pod["metadata"].items() if k != "uid"}
        await self.client.create(PODS, meta["namespace"], {**pod, "metadata": meta, "spec": spec})

    async def pod(self, name: str) -> Object:
        return await self.client.get(PODS, "default", name)

    async def node_of(self, name: str) -> str:
        return (await self.pod(name))["spec"].get("nodeName", "")

    async def events(self, name: str) -> list[Object]:
        found = await self.client.list(
            EVENTS, "default", field_selector=f"involvedObject.name={name}"
        )
        return sorted(found.items, key=lambda e: e["eventTime"])


@pytest.fixture
def running_cluster() -> ContextFactory:
    """Runs a scenario in a cluster whose scheduler runs (or not yet: `started=False`)."""

    @asynccontextmanager
    async def run(*, started: bool = True, seed: int = 7) -> AsyncIterator[Cluster]:
        cluster = Cluster(seed)
        await cluster.api.start()
        await cluster.client.create(SERVICE_ACCOUNTS, "default", {"metadata": {"name": "default"}})
        if started:
            cluster.start()
        try:
            async with asyncio.timeout(30):
                await cluster.settle()
                yield cluster
        finally:
            await cluster.stop()
            await cluster.api.stop()

    return run
