"""A node that runs short: conditions, which pods are evicted, what is reported, which pods are still admitted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.kubelet.small import Node, make_pod, running_node

from transom.kit.prometheus import Histogram
from transom.kubelet.container_gc import ContainerGC
from transom.kubelet.eviction import EvictionManager
from transom.kubelet.failures import PodRejection
from transom.kubelet.housekeeping import Housekeeping
from transom.kubelet.image_gc import ImageGC
from transom.kubelet.paths import pod_dir
from transom.kubelet.stats.metrics import KubeletMetrics
from transom.machinery.objects import Object
from transom.runtime.api import Image

MIB, GIB = 1 << 20, 1 << 30


def container(name: str = "app", **resources: Any) -> Object:
    return {"name": name, "image": "i", "resources": resources}


class Evicted:
    """A node with running pods; `killed` is who was evicted, with what and in which grace."""

    def __init__(self, node: Node, *reclaim: Callable[[], Awaitable[None]]) -> None:
        self.node = node
        self.pods: dict[str, Object] = {}
        self.killed: list[tuple[str, str, int | None]] = []
        self.manager = EvictionManager(node.env, self.active, self.kill, reclaim)

    def active(self, wanted: Callable[[Object], bool] | None = None) -> list[Object]:
        return [pod for pod in self.pods.values() if wanted is None or wanted(pod)]

    async def kill(self, pod: Object, reason: str, message: str, grace: int | None) -> None:
        assert reason == "Evicted"
        self.killed.append((pod["metadata"]["name"], message, grace))
        del self.pods[pod["metadata"]["uid"]]
        for running in self.node.runtime.containers(pod["metadata"]["uid"]):
            await self.node.runtime.stop_container(running.id, grace or 0)

    async def add(self, *pods: Object) -> None:
        for pod in pods:
            self.pods[pod["metadata"]["uid"]] = pod
            await self.node.start(pod)

    def use(self, **memory: int) -> None:
        """Working sets by container name, and what the machine sees of them."""
        self.node.runtime.memory = memory
        self.node.host.account("all").set_memory(sum(memory.values()))

    async def round(self) -> bool:
        self.node.clock.advance(10)
        if not self.manager.observe():
            return False
        await self.manager.act()
        return True


async def test_memory_runs_short_on_linux() -> None:
    async with running_node() as node:
        here = Evicted(node)
        await here.add(
            make_pod("modest", container("m", requests={"memory": "2Gi"})),
            make_pod("greedy", container("g", requests={"memory": "1Gi"})),
            make_pod("important", container("i"), priority=1000),
            make_pod("critical", container("c"), priority=2000000000),
        )
        assert not await here.round() and not here.manager.pressed
        here.use(m=GIB, g=3 * GIB, i=3 * GIB, c=GIB - 200 * MIB)
        assert await here.round()
        text = (
            "The node was low on resource: memory. Container g was using 3Gi, which exceeds its "
            "request of 1Gi. "
        )
        assert here.killed == [("greedy", text, 0)]
        assert node.recorded.take() == [
            ("EvictionThresholdMet", "Attempting to reclaim memory"),
            ("Evicted", text),
        ]
        assert node.recorded.notes[-1] == {
            "offending_containers": "g",
            "offending_containers_usage": "3Gi",
            "starved_resource": "memory",
        }
        assert (here.manager.memory(), here.manager.disk(), here.manager.pid()) == (
            True,
            False,
            False,
        )
        for name in ("important", "modest"):
            await here.round()
            assert here.killed[-1][0] == name
        assert here.killed[1][1] == (
            "The node was low on resource: memory. Container i was using 3Gi, which exceeds "
            "its request of 0. "
        )
        assert here.killed[2][1] == "The node was low on resource: memory. "
        await here.round()
        assert len(here.killed) == 3  # a critical pod stays


async def test_the_condition_outlasts_the_pressure() -> None:
    async with running_node() as node:
        here = Evicted(node)
        filler = node.host.account("all")
        filler.set_memory(node.host.memory().total - node.host.memory().working_set)
        await here.round()
        assert here.manager.memory()
        filler.set_memory(0)
        for _ in range(29):
            await here.round()
            assert here.manager.memory()
        await here.round()
        assert not here.manager.memory() and not here.manager.pressed


async def test_soft_thresholds_have_patience_and_grace() -> None:
    async with running_node(
        eviction_soft={"memory.available": "3Gi"},
        eviction_soft_grace_period={"memory.available": "30s"},
        eviction_max_pod_grace_period=25,
    ) as node:
        here = Evicted(node)
        await here.add(make_pod("web", container()))
        here.use(app=6 * GIB)
        for _ in range(3):
            assert not await here.round()
            assert here.manager.memory()  # the condition does not wait
        assert await here.round()
        assert [(name, grace) for name, _, grace in here.killed] == [("web", 25)]


async def test_memory_never_runs_short_on_windows_but_disks_do() -> None:
    async with running_node(
        system="windows", enforce_node_allocatable=(), cgroups_per_qos=False
    ) as node:
        here = Evicted(node)
        await here.add(make_pod("web", container()))
        here.use(app=9 * GIB)
        assert not await here.round() and not here.manager.memory()
        node.host.fill_disk()
        assert await here.round() and here.manager.disk() and not here.manager.memory()
        assert here.killed[0][1].startswith("The node was low on resource: ephemeral-storage. ")


async def test_disk_space_comes_from_images_first() -> None:
    async with running_node() as node:
        node.runtime.store["old:1"] = Image("sha256:old", ("old:1",), (), 5 * GIB)
        images = ImageGC(node.env)
        images.detect()
        node.clock.advance(1000)

        async def free() -> None:
            await images.delete_unused()
            node.host.fill_disk(60 * GIB)

        here = Evicted(node, free)
        await here.add(make_pod("web", container()))
        node.host.fill_disk(80 * GIB)
        await here.round()
        assert not here.killed and not node.runtime.store and here.manager.disk()
        assert node.recorded.take() == [
            ("EvictionThresholdMet", "Attempting to reclaim ephemeral-storage")
        ]
    async with running_node() as node:

        async def nothing() -> None:
            raise RuntimeError("broken")

        here = Evicted(node, nothing)
        await here.add(make_pod("small", container("s")), make_pod("large", container("l")))
        node.runtime.layers = {"l": 5 * GIB, "s": GIB}
        node.host.fill_disk(80 * GIB)
        await here.round()
        assert here.killed == [
            (
                "large",
                "The node was low on resource: ephemeral-storage. "
                "Container l was using 5Gi, which exceeds its request of 0. ",
                0,
            )
        ]


@pytest.mark.parametrize(
    ("conditions", "pod", "taken"),
    [
        ((), {}, True),
        (("MemoryPressure",), {}, False),
        (("MemoryPressure",), {"containers": [container(requests={"cpu": "1"})]}, True),
        (
            ("MemoryPressure",),
            {"tolerations": [{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"}]},
            True,
        ),
        (("DiskPressure",), {"containers": [container(requests={"cpu": "1"})]}, False),
        (("MemoryPressure", "DiskPressure"), {"tolerations": [{"operator": "Exists"}]}, False),
        (("DiskPressure",), {"priority": 2000001000}, True),
    ],
)
async def test_admission_under_pressure(
    conditions: tuple[str, ...], pod: Object, taken: bool
) -> None:
    async with running_node() as node:
        here = Evicted(node)
        here.manager._conditions = conditions
        answer = here.manager.admit(
            make_pod("web", container()) | {"spec": {"containers": [container()], **pod}}
        )
        assert answer == (
            None
            if taken
            else PodRejection("Evicted", f"The node had condition: [{' '.join(conditions)}]. ")
        )


async def grow(node: Node, path: str, size: int) -> None:
    folder = path.rpartition("/")[0]
    node.host.files.mkdir(folder)
    node.host.files.write(path, b"x" * size)


EMPTY_DIR = "/var/lib/kubelet/pods/uid-web/volumes/kubernetes.io~empty-dir/v/f"


@pytest.mark.parametrize(
    ("spec", "written", "layer", "message"),
    [
        (
            {"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "4Ki"}}]},
            5000,
            0,
            'Usage of EmptyDir volume "v" exceeds the limit "4Ki". ',
        ),
        (
            {"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "4Ki", "medium": "Memory"}}]},
            5000,
            0,
            'Usage of EmptyDir volume "v" exceeds the limit "4Ki". ',
        ),
        ({"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}]}, 5000, 0, ""),
        (
            {"containers": [container(limits={"ephemeral-storage": "1Mi"}), container("b")]},
            0,
            MIB + 1,
            "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. ",
        ),
        (
            {
                "containers": [
                    container(limits={"ephemeral-storage": "1Mi"}),
                    container("b", limits={"ephemeral-storage": "1Gi"}),
                ]
            },
            0,
            MIB + 1,
            'Container app exceeded its local ephemeral storage limit "1Mi". ',
        ),
        (
            {
                "containers": [container(limits={"ephemeral-storage": "1Mi"})],
                "volumes": [{"name": "v", "emptyDir": {}}],
            },
            2 * MIB,
            0,
            "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. ",
        ),
        (
            {
                "containers": [container(limits={"ephemeral-storage": "4Mi"})],
                "volumes": [{"name": "v", "emptyDir": {}}],
            },
            2 * MIB,
            MIB,
            "",
        ),
    ],
)
async def test_limits_of_local_storage(
    spec: Object, written: int, layer: int, message: str
) -> None:
    async with running_node() as node:
        here = Evicted(node)
        pod = make_pod("web", container())
        pod["spec"] |= spec
        await here.add(pod)
        node.runtime.layers = {"app": layer}
        if written:
            await grow(node, EMPTY_DIR, written)
        await here.round()
        assert here.killed == ([("web", message, 0)] if message else [])
        assert node.recorded.all == ([("Evicted", message)] if message else [])
        assert not here.manager.pressed


async def test_housekeeping_sleeps_on_an_empty_node_and_evicts_on_a_full_one() -> None:
    async with running_node() as node:
        here = Evicted(node)
        rounds: list[float] = []
        observe = EvictionManager.observe

        class Counted(EvictionManager):
            def observe(self) -> bool:
                rounds.append(node.clock.monotonic())
                return observe(self)

        manager = Counted(node.env, here.active, here.kill)
        collector = ContainerGC(node.env, here.pods.get, lambda: True)
        metrics = KubeletMetrics()
        task = asyncio.ensure_future(
            Housekeeping(node.env, manager, collector, ImageGC(node.env), metrics).run()
        )
        await node.clock.run_for(1000)
        assert not rounds
        await here.add(make_pod("web", container()), make_pod("db", container("db")))
        await node.clock.run_for(100)
        assert len(rounds) == 10
        relisted = {family.name: family.samples[0] for family in metrics.collect()}
        durations = relisted["kubelet_pleg_relist_duration_seconds"]
        intervals = relisted["kubelet_pleg_relist_interval_seconds"]
        assert isinstance(durations, Histogram) and isinstance(intervals, Histogram)
        assert sum(durations.counts) == 10 and sum(intervals.counts) == 9
        assert intervals.total == pytest.approx(90)
        here.use(app=7 * GIB, db=GIB - 200 * MIB)
        await node.clock.run_for(20)
        assert [name for name, *_ in here.killed] == [
            "web",
            "db",
        ]  # nothing has come back, so the second goes too
        for sandbox in node.runtime.sandboxes():
            await node.runtime.stop_sandbox(sandbox.id)
        for filler in list(node.host.accounts):
            if filler.name == "all":
                filler.set_memory(0)
        await node.clock.run_for(400)
        assert (
            not node.runtime.containers() and not node.runtime.sandboxes() and not manager.pressed
        )
        before = len(rounds)
        await node.clock.run_for(1000)
        assert len(rounds) == before
        task.cancel()


@pytest.mark.windows("W-RES-08", "W-RES-09", "W-RES-10", "W-RES-11", "W-RES-12", "W-RES-13")
async def test_committed_memory_runs_short_on_windows_since_1_31() -> None:
    settings = {"enforce_node_allocatable": (), "cgroups_per_qos": False}
    async with running_node(system="windows", version="v1.31.0", **settings) as node:
        here = Evicted(node)
        await here.add(make_pod("web", container()))
        assert not await here.round() and not here.manager.memory()
        use = node.host.memory()
        here.use(app=use.commit_limit - use.usage - 400 * MIB)
        assert await here.round() and here.manager.memory()
        assert here.killed[0][1].startswith("The node was low on resource: memory. ")


async def test_a_hosts_file_that_a_container_fills_counts_as_its_storage() -> None:
    """CVE-2020-8557: a container writes to its /etc/hosts, which is a file of the node."""
    async with running_node() as node:
        here = Evicted(node)
        pod = make_pod("filler", container(limits={"ephemeral-storage": "1Mi"}))
        await here.add(pod)
        hosts = node.env.os.join(pod_dir(node.env, pod["metadata"]["uid"]), "etc-hosts")
        node.host.files.mkdir(pod_dir(node.env, pod["metadata"]["uid"]))
        node.host.files.write(hosts, b"x" * (MIB // 2))
        await here.round()
        assert here.killed == []
        node.host.files.write(hosts, b"x" * (2 * MIB))
        await here.round()
        assert [(name, text) for name, text, _ in here.killed] == [
            (
                "filler",
                "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. ",
            )
        ]
