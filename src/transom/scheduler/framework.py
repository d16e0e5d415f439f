"""The scheduling framework: one small interface for each extension point of Kubernetes, and the
types they share.

A plugin subclasses the interfaces of the extension points that it implements. A profile enables it
at some or all of them (KubeSchedulerConfiguration), and `runtime.Framework` calls it there, in this
order:

preEnqueue, queueSort | preFilter, filter, postFilter, preScore, score, normalizeScore, reserve,
permit | preBind, bind, postBind. Points between the bars are the scheduling cycle, which must not
wait; points after it are the binding cycle.

Nodes are rows of the snapshot. `FilterPlugin` and `ScorePlugin` handle one node at a time, as in
Kubernetes; `BatchFilterPlugin` and `BatchScorePlugin` handle all rows in one NumPy operation, as
the plugins in this package do.

`None` as a Status means Success. A plugin reports an error with `Code.ERROR` or by raising
SchedulingError.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast

from transom.client.api import ApiClient
from transom.client.informer import Informer, InformerFactory
from transom.kit.clock import Clock
from transom.kit.lazy_dataclass import dataclass
from transom.machinery.objects import Object
from transom.machinery.releases.features import FeatureSet
from transom.machinery.releases.scheduling import SchedulingRules
from transom.scheduler.arrays import Ints, Mask, Rows, np
from transom.scheduler.errors import SchedulerConfigError, SchedulingError
from transom.scheduler.event_recorder import SchedulerEventRecorder
from transom.scheduler.nominator import PodNominator
from transom.scheduler.owners import OwnerSelectors
from transom.scheduler.pods import PodInfo
from transom.scheduler.resource_claims import ResourceClaimCache
from transom.scheduler.snapshot import NodeInfo, Snapshot
from transom.scheduler.volumes import VolumeCache

MIN_NODE_SCORE, MAX_NODE_SCORE = 0, 100

Score = Ints | int  # one score for each row, or one for all of them


# ---- status ----


class Code(Enum):
    SUCCESS = "Success"
    ERROR = "Error"
    UNSCHEDULABLE = "Unschedulable"
    UNSCHEDULABLE_AND_UNRESOLVABLE = "UnschedulableAndUnresolvable"  # preemption would not help
    WAIT = "Wait"  # permit only
    SKIP = "Skip"  # bind: not handled here; preFilter, preScore: do not call filter or score


@dataclass(frozen=True, slots=True)
class Status:
    """The result of a plugin call. The reasons explain every code but Success."""

    code: Code = Code.SUCCESS
    reasons: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        return ", ".join(self.reasons)

    @property
    def is_success(self) -> bool:
        return self.code is Code.SUCCESS

    @property
    def is_unschedulable(self) -> bool:
        return self.code in (Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE)


def unschedulable(*reasons: str) -> Status:
    return Status(Code.UNSCHEDULABLE, reasons)


def unresolvable(*reasons: str) -> Status:
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reasons)


def error_status(message: str) -> Status:
    return Status(Code.ERROR, (message,))


NodeStatuses = list[tuple[Status, Rows]]


class NodeToStatusMap:
    """Why each node was filtered out: the status of the first filter plugin that rejected it."""

    def __init__(self, statuses: NodeStatuses) -> None:
        self._statuses = statuses

    def __iter__(self) -> Iterator[tuple[Status, Rows]]:
        return iter(self._statuses)

    def get(self, row: int) -> Status | None:
        return next((status for status, rows in self._statuses if row in rows), None)

    def nodes_where_preemption_might_help(self) -> Rows:
        rows = [rows for status, rows in self._statuses if status.code is Code.UNSCHEDULABLE]
        return np.concatenate(rows) if rows else np.zeros(0, np.intp)


class FitError(SchedulingError):
    """The pod fits on no node. The text is the message of the FailedScheduling event.
    `pre_filter_message` is the reason for all nodes, if preFilter has rejected them.
    """

    def __init__(
        self, num_all_nodes: int, statuses: NodeStatuses, pre_filter_message: str = ""
    ) -> None:
        self.num_all_nodes = num_all_nodes
        self.filtered_nodes_statuses = NodeToStatusMap(statuses)
        reasons = pre_filter_message or status_histogram(statuses)
        super().__init__(f"0/{num_all_nodes} nodes are available: {reasons}.")


def status_histogram(statuses: NodeStatuses) -> str:
    """How many nodes each reason rejects: `1 Insufficient cpu, 2 node(s) were unschedulable`."""
    counts: dict[str, int] = {}
    for status, rows in statuses:
        for reason in status.reasons:
            counts[reason] = counts.get(reason, 0) + len(rows)
    return ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))


# ---- cycle state ----

T = TypeVar("T")


class StateKey(Generic[T]):
    """A key of CycleState. A plugin creates one at module level for each value that it keeps."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class StateData(ABC):
    """A value in CycleState that add_pod and remove_pod change. Other values are shared by
    clones.
    """

    @abstractmethod
    def clone(self) -> StateData: ...


class CycleState:
    """What plugins keep from one extension point to the next, for one attempt to schedule one
    pod.
    """

    __slots__ = ("_storage", "skip_filter_plugins", "skip_score_plugins")

    def __init__(self) -> None:
        self._storage: dict[StateKey[Any], Any] = {}
        self.skip_filter_plugins: frozenset[str] = frozenset()
        self.skip_score_plugins: frozenset[str] = frozenset()

    def read(self, key: StateKey[T]) -> T:
        """Raises SchedulingError if there is no value, as when a plugin is not enabled at all its
        points.
        """
        try:
            return cast(T, self._storage[key])
        except KeyError:
            raise SchedulingError(f'reading "{key.name}" from cycleState: not found') from None

    def get(self, key: StateKey[T]) -> T | None:
        return cast("T | None", self._storage.get(key))

    def write(self, key: StateKey[T], value: T) -> None:
        self._storage[key] = value

    def delete(self, key: StateKey[Any]) -> None:
        self._storage.pop(key, None)

    def clone(self) -> CycleState:
        out = CycleState()
        out._storage = {
            key: value.clone() if isinstance(value, StateData) else value
            for key, value in self._storage.items()
        }
        out.skip_filter_plugins = self.skip_filter_plugins
        out.skip_score_plugins = self.skip_score_plugins
        return out


# ---- extension points ----


class QueuedPodInfo:
    """A pod in the scheduling queue. `timestamp` is when it was added to the queue that holds it,
    `first_queued` when it first entered the active queue.
    """

    __slots__ = ("attempt_started", "attempts", "first_queued", "gated", "pod_info", "timestamp")

    def __init__(
        self,
        pod_info: PodInfo,
        timestamp: float,
        attempts: int = 0,
        first_queued: float | None = None,
    ) -> None:
        self.pod_info = pod_info
        self.timestamp = timestamp
        self.attempts = attempts
        self.first_queued = first_queued
        self.attempt_started = 0.0
        self.gated = False  # a preEnqueue plugin keeps it out of the active queue


LessFunc = Callable[[QueuedPodInfo, QueuedPodInfo], bool]


class Plugin(ABC):
    name: ClassVar[str]


class PreEnqueuePlugin(Plugin):
    """Decides whether a pod may enter the active queue. It is called again when the pod or the
    cluster changes.
    """

    @abstractmethod
    def pre_enqueue(self, pod: PodInfo) -> Status | None: ...


class QueueSortPlugin(Plugin):
    """Orders the active queue. All profiles share one."""

    @abstractmethod
    def less(self, a: QueuedPodInfo, b: QueuedPodInfo) -> bool: ...


class PreFilterPlugin(Plugin):
    """Inspects the pod once. Unschedulable rejects all nodes; Skip leaves out the plugin's
    filter.
    """

    @abstractmethod
    def pre_filter(self, state: CycleState, pod: PodInfo) -> Status | None: ...


class PreparingPlugin(PreFilterPlugin):
    """Does work before the scheduling cycle that would hold the event loop in it, for example in a
    thread. Its filter finds the results in the state.
    """

    @abstractmethod
    async def prepare(self, state: CycleState, pod: PodInfo) -> None: ...


class PreFilterExtensions(PreFilterPlugin):
    """Updates the state of pre_filter when a nominated pod is assumed on a node, or a victim is
    removed from it.

    Only plugins that count pods in pre_filter need it: `node` and the snapshot already show the
    change.
    """

    @abstractmethod
    def add_pod(
        self, state: CycleState, pod: PodInfo, to_add: PodInfo, node: NodeInfo
    ) -> Status | None: ...

    @abstractmethod
    def remove_pod(
        self, state: CycleState, pod: PodInfo, to_remove: PodInfo, node: NodeInfo
    ) -> Status | None: ...


class FilterPlugin(Plugin):
    """Decides whether the pod can run on one node."""

    @abstractmethod
    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None: ...


class BatchFilterPlugin(Plugin):
    """Decides for many nodes at once."""

    # The result depends only on the pod's Shape and the Node object: the framework caches it until
    # a node changes.
    static: ClassVar[bool] = False

    @abstractmethod
    def filter_nodes(self, state: CycleState, pod: PodInfo, rows: Rows) -> Mask | None:
        """True where the pod can run; None: on all of them."""

    @abstractmethod
    def filter_statuses(self, state: CycleState, pod: PodInfo, rows: Rows) -> NodeStatuses:
        """The statuses of rows that filter_nodes has just rejected."""

    def filter_node(self, state: CycleState, pod: PodInfo, row: int) -> bool:
        """filter_nodes for one row. Preemption calls it often; override it if that is faster."""
        mask = self.filter_nodes(state, pod, np.array([row], np.intp))
        return mask is None or bool(mask[0])


class PostFilterPlugin(Plugin):
    """Tries to make the pod schedulable after it did not fit on any node.

    Success nominates the node for the pod. After Unschedulable the next postFilter plugin is
    called.
    """

    @abstractmethod
    async def post_filter(
        self, state: CycleState, pod: PodInfo, filtered_nodes: NodeToStatusMap
    ) -> tuple[PostFilterResult | None, Status | None]: ...


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    nominated_node_name: str


class PreScorePlugin(Plugin):
    """Inspects the feasible nodes once. Skip leaves out the plugin's score."""

    @abstractmethod
    def pre_score(self, state: CycleState, pod: PodInfo, rows: Rows) -> Status | None: ...


class ScorePlugin(Plugin):
    """Ranks one feasible node: 0 to 100, unless the plugin normalizes its scores."""

    @abstractmethod
    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int: ...


class BatchScorePlugin(Plugin):
    """Ranks all feasible nodes at once."""

    @abstractmethod
    def score_nodes(self, state: CycleState, pod: PodInfo, rows: Rows) -> Score: ...


class ScoreExtensions(Plugin):
    """Converts the scores of the same plugin to 0 to 100."""

    @abstractmethod
    def normalize_score(
        self, state: CycleState, pod: PodInfo, rows: Rows, scores: Score
    ) -> Score: ...


class ReservePlugin(Plugin):
    """Reserves resources on the selected node. After any later failure, unreserve is called in
    reverse order, also for plugins whose reserve was not called: it must be idempotent.
    """

    @abstractmethod
    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None: ...

    @abstractmethod
    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None: ...


class PermitPlugin(Plugin):
    """Approves the binding, rejects the pod, or returns Wait and a timeout in seconds (at most 15
    minutes).

    A waiting pod keeps its place on the node until all plugins that asked to wait allow it
    (Handle.get_waiting_pod).
    """

    @abstractmethod
    def permit(
        self, state: CycleState, pod: PodInfo, node_name: str
    ) -> tuple[Status | None, float]: ...


class PreBindPlugin(Plugin):
    """Prepares the binding, for example by provisioning a volume."""

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> bool:
        """Whether pre_bind has work to do, so that the binding may take a while."""
        return False

    @abstractmethod
    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None: ...


class BindPlugin(Plugin):
    """Binds the pod, or returns Skip to leave it to the next bind plugin."""

    @abstractmethod
    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None: ...


class PostBindPlugin(Plugin):
    """Called after a successful binding."""

    @abstractmethod
    async def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None: ...


# ---- handle ----


class WaitingPod(Protocol):
    """A pod that permit plugins have asked to wait."""

    @property
    def pod(self) -> PodInfo: ...

    def pending_plugins(self) -> list[str]: ...

    def allow(self, plugin_name: str) -> None:
        """The pod is bound as soon as no plugin is pending."""

    def reject(self, message: str) -> None: ...


class PluginsRunner(Protocol):
    """What preemption needs to evaluate a node without some of its pods."""

    def clone_state(self, state: CycleState) -> CycleState: ...

    def add_pod(self, state: CycleState, pod: PodInfo, to_add: PodInfo, node_name: str) -> None:
        """Add a pod to the snapshot and run the preFilter extensions."""

    def remove_pod(
        self, state: CycleState, pod: PodInfo, to_remove: PodInfo, node: NodeInfo
    ) -> None: ...

    def filters_depending_on_pods(
        self, state: CycleState, pod: PodInfo, row: int
    ) -> Sequence[BatchFilterPlugin]:
        """The filters whose result for this node can change with the pods on it."""

    def pod_passes_filters(
        self, state: CycleState, pod: PodInfo, row: int, filters: Iterable[BatchFilterPlugin]
    ) -> bool:
        """Whether the pod fits on the node as the snapshot shows it, also beside the pods nominated
        to run there.
        """

    def node_status(self, state: CycleState, pod: PodInfo, row: int) -> Status | None:
        """Why the pod does not fit on the node as the snapshot shows it."""


class Handle(PluginsRunner, Protocol):
    """What the framework offers to plugins. A plugin is constructed with its arguments and a
    Handle.
    """

    @property
    def profile_name(self) -> str: ...
    @property
    def snapshot(self) -> Snapshot: ...
    @property
    def client(self) -> ApiClient: ...
    @property
    def informers(self) -> InformerFactory: ...
    @property
    def pods(self) -> Informer: ...  # without terminated pods
    @property
    def clock(self) -> Clock: ...
    @property
    def rng(self) -> random.Random: ...
    @property
    def nominator(self) -> PodNominator: ...
    @property
    def event_recorder(self) -> SchedulerEventRecorder: ...
    @property
    def volumes(self) -> VolumeCache: ...
    @property
    def owners(self) -> OwnerSelectors: ...
    @property
    def claims(self) -> ResourceClaimCache: ...  # raises if the release has none
    @property
    def uses_claims(self) -> bool: ...
    @property
    def rules(self) -> SchedulingRules: ...
    @property
    def features(self) -> FeatureSet: ...

    def waiting_pods(self) -> list[WaitingPod]: ...

    def get_waiting_pod(self, uid: str) -> WaitingPod | None: ...

    def reject_waiting_pod(self, uid: str) -> None: ...


PluginFactory = Callable[[Object, Handle], Plugin]
Registry = dict[str, PluginFactory]


# ---- helpers ----


def all_rows(status: Status, rows: Rows) -> NodeStatuses:
    """The same status for all rows."""
    return [(status, rows)] if len(rows) else []


def group_by_status(statuses: Iterable[tuple[int, Status]]) -> NodeStatuses:
    groups: dict[Status, list[int]] = {}
    for row, status in statuses:
        groups.setdefault(status, []).append(row)
    return [(status, np.array(rows, np.intp)) for status, rows in groups.items()]


def default_normalize_score(scores: Score, *, reverse: bool = False) -> Score:
    """Scale scores so that the highest becomes 100; reversed, the lowest score is the best."""
    highest = int(scores.max()) if isinstance(scores, np.ndarray) else scores
    if highest <= 0:
        return MAX_NODE_SCORE if reverse else scores
    out = MAX_NODE_SCORE * scores // highest
    return MAX_NODE_SCORE - out if reverse else out


def check_args(args: Object, known: Sequence[str], plugin: str) -> None:
    """Reject unknown fields in a plugin's arguments, as Kubernetes' strict decoder does."""
    for name in args:
        if name not in (*known, "apiVersion", "kind"):
            raise SchedulerConfigError(
                f'decoding args for plugin {plugin}: strict decoder error: unknown field "{name}"'
            )
