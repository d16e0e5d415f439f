"""Taints of nodes and their tolerations; updates taints without losing concurrent changes of other
clients.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from transom.client.api import MERGE_PATCH, ApiClient
from transom.client.resources import NODES
from transom.client.retry import Backoff, retry_on_conflict
from transom.kit.clock import Clock, rfc3339
from transom.machinery.objects import Object
from transom.machinery.tolerations import find_toleration

NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "NoExecute"
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_NETWORK_UNAVAILABLE = "node.kubernetes.io/network-unavailable"
_MEMORY_PRESSURE = "node.kubernetes.io/memory-pressure"
_DISK_PRESSURE = "node.kubernetes.io/disk-pressure"
_PID_PRESSURE = "node.kubernetes.io/pid-pressure"

# (condition, its status) -> taint
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

Taint = tuple[str, str]  # key and effect, which identify it


def taints_of(node: Object) -> Sequence[Object]:
    return (node.get("spec") or {}).get("taints") or ()


def has_taint(node: Object, taint: Taint) -> bool:
    return any((t["key"], t["effect"]) == taint for t in taints_of(node))


def no_schedule_changes(node: Object) -> tuple[list[Taint], list[Taint]]:
    """The NoSchedule taints for conditions and cordoning: those to add and those to remove."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    keys = [_BY_CONDITION.get((c["type"], c.get("status", ""))) for c in conditions]
    wanted = [(key, NO_SCHEDULE) for key in keys if key is not None]
    if (node.get("spec") or {}).get("unschedulable"):
        wanted.append((UNSCHEDULABLE, NO_SCHEDULE))
    there = [
        (t["key"], NO_SCHEDULE)
        for t in taints_of(node)
        if t["effect"] == NO_SCHEDULE and t["key"] in _OURS
    ]
    return [t for t in wanted if t not in there], [t for t in there if t not in wanted]


class Tainter:
    def __init__(self, client: ApiClient, clock: Clock, rng: random.Random) -> None:
        self._client = client
        self._clock = clock
        self._rng = rng

    async def swap(self, name: str, add: Iterable[Taint], remove: Iterable[Taint]) -> None:
        """Adds and removes taints in one write."""
        added, removed = [*add], {*remove}

        async def attempt() -> None:
            node = await self._client.get(NODES, "", name)
            before = taints_of(node)
            now = rfc3339(self._clock.time())
            fresh = {
                (key, effect): {"key": key, "effect": effect, "timeAdded": now}
                for key, effect in added
            }
            after = []
            for taint in before:
                which = taint["key"], taint["effect"]
                if which not in removed:
                    after.append(fresh.pop(which, taint))
            after += fresh.values()
            if after == [*before]:
                return
            body = {
                "metadata": {"resourceVersion": node["metadata"]["resourceVersion"]},
                "spec": {"taints": after or None},
            }
            await self._client.patch(NODES, "", name, body, MERGE_PATCH)

        await retry_on_conflict(attempt, self._clock, self._rng, _BACKOFF)


# ---- tolerations ----


def tolerated_seconds(taints: Iterable[Object], tolerations: Sequence[Object]) -> float | None:
    """How long all these taints are tolerated: 0 if one is not tolerated, None for no limit."""
    shortest: float | None = None
    for taint in taints:
        found = find_toleration(tolerations, taint)
        if found is None:
            return 0.0
        seconds = found.get("tolerationSeconds")
        if seconds is not None:
            shortest = max(0.0, seconds if shortest is None else min(shortest, seconds))
    return shortest
