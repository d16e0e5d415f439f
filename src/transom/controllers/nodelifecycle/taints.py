"""Taints of nodes and what tolerates them; and changing them without losing those that somebody else adds meanwhile."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from transom.client.api import MERGE_PATCH, Client
from transom.client.resources import NODES
from transom.client.retry import Backoff, retry_on_conflict
from transom.kit.clock import Clock, rfc3339
from transom.machinery.objects import Object

NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "NoExecute"
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_NETWORK_UNAVAILABLE = "node.kubernetes.io/network-unavailable"
_MEMORY_PRESSURE = "node.kubernetes.io/memory-pressure"
_DISK_PRESSURE = "node.kubernetes.io/disk-pressure"
_PID_PRESSURE = "node.kubernetes.io/pid-pressure"

# (condition, its status) -> the taint that says so
_BY_CONDITION = {
    ("Ready", "False"): NOT_READY,
    ("Ready", "Unknown"): UNREACHABLE,
    ("MemoryPressure", "True"): _MEMORY_PRESSURE,
    ("DiskPressure", "True"): _DISK_PRESSURE,
    ("NetworkUnavailable", "True"): _NETWORK_UNAVAILABLE,
    ("PIDPressure", "True"): _PID_PRESSURE,
}
_OURS = {UNSCHEDULABLE, *_BY_CONDITION.values()}
_BACKOFF = Backoff(5, 0.1, 1.0, 1.0)

Taint = tuple[str, str]  # key and effect, which make it out


def taints_of(node: Object) -> Sequence[Object]:
    return (node.get("spec") or {}).get("taints") or ()


def has(node: Object, taint: Taint) -> bool:
    return any((t["key"], t["effect"]) == taint for t in taints_of(node))


def no_schedule_changes(node: Object) -> tuple[list[Taint], list[Taint]]:
    """NoSchedule taints that conditions and cordoning call for: those to add and those to take away."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    keys = [_BY_CONDITION.get((c["type"], c.get("status", ""))) for c in conditions]
    wanted = [(key, NO_SCHEDULE) for key in keys if key is not None]
    if (node.get("spec") or {}).get("unschedulable"):
        wanted.append((UNSCHEDULABLE, NO_SCHEDULE))
    there = [(t["key"], NO_SCHEDULE) for t in taints_of(node) if t["effect"] == NO_SCHEDULE and t["key"] in _OURS]
    return [t for t in wanted if t not in there], [t for t in there if t not in wanted]


class Tainter:
    def __init__(self, client: Client, clock: Clock, rng: random.Random) -> None:
        self._client = client
        self._clock = clock
        self._rng = rng

    async def swap(self, name: str, add: Iterable[Taint], remove: Iterable[Taint]) -> None:
        """Add taints and take others away, in one write."""
        added, removed = [*add], {*remove}

        async def attempt() -> None:
            node = await self._client.get(NODES, "", name)
            before = taints_of(node)
            now = rfc3339(self._clock.time())
            fresh = {(key, effect): {"key": key, "effect": effect, "timeAdded": now} for key, effect in added}
            after = []
            for taint in before:
                which = taint["key"], taint["effect"]
                if which not in removed:
                    after.append(fresh.pop(which, taint))
            after += fresh.values()
            if after == [*before]:
                return
            body = {"metadata": {"resourceVersion": node["metadata"]["resourceVersion"]},
                    "spec": {"taints": after or None}}
            await self._client.patch(NODES, "", name, body, MERGE_PATCH)

        await retry_on_conflict(attempt, self._clock, self._rng, _BACKOFF)


# ---- tolerations -----------------------------------------------------------------------------------------------------


def tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return True
    return operator == "Equal" and toleration.get("value", "") == taint.get("value", "")


def tolerated_seconds(taints: Iterable[Object], tolerations: Sequence[Object]) -> float | None:
    """How long all these taints are tolerated: 0 when one is not at all, None for ever."""
    shortest: float | None = None
    for taint in taints:
        found = next((toleration for toleration in tolerations if tolerates(toleration, taint)), None)
        if found is None:
            return 0.0
        seconds = found.get("tolerationSeconds")
        if seconds is not None:
            shortest = max(0.0, seconds if shortest is None else min(shortest, seconds))
    return shortest
