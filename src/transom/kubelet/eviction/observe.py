"""Observes how much of each monitored resource the node has left."""

from __future__ import annotations

from collections.abc import Collection

from transom.kubelet.allocatable import parse_reserved
from transom.kubelet.base import KubeletContext
from transom.kubelet.eviction.thresholds import (
    ALLOCATABLE_MEMORY,
    IMAGE_FS,
    IMAGE_INODES,
    MEMORY,
    NODE_FS,
    NODE_INODES,
    PIDS,
    EvictionThreshold,
    SignalObservation,
)
from transom.kubelet.eviction.usage import working_set


class SignalObserver:
    """Observes only signals that have thresholds and that the operating system reports."""

    __slots__ = ("_env", "_limits", "_reserved", "_signals")

    def __init__(self, env: KubeletContext, limits: Collection[EvictionThreshold]) -> None:
        config = env.config
        self._env = env
        self._limits = limits
        self._signals = frozenset(env.os.signals(env.host, config.release)) & {
            limit.signal for limit in limits
        }
        self._reserved = sum(
            reserved["memory"].value()
            for reserved in (
                parse_reserved(config.kube_reserved),
                parse_reserved(config.system_reserved),
            )
            if "memory" in reserved
        )

    def look(self) -> dict[str, SignalObservation]:
        seen: dict[str, SignalObservation] = {}
        host, signals = self._env.host, self._signals
        if MEMORY in signals or ALLOCATABLE_MEMORY in signals:
            use = host.memory()
            seen[MEMORY] = SignalObservation(*self._env.os.available_memory(use))
            if ALLOCATABLE_MEMORY in signals:
                seen[ALLOCATABLE_MEMORY] = self._allocatable(
                    use.total - self._reserved, use.working_set
                )
        disk = host.disk()
        free = SignalObservation(disk.available, disk.capacity)
        for signal in (NODE_FS, IMAGE_FS):  # images are on the same disk
            if signal in signals:
                seen[signal] = free
        if disk.inodes:
            inodes = SignalObservation(disk.inodes - disk.inodes_used, disk.inodes)
            for signal in (NODE_INODES, IMAGE_INODES):
                if signal in signals:
                    seen[signal] = inodes
        if PIDS in signals:
            self._processes(seen)
        return seen

    def _allocatable(self, limit: int, used_by_all: int) -> SignalObservation:
        """Memory available to pods, of their total allocatable. Pods never use more than the whole
        machine does, so as long as that leaves enough, no pod needs to be measured.
        """
        least = SignalObservation(limit - used_by_all, limit)
        if not any(
            each.signal == ALLOCATABLE_MEMORY and each.crossed(least, True) for each in self._limits
        ):
            return least
        return SignalObservation(limit - working_set(self._env.runtime.container_stats()), limit)

    def _processes(self, seen: dict[str, SignalObservation]) -> None:
        env = self._env
        rlimit = env.os.node_stats(
            env.host, env.runtime.container_stats(), (), env.clock.time()
        ).get("rlimit")
        if rlimit is not None:
            seen[PIDS] = SignalObservation(rlimit["maxpid"] - rlimit["curproc"], rlimit["maxpid"])
