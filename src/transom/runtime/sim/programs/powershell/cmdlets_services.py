"""The services of a Windows machine in PowerShell: Get-Service, Start-Service and their like."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from transom.hosts.windows import services
from transom.hosts.windows.services import Service, ServiceError, ServiceManager
from transom.runtime.sim.programs.powershell.cmdlets import Call, row
from transom.runtime.sim.programs.powershell.operators import like
from transom.runtime.sim.programs.powershell.values import PowerShellError, PsObject, items, text

_STATES: Final[dict[services.State, str]] = {
    "STOPPED": "Stopped", "START_PENDING": "StartPending", "STOP_PENDING": "StopPending", "RUNNING": "Running",
    "PAUSED": "Paused",
}  # fmt: skip
_STARTS: Final[dict[str, services.Start]] = {"automatic": "auto", "manual": "demand", "disabled": "disabled"}
_START_NAMES: Final = {"auto": "Automatic", "demand": "Manual", "disabled": "Disabled"}
_KIND: Final = "System.ServiceProcess.ServiceController"


def _manager(call: Call) -> ServiceManager:
    found: ServiceManager = call.process.context.machine.services
    return found


def _object(call: Call, service: Service) -> PsObject:
    needing = [other.name for other in _manager(call).all() if service.name.lower() in (d.lower() for d in other.depends)]
    return PsObject(_KIND, {
        "Status": _STATES[service.state], "Name": service.name, "DisplayName": service.display_name,
        "ServiceName": service.name, "StartType": _START_NAMES[service.start], "ServiceType": "Win32OwnProcess",
        "ServicesDependedOn": list(service.depends), "RequiredServices": list(service.depends),
        "DependentServices": needing, "CanStop": service.state == "RUNNING", "MachineName": ".",
    }, service.name)  # fmt: skip


def _meant(call: Call) -> list[Service]:
    """The services that were named or came along; an error for each that is not there."""
    given = [value.get("Name") if isinstance(value, PsObject) else value for value in call.input or []]
    out: list[Service] = []
    by_display = [text(name) for name in items(call.get("DisplayName"))] if call.cmdlet.name == "Get-Service" else []
    for name in (*(text(one) for one in (*items(call.get("Name")), *items(call.get("InputObject")), *given)), *by_display):
        pattern = name in by_display
        found = [s for s in _manager(call).all() if like(s.display_name if pattern else s.name, name)]
        exact = _manager(call).find(name)
        if not found and exact is not None:
            found = [exact]
        if not found and "*" not in name:
            call.fail(
                f"Cannot find any service with service name '{name}'.",
                f"ObjectNotFound: ({name}:String) [{call.cmdlet.name}], ServiceCommandException",
                "NoServiceFoundForGivenName",
            )
        out += found
    return out


def _get(call: Call) -> None:
    named = call.has("Name") or call.has("DisplayName") or call.input
    for service in _meant(call) if named else _manager(call).all():
        call.emit(_object(call, service))


def _refused(call: Call, service: Service, verb: str, identity: str, problem: str) -> None:
    call.fail(
        f"Service '{service.display_name} ({service.name})' cannot be {verb} due to the following error: {problem}",
        f"OpenError: ({_KIND}:ServiceController) [{call.cmdlet.name}], ServiceCommandException", identity,
    )  # fmt: skip


async def _begin(call: Call, service: Service) -> None:
    if service.state != "STOPPED":
        return  # it is taken for done
    try:
        await _manager(call).start(service.name)
    except ServiceError:
        problem = f"Cannot start service {service.name} on computer '.'."
        _refused(call, service, "started", "CouldNotStartService", problem)


async def _end(call: Call, service: Service) -> bool:
    if service.state == "STOPPED":
        return True
    try:
        await _manager(call).stop(service.name, force=call.has("Force"))
    except ServiceError as error:
        if error.code == services.DEPENDENTS:
            call.fail(
                f"Cannot stop service '{service.display_name} ({service.name})' because it has dependent services. It can "
                "only be stopped if the Force flag is set.",
                f"InvalidOperation: ({_KIND}:ServiceController) [{call.cmdlet.name}], ServiceCommandException",
                "ServiceHasDependentServices",
            )
        else:
            problem = f"Cannot stop {service.name} service on computer '.'."
            _refused(call, service, "stopped", "CouldNotStopService", problem)
        return False
    return True


async def _restart_one(call: Call, service: Service) -> None:
    again = [other.name for other in _manager(call).dependents(service)]
    if await _end(call, service):
        await _begin(call, service)
        for name in again:
            await _begin(call, _manager(call).get(name))


def _each(work: Callable[[Call, Service], Awaitable[Any]]) -> Callable[[Call], Awaitable[None]]:
    async def run(call: Call) -> None:
        for service in _meant(call):
            await work(call, service)
            if call.has("PassThru"):
                call.emit(_object(call, service))

    return run


def _start_type(call: Call) -> services.Start:
    asked = call.text("StartupType", "Automatic").lower()
    found = _STARTS.get(asked.removesuffix("delayedstart"))
    if found is None:
        raise PowerShellError(
            f"Cannot bind parameter 'StartupType'. Cannot convert value \"{call.text('StartupType')}\" to type "
            '"System.ServiceProcess.ServiceStartMode".',
            f"InvalidArgument: (:) [{call.cmdlet.name}], ParameterBindingException", "CannotConvertArgumentNoMessage",
        )  # fmt: skip
    return found


def _new(call: Call) -> None:
    name = call.text("Name")
    try:
        service = _manager(call).create(
            name, call.text("BinaryPathName"), display_name=call.text("DisplayName"), start=_start_type(call),
            depends=[text(one) for one in items(call.get("DependsOn"))],
        )  # fmt: skip
    except ServiceError as error:
        call.fail(
            f"Service '{call.text('DisplayName', name)} ({name})' cannot be created due to the following error: {error.text}",
            f"PermissionDenied: ({name}:String) [New-Service], ServiceCommandException", "CouldNotNewService",
        )  # fmt: skip
        return
    service.description = call.text("Description")
    _manager(call).changed(service)
    call.emit(_object(call, service))


async def _set(call: Call, service: Service) -> None:
    if call.has("StartupType"):
        service.start = _start_type(call)
    service.display_name = call.text("DisplayName", service.display_name)
    service.description = call.text("Description", service.description)
    _manager(call).changed(service)
    match call.text("Status").lower():
        case "running":
            await _begin(call, service)
        case "stopped":
            await _end(call, service)


CMDLETS = (
    row("Get-Service", _get, "Name", "DependentServices RequiredServices", "DisplayName InputObject"),
    row("Start-Service", _each(_begin), "Name", "PassThru", "InputObject DisplayName"),
    row("Stop-Service", _each(_end), "Name", "Force NoWait PassThru", "InputObject DisplayName"),
    row("Restart-Service", _each(_restart_one), "Name", "Force PassThru", "InputObject DisplayName"),
    row("New-Service", _new, "Name BinaryPathName", "", "DisplayName Description StartupType DependsOn Credential"),
    row("Set-Service", _each(_set), "Name", "PassThru", "DisplayName Description StartupType Status InputObject"),
)
