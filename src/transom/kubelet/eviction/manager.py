"""The eviction manager: detects scarce resources, sets the node's conditions, frees what is not
needed, evicts pods.

It runs in rounds. `observe` is the cheap half of a round and returns whether the other half, `act`,
has anything to do. The caller supplies the pods and the function that stops one.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from transom.client.events import WARNING
from transom.kubelet.admission.predicates import tolerates
from transom.kubelet.base import KubeletContext
from transom.kubelet.eviction import ranking, storage, thresholds
from transom.kubelet.eviction.observe import SignalObserver
from transom.kubelet.eviction.thresholds import (
    IMAGE_FS,
    IMAGE_INODES,
    NODE_FS,
    NODE_INODES,
    RESOURCES,
    EvictionThreshold,
)
from transom.kubelet.eviction.usage import PodUsageMeter
from transom.kubelet.failures import PodRejection
from transom.kubelet.interfaces import KillPod
from transom.kubelet.labels import is_critical
from transom.kubelet.podstate import format_pod, uid_of
from transom.kubelet.refs import node_ref, pod_ref
from transom.machinery.objects import Object
from transom.machinery.podutil import qos_class
from transom.machinery.quantity import BINARY_SI, ZERO, Quantity, parse_quantity

log = logging.getLogger("transom.kubelet")

PERIOD = 10.0
REASON = "Evicted"
_MEMORY_PRESSURE, _DISK_PRESSURE, _PID_PRESSURE = "MemoryPressure", "DiskPressure", "PIDPressure"
_MEMORY_TAINT = {"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}
_CLEANUP_SECONDS, _CLEANUP_POLL = 30.0, 1.0
# What frees disk space without side effects: removing dead containers, then unused images.
_RECLAIMABLE = frozenset((NODE_FS, NODE_INODES, IMAGE_FS, IMAGE_INODES))


class ActivePods(Protocol):
    def __call__(self, wanted: Callable[[Object], bool] | None = None) -> Sequence[Object]:
        """All pods, or those that `wanted` accepts."""


class EvictionManager:
    __slots__ = (
        "_active_pods",
        "_changed",
        "_conditions",
        "_env",
        "_first_seen",
        "_kill",
        "_last_seen",
        "_limits",
        "_looked_at",
        "_met",
        "_observer",
        "_reclaim",
        "_starved",
    )

    def __init__(
        self,
        env: KubeletContext,
        active_pods: ActivePods,
        kill: KillPod,
        reclaim: Sequence[Callable[[], Awaitable[None]]] = (),
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`reclaim`: functions that free disk space, in order. `changed` is called immediately when
        conditions change: until the scheduler knows of them, it keeps sending pods that are
        rejected as fast as they are replaced. Raises ValueError for invalid thresholds.
        """
        self._env = env
        self._active_pods = active_pods
        self._kill = kill
        self._reclaim = reclaim
        self._changed = changed
        self._limits = thresholds.configured_thresholds(env.config, env.os)
        self._observer = SignalObserver(env, self._limits)
        self._conditions: tuple[str, ...] = ()
        self._first_seen: dict[EvictionThreshold, float] = {}
        self._last_seen: dict[str, float] = {}  # of conditions
        self._met: list[EvictionThreshold] = []
        self._starved: list[EvictionThreshold] = []
        self._looked_at = float("-inf")

    # ---- queries ----

    def memory(self) -> bool:
        return _MEMORY_PRESSURE in self._conditions

    def disk(self) -> bool:
        return _DISK_PRESSURE in self._conditions

    def pid(self) -> bool:
        return _PID_PRESSURE in self._conditions

    @property
    def pressed(self) -> bool:
        """Whether a resource is scarce, or was recently."""
        return bool(self._conditions)

    def admit(self, pod: Object) -> PodRejection | None:
        """A node under pressure admits critical pods only; under memory pressure alone, also pods
        that are not best-effort or that tolerate it.
        """
        if not self._conditions or is_critical(pod):
            return None
        if self._conditions == (_MEMORY_PRESSURE,) and (
            qos_class(pod) != "BestEffort" or tolerates(pod["spec"], (_MEMORY_TAINT,), "NoSchedule")
        ):
            return None
        return PodRejection(REASON, f"The node had condition: [{' '.join(self._conditions)}]. ")

    # ---- a round ----

    def observe(self) -> bool:
        """Observes the node. Returns True when `act` has something to do."""
        now = self._env.clock.monotonic()
        seen = self._observer.look()
        crossed = thresholds.crossed_thresholds(self._limits, seen)
        if self._met:
            still = thresholds.crossed_thresholds(self._met, seen, with_reclaim=True)
            crossed += [limit for limit in still if limit not in crossed]
        if crossed or self._first_seen or self._last_seen:
            self._note(crossed, now)
        # A second observation at the same moment shows nothing new.
        self._starved = self._met if now > self._looked_at else []
        self._looked_at = now
        return bool(self._starved) or bool(self._active_pods(_has_limits))

    def _note(self, crossed: Sequence[EvictionThreshold], now: float) -> None:
        self._first_seen = {limit: self._first_seen.get(limit, now) for limit in crossed}
        self._last_seen |= dict.fromkeys(thresholds.pressure_conditions(crossed), now)
        period = self._env.config.eviction_pressure_transition_period
        self._last_seen = {
            name: at for name, at in self._last_seen.items() if at == now or now - at < period
        }
        before = self._conditions
        self._conditions = tuple(name for name, at in self._last_seen.items() if now - at < period)
        if set(self._conditions) != set(before):
            self._changed()
        self._met = [
            limit for limit, since in self._first_seen.items() if now - since >= limit.grace
        ]

    async def act(self) -> list[Object]:
        """Evicts what is necessary after `observe`; returns the evicted pods."""
        pods, usage = self._active_pods(), PodUsageMeter(self._env)
        evicted = await self._local_storage(pods, usage)
        if evicted or not self._starved:
            return evicted
        limit = thresholds.by_priority(self._starved)[0]
        resource = RESOURCES[limit.signal]
        node = node_ref(self._env.config.node_name)
        self._env.events.event(
            node, WARNING, "EvictionThresholdMet", f"Attempting to reclaim {resource}"
        )
        if await self._reclaimed(limit.signal):
            return []
        grace = 0 if limit.hard else self._env.config.eviction_max_pod_grace_period
        for pod in ranking.rank_pods_for_eviction(limit.signal, self._active_pods(), usage):
            message, notes = eviction_message(resource, pod, usage)
            if await self._evict(pod, grace, message, notes):
                return [pod]
        return []

    async def wait_for_cleanup(self, pods: Sequence[Object]) -> None:
        """Waits until nothing of the pods runs, but not forever."""
        clock, runtime = self._env.clock, self._env.runtime
        end = clock.monotonic() + _CLEANUP_SECONDS
        while clock.monotonic() < end:
            await clock.sleep(_CLEANUP_POLL)
            if not any(
                c.state == "running" for pod in pods for c in runtime.containers(uid_of(pod))
            ):
                return

    async def _local_storage(self, pods: Sequence[Object], usage: PodUsageMeter) -> list[Object]:
        out = []
        for pod in pods:
            message = storage.excess_storage(pod, usage) if _has_limits(pod) else ""
            if message and await self._evict(pod, 0, message, None):
                out.append(pod)
        return out

    async def _reclaimed(self, signal: str) -> bool:
        """Whether removing unneeded data freed enough."""
        if signal not in _RECLAIMABLE or not self._reclaim:
            return False
        for free in self._reclaim:
            try:
                await free()
            except Exception as problem:  # whatever prevented it from freeing more, evict pods next
                log.warning("%s: not all could be freed: %s", signal, problem)
        return not thresholds.crossed_thresholds(self._limits, self._observer.look())

    async def _evict(
        self, pod: Object, grace: int, message: str, notes: dict[str, str] | None
    ) -> bool:
        if is_critical(pod):
            log.warning("a critical pod is not evicted: %s", format_pod(pod))
            return False
        self._env.events.event(pod_ref(pod), WARNING, REASON, message, annotations=notes)
        await self._kill(pod, REASON, message, grace)
        return True


def _has_limits(pod: Object) -> bool:
    """Cheap, because it is called for every pod in every round."""
    spec = pod["spec"]
    for volume in spec.get("volumes") or ():
        source = volume.get("emptyDir")
        if source and "sizeLimit" in source:
            return True
    for field in ("containers", "initContainers"):
        for container in spec.get(field) or ():
            limits = (container.get("resources") or {}).get("limits")
            if limits and "ephemeral-storage" in limits:
                return True
    return False


def eviction_message(
    resource: str, pod: Object, usage: PodUsageMeter
) -> tuple[str, dict[str, str]]:
    """Which containers exceed their requests, as a text and as annotations of the event."""
    message = f"The node was low on resource: {resource}. "
    use = usage.pod(pod)
    if use is None:
        return message, {}
    names, amounts = [], []
    specs = {container["name"]: container for container in pod["spec"].get("containers") or ()}
    for container in use.containers:
        spec = specs.get(container.name)
        measured = {
            "memory": container.memory,
            "ephemeral-storage": container.root.used + container.logs.used,
        }.get(resource)
        if spec is None or measured is None:
            continue
        requested = ((spec.get("resources") or {}).get("requests") or {}).get(resource)
        request = parse_quantity(requested) if requested is not None else ZERO
        used = Quantity(measured, 0, BINARY_SI)
        if used > request:
            message += (
                f"Container {container.name} was using {used}, which exceeds its request of "
                f"{request}. "
            )
            names.append(container.name)
            amounts.append(str(used))
    return message, {
        "offending_containers": ",".join(names),
        "offending_containers_usage": ",".join(amounts),
        "starved_resource": resource,
    }
