"""Files that the Linux kernel provides: devices, `/proc` and the parts of `/sys` that programs
read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Final

from transom.machines.api import Stat
from transom.machines.cpus import format_cpuset
from transom.machines.files import FileTree, MountEntry
from transom.machines.swap import proc_swaps
from transom.userland.api import ProcessEntry, ProgramContext

_DEVICES = (
    "console",
    "fd",
    "full",
    "null",
    "ptmx",
    "random",
    "stderr",
    "stdin",
    "stdout",
    "tty",
    "urandom",
    "zero",
)
_OUTPUT = re.compile(r"/proc/(\d+)/fd/([12])")
_ALL_IDS = 4294967295  # of a process with the users of the node
_PID_FILE = re.compile(r"/proc/(\d+|self)/([a-z_]+)")


def _memory_information(context: ProgramContext) -> str:
    found = context.platform.machine_resources
    cached = max(0, found.committed - found.working_set)
    rows = (
        ("MemTotal", found.total_memory),
        ("MemFree", max(0, found.free_memory - cached)),
        ("MemAvailable", found.free_memory),
        ("Buffers", 0),
        ("Cached", cached),
        ("SwapTotal", found.swap),
        ("SwapFree", found.swap),
    )
    return "".join(f"{name + ':':<16}{value >> 10:>8} kB\n" for name, value in rows)


def _load(context: ProgramContext) -> str:
    found = context.platform.machine_resources
    shown = " ".join(f"{value:.2f}" for value in found.load)
    pids = [entry.pid for entry in context.processes.list()]
    return f"{shown} {round(found.load[0])}/{len(pids)} {max(pids, default=0)}\n"


def _uptime(context: ProgramContext) -> str:
    found = context.platform.machine_resources
    seconds = context.clock.time() - found.boot_time
    idle = max(0.0, seconds * found.cpus - found.cpu_seconds)
    return f"{seconds:.2f} {idle:.2f}\n"


def _traffic(context: ProgramContext) -> str:
    view = context.network.stack_view()
    received, sent = context.network.traffic()
    rows = []
    for link in view.stack.links.values() if view is not None else ():
        known = (received, sent) if link.name == "eth0" else (0, 0)
        rows.append(
            f"{link.name:>6}: {known[0]:>7} {known[0] // 64:>7}    0    0    0     0          0"
            f"         0 {known[1]:>8} {known[1] // 64:>7}    0    0    0     0       0          0\n"
        )
    return (
        "Inter-|   Receive                                                |  Transmit\n"
        " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets "
        "errs drop fifo colls carrier compressed\n" + "".join(rows)
    )


def _forwarding(context: ProgramContext) -> str:
    view = context.network.stack_view()
    return f"{int(view is not None and view.stack.forwarding)}\n"


def _cpu_information(context: ProgramContext) -> str:
    topology = context.platform.cpu_topology
    siblings = topology.cpus // topology.numa_nodes
    cores = topology.cores // topology.numa_nodes
    return "".join(
        f"processor\t: {n}\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R) CPU @ 2.20GHz\n"
        f"cpu MHz\t\t: 2200.000\nphysical id\t: {topology.numa_node_of(n)}\n"
        f"siblings\t: {siblings}\ncore id\t\t: {topology.core_of(n) % cores}\n"
        f"cpu cores\t: {cores}\n\n"
        for n in range(topology.cpus)
    )


_PSEUDO_MOUNTS = (
    "proc /proc proc rw,nosuid,nodev,noexec,relatime 0 0\n"
    "tmpfs /dev tmpfs rw,nosuid,size=65536k,mode=755 0 0\n"
    "devpts /dev/pts devpts rw,nosuid,noexec,relatime,gid=5,mode=620,ptmxmode=666 0 0\n"
    "sysfs /sys sysfs ro,nosuid,nodev,noexec,relatime 0 0\n"
    "shm /dev/shm tmpfs rw,nosuid,nodev,noexec,relatime,size=65536k 0 0\n"
)


def mount_device(context: ProgramContext, entry: MountEntry, root: MountEntry) -> tuple[str, str]:
    """The device and the type of a mounted file system."""
    if entry is root and context.platform.container_id:
        return "overlay", "overlay"
    if entry.space.memory:
        return "tmpfs", "tmpfs"
    if entry.tree.style is not None:
        return "//share", "cifs"
    return ("/dev/sda1" if entry.space is root.space else "/dev/sdb"), "ext4"


def _mounts(context: ProgramContext) -> str:
    tree = context.files
    entries = tree.mount_table() if isinstance(tree, FileTree) else []
    lines = []
    for entry in entries:
        device, kind = mount_device(context, entry, entries[0])
        access = "ro" if entry.tree.read_only else "rw"
        size = f",size={entry.space.capacity >> 10}k" if kind == "tmpfs" else ""
        lines.append(f"{device} {entry.path} {kind} {access},relatime{size} 0 0\n")
    return "".join(lines[:1]) + _PSEUDO_MOUNTS + "".join(lines[1:])


_CGROUP_DEFAULTS: Final[dict[str, str]] = {
    "cpu.max": "max 100000",
    "cpuset.mems": "",
    "memory.high": "max",
    "memory.low": "0",
    "memory.min": "0",
    "memory.swap.max": "max",
}


def _cgroup_file(name: str, context: ProgramContext) -> str:
    return f"{context.platform.cgroup_files.get(name, _CGROUP_DEFAULTS[name])}\n"


def _numa_nodes(context: ProgramContext) -> str:
    """The NUMA nodes whose memory it may use."""
    every = format_cpuset(range(context.platform.cpu_topology.numa_nodes))
    return context.platform.cgroup_files.get("cpuset.mems") or every


_MADE: dict[str, Callable[[ProgramContext], str]] = {
    "/proc/cpuinfo": _cpu_information,
    "/proc/loadavg": _load,
    "/proc/meminfo": _memory_information,
    "/proc/mounts": _mounts,
    "/proc/net/dev": _traffic,
    "/proc/sys/net/ipv4/ip_forward": _forwarding,
    "/proc/uptime": _uptime,
    "/proc/version": lambda context: (
        f"Linux version {context.platform.build} (gcc version 9.3.0) #1 SMP\n"
    ),
    "/proc/sys/kernel/hostname": lambda context: context.network.hostname + "\n",
    "/proc/sys/kernel/osrelease": lambda context: context.platform.build + "\n",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes": lambda context: (
        f"{context.platform.memory_limit}\n"
    ),
    "/sys/fs/cgroup/cpuset/cpuset.cpus": lambda context: (
        f"{format_cpuset(context.platform.cpuset)}\n"
    ),
    "/sys/fs/cgroup/cpuset.cpus": lambda context: f"{format_cpuset(context.platform.cpuset)}\n",
    "/sys/fs/cgroup/cpuset.cpus.effective": lambda context: (
        f"{format_cpuset(context.platform.cpuset)}\n"
    ),
    "/sys/fs/cgroup/cpuset.mems.effective": lambda context: f"{_numa_nodes(context)}\n",
    "/sys/fs/cgroup/memory.max": lambda context: f"{context.platform.memory_limit}\n",
    "/proc/swaps": lambda context: proc_swaps(context.platform.machine_resources.swap),
    **{f"/sys/fs/cgroup/{name}": partial(_cgroup_file, name) for name in _CGROUP_DEFAULTS},
}

_OF_PROCESS: dict[str, Callable[[ProgramContext, ProcessEntry], str]] = {
    "cmdline": lambda context, entry: "".join(f"{argument}\0" for argument in entry.argv),
    "comm": lambda context, entry: _command_name(entry) + "\n",
    "cgroup": lambda context, entry: "".join(
        f"{n}:{name}:/kubepods/{context.platform.container_id}\n"
        for n, name in ((4, "memory"), (3, "cpu,cpuacct"), (1, "name=systemd"))
    ),
    "environ": lambda context, entry: "".join(f"{k}={v}\0" for k, v in context.env.items()),
    "gid_map": lambda context, entry: _id_map(context),
    "mounts": lambda context, entry: _mounts(context),
    "uid_map": lambda context, entry: _id_map(context),
    "status": lambda context, entry: (
        f"Name:\t{_command_name(entry)}\nState:\tS (sleeping)\nPid:\t{entry.pid}\nPPid:\t{entry.parent}\n"
        f"Uid:\t{context.credentials.uid}\t{context.credentials.uid}\t{context.credentials.uid}\t{context.credentials.uid}\n"
        f"Gid:\t{context.credentials.gid}\t{context.credentials.gid}\t{context.credentials.gid}\t{context.credentials.gid}\n"
        f"Groups:\t{' '.join(map(str, context.credentials.groups))} \nVmRSS:\t{entry.memory >> 10:>8} kB\nThreads:\t1\n"
        f"Cpus_allowed_list:\t{format_cpuset(context.platform.cpuset)}\n"
        f"Mems_allowed_list:\t{_numa_nodes(context)}\n"
    ),
}


def _id_map(context: ProgramContext) -> str:
    first, length = context.platform.user_namespace or (0, _ALL_IDS)
    return f"{0:>10} {first:>10} {length:>10}\n"


def _command_name(entry: ProcessEntry) -> str:
    return entry.argv[0].rpartition("/")[2][:15]


def read_procfs(context: ProgramContext, path: str) -> bytes | None:
    """None for an ordinary file."""
    if not path.startswith(("/proc/", "/sys/")):
        return None
    make = _MADE.get(path)
    if make is not None:
        return make(context).encode()
    match = _PID_FILE.fullmatch(path)
    if match is None or match[2] not in _OF_PROCESS:
        return None
    pid = context.pid if match[1] == "self" else int(match[1])
    for entry in context.processes.list():
        if entry.pid == pid:
            return _OF_PROCESS[match[2]](context, entry).encode()
    return None


def process_output(context: ProgramContext, path: str) -> Callable[[bytes], None] | None:
    """The output of another process: writing to it writes to a container's log."""
    match = _OUTPUT.fullmatch(path)
    return context.processes.output(int(match[1]), int(match[2])) if match is not None else None


def stat_procfs(context: ProgramContext, path: str) -> Stat | None:
    now = context.clock.time()
    if path.startswith("/dev/") and path[5:] in _DEVICES:
        return Stat("char", 0o666, 0, 0, 0, now)
    if path in ("/dev", "/proc", "/sys"):
        return Stat("directory", 0o755, 0, 0, 0, now)
    if path.startswith("/proc/") and path[6:].isdigit():
        found = any(entry.pid == int(path[6:]) for entry in context.processes.list())
        return Stat("directory", 0o555, 0, 0, 0, now) if found else None
    if read_procfs(context, path) is not None:
        return Stat("file", 0o444, 0, 0, 0, now)
    return None


def list_procfs(context: ProgramContext, path: str) -> list[str] | None:
    if path == "/dev":
        own = context.files.listdir(path) if context.files.exists(path) else []
        return sorted({*own, *_DEVICES})
    if path == "/proc":
        pids = [str(entry.pid) for entry in context.processes.list()]
        return [
            *pids,
            "cpuinfo",
            "loadavg",
            "meminfo",
            "mounts",
            "self",
            "sys",
            "uptime",
            "version",
        ]
    if path.startswith("/proc/") and stat_procfs(context, path) is not None:
        return sorted(_OF_PROCESS)
    return None
