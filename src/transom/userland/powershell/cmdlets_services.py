"""Cmdlets for the services of a container or a machine: Get-Service, Start-Service and others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from transom.machines.windows import services
from transom.machines.windows.services import ServiceError, ServiceManager, WindowsService
from transom.userland.powershell.cmdlets import CmdletCall, cmdlet_row
from transom.userland.powershell.cmdlets_system import change_real_service, real_services
from transom.userland.powershell.operators import matches_wildcard
from transom.userland.powershell.values import PowerShellError, PsObject, to_items, to_text

_STATES: Final[dict[services.State, str]] = {
    "STOPPED": "Stopped",
    "START_PENDING": "StartPending",
    "STOP_PENDING": "StopPending",
    "RUNNING": "Running",
    "PAUSED": "Paused",
}
_STARTS: Final[dict[str, services.Start]] = {
    "automatic": "auto",
    "manual": "demand",
    "disabled": "disabled",
}
_START_NAMES: Final = {"auto": "Automatic", "demand": "Manual", "disabled": "Disabled"}
_KIND: Final = "System.ServiceProcess.ServiceController"


def _manager(call: CmdletCall) -> ServiceManager:
    found: ServiceManager = call.process.context.windows.system.services
    return found


def _changeable(call: CmdletCall) -> ServiceManager:
    """Raises PowerShellError: only administrators change services."""
    if not call.process.context.windows.account.administrator:
        raise PowerShellError(
            "Access is denied",
            f"PermissionDenied: (:) [{call.cmdlet.name}], ServiceCommandException",
            f"CouldNotSetService,Microsoft.PowerShell.Commands.{call.cmdlet.name.replace('-', '')}Command",
        )
    return _manager(call)


def _object(call: CmdletCall, service: WindowsService) -> PsObject:
    needing = [
        other.name
        for other in _manager(call).all()
        if service.name.lower() in (d.lower() for d in other.depends)
    ]
    return PsObject(
        _KIND,
        {
            "Status": _STATES[service.state],
            "Name": service.name,
            "DisplayName": service.display_name,
            "ServiceName": service.name,
            "StartType": _START_NAMES[service.start],
            "ServiceType": "Win32OwnProcess",
            "ServicesDependedOn": list(service.depends),
            "RequiredServices": list(service.depends),
            "DependentServices": needing,
            "CanStop": service.state == "RUNNING" and service.stoppable,
            "CanPauseAndContinue": False,
            "CanShutdown": service.state == "RUNNING",
            "MachineName": ".",
        },
        service.name,
    )


def _meant(call: CmdletCall) -> list[WindowsService]:
    """The services that were named or piped in; reports each that does not exist."""
    given = [
        value.get("Name") if isinstance(value, PsObject) else value for value in call.input or []
    ]
    out: list[WindowsService] = []
    by_display = (
        [to_text(name) for name in to_items(call.get("DisplayName"))]
        if call.cmdlet.name == "Get-Service"
        else []
    )
    for name in (
        *(
            to_text(one)
            for one in (*to_items(call.get("Name")), *to_items(call.get("InputObject")), *given)
        ),
        *by_display,
    ):
        pattern = name in by_display
        found = [
            s
            for s in _manager(call).all()
            if matches_wildcard(s.display_name if pattern else s.name, name)
        ]
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


def _get(call: CmdletCall) -> None:
    if call.process.context.native is not None:
        real_services(call)
        return
    named = call.has("Name") or call.has("DisplayName") or call.input
    found = _meant(call) if named else _manager(call).all()
    if call.has("RequiredServices") or call.has("RS"):
        wanted = [name.lower() for service in found for name in service.depends]
        found = [one for one in _manager(call).all() if one.name.lower() in wanted]
    elif call.has("DependentServices") or call.has("DS"):
        names = {service.name.lower() for service in found}
        found = [
            one for one in _manager(call).all() if names & {name.lower() for name in one.depends}
        ]
    for service in found:
        call.emit(_object(call, service))


def _refused(
    call: CmdletCall, service: WindowsService, verb: str, identity: str, problem: str
) -> None:
    call.fail(
        (
            f"Service '{service.display_name} ({service.name})' cannot be {verb} due to the "
            f"following error: {problem}"
        ),
        f"OpenError: ({_KIND}:ServiceController) [{call.cmdlet.name}], ServiceCommandException",
        identity,
    )


async def _begin(call: CmdletCall, service: WindowsService) -> None:
    if service.state != "STOPPED":
        return  # assume that it is done
    try:
        await _manager(call).start(service.name)
    except ServiceError:
        problem = f"Cannot start service {service.name} on computer '.'."
        _refused(call, service, "started", "CouldNotStartService", problem)


async def _end(call: CmdletCall, service: WindowsService) -> bool:
    if service.state == "STOPPED":
        return True
    try:
        await _manager(call).stop(service.name, force=call.has("Force"))
    except ServiceError as error:
        if error.code == services.DEPENDENTS:
            call.fail(
                f"Cannot stop service '{service.display_name} ({service.name})' because it "
                "has dependent services. It can "
                "only be stopped if the Force flag is set.",
                (
                    f"InvalidOperation: ({_KIND}:ServiceController) [{call.cmdlet.name}], "
                    "ServiceCommandException"
                ),
                "ServiceHasDependentServices",
            )
        else:
            problem = f"Cannot stop {service.name} service on computer '.'."
            _refused(call, service, "stopped", "CouldNotStopService", problem)
        return False
    return True


async def _restart_one(call: CmdletCall, service: WindowsService) -> None:
    again = [other.name for other in _manager(call).dependents(service)]
    if await _end(call, service):
        await _begin(call, service)
        for name in again:
            await _begin(call, _manager(call).get(name))


def _each(
    work: Callable[[CmdletCall, WindowsService], Awaitable[Any]],
) -> Callable[[CmdletCall], Awaitable[None]]:
    async def run(call: CmdletCall) -> None:
        if call.process.context.native is not None:
            await change_real_service(call)
            return
        _changeable(call)
        for service in _meant(call):
            await work(call, service)
            if call.has("PassThru"):
                call.emit(_object(call, service))

    return run


def _start_type(call: CmdletCall) -> services.Start:
    requested = call.text("StartupType", "Automatic").lower()
    found = _STARTS.get(requested.removesuffix("delayedstart"))
    if found is None:
        raise PowerShellError(
            "Cannot bind parameter 'StartupType'. Cannot convert value "
            f'"{call.text("StartupType")}" to type '
            '"System.ServiceProcess.ServiceStartMode".',
            f"InvalidArgument: (:) [{call.cmdlet.name}], ParameterBindingException",
            "CannotConvertArgumentNoMessage",
        )
    return found


def _account(call: CmdletCall) -> str:
    """-Credential: the account that the service runs as."""
    credential = call.get("Credential")
    name = to_text(credential.get("UserName")) if isinstance(credential, PsObject) else ""
    if not name:
        return "LocalSystem"
    if call.process.context.windows.system.accounts.identity(name) is None:
        raise ServiceError(services.INVALID_ACCOUNT)
    return name


def _new(call: CmdletCall) -> None:
    name = call.text("Name")
    missing = [one for one in ("Name", "BinaryPathName") if not call.text(one)]
    if missing:
        raise PowerShellError(
            "Cannot process command because of one or more missing mandatory parameters: "
            f"{' '.join(missing)}.",
            "InvalidArgument: (:) [New-Service], ParameterBindingException",
            "MissingMandatoryParameter,Microsoft.PowerShell.Commands.NewServiceCommand",
            where="New-Service",
        )
    try:
        service = _changeable(call).create(
            name,
            call.text("BinaryPathName"),
            display_name=call.text("DisplayName"),
            start=_start_type(call),
            depends=[to_text(one) for one in to_items(call.get("DependsOn"))],
            account=_account(call),
        )
    except ServiceError as error:
        call.fail(
            (
                f"Service '{call.text('DisplayName', name)} ({name})' cannot be created due to "
                f"the following error: {error.text}"
            ),
            f"PermissionDenied: ({name}:String) [New-Service], ServiceCommandException",
            "CouldNotNewService",
        )
        return
    service.description = call.text("Description")
    _manager(call).changed(service)
    call.emit(_object(call, service))


async def _set(call: CmdletCall, service: WindowsService) -> None:
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


async def _pause(call: CmdletCall, service: WindowsService) -> None:
    """Suspend-Service and Resume-Service: no service of Windows here accepts to be paused."""
    if service.state == "RUNNING" and call.cmdlet.name == "Resume-Service":
        return
    verb = "suspended" if call.cmdlet.name == "Suspend-Service" else "resumed"
    why = (
        "service does not support being suspended or resumed"
        if service.state == "RUNNING"
        else "service is not currently running"
    )
    call.fail(
        f"Service '{service.display_name} ({service.name})' cannot be {verb} because the {why}.",
        f"CloseError: ({_KIND}:ServiceController) [{call.cmdlet.name}], ServiceCommandException",
        f"CouldNot{call.cmdlet.name.partition('-')[0]}Service"
        + ("NotSupported" if service.state == "RUNNING" else "NotRunning"),
    )


def _remove(call: CmdletCall) -> None:
    for service in _meant(call):
        _changeable(call).delete(service.name)


CMDLETS = (
    cmdlet_row("Remove-Service", _remove, "Name", "", "InputObject"),
    cmdlet_row(
        "Get-Service",
        _get,
        "Name",
        "DependentServices DS RequiredServices RS",
        "DisplayName InputObject",
    ),
    cmdlet_row("Start-Service", _each(_begin), "Name", "PassThru", "InputObject DisplayName"),
    cmdlet_row(
        "Stop-Service", _each(_end), "Name", "Force NoWait PassThru", "InputObject DisplayName"
    ),
    cmdlet_row(
        "Restart-Service", _each(_restart_one), "Name", "Force PassThru", "InputObject DisplayName"
    ),
    cmdlet_row("Suspend-Service", _each(_pause), "Name", "PassThru", "InputObject DisplayName"),
    cmdlet_row("Resume-Service", _each(_pause), "Name", "PassThru", "InputObject DisplayName"),
    cmdlet_row(
        "New-Service",
        _new,
        "Name BinaryPathName",
        "",
        "DisplayName Description StartupType DependsOn Credential",
    ),
    cmdlet_row(
        "Set-Service",
        _each(_set),
        "Name",
        "PassThru",
        "DisplayName Description StartupType Status InputObject",
    ),
)
