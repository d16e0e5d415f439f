"""NSSM, a service manager beside Windows' own: any program as a service, described below the service's registry key.

The service's process is nssm.exe. It starts the application, and again when that ends: the sooner it ended, the longer it
waits, and the service is paused meanwhile.
"""

from __future__ import annotations

import asyncio
import ntpath
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, Protocol

from transom.hosts.windows.registry import Registry, Value
from transom.hosts.windows.services import KEY, Report, ServiceError, Start
from transom.kit.clock import Clock

PROGRAM: Final = "nssm.exe"
VERSION: Final = "NSSM 2.24-101-g897c7ad 64-bit 2017-04-26"
_THROTTLE: Final = 1500  # milliseconds that an application has to run to be taken for started
_LONGEST: Final = 8  # doublings of the pause
_COULD_NOT_START: Final = 3

Kind = Literal["text", "number", "lines", "exit"]


class Parameter(NamedTuple):
    name: str
    kind: Kind = "text"
    default: str | int | None = ""
    """None: it has no meaningful one."""


PARAMETERS: Final = {row.name.lower(): row for row in (
    Parameter("Application", default=None), Parameter("AppParameters"), Parameter("AppDirectory"),
    Parameter("AppExit", "exit", "Restart"), Parameter("AppAffinity", default="All"),
    Parameter("AppEnvironment", "lines"), Parameter("AppEnvironmentExtra", "lines"), Parameter("AppNoConsole", "number", 0),
    Parameter("AppPriority", default="NORMAL_PRIORITY_CLASS"), Parameter("AppRestartDelay", "number", 0),
    Parameter("AppStdin"), Parameter("AppStdout"), Parameter("AppStderr"), Parameter("AppStopMethodSkip", "number", 0),
    Parameter("AppStopMethodConsole", "number", 1500), Parameter("AppStopMethodWindow", "number", 1500),
    Parameter("AppStopMethodThreads", "number", 1500), Parameter("AppKillProcessTree", "number", 1),
    Parameter("AppThrottle", "number", _THROTTLE), Parameter("AppRotateFiles", "number", 0),
    Parameter("AppRotateOnline", "number", 0), Parameter("AppRotateSeconds", "number", 0),
    Parameter("AppRotateBytes", "number", 0), Parameter("AppTimestampLog", "number", 0),
)}  # fmt: skip
"""Those that nssm keeps itself; what Windows has for every service is beside them (`NATIVE`)."""

NATIVE: Final = ("DependOnGroup", "DependOnService", "Description", "DisplayName", "ImagePath", "ObjectName", "Name", "Start",
                 "Type")  # fmt: skip
EXITS: Final = ("Restart", "Ignore", "Exit", "Suicide")
STARTS: Final[Mapping[str, Start]] = {
    "SERVICE_AUTO_START": "auto", "SERVICE_DEMAND_START": "demand", "SERVICE_DISABLED": "disabled",
}  # fmt: skip


def key(service: str) -> str:
    return rf"{KEY}\{service}\Parameters"


def get(registry: Registry, service: str, parameter: Parameter) -> Value:
    if parameter.kind == "exit":
        return registry.get(key(service) + r"\AppExit", "") or str(parameter.default)
    found = registry.get(key(service), parameter.name)
    if found is None and parameter.name == "AppDirectory":
        return ntpath.dirname(str(registry.get(key(service), "Application") or ""))
    default: Value = () if parameter.kind == "lines" else parameter.default if parameter.default is not None else ""
    return default if found is None else found


def put(registry: Registry, service: str, parameter: Parameter, value: Value) -> None:
    if parameter.kind == "exit":
        registry.set(key(service) + r"\AppExit", "", value)
    else:
        registry.set(key(service), parameter.name, value)


def reset(registry: Registry, service: str, parameter: Parameter) -> None:
    if parameter.kind == "exit":
        registry.delete(key(service) + r"\AppExit", "")
    else:
        registry.delete(key(service), parameter.name)


def managed(bin_path: str) -> bool:
    return ntpath.basename(bin_path.strip('"')).lower() == PROGRAM


class Application(Protocol):
    async def wait(self) -> int: ...
    async def stop(self) -> None: ...


class Settings(NamedTuple):
    """What the registry says, each time that the application is started."""

    application: str
    parameters: str
    directory: str
    environment: Mapping[str, str]  # beside the machine's own
    stdout: str
    stderr: str
    on_exit: str
    throttle: float
    delay: float


def settings(registry: Registry, service: str) -> Settings:
    def value(name: str) -> Any:
        return get(registry, service, PARAMETERS[name.lower()])

    extra = {name: rest for name, _, rest in (line.partition("=") for line in value("AppEnvironmentExtra"))}
    return Settings(
        str(value("Application")), str(value("AppParameters")), str(value("AppDirectory")), extra, str(value("AppStdout")),
        str(value("AppStderr")), str(value("AppExit")), int(value("AppThrottle")) / 1000, int(value("AppRestartDelay")) / 1000,
    )  # fmt: skip


Run = Callable[[Settings], Awaitable[Application]]


class Supervisor:
    """The process of a service that nssm manages. `first` is an application that runs already."""

    def __init__(
        self, pid: int, clock: Clock, read: Callable[[], Settings], run: Run, report: Report,
        first: Application | None = None,
    ) -> None:  # fmt: skip
        self.pid = pid
        self._clock = clock
        self._read = read
        self._run = run
        self._report = report
        self._first = first
        self.on_end: Callable[[], None] | None = None
        self._application: Application | None = None
        self._started = asyncio.Event()
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._task = asyncio.get_running_loop().create_task(self._life())

    # `ServiceProcess`

    async def ready(self) -> None:
        await self._started.wait()

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    async def stop(self) -> None:
        await self._end(0)

    async def kill(self, code: int) -> None:
        """From outside; the application goes with it."""
        await self._end(code)

    def lost(self) -> None:
        """The machine has gone down, and the application with it."""
        self._task.cancel()
        self._finish(1)

    async def _end(self, code: int) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._application is not None:
            await self._application.stop()
        self._finish(code)

    def _finish(self, code: int) -> None:
        if not self._ended.done():
            self._ended.set_result(code)
            if self.on_end is not None:
                self.on_end()

    async def _life(self) -> None:
        short = 0  # lives in a row
        while True:
            given = self._read()
            if short:
                self._report("PAUSED")
                self._started.set()
                await self._clock.sleep(2.0 ** (min(short, _LONGEST) - 1))
            try:
                application, self._first = self._first or await self._run(given), None
            except ServiceError:
                self._finish(_COULD_NOT_START)
                return
            self._application = application
            short = 0 if await self._lasts(application, given.throttle) else short + 1
            code = await application.wait()
            self._application = None
            if given.on_exit.lower() in ("exit", "suicide"):
                self._finish(code)
                return
            if given.on_exit.lower() == "ignore":
                await asyncio.Event().wait()
            await self._clock.sleep(given.delay)

    async def _lasts(self, application: Application, seconds: float) -> bool:
        ended = asyncio.ensure_future(application.wait())
        enough = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait((ended, enough), return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                return False
        finally:
            for wait in (ended, enough):
                wait.cancel()
            await asyncio.gather(ended, enough, return_exceptions=True)
        self._report("RUNNING")
        self._started.set()
        return True
