"""Control groups of this machine, version 1 or 2: where they are, what they have counted, how they go away.

runc makes the groups of containers and sets their limits; the groups above them, for nodes, quality of service and pods,
are made here and get their weights here.

Of version 2 a group has either processes or groups with controllers in it. All that are made here have groups; the processes
are in the innermost ones. Only the machine's own root may have both.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final, Literal, NamedTuple

from transom.runtime.native.platform import Limits, Spec, Usage

_ROOT: Final = "/sys/fs/cgroup"
_LEAST_SHARES: Final = 2
_PERIOD: Final = 100_000  # microseconds, over which a quota holds; the kernel's own choice
_NEEDED: Final = ("cpu", "memory")  # controllers without which there are no limits
_WANTED: Final = (*_NEEDED, "pids")
_HOME: Final = "/init"  # of processes that were in a root that is none
_TRIES: Final = 100


class Hierarchies(NamedTuple):
    """`mounts` are by controller; version 2 has one, under the name ""."""

    version: Literal[0, 1, 2]
    mounts: dict[str, str]


@cache
def hierarchies() -> Hierarchies:
    """Version 0: this machine lets us have none."""
    try:
        with open("/proc/self/mountinfo") as file:
            return mounted(file.readlines())
    except OSError:
        return Hierarchies(0, {})


def mounted(lines: Iterable[str]) -> Hierarchies:
    """From lines of mountinfo. Whoever runs containers may have mounted one a second time elsewhere; the first one counts."""
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
        return Hierarchies(2, {"": unified})
    if "memory" in found and "cpu" in found:
        if unified:
            found[""] = unified  # runc makes a group there, too
        return Hierarchies(1, found)
    return Hierarchies(2, {"": unified}) if unified else Hierarchies(0, {})


def hybrid() -> bool:
    found = hierarchies()
    return found.version == 1 and "" in found.mounts


def writable() -> bool:
    found = hierarchies()
    return bool(found.version) and all(os.access(point, os.W_OK) for point in found.mounts.values())


def _at(controller: str, group: str) -> str:
    version, mounts = hierarchies()
    return f"{mounts.get('' if version == 2 else controller, _ROOT)}{group}"


def processes(group: str) -> str:
    """The file with all processes of a group."""
    return f"{_at('pids' if 'pids' in hierarchies().mounts else 'cpu', group)}/cgroup.procs"


def oom_counter(group: str) -> str:
    """The file that says how often the kernel has killed in it for want of memory."""
    return f"{_at('memory', group)}/{'memory.events' if hierarchies().version == 2 else 'memory.oom_control'}"


# ---- limits ----------------------------------------------------------------------------------------------------------


def resources(limits: Limits) -> Spec:
    """As `linux.resources` of a specification."""
    cpu: Spec = {"shares": limits.cpu_shares or _LEAST_SHARES}
    if limits.cpu_quota:
        cpu |= {"quota": limits.cpu_quota, "period": limits.cpu_period or _PERIOD}
    memory: Spec = {}
    if limits.memory:
        memory["limit"] = limits.memory
    if limits.memory_soft and hierarchies().version != 2:  # where a reservation would be what is never reclaimed
        memory["reservation"] = limits.memory_soft
    found: Spec = {"cpu": cpu}
    if memory:
        found["memory"] = memory
    if limits.pids:
        found["pids"] = {"limit": limits.pids}
    if limits.hugepages and hierarchies().version:
        known = set(_hugepage_sizes())
        found["hugepageLimits"] = [
            {"pageSize": size, "limit": limit} for size, limit in sorted(limits.hugepages.items()) if size in known
        ]
    return found


def _hugepage_sizes() -> Iterator[str]:
    """In the names that limits have them: 2MB, 1GB. Without the controller there are none to limit."""
    version, mounts = hierarchies()
    if "hugetlb" not in (_words(f"{mounts['']}/cgroup.controllers") if version == 2 else mounts):
        return
    folder = "/sys/kernel/mm/hugepages"
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        kibibytes = int(name.removeprefix("hugepages-").removesuffix("kB"))
        yield f"{kibibytes >> 20}GB" if kibibytes >= 1 << 20 else f"{kibibytes >> 10}MB"


def claim(group: str) -> None:
    """A node's group in every hierarchy, so that nobody takes the groups above it for empty and removes them while runc makes
    others in it. Raises OSError where groups cannot be had."""
    for mount in set(hierarchies().mounts.values()):
        _make(mount, group)


def make(group: str, inner: str) -> None:
    """A group for weights and limits, and one inside of it for processes. Raises OSError."""
    if hierarchies().version == 2:
        _make(_at("", ""), f"{group}/{inner}")
        return
    for controller in _NEEDED:
        os.makedirs(_at(controller, group), exist_ok=True)
    os.makedirs(os.path.dirname(processes(f"{group}/{inner}")), exist_ok=True)


def _make(mount: str, group: str) -> None:
    for attempt in range(_TRIES):
        try:
            _make_all(mount, group)
        except FileNotFoundError:  # somebody has just removed an empty one above it
            if attempt == _TRIES - 1:
                raise
        else:
            return


def _make_all(mount: str, group: str) -> None:
    folder = mount
    for name in group.strip("/").split("/"):
        if hierarchies().version == 2:
            _delegate(folder)
        folder = f"{folder}/{name}"
        os.makedirs(folder, exist_ok=True)


def _delegate(folder: str) -> None:
    """What is inside of it gets controllers of its own."""
    known = _words(f"{folder}/cgroup.controllers")
    if missing := [name for name in _NEEDED if name not in known]:
        raise OSError(errno.ENODEV, f"no controller for {' and '.join(missing)}", folder)
    missing = [name for name in _WANTED if name in known and name not in _words(f"{folder}/cgroup.subtree_control")]
    if not missing:
        return
    try:
        _enable(folder, missing)
    except OSError as problem:
        if problem.errno != errno.EBUSY or folder != _at("", ""):
            raise
        _vacate(folder)
        _enable(folder, missing)


def _enable(folder: str, controllers: Iterable[str]) -> None:
    with open(f"{folder}/cgroup.subtree_control", "w") as file:
        file.write(" ".join(f"+{name}" for name in controllers))


def _vacate(root: str) -> None:
    """In a container the root is a group as any other, and has to lose its processes: they get one below it. Limits that they
    had still hold."""
    os.makedirs(f"{root}{_HOME}", exist_ok=True)
    for pid in _pids(f"{root}/cgroup.procs"):
        _write(f"{root}{_HOME}/cgroup.procs", pid)  # or it has ended


def _words(path: str) -> list[str]:
    with open(path) as file:
        return file.read().split()


def set_shares(group: str, shares: int) -> None:
    """How much processor time it gets when there is not enough, against its siblings."""
    shares = max(shares, _LEAST_SHARES)
    if hierarchies().version == 2:
        _write(f"{_at('cpu', group)}/cpu.weight", 1 + (min(shares, 262144) - 2) * 9999 // 262142)
    else:
        _write(f"{_at('cpu', group)}/cpu.shares", shares)


def confine(group: str, cpus: int, memory: int) -> None:
    """All below it together get no more than a machine of that size has, if this one has more."""
    two = hierarchies().version == 2
    if memory < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"):
        _write(f"{_at('memory', group)}/{'memory.max' if two else 'memory.limit_in_bytes'}", memory)
    if cpus < (os.cpu_count() or 1):
        quota = cpus * _PERIOD
        name, value = ("cpu.max", f"{quota} {_PERIOD}") if two else ("cpu.cfs_quota_us", str(quota))
        _write(f"{_at('cpu', group)}/{name}", value)


def _write(path: str, value: int | str) -> bool:
    """False where the group or the controller is not there: it then has the weight that everybody has."""
    try:
        with open(path, "w") as file:
            file.write(str(value))
    except OSError:
        return False
    return True


# ---- statistics ------------------------------------------------------------------------------------------------------


def usage(group: str) -> Usage | None:
    """None: there is no such group."""
    return _usage2(group) if hierarchies().version == 2 else _usage1(group)


def _usage1(group: str) -> Usage | None:
    memory = _at("memory", group)
    stat = _table(f"{memory}/memory.stat")
    if stat is None:
        return None
    used = _number(f"{memory}/memory.usage_in_bytes")
    return Usage(
        cpu_nanoseconds=_number(f"{_at('cpuacct', group)}/cpuacct.usage"),
        usage=used,
        working_set=max(0, used - stat.get("total_inactive_file", 0)),
        rss=stat.get("total_rss", 0),
        page_faults=stat.get("total_pgfault", 0),
        major_page_faults=stat.get("total_pgmajfault", 0),
        processes=_number(f"{_at('pids', group)}/pids.current"),
    )


def _usage2(group: str) -> Usage | None:
    at = _at("", group)
    stat, cpu = _table(f"{at}/memory.stat"), _table(f"{at}/cpu.stat")
    if stat is None and cpu is None:
        return None
    stat, cpu = stat or {}, cpu or {}
    used = _number(f"{at}/memory.current")
    return Usage(
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


# ---- the end ---------------------------------------------------------------------------------------------------------


def members(group: str) -> list[int]:
    """Processes in a group and in all below it."""
    found: list[int] = []
    for folder, _, _ in os.walk(os.path.dirname(processes(group))):
        found += _pids(f"{folder}/cgroup.procs")
    return found


def _pids(path: str) -> list[int]:
    try:
        with open(path) as file:
            return [int(line) for line in file]
    except OSError:
        return []


def leaves(group: str) -> list[str]:
    """The innermost groups below it, in every hierarchy."""
    found: set[str] = set()
    for mount in set(hierarchies().mounts.values()):
        for folder, inner, _ in os.walk(f"{mount}{group}"):
            if not inner and folder != f"{mount}{group}":
                found.add(folder.removeprefix(mount))
    return sorted(found)


def remove(group: str) -> None:
    """With all that is below it, where no process is left."""
    for mount in set(hierarchies().mounts.values()):
        for folder, _, _ in os.walk(f"{mount}{group}", topdown=False):
            _remove(folder)


def remove_surely(group: str, seconds: float = 5.0) -> bool:
    """Also when its processes were killed just now and are not quite gone. Blocking. Whether it is gone."""
    end = time.monotonic() + seconds
    while True:
        remove(group)
        if not any(os.path.exists(f"{mount}{group}") for mount in hierarchies().mounts.values()):
            return True
        if time.monotonic() > end:
            return False
        time.sleep(0.01)


def remove_empty(groups: Iterable[str]) -> None:
    """Those that have nothing below them, the innermost first."""
    for group in groups:
        for mount in set(hierarchies().mounts.values()):
            _remove(f"{mount}{group}")


def _remove(folder: str) -> bool:
    try:
        os.rmdir(folder)
    except OSError:
        return False  # still in use, or gone
    return True
