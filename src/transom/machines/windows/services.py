"""The service control manager of a Windows machine: its services and their state.

It does not know what a service does: the creator of the manager supplies the function that starts a
service's process. Services are also described in the registry, where users look for them.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import field
from typing import Any, Final, Literal, Protocol, TypeVar

from transom.kit.clock import Clock
from transom.kit.lazy_dataclass import dataclass
from transom.machines.windows.registry import WindowsRegistry

_T = TypeVar("_T")
log = logging.getLogger("transom.machines")

State = Literal["STOPPED", "START_PENDING", "STOP_PENDING", "RUNNING", "PAUSED"]
Start = Literal["auto", "demand", "disabled"]
Action = tuple[Literal["restart", "none"], int]
"""What to do when the process has failed, and after how many milliseconds."""

# SERVICE_FAILURE_ACTIONS in the registry: the reset period, two texts, the number of actions, their
# offset; each action is a type and a delay.
_RECOVERY: Final = struct.Struct("<I8xI4x")
_ACTION: Final = struct.Struct("<II")
_RESTART: Final = 1

NUMBERS: Final[dict[State, int]] = {
    "STOPPED": 1,
    "START_PENDING": 2,
    "STOP_PENDING": 3,
    "RUNNING": 4,
    "PAUSED": 7,
}
_START_WORDS: Final = {"auto": "auto start", "demand": "demand start", "disabled": "disabled"}
STARTS: Final[dict[Start, int]] = {"auto": 2, "demand": 3, "disabled": 4}
SERVICE_EVENTS: Final = "Service Control Manager"  # the source of their events
KEY: Final = r"HKLM\SYSTEM\CurrentControlSet\Services"
RESPONSE_SECONDS: Final = (
    30.0  # ServicesPipeTimeout: how long a process may take to report that it is a service
)

NOT_FOUND, DENIED, BAD_PARAMETER = 2, 5, 87
DEPENDENTS, NOT_VALID, TIMEOUT, RUNS_ALREADY, DISABLED, MISSING, NOT_STARTED = (
    1051,
    1052,
    1053,
    1056,
    1058,
    1060,
    1062,
)
ENDED, DEPENDENCY_FAILED, DELETED, EXISTS, NO_DEPENDENCY, NEVER_STARTED = (
    1067,
    1068,
    1072,
    1073,
    1075,
    1077,
)
INVALID_ACCOUNT, LOGON_FAILED, NO_RESOURCES = 1057, 1069, 1450
_MAX_SERVICES: Final = 1024
_TEXTS: Final = {
    NOT_FOUND: "The system cannot find the file specified.",
    DENIED: "Access is denied.",
    BAD_PARAMETER: "The parameter is incorrect.",
    DEPENDENTS: "A stop control has been sent to a service that other running services are dependent on.",
    NOT_VALID: "The requested control is not valid for this service.",
    TIMEOUT: "The service did not respond to the start or control request in a timely fashion.",
    RUNS_ALREADY: "An instance of the service is already running.",
    DISABLED: "The service cannot be started, either because it is disabled or because it has no "
    "enabled devices associated "
    "with it.",
    MISSING: "The specified service does not exist as an installed service.",
    NOT_STARTED: "The service has not been started.",
    INVALID_ACCOUNT: "The account name is invalid or does not exist, or the password is invalid for the "
    "account name "
    "specified.",
    NO_RESOURCES: "Insufficient system resources exist to complete the requested service.",
    LOGON_FAILED: "The service did not start due to a logon failure.",
    ENDED: "The process terminated unexpectedly.",
    DEPENDENCY_FAILED: "The dependency service or group failed to start.",
    DELETED: "The specified service has been marked for deletion.",
    EXISTS: "The specified service already exists.",
    NO_DEPENDENCY: "The dependency service does not exist or has been marked for deletion.",
}


class ServiceError(Exception):
    """A Windows system error."""

    def __init__(self, code: int) -> None:
        super().__init__(_TEXTS[code])
        self.code = code
        self.text = _TEXTS[code]


class ServiceProcess(Protocol):
    """The process of a service."""

    pid: int

    async def ready(self) -> None:
        """Returns when the program has reported to the manager that it runs. A program that is not
        a service never does.
        """

    async def wait(self) -> int:
        """Its exit code. May be awaited by several."""

    async def stop(self) -> None:
        """Returns when it has ended."""


@dataclass(slots=True, eq=False)
class WindowsService:
    name: str
    bin_path: str
    display_name: str = ""
    start: Start = "demand"
    depends: tuple[str, ...] = ()
    account: str = "LocalSystem"
    description: str = ""
    recovery: tuple[Action, ...] = ()
    reset_seconds: int = 0
    stoppable: bool = True
    reload: Callable[[], None] | None = None  # reads its parameters again, if it can
    state: State = "STOPPED"
    exit_code: int = NEVER_STARTED
    process: ServiceProcess | None = None
    recorded_start: Start | None = None  # the start type when it was changed last
    failures: int = 0
    failed_at: float = field(default=float("-inf"))
    deleted: bool = False

    @property
    def pid(self) -> int:
        return self.process.pid if self.process is not None else 0


Report = Callable[[State], None]
Launch = Callable[[WindowsService, Report], Awaitable[ServiceProcess]]
"""Starts the process of a service, which may later report another state. Raises ServiceError."""


def _pack_recovery(service: WindowsService) -> bytes:
    actions = (
        _ACTION.pack(_RESTART if a == "restart" else 0, delay) for a, delay in service.recovery
    )
    return _RECOVERY.pack(service.reset_seconds, len(service.recovery)) + b"".join(actions)


RecordEvent = Callable[[int, str, str], None]
"""Records an event of the service control manager: its number, level and message."""


class ServiceManager:
    def __init__(
        self,
        clock: Clock,
        registry: WindowsRegistry,
        launch: Launch,
        record: RecordEvent | None = None,
    ) -> None:
        self._clock = clock
        self._record = record
        self._registry = registry
        self._launch = launch
        self._services: dict[str, WindowsService] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def load(self, without: Collection[str]) -> None:
        """The services in the registry, as after a reboot. `without`: those that other code
        registers.
        """
        known = {name.lower() for name in without} | set(self._services)
        starts: dict[object, Start] = {number: start for start, number in STARTS.items()}
        for name in self._registry.keys(KEY):
            values = self._registry.values(rf"{KEY}\{name}") or {}
            path, depends = values.get("ImagePath"), values.get("DependOnService")
            if name.lower() in known or not isinstance(path, str):
                continue
            service = self._services[name.lower()] = WindowsService(
                name,
                path,
                str(values.get("DisplayName") or name),
                starts.get(values.get("Start"), "demand"),
                depends if isinstance(depends, tuple) else (),
                str(values.get("ObjectName") or "LocalSystem"),
                str(values.get("Description") or ""),
            )
            self._restore_recovery(service)

    def _restore_recovery(self, service: WindowsService) -> None:
        packed = self._registry.get(rf"{KEY}\{service.name}", "FailureActions")
        if isinstance(packed, bytes) and len(packed) >= _RECOVERY.size:
            service.reset_seconds, count = _RECOVERY.unpack_from(packed)
            rows = _ACTION.iter_unpack(
                packed[_RECOVERY.size : _RECOVERY.size + count * _ACTION.size]
            )
            service.recovery = tuple(
                ("restart" if kind == _RESTART else "none", delay) for kind, delay in rows
            )

    # ---- queries ----

    def all(self) -> list[WindowsService]:
        return sorted(self._services.values(), key=lambda service: service.name.lower())

    def find(self, name: str) -> WindowsService | None:
        """By its name or its display name."""
        wanted = name.lower()
        found = self._services.get(wanted) or next(
            (s for s in self._services.values() if s.display_name.lower() == wanted), None
        )
        if found is not None:
            # Windows keeps the start type in memory, and reads the path from the registry.
            path = self._registry.get(rf"{KEY}\{found.name}", "ImagePath")
            if isinstance(path, str) and path:
                found.bin_path = path
        return found

    def get(self, name: str) -> WindowsService:
        found = self.find(name)
        if found is None:
            raise ServiceError(MISSING)
        return found

    def dependents(self, service: WindowsService) -> list[WindowsService]:
        """Services that depend on it and are not stopped."""
        name = service.name.lower()
        return [
            s for s in self.all() if s.state != "STOPPED" and name in (d.lower() for d in s.depends)
        ]

    # ---- configuration ----

    def create(
        self,
        name: str,
        bin_path: str,
        *,
        display_name: str = "",
        start: Start = "demand",
        depends: Sequence[str] = (),
        account: str = "LocalSystem",
        installed: bool = True,
    ) -> WindowsService:
        """`installed`: by an administrator, which is recorded; otherwise it belongs to Windows."""
        if not name or "\\" in name or "/" in name or len(name) > 256:
            raise ServiceError(BAD_PARAMETER)
        if len(self._services) >= _MAX_SERVICES:
            raise ServiceError(NO_RESOURCES)
        present = self._services.get(name.lower())
        if present is not None:
            raise ServiceError(DELETED if present.deleted else EXISTS)
        service = WindowsService(
            name, bin_path, display_name or name, start, tuple(depends), account
        )
        self._restore_recovery(service)
        self._services[name.lower()] = service
        self.changed(service)
        if installed:
            kind = "user mode service"
            self._event(
                7045,
                "A service was installed in the system.\r\n\r\n"
                f"Service Name:  {name}\r\nService File Name:  {bin_path}\r\n"
                f"Service Type:  {kind}\r\n"
                f"Service Start Type:  {_START_WORDS[start]}\r\nService Account:  {account}",
            )
        return service

    def changed(self, service: WindowsService) -> None:
        """Changes its configuration and updates the registry."""
        if service.deleted:
            raise ServiceError(DELETED)
        before, service.recorded_start = service.recorded_start, service.start
        if before not in (None, service.start):
            self._event(
                7040,
                f"The start type of the {service.display_name} service was changed from "
                f"{_START_WORDS[before]} to {_START_WORDS[service.start]}.",
            )
        key = rf"{KEY}\{service.name}"
        rows: dict[str, Any] = {
            "Type": 16,
            "Start": STARTS[service.start],
            "ErrorControl": 1,
            "ImagePath": service.bin_path,
            "DisplayName": service.display_name,
            "ObjectName": service.account,
        }
        if service.description:
            rows["Description"] = service.description
        for name, value in rows.items():
            self._registry.set(key, name, value)
        if service.recovery or service.reset_seconds:
            self._registry.set(key, "FailureActions", _pack_recovery(service))
        if service.depends:
            self._registry.set(key, "DependOnService", service.depends)
        else:
            self._registry.delete(key, "DependOnService")

    def delete(self, name: str) -> None:
        """A running service is removed when it has stopped."""
        service = self.get(name)
        if service.deleted:
            raise ServiceError(DELETED)
        service.deleted = True
        self._drop_deleted(service)

    def _drop_deleted(self, service: WindowsService) -> None:
        if service.deleted and service.state == "STOPPED":
            self._services.pop(service.name.lower(), None)
            self._registry.delete(rf"{KEY}\{service.name}")

    # ---- control ----

    async def start(self, name: str) -> WindowsService:
        """Continues when the caller is cancelled."""
        return await asyncio.shield(self._spawn(self._start(name)))

    async def _start(self, name: str) -> WindowsService:
        service = self.get(name)
        if service.deleted:
            raise ServiceError(DELETED)
        if service.start == "disabled":
            raise ServiceError(DISABLED)
        if service.state != "STOPPED":
            raise ServiceError(RUNS_ALREADY)
        await self._start_dependencies(service)
        await self._begin(service)
        return service

    async def _start_dependencies(self, service: WindowsService) -> None:
        for name in service.depends:
            needed = self._services.get(name.lower())
            if needed is None or needed.deleted:
                raise ServiceError(NO_DEPENDENCY)
            if needed.state == "STOPPED":
                try:
                    await self._start(needed.name)
                except ServiceError as error:
                    raise ServiceError(DEPENDENCY_FAILED) from error

    async def _begin(self, service: WindowsService) -> None:
        service.state = "START_PENDING"
        try:
            process = service.process = await self._launch(service, self.report(service))
            if not await self._answers(process):
                await process.stop()
                raise ServiceError(TIMEOUT)
        except BaseException as error:
            service.state, service.process = "STOPPED", None
            service.exit_code = error.code if isinstance(error, ServiceError) else 0
            if isinstance(error, ServiceError):
                self._start_failed(service, error)
            self._drop_deleted(service)
            raise
        if service.state == "START_PENDING":
            service.state = "RUNNING"
        service.exit_code = 0
        self._event(7036, f"The {service.display_name} service entered the running state.")
        self._spawn(self._watch(service, process))

    def _start_failed(self, service: WindowsService, error: ServiceError) -> None:
        if error.code == TIMEOUT:
            self._event(
                7009,
                f"A timeout was reached ({RESPONSE_SECONDS * 1000:.0f} milliseconds) while waiting "
                f"for the {service.display_name} service to connect.",
                "Error",
            )
        self._event(
            7000,
            f"The {service.display_name} service failed to start due to the following error: "
            f"\r\n{error.text}",
            "Error",
        )

    async def _answers(self, process: ServiceProcess) -> bool:
        """Whether the process reports in time that it is a service. One that has ended never
        will.
        """
        waits = [
            asyncio.ensure_future(wait)
            for wait in (process.ready(), process.wait(), self._clock.sleep(RESPONSE_SECONDS))
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            return waits[0].done() and not waits[1].done()
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def stop(self, name: str, *, force: bool = False) -> WindowsService:
        """With `force`, services that depend on it are stopped first."""
        return await asyncio.shield(self._spawn(self._stop(name, force)))

    async def _stop(self, name: str, force: bool) -> WindowsService:
        service = self.get(name)
        if service.state in ("STOPPED", "STOP_PENDING") or service.process is None:
            raise ServiceError(NOT_STARTED)
        if not service.stoppable:
            raise ServiceError(NOT_VALID)
        needing = self.dependents(service)
        if needing and not force:
            raise ServiceError(DEPENDENTS)
        for other in needing:
            await self._stop(other.name, force)
        process = service.process
        service.state = "STOP_PENDING"
        await process.stop()
        self._stopped(service)
        self._event(7036, f"The {service.display_name} service entered the stopped state.")
        return service

    def reload(self, name: str) -> WindowsService:
        """SERVICE_CONTROL_PARAMCHANGE: the service reads its parameters again."""
        service = self.get(name)
        if service.state == "STOPPED":
            raise ServiceError(NOT_STARTED)
        if service.reload is None:
            raise ServiceError(NOT_VALID)
        service.reload()
        return service

    def _event(self, number: int, text: str, level: str = "Information") -> None:
        if self._record is not None:
            self._record(number, level, text)

    def _stopped(self, service: WindowsService, code: int = 0) -> None:
        service.state, service.process, service.exit_code = "STOPPED", None, code
        self._drop_deleted(service)

    def report(self, service: WindowsService) -> Report:
        """How its process reports its state."""

        def reported(state: State) -> None:
            if service.state not in ("STOP_PENDING", "STOPPED"):
                service.state = state

        return reported

    def adopt(self, service: WindowsService, process: ServiceProcess) -> None:
        """It runs already."""
        service.state, service.process, service.exit_code = "RUNNING", process, 0
        self._spawn(self._watch(service, process))

    # ---- recovery ----

    async def _watch(self, service: WindowsService, process: ServiceProcess) -> None:
        await process.wait()
        if service.process is not process or service.state == "STOP_PENDING":
            return
        self._stopped(service, ENDED)
        now = self._clock.monotonic()
        if service.reset_seconds and now - service.failed_at >= service.reset_seconds:
            service.failures = 0
        service.failed_at = now
        service.failures += 1
        ended = (
            f"The {service.display_name} service terminated unexpectedly.  It has done this "
            f"{service.failures} time(s)."
        )
        action, milliseconds = "none", 0
        if service.recovery and not service.deleted:
            action, milliseconds = service.recovery[
                min(service.failures, len(service.recovery)) - 1
            ]
        if action == "none":
            self._event(7034, ended, "Error")
        else:
            self._event(
                7031,
                f"{ended}  The following corrective action will be taken in {milliseconds} "
                "milliseconds: Restart the service.",
                "Error",
            )
            await self._clock.sleep(milliseconds / 1000)
            if service.state == "STOPPED" and self._services.get(service.name.lower()) is service:
                await self._restart(service)

    async def _restart(self, service: WindowsService) -> None:
        try:
            await self._start(service.name)
        except ServiceError as error:
            service.exit_code = error.code

    def _spawn(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        problem = None if task.cancelled() else task.exception()  # the caller may be gone
        if problem is not None and not isinstance(problem, ServiceError):
            log.error("a service of a simulated machine failed: %s", problem, exc_info=problem)

    async def shut_down(self, seconds: float) -> None:
        """Stops all services at the same time, as Windows does before it shuts down; returns when
        they have ended or `seconds` have passed.
        """
        stops = []
        for service in self.all():
            if service.process is not None:
                service.state = "STOP_PENDING"
                stops.append(self._spawn(self._stop_at_shutdown(service, service.process)))
        if stops:
            timer = asyncio.ensure_future(self._clock.sleep(seconds))
            ended = asyncio.gather(*stops, return_exceptions=True)
            try:
                await asyncio.wait((timer, ended), return_when=asyncio.FIRST_COMPLETED)
            finally:
                timer.cancel()
                ended.cancel()
                await asyncio.gather(timer, ended, return_exceptions=True)

    async def _stop_at_shutdown(self, service: WindowsService, process: ServiceProcess) -> None:
        await process.stop()
        self._stopped(service)

    def machine_stopped(self) -> None:
        """Every process has ended with the machine."""
        for task in tuple(self._tasks):
            task.cancel()
        for service in self.all():
            service.failures = 0
            self._stopped(service, NEVER_STARTED)
