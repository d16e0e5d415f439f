"""-WhatIf and -Confirm: which cmdlets have them, and how they describe what they are about to do."""

from __future__ import annotations

import ntpath
from collections.abc import Mapping
from typing import Any, Final

from transom.userland.files import FileView
from transom.userland.powershell.values import PsObject, to_text

_VERBS: Final = frozenset(
    (
        "Add",
        "Clear",
        "Copy",
        "Disable",
        "Enable",
        "Expand",
        "Export",
        "Import",
        "Install",
        "Move",
        "New",
        "Register",
        "Remove",
        "Rename",
        "Restart",
        "Resume",
        "Set",
        "Start",
        "Stop",
        "Suspend",
        "Uninstall",
        "Unregister",
    )
)
# Cmdlets with such a verb that change nothing outside their session, and others without one.
_WITHOUT: Final = frozenset(
    (
        "Add-Member",
        "Add-Type",
        "Clear-Host",
        "Import-Csv",
        "Import-Clixml",
        "Import-Module",
        "New-Guid",
        "New-Object",
        "New-PSSession",
        "New-ScheduledTaskAction",
        "New-ScheduledTaskTrigger",
        "New-TimeSpan",
        "Set-Location",
        "Set-StrictMode",
        "Start-Job",
        "Start-Sleep",
    )
)
_ALSO: Final = frozenset(("Compress-Archive", "Invoke-CimMethod", "Invoke-WmiMethod", "Out-File"))

# Parameters that name what a cmdlet acts on, the first one given wins.
TARGETS: Final = (
    "LiteralPath",
    "Path",
    "FilePath",
    "Name",
    "DisplayName",
    "TaskName",
    "Id",
    "InterfaceAlias",
    "IPAddress",
    "DestinationPrefix",
    "Member",
    "Group",
    "InputObject",
)
_ITEM_OPERATIONS: Final = {
    "Copy-Item": "Copy {kind}",
    "Move-Item": "Move {kind}",
    "Remove-Item": "Remove {kind}",
    "Rename-Item": "Rename {kind}",
    "New-Item": "Create {kind}",
    "New-Directory": "Create {kind}",
    "Set-Content": "Set Content",
    "Add-Content": "Add Content",
    "Clear-Content": "Clear Content",
    "Set-ItemProperty": "Set Property",
    "New-ItemProperty": "New Property",
    "Remove-ItemProperty": "Remove Property",
    "Clear-ItemProperty": "Clear Property",
    "Rename-ItemProperty": "Rename Property",
    "Out-File": "Output to File",
}
_WITH_DESTINATION: Final = ("Copy-Item", "Move-Item", "Rename-Item")
_OF_PROPERTIES: Final = (
    "Set-ItemProperty",
    "New-ItemProperty",
    "Remove-ItemProperty",
    "Clear-ItemProperty",
)
_OF_CONTENT: Final = ("Set-Content", "Add-Content")


def supports_should_process(cmdlet: str) -> bool:
    """Whether the cmdlet has the parameters -WhatIf and -Confirm."""
    if cmdlet in _WITHOUT:
        return False
    return cmdlet.partition("-")[0] in _VERBS or cmdlet in _ALSO


def describe_operation(
    cmdlet: str, target: Any, values: Mapping[str, Any], files: FileView, computer: str
) -> str:
    """`Performing the operation "Remove File" on target "C:\\a.txt".`"""
    operation, shown = cmdlet, _shown(target)
    if cmdlet in ("Stop-Computer", "Restart-Computer", "Rename-Computer"):
        shown = f"localhost ({computer})" if cmdlet != "Rename-Computer" else computer
    elif cmdlet in _ITEM_OPERATIONS:
        place = _place(files, shown)
        operation = _ITEM_OPERATIONS[cmdlet].format(kind=_kind(cmdlet, place, values, files))
        shown = _item_target(cmdlet, place, values, files)
    return f'Performing the operation "{operation}" on target "{shown}".'


def _place(files: FileView, shown: str) -> str:
    drive = shown.partition(":")[0]
    return shown if len(drive) > 1 and ":" in shown else files.absolute(shown)


def _kind(cmdlet: str, place: str, values: Mapping[str, Any], files: FileView) -> str:
    if cmdlet in ("New-Item", "New-Directory"):
        wanted = to_text(values.get("ItemType", values.get("Type", "File"))).lower()
        directory = wanted == "directory" or cmdlet == "New-Directory"
    elif place[1:2] != ":":
        return "Key" if place.lower().startswith(("hk", "registry")) else "Item"
    else:
        directory = files.is_directory(place)
    return "Directory" if directory else "File"


def _item_target(cmdlet: str, place: str, values: Mapping[str, Any], files: FileView) -> str:
    if cmdlet in _WITH_DESTINATION:
        wanted = to_text(values.get("Destination", values.get("NewName", "")))
        if cmdlet == "Rename-Item":
            wanted = ntpath.join(ntpath.dirname(place), wanted)
        return f"Item: {place} Destination: {files.absolute(wanted)}"
    if cmdlet in ("New-Item", "New-Directory"):
        name = to_text(values.get("Name", ""))
        return f"Destination: {ntpath.join(place, name) if name else place}"
    if cmdlet in _OF_PROPERTIES:
        return f"Item: {place} Property: {to_text(values.get('Name', ''))}"
    return f"Path: {place}" if cmdlet in _OF_CONTENT else place


def _shown(target: Any) -> str:
    """As PowerShell names services and processes: `Display name (name)`, `name (PID)`."""
    if not isinstance(target, PsObject):
        return to_text(target)
    if target.kind == "System.ServiceProcess.ServiceController":
        return f"{to_text(target.get('DisplayName'))} ({to_text(target.get('Name'))})"
    if target.kind == "System.Diagnostics.Process":
        return f"{to_text(target.get('ProcessName'))} ({to_text(target.get('Id'))})"
    return to_text(target.get("FullName") or target)
