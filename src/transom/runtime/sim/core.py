"""What all parts of one node's runtime share: the machine, the sandboxes and containers, who wants to hear of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from transom.hosts.linux import LinuxHost
from transom.hosts.windows.host import WindowsHost
from transom.kit.clock import Clock
from transom.network.api import Dataplane, PodNetwork
from transom.runtime.api import Event
from transom.runtime.sim.images import ImageStore
from transom.runtime.sim.program_api import ProcessEntry, Start
from transom.runtime.sim.records import ContainerRecord, SandboxRecord
from transom.runtime.sim.resolve import Lookup
from transom.runtime.sim.sockets import NetworkNamespace
from transom.runtime.sim.table import Table
from transom.runtime.sim.texts import Texts

if TYPE_CHECKING:
    from transom.runtime.sim.context import Context
    from transom.runtime.sim.login.context import LoginContext

SimHost = LinuxHost | WindowsHost


class Core:
    __slots__ = (
        "build", "by_uid", "clock", "containers", "dataplane", "docker", "host", "images", "logins", "lookup", "network",
        "node_namespace", "on_out_of_memory", "rng", "sandboxes", "start", "subscribers", "texts", "windows",
    )  # fmt: skip

    def __init__(
        self,
        host: SimHost,
        clock: Clock,
        rng: random.Random,
        network: PodNetwork,
        dataplane: Dataplane,
        texts: Texts,
        images: ImageStore,
        addresses: Sequence[str],
        start: Start,
        lookup: Lookup | None,
        *,
        docker: bool,
    ) -> None:
        self.host = host
        self.clock = clock
        self.rng = rng
        self.network = network
        self.dataplane = dataplane
        self.texts = texts
        self.images = images
        self.docker = docker
        self.windows = isinstance(host, WindowsHost)
        self.build = host.build.number if isinstance(host, WindowsHost) else 0
        self.start = start
        self.lookup = lookup
        self.sandboxes: dict[str, SandboxRecord] = {}
        self.containers: dict[str, ContainerRecord] = {}
        self.by_uid: dict[str, list[SandboxRecord]] = {}
        self.logins: set[LoginContext] = set()
        self.subscribers: tuple[Callable[[Event], None], ...] = ()
        self.node_namespace = self.namespace(addresses)
        self.on_out_of_memory: Callable[[ContainerRecord, Context], None] | None = None

    @property
    def os(self) -> Literal["linux", "windows"]:
        return "windows" if self.windows else "linux"

    def new_id(self) -> str:
        return f"{self.rng.getrandbits(256):064x}"

    def namespace(self, addresses: Sequence[str]) -> NetworkNamespace:
        return NetworkNamespace(self.dataplane, self.clock, addresses, self.host.slowdown)

    def emit(self, kind: Literal["sandbox", "started", "died", "removed"], sandbox: SandboxRecord, container: str) -> None:
        if self.subscribers:
            event = Event(kind, sandbox.config.uid, container)
            for listener in self.subscribers:
                listener(event)

    def hostname_in(self, sandbox: SandboxRecord) -> str:
        return sandbox.config.hostname or self.host.name

    def table_of(self, container: ContainerRecord) -> Table:
        sandbox = container.sandbox
        shared = sandbox.config.linux.share_processes and not self.windows
        holder = sandbox if shared else container
        if holder.table is None:
            pause = ProcessEntry(1, 0, "root", ("/pause",), sandbox.created, 1 << 19) if shared else None
            holder.table = Table(self.host.time, windows=self.windows, first=pause)
        return holder.table

    def out_of_memory(self, container: ContainerRecord, context: Context) -> None:
        if self.on_out_of_memory is not None:
            self.on_out_of_memory(container, context)
