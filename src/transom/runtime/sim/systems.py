"""The Windows system inside of a simulated container: its registry, accounts and services, and
their processes.
"""

from __future__ import annotations

import asyncio
import errno
import ntpath
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from transom.kit.argv import parse_command_line
from transom.kit.lazy import lazy_import
from transom.machines.windows.accounts import SYSTEM, AccountDatabase
from transom.machines.windows.accounts import WindowsUser as Account
from transom.machines.windows.host import CONTROL, WindowsHost, computer_name, version_keys
from transom.machines.windows.journal import SystemJournal
from transom.machines.windows.registry import WindowsRegistry
from transom.machines.windows.services import (
    LOGON_FAILED,
    NOT_FOUND,
    SERVICE_EVENTS,
    Report,
    ServiceError,
    ServiceManager,
    ServiceProcess,
    WindowsService,
)
from transom.machines.windows.system import (
    INTERFACES,
    SHUTDOWN_TIMEOUT,
    SystemResources,
    WindowsSystem,
    write_names,
)
from transom.runtime.sim.container_network import ContainerNetwork
from transom.runtime.sim.streams import NO_INPUT
from transom.runtime.sim.table import SERVICES_PROCESS, WINDOWS_PROCESSES
from transom.runtime.sim.users import local_accounts, windows_identity
from transom.runtime.sim.windows_services import PROGRAM, ResidentProgram
from transom.windows.builds import BUILDS, DEFAULT

if TYPE_CHECKING:
    from transom.runtime.sim.core import SimCore
    from transom.runtime.sim.records import ContainerProgram, SimContainer
    from transom.userland.api import Stdin
    from transom.userland.launch import windows_table
else:
    windows_table = lazy_import("transom.userland.launch.windows_table")

TERMINATED: Final = 1
MAX_PROCESSES: Final = 512  # that a container has started itself
NO_MEMORY: Final = "Not enough memory resources are available to process this command."
_SVCHOST: Final = 1004  # in `WINDOWS_PROCESSES`


class SystemServiceRow(NamedTuple):
    """A service that has been running since the container's start. `pid` is a process of the
    system.
    """

    name: str
    display_name: str
    pid: int
    program: str = PROGRAM
    account: str = "LocalSystem"
    stoppable: bool = False


_SERVICES: Final = (
    SystemServiceRow(
        "CExecSvc", "Container Execution Agent", 1028, r"C:\Windows\System32\CExecSvc.exe"
    ),
    SystemServiceRow(
        "CryptSvc",
        "Cryptographic Services",
        1012,
        account=r"NT Authority\NetworkService",
        stoppable=True,
    ),
    SystemServiceRow("DcomLaunch", "DCOM Server Process Launcher", 1004),
    SystemServiceRow("Dhcp", "DHCP Client", 1020, account=r"NT Authority\LocalService"),
    SystemServiceRow("Dnscache", "DNS Client", 1012, account=r"NT AUTHORITY\NetworkService"),
    SystemServiceRow("EventLog", "Windows Event Log", 1020, account=r"NT AUTHORITY\LocalService"),
    SystemServiceRow("LanmanServer", "Server", 1004, stoppable=True),
    SystemServiceRow(
        "LanmanWorkstation",
        "Workstation",
        1012,
        account=r"NT AUTHORITY\NetworkService",
        stoppable=True,
    ),
    SystemServiceRow(
        "nsi", "Network Store Interface Service", 1020, account=r"NT Authority\LocalService"
    ),
    SystemServiceRow("ProfSvc", "User Profile Service", 1004),
    SystemServiceRow(
        "RpcEptMapper", "RPC Endpoint Mapper", 1012, account=r"NT AUTHORITY\NetworkService"
    ),
    SystemServiceRow(
        "RpcSs", "Remote Procedure Call (RPC)", 1012, account=r"NT AUTHORITY\NetworkService"
    ),
    SystemServiceRow("SamSs", "Security Accounts Manager", 996, r"C:\Windows\system32\lsass.exe"),
    SystemServiceRow("Schedule", "Task Scheduler", 1004, stoppable=True),
    SystemServiceRow("Winmgmt", "Windows Management Instrumentation", 1004, stoppable=True),
)
_OF_IMAGES: Final = {  # in addition to these, by the program of the image
    "iis": (
        SystemServiceRow(
            "W3SVC",
            "World Wide Web Publishing Service",
            1004,
            r"C:\Windows\system32\svchost.exe -k iissvcs",
            stoppable=True,
        ),
        SystemServiceRow(
            "WAS",
            "Windows Process Activation Service",
            1004,
            r"C:\Windows\system32\svchost.exe -k iissvcs",
            stoppable=True,
        ),
    ),
}
_NOT_IN_NANO: Final = frozenset(
    ("CryptSvc", "LanmanServer", "LanmanWorkstation", "Winmgmt", "ProfSvc")
)


def system_of(core: SimCore, container: SimContainer) -> WindowsSystem:
    """A Windows container's own registry, accounts and services; created on first use."""
    if container.system is None:
        container.system = _create_system(core, container)
    return container.system


def _create_system(core: SimCore, container: SimContainer) -> WindowsSystem:
    spec, hostname = container.spec, core.hostname_in(container.sandbox)
    own = core.host.build if isinstance(core.host, WindowsHost) else DEFAULT
    registry = WindowsRegistry(version_keys(BUILDS.get(spec.platform.build) or own))
    registry.set(CONTROL, SHUTDOWN_TIMEOUT, str(int(spec.shutdown_timeout * 1000)))
    write_names(registry, computer_name(hostname), hostname, container.sandbox.config.dns.searches)
    # Read-only: no process of the container listens through it.
    network = ContainerNetwork(core, container, [], 0.0, lambda: container.files, pid=0)
    registry.provide(INTERFACES, lambda: network.view(registry).registry_keys())
    accounts = AccountDatabase(
        computer_name(hostname), container.id, local_accounts(spec), created=container.created
    )

    async def launch(service: WindowsService, report: Report) -> ServiceProcess:
        return start_service(core, container, service)

    journal = SystemJournal()

    def record(number: int, level: str, text: str) -> None:
        journal.log("System", core.host.time(), level, SERVICE_EVENTS, number, text)

    services = ServiceManager(core.clock, registry, launch, record)
    numbers = _system_pids(core, container)
    for row in (*_SERVICES, *_OF_IMAGES.get(spec.info.program, ())):
        if spec.info.userland == "nanoserver" and row.name in _NOT_IN_NANO:
            continue
        service = services.create(
            row.name,
            row.program,
            display_name=row.display_name,
            start="auto",
            account=row.account,
            installed=False,
        )
        service.stoppable = row.stoppable
        services.adopt(service, ResidentProgram(numbers[row.pid], _nothing))
    system = WindowsSystem(registry, accounts, services, journal)
    system.log(
        "System",
        container.started or container.created,
        "Information",
        "EventLog",
        6005,
        "The Event log service was started.",
    )
    return system


def container_resources(core: SimCore, container: SimContainer) -> SystemResources:
    """A container sees the machine's memory and disk; processes and their memory are its own."""
    found, meter = machine_resources(core), container.meter
    capacity, free = container.files.space("C:\\")
    return found._replace(
        disk=capacity,
        disk_free=free,
        boot_time=container.started or container.created,
        cpu_seconds=meter.cpu_seconds if meter is not None else 0.0,
        working_set=meter.working_set if meter is not None else 0,
    )


def machine_resources(core: SimCore) -> SystemResources:
    host = core.host
    memory, disk = host.memory(), host.disk()
    page_file = host.hardware.page_file
    return SystemResources(
        total_memory=memory.total,
        free_memory=max(0, memory.total - memory.working_set),
        commit_limit=memory.total + page_file,
        committed=memory.usage,
        page_file=page_file,
        page_file_used=memory.paged,
        disk=disk.capacity,
        disk_free=disk.available,
        cpus=host.hardware.cpus,
        boot_time=host.boot_time,
        cpu_seconds=host.cpu_seconds(),
        working_set=memory.working_set,
        load=tuple(host.load_averages()),
        swap=host.hardware.swap,
    )


# ---- processes ----


class LaunchedService:
    """A process of a container that was not exec'd: started by a service or another program."""

    def __init__(self) -> None:
        self.pid = 0
        self.context: ContainerProgram | None = None
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def finish(self, code: int) -> None:
        if not self._ended.done():
            self._ended.set_result(code)

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def end(self) -> None:
        if self.context is not None and not self._ended.done():
            self.context.kill()
            self.finish(TERMINATED)


class ServiceHost(LaunchedService):
    """`ServiceProcess`: the process of a service in a container."""

    def __init__(self, is_service: bool) -> None:
        super().__init__()
        self._is_service = is_service

    async def ready(self) -> None:
        """A console program never reports that it is a service."""
        if not self._is_service:
            await asyncio.Event().wait()

    async def stop(self) -> None:
        self.end()


def launch_service(
    core: SimCore,
    container: SimContainer,
    argv: Sequence[str],
    account: Account,
    env: Mapping[str, str] | None,
    cwd: str,
    output: Callable[[bytes], None],
    launched: LaunchedService,
    stdin: Stdin | None = None,
) -> None:
    """Raises FileNotFoundError or PermissionError."""
    if container.state != "running":
        raise FileNotFoundError(argv[0])
    if len(container.execs) >= MAX_PROCESSES:
        raise OSError(errno.EAGAIN, NO_MEMORY, argv[0])

    def ended(context: ContainerProgram, code: int) -> None:
        container.execs = tuple(other for other in container.execs if other is not context)
        launched.finish(code)

    context = core.create_program(
        core,
        container,
        tuple(argv),
        sink=lambda _stream, data: output(data),
        on_exit=ended,
        stdin=stdin or NO_INPUT,
        identity=windows_identity(account),
        directory=cwd,
    )
    if env is not None:
        context.env.clear()
        context.env.update(env)
    launched.context, launched.pid = context, context.pid
    container.execs += (context,)
    try:
        context.program = core.start(context)
    except BaseException:
        container.execs = tuple(other for other in container.execs if other is not context)
        context.release()
        raise


def start_service(
    core: SimCore, container: SimContainer, service: WindowsService
) -> ServiceProcess:
    """Raises ServiceError."""
    words = parse_command_line(service.bin_path, " \t")
    if not words:
        raise ServiceError(NOT_FOUND)
    if ntpath.basename(words[0]).lower() == "svchost.exe":
        pid = next((row.pid for row in _SERVICES if row.name == service.name), _SVCHOST)
        return ResidentProgram(_system_pids(core, container)[pid], _nothing)
    system = system_of(core, container)
    account = system.accounts.identity(service.account) if service.account else SYSTEM
    if account is None:
        raise ServiceError(LOGON_FAILED)
    if not _finds_program(container, words[0]):
        raise ServiceError(NOT_FOUND)
    process = ServiceHost(not _for_console(words[0]))
    try:
        launch_service(
            core, container, words, account, None, r"C:\Windows\system32", _discard, process
        )
    except FileNotFoundError:  # a program unknown to the simulation: it simply runs
        table = core.table_of(container)
        pid = table.add(
            words, _system_pids(core, container)[SERVICES_PROCESS], lambda _name: resident.finish()
        )
        resident = ResidentProgram(pid, lambda: table.remove(pid))
        return resident
    except PermissionError:
        raise ServiceError(5) from None
    return process


def _finds_program(container: SimContainer, name: str) -> bool:
    """A name without a directory is searched in Windows' own."""
    places = ("",) if ntpath.dirname(name) else ("C:\\Windows\\System32\\", "C:\\Windows\\")
    return any(
        container.files.exists(place + name + end) for place in places for end in ("", ".exe")
    ) or (not ntpath.dirname(name) and _for_console(name))


def _system_pids(core: SimCore, container: SimContainer) -> Mapping[int, int]:
    """The pids of Windows' own processes, which a container shares with its machine, by those of
    the table.
    """
    return dict(
        zip(
            (row.pid for row in WINDOWS_PROCESSES),
            core.table_of(container).system_pids(),
            strict=True,
        )
    )


def _for_console(path: str) -> bool:
    """Windows programs that are not services."""
    return ntpath.basename(path).lower().removesuffix(".exe") in windows_table.COMMANDS


def _nothing() -> None:
    """The process stays: it is the system's."""


def _discard(_data: bytes) -> None:
    """A service has no console."""
