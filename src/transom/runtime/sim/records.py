"""Sandboxes and containers as the engine keeps them. No behaviour but their views for CRI."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from transom.hosts.container_files import LayeredFiles
from transom.kit.clock import Timer
from transom.runtime.api import Container, ContainerConfig, ContainerState, Sandbox, SandboxConfig, SandboxState
from transom.runtime.sim.catalogue import Spec
from transom.runtime.sim.logs import ContainerLog
from transom.runtime.sim.sockets import NetworkNamespace
from transom.runtime.sim.table import Table

if TYPE_CHECKING:
    from transom.runtime.sim.context import Context
    from transom.runtime.sim.meter import Meter
    from transom.runtime.sim.streams import Client, Input
    from transom.runtime.sim.terminal import Terminal
    from transom.runtime.sim.users import Identity


class Isolation(NamedTuple):
    """Of a Windows sandbox. `build` is the kernel's; a machine of its own takes older images, too."""

    hyperv: bool = False
    build: int = 0
    exact: bool = True


class SandboxRecord:
    __slots__ = (
        "_view", "addresses", "borrows_address", "config", "containers", "created", "handler", "id", "image", "isolation",
        "namespace", "networked", "state", "table",
    )  # fmt: skip

    def __init__(self, identity: str, config: SandboxConfig, handler: str, created: float, image: Spec) -> None:
        self.id = identity
        self.config = config
        self.handler = handler
        self.created = created
        self.image = image
        self.state: SandboxState = "notready"
        self.addresses: tuple[str, ...] = ()
        self.namespace: NetworkNamespace | None = None
        self.networked = False  # the network plugin has given it something
        self.isolation = Isolation()
        self.borrows_address = False  # it is its container's, and there while that one runs
        self.containers: list[ContainerRecord] = []
        self.table: Table | None = None  # when its containers share processes
        self._view: Sandbox | None = None

    def view(self) -> Sandbox:
        view = self._view
        if view is None:
            shown = self.addresses if not self.borrows_address or self._runs() else ()
            view = self._view = Sandbox(self.id, self.config, self.state, self.created, self.handler, shown)
        return view

    def _runs(self) -> bool:
        return any(container.state == "running" for container in self.containers)

    def changed(self) -> None:
        self._view = None


class ContainerRecord:
    __slots__ = (
        "_view", "argv", "attached", "config", "context", "created", "credentials", "early_exit", "execs", "exit_code", "files",
        "finished", "id", "identity", "image_name", "image_ref", "input", "log", "message", "meter", "prepared", "reason",
        "sandbox", "spec", "started", "starting", "state", "table", "terminal", "timers", "waiters",
    )  # fmt: skip

    def __init__(self, identity: str, sandbox: SandboxRecord, config: ContainerConfig, spec: Spec, created: float) -> None:
        self.id = identity
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
        self.identity: Identity
        self.files: LayeredFiles
        self.prepared = False  # its own files in /etc are written
        self.log: ContainerLog
        self.credentials = ""  # the registry's value with its credential spec
        self.meter: Meter | None = None
        self.context: Context | None = None
        self.starting = False
        self.early_exit: int | None = None
        self.input: Input | None = None
        self.terminal: Terminal | None = None
        self.table: Table | None = None
        self.attached: tuple[Client, ...] = ()
        self.execs: tuple[Context, ...] = ()
        self.timers: tuple[Timer, ...] = ()
        self.waiters: list[asyncio.Future[None]] = []
        self._view: Container | None = None

    def view(self) -> Container:
        view = self._view
        if view is None:
            config = self.config
            view = self._view = Container(
                id=self.id,
                sandbox_id=self.sandbox.id,
                name=config.name,
                attempt=config.attempt,
                state=self.state,
                image=self.image_name,
                image_ref=self.image_ref,
                labels=config.labels,
                annotations=config.annotations,
                created_at=self.created,
                started_at=self.started,
                finished_at=self.finished,
                exit_code=int32(self.exit_code),
                reason=self.reason,
                message=self.message,
                log_path=self.log.path,
                mounts=config.mounts,
            )
        return view

    def changed(self) -> None:
        self._view = None
        self.sandbox.changed()


def int32(code: int) -> int:
    """CRI's exit codes are signed: 0xC000013A is -1073741510."""
    return (code + 0x80000000) % 0x100000000 - 0x80000000
