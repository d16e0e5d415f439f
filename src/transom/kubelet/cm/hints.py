"""NUMA nodes from which a container can get what it requests."""

from __future__ import annotations

from functools import cache
from itertools import combinations
from typing import NamedTuple

NumaMask = frozenset[int]


class TopologyHint(NamedTuple):
    """`affinity` is None without a preference for NUMA nodes."""

    affinity: NumaMask | None
    preferred: bool


@cache
def numa_masks(nodes: int) -> tuple[NumaMask, ...]:
    """All combinations of NUMA nodes, the smallest first."""
    every = range(nodes)
    return tuple(
        frozenset(chosen) for size in range(1, nodes + 1) for chosen in combinations(every, size)
    )
