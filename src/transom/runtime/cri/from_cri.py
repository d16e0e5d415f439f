"""Converts CRI's sandboxes, containers, images and statistics to the types of `runtime.api`."""

from __future__ import annotations

import json
from typing import Any, Final

from transom.network.api import DnsConfig, PortMapping
from transom.runtime.api import (
    Container,
    ContainerState,
    ContainerStats,
    CpuUsage,
    FilesystemUsage,
    Image,
    InterfaceStats,
    LinuxContainerUser,
    LinuxSandbox,
    Mount,
    RuntimeStatus,
    Sandbox,
    SandboxConfig,
    SandboxState,
    SandboxStats,
)
from transom.runtime.cri import to_cri
from transom.runtime.cri.codec import Message
from transom.runtime.cri.paths import CriPaths

_SANDBOX_STATES: Final[tuple[SandboxState, ...]] = ("ready", "notready")
_CONTAINER_STATES: Final[tuple[ContainerState, ...]] = ("created", "running", "exited", "unknown")
_SECOND: Final = 1_000_000_000


def sandbox_state_from_cri(message: Message) -> SandboxState:
    number = message.get("state", 0)
    return _SANDBOX_STATES[number] if number < len(_SANDBOX_STATES) else "notready"


def container_state_from_cri(message: Message) -> ContainerState:
    number = message.get("state", 0)
    return _CONTAINER_STATES[number] if number < len(_CONTAINER_STATES) else "unknown"


def runtime_status_from_cri(message: Message) -> RuntimeStatus:
    """From a StatusResponse. A missing condition counts as not ready, as for kubelets."""
    found = {
        each.get("type"): each for each in (message.get("status") or {}).get("conditions") or ()
    }

    def problem(name: str) -> tuple[str, str]:
        condition = found.get(name)
        if condition is None:
            return "Unknown", f"the runtime does not report {name}"
        if condition.get("status"):
            return "", ""
        return condition.get("reason") or "Unknown", condition.get("message", "")

    return RuntimeStatus(*problem("RuntimeReady"), *problem("NetworkReady"))


def has_systemd_groups(message: Message) -> bool:
    """Whether the default handler uses systemd cgroups; from a verbose StatusResponse."""
    config = _info(message, "config")
    containerd = config.get("containerd") or {}
    handler = (containerd.get("runtimes") or {}).get(containerd.get("defaultRuntimeName", "")) or {}
    return bool((handler.get("options") or {}).get("SystemdCgroup") or config.get("systemdCgroup"))


def _info(message: Message, name: str) -> Any:
    """A part of the JSON in a runtime's verbose response; empty when there is none."""
    try:
        found = json.loads((message.get("info") or {}).get(name, "{}"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


# ---- sandboxes ----


def reported_config(response: Message) -> Message | None:
    """The configuration that a sandbox was created with, from a verbose PodSandboxStatusResponse;
    None when the runtime does not report it.
    """
    return _info(response, "info").get("config") or None


def config_of_status(status: Message) -> Message:
    """The part of a configuration that a PodSandboxStatus contains."""
    options = ((status.get("linux") or {}).get("namespaces") or {}).get("options") or {}
    return {
        "metadata": status.get("metadata") or {},
        "labels": status.get("labels") or {},
        "annotations": status.get("annotations") or {},
        "linux": {"security_context": {"namespace_options": options}},
    }


def config_from_cri(message: Message, paths: CriPaths) -> SandboxConfig:
    """A PodSandboxConfig."""
    metadata, dns = message.get("metadata") or {}, message.get("dns_config") or {}
    return SandboxConfig(
        name=metadata.get("name", ""),
        namespace=metadata.get("namespace", ""),
        uid=metadata.get("uid", ""),
        attempt=metadata.get("attempt", 0),
        hostname=message.get("hostname", ""),
        log_directory=paths.shown(message.get("log_directory", "")),
        dns=DnsConfig(*(tuple(dns.get(name) or ()) for name in ("servers", "searches", "options"))),
        ports=tuple(_port(port) for port in message.get("port_mappings") or ()),
        labels=message.get("labels") or {},
        annotations=message.get("annotations") or {},
        linux=_linux(message.get("linux") or {}),
    )


def _port(message: Message) -> PortMapping:
    return PortMapping(
        message.get("container_port", 0),
        message.get("host_port", 0),
        to_cri.PROTOCOLS[message.get("protocol", 0)],
        message.get("host_ip", ""),
    )


def _linux(message: Message) -> LinuxSandbox:
    security = message.get("security_context") or {}
    options = security.get("namespace_options") or {}
    return LinuxSandbox(
        host_network=options.get("network", 0) == to_cri.NODE,
        host_pid=options.get("pid", 0) == to_cri.NODE,
        host_ipc=options.get("ipc", 0) == to_cri.NODE,
        share_processes=options.get("pid", 0) == to_cri.POD,
        privileged=security.get("privileged", False),
        run_as_user=_optional(security.get("run_as_user")),
        run_as_group=_optional(security.get("run_as_group")),
        supplemental_groups=tuple(security.get("supplemental_groups") or ()),
        sysctls=message.get("sysctls") or {},
        selinux=security.get("selinux_options"),
        seccomp=security.get("seccomp_profile_path", ""),
        cgroup_parent=message.get("cgroup_parent", ""),
    )


def _optional(message: Message | None) -> int | None:
    return None if message is None else message.get("value", 0)


def sandbox_from_cri(status: Message, config: SandboxConfig) -> Sandbox:
    """A PodSandboxStatus."""
    network = status.get("network") or {}
    addresses = (
        network.get("ip", ""),
        *(each.get("ip", "") for each in network.get("additional_ips") or ()),
    )
    return Sandbox(
        id=status.get("id", ""),
        config=config,
        state=sandbox_state_from_cri(status),
        created_at=_seconds(status.get("created_at", 0)),
        handler=status.get("runtime_handler", ""),
        ips=() if config.linux.host_network else tuple(filter(None, addresses)),
    )


# ---- containers ----


def container_from_cri(status: Message, sandbox_id: str, paths: CriPaths) -> Container:
    """A ContainerStatus."""
    metadata = status.get("metadata") or {}
    started, finished = (
        _seconds(status.get("started_at", 0)),
        _seconds(status.get("finished_at", 0)),
    )
    return Container(
        id=status.get("id", ""),
        sandbox_id=sandbox_id,
        name=metadata.get("name", ""),
        attempt=metadata.get("attempt", 0),
        state=container_state_from_cri(status),
        image=(status.get("image") or {}).get("image", ""),
        image_ref=status.get("image_ref", ""),
        labels=status.get("labels") or {},
        annotations=status.get("annotations") or {},
        created_at=_seconds(status.get("created_at", 0)),
        started_at=started,
        finished_at=max(started, finished)
        if finished
        else 0.0,  # a short one may end before its start is recorded
        exit_code=status.get("exit_code", 0),
        reason=status.get("reason", ""),
        message=status.get("message", ""),
        log_path=paths.shown(status.get("log_path", "")),
        user=_container_user(status),
        stop_signal=to_cri.SIGNALS[status.get("stop_signal", 0)],
        mounts=tuple(_mount(mount, paths) for mount in status.get("mounts") or ()),
    )


def _container_user(status: Message) -> LinuxContainerUser | None:
    linux = (status.get("user") or {}).get("linux")
    if linux is None:
        return None
    groups = tuple(linux.get("supplemental_groups") or ())
    return LinuxContainerUser(linux.get("uid", 0), linux.get("gid", 0), groups)


def _seconds(nanoseconds: int) -> float:
    """0 for a time that is not set, which some runtimes write as Go's zero time."""
    return nanoseconds / _SECOND if nanoseconds > 0 else 0.0


def _mount(message: Message, paths: CriPaths) -> Mount:
    return Mount(
        container_path=message.get("container_path", ""),
        host_path=paths.shown(message.get("host_path", "")),
        read_only=message.get("readonly", False),
        propagation=to_cri.PROPAGATIONS[message.get("propagation", 0)],
        selinux_relabel=message.get("selinux_relabel", False),
    )


# ---- images ----


def image_from_cri(message: Message) -> Image:
    return Image(
        id=message.get("id", ""),
        tags=tuple(message.get("repo_tags") or ()),
        digests=tuple(message.get("repo_digests") or ()),
        size=message.get("size", 0),
        uid=_optional(message.get("uid")),
        username=message.get("username", ""),
        pinned=bool(message.get("pinned")),
    )


def filesystem_from_cri(message: Message | None) -> FilesystemUsage:
    message = message or {}
    where = (message.get("fs_id") or {}).get("mountpoint", "")
    return FilesystemUsage(where, _value(message, "used_bytes"), _value(message, "inodes_used"))


# ---- statistics ----


def container_stats_from_cri(message: Message, before: ContainerStats | None) -> ContainerStats:
    """`before`: the previous sample, for runtimes that do not report CPU rates."""
    attributes, memory = message.get("attributes") or {}, message.get("memory") or {}
    metadata, cpu, layer = (
        attributes.get("metadata") or {},
        message.get("cpu"),
        message.get("writable_layer"),
    )
    time = _seconds((cpu or {}).get("timestamp", 0) or memory.get("timestamp", 0))
    return ContainerStats(
        id=attributes.get("id", ""),
        name=metadata.get("name", ""),
        attempt=metadata.get("attempt", 0),
        labels=attributes.get("labels") or {},
        time=time,
        cpu=None if cpu is None else _cpu(cpu, time, before),
        working_set=_optional(memory.get("working_set_bytes")),
        usage=_value(memory, "usage_bytes"),
        rss=_value(memory, "rss_bytes"),
        page_faults=_value(memory, "page_faults"),
        major_page_faults=_value(memory, "major_page_faults"),
        writable_layer=None if layer is None else filesystem_from_cri(layer),
    )


def _cpu(message: Message, time: float, before: ContainerStats | None) -> CpuUsage:
    total = _value(message, "usage_core_nano_seconds")
    nano_cores = _optional(message.get("usage_nano_cores"))
    if nano_cores is None and before is not None and before.cpu is not None and time > before.time:
        nano_cores = max(0, round((total - before.cpu.core_nanoseconds) / (time - before.time)))
    return CpuUsage(total, nano_cores)


def sandbox_stats_from_cri(message: Message, now: float) -> SandboxStats | None:
    """None: it has no network of its own. `now` is for runtimes that report no timestamps."""
    linux = message.get("linux")
    network = (linux or message.get("windows") or {}).get("network")
    if network is None:
        return None
    found = [network.get("default_interface"), *(network.get("interfaces") or ())]
    interfaces = tuple(_interface(each, linux is not None) for each in found if each is not None)
    time = _seconds(network.get("timestamp", 0)) or now
    return SandboxStats((message.get("attributes") or {}).get("id", ""), time, interfaces)


def _interface(message: Message, linux: bool) -> InterfaceStats:
    """Windows does not count errors; it reports dropped packets instead."""
    received, sent = (
        _optional(message.get(name)) if linux else None for name in ("rx_errors", "tx_errors")
    )
    return InterfaceStats(
        message.get("name", ""),
        _value(message, "rx_bytes"),
        _value(message, "tx_bytes"),
        received,
        sent,
    )


def _value(message: Message, name: str) -> int:
    return (message.get(name) or {}).get("value", 0)
