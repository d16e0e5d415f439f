"""Evicts pods whose devices have a NoExecute taint that their claim does not tolerate.

A taint is set by the driver, in a ResourceSlice, or by a DeviceTaintRule. The status of a rule
reports the progress of its evictions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from transom.client.api import APPLY_PATCH, is_conflict, is_not_found
from transom.client.events import NORMAL
from transom.client.resources import PODS, GroupVersionResource
from transom.client.store import join_key, object_key, split_key
from transom.client.workqueue import WorkQueue
from transom.controllers.base import ControllerContext, run_worker
from transom.controllers.disruption_target import DisruptionMarker
from transom.controllers.pods import assigned_node, is_pod_terminating
from transom.controllers.resourceclaim import RESOURCE_CLAIMS
from transom.kit.clock import parse_rfc3339, rfc3339
from transom.kit.named_tuple import NamedTuple
from transom.machinery.device_taints import DeviceId, rule_selects_device
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object, controller_of
from transom.machinery.tolerations import tolerates_taint

_GROUP: Final = "resource.k8s.io"
RESOURCE_SLICES: Final = GroupVersionResource(
    _GROUP, "v1", "resourceslices", False, "ResourceSlice"
)
DEVICE_TAINT_RULES: Final = GroupVersionResource(
    _GROUP, "v1", "devicetaintrules", False, "DeviceTaintRule"
)
_NAME: Final = "device-taint-eviction-controller"
_CONDITION: Final = "EvictionInProgress"
_NO_EXECUTE: Final = "NoExecute"
_POOL_INDEX: Final = "pool"
_STATUS_SECONDS: Final = 10.0  # between updates of the status of a rule
_WORKERS: Final = 8


class Eviction(NamedTuple):
    """`rules` are the UIDs of the DeviceTaintRules among the reasons."""

    when: float
    rules: frozenset[str]


class _Work(NamedTuple):
    kind: str  # pod or rule
    key: str
    uid: str


def claim_eviction(
    claim: Object, devices: Mapping[DeviceId, Object], rules: Iterable[Object]
) -> Eviction | None:
    """When the pods of an allocated claim are evicted. `devices` are the published ones by driver,
    pool and name, `rules` those with the effect NoExecute.
    """
    rules = list(rules)
    when: float | None = None
    reasons: set[str] = set()
    for result in _allocated_devices(claim):
        where = result["driver"], result["pool"], result["device"]
        tolerations = result.get("tolerations") or ()
        for taint, rule in _taints(devices.get(where), rules, where):
            due = _due(taint, tolerations)
            if due is None:
                continue
            when = due if when is None else min(when, due)
            if rule:
                reasons.add(rule)
    return None if when is None else Eviction(when, frozenset(reasons))


def _taints(
    device: Object | None, rules: Iterable[Object], where: DeviceId
) -> Iterator[tuple[Object, str]]:
    for taint in (device or {}).get("taints") or ():
        if taint.get("effect") == _NO_EXECUTE:
            yield taint, ""
    for rule in rules:
        if rule_selects_device(rule, where):
            yield {**rule["spec"]["taint"], "effect": _NO_EXECUTE}, rule["metadata"]["uid"]


def _due(taint: Object, tolerations: Iterable[Object]) -> float | None:
    """When a taint takes effect; None: it is tolerated forever."""
    seconds: list[int] = []
    for toleration in tolerations:
        if toleration.get("effect") == _NO_EXECUTE and tolerates_taint(toleration, taint):
            if toleration.get("tolerationSeconds") is None:
                return None
            seconds.append(max(toleration["tolerationSeconds"], 0))
    return parse_rfc3339(taint["timeAdded"]) + min(seconds, default=0)


def _allocated_devices(claim: Object) -> list[Object]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    found: list[Object] = (allocation.get("devices") or {}).get("results") or []
    return found


def _pool_of(resource_slice: Object) -> str:
    spec = resource_slice["spec"]
    return f"{spec['driver']}/{spec['pool']['name']}"


def _evicting_devices(resource_slice: Object | None) -> list[Object]:
    """What counts of a slice: a change of anything else does not evict a pod."""
    if resource_slice is None:
        return []
    spec = resource_slice["spec"]
    return [
        {"device": device["name"], "taint": taint, "generation": spec["pool"].get("generation")}
        for device in spec.get("devices") or ()
        for taint in device.get("taints") or ()
        if taint.get("effect") == _NO_EXECUTE
    ]


class DeviceTaintEviction:
    def __init__(self, env: ControllerContext) -> None:
        self._client, self._clock = env.client, env.clock
        self._events = env.recorder(_NAME)
        self._disruption = DisruptionMarker(env)
        self._queue: WorkQueue[_Work] = WorkQueue(
            env.clock, name="device_taint_eviction", metrics=env.queues
        )
        self._planned: dict[_Work, Eviction] = {}
        self._evicted: set[str] = set()  # UIDs of pods
        self._evicted_by_rule: dict[str, int] = {}
        self._pods = env.informers(PODS)
        self._claims = env.informers(RESOURCE_CLAIMS)
        self._slices = env.informers(RESOURCE_SLICES)
        self._slices.add_index(_POOL_INDEX, lambda obj: (_pool_of(obj),))
        has_rules = env.settings.features.enabled("DRADeviceTaintRules")
        self._rules = env.informers(DEVICE_TAINT_RULES) if has_rules else None
        self._claims.add_handler(
            add=self._check_pods, update=self._claim_updated, delete=self._check_pods
        )
        self._pods.add_handler(
            add=self._check_pod, update=self._pod_updated, delete=self._pod_deleted
        )
        self._slices.add_handler(
            add=lambda new: self._slice_changed(None, new),
            update=self._slice_changed,
            delete=lambda old: self._slice_changed(old, None),
        )
        if self._rules is not None:
            self._rules.add_handler(
                add=self._rule_added, update=self._rule_updated, delete=self._rule_deleted
            )

    async def run(self) -> None:
        needs = [self._pods, self._claims, self._slices]
        if self._rules is not None:
            needs.append(self._rules)
        await run_worker(self._queue, self._sync, needs, _WORKERS)

    # ---- changes ----

    def _claim_updated(self, old: Object, new: Object) -> None:
        before, after = old.get("status") or {}, new.get("status") or {}
        if before.get("reservedFor") != after.get("reservedFor"):
            self._check_pods(old)
        self._check_pods(new)

    def _pod_updated(self, old: Object, new: Object) -> None:
        statuses = [(pod.get("status") or {}).get("resourceClaimStatuses") for pod in (old, new)]
        if assigned_node(old) != assigned_node(new) or statuses[0] != statuses[1]:
            self._check_pod(new)

    def _pod_deleted(self, pod: Object) -> None:
        self._planned.pop(_pod_work(pod), None)
        self._evicted.discard(pod["metadata"]["uid"])

    def _slice_changed(self, old: Object | None, new: Object | None) -> None:
        changed = new if new is not None else old
        if changed is None:
            return
        pool = _pool_of(changed)
        others = self._slices.by_index(_POOL_INDEX, pool)
        if _evicting_devices(old) == _evicting_devices(new) and not any(
            _evicting_devices(other) for other in others
        ):
            return
        for claim in self._claims.list():
            if any(f"{one['driver']}/{one['pool']}" == pool for one in _allocated_devices(claim)):
                self._check_pods(claim)

    def _rule_added(self, rule: Object) -> None:
        self._queue.add(_rule_work(rule))
        self._check_selected(rule)

    def _rule_updated(self, old: Object, new: Object) -> None:
        if old["spec"] != new["spec"]:
            self._queue.add(_rule_work(new))
            self._check_selected(old)
            self._check_selected(new)

    def _rule_deleted(self, rule: Object) -> None:
        self._evicted_by_rule.pop(rule["metadata"]["uid"], None)
        self._check_selected(rule)

    def _check_selected(self, rule: Object) -> None:
        for claim in self._claims.list():
            if any(rule_selects_device(rule, _device_id(one)) for one in _allocated_devices(claim)):
                self._check_pods(claim)

    def _check_pods(self, claim: Object) -> None:
        for user in (claim.get("status") or {}).get("reservedFor") or ():
            if user.get("apiGroup") or user.get("resource") != "pods":
                continue
            pod = self._pods.get(claim["metadata"]["namespace"], user["name"])
            if pod is not None and pod["metadata"]["uid"] == user["uid"]:
                self._check_pod(pod)

    def _check_pod(self, pod: Object) -> None:
        if not pod["spec"].get("resourceClaims"):
            return
        work, eviction = _pod_work(pod), self._pod_eviction(pod, self._evicting_rules())
        if eviction is None:
            if self._planned.pop(work, None) is not None:
                self._record_event(work, "Cancelling deletion")
            return
        self._planned[work] = eviction
        self._queue.add_after(work, eviction.when - self._clock.time())
        for rule in self._all_rules():
            if rule["metadata"]["uid"] in eviction.rules:
                self._queue.add_after(_rule_work(rule), _STATUS_SECONDS)

    # ---- tainted devices ----

    def _all_rules(self) -> list[Object]:
        return [] if self._rules is None else self._rules.list()

    def _evicting_rules(self) -> list[Object]:
        return [one for one in self._all_rules() if one["spec"]["taint"]["effect"] == _NO_EXECUTE]

    def _pod_eviction(self, pod: Object, rules: list[Object]) -> Eviction | None:
        if not assigned_node(pod):
            return None
        found = [
            eviction
            for claim in self._claims_of(pod)
            if (eviction := claim_eviction(claim, self._published(claim), rules)) is not None
        ]
        if not found:
            return None
        reasons = frozenset[str]().union(*(one.rules for one in found))
        return Eviction(min(one.when for one in found), reasons)

    def _claims_of(self, pod: Object) -> Iterator[Object]:
        """The claims that are reserved for the pod."""
        meta = pod["metadata"]
        statuses = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
        generated = {one["name"]: one.get("resourceClaimName") for one in statuses}
        for entry in pod["spec"].get("resourceClaims") or ():
            name = entry.get("resourceClaimName") or generated.get(entry["name"])
            claim = self._claims.get(meta["namespace"], name) if name else None
            if claim is None:
                continue
            owner = controller_of(claim)
            if entry.get("resourceClaimName") is None and (
                owner is None or owner.get("uid") != meta["uid"]
            ):
                continue
            users = (claim.get("status") or {}).get("reservedFor") or ()
            if any(user.get("uid") == meta["uid"] for user in users):
                yield claim

    def _published(self, claim: Object) -> dict[DeviceId, Object]:
        pools = {(one["driver"], one["pool"]) for one in _allocated_devices(claim)}
        return {
            (driver, pool, device["name"]): device
            for driver, pool in pools
            for device in self._devices(driver, pool)
        }

    def _devices(self, driver: str, pool: str) -> Iterator[Object]:
        slices = self._slices.by_index(_POOL_INDEX, f"{driver}/{pool}")
        newest = max((one["spec"]["pool"].get("generation", 0) for one in slices), default=0)
        for one in slices:
            if one["spec"]["pool"].get("generation", 0) == newest:
                yield from one["spec"].get("devices") or ()

    # ---- evictions ----

    async def _sync(self, work: _Work) -> None:
        if work.kind == "pod":
            await self._evict(work)
        else:
            await self._report(work)

    async def _evict(self, work: _Work) -> None:
        eviction = self._planned.get(work)
        if eviction is None or work.uid in self._evicted:
            return
        remaining = eviction.when - self._clock.time()
        if remaining > 0:
            self._queue.add_after(work, remaining)
            return
        if await self._delete(work):
            for rule in self._all_rules():
                uid = rule["metadata"]["uid"]
                if uid in eviction.rules:
                    self._evicted_by_rule[uid] = self._evicted_by_rule.get(uid, 0) + 1
                    self._queue.add_after(_rule_work(rule), _STATUS_SECONDS)
        self._planned.pop(work, None)
        if self._pods.by_key(work.key) is not None:
            self._evicted.add(work.uid)

    async def _delete(self, work: _Work) -> bool:
        """Whether this deleted the pod."""
        namespace, name = split_key(work.key)
        try:
            pod = await self._client.get(PODS, namespace, name)
            if pod["metadata"]["uid"] != work.uid:
                return False
            if is_pod_terminating(pod):
                return True
            self._record_event(work, "Marking for deletion")
            await self._disruption.mark(
                pod,
                "DeletionByDeviceTaintManager",
                "Device Taint manager: deleting due to NoExecute taint",
            )
            await self._client.delete(PODS, namespace, name, uid=work.uid)
        except ApiError as problem:
            if not is_not_found(problem):
                raise
            return False
        return True

    def _record_event(self, work: _Work, text: str) -> None:
        namespace, name = split_key(work.key)
        about = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": name,
            "namespace": namespace,
            "uid": work.uid,
        }
        self._events.event(about, NORMAL, "DeviceTaintManagerEviction", text)

    # ---- the status of rules ----

    async def _report(self, work: _Work) -> None:
        rule = self._rules.by_key(work.key) if self._rules is not None else None
        if rule is None or rule["metadata"]["uid"] != work.uid:
            return
        now, generation = self._clock.time(), rule["metadata"].get("generation", 0)
        conditions = (rule.get("status") or {}).get("conditions") or ()
        before = next((one for one in conditions if one["type"] == _CONDITION), None)
        if before is not None and before.get("observedGeneration", 0) == generation:
            since = now - parse_rfc3339(before["lastTransitionTime"])
            if since < _STATUS_SECONDS:
                self._queue.add_after(work, _STATUS_SECONDS - since)
                return
        value, reason, message = self._progress(rule)
        wanted = {
            "type": _CONDITION,
            "status": value,
            "reason": reason,
            "message": message,
            "observedGeneration": generation,
        }
        if before is not None and {"message": "", **before, **wanted} == {"message": "", **before}:
            return
        body = {
            "apiVersion": f"{_GROUP}/v1",
            "kind": "DeviceTaintRule",
            "metadata": {"name": work.key, "uid": work.uid},
            "status": {"conditions": [{**wanted, "lastTransitionTime": rfc3339(now)}]},
        }
        try:
            await self._client.patch(
                DEVICE_TAINT_RULES,
                "",
                work.key,
                body,
                APPLY_PATCH,
                subresource="status",
                field_manager=_NAME,
                force=True,
            )
        except ApiError as problem:
            if not (is_not_found(problem) or is_conflict(problem)):
                raise

    def _progress(self, rule: Object) -> DeviceId:
        """Status, reason and message of the condition."""
        effect = rule["spec"]["taint"]["effect"]
        evicted = self._evicted_by_rule.get(rule["metadata"]["uid"], 0)
        value, texts = "False", []
        if effect == _NO_EXECUTE:
            pods, namespaces = self._pending(rule, self._evicting_rules())
            reason = "Completed" if evicted else "NotStarted"
            if pods:
                value, reason = "True", "PodsPendingEviction"
                need = "1 pod needs" if pods == 1 else f"{pods} pods need"
                texts.append(f"{need} to be evicted in {_namespaces(namespaces)}.")
        elif effect == "None":
            reason = "NoEffect"
            pods, namespaces = self._pending(rule, [rule])
            texts += [
                f"{_count(self._published_count(rule), 'published device')} selected.",
                f"{_count(self._allocated_count(rule), 'allocated device')} selected.",
                f"{_count(pods, 'pod')} would be evicted in {_namespaces(namespaces)} if the "
                "effect was NoExecute. This information will not be updated again. Recreate the "
                "DeviceTaintRule to trigger an update.",
            ]
        else:
            reason = "OtherEffect"
            texts.append("Eviction only happens for the NoExecute effect.")
        if evicted:
            texts.append(f"{_count(evicted, 'pod')} evicted since starting the controller.")
        return value, reason, " ".join(texts)

    def _pending(self, rule: Object, rules: list[Object]) -> tuple[int, int]:
        """The number of pods that the rule evicts, and that of their namespaces."""
        pods = [
            pod["metadata"]["namespace"]
            for pod in self._pods.list()
            if not is_pod_terminating(pod)
            and (eviction := self._pod_eviction(pod, rules)) is not None
            and rule["metadata"]["uid"] in eviction.rules
        ]
        return len(pods), len(set(pods))

    def _published_count(self, rule: Object) -> int:
        pools = {
            (one["spec"]["driver"], one["spec"]["pool"]["name"]) for one in self._slices.list()
        }
        return sum(
            rule_selects_device(rule, (driver, pool, device["name"]))
            for driver, pool in pools
            for device in self._devices(driver, pool)
        )

    def _allocated_count(self, rule: Object) -> int:
        return sum(
            rule_selects_device(rule, _device_id(one))
            for claim in self._claims.list()
            for one in _allocated_devices(claim)
        )


def _device_id(result: Object) -> DeviceId:
    return result["driver"], result["pool"], result["device"]


def _pod_work(pod: Object) -> _Work:
    meta = pod["metadata"]
    return _Work("pod", join_key(meta["namespace"], meta["name"]), meta["uid"])


def _rule_work(rule: Object) -> _Work:
    return _Work("rule", object_key(rule), rule["metadata"]["uid"])


def _count(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"


def _namespaces(number: int) -> str:
    return "1 namespace" if number == 1 else f"{number} different namespaces"
