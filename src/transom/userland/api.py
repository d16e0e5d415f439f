"""The interfaces between programs and the runtimes that run them.

A runtime calls `userland.start.start_program(context)` for a container's own command and for every exec'd one. A program
reaches its container only through the interfaces of its `ProgramContext`. Depends on no runtime. A program that only waits
for a connection or a timer holds no task.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Literal, Protocol

from transom.kit.clock import Clock
from transom.kit.lazy_dataclass import dataclass
from transom.kit.named_tuple import NamedTuple
from transom.kit.rpc import Answer
from transom.machines.api import ContainerFiles
from transom.machines.filesystems import FileSystem
from transom.machines.inodes import BlockContent
from transom.machines.power import PowerSwitch
from transom.network.api import Accept, DnsConfig, PortMapping, Respond

if TYPE_CHECKING:  # these need packages that Wine's stand-ins do not have
    from transom.machines.cpus import CpuSet, CpuTopology
    from transom.machines.files import FileTree
    from transom.machines.windows.accounts import WindowsUser as Account
    from transom.machines.windows.hns import HostNetworkService
    from transom.machines.windows.system import SystemResources, WindowsSystem
    from transom.network.stacks import NetworkStack
    from transom.userland.csi_storage import CsiStorage
    from transom.userland.network_view import NetworkView

Os = Literal["linux", "windows"]

Signal = str
"""By name: SIGTERM, SIGHUP, SIGINT, SIGKILL, SIGUSR1, SIGWINCH. On Windows CTRL_C_EVENT, CTRL_BREAK_EVENT,
CTRL_CLOSE_EVENT and CTRL_SHUTDOWN_EVENT."""

Userland = Literal["busybox", "gnu", "nanoserver", "servercore", "windows", "none", "any"]
"""The commands that an image contains: busybox (also Alpine), gnu (Debian and similar), the three Windows base images, none
(only its own program), or any: the image is unknown, so every command is available. On Windows, busybox is Nano Server with
PowerShell and busybox's tools in `C:\\bin`, like Kubernetes' own test images."""


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """What a program can find out about its image."""

    name: str  # "docker.io/library/nginx:1.19"
    os: Os
    program: str = ""  # the behaviour of its entrypoint: "nginx", "pause", "agnhost"; "" if unknown
    options: Mapping[str, str] = field(default_factory=dict)  # of the program, from the catalogue
    userland: Userland = "any"
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()


class Stdin(Protocol):
    """Standard input. A terminal's line editing, echo and control keys are already processed."""

    async def read(self, size: int = 65536) -> bytes:
        """Waits for at least one byte; b"" at the end, or immediately if standard input is not
        open.
        """

    async def readline(self) -> bytes:
        """One line with its line end; the last line may have none."""


class TerminalAccess(Protocol):
    """Standard input and output of a program."""

    @property
    def stdin(self) -> Stdin: ...
    @property
    def tty(self) -> bool: ...
    @property
    def tty_size(self) -> tuple[int, int]:
        """Columns and rows. SIGWINCH reports a change on Linux."""

    def out(self, data: bytes) -> None:
        """To standard output. "\\n" ends lines on both systems' pipes unless the program writes something else."""

    def err(self, data: bytes) -> None: ...
    async def drain(self) -> None:
        """Waits until the reader of the output has caught up. Programs that write a lot await it regularly."""


class OpenSocket(NamedTuple):
    """A socket that waits for connections or datagrams, or a connection."""

    protocol: Literal["tcp", "udp"]
    address: str  # "0.0.0.0" for all addresses
    port: int
    pid: int = 0  # 0 if unknown
    peer: str = ""  # of a connection
    peer_port: int = 0
    state: str = ""  # of a connection: ESTABLISHED, CLOSE_WAIT
    program: str = ""  # instead of the pid, of a program of the node


class StackView(NamedTuple):
    """The links, addresses and routes of a network, which commands show and change."""

    stack: NetworkStack
    owner: Callable[[str], NetworkStack | None]  # of an address, anywhere in the cluster


class NetworkAccess(Protocol):
    """The network of the sandbox (or of the machine) that a program runs in."""

    @property
    def hostname(self) -> str: ...
    @property
    def ips(self) -> Sequence[str]: ...
    @property
    def dns(self) -> DnsConfig: ...
    @property
    def ports(self) -> Sequence[PortMapping]:
        """The ports that the container declares. A server of an unknown image listens on them."""

    def listen(self, port: int, accept: Accept, address: str = "") -> Callable[[], None]:
        """Listens on all addresses of the sandbox, or on one ("127.0.0.1": only from inside). Returns a function that closes
        the listener; it is also closed when the program ends. Raises OSError(EADDRINUSE), and OSError(EACCES) for a
        privileged port."""

    def answer(self, port: int, respond: Respond) -> Callable[[], None]:
        """Answers UDP datagrams on all addresses of the sandbox, until the program ends or the result is called."""

    def sockets(self) -> Sequence[OpenSocket]:
        """The sockets that wait for connections or datagrams, and the connections, of all programs
        in this network.
        """

    def traffic(self) -> tuple[int, int]:
        """Bytes received and sent."""

    def stack_view(self) -> StackView | None:
        """None where the network is that of the machine that Wine runs on."""

    async def connect(self, host: str, port: int) -> socket.socket:
        """`host` is an address, "localhost" or a name to resolve. Raises OSError, also socket.gaierror."""

    async def ask(self, server: str, port: int, payload: bytes) -> bytes:
        """Sends one datagram to an address and returns the reply."""

    async def echo(self, address: str, patience: float) -> bool:
        """Sends one ICMP echo request; whether a reply arrived within `patience` seconds."""

    async def resolve(self, name: str) -> list[str]:
        """Addresses from the hosts file, then from the pod's DNS. Raises socket.gaierror when there are none."""


class ProcessEntry(NamedTuple):
    pid: int
    parent: int
    user: str
    argv: tuple[str, ...]
    started: float  # clock.time()
    memory: int
    handles: int = 60
    cpu: float = 0.03  # seconds
    system: bool = False  # a process of Windows itself, which cannot be terminated


class ProcessTable(Protocol):
    """The processes that see each other: those of a container, or of a pod with a shared process namespace."""

    def list(self) -> Sequence[ProcessEntry]: ...
    def add(self, argv: Sequence[str], parent: int, signal: Callable[[str], None]) -> int:
        """Adds a child process of a program and returns its pid."""

    def remove(self, pid: int) -> None: ...
    def output(self, pid: int, number: int) -> Callable[[bytes], None] | None:
        """The standard output (1) or error (2) of a process, for other processes to write to."""

    def signal(self, pid: int, name: Signal) -> bool:
        """False when there is no such process. SIGKILL to a main process ends the container, as does its own reaction
        to another signal; on Linux, pid 1 ignores SIGKILL from within its own container."""


class ResourceMeter(Protocol):
    """The resources that a program uses. They are released when it ends."""

    def cpu(self, cores: float) -> None:
        """From now on the program keeps this many cores busy (0 at the start)."""

    def thread(self, begins: bool) -> float:
        """One more, or one less, of its threads computes without a pause, in addition to `cpu`. Returns the share of a
        processor that each thread gets under the container's limit."""

    def memory(self, size: int) -> bool:
        """The program now holds this many bytes. Beyond the limit, Linux kills the container (the context is then dead);
        on Windows the result is False, nothing has changed, and the program handles the failed allocation."""


class Credentials(Protocol):
    """The user that a program runs as."""

    @property
    def user(self) -> str:
        """ "root", "1000", "ContainerAdministrator"."""

    @property
    def uid(self) -> int:
        """Linux; 0 on Windows."""

    @property
    def gid(self) -> int: ...
    @property
    def groups(self) -> Sequence[int]: ...
    @property
    def privileged(self) -> bool: ...
    @property
    def net_admin(self) -> bool:
        """Whether it may change network settings."""

    @property
    def no_new_privileges(self) -> bool:
        """Whether setuid bits are ignored."""


class PlatformInfo(Protocol):
    """The operating system and hardware as a program sees them."""

    @property
    def build(self) -> str:
        """Windows: "10.0.17763.1697", as the container sees it; Linux: the kernel release."""

    @property
    def cpus(self) -> int: ...
    @property
    def cpuset(self) -> CpuSet:
        """The CPUs on which it may run."""

    @property
    def cgroup_files(self) -> Mapping[str, str]:
        """Linux: files of its cgroup (v2) that the container's configuration defines."""

    @property
    def cpu_topology(self) -> CpuTopology:
        """Linux: of the machine."""

    @property
    def memory_limit(self) -> int:
        """Bytes: the container's limit, or the machine's memory."""

    @property
    def machine_resources(self) -> SystemResources:
        """The resources of the machine, also for a container: Linux shows them to all."""

    @property
    def sysctls(self) -> Mapping[str, str]:
        """Linux: kernel parameters that the pod sets."""

    @property
    def oom_score_adjustment(self) -> int:
        """Linux: how much more likely the kernel ends it when memory runs out; -1000 to 1000."""

    @property
    def container_id(self) -> str:
        """ "" outside of containers."""

    @property
    def user_namespace(self) -> tuple[int, int] | None:
        """Linux: the first id of the node that is mapped, and how many; None without a user
        namespace."""


class LaunchedProcess(Protocol):
    """A process that another one has started, and that keeps running when its parent ends."""

    @property
    def pid(self) -> int: ...
    async def wait(self) -> int:
        """The exit code. Several callers may await it."""

    def end(self) -> None:
        """Terminates it."""


class WindowsAccess(Protocol):
    """What only programs on Windows use."""

    @property
    def network(self) -> NetworkView:
        """Interfaces, routes and neighbours, as they are now."""

    @property
    def system(self) -> WindowsSystem:
        """Registry, accounts, services and event logs, of the container or the machine."""

    @property
    def resources(self) -> SystemResources:
        """Memory, disk and processor time, as they are now."""

    @property
    def account(self) -> Account:
        """The account that the program runs as."""

    @property
    def ntfs(self) -> FileTree | None:
        """The files, with what NTFS has beyond `ContainerFiles`: access control lists, attributes, short names. None where
        files are those of the machine that Wine runs on."""

    @property
    def credential_spec(self) -> str:
        """JSON, of a group managed service account; "" for none."""

    @property
    def power(self) -> PowerSwitch | None:
        """To shut down the container, or the machine of a program outside of containers. None where the programs of Windows
        itself do it."""

    def launch(
        self,
        argv: Sequence[str],
        account: Account,
        env: Mapping[str, str],
        cwd: str,
        output: Callable[[bytes], None],
        stdin: Stdin | None = None,
    ) -> LaunchedProcess:
        """Starts an independent process. Raises FileNotFoundError or PermissionError."""


class VolumeAccess(Protocol):
    """What CSI drivers use: Unix sockets, disks and mounts."""

    @property
    def csi_storage(self) -> CsiStorage:
        """The storage behind simulated CSI drivers, the same for all nodes."""

    def serve_socket(self, path: str, answer: Answer) -> None:
        """Answers calls on a Unix socket of the container's files, replacing an existing one, until the program ends."""

    def dial_socket(self, path: str) -> Answer:
        """The server of a Unix socket of the container's files. Raises OSError when nothing listens."""

    def new_file_system(self, size: int) -> FileSystem:
        """An empty one, formatted by this container's operating system."""

    def mount(self, system: FileSystem, path: str, read_only: bool = False) -> None:
        """Mounts a file system on a directory. On Linux the container must be privileged, and the node sees the mount if
        the directory is in a volume with bidirectional propagation; on Windows csi-proxy mounts it on the node. Raises
        OSError with the text of the program that refuses."""

    def make_device(self, blocks: BlockContent, path: str) -> None:
        """A block device of the node, for a privileged container on Linux. Raises OSError."""

    def unmount(self, path: str) -> None:
        """No error if nothing is mounted there."""


class AttachedDisk(NamedTuple):
    number: int
    model: str
    serial: str
    location: str
    size: int
    free: int
    partition_style: str
    file_system: str
    letter: str
    volume: str  # \\\\?\\Volume{GUID}, where it has no letter


class MappingError(Exception):
    """A Windows system error."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class RemoteStorage(Protocol):
    """The SMB shares and disks that a machine can reach."""

    def mappings(self) -> Mapping[str, str]:
        """Windows: remote paths, in lower case, and the user of each global mapping."""

    def map_share(self, path: str, user: str, password: str, drive: str = "") -> None:
        """Windows, with a drive letter if one is given. Raises MappingError."""

    def drive_of(self, path: str) -> str:
        """The drive letter of a mapping, if it has one."""

    def unmap_share(self, path: str) -> bool: ...
    def disks(self) -> Sequence[AttachedDisk]:
        """Windows: the system disk and those that the cloud has attached."""

    def mount_share(
        self, path: str, target: str, user: str, password: str, *, read_only: bool = False
    ) -> None:
        """Linux. Raises OSError, as mount.cifs would report it."""

    def connect_lun(self, portal: str, target: str, lun: int, file_system: str = "NTFS") -> str:
        """The volume on an iSCSI LUN, formatted if it is new. Raises OSError."""


class ComputeSystemInfo(Protocol):
    """A container or virtual machine of the host compute service."""

    @property
    def id(self) -> str: ...
    @property
    def owner(self) -> str: ...
    @property
    def virtual_machine(self) -> bool: ...
    @property
    def runtime_id(self) -> str: ...


class WindowsNodeAccess(Protocol):
    """What programs on a Windows node see in addition to what programs in its containers see."""

    @property
    def hns(self) -> HostNetworkService:
        """The host networking service, with the networks as they are now."""

    def sessions(self) -> Mapping[int, int]:
        """The sessions of processes that are not in session 0, by pid: each container has one of its own."""

    def compute_systems(self) -> Iterable[ComputeSystemInfo]: ...


class NodeAccess(Protocol):
    """A machine as programs that run outside of its containers see it."""

    def set_time(self, moment: float) -> None:
        """Sets the machine's clock."""

    @property
    def power(self) -> PowerSwitch:
        """To restart the machine or switch it off."""

    @property
    def storage(self) -> RemoteStorage | None: ...
    @property
    def mounts(self) -> FileTree:
        """The machine's files, for mount and umount."""

    @property
    def windows(self) -> WindowsNodeAccess | None: ...


class NativeService(NamedTuple):
    name: str
    display_name: str
    state: str


class NativeSystem(Protocol):
    """A container whose programs are real Win32 processes. Our programs there only replace what Wine lacks."""

    def services(self) -> Sequence[NativeService]: ...


class ProgramContext(Protocol):
    """Everything that a program can see and do, grouped by interface. `exit` may be called while `start_program` runs."""

    argv: tuple[str, ...]  # never empty

    @property
    def env(self) -> dict[str, str]:
        """The program's own copy; on Windows, names are case-insensitive."""

    @property
    def cwd(self) -> str: ...
    @property
    def main(self) -> bool:
        """Whether this is the container's own process rather than an exec'd one."""

    @property
    def pid(self) -> int:
        """As seen inside; 1 for a Linux container's own process."""

    @property
    def os(self) -> Os: ...
    @property
    def image(self) -> ImageInfo: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def rng(self) -> random.Random: ...
    @property
    def files(self) -> ContainerFiles: ...
    @property
    def terminal(self) -> TerminalAccess: ...
    @property
    def network(self) -> NetworkAccess: ...
    @property
    def processes(self) -> ProcessTable: ...
    @property
    def usage(self) -> ResourceMeter: ...
    @property
    def credentials(self) -> Credentials: ...
    @property
    def platform(self) -> PlatformInfo: ...
    @property
    def windows(self) -> WindowsAccess:
        """Only on Windows."""

    @property
    def volumes(self) -> VolumeAccess | None:
        """In simulated containers."""

    @property
    def node(self) -> NodeAccess | None:
        """Outside of containers."""

    @property
    def native(self) -> NativeSystem | None:
        """In containers with real Win32 processes."""

    def start(self, context: ProgramContext) -> Program:
        """Starts another program within this one. Raises what `StartProgram` raises."""

    def exit(self, code: int) -> None:
        """The program has ended; later calls do nothing. 128 + signal when a signal ended it. The runtime releases what
        the program got through this context: listeners are closed, memory is free."""


class Program(Protocol):
    """A running program. It ends by calling `context.exit`."""

    def signal(self, name: Signal) -> None:
        """It may ignore it, end immediately or end later. A Linux program that is pid 1 and has no
        handler ignores it.
        """

    def kill(self) -> None:
        """Cancels its timers and tasks and closes its connections. It need not call `context.exit`."""


class StartProgram(Protocol):
    """`userland.start.start_program`."""

    def __call__(self, context: ProgramContext) -> Program:
        """Raises FileNotFoundError when `argv[0]` is not a program of this container, PermissionError when it is not
        executable, IsADirectoryError; the runtime reports them in its own words."""
