"""`ProgramContext` of a program that runs on a simulated machine itself: the machine's own files, network and processes."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

from transom.hosts.files import FileTree
from transom.hosts.machine import HostClock
from transom.network.api import Accept, DnsConfig, PortMapping, Respond
from transom.network.resolver import Resolver
from transom.runtime.sim.core import Core
from transom.runtime.sim.environment import PATH
from transom.runtime.sim.login.machine import HOME, WindowsMachine
from transom.runtime.sim.program_api import ImageInfo, Program, Stdin
from transom.runtime.sim.resolve import connect, resolve, settings
from transom.runtime.sim.streams import Client, Speaker
from transom.runtime.sim.table import Table

_IMAGES: Final = {
    "windows": ImageInfo("", "windows", userland="windows"),
    "linux": ImageInfo("", "linux"),
}
_USERS: Final = {"windows": "Administrator", "linux": "root"}
_KILLED: Final = 137


class _Usage:
    """What it takes of the machine."""

    def __init__(self, core: Core) -> None:
        self._account = core.host.account("login")
        self.cores = 0.0
        self._threads = 0

    def cpu(self, cores: float) -> None:
        self.cores = cores
        self._account.set_cpu(self.cores + self._threads)

    def thread(self, begins: bool) -> float:
        self._threads += 1 if begins else -1
        self._account.set_cpu(self.cores + self._threads)
        return 1.0

    def memory(self, size: int) -> bool:
        return self._account.set_memory(size)

    @property
    def size(self) -> int:
        return self._account.memory

    def give_back(self) -> None:
        self._account.close()


class LoginContext(Speaker):
    """`machine` is the Windows machine; Linux ones have nothing that their commands would ask for."""

    main = False
    uid = gid = 0
    groups: Sequence[int] = ()
    privileged = net_admin = True
    no_new_privileges = False
    sim: Mapping[str, str] = {}
    ports: Sequence[PortMapping] = ()
    container_id = credential_spec = ""

    def __init__(
        self, core: Core, machine: WindowsMachine | None, processes: Table, argv: Sequence[str], client: Client, stdin: Stdin
    ) -> None:
        self.core = core
        self._client = client
        self._sink = client.said
        self.terminal = client.terminal
        self._closers: list[Callable[[], None]] = []
        self._usage: _Usage | None = None
        self.machine = machine
        self.processes = processes
        self.argv = tuple(argv)
        self.stdin = stdin
        self.done = False
        self.program: Program | None = None
        self.os: Literal["linux", "windows"] = core.os
        self.user = _USERS[self.os]
        self.image = _IMAGES[self.os]
        self.cwd = HOME if machine is not None else "/root"
        home = {"HOME": "/root", "USER": "root", "PATH": PATH, "TERM": "xterm", "HOSTNAME": core.host.name}
        self.env = machine.environment(self.user) if machine is not None else home
        self.started = core.host.time()
        self.pid = processes.enter(self)
        core.logins.add(self)

    # What it sees

    @property
    def hostname(self) -> str:
        return self.core.host.name

    @property
    def ips(self) -> Sequence[str]:
        return self.core.node_namespace.addresses

    @property
    def dns(self) -> DnsConfig:
        return settings(self.os, lambda: self.files, DnsConfig())

    @property
    def build(self) -> str:
        return self.core.host.identity.kernel_version

    @property
    def cpus(self) -> int:
        return self.core.host.hardware.cpus

    @property
    def memory_limit(self) -> int:
        return self.core.host.hardware.memory

    @property
    def files(self) -> FileTree:
        return self.core.host.files

    @property
    def clock(self) -> HostClock:
        return self.core.host.clock

    @property
    def rng(self) -> random.Random:
        return self.core.rng

    @property
    def usage(self) -> _Usage:
        if self._usage is None:
            self._usage = _Usage(self.core)
        return self._usage

    @property
    def memory(self) -> int:
        return self._usage.size if self._usage is not None else 0

    # What it does

    async def drain(self) -> None:
        await self._client.caught_up()

    def exit(self, code: int) -> None:
        if not self.done:
            self._release()
            self._client.finish(code)

    def listen(self, port: int, accept: Accept, address: str = "") -> Callable[[], None]:
        return self._closing(self.core.node_namespace.listen(port, accept, address))

    def answer(self, port: int, respond: Respond) -> Callable[[], None]:
        return self._closing(self.core.node_namespace.answer(port, respond))

    def _closing(self, close: Callable[[], None]) -> Callable[[], None]:
        self._closers.append(close)
        return close

    async def connect(self, host: str, port: int) -> socket.socket:
        return await connect(self.core.node_namespace, host, port, self.resolve)

    async def resolve(self, name: str) -> list[str]:
        return await resolve(name, self.os, lambda: self.files, (self.hostname, self.ips), self._resolver)

    def _resolver(self) -> Resolver:
        return Resolver(self.os, self.dns, self.clock, self.rng, self.ask, self.connect)

    async def ask(self, server: str, port: int, payload: bytes) -> bytes:
        return await self.core.node_namespace.ask(server, port, payload)

    async def echo(self, address: str, patience: float) -> bool:
        return await self.core.node_namespace.echo(address, patience)

    # What is done with it

    def signalled(self, name: str) -> None:
        """By another process, or from the keyboard."""
        if name == "SIGKILL":
            self.kill()
        elif self.program is not None:
            self.program.signal(name)

    def kill(self) -> None:
        """Whoever logged in has gone, somebody ended it, or the machine is off."""
        if not self.done:
            self._release()
            if self.program is not None:
                self.program.kill()
            self._client.finish(_KILLED)

    def _release(self) -> None:
        self.done = True
        for close in self._closers:
            close()
        self._closers.clear()
        self.processes.leave(self.pid)
        self.core.logins.discard(self)
        if self._usage is not None:
            self._usage.give_back()
