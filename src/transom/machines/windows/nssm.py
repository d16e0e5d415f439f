"""NSSM, a service manager that runs any program as a Windows service, configured below the
service's registry key.

The service's process is nssm.exe. It starts the application, and restarts it when it ends: the
sooner it ends, the longer the delay, and the service is paused in the meantime.
"""

from __future__ import annotations

import asyncio
import ntpath
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol

from transom.kit.clock import Clock
from transom.kit.user_errors import UserError
from transom.machines.windows.registry import Value, WindowsRegistry
from transom.machines.windows.services import KEY, Report, ServiceError, Start

PROGRAM: Final = "nssm.exe"
PATH: Final = rf"C:\k\{PROGRAM}"  # its path on nodes
VERSION: Final = "NSSM 2.24-101-g897c7ad 64-bit 2017-04-26"
_THROTTLE: Final = 1500  # milliseconds that an application must run to count as started
_LONGEST: Final = 8  # doublings of the delay
_COULD_NOT_START: Final = 3

Kind = Literal["text", "number", "lines", "exit"]


class NssmParameter(NamedTuple):
    name: str
    kind: Kind = "text"
    default: str | int | None = ""
    """None: it has no meaningful value."""


PARAMETERS: Final = {
    row.name.lower(): row
    for row in (
        NssmParameter("Application", default=None),
        NssmParameter("AppParameters"),
        NssmParameter("AppDirectory"),
        NssmParameter("AppExit", "exit", "Restart"),
        NssmParameter("AppAffinity", default="All"),
        NssmParameter("AppEnvironment", "lines"),
        NssmParameter("AppEnvironmentExtra", "lines"),
        NssmParameter("AppNoConsole", "number", 0),
        NssmParameter("AppPriority", default="NORMAL_PRIORITY_CLASS"),
        NssmParameter("AppRestartDelay", "number", 0),
        NssmParameter("AppStdin"),
        NssmParameter("AppStdout"),
        NssmParameter("AppStderr"),
        NssmParameter("AppStopMethodSkip", "number", 0),
        NssmParameter("AppStopMethodConsole", "number", 1500),
        NssmParameter("AppStopMethodWindow", "number", 1500),
        NssmParameter("AppStopMethodThreads", "number", 1500),
        NssmParameter("AppKillProcessTree", "number", 1),
        NssmParameter("AppThrottle", "number", _THROTTLE),
        NssmParameter("AppRotateFiles", "number", 0),
        NssmParameter("AppRotateOnline", "number", 0),
        NssmParameter("AppRotateSeconds", "number", 0),
        NssmParameter("AppRotateBytes", "number", 0),
        NssmParameter("AppTimestampLog", "number", 0),
    )
}
"""Nssm's own settings; those that Windows has for every service are separate (`NATIVE`)."""

NATIVE: Final = (
    "DependOnGroup",
    "DependOnService",
    "Description",
    "DisplayName",
    "ImagePath",
    "ObjectName",
    "Name",
    "Start",
    "Type",
)
EXITS: Final = ("Restart", "Ignore", "Exit", "Suicide")
STARTS: Final[Mapping[str, Start]] = {
    "SERVICE_AUTO_START": "auto",
    "SERVICE_DEMAND_START": "demand",
    "SERVICE_DISABLED": "disabled",
}


def nssm_registry_key(service: str) -> str:
    return rf"{KEY}\{service}\Parameters"


def get_nssm_parameter(registry: WindowsRegistry, service: str, parameter: NssmParameter) -> Value:
    if parameter.kind == "exit":
        return registry.get(nssm_registry_key(service) + r"\AppExit", "") or str(parameter.default)
    found = registry.get(nssm_registry_key(service), parameter.name)
    if found is None and parameter.name == "AppDirectory":
        return ntpath.dirname(str(registry.get(nssm_registry_key(service), "Application") or ""))
    default: Value = (
        ()
        if parameter.kind == "lines"
        else parameter.default
        if parameter.default is not None
        else ""
    )
    return default if found is None else found


def set_nssm_parameter(
    registry: WindowsRegistry, service: str, parameter: NssmParameter, value: Value
) -> None:
    if parameter.kind == "exit":
        registry.set(nssm_registry_key(service) + r"\AppExit", "", value)
    else:
        registry.set(nssm_registry_key(service), parameter.name, value)


def reset_nssm_parameter(registry: WindowsRegistry, service: str, parameter: NssmParameter) -> None:
    if parameter.kind == "exit":
        registry.delete(nssm_registry_key(service) + r"\AppExit", "")
    else:
        registry.delete(nssm_registry_key(service), parameter.name)


def is_nssm_managed(bin_path: str) -> bool:
    return ntpath.basename(bin_path.strip('"')).lower() == PROGRAM


class NssmApplication(Protocol):
    async def wait(self) -> int: ...
    async def stop(self) -> None: ...


class NssmSettings(NamedTuple):
    """The registry's settings, read each time the application starts."""

    application: str
    parameters: str
    directory: str
    environment: Mapping[str, str]  # in addition to the machine's own
    stdout: str
    stderr: str
    on_exit: str
    throttle: float
    delay: float


def nssm_settings(registry: WindowsRegistry, service: str) -> NssmSettings:
    def value(name: str) -> Any:
        return get_nssm_parameter(registry, service, PARAMETERS[name.lower()])

    extra = {
        name: rest
        for name, _, rest in (line.partition("=") for line in value("AppEnvironmentExtra"))
    }
    return NssmSettings(
        str(value("Application")),
        str(value("AppParameters")),
        str(value("AppDirectory")),
        extra,
        str(value("AppStdout")),
        str(value("AppStderr")),
        str(value("AppExit")),
        int(value("AppThrottle")) / 1000,
        int(value("AppRestartDelay")) / 1000,
    )


Run = Callable[[NssmSettings], Awaitable[NssmApplication]]


class NssmSupervisor:
    """The process of a service that nssm manages. `first` is an application that already runs."""

    def __init__(
        self,
        pid: int,
        clock: Clock,
        read: Callable[[], NssmSettings],
        run: Run,
        report: Report,
        first: NssmApplication | None = None,
    ) -> None:
        self.pid = pid
        self._clock = clock
        self._read = read
        self._run = run
        self._report = report
        self._first = first
        self.on_end: Callable[[], None] | None = None
        self._application: NssmApplication | None = None
        self._started = asyncio.Event()
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._task = asyncio.get_running_loop().create_task(self._supervise())

    # `ServiceProcess`

    async def ready(self) -> None:
        await self._started.wait()

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    async def stop(self) -> None:
        await self._end(0)

    async def kill(self, code: int) -> None:
        """Killed from outside; the application ends with it."""
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

    async def _supervise(self) -> None:
        short = 0  # consecutive runs
        while True:
            given = self._read()
            if short:
                self._report("PAUSED")
                self._started.set()
                await self._clock.sleep(2.0 ** (min(short, _LONGEST) - 1))
            try:
                application, self._first = self._first or await self._run(given), None
            except (ServiceError, UserError):  # the latter when the node stops
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

    async def _lasts(self, application: NssmApplication, seconds: float) -> bool:
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


def join_words(words: Sequence[str]) -> str:
    """A command line for a service; words with blanks are quoted."""
    return " ".join(f'"{word}"' if " " in word or not word else word for word in words)
