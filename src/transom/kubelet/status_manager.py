"""Reports pod status to the API: writes a status when it has changed, and deletes a pod when it is
fully cleaned up.

It keeps the last reported status, so that condition times stay, phases never go back, and nothing
is written twice. At most one write per pod is in flight; newer statuses wait for it and are merged.
There is no task while there is nothing to write.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from transom.client.api import STRATEGIC_PATCH, ApiClient, is_conflict, is_not_found
from transom.client.resources import PODS
from transom.kit.clock import Clock, Timer, rfc3339
from transom.kubelet.actions import exited_restarts
from transom.kubelet.conditions import DISRUPTION_TARGET, own_conditions
from transom.kubelet.features import NO_FEATURES, PodFeatures
from transom.kubelet.labels import is_mirror
from transom.kubelet.podstate import TERMINAL, uid_of
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.machinery.podutil import (
    all_containers_could_restart,
    is_restartable_init_container,
)

log = logging.getLogger("transom.kubelet")

RETRY_SECONDS = 10.0
# Delays the report that work on a new pod has begun, in case the result follows soon, and changes
# of containers in an otherwise unchanged pod: a real kubelet notices those at the next relist, once
# a second.
_SOON_SECONDS = 0.1
# While the process is so busy that timers are this late, the result takes longer as well: the
# report waits on, but not longer than the second figure.
_LATE_SECONDS, _LONGEST_SECONDS = 0.01, 2.0
_BEGINNING = ("ContainerCreating", "PodInitializing")


class _Entry:
    """`version` belongs to the write that returned `seen`: the informer may still have an older
    one. `reported`: something was written.
    """

    __slots__ = (
        "dirty",
        "due",
        "final",
        "reported",
        "seen",
        "since",
        "status",
        "task",
        "timer",
        "uid",
        "version",
    )

    def __init__(self, uid: str, status: Object, now: float) -> None:
        self.uid = uid
        self.status = status
        self.since = now
        self.dirty = False
        self.due = 0.0  # of the timer
        self.final = False
        self.reported = False
        self.task: asyncio.Task[None] | None = None
        self.timer: Timer | None = None
        self.seen: Object | None = None
        self.version = 0


class StatusManager:
    """`api_pod` returns the object to write to by the pod's uid: the pod as last seen, the mirror
    of a static pod, or None.
    """

    def __init__(
        self,
        client: ApiClient,
        clock: Clock,
        api_pod: Callable[[str], Object | None],
        features: PodFeatures = NO_FEATURES,
    ) -> None:
        self._client = client
        self._clock = clock
        self._api_pod = api_pod
        self._features = features
        self._own = own_conditions(features)
        self._entries: dict[str, _Entry] = {}

    def get(self, uid: str) -> Object | None:
        """The pod's latest status, written or not."""
        entry = self._entries.get(uid)
        return entry.status if entry else None

    def set(self, pod: Object, status: Object) -> None:
        """Takes ownership of `status`."""
        uid = uid_of(pod)
        entry = self._entries.get(uid)
        old = entry.status if entry else (self._api_pod(uid) or pod).get("status") or {}
        problem = _illegal(old, status, pod, self._features)
        if problem:
            log.error(
                "status of pod %s/%s: %s",
                pod["metadata"]["namespace"],
                pod["metadata"]["name"],
                problem,
            )
            return
        self._stamp(status, old)
        generation = pod["metadata"].get("generation")
        if self._features.observed_generation and generation:
            status["observedGeneration"] = generation
        if entry is None:
            entry = self._entries[uid] = _Entry(uid, status, self._clock.monotonic())
        elif entry.status == status:
            return
        entry.status = status
        entry.dirty = True
        waits = _same_but_containers(old, status) if entry.reported else _begins(status)
        self._start(entry, _SOON_SECONDS if waits else 0)

    def finish(self, pod: Object) -> None:
        """Nothing of the pod is left on the node: writes the last status and deletes the pod."""
        uid = uid_of(pod)
        entry = self._entries.get(uid)
        if entry is None:
            entry = self._entries[uid] = _Entry(
                uid, pod.get("status") or {}, self._clock.monotonic()
            )
        entry.final = True
        self._start(entry, 0)

    def check(self, pod: Object) -> None:
        """Called with the API's version: corrects it when it differs from what was reported."""
        entry = self._entries.get(uid_of(pod))
        if entry is None or entry.dirty or entry.task is not None or entry.timer is not None:
            return
        if int(pod["metadata"].get("resourceVersion") or 0) <= entry.version:
            return
        if pod_status_merge_patch(pod.get("status") or {}, entry.status, self._own) is not None:
            entry.dirty = True
            self._start(entry, RETRY_SECONDS)

    def touch(self, uid: str) -> None:
        """The object to write to now exists: the mirror of a static pod has appeared."""
        entry = self._entries.get(uid)
        if entry is not None:
            entry.dirty, entry.version, entry.seen = True, 0, None
            self._start(entry, 0)

    def forget(self, uid: str) -> None:
        entry = self._entries.pop(uid, None)
        if entry is not None and entry.timer is not None:
            entry.timer.cancel()

    def flush(self) -> None:
        """Writes now what waits for a timer."""
        for entry in self._entries.values():
            if entry.dirty or entry.final:
                self._start(entry, 0)

    def stop(self) -> None:
        for entry in self._entries.values():
            if entry.timer is not None:
                entry.timer.cancel()
            if entry.task is not None:
                entry.task.cancel()
        self._entries.clear()

    # ---- preparing a status ----

    def _stamp(self, status: Object, old: Object) -> None:
        now = rfc3339(self._clock.time())
        before = {c["type"]: c for c in old.get("conditions") or ()}
        for condition in status.get("conditions") or ():
            shared = condition["type"] == DISRUPTION_TARGET
            if condition["type"] not in self._own and (
                not shared or "lastTransitionTime" in condition
            ):
                continue
            was = before.get(condition["type"])
            same = was is not None and was["status"] == condition["status"]
            condition["lastProbeTime"] = None
            condition["lastTransitionTime"] = (
                was.get("lastTransitionTime") if was is not None and same else now
            )
        status["startTime"] = old.get("startTime") or now

    # ---- writing ----

    def _start(self, entry: _Entry, seconds: float) -> None:
        if entry.task is not None:
            return  # it checks again before it ends
        due = self._clock.monotonic() + seconds
        if entry.timer is not None:
            if seconds and entry.due <= due:
                return
            entry.timer.cancel()
            entry.timer = None
        if seconds:
            entry.due = due
            entry.timer = self._clock.call_later(seconds, self._due, entry)
        else:
            entry.task = asyncio.get_running_loop().create_task(self._run(entry))

    def _due(self, entry: _Entry) -> None:
        entry.timer = None
        now = self._clock.monotonic()
        waits_on = (
            not entry.reported
            and now - entry.due > _LATE_SECONDS
            and now - entry.since < _LONGEST_SECONDS
            and _begins(entry.status)
        )
        self._start(entry, _SOON_SECONDS if waits_on else 0)

    async def _run(self, entry: _Entry) -> None:
        wait = 0.0
        try:
            while entry.dirty or entry.final:
                if not await self._write(entry):
                    break
        except ApiError as problem:
            if is_not_found(problem) or is_conflict(problem):
                # Deleted, or replaced by another pod of this name: the informer reports the rest.
                entry.dirty = entry.final = False
            else:
                log.warning("the status of pod %s could not be written: %s", entry.uid, problem)
                wait = RETRY_SECONDS
        except OSError as problem:
            log.info("the status of pod %s could not be written: %s", entry.uid, problem)
            wait = RETRY_SECONDS
        finally:
            entry.task = None
        if wait and self._entries.get(entry.uid) is entry:
            entry.dirty = True
            self._start(entry, wait)

    async def _write(self, entry: _Entry) -> bool:
        """Whether there may be more to do."""
        target = self._api_pod(entry.uid)
        if target is None:
            entry.dirty = entry.final = False
            return False
        meta = target["metadata"]
        current = target.get("status") or {}
        if entry.seen is not None:
            if int(meta.get("resourceVersion") or 0) < entry.version:
                current = entry.seen
            else:
                entry.seen = None
        entry.dirty = False
        change = pod_status_merge_patch(current, entry.status, self._own)
        if change is not None:
            body = {"metadata": {"uid": meta["uid"]}, "status": change}
            written = await self._client.patch(
                PODS, meta["namespace"], meta["name"], body, STRATEGIC_PATCH, subresource="status"
            )
            entry.reported = True
            entry.seen = written.get("status") or {}
            entry.version = int(written["metadata"]["resourceVersion"])
        if entry.final and not entry.dirty:
            entry.final = False
            if not is_mirror(target):
                await self._delete(entry, meta)
            return False
        return True

    async def _delete(self, entry: _Entry, meta: Mapping[str, Any]) -> None:
        try:
            await self._client.delete(
                PODS, meta["namespace"], meta["name"], grace=0, uid=meta["uid"]
            )
        except (ApiError, OSError) as problem:
            entry.final = not (is_not_found(problem) or is_conflict(problem))
            raise


def _begins(status: Object) -> bool:
    """Whether the status reports only that work has begun."""
    return status.get("phase") == "Pending" and all(
        (entry["state"].get("waiting") or {}).get("reason") in _BEGINNING
        for entry in (
            *status.get("containerStatuses", ()),
            *status.get("initContainerStatuses", ()),
        )
    )


def _same_but_containers(old: Object, new: Object) -> bool:
    return old.keys() == new.keys() and all(
        new[key] == value for key, value in old.items() if key not in _CONTAINERS
    )


_CONTAINERS = frozenset(
    ("containerStatuses", "ephemeralContainerStatuses", "initContainerStatuses")
)


def _illegal(old: Object, new: Object, pod: Object, features: PodFeatures) -> str:
    """A container that has terminated for good must not appear running again."""
    spec = pod["spec"]
    if features.restart_all and all_containers_could_restart(spec):
        return ""
    if not features.restart_rules and spec.get("restartPolicy", "Always") == "Always":
        return ""
    for field, kind in _ENDED.items():
        now = {entry["name"]: entry for entry in new.get(field) or ()}
        specs = {container["name"]: container for container in spec.get(kind) or ()}
        for entry in old.get(field) or ():
            name, ended = entry["name"], entry["state"].get("terminated")
            if ended is None or name not in now or name not in specs:
                continue
            if exited_restarts(specs[name], pod, ended["exitCode"], features) or (
                features.sidecars
                and kind == "initContainers"
                and is_restartable_init_container(specs[name])
            ):
                continue
            if "terminated" not in now[name]["state"]:
                return (
                    f"terminated container {name} attempted illegal transition to "
                    "non-terminated state"
                )
    return ""


_ENDED = {"containerStatuses": "containers", "initContainerStatuses": "initContainers"}


# ---- the difference of two statuses, as a strategic merge patch ----


def pod_status_merge_patch(old: Object, new: Object, own_types: frozenset[str]) -> Object | None:
    """The patch from `old` to `new`; None when nothing changes. Keeps conditions and fields of
    other components.
    """
    out: Object = {}
    for key, value in new.items():
        if key not in _OTHERS and old.get(key) != value:
            out[key] = value
    for key in old:
        if key not in new and key not in _OTHERS:
            out[key] = None
    own_types |= {c["type"] for c in new.get("conditions") or () if c["type"] == DISRUPTION_TARGET}
    kept = [c for c in old.get("conditions") or () if c["type"] not in own_types]
    own = [c for c in new.get("conditions") or () if c["type"] in own_types]
    _keyed(out, "conditions", old.get("conditions") or (), [*kept, *own])
    for field in ("podIPs", "hostIPs"):
        _keyed(out, field, old.get(field) or (), new.get(field) or ())
    if out and old.get("phase") in TERMINAL and new.get("phase") != old["phase"]:
        log.error("a pod that is %s would become %s", old["phase"], new.get("phase"))
        return None
    return out or None


_KEYED = {"conditions": "type", "podIPs": "ip", "hostIPs": "ip"}
_OTHERS = frozenset(
    (
        *_KEYED,
        # written by the controller of resource claims and the scheduler
        "extendedResourceClaimStatus",
        "nodeAllocatableResourceClaimStatuses",
        "resourceClaimStatuses",
    )
)


def _keyed(out: Object, field: str, old: Iterable[Object], new: Iterable[Object]) -> None:
    """A list with named elements: only those that differ, and the order of all."""
    key = _KEYED[field]
    before = {entry[key]: entry for entry in old}
    after = {entry[key]: entry for entry in new}
    changes = []
    for name, entry in after.items():
        was = before.get(name)
        if was is None:
            changes.append(entry)
        elif was != entry:
            gone = {k: None for k in was if k not in entry}
            changes.append({**entry, **gone})
    changes += [{key: name, "$patch": "delete"} for name in before if name not in after]
    if changes or [*before] != [*after]:
        out["$setElementOrder/" + field] = [{key: name} for name in after]
        if changes:
            out[field] = changes
