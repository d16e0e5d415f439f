"""What a simulated program is given and what is asked of it: the border between the engine and `programs/`.

The engine (sandboxes, containers, streams, logs) calls `programs.start(context)` for a container's own command and for
every exec'd one. A program sees its container only through its `ProgramContext`; what it does with it is its own affair.
A program that waits for nothing but a connection or a timer holds no task.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from transom.hosts.api import ContainerFiles
from transom.hosts.filesystems import FileSystem
from transom.kit.clock import Clock
from transom.kit.rpc import Answer
from transom.network.api import Accept, DnsConfig, PortMapping, Respond

if TYPE_CHECKING:
    from transom.runtime.sim.login.machine import WindowsMachine

Signal = str
"""By name: SIGTERM, SIGHUP, SIGINT, SIGKILL, SIGUSR1, SIGWINCH. On Windows CTRL_C_EVENT, CTRL_BREAK_EVENT,
CTRL_CLOSE_EVENT and CTRL_SHUTDOWN_EVENT."""

Userland = Literal["busybox", "gnu", "nanoserver", "servercore", "windows", "none", "any"]
"""Which commands an image brings: busybox (also Alpine), gnu (Debian and its like), the three Windows bases, none
(nothing but its own program), or any: nobody knows the image, so every command that we know is taken to be there. On
Windows busybox is Nano Server with PowerShell and busybox's tools in `C:\\bin`, as Kubernetes' own tests have it."""


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """What a program may know of its image."""

    name: str  # "docker.io/library/nginx:1.19"
    os: Literal["linux", "windows"]
    program: str = ""  # how it behaves when its own entrypoint runs: "nginx", "pause", "agnhost"; "" unknown
    options: Mapping[str, str] = field(default_factory=dict)  # of the program, from the catalogue
    userland: Userland = "any"
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()


class Stdin(Protocol):
    """Standard input. A terminal's line editing, echo and control keys are done before it gets here."""

    async def read(self, size: int = 65536) -> bytes:
        """What is there, at least one byte; b"" at the end, and at once when nobody keeps it open."""

    async def readline(self) -> bytes:
        """With its line end; the last line may have none."""


class ProcessEntry(NamedTuple):
    pid: int
    parent: int
    user: str
    argv: tuple[str, ...]
    started: float  # clock.time()
    memory: int
    handles: int = 250
    cpu: float = 0.5  # seconds


class ProcessTable(Protocol):
    """The processes that see each other: those of a container, or of a pod that shares them."""

    def list(self) -> Sequence[ProcessEntry]: ...
    def add(self, argv: Sequence[str], parent: int, signal: Callable[[str], None]) -> int:
        """A child of a program, for as long as it wants to show it. Its pid."""

    def remove(self, pid: int) -> None: ...
    def output(self, pid: int, number: int) -> Callable[[bytes], None] | None:
        """Where the process with this pid writes its standard output (1) or error (2), for others to write there too."""

    def signal(self, pid: int, name: Signal) -> bool:
        """False when there is no such process. SIGKILL to a main process ends the container, as does its own reaction
        to another signal; pid 1 never dies of SIGKILL from within its own container on Linux."""


class Usage(Protocol):
    """What the program costs. Nothing of it needs to be undone at the end."""

    def cpu(self, cores: float) -> None:
        """From now on it keeps so many cores busy (0 at the start)."""

    def thread(self, begins: bool) -> float:
        """One more, or one less, of its threads computes without a pause, beside the above. The answer is the part of a
        processor that each gets under the container's limit."""

    def memory(self, size: int) -> bool:
        """It now holds so many bytes. On Linux past the limit the container is killed (the context is then dead); on
        Windows the answer is False, nothing has changed, and the program does what it does when an allocation fails."""


class ProgramContext(Protocol):
    """All that a program can see and do. `exit` may be called while `start` still runs."""

    argv: tuple[str, ...]  # never empty
    env: dict[str, str]  # the program's own copy; on Windows names compare without case
    cwd: str
    main: bool  # the container's own process, not an exec'd one
    pid: int  # as seen inside; 1 for a Linux container's own process
    os: Literal["linux", "windows"]
    user: str  # "root", "1000", "ContainerAdministrator"
    uid: int  # Linux
    gid: int
    groups: Sequence[int]
    privileged: bool
    net_admin: bool  # may change the network's settings
    no_new_privileges: bool  # a file's owner gives nothing to who runs it
    image: ImageInfo
    sim: Mapping[str, str]  # annotations `sim.transom.dev/KEY` that apply to this container, by KEY; empty when exec'd.
    # The engine itself acts on exit-code, run-time, crash, ready-delay, log-*, cpu, memory and fail-*: programs do not
    ports: Sequence[PortMapping]  # that the container declares; a server of an unknown image listens on them
    hostname: str
    ips: Sequence[str]  # of the sandbox; of the machine on the host's network
    dns: DnsConfig
    build: str  # Windows: "10.0.17763.1697" as the container sees it; Linux: the kernel's release
    cpus: int
    memory_limit: int  # bytes that can be had at all: the container's limit, or the machine's memory
    container_id: str
    files: ContainerFiles
    clock: Clock
    rng: random.Random
    stdin: Stdin
    tty: bool
    tty_size: tuple[int, int]  # columns, rows; may change, with SIGWINCH
    processes: ProcessTable
    usage: Usage
    credential_spec: str  # Windows: of a group managed service account, JSON; "" for none
    machine: WindowsMachine | None  # the Windows machine that it runs on, outside of all containers

    def out(self, data: bytes) -> None:
        """To standard output. "\\n" ends lines on both systems' pipes unless the program writes something else."""

    def err(self, data: bytes) -> None: ...
    async def drain(self) -> None:
        """Returns when whoever reads the output has caught up. To be awaited now and then by one who writes a lot."""

    def exit(self, code: int) -> None:
        """The program has ended; later calls do nothing. 128 + signal when a signal ended it. The engine gives back
        what it got through this context: listeners are closed, memory is free."""

    def listen(self, port: int, accept: Accept, address: str = "") -> Callable[[], None]:
        """On all addresses of the sandbox, or one ("127.0.0.1": only from inside). The answer ends that.
        OSError(EADDRINUSE), OSError(EACCES) for a low port without the right. Ends by itself with the program."""

    async def connect(self, host: str, port: int) -> socket.socket:
        """As `Dataplane.connect`, from inside the sandbox: `host` is an address, "localhost" or a name to be resolved.
        Also raises socket.gaierror."""

    async def ask(self, server: str, port: int, payload: bytes) -> bytes:
        """One datagram to an address and one back, as `Dataplane.ask`, from inside the sandbox."""

    async def echo(self, address: str, patience: float) -> bool:
        """One ICMP echo request from inside the sandbox; whether it was answered in so many seconds."""

    def serve_socket(self, path: str, answer: Answer) -> None:
        """Answers calls at a Unix socket of its files, in place of one that is there. Ends by itself with the program."""

    def dial_socket(self, path: str) -> Answer:
        """Who answers at a Unix socket of its files. OSError when nobody does."""

    def new_file_system(self, size: int) -> FileSystem:
        """An empty one, formatted by this container's operating system."""

    def mount(self, system: FileSystem, path: str, read_only: bool = False) -> None:
        """Shows a file system at a directory. On Linux that takes a privileged container, and the node sees it where the
        directory is in a mount that propagates to it; on Windows csi-proxy does it on the node. OSError, in the words of
        who refuses."""

    def unmount(self, path: str) -> None:
        """Nothing happens where nothing is mounted."""

    def answer(self, port: int, respond: Respond) -> Callable[[], None]:
        """Answers datagrams as `Dataplane.answer`, on all addresses of the sandbox. Ends by itself with the program."""

    async def resolve(self, name: str) -> list[str]:
        """Addresses, by the hosts file, then the pod's DNS. socket.gaierror when there are none."""


class Real(Protocol):
    """What a container that is no simulation has of its own, for programs that stand in there for what cannot be had."""

    def find(self, context: ProgramContext, name: str, cwd: str) -> Callable[[Any], Awaitable[int]]:
        """A command that runs a program which is really there. FileNotFoundError."""

    def services(self) -> Sequence[tuple[str, str, str]]:
        """Name, name to show and state of each."""


def real(context: ProgramContext) -> Real | None:
    """None in a simulation."""
    return getattr(context, "real", None)


class Program(Protocol):
    """A running program. It ends by `context.exit`."""

    def signal(self, name: Signal) -> None:
        """It may ignore it, end at once or end later. A Linux program that is pid 1 and has no handler ignores it."""

    def kill(self) -> None:
        """It is gone: timers and tasks are to be cancelled, connections closed. `context.exit` need not be called."""


class Start(Protocol):
    """`programs.start`."""

    def __call__(self, context: ProgramContext) -> Program:
        """Raises FileNotFoundError when `argv[0]` is no program of this container, PermissionError when it may not be
        run, IsADirectoryError; the engine has the runtime's words for it."""
