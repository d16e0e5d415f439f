"""The differences between container operating systems: the interface between `NativeRuntime` and
`oci` or `wine`.

`NativeRuntime` keeps records, snapshots, cgroups, logs and streams, and talks to runc through the
monitor. A `RuntimePlatform` defines the process: it turns CRI's configuration into an OCI
runtime specification (a plain dict as in `config.json`), knows how to ask a process to terminate,
and what its exit code means.

The runtime itself then sets `linux.cgroupsPath`, `process.terminal` and `ociVersion` in the
specification, overriding the platform. Mounts from the machine are made with `HostMounts.bind`.

The calls are made in this order, never concurrently for one container:

    layers -> create -> (runc runs it) -> started -> [exec_process, exit_code of that exec]* -> stop
    -> exit_code -> finished
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from transom.kit.lazy_dataclass import dataclass
from transom.machines.windows.accounts import AccountDatabase
from transom.runtime.api import (
    ContainerConfig,
    ExecResult,
    LinuxResources,
    Mount,
    RuntimeFailure,
    RuntimeVersion,
    SandboxConfig,
)

Spec = dict[str, Any]
"""An OCI runtime specification, or the `process` of one."""


class ImageContent(Protocol):
    """The content store's data about an image. `layers` are directories, lowest first."""

    @property
    def id(self) -> str: ...
    @property
    def config(self) -> Mapping[str, Any]:
        """The whole OCI image configuration: `architecture`, `os`, `os.version`, `config`:
        {Entrypoint, Cmd, Env, ...}.
        """

    @property
    def layers(self) -> Sequence[Path]: ...


class CannotStart(Exception):
    """The process could not be started; contains what the container's status and the error of the
    call show.
    """

    def __init__(self, failure: RuntimeFailure, exit_code: int = 128, message: str = "") -> None:
        super().__init__(str(failure))
        self.failure = failure
        self.exit_code = exit_code
        self.message = message or failure.description


@dataclass(frozen=True, slots=True)
class SandboxPlan:
    """Which namespaces a sandbox's pause process holds. False means that it has the machine's
    own.
    """

    hostname: str
    network: bool = True
    ipc: bool = True
    pid: bool = True
    host_process: bool = False  # its containers are processes of a Windows node
    sysctls: Mapping[str, str] | None = None
    user: int = 65535
    group: int = 65535
    # a user namespace of its own, whose root has no rights on this machine
    own_users: bool = False
    first_id: int = 0  # the user of this machine that its root maps to; set at sandbox creation


@dataclass(frozen=True, slots=True)
class SandboxFacts:
    """A sandbox as its containers need it. `pid` is the pause process's: `/proc/PID/ns/...` are its
    namespaces.
    """

    id: str
    config: SandboxConfig
    plan: SandboxPlan
    pid: int
    folder: Path  # has `resolv.conf`, `hostname` and `shm` (a mounted tmpfs) for its containers
    ips: tuple[str, ...] = ()


class HostMounts(Protocol):
    """Mounts of the node's own files for a specification."""

    def bind(self, mount: Mount, destination: str, options: Sequence[str] = ()) -> Spec:
        """An entry for `mounts`. The source is resolved when the container starts, without
        following links out of the node's directory; `destination` is the path in the specification,
        `options` precede those of the mount.
        """

    def stat(self, path: str) -> os.stat_result:
        """The type of a path of the node. Raises OSError."""

    def device(self, path: str) -> os.stat_result:
        """The status of a path of the node that a container mounts as a device. Raises OSError."""

    def read(self, path: str) -> bytes:
        """A file of the node. Raises OSError."""

    def real(self, path: str) -> str:
        """The path of a node's file on this machine. A container may put a link there afterwards.
        Raises OSError.
        """


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    id: str
    sandbox: SandboxFacts
    config: ContainerConfig
    image: ImageContent
    # the container's own, until it is removed; the platform may keep its files in FOLDER/platform
    folder: Path
    snapshot: Path  # where the layers are mounted with a writable one on top; not yet in `layers`
    host: HostMounts
    accounts: AccountDatabase | None = None  # the node's, on Windows
    target_pid: int = 0  # the process whose pid namespace it joins, for `pid_namespace` "target"


class RunningContainer(Protocol):
    """A container with a running process, as a platform sees it."""

    @property
    def request(self) -> ContainerRequest:
        """The request it was created with; `image` as in the store, or as it was if it has been
        removed.
        """

    @property
    def pid(self) -> int:
        """The pid of its first process on this machine."""

    def signal(self, number: int, *, all_processes: bool = False) -> None:
        """To its first process, or to all. A no-op when it has ended."""

    async def run(self, process: Spec, seconds: float = 0) -> ExecResult:
        """An additional process in its namespaces; `process` as in the specification."""


class CgroupUsage(NamedTuple):
    """The statistics of a container's cgroup. A platform may present them as its own system
    counts.
    """

    cpu_nanoseconds: int
    usage: int
    working_set: int
    rss: int
    page_faults: int
    major_page_faults: int
    processes: int
    paged: int = 0


@dataclass(frozen=True, slots=True)
class CgroupLimits:
    """For a container's cgroup. 0: no limit. The platform derives it from LinuxResources or
    WindowsResources.
    """

    cpu_shares: int = 0
    cpu_quota: int = 0
    cpu_period: int = 0
    memory: int = 0  # beyond it the kernel OOM-kills
    memory_soft: int = 0  # beyond it the kernel reclaims
    pids: int = 0
    hugepages: Mapping[str, int] | None = None
    cpuset: str = ""  # of the node's CPUs
    cpuset_mems: str = ""  # of the node's NUMA nodes
    unified: Mapping[str, str] | None = None  # files of cgroup v2


def cgroup_limits(resources: LinuxResources) -> CgroupLimits:
    return CgroupLimits(
        cpu_shares=resources.cpu_shares,
        cpu_quota=resources.cpu_quota,
        cpu_period=resources.cpu_period,
        memory=resources.memory_limit,
        hugepages=resources.hugepages,
        cpuset=resources.cpuset_cpus,
        cpuset_mems=resources.cpuset_mems,
        unified=resources.unified,
    )


class RuntimePlatform(Protocol):
    os: Literal["linux", "windows"]
    version: RuntimeVersion
    separator: str  # of paths
    user_namespaces: bool  # whether pods get user namespaces, where this machine supports them
    demands_user_namespaces: (
        bool  # whether the node's owner requests them: warn where they do not work
    )
    # whether its programs implement echo, line editing and line ends themselves
    raw_terminal: bool

    def missing(self) -> list[str]:
        """What does not work here, in sentences for users. Empty: everything works."""

    def unusable(self) -> str:
        """Why it cannot run containers at all; empty when it can."""

    def sandbox(self, config: SandboxConfig, node: str) -> SandboxPlan:
        """`node` is the machine's name."""

    async def layers(self, request: ContainerRequest) -> Sequence[Path]:
        """Directories below the writable layer, lowest first. May take a while (a template is
        built) and raise RuntimeFailure (the create call fails) or CannotStart (the container is
        created, but its start fails with this).
        """

    def limits(self, config: ContainerConfig, cpus: int) -> CgroupLimits:
        """On a node with this many processors, whatever this machine has."""

    async def create(self, request: ContainerRequest) -> Spec:
        """The specification; the snapshot is mounted and writable. Raises like `layers`."""

    async def started(self, container: RunningContainer) -> None:
        """Called when runc reports that it runs. May wait until the program itself has started;
        raises CannotStart.
        """

    def failure(self, request: ContainerRequest, text: str) -> CannotStart:
        """The error to report when runc could not start it and printed `text`."""

    def exec_process(
        self, container: RunningContainer, command: Sequence[str], *, tty: bool, exec_id: str
    ) -> Spec:
        """The `process` of a command in the container. `exec_id` is unique among those of the
        container.
        """

    def exec_failure(
        self, container: RunningContainer, exec_id: str, command: Sequence[str], text: str
    ) -> RuntimeFailure:
        """The error when runc could not start it and printed `text`."""

    def stop_grace_seconds(self, container: RunningContainer, grace: float) -> float:
        """How long to wait after `stop` before it is killed. Called after `stop`."""
        return grace

    async def stop(self, container: RunningContainer) -> None:
        """Asks it to terminate; does not wait for its end."""

    def exit_code(self, request: ContainerRequest, status: int, exec_id: str = "") -> int:
        """The exit code of the container's process or of a command. `status`: 0..255, or 128 + the
        signal that killed it.
        """

    def finished(self, request: ContainerRequest) -> None:
        """Called when its processes are gone and its snapshot is still mounted."""

    def usage(self, request: ContainerRequest, counted: CgroupUsage) -> CgroupUsage:
        """As this operating system would count it."""

    def layer_usage(self, request: ContainerRequest, counted: tuple[int, int]) -> tuple[int, int]:
        """Bytes and inodes of the writable layer, as this operating system would count them."""
