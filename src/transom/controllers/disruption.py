"""PodDisruptionBudgets: computes how many pods may be evicted now, and writes it to the status for
the eviction API.

If that cannot be determined, no evictions are allowed. Allowed evictions are in `disruptedPods`; a
pod listed there counts as deleted for two minutes.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Sequence

from transom.client.api import is_conflict, is_not_found
from transom.client.events import NORMAL, WARNING
from transom.client.informer import Informer
from transom.client.resources import (
    DEPLOYMENTS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
)
from transom.client.store import object_key
from transom.client.workqueue import WorkQueue
from transom.controllers.base import ControllerContext, run_worker
from transom.controllers.ownership import resolve_controller_ref
from transom.controllers.percent import scaled_value
from transom.controllers.pods import is_pod_ready
from transom.controllers.scales import InvalidApiVersion, NoMatch, Scales, group_of
from transom.kit.clock import parse_rfc3339, rfc3339
from transom.kit.named_tuple import NamedTuple
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object, controller_of
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.selectors import LabelSelector, SelectorError, owner_selector

log = logging.getLogger("transom.controllers")

_DELETION_SECONDS = 120.0
_APPS = ("apps", "extensions")


class Uncountable(Exception):
    """The expected number of pods cannot be determined; the text is for the user."""


class _Scale(NamedTuple):
    uid: str
    replicas: int


class Disruption:
    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        self._clock = env.clock
        self._events = env.recorder("controllermanager")
        self._scales = Scales(env.client, env.clock)
        self._queue: WorkQueue[str] = WorkQueue(env.clock, name="disruption", metrics=env.queues)
        release = env.settings.features.release
        self._conditions = has_behaviour(release, "DisruptionConditions")
        self._counts_unmanaged = not has_behaviour(release, "UnmanagedPodsInBudgets")
        self._shown = POD_DISRUPTION_BUDGETS.at("v1" if self._conditions else "v1beta1")
        self._selectors: dict[str, tuple[Object | None, LabelSelector]] = {}
        self._budgets = env.informers(POD_DISRUPTION_BUDGETS)
        self._pods = env.informers(PODS)
        self._replication_controllers = env.informers(REPLICATION_CONTROLLERS)
        self._replica_sets = env.informers(REPLICA_SETS)
        self._deployments = env.informers(DEPLOYMENTS)
        self._stateful_sets = env.informers(STATEFUL_SETS)
        self._finders: tuple[Callable[[Object, str], Awaitable[_Scale | None]], ...] = (
            self._replication_controller,
            self._deployment,
            self._replica_set,
            self._stateful_set,
            self._any_scale,
        )
        self._budgets.add_handler(
            add=self._changed, update=lambda _, new: self._changed(new), delete=self._deleted
        )
        self._pods.add_handler(
            add=self._pod_changed, update=self._pod_updated, delete=self._pod_changed
        )

    async def run(self) -> None:
        needs = (
            self._budgets,
            self._pods,
            self._replication_controllers,
            self._replica_sets,
            self._deployments,
            self._stateful_sets,
        )
        await run_worker(self._queue, self._sync, needs)

    # ---- event handlers ----

    def _changed(self, budget: Object) -> None:
        self._queue.add(object_key(budget))

    def _deleted(self, budget: Object) -> None:
        self._selectors.pop(budget["metadata"]["uid"], None)

    def _pod_updated(self, old: Object, new: Object) -> None:
        if old["metadata"].get("labels") != new["metadata"].get("labels"):
            # it may have lost the pod, and would otherwise count it forever
            for budget in self._over(old):
                self._changed(budget)
        self._pod_changed(new)

    def _over(self, pod: Object) -> list[Object]:
        meta = pod["metadata"]
        labels = meta.get("labels") or {}
        return [b for b in self._budgets.list(meta["namespace"]) if self._takes(b, labels)]

    def _pod_changed(self, pod: Object) -> None:
        meta = pod["metadata"]
        budgets = self._over(pod)
        if not budgets:
            return
        if len(budgets) > 1:
            message = (
                f'Pod "{meta["namespace"]}"/"{meta["name"]}" matches multiple '
                "PodDisruptionBudgets.  "
                f'Chose "{budgets[0]["metadata"]["name"]}" arbitrarily.'
            )
            self._events.event(pod, WARNING, "MultiplePodDisruptionBudgets", message)
        for budget in budgets:
            self._changed(budget)

    def _takes(self, budget: Object, labels: dict[str, str]) -> bool:
        try:
            return self._selector(budget).matches(labels)
        except SelectorError:
            return False

    def _selector(self, budget: Object) -> LabelSelector:
        """Operates on the stored form, in which an empty selector matches all pods and a missing
        one matches none.
        """
        uid, wanted = budget["metadata"]["uid"], budget["spec"].get("selector")
        known = self._selectors.get(uid)
        if known is None or known[0] != wanted:
            # The informer has built a large one in a thread.
            known = self._selectors[uid] = wanted, owner_selector(budget)
        return known[1]

    # ---- one budget ----

    def _record_event(self, budget: Object, kind: str, reason: str, message: str) -> None:
        shown = {**budget, "apiVersion": self._shown.api_version}
        self._events.event(shown, kind, reason, message)

    async def _sync(self, key: str) -> None:
        budget = self._budgets.by_key(key)
        if budget is None:
            return
        try:
            await self._try(key, budget)
        except (
            ApiError,
            OSError,
            Uncountable,
            SelectorError,
            NoMatch,
            InvalidApiVersion,
            ValueError,
        ) as problem:
            if is_conflict(problem) or is_not_found(problem):
                raise
            log.info("disruption: %s failed: %s", key, problem)
            status = {**(budget.get("status") or {}), "disruptionsAllowed": 0}
            if self._conditions:
                observed = status.get("observedGeneration", 0)
                self._set_condition(status, "False", "SyncFailed", str(problem), observed)
            await self._client.update_status(POD_DISRUPTION_BUDGETS, {**budget, "status": status})
            if isinstance(problem, (ApiError, OSError)):
                # Enqueue again: the write may not have changed anything, and no other event would
                # trigger a sync.
                raise

    async def _try(self, key: str, budget: Object) -> None:
        try:
            pods = self._pods.list(budget["metadata"]["namespace"], self._selector(budget))
        except SelectorError as problem:
            self._record_event(budget, WARNING, "NoPods", f"Failed to get pods: {problem}")
            raise
        if not pods:
            self._record_event(budget, NORMAL, "NoPods", "No matching pods found")
        try:
            expected, desired = await self._expected(budget, pods)
        except Exception as problem:
            self._record_event(
                budget,
                WARNING,
                "CalculateExpectedPodCountFailed",
                f"Failed to calculate the number of expected pods: {problem}",
            )
            raise
        now = self._clock.time()
        disrupted, recheck = self._disrupted(budget, pods, now)
        healthy = sum(
            "deletionTimestamp" not in pod["metadata"]
            and pod["metadata"]["name"] not in disrupted
            and is_pod_ready(pod)
            for pod in pods
        )
        await self._write(budget, healthy, desired, expected, disrupted)
        if recheck is not None:
            self._queue.add_after(key, recheck - now)

    async def _write(
        self, budget: Object, healthy: int, desired: int, expected: int, disrupted: dict[str, str]
    ) -> None:
        # Without expected pods no disruption is allowed: the first pods may appear before the next
        # status update.
        allowed = max(healthy - desired, 0) if expected > 0 else 0
        old = budget.get("status") or {}
        counts = {
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "disruptionsAllowed": allowed,
            "observedGeneration": budget["metadata"].get("generation", 0),
        }
        status: Object = dict(counts)
        if self._conditions:
            if old.get("conditions"):
                status["conditions"] = old["conditions"]
            self._set_condition(
                status,
                "True" if allowed > 0 else "False",
                "SufficientPods" if allowed > 0 else "InsufficientPods",
                "",
                counts["observedGeneration"],
            )
        if (
            all(old.get(name, 0) == value for name, value in counts.items())
            and (old.get("disruptedPods") or {}) == disrupted
            and old.get("conditions") == status.get("conditions")
        ):
            return
        if disrupted:
            status["disruptedPods"] = disrupted
        await self._client.update_status(POD_DISRUPTION_BUDGETS, {**budget, "status": status})

    def _set_condition(
        self, status: Object, value: str, reason: str, message: str, generation: int
    ) -> None:
        """Sets DisruptionAllowed; its time changes with its status."""
        before = next(
            (c for c in status.get("conditions") or () if c["type"] == "DisruptionAllowed"), None
        )
        fresh: Object = {
            "type": "DisruptionAllowed",
            "status": value,
            "reason": reason,
            "message": message,
            "lastTransitionTime": rfc3339(self._clock.time()),
        }
        if generation:
            fresh["observedGeneration"] = generation
        if before is not None and before.get("status") == value:
            fresh["lastTransitionTime"] = before["lastTransitionTime"]
        others = [c for c in status.get("conditions") or () if c is not before]
        status["conditions"] = [*others, fresh]

    def _disrupted(
        self, budget: Object, pods: Sequence[Object], now: float
    ) -> tuple[dict[str, str], float | None]:
        """Pods that are still being evicted, and when to check them again."""
        known = (budget.get("status") or {}).get("disruptedPods") or {}
        out: dict[str, str] = {}
        recheck = None
        for pod in pods if known else ():
            meta = pod["metadata"]
            since = known.get(meta["name"])
            if since is None or "deletionTimestamp" in meta:
                continue
            expected = parse_rfc3339(since) + _DELETION_SECONDS
            if expected < now:
                # Kubernetes' text has the namespace twice, where the name should be
                namespace = budget["metadata"]["namespace"]
                self._events.event(
                    pod,
                    WARNING,
                    "NotDeleted",
                    f"Pod was expected by PDB {namespace}/{namespace} to be deleted but it wasn't",
                )
            else:
                out[meta["name"]] = since
                # Slightly later: exactly at that time it still counts as disrupted.
                recheck = min(recheck or math.inf, expected + 0.001)
        return out, recheck

    # ---- expected pods ----

    async def _expected(self, budget: Object, pods: Sequence[Object]) -> tuple[int, int]:
        """Expected pods, and the required number of healthy ones."""
        spec = budget["spec"]
        most, least = spec.get("maxUnavailable"), spec.get("minAvailable")
        if most is not None:
            expected = await self._total_scale(budget, pods)
            return expected, max(expected - scaled_value(most, expected, up=True), 0)
        if isinstance(least, str):
            expected = await self._total_scale(budget, pods)
            return expected, scaled_value(least, expected, up=True)
        if least is not None:
            return len(pods), int(least)
        return 0, 0

    async def _total_scale(self, budget: Object, pods: Sequence[Object]) -> int:
        """The sum of the replicas that the pods' controllers want."""
        scales: dict[str, int] = {}
        unmanaged = False
        for pod in pods:
            name = pod["metadata"]["name"]
            ref = controller_of(pod)
            if ref is None and not self._counts_unmanaged:
                unmanaged = True
                continue
            if ref is None:
                text = f'found no controller ref for pod "{name}"'
                self._record_event(budget, WARNING, "NoControllerRef", text)
                raise Uncountable(text)
            if ref["uid"] in scales:
                continue
            for find in self._finders:
                scale = await find(ref, pod["metadata"]["namespace"])
                if scale is not None:
                    scales[scale.uid] = scale.replicas
                    break
            else:
                text = f'found no controllers for pod "{name}"'
                self._record_event(budget, WARNING, "NoControllers", text)
                raise Uncountable(text)
        if unmanaged:
            self._record_event(
                budget,
                WARNING,
                "UnmanagedPods",
                "Pods selected by this PodDisruptionBudget (selector: "
                f"{_go_selector(budget['spec'].get('selector') or {})}) were found to be "
                "unmanaged. As a result, the status of the PDB cannot be calculated correctly, "
                "which may result in undefined behavior. To account for these pods please set "
                '".spec.minAvailable" field of the PDB to an integer value.',
            )
        return sum(scales.values())

    def _find(
        self, owners: Informer, ref: Object, namespace: str, groups: Sequence[str]
    ) -> Object | None:
        if group_of(ref.get("apiVersion", ""))[0] not in groups:
            return None
        return resolve_controller_ref(owners, namespace, ref)

    async def _replication_controller(self, ref: Object, namespace: str) -> _Scale | None:
        return _scale_of(self._find(self._replication_controllers, ref, namespace, ("",)))

    async def _deployment(self, ref: Object, namespace: str) -> _Scale | None:
        replica_set = self._find(self._replica_sets, ref, namespace, _APPS)
        above = controller_of(replica_set) if replica_set is not None else None
        return (
            _scale_of(self._find(self._deployments, above, namespace, _APPS))
            if above is not None
            else None
        )

    async def _replica_set(self, ref: Object, namespace: str) -> _Scale | None:
        replica_set = self._find(self._replica_sets, ref, namespace, _APPS)
        above = controller_of(replica_set) if replica_set is not None else None
        if above is not None and above["kind"] == "Deployment":
            return None
        return _scale_of(replica_set)

    async def _stateful_set(self, ref: Object, namespace: str) -> _Scale | None:
        return _scale_of(self._find(self._stateful_sets, ref, namespace, ("apps",)))

    async def _any_scale(self, ref: Object, namespace: str) -> _Scale | None:
        group, version = group_of(ref.get("apiVersion", ""))
        try:
            found = await self._scales.resources(group, ref["kind"])
        except NoMatch as problem:
            api_version = f"{group}/{version}" if group else version
            raise NoMatch(
                f'no matches for kind "{ref["kind"]}" in version "{api_version}"'
            ) from problem
        try:
            scale = await self._scales.get(found[0], namespace, ref["name"])
        except ApiError as problem:
            if not is_not_found(problem):
                raise
            if self._conditions and not await self._scales.has_scale(found[0]):
                raise Uncountable(
                    f"{found[0].group_resource} does not implement the scale subresource"
                ) from problem
            return None
        if scale["metadata"]["uid"] != ref["uid"]:
            return None
        return _Scale(ref["uid"], (scale.get("spec") or {}).get("replicas", 0))


def _go_selector(selector: Object) -> str:
    """A LabelSelector as Go prints it."""
    labels = "".join(f"{k}: {v}," for k, v in sorted((selector.get("matchLabels") or {}).items()))
    expressions = ",".join(
        f"LabelSelectorRequirement{{Key:{e['key']},Operator:{e['operator']},"
        f"Values:[{' '.join(e.get('values') or ())}],}}"
        for e in selector.get("matchExpressions") or ()
    )
    if expressions:
        expressions += ","
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )


def _scale_of(owner: Object | None) -> _Scale | None:
    return (
        _Scale(owner["metadata"]["uid"], owner["spec"].get("replicas", 0))
        if owner is not None
        else None
    )
