"""Which of a node's CPUs, NUMA nodes and cgroup files this machine has.

A node can be larger than the machine that runs its containers; runc rejects what is missing there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import Final

from transom.machines.cpus import CpuSet, parse_cpuset

_NUMA_NODES: Final = "/sys/devices/system/node/online"
_CGROUP: Final = "/sys/fs/cgroup"
_SWAP: Final = "memory.swap.max"


def usable_cpus(cpuset: str) -> str:
    """ "" for all CPUs where this machine does not have all of these."""
    return cpuset if parse_cpuset(cpuset) <= os.sched_getaffinity(0) else ""


def usable_numa_nodes(mems: str) -> str:
    """ "" for all NUMA nodes where this machine does not have all of these."""
    return mems if parse_cpuset(mems) <= _online_numa_nodes() else ""


def usable_cgroup_files(unified: Mapping[str, str]) -> dict[str, str]:
    """For a machine with cgroup v2."""
    return {name: text for name, text in unified.items() if name != _SWAP or _has_swap_limits()}


@cache
def is_cgroup2() -> bool:
    """Whether cgroup v2 is the only hierarchy of this machine."""
    return os.path.exists(f"{_CGROUP}/cgroup.controllers")


@cache
def _online_numa_nodes() -> CpuSet:
    try:
        with open(_NUMA_NODES) as file:
            return parse_cpuset(file.read().strip())
    except OSError:
        return frozenset((0,))


@cache
def _has_swap_limits() -> bool:
    try:
        with open("/proc/self/cgroup") as file:
            own = file.read().strip().rpartition(":")[2]
    except OSError:
        return False
    return os.path.exists(f"{_CGROUP}{own.rstrip('/')}/{_SWAP}")
