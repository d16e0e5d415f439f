"""NUMA nodes from which a container can get what it requests."""

from __future__ import annotations

from functools import cache
from itertools import combinations

from transom.kit.named_tuple import NamedTuple

NumaMask = frozenset[int]


class TopologyHint(NamedTuple):
    """`affinity` is None without a preference for NUMA nodes."""

    affinity: NumaMask | None
    preferred: bool


def mask_bits(mask: NumaMask) -> int:
    """As a number, by which Kubernetes orders masks of the same size."""
    return sum(1 << node for node in mask)


@cache
def numa_masks(nodes: int) -> tuple[NumaMask, ...]:
    """All combinations of NUMA nodes, the smallest first."""
    every = range(nodes)
    return tuple(
        frozenset(chosen) for size in range(1, nodes + 1) for chosen in combinations(every, size)
    )
