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


class NodeTestCluster:
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
def cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], AbstractAsyncContextManager[NodeTestCluster]]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    CONFIG.state.mkdir(parents=True)
    return lambda: NodeTestCluster(loop_clock()).started()


async def test_a_stopped_node_is_replaced(cluster: Any) -> None:
    async with cluster() as cluster:
        name = await cluster.busy()
        gone = {p["metadata"]["uid"] for p in await cluster.pods(name)}
        await cluster.pool.stop(name)
        assert not [uid for uid in cluster.running() if uid in gone]
        await cluster.clock.sleep(35)
        assert ready(await cluster.node(name))
        await cluster.clock.sleep(20)
        node = await cluster.node(name)
        assert condition(node, "Ready") == "Unknown" and UNREACHABLE in taints(node)
        await cluster.clock.sleep(240)
        assert not [p for p in await cluster.pods(name) if p["metadata"].get("deletionTimestamp")]
        # five minutes are over: the pods are deleted, and others run elsewhere
        await cluster.clock.sleep(90)
        stale = await cluster.pods(name)
        assert {p["metadata"]["uid"] for p in stale} == gone
        assert all(p["metadata"].get("deletionTimestamp") for p in stale)
        fresh = [p for p in await cluster.pods() if p["metadata"]["uid"] not in gone]
        assert len(fresh) == 3 and all(
            ready(p) and p["spec"]["nodeName"] in {"a", "b"} - {name} for p in fresh
        )
        await cluster.pool.start(name)  # what was to be deleted there goes, and is never run again
        await cluster.settled()
        assert not gone & {p["metadata"]["uid"] for p in await cluster.pods()}
        await cluster.clock.sleep(10)
        assert ready(await cluster.node(name)) and not taints(await cluster.node(name))


async def _ready(cluster: NodeTestCluster, name: str) -> bool:
    return ready(await cluster.node(name))


async def test_a_rebooted_node_runs_its_pods_again(cluster: Any) -> None:
    async with cluster() as cluster:
        name = await cluster.busy()
        before = {p["metadata"]["uid"] for p in await cluster.pods()}
        boot = (await cluster.node(name))["status"]["nodeInfo"]["bootID"]
        await cluster.pool.reboot(name)
        await cluster.clock.sleep(5)
        await cluster.settled()
        assert {p["metadata"]["uid"] for p in await cluster.pods()} == before
        counts = {
            s["restartCount"]
            for p in await cluster.pods(name)
            for s in p["status"]["containerStatuses"]
        }
        assert counts == {1}
        assert (await cluster.node(name))["status"]["nodeInfo"]["bootID"] != boot


@pytest.mark.parametrize("seconds", [20, 120])
async def test_a_node_is_cut_off_for_a_while(cluster: Any, seconds: int) -> None:
    async with cluster() as cluster:
        name = await cluster.busy()
        before = {p["metadata"]["uid"] for p in await cluster.pods()}
        running = cluster.running()
        cluster.cut(name, True)
        await cluster.clock.sleep(seconds)
        assert cluster.running() == running  # containers go on
        assert ready(await cluster.node(name)) == (seconds < 40)
        cluster.cut(name, False)
        await cluster.until(lambda: _ready(cluster, name), 90)
        await cluster.settled()
        assert {p["metadata"]["uid"] for p in await cluster.pods()} == before
        assert {
            s["restartCount"]
            for p in await cluster.pods()
            for s in p["status"]["containerStatuses"]
        } == {0}


async def test_a_node_that_was_cut_off_too_long_gives_up_its_pods(cluster: Any) -> None:
    async with cluster() as cluster:
        name = await cluster.busy()
        gone = {p["metadata"]["uid"] for p in await cluster.pods(name)}
        cluster.cut(name, True)
        await cluster.clock.sleep(400)
        # Others run already, and these still do: the node does not know.
        assert gone < set(cluster.running()) and len(cluster.running()) == 3 + len(gone)
        cluster.cut(name, False)
        await cluster.settled(seconds=120)
        assert not gone & set(cluster.running())


async def test_a_kubelet_crashes_with_a_pod_half_started(cluster: Any) -> None:
    async with cluster() as cluster:
        scale = {"spec": {"replicas": 8}}
        await cluster.client.patch(
            DEPLOYMENTS, "default", "web", scale, "application/merge-patch+json"
        )
        for delay in (0.01, 0.05, 0.3, 0.02):  # again and again, each time elsewhere
            await cluster.clock.sleep(delay)
            for name in "ab":
                kubelet = cluster.pool.node(name).programs.running("kubelet")
                assert kubelet is not None
                await kubelet.stop()
                await cluster.pool.start(name)
        await cluster.settled(8)
        restarts = [
            s["restartCount"]
            for p in await cluster.pods()
            for s in p["status"]["containerStatuses"]
        ]
        assert restarts == [0] * 8


@pytest.mark.parametrize("seconds", [7200.0, -7200.0])
async def test_the_clock_of_a_node_jumps(cluster: Any, seconds: float) -> None:
    async with cluster() as cluster:
        name = await cluster.busy()
        before = {p["metadata"]["uid"] for p in await cluster.pods()}
        running = cluster.running()
        cluster.pool.node(name).machine.jump(seconds)

        async def is_ready() -> bool:
            return ready(await cluster.node(name))

        for _ in range(10):
            await cluster.clock.sleep(30)
            # Leases with times before the last one do not count: with its clock put back a node is
            # taken for lost until it writes its status, again and again, as in Kubernetes.
            await cluster.until(is_ready, 30 if seconds < 0 else 1)
            assert cluster.running() == running
        assert {p["metadata"]["uid"] for p in await cluster.pods()} == before
        await cluster.client.patch(
            DEPLOYMENTS, "default", "web", {"spec": {"replicas": 5}}, "application/merge-patch+json"
        )
        await cluster.settled(5)
        cluster.pool.node(name).machine.jump(-seconds)
        await cluster.clock.sleep(60)
        await cluster.settled(5)


async def test_a_full_disk_makes_pods_move(cluster: Any) -> None:
    async with cluster() as cluster:
        name = await cluster.busy()
        host = cluster.pool.node(name).machine
        host.fill_disk()
        await cluster.until(lambda: _pressure(cluster, name), 60)
        assert {"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"} in taints(
            await cluster.node(name)
        )

        async def moved() -> bool:
            pods = [p for p in await cluster.pods() if p["status"].get("phase") == "Running"]
            return len(pods) == 3 and all(ready(p) and p["spec"]["nodeName"] != name for p in pods)

        await cluster.until(moved, 120)
        evicted = await cluster.pods(name)
        assert 0 < len(evicted) < 12 and all(p["status"]["reason"] == "Evicted" for p in evicted)
        assert "The node was low on resource: ephemeral-storage" in evicted[0]["status"]["message"]
        host.fill_disk(0)
        await cluster.clock.sleep(400)
        node = await cluster.node(name)
        assert condition(node, "DiskPressure") == "False"
        assert not [t for t in taints(node) if t["key"] == "node.kubernetes.io/disk-pressure"]


async def _pressure(cluster: NodeTestCluster, name: str) -> bool:
    return condition(await cluster.node(name), "DiskPressure") == "True"


async def test_the_api_server_is_unavailable(cluster: Any) -> None:
    """All nodes at once: it is the server that is gone, so no pods are moved."""

    async with cluster() as cluster:
        before = {p["metadata"]["uid"] for p in await cluster.pods()}
        for name in "abw":
            cluster.cut(name, True)
        await cluster.clock.sleep(500)
        assert {p["metadata"]["uid"] for p in await cluster.pods()} == before
        for name in "abw":
            cluster.cut(name, False)
        await cluster.clock.sleep(30)
        await cluster.settled()
        assert {p["metadata"]["uid"] for p in await cluster.pods()} == before
