"""A simulated Windows machine as the programs on it see it: its processes, services, variables and
networks.

Created on the first login. `Binaries` implements kubelet.exe, kube-proxy.exe and flanneld.exe;
those that run since boot appear as services.
"""

from __future__ import annotations

import asyncio
import contextlib
import ntpath
import shlex
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from transom.kit.clock import Clock
from transom.kit.lazy import lazy_import
from transom.kit.task_set import TaskSet
from transom.machines.windows import nssm
from transom.machines.windows.features import CONTAINERS, has_feature
from transom.machines.windows.hns import HostNetworkService
from transom.machines.windows.host import WindowsHost
from transom.machines.windows.port_proxy import PORT_PROXY_SERVICE
from transom.machines.windows.services import (
    KEY,
    NOT_FOUND,
    SERVICE_EVENTS,
    TIMEOUT,
    Report,
    ServiceError,
    ServiceManager,
    ServiceProcess,
    WindowsService,
)
from transom.machines.windows.system import ENVIRONMENT, WindowsSystem
from transom.machines.windows.variables import INSTALLED, PATH
from transom.runtime.sim import windows_services
from transom.runtime.sim.login.node_runtime import NodeRuntime
from transom.runtime.sim.login.processes import MachineProcesses
from transom.runtime.sim.table import KERNEL_PROCESS

if TYPE_CHECKING:
    from transom.runtime.sim.streams import ExecClient
    from transom.userland.launch import windows_table
else:
    windows_table = lazy_import("transom.userland.launch.windows_table")

BINARIES: Final = ("kubelet", "kube-proxy", "flanneld")
HOME: Final = r"C:\k"
SYSTEM: Final = "SYSTEM"  # the account of services
RESTART: Final = (("restart", 10000),)
RUNTIME_RECOVERY: Final = (("restart", 15000),)
KILLED: Final = 1  # the exit code that taskkill and Stop-Process set
_SERVICE_FLAGS: Final = ("--service", "--windows-service")
_EXECUTABLE: Final = (".exe", ".com", ".bat", ".cmd")
_WINDOWS_DIRECTORIES: Final = (
    r"c:\windows\system32",
    r"c:\windows",
    r"c:\windows\system32\windowspowershell\v1.0",
)
_MOMENT: Final = 0.05  # seconds within which a program that cannot start reports it
Output = Callable[[bytes], None]


class MachineProgram(Protocol):
    @property
    def pid(self) -> int:
        """Different from those that the machine's process table gives."""

    async def wait(self) -> int: ...
    async def stop(self) -> None: ...


class Binaries(Protocol):
    """The node's own programs, by the names in `BINARIES`."""

    @property
    def services(self) -> tuple[str, ...]:
        """The programs that start at boot."""

    def usual(self, binary: str) -> tuple[str, list[str]]:
        """Its path, and the arguments that it runs with since boot."""

    def environment(self, binary: str) -> Mapping[str, str]:
        """The variables that it has since boot, in addition to the machine's."""

    def running(self, binary: str) -> MachineProgram | None: ...
    def api_connections(self) -> Sequence[tuple[str, str, int]]:
        """Each program that is connected to an API server, with its address and port."""

    async def launch(
        self,
        binary: str,
        argv: Sequence[str],
        environment: Mapping[str, str],
        directory: str,
        output: Output,
        stdout: Output | None = None,
    ) -> MachineProgram:
        """One that cannot start behaves like a program that exits after writing the reason to its
        output. `stdout` gets the answers of `--version` and `--help`; without it, `output` does.
        """

    def run_plugin(
        self, name: str, environment: Mapping[str, str], request: bytes
    ) -> tuple[int, bytes]:
        """A CNI plugin, called as in the specification: returns its exit code and its output."""


class NodeProcess:
    """A running program of the node. Below a `parent` it is a separate process in the machine's
    table.
    """

    def __init__(
        self,
        machine: WindowsMachine,
        program: MachineProgram,
        argv: Sequence[str],
        parent: int,
        service: bool,
    ) -> None:
        self._machine = machine
        self._program = program
        self._service = service
        self._killed = False
        self._table = machine.processes
        self.pid = program.pid if parent else 0
        if parent:
            self._table.add_numbered(self.pid, argv, parent, lambda _name: self._kill())
        self._ended = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> int:
        try:
            code = await self._program.wait()
        finally:
            self._table.remove(self.pid)
        return KILLED if self._killed else code

    def _kill(self) -> None:
        self._killed = True
        self._machine.spawn(self._program.stop())

    async def ready(self) -> None:
        if not self._service:
            await asyncio.Event().wait()
        await self._machine.clock.sleep(_MOMENT)

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    async def stop(self) -> None:
        await self._program.stop()
        await self.wait()


class RuntimeProcess(windows_services.ResidentProgram):
    """The process of docker or containerd. When the machine shuts down, docker first stops its
    containers, within the time that the machine gives its services.
    """

    def __init__(self, pid: int, ended: Callable[[], None], machine: WindowsMachine) -> None:
        super().__init__(pid, ended)
        self._machine = machine

    async def stop(self) -> None:
        machine = self._machine
        if machine.shutdown_seconds is not None and machine.engine is not None:
            await machine.engine.shut_down(machine.shutdown_seconds)
        self.finish()


class SystemProgram:
    """A process that runs a program of Windows, for a service. It never reports that it is one."""

    def __init__(self, pid: int, client: ExecClient, processes: MachineProcesses) -> None:
        self.pid = pid
        self._client = client
        self._processes = processes

    async def ready(self) -> None:
        await asyncio.Event().wait()

    async def wait(self) -> int:
        return await self._client.wait()

    async def stop(self) -> None:
        self._processes.signal(self.pid, "SIGKILL")
        await self.wait()


class WindowsNodeRuntime(NodeRuntime, Protocol):
    """It also starts the programs of the machine."""

    def start_detached(
        self,
        machine: WindowsMachine,
        argv: Sequence[str],
        environment: Mapping[str, str],
        directory: str,
        output: Callable[[bytes], None],
        user: str,
    ) -> tuple[int, ExecClient]:
        """A program that no other process has started. Returns its pid, and an awaitable for its
        end.
        """


class WindowsMachine:
    """`look` refreshes the networks before they are read. `runtime` runs its containers."""

    def __init__(
        self,
        host: WindowsHost,
        clock: Clock,
        binaries: Binaries,
        look: Callable[[], None],
        runtime: str = "docker",
        engine: WindowsNodeRuntime | None = None,
    ) -> None:
        self.host = host
        self.clock = clock
        self.binaries = binaries
        self._look = look
        self._tasks = TaskSet()
        self.services = ServiceManager(clock, host.registry, self._launch, self._record_event)
        host.registry.set(ENVIRONMENT, "Path", f"{PATH}{HOME};")
        self.system = WindowsSystem(
            host.registry, host.account_database, self.services, host.journal
        )
        self.system.log(
            "System",
            host.boot_time,
            "Information",
            "EventLog",
            6005,
            "The Event log service was started.",
        )
        self.engine = engine
        self.processes = self._new_processes()
        self.runtime = "docker" if runtime == "docker" else "containerd"
        self._manager = 0
        self._security = 0
        self._off = True
        self.shutdown_seconds: float | None = None  # while the machine shuts down
        self._supervisors: set[nssm.NssmSupervisor] = set()
        self._failed_at_boot: set[str] = set()  # until the next boot
        self._usual: dict[str, object] = {}  # the initial services of the node's programs
        host.on_reboot(self._on_reboot)
        self.services.load(
            (
                *BINARIES,
                *windows_services.RUNTIMES,
            )
        )
        self.refresh()
        if any(
            service.start == "auto"
            and service.state == "STOPPED"
            and service.name not in self._failed_at_boot
            for service in self.services.all()
        ):
            self.spawn(self._start_services())

    def _record_event(self, number: int, level: str, text: str) -> None:
        now = self.host.time()
        self.system.log("System", now, level, SERVICE_EVENTS, number, text)

    async def shut_down(self, seconds: float) -> None:
        """Stops the services; those that take longer end with the machine."""
        self.shutdown_seconds = seconds
        await self.services.shut_down(seconds)

    def _on_reboot(self) -> None:
        self._off = True
        self.shutdown_seconds = None
        self.services.machine_stopped()
        for supervisor in tuple(self._supervisors):
            supervisor.lost()

    def refresh(self) -> None:
        """Collects what has been running since the machine was switched on."""
        if not self._off:
            return
        self._off = False
        self.processes = self._new_processes()
        self._start_system()
        self._adopt_system_services()
        self._adopt_runtime()
        for binary in BINARIES:
            self._adopt(binary)

    def _start_system(self) -> None:
        """The processes that Windows starts before its services."""
        add = self.processes.add_system
        session_manager = add((r"C:\Windows\System32\smss.exe",), KERNEL_PROCESS, SYSTEM, None)
        add((r"C:\Windows\System32\csrss.exe",), session_manager, SYSTEM, None)
        init = add((r"C:\Windows\System32\wininit.exe",), session_manager, SYSTEM, None)
        self._manager = add((r"C:\Windows\System32\services.exe",), init, SYSTEM, None)
        self._security = add((windows_services.SECURITY,), init, SYSTEM, None)

    def _adopt_system_services(self) -> None:
        """Those of Windows, as an administrator has configured them."""
        new = self.services.find(windows_services.FIRST) is None
        for row in windows_services.SERVICES:
            service = self.services.find(row.name)
            of_feature = row.name in windows_services.OF_CONTAINERS
            if of_feature and not self._has_containers:
                if service is not None:
                    self.services.delete(service.name)
                continue
            if service is None and (new or of_feature):
                service = self.services.create(
                    row.name,
                    row.bin_path,
                    display_name=row.display_name,
                    start=row.start,
                    depends=row.depends,
                    account=row.account,
                    installed=False,
                )
            if service is None:  # deleted by an administrator
                continue
            service.stoppable = row.stoppable
            if row.name == PORT_PROXY_SERVICE and self.engine is not None:
                service.reload = self.engine.core.system_ports.reload_port_proxies
            if service.start == "auto" and service.state == "STOPPED":
                self.services.adopt(service, self._resident(row))

    def _new_processes(self) -> MachineProcesses:
        return MachineProcesses(
            self.host.time, self.engine.core if self.engine is not None else None
        )

    def _adopt_runtime(self) -> None:
        """docker or containerd: runs since boot, unless its service is disabled."""
        display_name, path = windows_services.RUNTIMES[self.runtime]
        service = self.services.find(self.runtime)
        if service is None:
            if self.engine is not None and not self.engine.service.running:
                self.engine.service.start()
            service = self.services.create(
                self.runtime, path, display_name=display_name, start="auto", installed=False
            )
            service.recovery = service.recovery or RUNTIME_RECOVERY
        if service.start == "auto" and service.bin_path == path and self._has_containers:
            self.services.adopt(service, self._runtime_process())
        elif self.engine is not None:
            self.engine.service.stop()

    @property
    def _has_containers(self) -> bool:
        """Whether the feature that container runtimes need is installed."""
        return has_feature(self.host.registry, CONTAINERS)

    def _runtime_process(self) -> windows_services.ResidentProgram:
        """Its process: while it runs, the runtime responds."""
        table, engine = self.processes, self.engine

        def ended() -> None:
            table.remove(pid)
            if engine is not None:
                engine.service.stop()

        pid = table.add(
            split_command_line(windows_services.RUNTIMES[self.runtime][1]),
            self._manager,
            lambda _name: self.spawn(process.stop()),
        )
        process = RuntimeProcess(pid, ended, self)
        if engine is not None:
            engine.service.start()
        return process

    def _resident(
        self, row: windows_services.WindowsServiceRow
    ) -> windows_services.ResidentProgram:
        table = self.processes
        if row.bin_path == windows_services.SECURITY:  # runs in a process of the system
            return windows_services.ResidentProgram(self._security, lambda: None)
        pid = table.add_system(
            split_command_line(row.bin_path),
            self._manager,
            windows_services.USERS.get(row.account, SYSTEM),
            (lambda _name: process.finish()) if row.stoppable else None,
        )
        ports = self.engine.core.system_ports if self.engine is not None else None

        def ended() -> None:
            table.remove(pid)
            if ports is not None:
                ports.close(row.name)

        if ports is not None:
            ports.open(row.name, pid)
        process = windows_services.ResidentProgram(pid, ended)
        return process

    async def boot(self) -> None:
        """After the machine was switched on again: services keep the users' changes."""
        self._failed_at_boot.clear()
        self.refresh()
        for binary in BINARIES:
            program, service = self.binaries.running(binary), self.services.find(binary)
            if program is not None and (service is None or service.state == "STOPPED"):
                await program.stop()
        self.spawn(self._start_services())

    async def _start_services(self) -> None:
        for service in self.services.all():
            if (
                service.start == "auto"
                and service.state == "STOPPED"
                and service.name not in self._failed_at_boot
            ):
                with contextlib.suppress(ServiceError):
                    await self.services.start(service.name)

    def _adopt(self, binary: str) -> None:
        """What runs since boot, unless a user has changed its service."""
        program = self.binaries.running(binary)
        if program is None and binary not in self.binaries.services:
            return
        path, arguments = self.binaries.usual(binary)
        service = self.services.find(binary)
        if service is None and binary not in self._usual:
            service = self._register(binary, path, arguments)
            self._usual[binary] = self._described(service)
            if program is None:
                self._failed_at_boot.add(binary)
        if program is None:
            return
        if (
            service is None
            or service.state != "STOPPED"
            or self._described(service) != self._usual.get(binary)
        ):
            return
        supervised = nssm.is_nssm_managed(service.bin_path)
        line = (path, *arguments) if supervised else split_command_line(service.bin_path)
        process = NodeProcess(self, program, line, self._manager, service=True)
        if supervised:
            self.services.adopt(
                service, self._supervise(service, self.services.report(service), process)
            )
        else:
            self.services.adopt(service, process)

    def _register(self, binary: str, path: str, arguments: Sequence[str]) -> WindowsService:
        """flanneld cannot run as a Windows service."""
        registry = self.host.registry
        variables = tuple(
            f"{name}={value}" for name, value in self.binaries.environment(binary).items()
        )
        if binary == "flanneld":
            service = self.services.create(binary, nssm.PATH, start="auto", installed=False)
            nssm.set_nssm_parameter(registry, binary, nssm.PARAMETERS["application"], path)
            nssm.set_nssm_parameter(
                registry, binary, nssm.PARAMETERS["appparameters"], nssm.join_words(arguments)
            )
            nssm.set_nssm_parameter(
                registry, binary, nssm.PARAMETERS["appenvironmentextra"], variables
            )
            return service
        flags = () if any(flag in arguments for flag in _SERVICE_FLAGS) else ("--windows-service",)
        service = self.services.create(
            binary, nssm.join_words((path, *flags, *arguments)), start="auto", installed=False
        )
        service.recovery = service.recovery or RESTART
        if variables:
            registry.set(rf"{KEY}\{binary}", "Environment", variables)
        return service

    def _described(self, service: WindowsService) -> object:
        own = (
            nssm.nssm_settings(self.host.registry, service.name)
            if nssm.is_nssm_managed(service.bin_path)
            else None
        )
        return service.bin_path, service.start, own

    @property
    def hns(self) -> HostNetworkService:
        self._look()
        return self.host.hns

    # ---- variables ----

    def environment(self, user: str) -> dict[str, str]:
        """The environment of a new process of a user."""
        computer = self.host.computer_name
        domain, name, profile = computer, user, rf"C:\Users\{user}"
        if user == SYSTEM:
            domain, name, profile = (
                "WORKGROUP",
                f"{computer}$",
                r"C:\Windows\system32\config\systemprofile",
            )
        account = self.host.account_database.identity(user)
        own = self.system.user_variables(account.sid) if account is not None else {}
        kept = dict(self.system.variables())
        path = next((value for name, value in own.items() if name.lower() == "path"), "")
        if path:
            kept["Path"] = ";".join((kept.get("Path", "").rstrip(";"), path))
        return {
            **INSTALLED,
            "APPDATA": rf"{profile}\AppData\Roaming",
            "COMPUTERNAME": computer,
            "LOCALAPPDATA": rf"{profile}\AppData\Local",
            "NUMBER_OF_PROCESSORS": str(self.host.hardware.cpus),
            "TEMP": r"C:\Windows\Temp",
            "TMP": r"C:\Windows\Temp",
            "USERDOMAIN": domain,
            "USERNAME": name,
            "USERPROFILE": profile,
            **kept,
            **{name: value for name, value in own.items() if name.lower() != "path"},
        }

    # ---- programs ----

    async def run(
        self,
        path: str,
        argv: Sequence[str],
        environment: Mapping[str, str],
        directory: str,
        output: Output,
        parent: int,
        *,
        service: bool = False,
        stdout: Output | None = None,
    ) -> NodeProcess | SystemProgram:
        """A process below `parent`; 0: the caller's. Raises ServiceError when the machine has no
        such program.
        """
        binary = binary_of(path)
        if binary is None and self.engine is not None and self._finds_program(path):
            pid, client = self.engine.start_detached(
                self,
                (path, *argv),
                environment,
                directory or r"C:\Windows\system32",
                output,
                SYSTEM,
            )
            return SystemProgram(pid, client, self.processes)
        if binary is None or not self.host.files.exists(path):
            raise ServiceError(NOT_FOUND)
        program = await self.binaries.launch(binary, argv, environment, directory, output, stdout)
        return NodeProcess(self, program, (path, *argv), parent, service)

    def _finds_program(self, name: str) -> bool:
        """Whether it is a program or batch file; without a directory, one of Windows' own."""
        files, extension = self.host.files, ntpath.splitext(name)[1].lower()
        if extension not in ("", *_EXECUTABLE):
            return False
        names = [name] if extension else [name + end for end in _EXECUTABLE]
        if ntpath.dirname(name) and ntpath.dirname(name).lower() not in _WINDOWS_DIRECTORIES:
            return any(files.exists(one) for one in names)
        stem = ntpath.basename(name).lower().removesuffix(".exe")
        return stem in windows_table.COMMANDS

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Runs in the background."""
        self._tasks.start(work)

    # ---- services ----

    async def _launch(self, service: WindowsService, report: Report) -> ServiceProcess:
        words = split_command_line(service.bin_path)
        row = windows_services.BY_NAME.get(service.name.lower())
        if row is not None and words[:1] == split_command_line(row.bin_path)[:1]:
            if service.name == windows_services.NETWORKING:
                self.host.hns.restart_service()
            return self._resident(row)
        if (
            service.name == self.runtime
            and service.bin_path == windows_services.RUNTIMES[self.runtime][1]
        ):
            if not self._has_containers:
                raise ServiceError(TIMEOUT)
            return self._runtime_process()
        if words and nssm.is_nssm_managed(words[0]):
            if not self.host.files.exists(words[0]):
                raise ServiceError(NOT_FOUND)
            return self._supervise(service, report)
        if not words:
            raise ServiceError(NOT_FOUND)
        flagged = any(flag in words for flag in _SERVICE_FLAGS)
        own = self.host.registry.get(rf"{KEY}\{service.name}", "Environment")
        lines = own if isinstance(own, tuple) else ()
        environment = {
            **self.environment(SYSTEM),
            **dict(line.partition("=")[::2] for line in lines),
        }
        directory = r"C:\Windows\system32"
        return await self.run(
            words[0], words[1:], environment, directory, _nowhere, self._manager, service=flagged
        )

    def _supervise(
        self, service: WindowsService, report: Report, first: NodeProcess | None = None
    ) -> nssm.NssmSupervisor:
        async def run(given: nssm.NssmSettings) -> NodeProcess | SystemProgram:
            environment = {**self.environment(SYSTEM), **given.environment}
            output = self._log(given)
            return await self.run(
                given.application,
                split_command_line(given.parameters),
                environment,
                given.directory,
                output,
                pid,
            )

        def read() -> nssm.NssmSettings:
            return nssm.nssm_settings(self.host.registry, service.name)

        pid = self.processes.add(
            (nssm.PATH,), self._manager, lambda _name: self.spawn(supervisor.kill(KILLED))
        )
        supervisor = nssm.NssmSupervisor(pid, self.clock, read, run, report, first)
        table = self.processes

        def ended() -> None:
            table.remove(pid)
            self._supervisors.discard(supervisor)

        supervisor.on_end = ended
        self._supervisors.add(supervisor)
        return supervisor

    def _log(self, given: nssm.NssmSettings) -> Output:
        """Both output streams are merged here."""
        paths = {path.lower(): path for path in (given.stdout, given.stderr) if path}

        def write(data: bytes) -> None:
            for path in paths.values():
                self.host.files.append(path, data)

        return write


def binary_of(path: str) -> str | None:
    stem = ntpath.basename(path.strip('"').replace("/", "\\")).lower().removesuffix(".exe")
    return stem if stem in BINARIES else None


def split_command_line(line: str) -> list[str]:
    """Splits a command line with either kind of quotes: users write PowerShell's quotes in a
    service's path.
    """
    lexer = shlex.shlex(line, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.escape, lexer.commenters = True, "", ""
    try:
        return list(lexer)
    except ValueError:  # an unterminated quote
        return line.split()


def _nowhere(_data: bytes) -> None:
    """A Windows service has no console."""
