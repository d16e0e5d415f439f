"""Translates Windows' limits for a Linux kernel, and its counters for Windows. Pure.

Windows does not kill processes when memory runs out. Memory beyond a limit goes to the page file,
and at the commit limit allocations fail. Here the kernel first reclaims from a container beyond its
limit, where it can (cgroups version 1), and every process has a limit on the memory that it can
commit, so that its allocations fail: per process, where a job object counts all of them together.
"""

from __future__ import annotations

from typing import Final

from transom.runtime.api import WindowsResources
from transom.runtime.native.platform import CgroupLimits, CgroupUsage

_PERIOD: Final = 100_000
_LEAST_QUOTA: Final = 1000
_FULL: Final = 10_000  # all processors
_USUAL_WEIGHT: Final = 5000
_USUAL_SHARES: Final = 1024
# Wine's own overhead in a process that is small on Windows: heaps, stacks, the loader's tables.
OWN_MEMORY: Final = 24 << 20


def limits_of_resources(resources: WindowsResources, cpus: int) -> CgroupLimits:
    """A weight takes precedence over a maximum, as on Windows."""
    count = resources.cpu_count or cpus
    share = (
        resources.cpu_maximum / _FULL if resources.cpu_maximum and not resources.cpu_shares else 1.0
    )
    quota = max(_LEAST_QUOTA, round(_PERIOD * count * share)) if share < 1.0 or count < cpus else 0
    return CgroupLimits(
        cpu_shares=resources.cpu_shares * _USUAL_SHARES // _USUAL_WEIGHT,
        cpu_quota=quota,
        cpu_period=_PERIOD if quota else 0,
        memory_soft=resources.memory_limit,
        cpuset=resources.cpuset,
    )


def process_data_limit(resources: WindowsResources) -> int:
    """The data limit of a process in bytes; 0 for unlimited."""
    return resources.memory_limit + OWN_MEMORY if resources.memory_limit else 0


def shown_usage(resources: WindowsResources, counted: CgroupUsage) -> CgroupUsage:
    """Memory beyond the limit counts as paged."""
    limit = resources.memory_limit
    if not limit or counted.working_set <= limit:
        return counted
    return counted._replace(working_set=limit, paged=counted.working_set - limit)
