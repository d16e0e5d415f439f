"""What differs by the operating system that a container is for: the seam between `NativeRuntime` and `oci` or `wine`.

`NativeRuntime` keeps records, snapshots, cgroups, logs and streams, and talks to runc through the monitor. A `Platform`
says what the process is to be: it turns CRI's configuration into an OCI runtime specification (a plain dict as in
`config.json`), knows how to ask a process to leave, and what its exit code means.

Of the specification the runtime itself fills in afterwards, over whatever the platform has put there:
`linux.cgroupsPath`, `process.terminal`, and `ociVersion`. Mounts from the machine are made with `HostMounts.bind`.

The calls are made in this order; those of one container never at the same time:

    layers -> create -> (runc runs it) -> started -> [exec_process, exit_code of that exec]* -> stop -> exit_code -> finished
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from transom.runtime.api import ContainerConfig, ExecResult, Mount, RuntimeFailure, SandboxConfig, Version

Spec = dict[str, Any]
"""An OCI runtime specification, or the `process` of one."""


class StoredImage(Protocol):
    """What the content store knows of an image. `layers` are folders, the lowest first."""

    @property
    def id(self) -> str: ...
    @property
    def config(self) -> Mapping[str, Any]:
        """The whole OCI image configuration: `architecture`, `os`, `os.version`, `config`: {Entrypoint, Cmd, Env, ...}."""

    @property
    def layers(self) -> Sequence[Path]: ...


class CannotStart(Exception):
    """The process could not be started: what the container's status and the call's failure are to say."""

    def __init__(self, failure: RuntimeFailure, exit_code: int = 128, message: str = "") -> None:
        super().__init__(str(failure))
        self.failure = failure
        self.exit_code = exit_code
        self.message = message or failure.description


@dataclass(frozen=True, slots=True)
class SandboxPlan:
    """Which namespaces a sandbox's pause process holds. False means that it has the machine's own."""

    hostname: str
    network: bool = True
    ipc: bool = True
    pid: bool = True
    sysctls: Mapping[str, str] | None = None
    user: int = 65535
    group: int = 65535


@dataclass(frozen=True, slots=True)
class SandboxFacts:
    """A sandbox as its containers need it. `pid` is the pause process's: `/proc/PID/ns/...` are its namespaces."""

    id: str
    config: SandboxConfig
    plan: SandboxPlan
    pid: int
    folder: Path  # has `resolv.conf`, `hostname` and `shm` (a mounted tmpfs) for its containers
    ips: tuple[str, ...] = ()


class HostMounts(Protocol):
    """Parts of the node's own files for a specification."""

    def bind(self, mount: Mount, destination: str, options: Sequence[str] = ()) -> Spec:
        """An entry for `mounts`. The source is found when the container starts, without following links out of the
        node's folder; `destination` is where the specification wants it, `options` come before those of the mount."""

    def real(self, path: str) -> str:
        """Where a path of the node is on this machine, now."""


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    id: str
    sandbox: SandboxFacts
    config: ContainerConfig
    image: StoredImage
    folder: Path  # the container's own, until it is removed; the platform may keep files of its own in FOLDER/platform
    snapshot: Path  # where the layers are mounted with a writable one on top; not yet in `layers`
    host: HostMounts
    target_pid: int = 0  # the process whose pid namespace it joins, for `pid_namespace` "target"


class Running(Protocol):
    """A container whose process lives, in the hands of a platform."""

    @property
    def request(self) -> ContainerRequest:
        """As it was made; `image` as it is in the store, or as it was if that has gone."""

    @property
    def pid(self) -> int:
        """Of its first process, as this machine numbers it."""

    def signal(self, number: int, *, everybody: bool = False) -> None:
        """To its first process, or to all. Nothing happens when it has ended."""

    async def run(self, process: Spec, seconds: float = 0) -> ExecResult:
        """An extra process in its namespaces; `process` as in the specification."""


class Usage(NamedTuple):
    """What a container's cgroup has counted. A platform may show it as its own system counts."""

    cpu_nanoseconds: int
    usage: int
    working_set: int
    rss: int
    page_faults: int
    major_page_faults: int
    processes: int
    paged: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """For a container's cgroup. 0: no limit. What the platform makes of LinuxResources or WindowsResources."""

    cpu_shares: int = 0
    cpu_quota: int = 0
    cpu_period: int = 0
    memory: int = 0  # beyond it the kernel kills
    memory_soft: int = 0  # beyond it the kernel reclaims
    pids: int = 0
    hugepages: Mapping[str, int] | None = None


class Platform(Protocol):
    os: Literal["linux", "windows"]
    version: Version
    separator: str  # of paths
    raw_terminal: bool  # whether its programs do themselves what Unix leaves to the terminal: echo, lines, line ends

    def missing(self) -> list[str]:
        """What does not work here, in sentences for people. Empty: everything works."""

    def unusable(self) -> str:
        """Why it cannot run containers at all; empty when it can."""

    def sandbox(self, config: SandboxConfig, node: str) -> SandboxPlan:
        """`node` is the machine's name."""

    async def layers(self, request: ContainerRequest) -> Sequence[Path]:
        """Folders under the writable layer, the lowest first. May take its time (a template is made) and raise
        RuntimeFailure (the call to create fails) or CannotStart (the container is made, its start will fail so)."""

    def limits(self, config: ContainerConfig, cpus: int) -> Limits:
        """On a node that has so many processors, whatever this machine has."""

    async def create(self, request: ContainerRequest) -> Spec:
        """The specification; the snapshot is mounted and may be written to. Raises as `layers` does."""

    async def started(self, container: Running) -> None:
        """runc says that it runs. May wait until the program itself is there; raises CannotStart."""

    def failure(self, request: ContainerRequest, text: str) -> CannotStart:
        """What to say when runc could not start it and said `text`."""

    def exec_process(self, container: Running, command: Sequence[str], *, tty: bool, exec_id: str) -> Spec:
        """The `process` of a command in the container. `exec_id` is unique among those of the container."""

    def exec_failure(self, container: Running, exec_id: str, command: Sequence[str], text: str) -> RuntimeFailure:
        """When runc could not start it and said `text`."""

    def stop_patience(self, container: Running, grace: float) -> float:
        """How long to wait after `stop` before it is killed."""
        return grace

    async def stop(self, container: Running) -> None:
        """Ask it to leave; come back at once, do not wait for it."""

    def exit_code(self, request: ContainerRequest, status: int, exec_id: str = "") -> int:
        """Of the container's process or of a command. `status`: 0..255, or 128 + the signal that has killed it."""

    def finished(self, request: ContainerRequest) -> None:
        """Its processes are gone, its snapshot is still mounted."""

    def usage(self, request: ContainerRequest, counted: Usage) -> Usage:
        """As this operating system would count it."""

    def layer_usage(self, request: ContainerRequest, counted: tuple[int, int]) -> tuple[int, int]:
        """Bytes and inodes of the writable layer, as this operating system would count them."""


