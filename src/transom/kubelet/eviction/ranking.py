"""Ranks pods for eviction: those that exceed their requests first, then by priority, then by usage
above the request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from transom.kubelet.admission.requests import preempted as requested
from transom.kubelet.eviction.thresholds import (
    ALLOCATABLE_MEMORY,
    IMAGE_FS,
    IMAGE_INODES,
    MEMORY,
    NODE_FS,
    NODE_INODES,
    PIDS,
)
from transom.kubelet.eviction.usage import PodUsageMeter, is_local
from transom.machinery.objects import Object

# Pods that were not measured come first, then those above their request, then the rest.
_UNKNOWN, _ABOVE, _WITHIN = 0, 1, 2
Key = Callable[[PodUsageMeter, Object], tuple[int, ...]]


def rank_pods_for_eviction(
    signal: str, pods: Sequence[Object], usage: PodUsageMeter
) -> list[Object]:
    """In eviction order."""
    key = _KEYS[signal]
    return sorted(pods, key=lambda pod: key(usage, pod))


def _memory(usage: PodUsageMeter, pod: Object) -> tuple[int, ...]:
    use = usage.pod(pod)
    if use is None:
        return _UNKNOWN, _priority(pod), 0
    above = use.memory - requested(pod, "memory")
    return _ABOVE if above > 0 else _WITHIN, _priority(pod), -above


def _disk(usage: PodUsageMeter, pod: Object) -> tuple[int, ...]:
    use = usage.pod(pod)
    if use is None:
        return _UNKNOWN, _priority(pod), 0
    above = (use.disk + usage.local_volumes(pod, is_local)).used - requested(
        pod, "ephemeral-storage"
    )
    return _ABOVE if above > 0 else _WITHIN, _priority(pod), -above


def _inodes(usage: PodUsageMeter, pod: Object) -> tuple[int, ...]:
    """Inodes cannot be requested, so any usage exceeds the request; bytes are subtracted anyway, as
    Kubernetes does.
    """
    use = usage.pod(pod)
    if use is None:
        return _UNKNOWN, _priority(pod), 0
    used = (use.disk + usage.local_volumes(pod, is_local)).inodes
    return (
        _ABOVE if used > 0 else _WITHIN,
        _priority(pod),
        -(used - requested(pod, "ephemeral-storage")),
    )


def _processes(usage: PodUsageMeter, pod: Object) -> tuple[int, ...]:
    """Processes of single pods are not counted, as with most runtimes."""
    return (_priority(pod),)


def _priority(pod: Object) -> int:
    return int(pod["spec"].get("priority") or 0)


_KEYS: dict[str, Key] = {
    MEMORY: _memory,
    ALLOCATABLE_MEMORY: _memory,
    NODE_FS: _disk,
    IMAGE_FS: _disk,
    NODE_INODES: _inodes,
    IMAGE_INODES: _inodes,
    PIDS: _processes,
}
