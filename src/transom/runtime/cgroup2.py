"""What the limits of a container are in the files of its cgroup (version 2), as runc writes them."""

from __future__ import annotations

from typing import Final

from transom.runtime.api import LinuxResources

_PERIOD: Final = 100_000
_LEAST_SHARES, _MOST_SHARES = 2, 262_144


def cpu_weight(shares: int) -> int:
    """The weight (1 to 10000) of CPU shares, the unit of cgroup v1."""
    known = min(max(shares, _LEAST_SHARES), _MOST_SHARES) - _LEAST_SHARES
    return 1 + known * 9999 // (_MOST_SHARES - _LEAST_SHARES)


def cpu_max(quota: int, period: int) -> str:
    """A quota of 0 is none."""
    return f"{quota if quota > 0 else 'max'} {period or _PERIOD}"


def cgroup2_files(resources: LinuxResources) -> dict[str, str]:
    """The files that have another content than in a cgroup without limits."""
    files = {
        "cpu.max": cpu_max(resources.cpu_quota, resources.cpu_period),
        "cpuset.cpus": resources.cpuset_cpus,
        "cpuset.mems": resources.cpuset_mems,
    }
    if resources.cpu_shares:
        files["cpu.weight"] = str(cpu_weight(resources.cpu_shares))
    if resources.memory_limit:
        files["memory.max"] = str(resources.memory_limit)
    return {**files, **resources.unified}
