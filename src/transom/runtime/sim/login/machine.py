"""A simulated Windows machine as the programs on it see it: its processes, its services, its variables, its networks.

Made when somebody first logs in. What kubelet.exe, kube-proxy.exe and flanneld.exe do is not known here: `Binaries` has
them, and what runs of them since boot is found as services.
"""

from __future__ import annotations

import asyncio
import contextlib
import ntpath
import shlex
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Final, Protocol

from transom.hosts.windows import nssm
from transom.hosts.windows.hns import Hns
from transom.hosts.windows.host import CONTROL, WindowsHost
from transom.hosts.windows.services import KEY, NOT_FOUND, Report, Service, ServiceError, ServiceManager, ServiceProcess
from transom.hosts.windows.variables import INSTALLED, PATH
from transom.kit.clock import Clock
from transom.runtime.sim.login import system
from transom.runtime.sim.table import Table

BINARIES: Final = ("kubelet", "kube-proxy", "flanneld")
ENVIRONMENT: Final = CONTROL + r"\Session Manager\Environment"
HOME: Final = r"C:\k"
SYSTEM: Final = "SYSTEM"  # the account of services
NSSM: Final = rf"{HOME}\{nssm.PROGRAM}"
RESTART: Final = (("restart", 10000),)
KILLED: Final = 1  # what taskkill and Stop-Process leave as the exit code
_SERVICE_FLAGS: Final = ("--service", "--windows-service")
_MOMENT: Final = 0.05  # seconds in which a program that cannot start has said so
_SYSTEM: Final = (
    "smss.exe", "csrss.exe", "wininit.exe", "services.exe", "lsass.exe",
)  # fmt: skip

Output = Callable[[bytes], None]


class Program(Protocol):
    async def wait(self) -> int: ...
    async def stop(self) -> None: ...


class Binaries(Protocol):
    """The node's own programs, by the names in `BINARIES`."""

    def usual(self, binary: str) -> tuple[str, list[str]]:
        """Where it is, and the arguments that it runs with since boot."""

    def environment(self, binary: str) -> Mapping[str, str]:
        """The variables that it has since boot, beside the machine's."""

    def running(self, binary: str) -> Program | None: ...
    async def launch(
        self, binary: str, argv: Sequence[str], environment: Mapping[str, str], directory: str, output: Output
    ) -> Program:
        """One that cannot start is a program that ends, and has written the reason to its output."""


class NodeProcess:
    """One of the node's programs while it runs. Below a `parent` it is a process of its own in the machine's table."""

    def __init__(self, machine: WindowsMachine, program: Program, argv: Sequence[str], parent: int, service: bool) -> None:
        self._machine = machine
        self._program = program
        self._service = service
        self._killed = False
        self._table = machine.processes
        self.pid = self._table.add(argv, parent, lambda _name: self._kill()) if parent else 0
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


class WindowsMachine:
    """`look` brings the networks up to date before somebody looks at them. `runtime` is what runs its containers."""

    def __init__(
        self, host: WindowsHost, clock: Clock, binaries: Binaries, look: Callable[[], None], runtime: str = "docker"
    ) -> None:
        self.host = host
        self.clock = clock
        self.binaries = binaries
        self._look = look
        self._tasks: set[asyncio.Task[None]] = set()
        self.services = ServiceManager(clock, host.registry, self._launch)
        host.registry.set(ENVIRONMENT, "Path", f"{PATH}{HOME};")
        self.processes = Table(host.time, windows=True)
        self._runtime = "dockerd.exe" if runtime == "docker" else "containerd.exe"
        self._manager = 0
        self._off = True
        self._supervisors: set[nssm.Supervisor] = set()
        self._usual: dict[str, object] = {}  # what the services of the node's programs were at first
        host.on_reboot(self._went_down)
        self.refresh()

    def _went_down(self) -> None:
        self._off = True
        self.services.machine_stopped()
        for supervisor in tuple(self._supervisors):
            supervisor.lost()

    def refresh(self) -> None:
        """Finds what runs since the machine was switched on."""
        if not self._off:
            return
        self._off = False
        self.processes = Table(self.host.time, windows=True)
        for name in (*_SYSTEM, self._runtime):
            pid = self.processes.add((name,), 0, _ignore)
            if name == "services.exe":
                self._manager = pid
        for row in system.SERVICES:
            service = self.services.find(row.name)
            if service is None:
                service = self.services.create(row.name, system.PROGRAM, display_name=row.display_name, start="auto")
                service.stoppable = row.name == system.NETWORKING
            self.services.adopt(service, self._resident())
        for binary in BINARIES:
            self._adopt(binary)

    def _resident(self) -> system.Resident:
        table = self.processes
        pid = table.add((system.PROGRAM,), self._manager, _ignore)
        return system.Resident(pid, lambda: table.remove(pid))

    async def boot(self) -> None:
        """After the machine was switched on again: services are what people have made of them."""
        self.refresh()
        for binary in BINARIES:
            program, service = self.binaries.running(binary), self.services.find(binary)
            if program is not None and (service is None or service.state == "STOPPED"):
                await program.stop()
        self.spawn(self._start_services())

    async def _start_services(self) -> None:
        for service in self.services.all():
            if service.start == "auto" and service.state == "STOPPED":
                with contextlib.suppress(ServiceError):
                    await self.services.start(service.name)

    def _adopt(self, binary: str) -> None:
        """What runs since boot, unless people have made something else of its service."""
        program = self.binaries.running(binary)
        if program is None:
            return
        path, arguments = self.binaries.usual(binary)
        service = self.services.find(binary)
        if service is None and binary not in self._usual:
            service = self._register(binary, path, arguments)
            self._usual[binary] = self._described(service)
        if service is None or service.state != "STOPPED" or self._described(service) != self._usual.get(binary):
            return
        process = NodeProcess(self, program, (path, *arguments), self._manager, service=True)
        if nssm.managed(service.bin_path):
            self.services.adopt(service, self._supervise(service, self.services.report(service), process))
        else:
            self.services.adopt(service, process)

    def _register(self, binary: str, path: str, arguments: Sequence[str]) -> Service:
        """flanneld does not know how to be a service of Windows."""
        registry = self.host.registry
        variables = tuple(f"{name}={value}" for name, value in self.binaries.environment(binary).items())
        if binary == "flanneld":
            service = self.services.create(binary, NSSM, start="auto")
            nssm.put(registry, binary, nssm.PARAMETERS["application"], path)
            nssm.put(registry, binary, nssm.PARAMETERS["appparameters"], join(arguments))
            nssm.put(registry, binary, nssm.PARAMETERS["appenvironmentextra"], variables)
            return service
        flags = () if any(flag in arguments for flag in _SERVICE_FLAGS) else ("--windows-service",)
        service = self.services.create(binary, join((path, *flags, *arguments)), start="auto")
        service.recovery = RESTART
        if variables:
            registry.set(rf"{KEY}\{binary}", "Environment", variables)
        return service

    def _described(self, service: Service) -> object:
        own = nssm.settings(self.host.registry, service.name) if nssm.managed(service.bin_path) else None
        return service.bin_path, service.start, own

    @property
    def hns(self) -> Hns:
        self._look()
        return self.host.hns

    # ---- variables

    def environment(self, user: str) -> dict[str, str]:
        """Of a new process of somebody."""
        computer = self.host.computer_name
        domain, name, profile = computer, user, rf"C:\Users\{user}"
        if user == SYSTEM:
            domain, name, profile = "WORKGROUP", f"{computer}$", r"C:\Windows\system32\config\systemprofile"
        kept = self.host.registry.values(ENVIRONMENT) or {}
        return {
            **INSTALLED, "APPDATA": rf"{profile}\AppData\Roaming", "COMPUTERNAME": computer,
            "LOCALAPPDATA": rf"{profile}\AppData\Local", "NUMBER_OF_PROCESSORS": str(self.host.hardware.cpus),
            "TEMP": r"C:\Windows\Temp", "TMP": r"C:\Windows\Temp", "USERDOMAIN": domain, "USERNAME": name,
            "USERPROFILE": profile, **{name: str(value) for name, value in kept.items()},
        }  # fmt: skip

    def variable(self, name: str) -> str | None:
        """One that every new process gets."""
        found = self.host.registry.get(ENVIRONMENT, name)
        return None if found is None else str(found)

    def set_variable(self, name: str, value: str) -> None:
        if value:
            self.host.registry.set(ENVIRONMENT, name, value)
        else:
            self.host.registry.delete(ENVIRONMENT, name)

    # ---- programs

    async def run(
        self, path: str, argv: Sequence[str], environment: Mapping[str, str], directory: str, output: Output, parent: int,
        *, service: bool = False,
    ) -> NodeProcess:  # fmt: skip
        """A process below `parent`; 0: that of whoever calls. Raises ServiceError when the machine has no such program."""
        binary = binary_of(path)
        if binary is None or not self.host.files.exists(path):
            raise ServiceError(NOT_FOUND)
        program = await self.binaries.launch(binary, argv, environment, directory, output)
        return NodeProcess(self, program, (path, *argv), parent, service)

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Something that happens although nobody waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---- services

    async def _launch(self, service: Service, report: Report) -> ServiceProcess:
        words = split(service.bin_path)
        if service.bin_path == system.PROGRAM:
            if service.name == system.NETWORKING:
                self.host.hns.restart_service()
            return self._resident()
        if words and nssm.managed(words[0]):
            if not self.host.files.exists(words[0]):
                raise ServiceError(NOT_FOUND)
            return self._supervise(service, report)
        if not words:
            raise ServiceError(NOT_FOUND)
        flagged = any(flag in words for flag in _SERVICE_FLAGS)
        own = self.host.registry.get(rf"{KEY}\{service.name}", "Environment")
        lines = own if isinstance(own, tuple) else ()
        environment = {**self.environment(SYSTEM), **dict(line.partition("=")[::2] for line in lines)}
        directory = r"C:\Windows\system32"
        return await self.run(words[0], words[1:], environment, directory, _nowhere, self._manager, service=flagged)

    def _supervise(self, service: Service, report: Report, first: NodeProcess | None = None) -> nssm.Supervisor:
        async def run(given: nssm.Settings) -> NodeProcess:
            environment = {**self.environment(SYSTEM), **given.environment}
            output = self._log(given)
            return await self.run(given.application, split(given.parameters), environment, given.directory, output, pid)

        def read() -> nssm.Settings:
            return nssm.settings(self.host.registry, service.name)

        pid = self.processes.add((NSSM,), self._manager, lambda _name: self.spawn(supervisor.kill(KILLED)))
        supervisor = nssm.Supervisor(pid, self.clock, read, run, report, first)
        table = self.processes

        def ended() -> None:
            table.remove(pid)
            self._supervisors.discard(supervisor)

        supervisor.on_end = ended
        self._supervisors.add(supervisor)
        return supervisor

    def _log(self, given: nssm.Settings) -> Output:
        """Both outputs of a program are one here."""
        paths = {path.lower(): path for path in (given.stdout, given.stderr) if path}

        def write(data: bytes) -> None:
            for path in paths.values():
                self.host.files.append(path, data)

        return write


def binary_of(path: str) -> str | None:
    stem = ntpath.basename(path.strip('"').replace("/", "\\")).lower().removesuffix(".exe")
    return stem if stem in BINARIES else None


def split(line: str) -> list[str]:
    """A command line, quoted with either kind of quotes: people write those of PowerShell in a service's path."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.escape, lexer.commenters = True, "", ""
    try:
        return list(lexer)
    except ValueError:  # a quote without its end
        return line.split()


def join(words: Sequence[str]) -> str:
    return " ".join(f'"{word}"' if " " in word or not word else word for word in words)


def _ignore(_signal: str) -> None:
    """A process of the system, which nobody ends."""


def _nowhere(_data: bytes) -> None:
    """A service of Windows has no console."""
