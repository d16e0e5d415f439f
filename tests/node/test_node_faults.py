"""What can happen to nodes, with real kubelets, controllers and the scheduler on virtual time:
nothing is lost or doubled.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Self

import pytest
from tests.inline_workers import InlineWorkers
from tests.node.pools import make_pool
from tests.simulation.faults import Faults, Line
from tests.simulation.loop import VIRTUAL_LOOP, LoopClock, loop_clock

from transom.apiserver.core.context import UserInfo
from transom.apiserver.server import ServerOptions, build_api_server
from transom.apiserver.serving.inprocess import InProcessClient
from transom.client.api import ApiClient
from transom.client.resources import DEPLOYMENTS, NODES, PODS
from transom.cloud.provider import CloudProvider
from transom.cluster.config import ClusterConfig
from transom.controllers.base import ControllerSettings
from transom.controllers.manager import USER, ControllerManager
from transom.machinery.objects import Object
from transom.machinery.serviceaccounts import group_names, user_name
from transom.node import spec as specs
from transom.scheduler.scheduler import USER as SCHEDULER
from transom.scheduler.scheduler import Scheduler
from transom.store.memory import MemoryStore


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_LOOP


CONFIG = ClusterConfig(name="faults", port=6443)
UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}


class World:
    """Two Linux nodes and a Windows one, three pods of a Deployment on the former."""

    def __init__(self, clock: LoopClock) -> None:
        self.clock = clock
        self.rng = random.Random(5)
        self.api = build_api_server(
            ServerOptions(
                store=MemoryStore(clock), workers=InlineWorkers(), clock=clock, rng=self.rng
            )
        )
        self.client = InProcessClient(
            self.api, UserInfo("admin", ("system:masters", "system:authenticated"))
        )
        nodes = [specs.NodeSpec("a"), specs.NodeSpec("b"), specs.NodeSpec("w", os="windows")]
        self.lines: dict[str, Line] = {}  # of each user of the API, to be cut
        self.pool = make_pool(
            self.api,
            CONFIG,
            specs.complete_specs(CONFIG, nodes),
            clock,
            self.rng,
            CloudProvider(clock),
            wrap_client=self._through_line,
        )

    def _through_line(self, user: str, client: ApiClient) -> ApiClient:
        line = self.lines.setdefault(user, Line(Faults(random.Random(1)), user))
        return line.client(client, user)

    @asynccontextmanager
    async def started(self) -> AsyncIterator[Self]:
        await self.api.start()
        settings = ControllerSettings(
            root_ca="-",
            sign=lambda claims: "token of " + claims["sub"],
            pod_cidrs=("10.244.0.0/16",),
        )

        def client(identity: str) -> ApiClient:
            name = user_name("kube-system", identity) if identity else USER
            return InProcessClient(
                self.api, UserInfo(name, (*group_names("kube-system"), "system:authenticated"))
            )

        scheduler = InProcessClient(self.api, UserInfo(SCHEDULER, ("system:authenticated",)))
        manager = ControllerManager(client, self.clock, self.rng, settings)
        lives = [manager.run(), Scheduler(scheduler, self.clock, self.rng).run(), self.pool.run()]
        tasks = [asyncio.create_task(life) for life in lives]
        try:
            await self.until(lambda: all(self.pool.is_ready(name) for name in "abw"))
            await self.deploy()
            yield self
            assert not [task for task in tasks if task.done()]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.api.stop()

    async def deploy(self, replicas: int = 3) -> None:
        container = {"name": "c", "image": "nginx:1.19"}
        spec = {
            "containers": [container],
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "terminationGracePeriodSeconds": 2,
        }
        await self.client.create(
            DEPLOYMENTS,
            "default",
            {
                "metadata": {"name": "web"},
                "spec": {
                    "replicas": replicas,
                    "selector": {"matchLabels": {"app": "web"}},
                    "template": {"metadata": {"labels": {"app": "web"}}, "spec": spec},
                },
            },
        )
        await self.settled(replicas)

    async def until(self, seen: Callable[[], Any], seconds: float = 60) -> None:
        for _ in range(int(seconds * 4)):
            found = seen()
            if found if not isinstance(found, Awaitable) else await found:
                return
            await self.clock.sleep(0.25)
        raise AssertionError(f"not within {seconds} s: {await self.story()}")

    async def story(self) -> list[str]:
        pods = (await self.client.list(PODS, "")).items
        return [
            f"{p['metadata']['name']} on {p['spec'].get('nodeName')}: {p['status'].get('phase')}"
            f"{' deleted' if p['metadata'].get('deletionTimestamp') else ''}"
            for p in pods
        ]

    async def pods(self, node: str = "") -> list[Object]:
        found = (await self.client.list(PODS, "default")).items
        return [p for p in found if not node or p["spec"].get("nodeName") == node]

    async def settled(self, replicas: int = 3, seconds: float = 60) -> None:
        """So many pods, all of them ready; and the runtimes run exactly these."""

        async def right() -> bool:
            pods = await self.pods()
            if len(pods) != replicas or any(p["metadata"].get("deletionTimestamp") for p in pods):
                return False
            return all(ready(p) for p in pods) and self.running() == sorted(
                p["metadata"]["uid"] for p in pods
            )

        await self.until(right, seconds)

    def running(self) -> list[str]:
        """The uid of each running container's pod: one that is there twice is a doubled pod."""
        out = []
        for machine in self.pool.nodes():
            uids = {s.id: s.config.uid for s in machine.runtime.sandboxes()}
            out += [
                uids[c.sandbox_id] for c in machine.runtime.containers() if c.state == "running"
            ]
        return sorted(out)

    async def node(self, name: str) -> Object:
        return await self.client.get(NODES, "", name)

    async def busy(self) -> str:
        """A node with pods."""
        return str((await self.pods())[0]["spec"]["nodeName"])

    def cut(self, node: str, cut: bool) -> None:
        line = self.lines[f"system:node:{node}"]
        line.cut = cut
        if cut:
            line.drop_watches()


def condition(obj: Object, kind: str) -> str:
    return next(
        (str(c["status"]) for c in obj["status"].get("conditions") or () if c["type"] == kind), ""
    )


def ready(obj: Object) -> bool:
    return condition(obj, "Ready") == "True"


def taints(node: Object) -> list[Object]:
    return [
        {k: v for k, v in t.items() if k != "timeAdded"} for t in node["spec"].get("taints") or ()
    ]


@pytest.fixture
def world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], AbstractAsyncContextManager[World]]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    CONFIG.state.mkdir(parents=True)
    return lambda: World(loop_clock()).started()


async def test_a_stopped_node_is_replaced(world: Any) -> None:
    async with world() as world:
        name = await world.busy()
        gone = {p["metadata"]["uid"] for p in await world.pods(name)}
        await world.pool.stop(name)
        assert not [uid for uid in world.running() if uid in gone]
        await world.clock.sleep(35)
        assert ready(await world.node(name))
        await world.clock.sleep(20)
        node = await world.node(name)
        assert condition(node, "Ready") == "Unknown" and UNREACHABLE in taints(node)
        await world.clock.sleep(240)
        assert not [p for p in await world.pods(name) if p["metadata"].get("deletionTimestamp")]
        # five minutes are over: the pods are deleted, and others run elsewhere
        await world.clock.sleep(90)
        stale = await world.pods(name)
        assert {p["metadata"]["uid"] for p in stale} == gone
        assert all(p["metadata"].get("deletionTimestamp") for p in stale)
        fresh = [p for p in await world.pods() if p["metadata"]["uid"] not in gone]
        assert len(fresh) == 3 and all(
            ready(p) and p["spec"]["nodeName"] in {"a", "b"} - {name} for p in fresh
        )
        await world.pool.start(name)  # what was to be deleted there goes, and is never run again
        await world.settled()
        assert not gone & {p["metadata"]["uid"] for p in await world.pods()}
        await world.clock.sleep(10)
        assert ready(await world.node(name)) and not taints(await world.node(name))


async def _ready(world: World, name: str) -> bool:
    return ready(await world.node(name))


async def test_a_rebooted_node_runs_its_pods_again(world: Any) -> None:
    async with world() as world:
        name = await world.busy()
        before = {p["metadata"]["uid"] for p in await world.pods()}
        boot = (await world.node(name))["status"]["nodeInfo"]["bootID"]
        await world.pool.reboot(name)
        await world.clock.sleep(5)
        await world.settled()
        assert {p["metadata"]["uid"] for p in await world.pods()} == before
        counts = {
            s["restartCount"]
            for p in await world.pods(name)
            for s in p["status"]["containerStatuses"]
        }
        assert counts == {1}
        assert (await world.node(name))["status"]["nodeInfo"]["bootID"] != boot


@pytest.mark.parametrize("seconds", [20, 120])
async def test_a_node_is_cut_off_for_a_while(world: Any, seconds: int) -> None:
    async with world() as world:
        name = await world.busy()
        before = {p["metadata"]["uid"] for p in await world.pods()}
        running = world.running()
        world.cut(name, True)
        await world.clock.sleep(seconds)
        assert world.running() == running  # containers go on
        assert ready(await world.node(name)) == (seconds < 40)
        world.cut(name, False)
        await world.until(lambda: _ready(world, name), 90)
        await world.settled()
        assert {p["metadata"]["uid"] for p in await world.pods()} == before
        assert {
            s["restartCount"] for p in await world.pods() for s in p["status"]["containerStatuses"]
        } == {0}


async def test_a_node_that_was_cut_off_too_long_gives_up_its_pods(world: Any) -> None:
    async with world() as world:
        name = await world.busy()
        gone = {p["metadata"]["uid"] for p in await world.pods(name)}
        world.cut(name, True)
        await world.clock.sleep(400)
        # Others run already, and these still do: the node does not know.
        assert gone < set(world.running()) and len(world.running()) == 3 + len(gone)
        world.cut(name, False)
        await world.settled(seconds=120)
        assert not gone & set(world.running())


async def test_a_kubelet_crashes_with_a_pod_half_started(world: Any) -> None:
    async with world() as world:
        scale = {"spec": {"replicas": 8}}
        await world.client.patch(
            DEPLOYMENTS, "default", "web", scale, "application/merge-patch+json"
        )
        for delay in (0.01, 0.05, 0.3, 0.02):  # again and again, each time elsewhere
            await world.clock.sleep(delay)
            for name in "ab":
                kubelet = world.pool.node(name).programs.running("kubelet")
                assert kubelet is not None
                await kubelet.stop()
                await world.pool.start(name)
        await world.settled(8)
        restarts = [
            s["restartCount"] for p in await world.pods() for s in p["status"]["containerStatuses"]
        ]
        assert restarts == [0] * 8


@pytest.mark.parametrize("seconds", [7200.0, -7200.0])
async def test_the_clock_of_a_node_jumps(world: Any, seconds: float) -> None:
    async with world() as world:
        name = await world.busy()
        before = {p["metadata"]["uid"] for p in await world.pods()}
        running = world.running()
        world.pool.node(name).machine.jump(seconds)

        async def is_ready() -> bool:
            return ready(await world.node(name))

        for _ in range(10):
            await world.clock.sleep(30)
            # Leases with times before the last one do not count: with its clock put back a node is
            # taken for lost until it writes its status, again and again, as in Kubernetes.
            await world.until(is_ready, 30 if seconds < 0 else 1)
            assert world.running() == running
        assert {p["metadata"]["uid"] for p in await world.pods()} == before
        await world.client.patch(
            DEPLOYMENTS, "default", "web", {"spec": {"replicas": 5}}, "application/merge-patch+json"
        )
        await world.settled(5)
        world.pool.node(name).machine.jump(-seconds)
        await world.clock.sleep(60)
        await world.settled(5)


async def test_a_full_disk_makes_pods_move(world: Any) -> None:
    async with world() as world:
        name = await world.busy()
        host = world.pool.node(name).machine
        host.fill_disk()
        await world.until(lambda: _pressure(world, name), 60)
        assert {"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"} in taints(
            await world.node(name)
        )

        async def moved() -> bool:
            pods = [p for p in await world.pods() if p["status"].get("phase") == "Running"]
            return len(pods) == 3 and all(ready(p) and p["spec"]["nodeName"] != name for p in pods)

        await world.until(moved, 120)
        evicted = await world.pods(name)
        assert 0 < len(evicted) < 12 and all(p["status"]["reason"] == "Evicted" for p in evicted)
        assert "The node was low on resource: ephemeral-storage" in evicted[0]["status"]["message"]
        host.fill_disk(0)
        await world.clock.sleep(400)
        node = await world.node(name)
        assert condition(node, "DiskPressure") == "False"
        assert not [t for t in taints(node) if t["key"] == "node.kubernetes.io/disk-pressure"]


async def _pressure(world: World, name: str) -> bool:
    return condition(await world.node(name), "DiskPressure") == "True"


async def test_the_api_server_is_unavailable(world: Any) -> None:
    """All nodes at once: it is the server that is gone, so no pods are moved."""

    async with world() as world:
        before = {p["metadata"]["uid"] for p in await world.pods()}
        for name in "abw":
            world.cut(name, True)
        await world.clock.sleep(500)
        assert {p["metadata"]["uid"] for p in await world.pods()} == before
        for name in "abw":
            world.cut(name, False)
        await world.clock.sleep(30)
        await world.settled()
        assert {p["metadata"]["uid"] for p in await world.pods()} == before
