"""The `ProgramContext` of a stand-in: a real container, presented like one of the simulated
runtime.
"""

from __future__ import annotations

import os
import random
import re
import resource
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

from transom.kit.clock import Clock, RealClock
from transom.machines.cpus import CpuSet, CpuTopology
from transom.machines.windows.accounts import ADMINISTRATOR
from transom.machines.windows.accounts import WindowsUser as Account
from transom.machines.windows.system import SystemResources, WindowsSystem, fresh_system
from transom.network.api import Accept, DnsConfig, PortMapping, Respond
from transom.network.resolver import Resolver, read_resolv_conf
from transom.runtime.wine import commandline
from transom.runtime.wine.standin import network
from transom.runtime.wine.standin.channel import FrameReader, StandInChannel, encode_numbers
from transom.runtime.wine.standin.drive import Drives
from transom.runtime.wine.standin.win32 import StandardInput, Win32Processes, Win32Programs
from transom.userland.api import (
    ImageInfo,
    LaunchedProcess,
    OpenSocket,
    Os,
    Program,
    ProgramContext,
    Stdin,
)
from transom.userland.dns import resolve_name
from transom.userland.network_view import NetworkView, without_stack
from transom.windows import builds

PREFIX: Final = Path("/wine")
NOTE: Final = "a stand-in of Transom's, not Microsoft's PowerShell"
_CONSOLE_INPUT, _CONSOLE_OUTPUT = 1, 2
_BUILD: Final = re.compile(r'"CurrentBuild"="(\d+)"')
_UPDATE: Final = re.compile(r'"UBR"=dword:([0-9a-f]+)')
_AS_FAST_AS_IT_IS: Final = 1e12  # simulated programs wait as long as they would run


class StandInGreeting(NamedTuple):
    """The first message of the Win32 half."""

    pid: int
    flags: int
    size: tuple[int, int]
    line: str
    program: str
    directory: str
    env: dict[str, str]


def read_greeting(content: bytes) -> StandInGreeting:
    reader = FrameReader(content)
    pid, flags, columns, rows = (reader.number() for _ in range(4))
    line, program, directory = reader.text(), reader.text(), reader.text()
    env: dict[str, str] = {}
    while variable := reader.text():
        name, _, value = variable.partition("=")
        if name:  # `=C:` are the directories of drives
            env[name] = value
    return StandInGreeting(pid, flags, (columns, rows), line, program, directory, env)


class RealUsage:
    """The kernel does the accounting."""

    def cpu(self, cores: float) -> None:
        return

    def thread(self, begins: bool) -> float:
        return _AS_FAST_AS_IT_IS

    def memory(self, size: int) -> bool:
        return True


class RealNetwork:
    """`NetworkAccess`: the container's own network, with real sockets."""

    ports: Sequence[PortMapping] = ()

    def __init__(self, files: Drives, clock: Clock, rng: random.Random) -> None:
        self._files = files
        self._clock = clock
        self._rng = rng
        self.hostname = socket.gethostname()

    @cached_property
    def ips(self) -> Sequence[str]:
        return network.stand_in_addresses()

    @cached_property
    def dns(self) -> DnsConfig:
        try:
            return read_resolv_conf(Path("/etc/resolv.conf").read_text())
        except OSError:
            return DnsConfig()

    def listen(self, port: int, accept: Accept, address: str = "") -> Callable[[], None]:
        return network.listen_stand_in(port, accept, address)

    def answer(self, port: int, respond: Respond) -> Callable[[], None]:
        return network.answer_stand_in(port, respond)

    def sockets(self) -> Sequence[OpenSocket]:
        return network.open_sockets_text()

    def traffic(self) -> tuple[int, int]:
        return network.stand_in_traffic()

    def stack_view(self) -> None:
        return None

    async def connect(self, host: str, port: int) -> socket.socket:
        return await network.connect_stand_in(await self.resolve(host), port)

    async def ask(self, server: str, port: int, payload: bytes) -> bytes:
        return await network.ask_stand_in(server, port, payload)

    async def echo(self, address: str, patience: float) -> bool:
        return await network.ping_stand_in(address, patience)

    async def resolve(self, name: str) -> list[str]:
        own = self.hostname, self.ips
        return await resolve_name(name, "windows", lambda: self._files, own, self._resolver)

    def _resolver(self) -> Resolver:
        return Resolver(
            "windows", self.dns, self._clock, self._rng, self.ask, self.connect, "system"
        )


class RealWindows:
    """`WindowsAccess`: what Wine's own programs do not provide is that of a new container."""

    ntfs = None
    credential_spec = ""
    power = None

    def __init__(
        self,
        prefix: Path,
        clock: Clock,
        user: str,
        cpus: int,
        build: Callable[[], str],
        connections: RealNetwork,
        processes: Win32Processes,
    ) -> None:
        self._prefix = prefix
        self._clock = clock
        self._user = user
        self._cpus = cpus
        self._build = build
        self._connections = connections
        self._processes = processes

    @property
    def network(self) -> NetworkView:
        own = self._connections
        stack = without_stack(own.hostname, own.ips, network.gateway_address())
        registry = self.system.registry
        return NetworkView(
            stack, None, own.dns, lambda _address: None, machine=False, registry=registry
        )

    @cached_property
    def system(self) -> WindowsSystem:
        """The registry of an image, and the account."""
        build = builds.build_by_name(self._build()) or builds.DEFAULT
        # Every container has these two accounts.
        known = self._user.lower() in ("", "containeradministrator", "containeruser")
        own = self._connections
        return fresh_system(
            self._clock, build, own.hostname, own.dns.searches, () if known else (self._user,)
        )

    @property
    def account(self) -> Account:
        return self.system.accounts.identity(self._user) or ADMINISTRATOR

    @property
    def resources(self) -> SystemResources:
        page, pages = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_PHYS_PAGES")
        free = page * os.sysconf("SC_AVPHYS_PAGES")
        disk = os.statvfs(self._prefix if self._prefix.exists() else "/")
        used = sum(entry.memory for entry in self._processes.list())
        return SystemResources(
            total_memory=page * pages,
            free_memory=free,
            commit_limit=page * pages,
            committed=page * pages - free,
            page_file=0,
            page_file_used=0,
            disk=disk.f_blocks * disk.f_frsize,
            disk_free=disk.f_bavail * disk.f_frsize,
            cpus=self._cpus,
            boot_time=time.time() - time.monotonic(),
            cpu_seconds=time.process_time(),
            working_set=used,
        )

    def launch(
        self,
        argv: Sequence[str],
        account: Account,
        env: Mapping[str, str],
        cwd: str,
        output: Callable[[bytes], None],
        stdin: Stdin | None = None,
    ) -> LaunchedProcess:
        """Wine starts its programs itself."""
        raise FileNotFoundError(argv[0])


class StandInContext:
    """Also the `TerminalAccess`, `Credentials` and `PlatformInfo` of the program."""

    os: Os = "windows"
    main = False
    uid = gid = 0  # as for all Windows programs
    groups: Sequence[int] = ()
    privileged = net_admin = False
    no_new_privileges = True
    image = ImageInfo("", "windows", options={"note": NOTE}, userland="windows")
    volumes = None
    node = None

    def __init__(
        self,
        channel: StandInChannel,
        greeting: StandInGreeting,
        on_exit: Callable[[], None],
        prefix: Path = PREFIX,
        clock: Clock | None = None,
    ) -> None:
        self._channel = channel
        self._prefix = prefix
        self._on_exit = on_exit
        self.argv = tuple(commandline.split_windows_command_line(greeting.line)) or (
            greeting.program,
        )
        self.program = greeting.program
        self.env = greeting.env
        self.cwd = greeting.directory
        self.pid = greeting.pid
        self.user = self._variable("USERNAME")
        self.tty = (
            greeting.flags & (_CONSOLE_INPUT | _CONSOLE_OUTPUT) == _CONSOLE_INPUT | _CONSOLE_OUTPUT
        )
        self.tty_size = greeting.size
        self.files = Drives(prefix)
        self.clock: Clock = clock or RealClock()
        self.rng = random.Random()
        self.stdin = StandardInput(channel)
        self.processes = Win32Processes(channel, self.user)
        self.native = Win32Programs(channel)
        self.usage = RealUsage()
        self.cpus = int(self._variable("NUMBER_OF_PROCESSORS") or 0) or os.cpu_count() or 1
        self.network = RealNetwork(self.files, self.clock, self.rng)
        self.windows = RealWindows(
            prefix,
            self.clock,
            self.user,
            self.cpus,
            lambda: self.build,
            self.network,
            self.processes,
        )

    def _variable(self, name: str) -> str:
        return next((value for key, value in self.env.items() if key.lower() == name.lower()), "")

    @property
    def terminal(self) -> StandInContext:
        return self

    @property
    def credentials(self) -> StandInContext:
        return self

    @property
    def platform(self) -> StandInContext:
        return self

    @cached_property
    def build(self) -> str:
        """From the registry; the last entry wins."""
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
        if limit != resource.RLIM_INFINITY:
            return limit
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    @property
    def machine_resources(self) -> SystemResources:
        return self.windows.resources

    @property
    def cpuset(self) -> CpuSet:
        return frozenset(range(self.cpus))

    @property
    def cgroup_files(self) -> Mapping[str, str]:
        return {}

    @property
    def cpu_topology(self) -> CpuTopology:
        return CpuTopology(self.cpus)

    @property
    def user_namespace(self) -> tuple[int, int] | None:
        return None  # Windows has none

    @property
    def sysctls(self) -> Mapping[str, str]:
        return {}  # Windows has none

    @property
    def oom_score_adjustment(self) -> int:
        return 0  # Windows has none

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

    def start(self, context: ProgramContext) -> Program:
        """Only servers start programs within themselves."""
        raise FileNotFoundError(context.argv[0])

    def exit(self, code: int) -> None:
        self._channel.send("x", encode_numbers(code))
        self._channel.flush()
        self._on_exit()


def is_interrupted(
    context: StandInContext, signal: Callable[[str], None]
) -> Callable[[bytes], None]:
    """The CTRL+C handler: Windows itself notifies a program in the foreground."""

    def on_control_c(content: bytes) -> None:
        if not context.native.running:
            signal("CTRL_BREAK_EVENT" if FrameReader(content).number() else "CTRL_C_EVENT")

    return on_control_c
