"""The state of one Windows system: of a machine, or of one container, which has its own.

Commands read and write only this state, so they all see each other's changes. It is created on
first access: most containers never have a registry that differs from their image's.
"""

from __future__ import annotations

import ipaddress
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Final

from transom.kit.clock import Clock
from transom.kit.lazy_dataclass import dataclass
from transom.kit.named_tuple import NamedTuple
from transom.machines.windows.accounts import AccountDatabase
from transom.machines.windows.host import CONTROL, TCPIP, computer_name, version_keys
from transom.machines.windows.journal import LogEntry, ScheduledTask, SystemJournal
from transom.machines.windows.registry import WindowsRegistry
from transom.machines.windows.services import (
    NOT_FOUND,
    Report,
    ServiceError,
    ServiceManager,
    ServiceProcess,
    WindowsService,
)
from transom.machines.windows.variables import PATH, machine_variables, user_variables
from transom.windows.builds import WindowsBuild

COMPUTER_NAME: Final = CONTROL + r"\ComputerName\ComputerName"
ACTIVE_COMPUTER_NAME: Final = CONTROL + r"\ComputerName\ActiveComputerName"
ENVIRONMENT: Final = CONTROL + r"\Session Manager\Environment"
SHUTDOWN_TIMEOUT: Final = "WaitToKillServiceTimeout"
DEFAULT_SHUTDOWN_SECONDS: Final = 5.0
PERSISTENT_ROUTES: Final = TCPIP + r"\PersistentRoutes"
INTERFACES: Final = TCPIP + r"\Interfaces"
INTERFACES6: Final = r"HKLM\SYSTEM\CurrentControlSet\Services\Tcpip6\Parameters\Interfaces"
_ROUTE_PARTS: Final = 4
_MAX_TASKS: Final = 256


class SystemResources(NamedTuple):
    """A snapshot of the system's use of its machine. Bytes and seconds."""

    total_memory: int
    free_memory: int
    commit_limit: int
    committed: int
    page_file: int
    page_file_used: int
    disk: int
    disk_free: int
    cpus: int
    boot_time: float
    cpu_seconds: float
    working_set: int  # of this system: all of a machine's, or one container's
    load: tuple[float, ...] = (0.0, 0.0, 0.0)  # requested processors, over 1, 5 and 15 minutes
    swap: int = 0  # of Linux


@dataclass(slots=True, eq=False)
class WindowsSystem:
    registry: WindowsRegistry
    accounts: AccountDatabase
    services: ServiceManager
    journal: SystemJournal = field(default_factory=SystemJournal)

    @property
    def events(self) -> deque[LogEntry]:
        return self.journal.events

    @property
    def tasks(self) -> dict[str, ScheduledTask]:
        return self.journal.tasks

    @property
    def computer_name(self) -> str:
        """The current name; a new one takes effect after the next start."""
        return str(
            self.registry.get(ACTIVE_COMPUTER_NAME, "ComputerName") or self.accounts.computer
        )

    def log(
        self, log: str, time: float, level: str, source: str, event_id: int, message: str
    ) -> None:
        """Adds to an event log and drops old entries."""
        self.journal.log(log, time, level, source, event_id, message)

    def can_schedule(self) -> bool:
        return len(self.tasks) < _MAX_TASKS

    # Environment variables of all processes

    def variables(self) -> Mapping[str, str]:
        return machine_variables(self.registry)

    def user_variables(self, sid: str) -> Mapping[str, str]:
        return user_variables(self.registry, sid)

    def changed_variables(self, sid: str, path: str) -> dict[str, str]:
        """The variables that a new process of the user gets from the registry. Its search path is
        the machine's followed by the user's; `path` is the default while both are unchanged.
        """
        machine, user = self.variables(), self.user_variables(sid)
        found = {name: value for name, value in machine.items() if name.lower() != "path"}
        found |= {name: value for name, value in user.items() if name.lower() != "path"}
        of_all = _search_path(machine)
        own = _search_path(user)
        if of_all is not None and of_all.rstrip(";") != PATH.rstrip(";"):
            usual = path.removeprefix(PATH) if path.startswith(PATH) else ""
            own = usual if own is None else own
        elif own is not None:
            of_all = PATH
        else:
            return found
        parts = ((of_all or "").rstrip(";"), own.strip(";"))
        return {**found, "Path": ";".join(part for part in parts if part)}


def _search_path(variables: Mapping[str, str]) -> str | None:
    return next((value for name, value in variables.items() if name.lower() == "path"), None)


def shutdown_seconds(registry: WindowsRegistry, default: float = DEFAULT_SHUTDOWN_SECONDS) -> float:
    """How long the system waits for its processes when it shuts down: milliseconds as text in the
    registry.
    """
    value = str(registry.get(CONTROL, SHUTDOWN_TIMEOUT) or "")
    return int(value) / 1000 if value.isdigit() and len(value) < 12 else default


class PersistentRoute(NamedTuple):
    destination: str  # a network
    gateway: str
    metric: str = "1"


def persistent_routes(registry: WindowsRegistry) -> list[PersistentRoute]:
    """Persistent routes (`route -p`), which are added again when the machine starts. Windows stores
    them as value names, "10.1.0.0,255.255.0.0,10.0.0.1,1".
    """
    found = []
    for name in registry.values(PERSISTENT_ROUTES) or {}:
        parts = name.split(",")
        if len(parts) == _ROUTE_PARTS:
            network = ipaddress.ip_network(f"{parts[0]}/{parts[1]}", strict=False)
            found.append(PersistentRoute(str(network), parts[2], parts[3]))
    return found


def keep_route(registry: WindowsRegistry, route: PersistentRoute) -> None:
    forget_route(registry, route.destination)
    network = ipaddress.ip_network(route.destination)
    name = f"{network.network_address},{network.netmask},{route.gateway},{route.metric}"
    registry.set(PERSISTENT_ROUTES, name, "")


def forget_route(registry: WindowsRegistry, destination: str) -> None:
    network = ipaddress.ip_network(destination)
    start = f"{network.network_address},{network.netmask},"
    for name in list(registry.values(PERSISTENT_ROUTES) or {}):
        if name.startswith(start):
            registry.delete(PERSISTENT_ROUTES, name)


def interface_key(guid: str, version: int = 4) -> str:
    """The registry key of a network interface, for one version of IP."""
    return rf"{INTERFACES if version == 4 else INTERFACES6}\{{{guid}}}"


def name_servers(registry: WindowsRegistry, guid: str, version: int) -> tuple[str, ...]:
    """The name servers that an administrator has set for an interface instead of the network's."""
    value = registry.stored(interface_key(guid, version), "NameServer")
    return tuple(str(value or "").replace(",", " ").split())


def changed_name_servers(registry: WindowsRegistry) -> bool:
    """Whether an administrator may have set name servers for an interface."""
    return registry.has_stored(INTERFACES) or registry.has_stored(INTERFACES6)


def chosen_name_servers(registry: WindowsRegistry) -> tuple[str, ...]:
    """The name servers that an administrator has set, of all interfaces."""
    found = [
        server
        for base in (INTERFACES, INTERFACES6)
        if registry.has_stored(base)
        for key in registry.keys(base)
        for server in str(registry.stored(rf"{base}\{key}", "NameServer") or "")
        .replace(",", " ")
        .split()
    ]
    return tuple(dict.fromkeys(found))


def set_name_servers(
    registry: WindowsRegistry, guid: str, version: int, servers: Iterable[str]
) -> None:
    """None: use the network's."""
    key, value = interface_key(guid, version), ",".join(servers)
    if value:
        registry.set(key, "NameServer", value)
    else:
        registry.delete(key, "NameServer")


def write_names(
    registry: WindowsRegistry, computer: str, hostname: str, searches: Iterable[str]
) -> None:
    """The names of a system and its DNS suffixes, in the keys where programs look for them."""
    registry.set(COMPUTER_NAME, "ComputerName", computer)
    registry.set(ACTIVE_COMPUTER_NAME, "ComputerName", computer)
    registry.set(TCPIP, "Hostname", hostname)
    registry.set(TCPIP, "NV Hostname", hostname)
    registry.set(TCPIP, "SearchList", ",".join(searches))


def fresh_system(
    clock: Clock,
    build: WindowsBuild,
    hostname: str,
    searches: Iterable[str] = (),
    local: Iterable[str] = (),
) -> WindowsSystem:
    """For a build, unchanged, with services that cannot be started."""
    registry = WindowsRegistry(version_keys(build))
    write_names(registry, computer_name(hostname), hostname, searches)

    async def launch(service: WindowsService, report: Report) -> ServiceProcess:
        raise ServiceError(NOT_FOUND)

    accounts = AccountDatabase(computer_name(hostname), hostname, local)
    return WindowsSystem(registry, accounts, ServiceManager(clock, registry, launch))
