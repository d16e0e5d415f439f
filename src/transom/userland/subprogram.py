"""Programs within programs: a server that a script starts, a command that a server runs."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from transom.kit.clock import Clock
from transom.machines.api import ContainerFiles
from transom.network.api import Accept, DnsConfig, PortMapping, Respond
from transom.userland.api import (
    Credentials,
    ImageInfo,
    NativeSystem,
    NetworkAccess,
    NodeAccess,
    OpenSocket,
    Os,
    PlatformInfo,
    ProcessTable,
    Program,
    ProgramContext,
    ResourceMeter,
    StackView,
    Stdin,
    TerminalAccess,
    VolumeAccess,
    WindowsAccess,
)
from transom.userland.process import Command, Process
from transom.userland.streams import BytesSource
from transom.userland.termination import termination_code

ProgramFactory = Callable[[ProgramContext], Program]


class _Streams:
    """Other streams on the same terminal."""

    def __init__(
        self,
        terminal: TerminalAccess,
        stdin: Stdin,
        out: Callable[[bytes], None],
        err: Callable[[bytes], None],
    ) -> None:
        self._terminal = terminal
        self.stdin = stdin
        self.out = out
        self.err = err
        self.tty = terminal.tty

    @property
    def tty_size(self) -> tuple[int, int]:
        return self._terminal.tty_size

    async def drain(self) -> None:
        await self._terminal.drain()


class _Listeners:
    """The same network; it closes what was opened through it when the inner program ends."""

    def __init__(self, network: NetworkAccess) -> None:
        self._network = network
        self._closers: list[Callable[[], None]] = []

    @property
    def hostname(self) -> str:
        return self._network.hostname

    @property
    def ips(self) -> Sequence[str]:
        return self._network.ips

    @property
    def dns(self) -> DnsConfig:
        return self._network.dns

    @property
    def ports(self) -> Sequence[PortMapping]:
        return self._network.ports

    def listen(self, port: int, accept: Accept, address: str = "") -> Callable[[], None]:
        close = self._network.listen(port, accept, address)
        self._closers.append(close)
        return close

    def answer(self, port: int, respond: Respond) -> Callable[[], None]:
        close = self._network.answer(port, respond)
        self._closers.append(close)
        return close

    def sockets(self) -> Sequence[OpenSocket]:
        return self._network.sockets()

    def traffic(self) -> tuple[int, int]:
        return self._network.traffic()

    def stack_view(self) -> StackView | None:
        return self._network.stack_view()

    async def connect(self, host: str, port: int) -> socket.socket:
        return await self._network.connect(host, port)

    async def ask(self, server: str, port: int, payload: bytes) -> bytes:
        return await self._network.ask(server, port, payload)

    async def echo(self, address: str, patience: float) -> bool:
        return await self._network.echo(address, patience)

    async def resolve(self, name: str) -> list[str]:
        return await self._network.resolve(name)

    def close(self) -> None:
        for close in self._closers:
            close()
        self._closers.clear()


class SubContext:
    """`ProgramContext` of a program within another one: the same container, but other arguments and streams."""

    main = False

    def __init__(
        self,
        outer: ProgramContext,
        argv: Sequence[str],
        env: dict[str, str],
        cwd: str,
        pid: int,
        stdin: Stdin,
        out: Callable[[bytes], None],
        err: Callable[[bytes], None],
        ended: Callable[[int], None],
    ) -> None:
        self._ended: Callable[[int], None] | None = ended
        self._outer = outer
        self._network = _Listeners(outer.network)
        self.argv = tuple(argv)
        self.env = env
        self.cwd = cwd
        self.pid = pid
        self.terminal = _Streams(outer.terminal, stdin, out, err)
        self.network: NetworkAccess = self._network
        self.os: Os = outer.os
        self.image: ImageInfo = outer.image
        self.clock: Clock = outer.clock
        self.rng: random.Random = outer.rng
        self.files: ContainerFiles = outer.files
        self.processes: ProcessTable = outer.processes
        self.usage: ResourceMeter = outer.usage
        self.credentials: Credentials = outer.credentials
        self.platform: PlatformInfo = outer.platform
        self.volumes: VolumeAccess | None = outer.volumes
        self.node: NodeAccess | None = outer.node
        self.native: NativeSystem | None = outer.native

    @property
    def windows(self) -> WindowsAccess:
        return self._outer.windows

    def start(self, context: ProgramContext) -> Program:
        return self._outer.start(context)

    def exit(self, code: int) -> None:
        ended, self._ended = self._ended, None
        self.release()
        if ended is not None:
            ended(code)

    def release(self) -> None:
        self._network.close()


def _settle(done: asyncio.Future[int], code: int) -> None:
    if not done.done():
        done.set_result(code)


def command_from_program(factory: ProgramFactory) -> Command:
    """A server program as a command."""

    async def run(process: Process) -> int:
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        context = SubContext(
            process.context,
            process.argv,
            process.env,
            process.cwd,
            process.pid,
            process.stdin,
            process.stdout.write,
            process.stderr.write,
            partial(_settle, done),
        )
        program = factory(context)

        def forward(name: str) -> bool:
            if termination_code(name, windows=process.windows) is not None:
                return False
            program.signal(name)
            return True

        process.handler = forward
        try:
            return await done
        finally:
            program.kill()
            context.release()

    return run


async def run_captured(context: ProgramContext, argv: Sequence[str]) -> tuple[int, bytes]:
    """Runs a command to its end; returns its exit code and both outputs together. Raises
    FileNotFoundError.
    """
    output = bytearray()
    return await run_below(context, argv, {}, output.extend), bytes(output)


async def run_below(
    context: ProgramContext,
    argv: Sequence[str],
    variables: Mapping[str, str],
    output: Callable[[bytes], None],
) -> int:
    """Runs a command to its end, with these variables in addition; returns its exit code. Raises
    FileNotFoundError.
    """
    done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    pid = context.processes.add(argv, context.pid, lambda name: program.signal(name))
    inner = SubContext(
        context,
        argv,
        {**context.env, **variables},
        context.cwd,
        pid,
        BytesSource(),
        output,
        output,
        partial(_settle, done),
    )
    try:
        program = context.start(inner)
        try:
            return await done
        finally:
            program.kill()
            inner.release()
    finally:
        context.processes.remove(pid)
