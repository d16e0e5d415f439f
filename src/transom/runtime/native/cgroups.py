"""Control groups of this machine, version 1 or 2: paths, limits, statistics, removal.

runc creates the cgroups of containers and sets their limits; the ones above, for nodes, quality of
service and pods, are created and weighted here.

In version 2 a cgroup has either processes or child cgroups with controllers. All that are created
here have children; the processes are in the leaves. Only the machine's own root may have both.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final, Literal, NamedTuple

from transom.runtime.cgroup2 import cpu_max, cpu_weight
from transom.runtime.native.platform import CgroupLimits, CgroupUsage, Spec
from transom.runtime.usable import usable_cgroup_files, usable_cpus, usable_numa_nodes

_ROOT: Final = "/sys/fs/cgroup"
_LEAST_SHARES: Final = 2
_PERIOD: Final = 100_000  # microseconds, the period of a quota; the kernel's default
_NEEDED: Final = ("cpu", "memory")  # controllers that are required for limits
_WANTED: Final = (*_NEEDED, "pids", "cpuset")
_HOME: Final = "/init"  # for processes that were in a root cgroup that is not the machine's own
_TRIES: Final = 100


class CgroupHierarchies(NamedTuple):
    """`mounts` are by controller; version 2 has one mount, under the name ""."""

    version: Literal[0, 1, 2]
    mounts: dict[str, str]


@cache
def cgroup_hierarchies() -> CgroupHierarchies:
    """Version 0: cgroups cannot be used on this machine."""
    try:
        with open("/proc/self/mountinfo") as file:
            return mounted_cgroups(file.readlines())
    except OSError:
        return CgroupHierarchies(0, {})


def mounted_cgroups(lines: Iterable[str]) -> CgroupHierarchies:
    """From the lines of mountinfo. A container engine may have mounted one a second time elsewhere;
    the first one counts.
    """
    found: dict[str, str] = {}
    unified = ""
    for line in lines:
        fields, _, rest = line.partition(" - ")
        point = fields.split()[4]
        kind, _, options = rest.split(None, 2)
        if kind == "cgroup2":
            unified = unified or point
        elif kind == "cgroup":
            for option in options.split()[-1].split(","):
                if option not in ("rw", "ro"):
                    found.setdefault(option, point)
    if unified == _ROOT:
        return CgroupHierarchies(2, {"": unified})
    if "memory" in found and "cpu" in found:
        if unified:
            found[""] = unified  # runc creates a cgroup there, too
        return CgroupHierarchies(1, found)
    return CgroupHierarchies(2, {"": unified}) if unified else CgroupHierarchies(0, {})


def is_hybrid() -> bool:
    found = cgroup_hierarchies()
    return found.version == 1 and "" in found.mounts


def is_writable_cgroup() -> bool:
    found = cgroup_hierarchies()
    return bool(found.version) and all(os.access(point, os.W_OK) for point in found.mounts.values())


def _at(controller: str, group: str) -> str:
    version, mounts = cgroup_hierarchies()
    return f"{mounts.get('' if version == 2 else controller, _ROOT)}{group}"


def processes_file(group: str) -> str:
    """The file with all processes of a group."""
    return f"{_at('pids' if 'pids' in cgroup_hierarchies().mounts else 'cpu', group)}/cgroup.procs"


def oom_counter(group: str) -> str:
    """The file that counts OOM kills in the cgroup."""
    return f"{_at('memory', group)}/{'memory.events' if cgroup_hierarchies().version == 2 else 'memory.oom_control'}"


# ---- limits ----


def cgroup_resources(limits: CgroupLimits) -> Spec:
    """As `linux.resources` of a specification."""
    cpu: Spec = {"shares": limits.cpu_shares or _LEAST_SHARES}
    if limits.cpu_quota:
        cpu |= {"quota": limits.cpu_quota, "period": limits.cpu_period or _PERIOD}
    if cpus := _usable_cpus(limits.cpuset):
        cpu["cpus"] = cpus
    if mems := _usable_mems(limits.cpuset_mems):
        cpu["mems"] = mems
    memory: Spec = {}
    if limits.memory:
        memory["limit"] = limits.memory
    # where a reservation would be what is never reclaimed
    if limits.memory_soft and cgroup_hierarchies().version != 2:
        memory["reservation"] = limits.memory_soft
    found: Spec = {"cpu": cpu}
    if memory:
        found["memory"] = memory
    if limits.unified and cgroup_hierarchies().version == 2:
        found["unified"] = usable_cgroup_files(limits.unified)
    if limits.pids:
        found["pids"] = {"limit": limits.pids}
    if limits.hugepages and cgroup_hierarchies().version:
        known = set(_hugepage_sizes())
        found["hugepageLimits"] = [
            {"pageSize": size, "limit": limit}
            for size, limit in sorted(limits.hugepages.items())
            if size in known
        ]
    return found


def _usable_cpus(cpuset: str) -> str:
    """ "" where this machine does not have all of these CPUs or no controller for them: the
    container may then run on any CPU.
    """
    return usable_cpus(cpuset) if cpuset and _has_cpuset() else ""


def _usable_mems(mems: str) -> str:
    return usable_numa_nodes(mems) if mems and _has_cpuset() else ""


def _has_cpuset() -> bool:
    version, mounts = cgroup_hierarchies()
    return "cpuset" in (_words(f"{mounts['']}/cgroup.controllers") if version == 2 else mounts)


def _hugepage_sizes() -> Iterator[str]:
    """In the notation of limits: 2MB, 1GB. Without the controller there is nothing to limit."""
    version, mounts = cgroup_hierarchies()
    if "hugetlb" not in (_words(f"{mounts['']}/cgroup.controllers") if version == 2 else mounts):
        return
    folder = "/sys/kernel/mm/hugepages"
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        kibibytes = int(name.removeprefix("hugepages-").removesuffix("kB"))
        yield f"{kibibytes >> 20}GB" if kibibytes >= 1 << 20 else f"{kibibytes >> 10}MB"


def claim_cgroup(group: str) -> None:
    """Creates a node's cgroup in every hierarchy, so that its parents do not look empty and are not
    removed while runc creates others in them. Raises OSError where cgroups are not available.
    """
    for mount in set(cgroup_hierarchies().mounts.values()):
        _make(mount, group)


def make_cgroup(group: str, inner: str) -> None:
    """A cgroup for weights and limits, and one inside of it for processes. Raises OSError."""
    if cgroup_hierarchies().version == 2:
        _make(_at("", ""), f"{group}/{inner}")
        return
    for controller in _NEEDED:
        os.makedirs(_at(controller, group), exist_ok=True)
    os.makedirs(os.path.dirname(processes_file(f"{group}/{inner}")), exist_ok=True)


def _make(mount: str, group: str) -> None:
    for attempt in range(_TRIES):
        try:
            _make_all(mount, group)
        except FileNotFoundError:  # another process has just removed an empty parent
            if attempt == _TRIES - 1:
                raise
        else:
            return


def _make_all(mount: str, group: str) -> None:
    folder = mount
    for name in group.strip("/").split("/"):
        if cgroup_hierarchies().version == 2:
            _delegate(folder)
        folder = f"{folder}/{name}"
        os.makedirs(folder, exist_ok=True)


def _delegate(folder: str) -> None:
    """Enables controllers for its children."""
    known = _words(f"{folder}/cgroup.controllers")
    if missing := [name for name in _NEEDED if name not in known]:
        raise OSError(errno.ENODEV, f"no controller for {' and '.join(missing)}", folder)
    missing = [
        name
        for name in _WANTED
        if name in known and name not in _words(f"{folder}/cgroup.subtree_control")
    ]
    if not missing:
        return
    try:
        _enable(folder, missing)
    except OSError as problem:
        if problem.errno != errno.EBUSY or folder != _at("", ""):
            raise
        _move_processes(folder)
        _enable(folder, missing)


def _enable(folder: str, controllers: Iterable[str]) -> None:
    with open(f"{folder}/cgroup.subtree_control", "w") as file:
        file.write(" ".join(f"+{name}" for name in controllers))


def _move_processes(root: str) -> None:
    """In a container the root is an ordinary cgroup and must not have processes: they move to a
    child. Their limits still apply.
    """
    os.makedirs(f"{root}{_HOME}", exist_ok=True)
    for pid in _pids(f"{root}/cgroup.procs"):
        _write(f"{root}{_HOME}/cgroup.procs", pid)  # or it has ended


def _words(path: str) -> list[str]:
    with open(path) as file:
        return file.read().split()


def set_cgroup_shares(group: str, shares: int) -> None:
    """Its share of processor time under contention, relative to its siblings."""
    shares = max(shares, _LEAST_SHARES)
    if cgroup_hierarchies().version == 2:
        _write(f"{_at('cpu', group)}/cpu.weight", cpu_weight(shares))
    else:
        _write(f"{_at('cpu', group)}/cpu.shares", shares)


def set_cgroup_limits(group: str, limits: CgroupLimits) -> None:
    """Changes the limits of a container that runs, or of a pod."""
    two = cgroup_hierarchies().version == 2
    set_cgroup_shares(group, limits.cpu_shares or _LEAST_SHARES)
    if cpus := _usable_cpus(limits.cpuset):
        _write(f"{_at('cpuset', group)}/cpuset.cpus", cpus)
    if mems := _usable_mems(limits.cpuset_mems):
        _write(f"{_at('cpuset', group)}/cpuset.mems", mems)
    if two:
        _write(f"{_at('cpu', group)}/cpu.max", cpu_max(limits.cpu_quota, limits.cpu_period))
        _write(f"{_at('memory', group)}/memory.max", limits.memory or "max")
        for name, text in usable_cgroup_files(limits.unified or {}).items():
            _write(f"{_at('memory', group)}/{name}", text)
    else:
        _write(f"{_at('cpu', group)}/cpu.cfs_period_us", limits.cpu_period or _PERIOD)
        _write(f"{_at('cpu', group)}/cpu.cfs_quota_us", limits.cpu_quota or -1)
        _write(f"{_at('memory', group)}/memory.limit_in_bytes", limits.memory or -1)


def confine_cgroup(group: str, cpus: int, memory: int) -> None:
    """Limits everything below it to a machine of that size, if this one has more."""
    two = cgroup_hierarchies().version == 2
    if memory < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"):
        _write(f"{_at('memory', group)}/{'memory.max' if two else 'memory.limit_in_bytes'}", memory)
    if cpus < (os.cpu_count() or 1):
        quota = cpus * _PERIOD
        name, value = ("cpu.max", f"{quota} {_PERIOD}") if two else ("cpu.cfs_quota_us", str(quota))
        _write(f"{_at('cpu', group)}/{name}", value)


def _write(path: str, value: int | str) -> bool:
    """False where the cgroup or the controller does not exist: the default weight applies then."""
    try:
        with open(path, "w") as file:
            file.write(str(value))
    except OSError:
        return False
    return True


# ---- statistics ----


def cgroup_usage(group: str) -> CgroupUsage | None:
    """None: the cgroup does not exist."""
    return _usage2(group) if cgroup_hierarchies().version == 2 else _usage1(group)


def _usage1(group: str) -> CgroupUsage | None:
    memory = _at("memory", group)
    stat = _table(f"{memory}/memory.stat")
    if stat is None:
        return None
    used = _number(f"{memory}/memory.usage_in_bytes")
    return CgroupUsage(
        cpu_nanoseconds=_number(f"{_at('cpuacct', group)}/cpuacct.usage"),
        usage=used,
        working_set=max(0, used - stat.get("total_inactive_file", 0)),
        rss=stat.get("total_rss", 0),
        page_faults=stat.get("total_pgfault", 0),
        major_page_faults=stat.get("total_pgmajfault", 0),
        processes=_number(f"{_at('pids', group)}/pids.current"),
    )


def _usage2(group: str) -> CgroupUsage | None:
    at = _at("", group)
    stat, cpu = _table(f"{at}/memory.stat"), _table(f"{at}/cpu.stat")
    if stat is None and cpu is None:
        return None
    stat, cpu = stat or {}, cpu or {}
    used = _number(f"{at}/memory.current")
    return CgroupUsage(
        cpu_nanoseconds=cpu.get("usage_usec", 0) * 1000,
        usage=used,
        working_set=max(0, used - stat.get("inactive_file", 0)),
        rss=stat.get("anon", 0),
        page_faults=stat.get("pgfault", 0),
        major_page_faults=stat.get("pgmajfault", 0),
        processes=_number(f"{at}/pids.current"),
    )


def _number(path: str) -> int:
    try:
        with open(path) as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def _table(path: str) -> dict[str, int] | None:
    try:
        with open(path) as file:
            return {name: int(value) for name, _, value in (line.partition(" ") for line in file)}
    except (OSError, ValueError):
        return None


# ---- removal ----


def cgroup_members(group: str) -> list[int]:
    """Processes in a cgroup and in all below it."""
    found: list[int] = []
    for folder, _, _ in os.walk(os.path.dirname(processes_file(group))):
        found += _pids(f"{folder}/cgroup.procs")
    return found


def _pids(path: str) -> list[int]:
    try:
        with open(path) as file:
            return [int(line) for line in file]
    except OSError:
        return []


def cgroup_leaves(group: str) -> list[str]:
    """The leaf cgroups below it, in every hierarchy."""
    found: set[str] = set()
    for mount in set(cgroup_hierarchies().mounts.values()):
        for folder, inner, _ in os.walk(f"{mount}{group}"):
            if not inner and folder != f"{mount}{group}":
                found.add(folder.removeprefix(mount))
    return sorted(found)


def remove_cgroup(group: str) -> None:
    """With everything below it, where no process is left."""
    for mount in set(cgroup_hierarchies().mounts.values()):
        for folder, _, _ in os.walk(f"{mount}{group}", topdown=False):
            _remove(folder)


def kill_and_remove_cgroup(group: str, seconds: float = 5.0) -> bool:
    """Also when its processes were just killed and have not quite exited. Blocking. Returns whether
    it is gone.
    """
    end = time.monotonic() + seconds
    while True:
        remove_cgroup(group)
        if not any(
            os.path.exists(f"{mount}{group}") for mount in cgroup_hierarchies().mounts.values()
        ):
            return True
        if time.monotonic() > end:
            return False
        time.sleep(0.01)


def remove_empty_cgroup(groups: Iterable[str]) -> None:
    """Leaf cgroups first."""
    for group in groups:
        for mount in set(cgroup_hierarchies().mounts.values()):
            _remove(f"{mount}{group}")


def _remove(folder: str) -> bool:
    try:
        os.rmdir(folder)
    except OSError:
        return False  # still in use, or gone
    return True
