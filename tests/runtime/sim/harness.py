"""A runtime on an emulated machine in virtual time, with programs controlled by their first
argument.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from tests.runtime.tablenet import TableDataplane, TableNetwork

from transom.kit.clock import VirtualClock
from transom.machines.linux import LinuxHost
from transom.machines.windows.host import WindowsHost
from transom.runtime.api import (
    Container,
    ContainerConfig,
    ContainerProcess,
    ContainerRuntime,
    RuntimeEvent,
    SandboxConfig,
)
from transom.runtime.sim.engine import Flavour, SimRuntime
from transom.userland.api import Program, ProgramContext
from transom.windows.builds import BUILDS

T = TypeVar("T")
LOG_DIRECTORY = {"linux": "/var/log/pods/ns_web_uid-1", "windows": r"C:\var\log\pods\ns_web_uid-1"}


class Scripted:
    """`serve PORT [ADDRESS]`, `ignore`, `polite`, `say TEXT`, `exit N`, `eat BYTES`, `cat`,
    `missing`, `/no/path`, `denied`.
    """

    def __init__(self, context: ProgramContext) -> None:
        self.context = context
        self.killed = False
        self.received: list[str] = []
        verb, *rest = context.argv
        match verb:
            case "serve":
                context.network.listen(int(rest[0]), self.accept, *rest[1:])
            case "say":
                context.out(rest[0].encode())
            case "exit":
                context.exit(int(rest[0]))
            case "eat":
                if not context.usage.memory(int(rest[0])):
                    context.err(b"no memory\n")
            case "cat":
                self.task = asyncio.get_running_loop().create_task(self.cat())
            case "missing" | "/no/path":
                raise FileNotFoundError(verb)
            case "denied":
                raise PermissionError(verb)

    def accept(self, connection: socket.socket) -> None:
        connection.send(b"hello")
        connection.close()

    async def cat(self) -> None:
        while line := await self.context.stdin.readline():
            self.context.out(b"> " + line)
        self.context.exit(0)

    def signal(self, name: str) -> None:
        self.received.append(name)
        if self.context.argv[0] == "polite":
            self.context.exit(0 if name != "CTRL_SHUTDOWN_EVENT" else 0xC000013A)

    def kill(self) -> None:
        self.killed = True


@dataclass
class SimHarness:
    host: LinuxHost | WindowsHost
    clock: VirtualClock
    dataplane: TableDataplane
    network: TableNetwork
    runtime: SimRuntime
    programs: list[Scripted]
    events: list[tuple[str, str]] = field(default_factory=list)

    async def do(self, coroutine: Coroutine[Any, Any, T], seconds: float = 1.0) -> T:
        """Its answer, while time goes on by so much."""
        task = asyncio.get_running_loop().create_task(coroutine)
        await self.clock.run_for(seconds)
        assert task.done()
        return task.result()

    async def sandbox(self, handler: str = "", uid: str = "uid-1", **fields: Any) -> str:
        os = self.host.identity.operating_system
        self.host.files.mkdir(LOG_DIRECTORY[os])
        fields = {"hostname": "web", "log_directory": LOG_DIRECTORY[os], **fields}
        return await self.do(
            self.runtime.run_sandbox(SandboxConfig("web", "ns", uid, **fields), handler)
        )

    async def container(
        self, *command: str, image: str = "busybox", sandbox: str = "", **fields: Any
    ) -> str:
        """Started."""
        sandbox = sandbox or await self.sandbox(annotations=fields.pop("annotations", {}))
        reference = await self.do(self.runtime.pull_image(image))
        fields = {"attempt": 0, "log_path": "main_0.log", **fields}
        made = await self.runtime.create_container(
            sandbox,
            ContainerConfig("main", image=image, image_ref=reference, command=command, **fields),
        )
        await self.runtime.start_container(made)
        return made

    def state(self, container: str) -> Container:
        found = self.runtime.container(container)
        assert found is not None
        return found

    def log(self) -> str:
        os = self.host.identity.operating_system
        name = {"linux": "/", "windows": "\\"}[os] + "main_0.log"
        return self.host.files.read(LOG_DIRECTORY[os] + name).decode()

    async def exec(
        self, container: str, *command: str, **how: bool
    ) -> tuple[ContainerProcess, list[tuple[str, bytes]]]:
        printed: list[tuple[str, bytes]] = []
        process = await self.runtime.exec(
            container, command, lambda stream, data: printed.append((stream, data)), **how
        )
        return process, printed


def make(
    os: Literal["linux", "windows"] = "linux",
    flavour: Flavour = "docker",
    *,
    build: int = 17763,
    **options: Any,
) -> SimHarness:
    clock = VirtualClock()
    host: LinuxHost | WindowsHost
    host = (
        LinuxHost("node-1", clock)
        if os == "linux"
        else WindowsHost("win-1", clock, build=BUILDS[build])
    )
    dataplane = TableDataplane()
    network = TableNetwork(dataplane, "10.0.0.1", "10.244.1.0/24")
    programs: list[Scripted] = []

    def start(context: ProgramContext) -> Program:
        program = Scripted(context)
        programs.append(program)
        return program

    options = {"start": start, "addresses": ("10.0.0.1",), **options}
    runtime = SimRuntime(host, clock, random.Random(1), network, dataplane, flavour, **options)
    check: ContainerRuntime = runtime  # the seam, by type
    harness = SimHarness(host, clock, dataplane, network, runtime, programs)
    check.subscribe(lambda event: note(harness, event))
    return harness


def note(harness: SimHarness, event: RuntimeEvent) -> None:
    harness.events.append((event.kind, event.pod_uid))


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


def annotations(**values: str) -> Mapping[str, str]:
    return {f"sim.transom.dev/{key.replace('_', '-')}": value for key, value in values.items()}
