"""The methods of WMI classes, which wmic, Invoke-CimMethod, Invoke-WmiMethod and the objects of
Get-WmiObject call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from transom.kit.argv import parse_command_line
from transom.machines.windows.host import TCPIP
from transom.machines.windows.services import (
    DEPENDENTS,
    DISABLED,
    NOT_STARTED,
    NOT_VALID,
    RUNS_ALREADY,
    ServiceError,
    Start,
)
from transom.machines.windows.system import COMPUTER_NAME
from transom.userland.process import Process
from transom.userland.windows import wmi, wmi_devices
from transom.userland.windows.adapter_state import set_adapter_state
from transom.userland.windows.power import request_power
from transom.userland.windows.wmi import Instance

Arguments = Mapping[str, Any]  # by name in lower case
Result = dict[str, Any]
_DONE: Final[Result] = {"ReturnValue": 0}
_DENIED, _NOT_FOUND, _BAD_PATH, _INVALID = 2, 9, 9, 21
_SERVICE_CODES: Final = {
    DEPENDENTS: 3,
    NOT_VALID: 5,
    NOT_STARTED: 6,
    RUNS_ALREADY: 10,
    DISABLED: 14,
}
_START_MODES: Final[dict[str, Start]] = {
    "automatic": "auto",
    "auto": "auto",
    "manual": "demand",
    "disabled": "disabled",
}
_RESTART_FLAG: Final = 2


class NoMethodError(Exception):
    """The class has no such method."""


def _discard(_data: bytes) -> None:
    """Its console is not visible."""


def _create_process(process: Process, row: Instance | None, given: Arguments) -> Result:
    line = str(given.get("commandline") or "")
    words = parse_command_line(line, " \t")
    folder = str(given.get("currentdirectory") or r"C:\Windows\system32")
    windows = process.context.windows
    if not words:
        return {"ProcessId": None, "ReturnValue": _INVALID}
    try:
        started = windows.launch(words, windows.account, process.env, folder, _discard)
    except OSError:
        return {"ProcessId": None, "ReturnValue": _NOT_FOUND}
    return {"ProcessId": started.pid, "ReturnValue": 0}


def _end_process(process: Process, row: Instance | None, given: Arguments) -> Result:
    pid = int((row or {}).get("ProcessId", -1))
    entry = next((one for one in wmi.wmi_processes(process.context) if one.pid == pid), None)
    if entry is None or entry.system:
        return {"ReturnValue": _DENIED}
    process.context.processes.signal(pid, "SIGKILL")
    return _DONE


def _process_owner(process: Process, row: Instance | None, given: Arguments) -> Result:
    owner = wmi_devices.owner_of(process.context, int((row or {}).get("ProcessId", -1)))
    if owner is None:
        return {"Domain": None, "ReturnValue": _DENIED, "User": None}
    return {"Domain": owner[0], "ReturnValue": 0, "User": owner[1]}


def _process_owner_sid(process: Process, row: Instance | None, given: Arguments) -> Result:
    owner = wmi_devices.owner_of(process.context, int((row or {}).get("ProcessId", -1)))
    if owner is None:
        return {"ReturnValue": _DENIED, "Sid": None}
    return {"ReturnValue": 0, "Sid": owner[2]}


async def _start_service(process: Process, row: Instance | None, given: Arguments) -> Result:
    await process.context.windows.system.services.start(_service_name(row))
    return _DONE


async def _stop_service(process: Process, row: Instance | None, given: Arguments) -> Result:
    await process.context.windows.system.services.stop(_service_name(row))
    return _DONE


def _delete_service(process: Process, row: Instance | None, given: Arguments) -> Result:
    process.context.windows.system.services.delete(_service_name(row))
    return _DONE


def _service_name(row: Instance | None) -> str:
    return str((row or {}).get("Name", ""))


def _change_service(process: Process, row: Instance | None, given: Arguments) -> Result:
    """Change and ChangeStartMode: what is not given stays."""
    manager = process.context.windows.system.services
    service = manager.get(_service_name(row))
    mode = given.get("startmode")
    if mode is not None:
        start = _START_MODES.get(str(mode).lower())
        if start is None:
            return {"ReturnValue": _INVALID}
        service.start = start
    service.display_name = str(given.get("displayname") or service.display_name)
    service.bin_path = str(given.get("pathname") or service.bin_path)
    service.account = str(given.get("startname") or service.account)
    manager.changed(service)
    return _DONE


def _create_service(process: Process, row: Instance | None, given: Arguments) -> Result:
    start = _START_MODES.get(str(given.get("startmode") or "manual").lower(), "demand")
    process.context.windows.system.services.create(
        str(given.get("name") or ""),
        str(given.get("pathname") or ""),
        display_name=str(given.get("displayname") or ""),
        start=start,
    )
    return _DONE


def _power(process: Process, action: str) -> Result:
    power = process.context.windows.power
    if power is None:
        return {"ReturnValue": 50}
    return {
        "ReturnValue": request_power(process, power, "restart" if action == "restart" else "off", 0)
    }


def _shut_down(process: Process, row: Instance | None, given: Arguments) -> Result:
    flags = int(given.get("flags") or 0)
    return _power(process, "restart" if flags & _RESTART_FLAG else "off")


def _create_share(process: Process, row: Instance | None, given: Arguments) -> Result:
    context, path = process.context, str(given.get("path") or "")
    name = str(given.get("name") or "")
    if not process.files.is_directory(path):
        return {"ReturnValue": 24}
    if name.lower() in (one.lower() for one in wmi_devices.shared_directories(context)):
        return {"ReturnValue": 22}
    remark = str(given.get("description") or "")
    wmi_devices.add_share(context, name, process.files.real_path(path), remark)
    return _DONE


def _delete_share(process: Process, row: Instance | None, given: Arguments) -> Result:
    name = _service_name(row)
    if name not in wmi_devices.shared_directories(process.context):
        return {"ReturnValue": _DENIED}
    wmi_devices.remove_share(process.context, name)
    return _DONE


def _set_adapter(process: Process, row: Instance | None, *, up: bool) -> Result:
    view = process.context.windows.network
    for one in view.interfaces():
        if one.index == (row or {}).get("InterfaceIndex"):
            set_adapter_state(view, one, up=up)
            return _DONE
    return {"ReturnValue": 5}


def _rename_computer(process: Process, row: Instance | None, given: Arguments) -> Result:
    name = str(given.get("name") or "")
    if not name:
        return {"ReturnValue": 87}
    registry = process.context.windows.system.registry
    registry.set(COMPUTER_NAME, "ComputerName", name.upper()[:15])
    registry.set(TCPIP, "NV Hostname", name)
    return _DONE


_Method = Callable[[Process, Instance | None, Arguments], Result | Awaitable[Result]]
# By class and method: the function, and the names of its arguments in the order of the class.
_METHODS: Final[Mapping[tuple[str, str], tuple[_Method, tuple[str, ...]]]] = {
    ("Win32_ComputerSystem", "rename"): (_rename_computer, ("name",)),
    ("Win32_NetworkAdapter", "disable"): (lambda p, r, g: _set_adapter(p, r, up=False), ()),
    ("Win32_NetworkAdapter", "enable"): (lambda p, r, g: _set_adapter(p, r, up=True), ()),
    ("Win32_OperatingSystem", "reboot"): (lambda p, r, g: _power(p, "restart"), ()),
    ("Win32_OperatingSystem", "shutdown"): (lambda p, r, g: _power(p, "off"), ()),
    ("Win32_OperatingSystem", "win32shutdown"): (_shut_down, ("flags",)),
    ("Win32_Process", "create"): (_create_process, ("commandline", "currentdirectory")),
    ("Win32_Process", "delete"): (_end_process, ()),
    ("Win32_Process", "getowner"): (_process_owner, ()),
    ("Win32_Process", "getownersid"): (_process_owner_sid, ()),
    ("Win32_Process", "terminate"): (_end_process, ("reason",)),
    ("Win32_Service", "change"): (_change_service, ("displayname", "pathname")),
    ("Win32_Service", "changestartmode"): (_change_service, ("startmode",)),
    ("Win32_Service", "create"): (
        _create_service,
        ("name", "displayname", "pathname", "servicetype", "errorcontrol", "startmode"),
    ),
    ("Win32_Service", "delete"): (_delete_service, ()),
    ("Win32_Service", "startservice"): (_start_service, ()),
    ("Win32_Service", "stopservice"): (_stop_service, ()),
    ("Win32_Share", "create"): (_create_share, ("path", "name", "type")),
    ("Win32_Share", "delete"): (_delete_share, ()),
}
_FOR_ALL: Final = ("create", "getowner", "getownersid")  # not only for administrators


METHOD_NAMES: Final = tuple(_METHODS)  # classes with their methods, in lower case


async def call_wmi_method(
    process: Process,
    class_name: str,
    row: Instance | None,
    method: str,
    named: Mapping[str, Any],
    positional: list[Any],
) -> Result:
    """The output parameters. Raises NoMethodError."""
    found = _METHODS.get((class_name, method.lower()))
    if found is None:
        raise NoMethodError(method)
    function, names = found
    given = {key.lower(): value for key, value in named.items()}
    given |= dict(zip(names, positional, strict=False))
    allowed = class_name == "Win32_Process" or method.lower() in _FOR_ALL
    if not allowed and not process.context.windows.account.administrator:
        return {"ReturnValue": _DENIED}
    try:
        result = function(process, row, given)
        return result if isinstance(result, dict) else await result
    except ServiceError as problem:
        return {"ReturnValue": _SERVICE_CODES.get(problem.code, 8)}
