"""The runtime interface: sandboxes, containers, commands in them, images and statistics, modelled
on CRI.

A runtime belongs to one host and outlives the kubelet that uses it: a restarted kubelet finds its
sandboxes here. It knows nothing of the API; the kubelet decides the configuration of each
container. Every failure is a `RuntimeFailure` whose text is what the real runtime's client would
show (`rpc error: code = Unknown desc = ...`).
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Literal, Protocol

from transom.kit.lazy_dataclass import dataclass
from transom.kit.named_tuple import NamedTuple
from transom.kit.rpc import RpcError
from transom.network.api import DnsConfig, PortMapping


class RuntimeFailure(RpcError):
    """An operation of the runtime failed."""


SandboxState = Literal["ready", "notready"]
ContainerState = Literal["created", "running", "exited", "unknown"]


class IdRange(NamedTuple):
    """User and group ids of the node that are 0 and up in a user namespace."""

    first: int
    length: int


@dataclass(frozen=True, slots=True)
class LinuxResources:
    cpu_period: int = 0
    cpu_quota: int = 0
    cpu_shares: int = 0
    memory_limit: int = 0
    oom_score_adj: int = 0
    hugepages: Mapping[str, int] = field(default_factory=dict)
    cpuset_cpus: str = ""  # the CPUs that it may use, "" for all
    cpuset_mems: str = ""  # the NUMA nodes whose memory it may use, "" for all
    unified: Mapping[str, str] = field(default_factory=dict)  # files of cgroup v2


@dataclass(frozen=True, slots=True)
class LinuxSandbox:
    host_network: bool = False
    host_pid: bool = False
    host_ipc: bool = False
    share_processes: bool = False
    privileged: bool = False
    run_as_user: int | None = None
    run_as_group: int | None = None
    supplemental_groups: tuple[int, ...] = ()
    strict_groups: bool = False  # without those that the image lists for the user
    sysctls: Mapping[str, str] = field(default_factory=dict)
    selinux: Mapping[str, str] | None = None
    seccomp: str = ""
    cgroup_parent: str = ""
    resources: LinuxResources = LinuxResources()  # of the pod as a whole, for its cgroup
    host_process: bool = False  # on Windows: its containers are processes of the node
    host_users: bool = (
        False  # it needs the node's users, devices or privileges, so it gets no user namespace
    )
    user_namespace: IdRange | None = None  # of a pod with `hostUsers: false`


@dataclass(frozen=True, slots=True)
class SandboxConfig:
    name: str
    namespace: str
    uid: str
    attempt: int = 0
    hostname: str = ""
    log_directory: str = ""
    dns: DnsConfig = field(default=DnsConfig())
    ports: tuple[PortMapping, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    linux: LinuxSandbox = LinuxSandbox()  # the kubelet sets it on Windows too, as Kubernetes' does


@dataclass(frozen=True, slots=True)
class Mount:
    container_path: str
    host_path: str
    read_only: bool = False
    propagation: Literal["private", "hostToContainer", "bidirectional"] = "private"
    selinux_relabel: bool = False
    # for a subPath: the volume that `host_path` must not leave, whatever links it contains by then
    volume_path: str = ""
    # for an image volume: the id of the image to mount read-only, and the directory in it; there
    # is no host path
    image: str = ""
    image_sub_path: str = ""
    recursive_read_only: bool = False  # also what is mounted below it


@dataclass(frozen=True, slots=True)
class LinuxContainer:
    resources: LinuxResources = LinuxResources()
    privileged: bool = False
    run_as_user: int | None = None
    run_as_user_name: str = ""
    run_as_group: int | None = None
    supplemental_groups: tuple[int, ...] = ()
    strict_groups: bool = False  # without those that the image lists for the user
    add_capabilities: tuple[str, ...] = ()
    drop_capabilities: tuple[str, ...] = ()
    read_only_root: bool = False
    no_new_privileges: bool = False
    selinux: Mapping[str, str] | None = None
    seccomp: str = ""
    apparmor: str = ""
    masked_paths: tuple[str, ...] = ()
    read_only_paths: tuple[str, ...] = ()
    pid_namespace: Literal["container", "pod", "node", "target"] = "container"
    target_id: str = ""


@dataclass(frozen=True, slots=True)
class WindowsResources:
    cpu_shares: int = 0
    cpu_count: int = 0
    cpu_maximum: int = 0
    memory_limit: int = 0
    cpuset: str = ""  # the CPUs that it may use, "" for all


@dataclass(frozen=True, slots=True)
class WindowsContainer:
    resources: WindowsResources = WindowsResources()
    run_as_user_name: str = ""
    credential_spec: str = ""
    host_process: bool = False


@dataclass(frozen=True, slots=True)
class ContainerConfig:
    name: str
    attempt: int
    image: str  # as written in the pod
    image_ref: str  # the id that the pull returned
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    env: tuple[tuple[str, str], ...] = ()
    mounts: tuple[Mount, ...] = ()
    devices: tuple[str, ...] = ()
    cdi_devices: tuple[str, ...] = ()  # by their names in CDI: vendor.com/class=device
    log_path: str = ""  # below the sandbox's log directory
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[PortMapping, ...] = ()  # declared ones; a simulated server listens on them
    init: bool = False  # the pod waits for its end; an unknown simulated program in it ends
    linux: LinuxContainer | None = None
    windows: WindowsContainer | None = None
    stop_signal: str = ""  # SIGUSR1, SIGRTMIN+3; "" for that of the image


@dataclass(frozen=True, slots=True)
class Sandbox:
    id: str
    config: SandboxConfig
    state: SandboxState
    created_at: float
    handler: str = ""
    ips: tuple[str, ...] = ()  # empty on the host's network


@dataclass(frozen=True, slots=True)
class LinuxContainerUser:
    uid: int
    gid: int
    supplemental_groups: tuple[int, ...]  # with the primary group


@dataclass(frozen=True, slots=True)
class Container:
    id: str
    sandbox_id: str
    name: str
    attempt: int
    state: ContainerState
    image: str
    image_ref: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    created_at: float
    started_at: float = 0.0
    finished_at: float = 0.0
    exit_code: int = 0
    reason: str = ""  # Completed, Error, OOMKilled, ContainerCannotRun, StartError
    message: str = ""
    log_path: str = ""  # whole
    mounts: tuple[Mount, ...] = ()
    stop_signal: str = ""  # "" if the runtime does not report it
    user: LinuxContainerUser | None = None  # of its first process; None if it is not reported


class Image(NamedTuple):
    id: str
    tags: tuple[str, ...]
    digests: tuple[str, ...]
    size: int
    uid: int | None = None  # a numeric user of the image
    username: str = ""
    user_unknown: bool = False  # the runtime has no configuration of the image: any user will do
    pinned: bool = False  # the runtime needs it: garbage collection leaves it alone


class AuthConfig(NamedTuple):
    username: str = ""
    password: str = ""
    server: str = ""


class ExecResult(NamedTuple):
    stdout: bytes
    stderr: bytes
    exit_code: int


class ContainerProcess(Protocol):
    """A command that runs in a container for a client, or an attached client of the container's own
    process.
    """

    def write(self, data: bytes) -> None:
        """Writes to its standard input. While `input_full`, the caller should wait."""

    @property
    def input_full(self) -> bool:
        """Whether much of the input has not been read yet."""

    async def input_drained(self) -> None:
        """Waits until the input is no longer full. May wait forever for a program that does not
        read.
        """

    def end_input(self) -> None: ...
    def resize(self, width: int, height: int) -> None: ...
    def hold(self, held: bool) -> None:
        """Pauses the output of a client that does not keep up, as a full pipe blocks a program."""

    async def wait(self) -> int:
        """The exit code, after all output was delivered. For attach: when the container has
        ended.
        """

    def close(self) -> None:
        """The client has disconnected: kills an exec'd command, leaves an attached container
        running.
        """


Output = Callable[[Literal["stdout", "stderr"], bytes], None]


class FilesystemUsage(NamedTuple):
    mount_point: str
    used: int
    inodes_used: int


class CpuUsage(NamedTuple):
    core_nanoseconds: int
    nano_cores: int | None


class SwapUsage(NamedTuple):
    usage: int
    limit: int | None  # None for no limit


class ContainerStats(NamedTuple):
    id: str
    name: str
    attempt: int
    labels: Mapping[str, str]
    time: float
    cpu: CpuUsage | None
    working_set: int | None
    usage: int = 0
    rss: int = 0
    page_faults: int = 0
    major_page_faults: int = 0
    paged: int = 0  # Windows: bytes in the page file
    processes: int = 1
    writable_layer: FilesystemUsage | None = None
    swap: SwapUsage | None = None  # None where the runtime does not report it


class InterfaceStats(NamedTuple):
    name: str
    rx_bytes: int
    tx_bytes: int
    rx_errors: int | None = None
    tx_errors: int | None = None


class SandboxStats(NamedTuple):
    id: str
    time: float
    interfaces: tuple[InterfaceStats, ...]


class RuntimeStatus(NamedTuple):
    """Empty texts mean ready; otherwise `REASON` and the message, as in CRI's conditions."""

    runtime_reason: str = ""
    runtime_message: str = ""
    network_reason: str = ""
    network_message: str = ""


class RuntimeEvent(NamedTuple):
    """An event that a kubelet should handle. `pod_uid` is the sandbox's."""

    kind: Literal["sandbox", "started", "died", "removed"]
    pod_uid: str
    container_id: str


class RuntimeVersion(NamedTuple):
    name: str  # docker, containerd
    version: str  # includes "sim" when simulated: "19.3.14-sim"


class ContainerRuntime(Protocol):
    @property
    def version(self) -> RuntimeVersion: ...
    def status(self) -> RuntimeStatus: ...

    # Sandboxes
    async def run_sandbox(self, config: SandboxConfig, handler: str = "") -> str: ...
    async def stop_sandbox(self, sandbox_id: str) -> None:
        """Kills its containers and removes its network. A no-op for an unknown sandbox."""

    async def remove_sandbox(self, sandbox_id: str) -> None: ...
    async def update_sandbox_resources(self, sandbox_id: str, resources: LinuxResources) -> None:
        """Changes the limits of a Linux pod as a whole."""

    def sandboxes(self, uid: str = "") -> Sequence[Sandbox]:
        """All sandboxes, or those of one pod; newest first."""

    # Containers
    async def create_container(self, sandbox_id: str, config: ContainerConfig) -> str: ...
    async def start_container(self, container_id: str) -> None: ...
    async def stop_container(self, container_id: str, grace: float) -> None: ...
    async def remove_container(self, container_id: str) -> None: ...
    async def update_container_resources(
        self, container_id: str, resources: LinuxResources | WindowsResources
    ) -> None:
        """Changes the limits of a running Linux container, or the CPUs of a Windows container."""

    def containers(self, uid: str = "") -> Sequence[Container]:
        """All containers, or those of one pod; newest first."""

    def container(self, container_id: str) -> Container | None: ...
    def reopen_log(self, container_id: str) -> None: ...
    def watch_log(self, container_id: str, listener: Callable[[], None]) -> Callable[[], None]:
        """Calls back after the container has written to its log, and after the log was reopened;
        call the result to stop.
        """

    # Commands
    async def exec_sync(
        self, container_id: str, command: Sequence[str], seconds: float = 0
    ) -> ExecResult:
        """Raises RuntimeFailure with the code DeadlineExceeded after this many seconds; 0 means no
        limit.
        """

    async def exec(
        self,
        container_id: str,
        command: Sequence[str],
        output: Output,
        *,
        stdin: bool = False,
        tty: bool = False,
    ) -> ContainerProcess: ...
    async def attach(
        self, container_id: str, output: Output, *, stdin: bool = False, tty: bool = False
    ) -> ContainerProcess: ...
    async def port_forward(self, sandbox_id: str, port: int) -> socket.socket:
        """A connection to a port in the sandbox. Raises RuntimeFailure (or returns a text on
        Windows without wincat) on failure.
        """

    # Images
    async def pull_image(
        self, image: str, auth: AuthConfig | None = None, sandbox: SandboxConfig | None = None
    ) -> str:
        """Returns its id. Raises NotFound, Unknown, Unavailable."""

    def image(self, image: str) -> Image | None:
        """By name, digest or id."""

    def images(self) -> Sequence[Image]: ...
    async def remove_image(self, image: str) -> None: ...
    def image_filesystem(self) -> FilesystemUsage: ...

    # Statistics and events
    def container_stats(self, uid: str = "") -> Sequence[ContainerStats]:
        """The statistics of running containers."""

    def sandbox_stats(self, uid: str = "") -> Sequence[SandboxStats]: ...
    def subscribe(self, listener: Callable[[RuntimeEvent], None]) -> Callable[[], None]:
        """Calls back immediately for each event; call the result to unsubscribe."""
