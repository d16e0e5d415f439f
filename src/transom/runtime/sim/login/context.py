"""`ProgramContext` of a program that runs on a simulated machine itself: the machine's own files,
network and processes.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from transom.machines.cpus import CpuSet, CpuTopology, machine_topology
from transom.machines.files import FileTree
from transom.machines.linux import NAME_SERVER
from transom.machines.machine import HostClock
from transom.machines.power import PowerSwitch
from transom.machines.windows.accounts import WindowsUser as Account
from transom.machines.windows.hns import HostNetworkService
from transom.machines.windows.host import WindowsHost
from transom.machines.windows.system import (
    INTERFACES,
    SystemResources,
    WindowsSystem,
    changed_name_servers,
)
from transom.network import winhost
from transom.network.api import Accept, DnsConfig, PortMapping, Respond
from transom.network.resolver import Resolver
from transom.network.stacks import NetworkStack
from transom.runtime.sim.compute import ComputeSystem, compute_systems
from transom.runtime.sim.core import SimCore
from transom.runtime.sim.environment import PATH
from transom.runtime.sim.login.machine import HOME, WindowsMachine
from transom.runtime.sim.login.program_sockets import ApiClients, node_sockets
from transom.runtime.sim.node_storage import NodeStorage
from transom.runtime.sim.resolve import connect_by_name
from transom.runtime.sim.sockets import is_loopback_address
from transom.runtime.sim.streams import NO_INPUT, ExecClient, ProgramStreams
from transom.runtime.sim.systems import machine_resources
from transom.runtime.sim.table import ProcessIdTable
from transom.runtime.sim.users import file_user
from transom.userland.api import (
    ImageInfo,
    LaunchedProcess,
    OpenSocket,
    Os,
    Program,
    ProgramContext,
    StackView,
    Stdin,
)
from transom.userland.dns import resolve_name, resolver_settings
from transom.userland.network_view import NetworkView, without_stack
from transom.userland.posix.scripts import find_in_path
from transom.userland.process import Command, FindCommand, Process, TaskProgram
from transom.userland.termination import DOTNET, LINUX_KILLED, termination_code

_IMAGES: Final = {
    "windows": ImageInfo("", "windows", userland="windows"),
    "linux": ImageInfo("", "linux"),
}
_USERS: Final = {"windows": "Administrator", "linux": "root"}
_KILLED: Final = {"windows": DOTNET, "linux": LINUX_KILLED}
_STARTUP_CPU: Final = 0.03  # start-up time of a process in seconds


class _Usage:
    """Its resource usage on the machine."""

    def __init__(self, core: SimCore) -> None:
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
    def cpu_seconds(self) -> float:
        return self._account.cpu_seconds()

    @property
    def size(self) -> int:
        return self._account.memory

    def give_back(self) -> None:
        self._account.close()


class DetachedProcess:
    """`LaunchedProcess`: a program in a window of its own."""

    def __init__(self, pid: int, client: ExecClient, processes: ProcessIdTable) -> None:
        self.pid = pid
        self._client = client
        self._processes = processes

    async def wait(self) -> int:
        return await self._client.wait()

    def end(self) -> None:
        self._processes.signal(self.pid, "SIGKILL")


class LoginNetwork:
    """`NetworkAccess` of programs on the machine."""

    ports: Sequence[PortMapping] = ()

    def __init__(
        self,
        core: SimCore,
        files: FileTree,
        closers: list[Callable[[], None]],
        pid: Callable[[], int],
        processes: ProcessIdTable,
        clients: ApiClients | None,
    ) -> None:
        """`closers` are called when the program ends."""
        self._processes = processes
        self._clients = clients
        self._pid = pid
        self._core = core
        self._files = files
        self._closers = closers

    @property
    def hostname(self) -> str:
        return self._core.host.name

    @property
    def ips(self) -> Sequence[str]:
        return self._core.node_namespace.addresses

    @property
    def dns(self) -> DnsConfig:
        host = self._core.host
        if isinstance(host, WindowsHost) and changed_name_servers(host.registry):
            return machine_network(self._core, host, host.hns).resolver_dns()
        usual = DnsConfig((NAME_SERVER,))
        return resolver_settings(self._core.os, lambda: self._files, usual)

    def listen(self, port: int, accept: Accept, address: str = "") -> Callable[[], None]:
        return self._closing(
            self._core.node_namespace.listen(port, accept, address, pid=self._pid())
        )

    def answer(self, port: int, respond: Respond) -> Callable[[], None]:
        return self._closing(self._core.node_namespace.answer(port, respond, self._pid()))

    def sockets(self) -> Sequence[OpenSocket]:
        return node_sockets(self._core, self._clients, self._processes)

    def _closing(self, close: Callable[[], None]) -> Callable[[], None]:
        self._closers.append(close)
        return close

    async def connect(self, host: str, port: int) -> socket.socket:
        namespace = self._core.node_namespace
        try:
            return await connect_by_name(namespace, host, port, self.resolve, self._pid())
        except ConnectionRefusedError:
            if not is_loopback_address(host) or not namespace.addresses:
                raise
            # A listener on all addresses of the machine is registered at the first of them.
            return await namespace.connect(namespace.addresses[0], port, self._pid())

    def traffic(self) -> tuple[int, int]:
        return self._core.node_namespace.received, self._core.node_namespace.sent

    def stack_view(self) -> StackView:
        core = self._core
        found = core.stacks.stack("") if core.stacks is not None else None
        owner = core.stacks.owner if core.stacks is not None else (lambda _address: None)
        return StackView(found or without_stack(core.host.name, self.ips, os=core.os), owner)

    async def resolve(self, name: str) -> list[str]:
        own = self.hostname, self.ips
        return await resolve_name(name, self._core.os, lambda: self._files, own, self._resolver)

    def _resolver(self) -> Resolver:
        core = self._core
        return Resolver(core.os, self.dns, core.host.clock, core.rng, self.ask, self.connect)

    async def ask(self, server: str, port: int, payload: bytes) -> bytes:
        return await self._core.node_namespace.ask(server, port, payload)

    async def echo(self, address: str, patience: float) -> bool:
        return await self._core.node_namespace.echo(address, patience)


async def resolve_on_machine(core: SimCore, files: FileTree, name: str) -> list[str]:
    """The addresses of a name for a service of the machine. Raises socket.gaierror."""
    table = ProcessIdTable(core.clock.time, windows=core.windows)
    return await LoginNetwork(core, files, [], lambda: 0, table, None).resolve(name)


def machine_network(core: SimCore, host: WindowsHost, hns: HostNetworkService) -> NetworkView:
    """The network of a Windows machine. `hns` must be up to date."""
    stacks = core.stacks
    stack = stacks.stack("") if stacks is not None else None
    if stack is None:
        stack = NetworkStack(host.name, "node", core.os, host.name, lambda *_: None)
        winhost.refresh_windows_host(stack, hns)
    owner = stacks.owner if stacks is not None else (lambda _address: None)
    given = DnsConfig((NAME_SERVER,))
    return NetworkView(stack, hns, given, owner, machine=True, registry=host.registry)


class NodeWindows:
    """`WindowsAccess` of programs on a Windows machine."""

    credential_spec = ""

    def __init__(self, context: LoginContext, machine: WindowsMachine) -> None:
        self._context = context
        self._machine = machine
        core, host = context.core, machine.host
        host.registry.provide(
            INTERFACES, lambda: machine_network(core, host, machine.hns).registry_keys()
        )

    @property
    def network(self) -> NetworkView:
        return machine_network(self._context.core, self._machine.host, self._machine.hns)

    @property
    def system(self) -> WindowsSystem:
        return self._machine.system

    @property
    def resources(self) -> SystemResources:
        return machine_resources(self._context.core)

    @property
    def power(self) -> PowerSwitch:
        return self._machine.host.power

    @property
    def account(self) -> Account:
        return _account(self._machine, self._context.user)

    @property
    def ntfs(self) -> FileTree:
        return self._context.files

    def launch(
        self,
        argv: Sequence[str],
        account: Account,
        env: Mapping[str, str],
        cwd: str,
        output: Callable[[bytes], None],
        stdin: Stdin | None = None,
    ) -> LaunchedProcess:
        context = self._context
        pid, client = _start_detached(context, argv, env, cwd, output, account.name, stdin)
        return DetachedProcess(pid, client, context.processes)


class NodeView:
    """`NodeAccess` and, on a Windows machine, `WindowsNodeAccess`."""

    def __init__(self, core: SimCore, machine: WindowsMachine | None) -> None:
        self._core = core
        self._machine = machine

    @property
    def storage(self) -> NodeStorage | None:
        """Shares and disks that the machine can reach."""
        return self._core.storage

    @property
    def mounts(self) -> FileTree:
        return self._core.host.files

    @property
    def power(self) -> PowerSwitch:
        return self._core.host.power

    def set_time(self, moment: float) -> None:
        self._core.host.jump(moment - self._core.host.time())

    @property
    def windows(self) -> NodeView | None:
        return self if self._machine is not None else None

    @property
    def hns(self) -> HostNetworkService:
        assert self._machine is not None, "only Windows has one"
        return self._machine.hns

    def sessions(self) -> Mapping[int, int]:
        assert self._machine is not None, "only Windows has sessions"
        return self._machine.processes.sessions()

    def compute_systems(self) -> Iterable[ComputeSystem]:
        return compute_systems(self._core)


def _account(machine: WindowsMachine, user: str) -> Account:
    found = machine.system.accounts.identity(user)
    assert found is not None, "the account that logged in"
    return found


def find_machine_program(process: Process) -> Command:
    """The program of a process on the machine. Raises OSError when it does not exist."""
    name = process.argv[0]
    return process.find_command(name) if process.windows else find_in_path(process, name)


async def run_machine_program(process: Process) -> int:
    """Raises OSError when it does not exist."""
    command = find_machine_program(process)
    result = command(process)
    return result if isinstance(result, int) else await result


def _start_detached(
    parent: LoginContext,
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    output: Callable[[bytes], None],
    user: str = "",
    stdin: Stdin | None = None,
) -> tuple[int, ExecClient]:
    """A program in its own window: it outlives the process that started it. Returns its pid, and an
    awaitable for its end.
    """
    client = ExecClient(lambda _stream, data: output(data), None, None)
    context = LoginContext(
        parent.core,
        parent.machine,
        parent.processes,
        argv,
        client,
        stdin or NO_INPUT,
        parent.find_command,
        user,
        parent.api_clients,
    )
    context.env, context.cwd = dict(env), cwd
    context.program = TaskProgram(context, run_machine_program, parent.find_command)
    return context.pid, client


class LoginContext(ProgramStreams):
    """Also the `TerminalAccess`, `Credentials` and `PlatformInfo` of the program. `machine` is
    the Windows machine.
    """

    main = False
    uid = gid = 0
    groups: Sequence[int] = ()
    privileged = net_admin = True
    no_new_privileges = False
    container_id = ""
    oom_score_adjustment = 0
    sysctls: Mapping[str, str] = MappingProxyType({})
    user_namespace: tuple[int, int] | None = None
    volumes = None
    native = None

    def __init__(
        self,
        core: SimCore,
        machine: WindowsMachine | None,
        processes: ProcessIdTable,
        argv: Sequence[str],
        client: ExecClient,
        stdin: Stdin,
        find_command: FindCommand,
        user: str = "",
        clients: ApiClients | None = None,
    ) -> None:
        """`clients` are the node's own programs, which connect to the API server."""
        self.core = core
        self.find_command = find_command
        self._client = client
        self._sink = client.write_output
        self.pty = client.terminal
        self._closers: list[Callable[[], None]] = []
        self._usage: _Usage | None = None
        self.machine = machine
        self.processes = processes
        self.argv = tuple(argv)
        self.stdin = stdin
        self.done = False
        self.program: Program | None = None
        self.os: Os = core.os
        self.user = user or _USERS[self.os]
        self.image = _IMAGES[self.os]
        self.cwd = HOME if machine is not None else "/root"
        home = {
            "HOME": "/root",
            "USER": "root",
            "PATH": PATH,
            "TERM": "xterm",
            "HOSTNAME": core.host.name,
        }
        self.env = machine.environment(self.user) if machine is not None else home
        self.files: FileTree = core.host.files
        if machine is not None:
            self.files = self.files.as_user(file_user(_account(machine, self.user)))
        self.pid: int
        self.api_clients = clients
        self.network = LoginNetwork(
            core, self.files, self._closers, lambda: self.pid, processes, clients
        )
        self.node = NodeView(core, machine)
        self.started = core.host.time()
        self.pid = processes.enter(self)
        core.logins.add(self)

    @property
    def terminal(self) -> LoginContext:
        return self

    @property
    def credentials(self) -> LoginContext:
        return self

    @property
    def platform(self) -> LoginContext:
        return self

    @property
    def build(self) -> str:
        return self.core.host.identity.kernel_version

    @property
    def cpus(self) -> int:
        return self.core.host.hardware.cpus

    @property
    def cpuset(self) -> CpuSet:
        return self.cpu_topology.all

    @property
    def cgroup_files(self) -> Mapping[str, str]:
        return {}

    @property
    def cpu_topology(self) -> CpuTopology:
        return machine_topology(self.core.host.hardware)

    @property
    def memory_limit(self) -> int:
        return self.core.host.hardware.memory

    @property
    def machine_resources(self) -> SystemResources:
        return machine_resources(self.core)

    @property
    def windows(self) -> NodeWindows:
        assert self.machine is not None, "only programs on Windows use it"
        return NodeWindows(self, self.machine)

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

    def start(self, context: ProgramContext) -> Program:
        return self.core.start(context)

    async def drain(self) -> None:
        await self._client.caught_up()

    def exit(self, code: int) -> None:
        if not self.done:
            self._release()
            self._client.finish(code)

    # For the process table

    @property
    def memory(self) -> int:
        return self._usage.size if self._usage is not None else 0

    own_memory = memory

    @property
    def cpu(self) -> float:
        return self._usage.cpu_seconds if self._usage is not None else _STARTUP_CPU

    def signalled(self, name: str) -> None:
        """By another process, or from the keyboard."""
        code = termination_code(name, windows=self.os == "windows")
        if code is not None:
            self.kill(code)
        elif self.program is not None:
            self.program.signal(name)

    def kill(self, code: int | None = None) -> None:
        """The client has disconnected, another process ended it (with `code`), or the machine is
        off.
        """
        if not self.done:
            self._release()
            if self.program is not None:
                self.program.kill()
            self._client.finish(_KILLED[self.os] if code is None else code)

    def _release(self) -> None:
        self.done = True
        for close in self._closers:
            close()
        self._closers.clear()
        self.processes.leave(self.pid)
        self.core.logins.discard(self)
        if self._usage is not None:
            self._usage.give_back()
