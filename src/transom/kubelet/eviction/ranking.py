"""Which pod goes first: who uses more than it asked for, then the less important, then who uses most above its request."""

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
from transom.kubelet.eviction.usage import Usage, is_local
from transom.machinery.objects import Object

# Not measured comes first, then what is above its request, then the rest.
_UNKNOWN, _ABOVE, _WITHIN = 0, 1, 2
Key = Callable[[Usage, Object], tuple[int, ...]]


def rank(signal: str, pods: Sequence[Object], usage: Usage) -> list[Object]:
    """In the order in which they would be evicted."""
    key = _KEYS[signal]
    return sorted(pods, key=lambda pod: key(usage, pod))


def _memory(usage: Usage, pod: Object) -> tuple[int, ...]:
    use = usage.pod(pod)
    if use is None:
        return _UNKNOWN, _priority(pod), 0
    above = use.memory - requested(pod, "memory")
    return _ABOVE if above > 0 else _WITHIN, _priority(pod), -above


def _disk(usage: Usage, pod: Object) -> tuple[int, ...]:
    use = usage.pod(pod)
    if use is None:
        return _UNKNOWN, _priority(pod), 0
    above = (use.disk + usage.local_volumes(pod, is_local)).used - requested(pod, "ephemeral-storage")
    return _ABOVE if above > 0 else _WITHIN, _priority(pod), -above


def _inodes(usage: Usage, pod: Object) -> tuple[int, ...]:
    """Nobody can ask for inodes, so whoever has one uses too many; bytes are subtracted all the same, as Kubernetes
    does."""
    use = usage.pod(pod)
    if use is None:
        return _UNKNOWN, _priority(pod), 0
    used = (use.disk + usage.local_volumes(pod, is_local)).inodes
    return _ABOVE if used > 0 else _WITHIN, _priority(pod), -(used - requested(pod, "ephemeral-storage"))


def _processes(usage: Usage, pod: Object) -> tuple[int, ...]:
    """Processes of single pods are not counted, as is so with most runtimes."""
    return (_priority(pod),)


def _priority(pod: Object) -> int:
    return int(pod["spec"].get("priority") or 0)


_KEYS: dict[str, Key] = {
    MEMORY: _memory, ALLOCATABLE_MEMORY: _memory, NODE_FS: _disk, IMAGE_FS: _disk, NODE_INODES: _inodes,
    IMAGE_INODES: _inodes, PIDS: _processes,
}
