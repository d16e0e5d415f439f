"""Runs the plugins of one profile at each extension point, with Kubernetes' order, semantics and
error texts.

Independent of queues, events and the API: the scheduler acts on the returned statuses.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import cast

from transom.client.api import ApiClient
from transom.client.informer import Informer, InformerFactory
from transom.kit.clock import Clock
from transom.kit.lazy_dataclass import dataclass
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.machinery.releases import DEFAULT
from transom.machinery.releases.features import FeatureSet
from transom.machinery.releases.scheduling import scheduling_rules
from transom.scheduler import framework as fw
from transom.scheduler.arrays import Ints, Mask, Rows, np
from transom.scheduler.errors import SchedulerConfigError, SchedulingError
from transom.scheduler.event_recorder import SchedulerEventRecorder
from transom.scheduler.framework import (
    MAX_NODE_SCORE,
    MIN_NODE_SCORE,
    Code,
    CycleState,
    NodeStatuses,
    NodeToStatusMap,
    PostFilterResult,
    Score,
    StateKey,
    Status,
    error_status,
    group_by_status,
)
from transom.scheduler.nominator import PodNominator
from transom.scheduler.owners import OwnerSelectors
from transom.scheduler.pods import PodInfo
from transom.scheduler.resource_claims import ResourceClaimCache
from transom.scheduler.snapshot import NodeInfo, Snapshot
from transom.scheduler.volumes import VolumeCache
from transom.scheduler.waiting_pods import WaitingPods

log = logging.getLogger("transom.scheduler")

# The extension points of a configuration, with the interfaces that a plugin can implement there.
EXTENSION_POINTS: dict[str, tuple[type[fw.Plugin], ...]] = {
    "preEnqueue": (fw.PreEnqueuePlugin,),
    "queueSort": (fw.QueueSortPlugin,),
    "preFilter": (fw.PreFilterPlugin,),
    "filter": (fw.FilterPlugin, fw.BatchFilterPlugin),
    "postFilter": (fw.PostFilterPlugin,),
    "preScore": (fw.PreScorePlugin,),
    "score": (fw.ScorePlugin, fw.BatchScorePlugin),
    "reserve": (fw.ReservePlugin,),
    "permit": (fw.PermitPlugin,),
    "preBind": (fw.PreBindPlugin,),
    "bind": (fw.BindPlugin,),
    "postBind": (fw.PostBindPlugin,),
}
PluginSet = tuple[tuple[str, int], ...]  # enabled plugins and their weights

_MAX_PERMIT_SECONDS = 15 * 60.0
_MAX_TOTAL_SCORE = (1 << 63) - 1
_EXPECTED = (SchedulingError, ApiError, OSError)


@dataclass(frozen=True, slots=True)
class FrameworkOptions:
    """What all profiles share."""

    snapshot: Snapshot
    client: ApiClient
    informers: InformerFactory
    pods: Informer
    clock: Clock
    rng: random.Random
    nominator: PodNominator
    waiting_pods: WaitingPods
    volumes: VolumeCache
    owners: OwnerSelectors
    features: FeatureSet = field(default_factory=lambda: FeatureSet(DEFAULT))
    claims: ResourceClaimCache | None = None  # in releases with dynamic resource allocation


class Framework:
    """The plugins of one profile. It is the Handle that they are constructed with."""

    def __init__(
        self,
        profile_name: str,
        registry: fw.Registry,
        plugins: Mapping[str, PluginSet],
        args: Mapping[str, Object],
        options: FrameworkOptions,
        event_recorder: SchedulerEventRecorder,
    ) -> None:
        self.profile_name = profile_name
        self.snapshot = options.snapshot
        self.client = options.client
        self.informers = options.informers
        self.pods = options.pods
        self.clock = options.clock
        self.rng = options.rng
        self.nominator = options.nominator
        self.volumes = options.volumes
        self.owners = options.owners
        self.features = options.features
        self.rules = scheduling_rules(options.features.release)
        self.event_recorder = event_recorder
        self._waiting_pods = options.waiting_pods
        self._claims = options.claims
        weights = _weights(plugins)
        self._plugins = self._construct(registry, plugins, args)
        enabled = {point: self._enabled(plugins, point) for point in EXTENSION_POINTS}
        self.pre_enqueue_plugins = [
            p for p in enabled["preEnqueue"] if isinstance(p, fw.PreEnqueuePlugin)
        ]
        self._queue_sort = [p for p in enabled["queueSort"] if isinstance(p, fw.QueueSortPlugin)]
        self._pre_filter = [p for p in enabled["preFilter"] if isinstance(p, fw.PreFilterPlugin)]
        self._preparing = [p for p in self._pre_filter if isinstance(p, fw.PreparingPlugin)]
        self._extensions = [p for p in self._pre_filter if isinstance(p, fw.PreFilterExtensions)]
        self.filter_plugins = [_as_batch_filter(p, self.snapshot) for p in enabled["filter"]]
        # The combined result of static filters is cached for each Shape.
        self._static_filters = [p for p in self.filter_plugins if p.static]
        self._dynamic_filters = [p for p in self.filter_plugins if not p.static]
        self._post_filter = [p for p in enabled["postFilter"] if isinstance(p, fw.PostFilterPlugin)]
        self._pre_score = [p for p in enabled["preScore"] if isinstance(p, fw.PreScorePlugin)]
        self._score = [_Scorer(p, weights[p.name], self.snapshot) for p in enabled["score"]]
        self._reserve = [p for p in enabled["reserve"] if isinstance(p, fw.ReservePlugin)]
        self._permit = [p for p in enabled["permit"] if isinstance(p, fw.PermitPlugin)]
        self._pre_bind = [p for p in enabled["preBind"] if isinstance(p, fw.PreBindPlugin)]
        self._bind = [p for p in enabled["bind"] if isinstance(p, fw.BindPlugin)]
        self._post_bind = [p for p in enabled["postBind"] if isinstance(p, fw.PostBindPlugin)]
        if not self._queue_sort:
            raise SchedulerConfigError("no queue sort plugin is enabled")
        if len(self._queue_sort) > 1:
            raise SchedulerConfigError("only one queue sort plugin can be enabled")
        if not self._bind:
            raise SchedulerConfigError("at least one bind plugin is needed")

    # ---- construction ----

    def _construct(
        self, registry: fw.Registry, plugins: Mapping[str, PluginSet], args: Mapping[str, Object]
    ) -> dict[str, fw.Plugin]:
        out: dict[str, fw.Plugin] = {}
        for point in EXTENSION_POINTS:
            for name, _ in plugins.get(point, ()):
                if name not in registry:
                    raise SchedulerConfigError(
                        f"initializing profiles: creating profile for scheduler name "
                        f'{self.profile_name}: {_interface_name(point)} "{name}" does not exist'
                    )
                if name not in out:
                    out[name] = registry[name](args.get(name) or {}, self)
        return out

    def _enabled(self, plugins: Mapping[str, PluginSet], point: str) -> list[fw.Plugin]:
        out: list[fw.Plugin] = []
        for name, _ in plugins.get(point, ()):
            plugin = self._plugins[name]
            if not isinstance(plugin, EXTENSION_POINTS[point]):
                raise SchedulerConfigError(
                    f'plugin "{name}" does not extend {_interface_name(point)} plugin'
                )
            if plugin in out:
                raise SchedulerConfigError(
                    f'plugin "{name}" already registered as "{_interface_name(point)}"'
                )
            out.append(plugin)
        return out

    @property
    def uses_claims(self) -> bool:
        return self._claims is not None

    @property
    def claims(self) -> ResourceClaimCache:
        if self._claims is None:
            raise SchedulerConfigError(
                "plugin DynamicResources: the API of resource.k8s.io/v1 is not served"
            )
        return self._claims

    # ---- queue ----

    @property
    def queue_sort_func(self) -> fw.LessFunc:
        return self._queue_sort[0].less

    def run_pre_enqueue_plugins(self, pod: PodInfo) -> Status | None:
        for plugin in self.pre_enqueue_plugins:
            status = plugin.pre_enqueue(pod)
            if status is not None and not status.is_success:
                return status
        return None

    # ---- scheduling cycle: filter ----

    async def run_prepare_plugins(self, state: CycleState, pod: PodInfo) -> None:
        for plugin in self._preparing:
            await plugin.prepare(state, pod)

    def run_pre_filter_plugins(self, state: CycleState, pod: PodInfo) -> Status | None:
        skipped: list[str] = []
        for plugin in self._pre_filter:
            try:
                status = plugin.pre_filter(state, pod)
            except SchedulingError as error:
                status = error_status(str(error))
            if status is None or status.is_success:
                continue
            if status.is_unschedulable:
                return status
            if status.code is not Code.SKIP:
                raise SchedulingError(f'running PreFilter plugin "{plugin.name}": {status.message}')
            skipped.append(plugin.name)
        if skipped:
            state.skip_filter_plugins = frozenset(skipped)
        return None

    def run_filter_plugins(self, state: CycleState, pod: PodInfo, rows: Rows) -> Rows:
        """The rows that pass all filters, without regard to nominated pods."""
        rows = rows[self._static_mask(state, pod)[rows]]
        for plugin in self._dynamic_filters:
            if not len(rows):
                return rows
            mask = self._filter(plugin, state, pod, rows)
            if mask is not None:
                rows = rows[mask]
        return rows

    def run_filter_plugins_for_statuses(
        self, state: CycleState, pod: PodInfo, rows: Rows
    ) -> NodeStatuses:
        """For each row that is rejected, the status of the first filter that rejects it."""
        out: NodeStatuses = []
        for plugin in self.filter_plugins:
            if not len(rows):
                break
            mask = self._filter(plugin, state, pod, rows)
            if mask is not None and not mask.all():
                out += plugin.filter_statuses(state, pod, rows[~mask])
                rows = rows[mask]
        return out

    def run_all_filter_plugins(
        self, state: CycleState, pod: PodInfo, rows: Rows
    ) -> Iterator[tuple[str, NodeStatuses]]:
        """The statuses of each filter, also for rows that an earlier filter has rejected."""
        for plugin in self.filter_plugins:
            mask = self._filter(plugin, state, pod, rows)
            if mask is not None and not mask.all():
                yield plugin.name, plugin.filter_statuses(state, pod, rows[~mask])

    def _static_mask(self, state: CycleState, pod: PodInfo) -> Mask:
        snapshot, shape = self.snapshot, pod.shape
        version = snapshot.static.version
        cached = shape.memo.get(self)
        if cached is not None and cached[0] == version and len(cached[1]) == snapshot.capacity:
            return cast(Mask, cached[1])
        rows = np.arange(snapshot.capacity)
        out = np.ones(snapshot.capacity, np.bool_)
        for plugin in self._static_filters:
            mask = self._filter(plugin, state, pod, rows)
            if mask is not None:
                out &= mask
        shape.memo[self] = version, out
        return out

    def _filter(
        self, plugin: fw.BatchFilterPlugin, state: CycleState, pod: PodInfo, rows: Rows
    ) -> Mask | None:
        if state.skip_filter_plugins and plugin.name in state.skip_filter_plugins:
            return None
        try:
            return plugin.filter_nodes(state, pod, rows)
        except SchedulingError as error:
            raise SchedulingError(
                self.rules.filter_error.format(plugin=plugin.name, pod=pod.name, error=error)
            ) from error

    # ---- scheduling cycle: nominated pods and preemption ----

    def nominated_pods(self, pod: PodInfo, row: int) -> list[PodInfo]:
        """The pods nominated to run on the node that have the same or a higher priority."""
        nominated = self.nominator.nominated_pods_for_node(self.snapshot.name(row))
        return [p for p in nominated if p.priority >= pod.priority and p.uid != pod.uid]

    def filter_with_nominated_pods(
        self, state: CycleState, pod: PodInfo, row: int
    ) -> Status | None:
        """The status of the node if the pods nominated to run there were running; None: the pod
        fits beside them.
        """
        nominated = self.nominated_pods(pod, row)
        if not nominated:
            return None
        node = self.snapshot.at(row)
        state = self.clone_state(state)
        with self.snapshot.with_pods(nominated, node.name) as added:
            for guest in added:
                self._run_extensions(state, pod, guest, node, adds=True)
            found = self.run_filter_plugins_for_statuses(state, pod, np.array([row], np.intp))
        return found[0][0] if found else None

    def clone_state(self, state: CycleState) -> CycleState:
        """A copy for preFilter extensions to change; without any, the state itself."""
        return state.clone() if self._extensions else state

    def add_pod(self, state: CycleState, pod: PodInfo, to_add: PodInfo, node_name: str) -> None:
        self.snapshot.add_pod(to_add, node_name)
        self._run_extensions(state, pod, to_add, self.snapshot.nodes[node_name], adds=True)

    def remove_pod(
        self, state: CycleState, pod: PodInfo, to_remove: PodInfo, node: NodeInfo
    ) -> None:
        self.snapshot.remove_pod(to_remove)
        self._run_extensions(state, pod, to_remove, node, adds=False)

    def _run_extensions(
        self, state: CycleState, pod: PodInfo, other: PodInfo, node: NodeInfo, *, adds: bool
    ) -> None:
        for plugin in self._extensions:
            try:
                call = plugin.add_pod if adds else plugin.remove_pod
                status = call(state, pod, other, node)
            except SchedulingError as error:
                status = error_status(str(error))
            if status is not None and not status.is_success:
                method = "AddPod" if adds else "RemovePod"
                raise SchedulingError(
                    f'running {method} on PreFilter plugin "{plugin.name}": {status.message}'
                )

    def filters_depending_on_pods(
        self, state: CycleState, pod: PodInfo, row: int
    ) -> Sequence[fw.BatchFilterPlugin]:
        # A filter that accepts all nodes whatever runs on them returns None.
        rows = np.array([row], np.intp)
        return [p for p in self._dynamic_filters if self._filter(p, state, pod, rows) is not None]

    def pod_passes_filters(
        self, state: CycleState, pod: PodInfo, row: int, filters: Iterable[fw.BatchFilterPlugin]
    ) -> bool:
        for plugin in filters:
            try:
                if not plugin.filter_node(state, pod, row):
                    return False
            except SchedulingError as error:
                raise SchedulingError(
                    self.rules.filter_error.format(plugin=plugin.name, pod=pod.name, error=error)
                ) from error
        if not self.nominator:
            return True
        return self.filter_with_nominated_pods(state, pod, row) is None

    def node_status(self, state: CycleState, pod: PodInfo, row: int) -> Status | None:
        if self.nominator:
            status = self.filter_with_nominated_pods(state, pod, row)
            if status is not None:
                return status
        found = self.run_filter_plugins_for_statuses(state, pod, np.array([row], np.intp))
        return found[0][0] if found else None

    async def run_post_filter_plugins(
        self, state: CycleState, pod: PodInfo, filtered_nodes: NodeToStatusMap
    ) -> tuple[PostFilterResult | None, Status | None]:
        """Run until the first Success or Error."""
        rejected: list[Status] = []
        for plugin in self._post_filter:
            try:
                result, status = await plugin.post_filter(state, pod, filtered_nodes)
            except _EXPECTED as error:
                return None, error_status(str(error))
            if status is None or status.is_success:
                return result, status
            if not status.is_unschedulable:
                return None, error_status(status.message)
            rejected.append(status)
        return None, _merged(rejected)

    # ---- scheduling cycle: score ----

    def run_pre_score_plugins(self, state: CycleState, pod: PodInfo, rows: Rows) -> None:
        skipped: list[str] = []
        for plugin in self._pre_score:
            try:
                status = plugin.pre_score(state, pod, rows)
            except SchedulingError as error:
                status = error_status(str(error))
            if status is None or status.is_success:
                continue
            if status.code is not Code.SKIP:
                raise SchedulingError(f'running PreScore plugin "{plugin.name}": {status.message}')
            skipped.append(plugin.name)
        if skipped:
            state.skip_score_plugins = frozenset(skipped)

    def run_score_plugins(
        self, state: CycleState, pod: PodInfo, rows: Rows
    ) -> list[tuple[str, Score, int]]:
        """The name, the normalized scores and the weight of each plugin."""
        out: list[tuple[str, Score, int]] = []
        for scorer in self._score:
            if state.skip_score_plugins and scorer.name in state.skip_score_plugins:
                continue
            out.append((scorer.name, scorer.run(state, pod, rows), scorer.weight))
        return out

    # ---- scheduling cycle: reserve and permit ----

    def run_reserve_plugins_reserve(
        self, state: CycleState, pod: PodInfo, node_name: str
    ) -> Status | None:
        for plugin in self._reserve:
            try:
                status = plugin.reserve(state, pod, node_name)
            except Exception as error:
                status = error_status(_text(error))
            if status is not None and not status.is_success:
                return error_status(f'running Reserve plugin "{plugin.name}": {status.message}')
        return None

    def run_reserve_plugins_unreserve(
        self, state: CycleState, pod: PodInfo, node_name: str
    ) -> None:
        for plugin in reversed(self._reserve):
            try:
                plugin.unreserve(state, pod, node_name)
            except Exception:
                # The other plugins must still release what they reserved.
                log.exception("Unreserve of plugin %s failed for pod %s", plugin.name, pod.key)

    def run_permit_plugins(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Wait: the pod is in `waiting_pods` now, and `wait_on_permit` waits for the outcome."""
        timeouts: dict[str, float] = {}
        for plugin in self._permit:
            try:
                status, timeout = plugin.permit(state, pod, node_name)
            except Exception as error:
                status, timeout = error_status(_text(error)), 0.0
            if status is None or status.is_success:
                continue
            if status.is_unschedulable:
                return Status(
                    status.code,
                    (
                        f'rejected pod "{pod.name}" by permit plugin "{plugin.name}": '
                        f"{status.message}",
                    ),
                )
            if status.code is not Code.WAIT:
                return error_status(f'running Permit plugin "{plugin.name}": {status.message}')
            timeouts[plugin.name] = min(timeout, _MAX_PERMIT_SECONDS)
        if not timeouts:
            return None
        self._waiting_pods.add(pod, timeouts)
        return Status(
            Code.WAIT,
            (f'one or more plugins asked to wait and no plugin rejected pod "{pod.name}"',),
        )

    async def wait_on_permit(self, pod: PodInfo) -> Status | None:
        waiting = self._waiting_pods.get(pod.uid)
        if waiting is None:
            return None
        try:
            status = await waiting.wait()
        finally:
            self._waiting_pods.remove(pod.uid)
        if status.is_success:
            return None
        return Status(
            status.code, (f'pod "{pod.name}" rejected while waiting on permit: {status.message}',)
        )

    def waiting_pods(self) -> list[fw.WaitingPod]:
        return [*self._waiting_pods.list()]

    def get_waiting_pod(self, uid: str) -> fw.WaitingPod | None:
        return self._waiting_pods.get(uid)

    def reject_waiting_pod(self, uid: str) -> None:
        waiting = self._waiting_pods.get(uid)
        if waiting is not None:
            waiting.reject("removed")

    # ---- binding cycle ----

    def will_pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> bool:
        """Whether a preBind plugin has work to do for the pod."""
        return any(p.pre_bind_pre_flight(state, pod, node_name) for p in self._pre_bind)

    async def run_pre_bind_plugins(
        self, state: CycleState, pod: PodInfo, node_name: str
    ) -> Status | None:
        for plugin in self._pre_bind:
            try:
                status = await plugin.pre_bind(state, pod, node_name)
            except Exception as error:
                status = error_status(_text(error))
            if status is not None and not status.is_success:
                return error_status(f'running PreBind plugin "{plugin.name}": {status.message}')
        return None

    async def run_bind_plugins(
        self, state: CycleState, pod: PodInfo, node_name: str
    ) -> Status | None:
        """Run until a plugin handles the pod; Skip if none does."""
        status: Status | None = None
        for plugin in self._bind:
            try:
                status = await plugin.bind(state, pod, node_name)
            except Exception as error:
                status = error_status(_text(error))
            if status is None or status.is_success:
                return None
            if status.code is not Code.SKIP:
                return error_status(f'running Bind plugin "{plugin.name}": {status.message}')
        return status

    async def run_post_bind_plugins(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        for plugin in self._post_bind:
            try:
                await plugin.post_bind(state, pod, node_name)
            except Exception:
                # The pod is bound: a plugin that is only informed cannot change that.
                log.exception("PostBind plugin %s failed for pod %s", plugin.name, pod.key)


class _EachNodeFilter(fw.BatchFilterPlugin):
    """Runs a FilterPlugin on one node after the other."""

    def __init__(self, plugin: fw.FilterPlugin, snapshot: Snapshot) -> None:
        self.name = plugin.name  # type: ignore[misc]
        self._plugin = plugin
        self._snapshot = snapshot
        self._rejected: StateKey[dict[int, Status]] = StateKey(f"{plugin.name}/rejected")

    def filter_nodes(self, state: CycleState, pod: PodInfo, rows: Rows) -> Mask:
        rejected: dict[int, Status] = {}
        mask = np.ones(len(rows), np.bool_)
        for i, row in enumerate(rows.tolist()):
            node = self._snapshot.rows[row]
            status = self._plugin.filter(state, pod, node) if node is not None else None
            if status is None or status.is_success:
                continue
            if not status.is_unschedulable:
                raise SchedulingError(status.message)
            rejected[row] = status
            mask[i] = False
        state.write(self._rejected, rejected)
        return mask

    def filter_statuses(self, state: CycleState, pod: PodInfo, rows: Rows) -> NodeStatuses:
        rejected = state.read(self._rejected)
        return group_by_status((row, rejected[row]) for row in rows.tolist())


def _as_batch_filter(plugin: fw.Plugin, snapshot: Snapshot) -> fw.BatchFilterPlugin:
    if isinstance(plugin, fw.BatchFilterPlugin):
        return plugin
    assert isinstance(plugin, fw.FilterPlugin)
    return _EachNodeFilter(plugin, snapshot)


class _Scorer:
    """A score plugin with its weight and its ScoreExtensions."""

    def __init__(self, plugin: fw.Plugin, weight: int, snapshot: Snapshot) -> None:
        self.name = plugin.name
        self.weight = weight
        self._score_nodes = _score_nodes(plugin, snapshot)
        self._extensions = plugin if isinstance(plugin, fw.ScoreExtensions) else None

    def run(self, state: CycleState, pod: PodInfo, rows: Rows) -> Score:
        step = "Score"
        try:
            scores = self._score_nodes(state, pod, rows)
            if self._extensions is not None:
                step = "Normalize on Score"
                scores = self._extensions.normalize_score(state, pod, rows, scores)
        except SchedulingError as error:
            raise SchedulingError(
                f'running {step} plugins: plugin "{self.name}" failed with: {error}'
            ) from error
        _check_scores(self.name, scores)
        return scores


def _score_nodes(
    plugin: fw.Plugin, snapshot: Snapshot
) -> Callable[[CycleState, PodInfo, Rows], Score]:
    if isinstance(plugin, fw.BatchScorePlugin):
        return plugin.score_nodes
    assert isinstance(plugin, fw.ScorePlugin)
    at, score = snapshot.at, plugin.score

    def score_each(state: CycleState, pod: PodInfo, rows: Rows) -> Score:
        return np.array([score(state, pod, at(row)) for row in rows.tolist()], np.int64)

    return score_each


def _check_scores(plugin: str, scores: Score) -> None:
    if isinstance(scores, int):
        if MIN_NODE_SCORE <= scores <= MAX_NODE_SCORE:
            return
        invalid = scores
    else:
        # One comparison for both bounds: a negative number is a large unsigned one.
        if scores.astype(np.uint64).max() <= MAX_NODE_SCORE:
            return
        invalid = int(scores.min()) if scores.min() < 0 else int(scores.max())
    raise SchedulingError(
        f'applying score defaultWeights on Score plugins: plugin "{plugin}" returns an invalid '
        f"score {invalid}, it should in the range of [{MIN_NODE_SCORE}, {MAX_NODE_SCORE}] after "
        "normalizing"
    )


def total_scores(scores: Iterable[tuple[str, Score, int]], nodes: int) -> Ints:
    """The sum of the weighted scores of all plugins for each node."""
    totals = np.zeros(nodes, np.int64)
    same = 0  # for all nodes
    for _, values, weight in scores:
        if isinstance(values, int):
            same += values * weight
        else:
            totals += values if weight == 1 else values * weight
    totals += same
    return totals


def _weights(plugins: Mapping[str, PluginSet]) -> dict[str, int]:
    out: dict[str, int] = {}
    for point in EXTENSION_POINTS:
        for plugin, weight in plugins.get(point, ()):
            if weight or plugin not in out:
                out[plugin] = weight or 1
    if sum(out.values()) * MAX_NODE_SCORE > _MAX_TOTAL_SCORE:
        raise SchedulerConfigError("total score of Score plugins could overflow")
    return out


def _interface_name(point: str) -> str:
    return EXTENSION_POINTS[point][0].__name__


def _merged(statuses: list[Status]) -> Status | None:
    if not statuses:
        return None
    codes = {status.code for status in statuses}
    unresolvable = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    code = unresolvable if unresolvable in codes else Code.UNSCHEDULABLE
    return Status(code, tuple(reason for status in statuses for reason in status.reasons))


def _text(error: Exception) -> str:
    """The text of an error that a plugin raised. An unexpected one is a bug in the plugin and is
    logged.
    """
    if isinstance(error, _EXPECTED):
        return str(error)
    log.exception("plugin failed")
    return f"{type(error).__name__}: {error}"
