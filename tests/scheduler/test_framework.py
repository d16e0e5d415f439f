"""The extension points: all are called, in Kubernetes' order, with Kubernetes' semantics and error texts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.conftest import ContextFactory

from transom.client.resources import PODS, PRIORITY_CLASSES
from transom.machinery.objects import Object
from transom.scheduler import framework as fw
from transom.scheduler.config import KubeSchedulerConfiguration, decode_scheduler_config
from transom.scheduler.errors import SchedulerConfigError, SchedulingError
from transom.scheduler.framework import Code, CycleState, Handle, StateData, StateKey, Status
from transom.scheduler.pods import PodInfo
from transom.scheduler.snapshot import NodeInfo

from .conftest import Cluster, SchedulerHarness
from .objects import node, pod

Run = Callable[..., None]
WAIT = Status(Code.WAIT)
HEAD = {"apiVersion": "kubescheduler.config.k8s.io/v1beta1", "kind": "KubeSchedulerConfiguration"}
ALL_POINTS = (
    "preEnqueue",
    "preFilter",
    "filter",
    "postFilter",
    "preScore",
    "score",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
)


def config(*plugins: type[fw.Plugin], points: tuple[str, ...] = ALL_POINTS) -> Object:
    """A profile that enables plugins at all points that they implement; at queueSort and bind they come first."""
    enabled: dict[str, Any] = {}
    for point in points:
        names = [{"name": p.name} for p in plugins if issubclass(p, fw_interfaces(point))]
        if names:
            enabled[point] = {"enabled": names}
            if point == "bind":
                enabled[point]["disabled"] = [{"name": "*"}]
                names.append({"name": "DefaultBinder"})
    return {"profiles": [{"plugins": enabled}]}


def fw_interfaces(point: str) -> tuple[type[fw.Plugin], ...]:
    from transom.scheduler.runtime import EXTENSION_POINTS

    return EXTENSION_POINTS[point]


def registry(*plugins: type[fw.Plugin]) -> fw.Registry:
    return {plugin.name: plugin for plugin in plugins}


def settings(document: Object) -> KubeSchedulerConfiguration:
    return decode_scheduler_config({**HEAD, **document})


class Recorder(
    fw.PreEnqueuePlugin,
    fw.PreFilterExtensions,
    fw.FilterPlugin,
    fw.PostFilterPlugin,
    fw.PreScorePlugin,
    fw.ScorePlugin,
    fw.ScoreExtensions,
    fw.ReservePlugin,
    fw.PermitPlugin,
    fw.PreBindPlugin,
    fw.BindPlugin,
    fw.PostBindPlugin,
):
    """Implements all extension points and records the calls. `results` has the status to return at a point."""

    name = "Recorder"
    calls: list[str]
    results: dict[str, Status]

    def __init__(self, args: Object, handle: Handle) -> None:
        self.handle = handle

    def _called(self, point: str) -> Status | None:
        type(self).calls.append(f"{self.name}.{point}" if self.name != "Recorder" else point)
        return type(self).results.get(point)

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        return self._called("preEnqueue")

    def pre_filter(self, state: CycleState, pod: PodInfo) -> Status | None:
        return self._called("preFilter")

    def add_pod(
        self, state: CycleState, pod: PodInfo, to_add: PodInfo, node: NodeInfo
    ) -> Status | None:
        return self._called(f"addPod {to_add.name}")

    def remove_pod(
        self, state: CycleState, pod: PodInfo, to_remove: PodInfo, node: NodeInfo
    ) -> Status | None:
        return self._called(f"removePod {to_remove.name}")

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return self._called("filter")

    async def post_filter(
        self, state: CycleState, pod: PodInfo, filtered_nodes: fw.NodeToStatusMap
    ) -> tuple[fw.PostFilterResult | None, Status | None]:
        return None, self._called("postFilter")

    def pre_score(self, state: CycleState, pod: PodInfo, rows: Any) -> Status | None:
        return self._called("preScore")

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        self._called("score")
        return 7

    def normalize_score(
        self, state: CycleState, pod: PodInfo, rows: Any, scores: fw.Score
    ) -> fw.Score:
        self._called("normalizeScore")
        return scores

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        return self._called("reserve")

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self._called("unreserve")

    def permit(
        self, state: CycleState, pod: PodInfo, node_name: str
    ) -> tuple[Status | None, float]:
        return self._called("permit"), 10.0

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        return self._called("preBind")

    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        return self._called("bind") or Status(Code.SKIP)

    async def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self._called("postBind")


class Second(Recorder):
    name = "Second"


@pytest.fixture(autouse=True)
def fresh_recorder() -> None:
    Recorder.calls = []
    Recorder.results = {}
    Second.results = {}


def start(cluster: Cluster, *plugins: type[fw.Plugin], **options: Any) -> None:
    cluster.start(
        config=settings(config(*plugins, **options)), out_of_tree_registry=registry(*plugins)
    )


def message(found: Object) -> tuple[str, str]:
    condition = next(c for c in found["status"]["conditions"] if c["type"] == "PodScheduled")
    return condition.get("reason", ""), condition.get("message", "")


async def test_all_points_are_called_in_order(running_cluster: ContextFactory) -> None:
    async with running_cluster(started=False) as cluster:
        start(cluster, Recorder)
        await cluster.add_node(node("a"))
        await cluster.add_node(node("b"))
        await cluster.settle()
        await cluster.add_pod(pod("p"))
        await cluster.settle()
        assert await cluster.node_of("p") in ("a", "b")
        assert Recorder.calls == [
            "preEnqueue",
            "preFilter",
            "filter",
            "filter",
            "preScore",
            "score",
            "score",
            "normalizeScore",
            "reserve",
            "permit",
            "preBind",
            "bind",
            "postBind",
        ]


@pytest.mark.parametrize(
    ("point", "result", "reason", "text"),
    [
        (
            "preFilter",
            fw.unschedulable("not today"),
            "Unschedulable",
            "0/2 nodes are available: 2 not today.",
        ),
        (
            "preFilter",
            fw.error_status("broken"),
            "Unschedulable",
            'running PreFilter plugin "Recorder": broken',
        ),
        (
            "filter",
            fw.unschedulable("not here"),
            "Unschedulable",
            "0/2 nodes are available: 2 not here.",
        ),
        (
            "filter",
            fw.error_status("broken"),
            "Unschedulable",
            'running "Recorder" filter plugin for pod "p": broken',
        ),
        (
            "preScore",
            fw.error_status("broken"),
            "Unschedulable",
            'running PreScore plugin "Recorder": broken',
        ),
        (
            "reserve",
            fw.unschedulable("taken"),
            "SchedulerError",
            'running Reserve plugin "Recorder": taken',
        ),
        (
            "permit",
            fw.unschedulable("no"),
            "Unschedulable",
            'rejected pod "p" by permit plugin "Recorder": no',
        ),
        (
            "permit",
            fw.error_status("broken"),
            "SchedulerError",
            'running Permit plugin "Recorder": broken',
        ),
        (
            "preBind",
            fw.unschedulable("gone"),
            "SchedulerError",
            'running PreBind plugin "Recorder": gone',
        ),
        (
            "bind",
            fw.error_status("broken"),
            "SchedulerError",
            'binding rejected: running Bind plugin "Recorder": broken',
        ),
    ],
)
async def test_a_status_other_than_success_ends_the_attempt(
    running_cluster: ContextFactory, point: str, result: Status, reason: str, text: str
) -> None:
    async with running_cluster(started=False) as cluster:
        Recorder.results = {point: result}
        start(cluster, Recorder)
        await cluster.add_node(node("a"))
        await cluster.add_node(node("b"))
        await cluster.add_pod(pod("p"))
        await cluster.settle()
        assert await cluster.node_of("p") == ""
        assert message(await cluster.pod("p")) == (reason, text)
        reserved = "reserve" in Recorder.calls
        assert ("unreserve" in Recorder.calls) == reserved
        assert cluster.scheduler is not None and cluster.scheduler.snapshot.used_pods.sum() == 0
        assert "postBind" not in Recorder.calls


async def test_unreserve_runs_in_reverse_order_for_all_plugins(
    running_cluster: ContextFactory,
) -> None:
    class Fails(Recorder):
        name = "Fails"
        results = {"reserve": fw.error_status("no")}

    async with running_cluster(started=False) as cluster:
        start(cluster, Recorder, Fails, Second, points=("reserve",))
        await cluster.add_node(node("a"))
        await cluster.add_pod(pod("p"))
        await cluster.settle()
        assert Recorder.calls == [
            "reserve",
            "Fails.reserve",
            "Second.unreserve",
            "Fails.unreserve",
            "unreserve",
        ]


async def test_bind_plugins_run_until_one_handles_the_pod(running_cluster: ContextFactory) -> None:
    async with running_cluster(started=False) as cluster:
        start(cluster, Recorder, Second, points=("bind", "postBind"))
        await cluster.add_node(node("a"))
        await cluster.add_pod(pod("p"))
        await cluster.settle()
        assert Recorder.calls == ["bind", "Second.bind", "postBind", "Second.postBind"]
        assert await cluster.node_of("p") == "a"


async def test_a_pod_that_no_bind_plugin_handles_is_rejected(
    running_cluster: ContextFactory,
) -> None:
    async with running_cluster(started=False) as cluster:
        document = config(Recorder, points=("bind",))
        document["profiles"][0]["plugins"]["bind"]["enabled"].pop()
        cluster.start(config=settings(document), out_of_tree_registry=registry(Recorder))
        await cluster.add_node(node("a"))
        await cluster.add_pod(pod("p"))
        await cluster.settle()
        reason, text = message(await cluster.pod("p"))
        assert (reason, text) == ("SchedulerError", "binding rejected: bind status: Skip, ")


# ---- permit ----


async def test_a_waiting_pod_keeps_its_place_until_it_is_allowed(
    running_cluster: ContextFactory,
) -> None:
    async with running_cluster(started=False) as cluster:
        Recorder.results = {"permit": WAIT}
        Second.results = {"permit": WAIT}
        start(cluster, Recorder, Second, points=("permit",))
        await cluster.add_node(node("a", cpu="1"))
        await cluster.add_pod(pod("p", cpu="1"))
        await cluster.settle(5)
        assert cluster.scheduler is not None
        framework = cluster.scheduler.profiles["default-scheduler"]
        (waiting,) = framework.waiting_pods()
        assert (waiting.pod.name, waiting.pending_plugins()) == ("p", ["Recorder", "Second"])
        assert await cluster.node_of("p") == ""
        assert cluster.scheduler.snapshot.used_cpu.sum() == 1000
        waiting.allow("Recorder")
        await cluster.settle()
        assert await cluster.node_of("p") == "" and waiting.pending_plugins() == ["Second"]
        waiting.allow("Second")
        await cluster.settle()
        assert await cluster.node_of("p") == "a" and framework.waiting_pods() == []


async def test_waiting_pods_do_not_block_others(running_cluster: ContextFactory) -> None:
    class Group(Recorder):
        name = "Group"

        def permit(
            self, state: CycleState, pod: PodInfo, node_name: str
        ) -> tuple[Status | None, float]:
            return (WAIT, 60.0) if pod.name.startswith("w") else (None, 0.0)

    async with running_cluster(started=False) as cluster:
        start(cluster, Group, points=("permit",))
        await cluster.add_node(node("a", cpu="100"))
        for i in range(40):
            await cluster.add_pod(pod(f"w{i}"))
        await cluster.settle(2)
        await cluster.add_pod(pod("other"))
        await cluster.settle(2)
        assert await cluster.node_of("other") == "a"


async def test_waiting_ends_after_the_shortest_timeout(running_cluster: ContextFactory) -> None:
    class Patient(Recorder):
        name = "Patient"

        def permit(
            self, state: CycleState, pod: PodInfo, node_name: str
        ) -> tuple[Status | None, float]:
            return WAIT, 90.0

    async with running_cluster(started=False) as cluster:
        Recorder.results = {"permit": WAIT}
        start(cluster, Patient, Recorder, points=("permit", "reserve"))
        await cluster.add_node(node("a"))
        await cluster.add_pod(pod("p"))
        await cluster.settle(9)
        assert "unreserve" not in Recorder.calls
        await cluster.settle(2)
        assert message(await cluster.pod("p")) == (
            "Unschedulable",
            'pod "p" rejected while waiting on permit: '
            "rejected due to timeout after waiting 10s at plugin Recorder",
        )
        assert Recorder.calls.count("unreserve") == 1


async def test_a_timeout_is_at_most_fifteen_minutes(running_cluster: ContextFactory) -> None:
    class Forever(Recorder):
        name = "Forever"

        def permit(
            self, state: CycleState, pod: PodInfo, node_name: str
        ) -> tuple[Status | None, float]:
            return WAIT, 1e9

    async with running_cluster(started=False) as cluster:
        start(cluster, Forever, points=("permit",))
        await cluster.add_node(node("a"))
        await cluster.add_pod(pod("p"))
        await cluster.settle(901)
        assert "waiting 15m0s at plugin Forever" in message(await cluster.pod("p"))[1]


@pytest.mark.parametrize("how", ["deleted", "preempted", "rejected"])
async def test_a_waiting_pod_that_goes_frees_its_place(
    running_cluster: ContextFactory, how: str
) -> None:
    async with running_cluster(started=False) as cluster:
        Recorder.results = {"permit": Status(Code.WAIT)}
        start(cluster, Recorder, points=("permit", "reserve"))
        await cluster.add_node(node("a", cpu="1"))
        await cluster.add_pod(pod("p", cpu="1"))
        await cluster.settle()
        assert cluster.scheduler is not None
        framework = cluster.scheduler.profiles["default-scheduler"]
        Recorder.results = {}
        if how == "deleted":
            await cluster.client.delete(PODS, "default", "p", grace=0)
        elif how == "rejected":
            framework.waiting_pods()[0].reject("changed my mind")
        else:
            await cluster.client.create(
                PRIORITY_CLASSES, "", {"metadata": {"name": "high"}, "value": 1000}
            )
            await cluster.add_pod(pod("boss", cpu="1", priorityClassName="high"))
        await cluster.settle(0.5)
        assert Recorder.calls.count("unreserve") == 1
        await cluster.settle(120)
        assert framework.waiting_pods() == []
        if how == "preempted":
            assert await cluster.node_of("boss") == "a"
        elif how == "rejected":
            assert await cluster.node_of("p") == "a"
        else:
            assert cluster.scheduler.snapshot.used_pods.sum() == 0


# ---- filter and score ----


def harness(*plugins: type[fw.Plugin], **options: Any) -> SchedulerHarness:
    async def make() -> SchedulerHarness:
        return SchedulerHarness(config(*plugins, **options), plugins=registry(*plugins))

    return asyncio.run(make())


def test_skip_in_pre_filter_and_pre_score_leaves_out_filter_and_score() -> None:
    Recorder.results = {"preFilter": Status(Code.SKIP), "preScore": Status(Code.SKIP)}
    made = harness(Recorder, points=("preFilter", "filter", "preScore", "score"))
    made.nodes(node("a"), node("b"))
    assert made.decide(pod("p")) in ("a", "b")
    assert Recorder.calls == ["preFilter", "preScore"]


def test_weights_and_normalized_scores_decide() -> None:
    class Prefers(fw.ScorePlugin):
        name = "Prefers"

        def __init__(self, args: Object, handle: Handle) -> None:
            self._best = args["best"]
            self._score = args.get("score", 100)

        def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
            return self._score if node.name == self._best else 0

    def decide(weight: int, score: int = 100) -> str:
        async def make() -> SchedulerHarness:
            enabled = [
                {"name": "Prefers", "weight": weight},
                {"name": "NodeResourcesLeastAllocated", "weight": 1},
            ]
            profile = {
                "plugins": {"score": {"disabled": [{"name": "*"}], "enabled": enabled}},
                "pluginConfig": [{"name": "Prefers", "args": {"best": "small", "score": score}}],
            }
            return SchedulerHarness({"profiles": [profile]}, plugins=registry(Prefers))

        made = asyncio.run(make())
        made.nodes(node("small", cpu="1"), node("large", cpu="4"))
        made.running(pod("x", cpu="500m", node_name="small"))
        return made.decide(pod("p", cpu="500m"))

    assert decide(1) == "small"
    assert decide(1, score=10) == "large"
    assert decide(100, score=10) == "small"
    assert decide(1, score=101) == (
        'applying score defaultWeights on Score plugins: plugin "Prefers" returns an invalid '
        "score 101, it should in the range of [0, 100] after normalizing"
    )


def test_errors_of_score_and_normalize() -> None:
    class Fails(fw.ScorePlugin, fw.ScoreExtensions):
        name = "Fails"
        at = "score"

        def __init__(self, args: Object, handle: Handle) -> None:
            pass

        def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
            if self.at == "score":
                raise SchedulingError("broken")
            return 1

        def normalize_score(
            self, state: CycleState, pod: PodInfo, rows: Any, scores: fw.Score
        ) -> fw.Score:
            raise SchedulingError("broken")

    made = harness(Fails)
    made.nodes(node("a"), node("b"))
    text = 'plugin "Fails" failed with: broken'
    assert made.decide(pod("p")) == f"running Score plugins: {text}"
    Fails.at = "normalize"
    assert made.decide(pod("p")) == f"running Normalize on Score plugins: {text}"


class Count(StateData):
    def __init__(self, value: int) -> None:
        self.value = value

    def clone(self) -> Count:
        return Count(self.value)


class MaxThree(fw.PreFilterExtensions, fw.FilterPlugin):
    """At most three pods in the cluster, counted in pre_filter only."""

    name = "MaxThree"
    key = StateKey[Count]("MaxThree")

    def __init__(self, args: Object, handle: Handle) -> None:
        self._snapshot = handle.snapshot

    def pre_filter(self, state: CycleState, pod: PodInfo) -> None:
        state.write(self.key, Count(int(self._snapshot.used_pods.sum())))

    def add_pod(self, state: CycleState, pod: PodInfo, to_add: PodInfo, node: NodeInfo) -> None:
        state.read(self.key).value += 1

    def remove_pod(
        self, state: CycleState, pod: PodInfo, to_remove: PodInfo, node: NodeInfo
    ) -> None:
        state.read(self.key).value -= 1

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return None if state.read(self.key).value < 3 else fw.unschedulable("the cluster is full")


def test_pre_filter_extensions_see_victims_go_and_nominated_pods_come() -> None:
    made = harness(MaxThree)
    made.nodes(node("a"), node("b"))
    for name, where in (("x", "a"), ("y", "a"), ("z", "b")):
        made.running(pod(name, node_name=where))
    framework = made.scheduler.profiles["default-scheduler"]
    deleted: list[str] = []

    class Client:
        async def delete(self, _resource: object, _namespace: str, name: str) -> None:
            deleted.append(name)

    framework.client = Client()  # type: ignore[assignment]
    boss = pod("boss", priority=10)
    made.scheduler.pods._put("default/boss", boss)
    state, info = CycleState(), PodInfo(boss)
    with pytest.raises(fw.FitError, match="0/2 nodes are available: 2 the cluster is full"):
        made.scheduler.algorithm.schedule(framework, state, info)
    statuses = fw.NodeToStatusMap(
        framework.run_filter_plugins_for_statuses(state, info, made.snapshot.order)
    )
    result, _ = asyncio.run(framework.run_post_filter_plugins(state, info, statuses))
    assert result is not None and len(deleted) == 1
    assert state.read(MaxThree.key).value == 3  # clones were changed, not the state itself
    # The nominated pod counts on its node, for pods of the same priority.
    made.scheduler.cache.remove_pod("uid-default-z")
    made.scheduler.nominator.add_nominated_pod(info, "a")
    assert made.decide(pod("same", priority=10)) == "b"
    assert made.decide(pod("higher", priority=11)) in ("a", "b")


def test_post_filter_runs_until_success_or_error() -> None:
    made = harness(Recorder, Second, points=("postFilter",))
    framework = made.scheduler.profiles["default-scheduler"]
    made.scheduler.pods._put("default/p", pod("p"))

    def run() -> Status | None:
        Recorder.calls.clear()
        work = framework.run_post_filter_plugins(
            CycleState(), PodInfo(pod("p")), fw.NodeToStatusMap([])
        )
        return asyncio.run(work)[1]

    Recorder.results = {"postFilter": fw.unschedulable("a")}
    Second.results = {"postFilter": fw.unresolvable("b")}
    assert run() == fw.unresolvable("a", "b")
    assert Recorder.calls == ["postFilter", "Second.postFilter"]
    Recorder.results = {"postFilter": fw.error_status("broken")}
    assert run() == fw.error_status("broken") and Recorder.calls == ["postFilter"]
    Recorder.results = {}
    assert run() is None and Recorder.calls == ["postFilter"]


def test_a_plugin_that_misses_its_pre_filter_reports_the_missing_state() -> None:
    made = harness(MaxThree, points=("filter",))
    made.nodes(node("a"))
    assert made.decide(pod("p")) == (
        'running "MaxThree" filter plugin for pod "p": reading "MaxThree" from cycleState: not found'
    )


# ---- queue ----


async def test_a_gated_pod_is_queued_when_its_gates_are_removed(
    running_cluster: ContextFactory,
) -> None:
    async with running_cluster(started=False) as cluster:
        Recorder.results = {"preEnqueue": fw.unresolvable("closed")}
        start(cluster, Recorder, points=("preEnqueue", "preFilter"))
        await cluster.add_node(node("a"))
        await cluster.add_pod(pod("p"))
        await cluster.settle(3)
        assert set(Recorder.calls) == {"preEnqueue"}
        assert await cluster.node_of("p") == ""
        Recorder.results = {}
        await cluster.client.patch(PODS, "default", "p", {"metadata": {"labels": {"open": "yes"}}})
        await cluster.settle()
        assert await cluster.node_of("p") == "a"


def test_scheduling_gates() -> None:
    made = harness()
    framework = made.scheduler.profiles["default-scheduler"]
    gated = PodInfo(pod("p", schedulingGates=[{"name": "a.example/x"}, {"name": "b.example/y"}]))
    assert framework.run_pre_enqueue_plugins(gated) == fw.unresolvable(
        "waiting for scheduling gates: [a.example/x b.example/y]"
    )
    assert framework.run_pre_enqueue_plugins(PodInfo(pod("q"))) is None
    made.scheduler.queue.add(gated)
    assert (made.scheduler.queue.active, made.scheduler.queue.unschedulable) == (0, 1)
    made.scheduler.queue.move_all_to_active_or_backoff("NodeAdd")
    assert made.scheduler.queue.active == 0
    made.scheduler.queue.update(gated, PodInfo(pod("p")))
    assert (made.scheduler.queue.active, made.scheduler.queue.unschedulable) == (1, 0)


async def test_the_queue_sort_plugin_orders_the_queue() -> None:
    class ByName(fw.QueueSortPlugin):
        name = "ByName"

        def __init__(self, args: Object, handle: Handle) -> None:
            pass

        def less(self, a: fw.QueuedPodInfo, b: fw.QueuedPodInfo) -> bool:
            return a.pod_info.name < b.pod_info.name

    sort = {"disabled": [{"name": "*"}], "enabled": [{"name": "ByName"}]}
    document = {"profiles": [{"plugins": {"queueSort": sort}}]}
    queue = SchedulerHarness(document, plugins=registry(ByName)).scheduler.queue
    for name in ("c", "a", "d", "b"):
        queue.add(PodInfo(pod(name, priority=ord(name))))
    queue.update(PodInfo(pod("c")), PodInfo(pod("c", labels={"x": "y"})))
    queue.delete("default/b", "uid-default-b")
    popped = [queue.try_pop() for _ in range(4)]
    assert [item.pod_info.name if item else None for item in popped] == ["a", "c", "d", None]


def test_a_plugin_of_the_user_cannot_replace_one_of_kubernetes() -> None:
    class NodeName(Recorder):
        name = "NodeName"

    with pytest.raises(SchedulerConfigError, match="a plugin named NodeName already exists"):
        harness(NodeName)
