"""A real container as a program of the simulated runtime knows it: the `ProgramContext` of a stand-in."""

from __future__ import annotations

import os
import random
import re
import resource
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final, Literal, NamedTuple

from transom.kit.clock import Clock, RealClock
from transom.network.api import Accept, DnsConfig, PortMapping, Respond
from transom.network.resolver import Resolver, parse_resolv_conf
from transom.runtime.sim import resolve
from transom.runtime.sim.program_api import ImageInfo
from transom.runtime.wine import commandline
from transom.runtime.wine.standin import network
from transom.runtime.wine.standin.channel import Channel, Reader, numbers
from transom.runtime.wine.standin.drive import Drives
from transom.runtime.wine.standin.win32 import Input, Processes, Programs
from transom.windows import builds

PREFIX: Final = Path("/wine")
NOTE: Final = "a stand-in of Transom's, not Microsoft's PowerShell"
_CONSOLE_INPUT, _CONSOLE_OUTPUT = 1, 2
_BUILD: Final = re.compile(r'"CurrentBuild"="(\d+)"')
_UPDATE: Final = re.compile(r'"UBR"=dword:([0-9a-f]+)')
_AS_FAST_AS_IT_IS: Final = 1e12  # simulated programs wait for the time that they would take


class Greeting(NamedTuple):
    """What the Win32 half says first."""

    pid: int
    flags: int
    size: tuple[int, int]
    line: str
    program: str
    directory: str
    env: dict[str, str]


def greeting(content: bytes) -> Greeting:
    reader = Reader(content)
    pid, flags, columns, rows = (reader.number() for _ in range(4))
    line, program, directory = reader.text(), reader.text(), reader.text()
    env: dict[str, str] = {}
    while variable := reader.text():
        name, _, value = variable.partition("=")
        if name:  # `=C:` are the directories of drives
            env[name] = value
    return Greeting(pid, flags, (columns, rows), line, program, directory, env)


class RealUsage:
    """The kernel counts by itself."""

    def cpu(self, cores: float) -> None:
        return

    def thread(self, begins: bool) -> float:
        return _AS_FAST_AS_IT_IS

    def memory(self, size: int) -> bool:
        return True


class StandInContext:
    os: Literal["linux", "windows"] = "windows"
    main = False
    uid = gid = 0  # as all programs of Windows have it
    groups: Sequence[int] = ()
    privileged = net_admin = False
    no_new_privileges = True
    image = ImageInfo("", "windows", options={"note": NOTE}, userland="windows")
    sim: Mapping[str, str] = {}
    ports: Sequence[PortMapping] = ()
    credential_spec = ""
    machine = None

    def __init__(self, channel: Channel, said: Greeting, prefix: Path = PREFIX, clock: Clock | None = None) -> None:
        self._channel = channel
        self._prefix = prefix
        self._done: Callable[[], None] = channel.close
        self.argv = tuple(commandline.split(said.line)) or (said.program,)
        self.program = said.program
        self.env = said.env
        self.cwd = said.directory
        self.pid = said.pid
        self.user = self._variable("USERNAME")
        self.hostname = socket.gethostname()
        self.tty = said.flags & (_CONSOLE_INPUT | _CONSOLE_OUTPUT) == _CONSOLE_INPUT | _CONSOLE_OUTPUT
        self.tty_size = said.size
        self.files = Drives(prefix)
        self.clock: Clock = clock or RealClock()
        self.rng = random.Random()
        self.stdin = Input(channel)
        self.processes = Processes(channel, self.user)
        self.real = Programs(channel)
        self.usage = RealUsage()
        self.cpus = int(self._variable("NUMBER_OF_PROCESSORS") or 0) or os.cpu_count() or 1

    def _variable(self, name: str) -> str:
        return next((value for key, value in self.env.items() if key.lower() == name.lower()), "")

    @cached_property
    def ips(self) -> Sequence[str]:
        return network.own_addresses()

    @cached_property
    def dns(self) -> DnsConfig:
        try:
            return parse_resolv_conf(Path("/etc/resolv.conf").read_text())
        except OSError:
            return DnsConfig()

    @cached_property
    def build(self) -> str:
        """What the registry says; the last word counts."""
        try:
            content = (self._prefix / "system.reg").read_text("latin-1")
        except OSError:
            content = ""
        numbers, updates = _BUILD.findall(content), _UPDATE.findall(content)
        known = builds.BUILDS.get(int(numbers[-1]), builds.DEFAULT) if numbers else builds.DEFAULT
        return f"10.0.{known.number}.{int(updates[-1], 16) if updates else known.ubr}"

    @cached_property
    def memory_limit(self) -> int:
        limit = resource.getrlimit(resource.RLIMIT_DATA)[0]
        return limit if limit != resource.RLIM_INFINITY else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    @cached_property
    def container_id(self) -> str:
        try:
            path = Path("/proc/self/cgroup").read_text().splitlines()[0]
        except (OSError, IndexError):
            return ""
        return path.rpartition("/")[2]

    def out(self, data: bytes) -> None:
        self._channel.send("o", data)

    def err(self, data: bytes) -> None:
        self._channel.send("e", data)

    async def drain(self) -> None:
        await self._channel.drain()

    def on_exit(self, function: Callable[[], None]) -> None:
        self._done = function

    def exit(self, code: int) -> None:
        self._channel.send("x", numbers(code))
        self._channel.flush()
        self._done()

    def listen(self, port: int, accept: Accept, address: str = "") -> Callable[[], None]:
        return network.listen(port, accept, address)

    async def connect(self, host: str, port: int) -> socket.socket:
        return await network.connect(await self.resolve(host), port)

    async def ask(self, server: str, port: int, payload: bytes) -> bytes:
        return await network.ask(server, port, payload)

    async def echo(self, address: str, patience: float) -> bool:
        return await network.echo(address, patience)

    def answer(self, port: int, respond: Respond) -> Callable[[], None]:
        return network.answer(port, respond)

    async def resolve(self, name: str) -> list[str]:
        return await resolve.resolve(name, "windows", lambda: self.files, (self.hostname, self.ips), self._resolver)

    def _resolver(self) -> Resolver:
        return Resolver("windows", self.dns, self.clock, self.rng, self.ask, self.connect, "system")


def interrupted(context: StandInContext, signal: Callable[[str], None]) -> Callable[[bytes], None]:
    """What to do with CTRL+C: a program that runs in the foreground has been told by Windows itself."""

    def told(content: bytes) -> None:
        if not context.real.running:
            signal("CTRL_BREAK_EVENT" if Reader(content).number() else "CTRL_C_EVENT")

    return told
