"""The state that all parts of one node's runtime share: the machine, the sandboxes and containers,
the event listeners.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Literal, Protocol

from transom.kit.clock import Clock
from transom.machines.windows.host import WindowsHost
from transom.network.api import Dataplane, PodNetwork
from transom.runtime.api import RuntimeEvent
from transom.runtime.sim.host import SimHost
from transom.runtime.sim.images import ImageStore
from transom.runtime.sim.records import ContainerProgram, SimContainer, SimSandbox
from transom.runtime.sim.resolve import Lookup
from transom.runtime.sim.sockets import NetworkNamespace
from transom.runtime.sim.system_ports import SystemPorts
from transom.runtime.sim.table import FIRST_WINDOWS_PID, ProcessIdTable, ProcessTableUsage
from transom.runtime.sim.texts import RuntimeTexts
from transom.userland.api import ProcessEntry, StartProgram, Stdin
from transom.userland.csi_storage import CsiStorage

if TYPE_CHECKING:
    from transom.runtime.sim.node_storage import NodeStorage
    from transom.runtime.sim.streams import ExecClient, Stream
    from transom.runtime.sim.terminal import Terminal
    from transom.runtime.sim.users import ContainerIdentity
    from transom.userland.network_view import Stacks


class LoginProgram(Protocol):
    """A program that runs on the machine itself."""

    def kill(self) -> None: ...


class CreateProgram(Protocol):
    """Creates the context of a program in a container, which is not started yet."""

    def __call__(
        self,
        core: SimCore,
        container: SimContainer,
        argv: tuple[str, ...],
        *,
        sink: Callable[[Stream, bytes], None],
        on_exit: Callable[[ContainerProgram, int], None],
        stdin: Stdin,
        pty: Terminal | None = None,
        main: bool = False,
        client: ExecClient | None = None,
        sim: Mapping[str, str] = ...,
        ready_delay: float = 0.0,
        identity: ContainerIdentity | None = None,
        directory: str = "",
    ) -> ContainerProgram: ...


OutOfMemory = Callable[["SimCore", SimContainer, ContainerProgram], None]


class SimCore:
    __slots__ = (
        "_on_out_of_memory",
        "build",
        "by_uid",
        "clock",
        "containers",
        "create_program",
        "csi_storage",
        "dataplane",
        "docker",
        "host",
        "images",
        "logins",
        "lookup",
        "network",
        "node_namespace",
        "pids",
        "rng",
        "sandboxes",
        "stacks",
        "start",
        "storage",
        "subscribers",
        "system_ports",
        "texts",
        "version",
        "windows",
    )

    def __init__(
        self,
        host: SimHost,
        clock: Clock,
        rng: random.Random,
        network: PodNetwork,
        dataplane: Dataplane,
        texts: RuntimeTexts,
        images: ImageStore,
        addresses: Sequence[str],
        start: StartProgram,
        lookup: Lookup | None,
        create_program: CreateProgram,
        on_out_of_memory: OutOfMemory,
        *,
        docker: bool,
        csi_storage: CsiStorage,
        version: tuple[int, ...] = (),
        stacks: Stacks | None = None,
        storage: NodeStorage | None = None,
    ) -> None:
        self.host = host
        self.clock = clock
        self.rng = rng
        self.network = network
        self.dataplane = dataplane
        self.texts = texts
        self.images = images
        self.docker = docker
        self.version = version  # of the runtime
        self.csi_storage = csi_storage
        self.stacks = stacks
        self.storage = storage
        # of a Windows machine: its containers share its kernel
        self.pids = count(FIRST_WINDOWS_PID, 4)
        self.windows = isinstance(host, WindowsHost)
        self.build = host.build.number if isinstance(host, WindowsHost) else 0
        self.start = start
        self.lookup = lookup
        self.sandboxes: dict[str, SimSandbox] = {}
        self.containers: dict[str, SimContainer] = {}
        self.by_uid: dict[str, list[SimSandbox]] = {}
        self.logins: set[LoginProgram] = set()
        self.subscribers: tuple[Callable[[RuntimeEvent], None], ...] = ()
        self.node_namespace = self.namespace(addresses)
        self.system_ports = SystemPorts(self.node_namespace)
        self.create_program = create_program
        self._on_out_of_memory = on_out_of_memory

    @property
    def os(self) -> Literal["linux", "windows"]:
        return "windows" if self.windows else "linux"

    def new_id(self) -> str:
        return f"{self.rng.getrandbits(256):064x}"

    def namespace(self, addresses: Sequence[str]) -> NetworkNamespace:
        return NetworkNamespace(self.dataplane, self.clock, addresses, self.host.slowdown)

    def emit(
        self,
        kind: Literal["sandbox", "started", "died", "removed"],
        sandbox: SimSandbox,
        container: str,
    ) -> None:
        if self.subscribers:
            event = RuntimeEvent(kind, sandbox.config.uid, container)
            for listener in self.subscribers:
                listener(event)

    def hostname_in(self, sandbox: SimSandbox) -> str:
        return sandbox.config.hostname or self.host.name

    def table_of(self, container: SimContainer) -> ProcessIdTable:
        sandbox = container.sandbox
        shared = sandbox.config.linux.share_processes and not self.windows
        holder = sandbox if shared else container
        if holder.table is None:
            pause = (
                ProcessEntry(1, 0, "root", ("/pause",), sandbox.created, 1 << 19)
                if shared
                else None
            )
            use = (lambda: _use(container)) if self.windows else None
            pids = self.pids if self.windows and not sandbox.isolation.hyperv else None
            holder.table = ProcessIdTable(
                self.host.time, windows=self.windows, first=pause, use=use, pids=pids
            )
        return holder.table

    def out_of_memory(self, container: SimContainer, program: ContainerProgram) -> None:
        self._on_out_of_memory(self, container, program)


def _use(container: SimContainer) -> ProcessTableUsage:
    meter = container.meter
    return (
        ProcessTableUsage(meter.working_set, meter.system_memory, meter.cpu_seconds)
        if meter is not None
        else ProcessTableUsage(0, 0, 0.0)
    )
