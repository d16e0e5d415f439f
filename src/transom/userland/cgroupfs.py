"""The files of `/sys/fs/cgroup`: a container sees its own cgroup (version 2) there."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import Final

from transom.machines.cpus import format_cpuset
from transom.userland.api import ProgramContext

CGROUP_ROOT: Final = "/sys/fs/cgroup"
CGROUP_MOUNT: Final = f"cgroup {CGROUP_ROOT} cgroup2 ro,nosuid,nodev,noexec,relatime 0 0\n"

_CONTROLLERS: Final = "cpuset cpu io memory hugetlb pids rdma"
_UNLIMITED: Final[dict[str, str]] = {
    "cpu.max": "max 100000",
    "cpu.weight": "100",
    "memory.high": "max",
    "memory.low": "0",
    "memory.max": "max",
    "memory.min": "0",
    "memory.swap.max": "max",
}


def numa_nodes(context: ProgramContext) -> str:
    """The NUMA nodes whose memory it may use."""
    every = format_cpuset(range(context.platform.cpu_topology.numa_nodes))
    return context.platform.cgroup_files.get("cpuset.mems") or every


def _cpu_usage(context: ProgramContext) -> str:
    used = sum(entry.cpu for entry in context.processes.list())
    return f"usage_usec {round(used * 1e6)}"


_COMPUTED: Final[dict[str, Callable[[ProgramContext], str]]] = {
    "cgroup.controllers": lambda context: _CONTROLLERS,
    "cgroup.procs": lambda context: "\n".join(str(e.pid) for e in context.processes.list()),
    "cpu.stat": _cpu_usage,
    "cpuset.cpus": lambda context: format_cpuset(context.platform.cpuset),
    "cpuset.cpus.effective": lambda context: format_cpuset(context.platform.cpuset),
    "cpuset.mems": lambda context: context.platform.cgroup_files.get("cpuset.mems", ""),
    "cpuset.mems.effective": numa_nodes,
    "memory.current": lambda context: str(sum(e.memory for e in context.processes.list())),
}


def list_cgroup(path: str) -> list[str] | None:
    """The names in a folder; None for any other path."""
    return sorted((*_COMPUTED, *_UNLIMITED)) if path == CGROUP_ROOT else None


def read_cgroup_file(context: ProgramContext, path: str) -> bytes | None:
    """None where there is no such file."""
    folder, name = posixpath.split(path)
    if folder != CGROUP_ROOT:
        return None
    compute = _COMPUTED.get(name)
    if compute is not None:
        return f"{compute(context)}\n".encode()
    if name not in _UNLIMITED:
        return None
    return f"{context.platform.cgroup_files.get(name, _UNLIMITED[name])}\n".encode()
