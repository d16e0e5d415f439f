"""Converts our sandbox and container configurations to CRI's messages."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from transom.machines.cpus import parse_cpuset
from transom.network.api import DnsConfig, PortMapping
from transom.runtime.api import (
    AuthConfig,
    ContainerConfig,
    IdRange,
    LinuxContainer,
    LinuxResources,
    LinuxSandbox,
    Mount,
    SandboxConfig,
    WindowsContainer,
    WindowsResources,
)
from transom.runtime.cri.codec import Message
from transom.runtime.cri.paths import CriPaths
from transom.runtime.usable import (
    is_cgroup2,
    usable_cgroup_files,
    usable_cpus,
    usable_numa_nodes,
)

PROTOCOLS: Final = ("TCP", "UDP", "SCTP")
PROPAGATIONS: Final = ("private", "hostToContainer", "bidirectional")
POD, CONTAINER, NODE, TARGET = range(4)
_PID: Final = {"pod": POD, "container": CONTAINER, "node": NODE, "target": TARGET}
_RUNTIME_DEFAULT, _UNCONFINED, _LOCALHOST = range(3)
_PROFILES: Final = {
    "runtime/default": _RUNTIME_DEFAULT,
    "docker/default": _RUNTIME_DEFAULT,
    "unconfined": _UNCONFINED,
}
_OF_NODE: Final = "localhost/"
_SIGNAL_NAMES: Final = (
    "ABRT ALRM BUS CHLD CLD CONT FPE HUP ILL INT IO IOT KILL PIPE POLL PROF PWR QUIT SEGV STKFLT "
    "STOP SYS TERM TRAP TSTP TTIN TTOU URG USR1 USR2 VTALRM WINCH XCPU XFSZ RTMIN"
)
_REAL_TIME: Final = 15  # numbered from the first one; one less from the last one
# In the order of CRI's enumeration; "" is the signal of the image.
SIGNALS: Final = (
    "",
    *(f"SIG{name}" for name in _SIGNAL_NAMES.split()),
    *(f"SIGRTMIN+{n}" for n in range(1, _REAL_TIME + 1)),
    *(f"SIGRTMAX-{n}" for n in range(_REAL_TIME - 1, 0, -1)),
    "SIGRTMAX",
)
_PAGES: Final = "/sys/kernel/mm/hugepages"


def systemd_group(path: str) -> str:
    """`/kubepods/burstable/podUID` in systemd's notation: every part repeats the names of its
    parents.
    """
    names: list[str] = []
    out = ""
    for part in path.strip("/").split("/"):
        names.append(part.replace("-", "_"))
        out += f"/{'-'.join(names)}.slice"
    return out


def sandbox_to_cri(config: SandboxConfig, paths: CriPaths, *, systemd: bool = False) -> Message:
    """`systemd`: the runtime uses systemd to create its cgroups."""
    return {
        "metadata": {
            "name": config.name,
            "uid": config.uid,
            "namespace": config.namespace,
            "attempt": config.attempt,
        },
        "hostname": config.hostname,
        "log_directory": paths.real(config.log_directory),
        "dns_config": _dns(config.dns),
        "port_mappings": [_port(port) for port in config.ports],
        "labels": dict(config.labels),
        "annotations": dict(config.annotations),
        "linux": _linux_sandbox(config.linux, paths, systemd),
    }


def _dns(dns: DnsConfig) -> Message:
    return {
        "servers": list(dns.servers),
        "searches": list(dns.searches),
        "options": list(dns.options),
    }


def _port(port: PortMapping) -> Message:
    return {
        "protocol": PROTOCOLS.index(port.protocol),
        "container_port": port.container_port,
        "host_port": port.host_port,
        "host_ip": port.host_ip,
    }


def _linux_sandbox(linux: LinuxSandbox, paths: CriPaths, systemd: bool) -> Message:
    parent = linux.cgroup_parent
    return {
        "cgroup_parent": systemd_group(parent) if systemd and parent else parent,
        "security_context": {
            "namespace_options": {
                "network": NODE if linux.host_network else POD,
                "pid": NODE if linux.host_pid else POD if linux.share_processes else CONTAINER,
                "ipc": NODE if linux.host_ipc else POD,
                "userns_options": _user_namespace(linux.user_namespace),
            },
            "selinux_options": _selinux(linux.selinux),
            "run_as_user": _number(linux.run_as_user),
            "run_as_group": _number(linux.run_as_group),
            "supplemental_groups": list(linux.supplemental_groups),
            "supplemental_groups_policy": int(linux.strict_groups),
            "privileged": linux.privileged,
            **_seccomp(linux.seccomp, paths),
        },
        "sysctls": dict(linux.sysctls),
    }


def _selinux(options: Mapping[str, str] | None) -> Message | None:
    return (
        None
        if options is None
        else {name: options.get(name, "") for name in ("user", "role", "type", "level")}
    )


def _user_namespace(ids: IdRange | None) -> Message | None:
    if ids is None:
        return None
    mapping = {"host_id": ids.first, "container_id": 0, "length": ids.length}
    return {"mode": POD, "uids": [mapping], "gids": [mapping]}


def _number(value: int | None) -> Message | None:
    return None if value is None else {"value": value}


def _seccomp(profile: str, paths: CriPaths) -> Message:
    """In the old form and in the new: a runtime skips the one it does not know."""
    if profile.startswith(_OF_NODE):
        profile = _OF_NODE + paths.real(profile.removeprefix(_OF_NODE))
    return {"seccomp_profile_path": profile, "seccomp": _profile(profile)} if profile else {}


def _profile(name: str) -> Message:
    if name.startswith(_OF_NODE):
        return {"profile_type": _LOCALHOST, "localhost_ref": name.removeprefix(_OF_NODE)}
    return {"profile_type": _PROFILES.get(name, _RUNTIME_DEFAULT)}


# ---- containers ----


def container_to_cri(config: ContainerConfig, sandbox: Message, paths: CriPaths) -> Message:
    """`sandbox_to_cri` is the sandbox's configuration as a CRI message."""
    message: dict[str, Any] = {
        "metadata": {"name": config.name, "attempt": config.attempt},
        "image": {"image": config.image_ref or config.image},
        "command": list(config.command),
        "args": list(config.args),
        "working_dir": config.working_dir,
        "envs": [{"key": name, "value": value} for name, value in config.env],
        "mounts": [_mount(mount, paths) for mount in config.mounts],
        "devices": [_device(text, paths) for text in config.devices],
        "CDI_devices": [{"name": name} for name in config.cdi_devices],
        "labels": dict(config.labels),
        "annotations": dict(config.annotations),
        "log_path": config.log_path,
        "stdin": config.stdin,
        "stdin_once": config.stdin_once,
        "tty": config.tty,
        "stop_signal": SIGNALS.index(config.stop_signal),
    }
    if config.linux is not None:
        message["linux"] = _linux(config.linux, sandbox, paths)
    if config.windows is not None:
        message["windows"] = _windows(config.windows)
    return message


def _mount(mount: Mount, paths: CriPaths) -> Message:
    if mount.image:
        return {
            "container_path": mount.container_path,
            "readonly": True,
            "propagation": PROPAGATIONS.index(mount.propagation),
            "image": {"image": mount.image},
            "image_sub_path": mount.image_sub_path,
        }
    return {
        "container_path": mount.container_path,
        "host_path": paths.mounted(mount.host_path, mount.volume_path),
        "readonly": mount.read_only,
        "recursive_read_only": mount.recursive_read_only,
        "selinux_relabel": mount.selinux_relabel,
        "propagation": PROPAGATIONS.index(mount.propagation),
    }


def _device(text: str, paths: CriPaths) -> Message:
    """`HOST:CONTAINER:PERMISSIONS`"""
    host, inside, permissions = text.rsplit(":", 2)
    return {"host_path": paths.real(host), "container_path": inside, "permissions": permissions}


def _linux(linux: LinuxContainer, sandbox: Message, paths: CriPaths) -> Message:
    of_sandbox = ((sandbox.get("linux") or {}).get("security_context") or {}).get(
        "namespace_options"
    ) or {}
    security: dict[str, Any] = {
        "capabilities": {
            "add_capabilities": list(linux.add_capabilities),
            "drop_capabilities": list(linux.drop_capabilities),
        },
        "privileged": linux.privileged,
        "namespace_options": {
            "network": of_sandbox.get("network", POD),
            "pid": _PID[linux.pid_namespace],
            "ipc": of_sandbox.get("ipc", POD),
            "target_id": linux.target_id,
            "userns_options": of_sandbox.get("userns_options"),
        },
        "selinux_options": _selinux(linux.selinux),
        "run_as_user": _number(linux.run_as_user),
        "run_as_username": linux.run_as_user_name,
        "run_as_group": _number(linux.run_as_group),
        "readonly_rootfs": linux.read_only_root,
        "supplemental_groups": list(linux.supplemental_groups),
        "supplemental_groups_policy": int(linux.strict_groups),
        "no_new_privs": linux.no_new_privileges,
        "masked_paths": list(linux.masked_paths),
        "readonly_paths": list(linux.read_only_paths),
        **_seccomp(linux.seccomp, paths),
    }
    if linux.apparmor:
        security |= {"apparmor_profile": linux.apparmor, "apparmor": _profile(linux.apparmor)}
    return {"resources": cri_linux_resources(linux.resources), "security_context": security}


def cri_linux_resources(resources: LinuxResources) -> Message:
    pages = resources.hugepages.items()
    return {
        "cpu_period": resources.cpu_period,
        "cpu_quota": resources.cpu_quota,
        "cpu_shares": resources.cpu_shares,
        "memory_limit_in_bytes": resources.memory_limit,
        "oom_score_adj": resources.oom_score_adj,
        "cpuset_cpus": usable_cpus(resources.cpuset_cpus),
        "cpuset_mems": usable_numa_nodes(resources.cpuset_mems),
        "unified": usable_cgroup_files(resources.unified) if is_cgroup2() else {},
        # runc rejects a limit for a page size that the machine does not have.
        "hugepage_limits": [
            {"page_size": size, "limit": limit}
            for size, limit in pages
            if limit or size in _page_sizes()
        ],
    }


@cache
def _page_sizes() -> frozenset[str]:
    """The page sizes of this machine, in the notation of limits: 2MB, 1GB."""
    try:
        names = os.listdir(_PAGES)
    except OSError:
        return frozenset()
    sizes = (int(name.removeprefix("hugepages-").removesuffix("kB")) for name in names)
    return frozenset(f"{size >> 20}GB" if size >= 1 << 20 else f"{size >> 10}MB" for size in sizes)


def _windows(windows: WindowsContainer) -> Message:
    return {
        "resources": cri_windows_resources(windows.resources),
        "security_context": {
            "run_as_username": windows.run_as_user_name,
            "credential_spec": windows.credential_spec,
        },
    }


def auth_to_cri(given: AuthConfig | None) -> Message | None:
    if given is None:
        return None
    return {"username": given.username, "password": given.password, "server_address": given.server}


def cri_windows_resources(resources: WindowsResources) -> Message:
    groups: dict[int, int] = {}  # a group has 64 processors
    for cpu in parse_cpuset(resources.cpuset):
        groups[cpu // 64] = groups.get(cpu // 64, 0) | 1 << cpu % 64
    return {
        "cpu_shares": resources.cpu_shares,
        "cpu_count": resources.cpu_count,
        "cpu_maximum": resources.cpu_maximum,
        "memory_limit_in_bytes": resources.memory_limit,
        "affinity_cpus": [
            {"cpu_mask": mask, "cpu_group": group} for group, mask in sorted(groups.items())
        ],
    }
