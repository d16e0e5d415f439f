"""Static members of .NET types that show or change the state of the machine: Environment, Registry,
Process and DriveInfo.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from transom.userland.files import FileView
from transom.userland.powershell.cmdlets_registry import plain_value, typed
from transom.userland.powershell.session import PowerShellSession
from transom.userland.powershell.values import PowerShellError, PsObject, to_number, to_text
from transom.userland.windows import wmi
from transom.userland.windows.registry import RegError, may_write, registry_key_of


def _ticks(evaluator: PowerShellSession, a: list[Any] | None) -> int:
    """Milliseconds since the system started."""
    context = evaluator.process.context
    return int((context.clock.time() - context.windows.resources.boot_time) * 1000)


def _working_set(evaluator: PowerShellSession, a: list[Any] | None) -> int:
    own = evaluator.process.context.pid
    found = wmi.wmi_processes(evaluator.process.context)
    return next((entry.memory for entry in found if entry.pid == own), 0)


def _clr_version(evaluator: PowerShellSession, a: list[Any] | None) -> PsObject:
    parts = {"Major": 4, "Minor": 0, "Build": 30319, "Revision": 42000}
    return PsObject("System.Version", parts, "4.0.30319.42000")


def _registry_key(evaluator: PowerShellSession, written: str, name: str) -> str:
    try:
        return registry_key_of(evaluator.process.context, written)
    except RegError:
        raise PowerShellError(
            f'Exception calling "{name}" with "3" argument(s): "Registry key name must start with '
            'a valid base key name."',
            "NotSpecified: (:) [], MethodInvocationException",
            "ArgumentException",
        ) from None


def _registry_get(evaluator: PowerShellSession, a: list[Any] | None) -> Any:
    """The default, if the key exists and the value does not."""
    written, name, default = (*(a or []), "", "", None)[:3]
    registry = evaluator.process.context.windows.system.registry
    key = _registry_key(evaluator, to_text(written), "GetValue")
    if not registry.exists(key):
        return None
    value = registry.get(key, to_text(name))
    return default if value is None else plain_value(value)


def _registry_set(evaluator: PowerShellSession, a: list[Any] | None) -> None:
    written, name, value, kind = (*(a or []), "", "", "", "")[:4]
    context = evaluator.process.context
    key = _registry_key(evaluator, to_text(written), "SetValue")
    if not may_write(context, key):
        raise PowerShellError(
            f'Exception calling "SetValue" with "{len(a or [])}" argument(s): "Access to the '
            'registry key is denied."',
            "NotSpecified: (:) [], MethodInvocationException",
            "UnauthorizedAccessException",
        )
    context.windows.system.registry.set(key, to_text(name), typed(value, to_text(kind)))


def _process_object(evaluator: PowerShellSession, pid: int) -> PsObject | None:
    for entry in wmi.wmi_processes(evaluator.process.context):
        if entry.pid == pid:
            name = wmi.image_name(entry).removesuffix(".exe")
            return PsObject(
                "System.Diagnostics.Process",
                {
                    "Id": entry.pid,
                    "ProcessName": name,
                    "Name": name,
                    "HandleCount": entry.handles,
                    "WorkingSet64": entry.memory,
                    "PrivateMemorySize64": entry.memory,
                    "HasExited": False,
                },
                f"System.Diagnostics.Process ({name})",
            )
    return None


def _current_process(evaluator: PowerShellSession, a: list[Any] | None) -> PsObject | None:
    return _process_object(evaluator, evaluator.process.context.pid)


def _process_by_id(evaluator: PowerShellSession, a: list[Any] | None) -> PsObject:
    pid = int(to_number((a or [0])[0]))
    found = _process_object(evaluator, pid)
    if found is None:
        raise PowerShellError(
            f'Exception calling "GetProcessById" with "1" argument(s): "Process with an Id of '
            f'{pid} is not running."',
            "NotSpecified: (:) [], MethodInvocationException",
            "ArgumentException",
        )
    return found


def _processes_by_name(evaluator: PowerShellSession, a: list[Any] | None) -> list[Any]:
    wanted = to_text((a or [""])[0]).lower()
    return [
        _process_object(evaluator, entry.pid)
        for entry in wmi.wmi_processes(evaluator.process.context)
        if not wanted or wmi.image_name(entry).removesuffix(".exe").lower() == wanted
    ]


def _drives(evaluator: PowerShellSession, a: list[Any] | None) -> list[Any]:
    context = evaluator.process.context
    linked = FileView(context, "C:\\").drive_targets()
    return [
        PsObject(
            "System.IO.DriveInfo",
            {
                "Name": f"{drive}\\",
                "DriveType": "Network" if linked.get(drive, "").startswith("\\\\") else "Fixed",
                "DriveFormat": "NTFS",
                "IsReady": True,
                "AvailableFreeSpace": free,
                "TotalFreeSpace": free,
                "TotalSize": size,
                "RootDirectory": f"{drive}\\",
                "VolumeLabel": wmi.volume_label(context, drive),
            },
            f"{drive}\\",
        )
        for drive, size, free in wmi.wmi_drives(context)
    ]


STATICS: Final[dict[tuple[str, str], Callable[[Any, list[Any] | None], Any]]] = {
    ("diagnostics.process", "getcurrentprocess"): _current_process,
    ("diagnostics.process", "getprocessbyid"): _process_by_id,
    ("diagnostics.process", "getprocesses"): lambda e, a: _processes_by_name(e, None),
    ("diagnostics.process", "getprocessesbyname"): _processes_by_name,
    ("io.driveinfo", "getdrives"): _drives,
    ("environment", "commandline"): lambda e, a: " ".join(e.process.argv),
    ("environment", "hasshutdownstarted"): lambda e, a: False,
    ("environment", "tickcount64"): _ticks,
    ("environment", "version"): _clr_version,
    ("environment", "workingset"): _working_set,
    ("microsoft.win32.registry", "getvalue"): _registry_get,
    ("microsoft.win32.registry", "setvalue"): _registry_set,
}
