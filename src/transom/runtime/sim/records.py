"""Sandboxes and containers as the engine stores them. No behaviour except their CRI views."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from transom.kit.clock import Timer
from transom.kit.named_tuple import NamedTuple
from transom.machines.container_files import LayeredFiles
from transom.machines.power import PowerSwitch
from transom.runtime.api import (
    Container,
    ContainerConfig,
    ContainerState,
    LinuxContainerUser,
    Sandbox,
    SandboxConfig,
    SandboxState,
)
from transom.runtime.records import container_view
from transom.runtime.sim.catalogue import CatalogueImage
from transom.runtime.sim.logs import ContainerLog
from transom.runtime.sim.sockets import NetworkNamespace
from transom.runtime.sim.table import ProcessIdTable
from transom.runtime.sim.users import ContainerIdentity, linux_identity
from transom.userland.api import Program, ProgramContext

if TYPE_CHECKING:
    from transom.machines.windows.system import WindowsSystem
    from transom.runtime.sim.meter import ContainerMeter
    from transom.runtime.sim.streams import ExecClient, InputBuffer
    from transom.runtime.sim.terminal import Terminal


class WindowsIsolation(NamedTuple):
    """Of a Windows sandbox. `build` is the kernel's; a virtual machine also runs older images."""

    hyperv: bool = False
    build: int = 0
    exact: bool = True


class ContainerProgram(ProgramContext, Protocol):
    """A program in a container, as the runtime handles it."""

    program: Program | None
    done: bool

    @property
    def client(self) -> ExecClient | None: ...
    @property
    def memory(self) -> int: ...
    def out(self, data: bytes) -> None: ...
    def signalled(self, name: str) -> None:
        """By another process."""

    def kill(self) -> None:
        """Ends the program without calling `on_exit`."""

    def release(self) -> None:
        """Frees what the program has used; for one that did not start."""


class SimSandbox:
    __slots__ = (
        "_view",
        "addresses",
        "borrows_address",
        "config",
        "containers",
        "created",
        "handler",
        "host_process",
        "id",
        "image",
        "isolation",
        "namespace",
        "networked",
        "state",
        "table",
    )

    def __init__(
        self,
        identity: str,
        config: SandboxConfig,
        handler: str,
        created: float,
        image: CatalogueImage,
    ) -> None:
        self.id = identity
        self.config = config
        self.handler = handler
        self.created = created
        self.image = image
        self.state: SandboxState = "notready"
        self.addresses: tuple[str, ...] = ()
        self.namespace: NetworkNamespace | None = None
        self.networked = False  # the network plugin has allocated something for it
        self.isolation = WindowsIsolation()
        self.host_process = False  # its containers are processes of the node
        self.borrows_address = False  # belongs to its container, and exists while that one runs
        self.containers: list[SimContainer] = []
        self.table: ProcessIdTable | None = None  # when its containers share a pid namespace
        self._view: Sandbox | None = None

    def view(self) -> Sandbox:
        view = self._view
        if view is None:
            shown = self.addresses if not self.borrows_address or self._runs() else ()
            view = self._view = Sandbox(
                self.id, self.config, self.state, self.created, self.handler, shown
            )
        return view

    def _runs(self) -> bool:
        return any(container.state == "running" for container in self.containers)

    def changed(self) -> None:
        self._view = None


_VARIABLE = 100  # bytes that a variable takes besides its text


class SimContainer:
    __slots__ = (
        "_view",
        "argv",
        "attached",
        "config",
        "context",
        "created",
        "credentials",
        "early_exit",
        "environment_size",
        "execs",
        "exit_code",
        "files",
        "finished",
        "id",
        "identity",
        "image_name",
        "image_ref",
        "input",
        "log",
        "message",
        "meter",
        "power",
        "prepared",
        "reason",
        "sandbox",
        "spec",
        "started",
        "starting",
        "state",
        "system",
        "table",
        "terminal",
        "timers",
        "waiters",
    )

    def __init__(
        self,
        identity: str,
        sandbox: SimSandbox,
        config: ContainerConfig,
        spec: CatalogueImage,
        created: float,
    ) -> None:
        self.id = identity
        self.environment_size = sum(
            _VARIABLE + len(name) + len(value) for name, value in config.env
        )
        self.sandbox = sandbox
        self.config = config
        self.spec = spec
        self.created = created
        self.argv: tuple[str, ...] = ()
        self.image_name = config.image
        self.image_ref = config.image_ref
        self.state: ContainerState = "created"
        self.started = 0.0
        self.finished = 0.0
        self.exit_code = 0
        self.reason = ""
        self.message = ""
        self.identity: ContainerIdentity
        self.files: LayeredFiles
        self.prepared = False  # whether its own files in /etc are written
        self.log: ContainerLog
        self.credentials = ""  # the registry value with its credential spec
        self.meter: ContainerMeter | None = None
        self.power: PowerSwitch | None = None  # created on first use
        self.context: ContainerProgram | None = None
        self.starting = False
        self.early_exit: int | None = None
        self.input: InputBuffer | None = None
        self.terminal: Terminal | None = None
        self.table: ProcessIdTable | None = None
        self.system: WindowsSystem | None = None  # created on first use
        self.attached: tuple[ExecClient, ...] = ()
        self.execs: tuple[ContainerProgram, ...] = ()
        self.timers: tuple[Timer, ...] = ()
        self.waiters: list[asyncio.Future[None]] = []
        self._view: Container | None = None

    @property
    def host_process(self) -> bool:
        """Whether it is a process of the node."""
        return self.sandbox.host_process

    @property
    def user(self) -> LinuxContainerUser | None:
        if self.spec.platform.os != "linux":
            return None
        identity = linux_identity(self.config, self.spec)
        groups = dict.fromkeys((identity.gid, *identity.groups))
        return LinuxContainerUser(identity.uid, identity.gid, tuple(groups))

    @property
    def stop_signal(self) -> str:
        return self.config.stop_signal or self.spec.stop_signal

    def view(self) -> Container:
        if self._view is None:
            self._view = container_view(self, self.log.path)
        return self._view

    def changed(self) -> None:
        self._view = None
        self.sandbox.changed()
