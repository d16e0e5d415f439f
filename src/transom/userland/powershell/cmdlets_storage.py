"""Cmdlets for disks and SMB mappings of a Windows machine."""

from __future__ import annotations

from typing import Final

from transom.userland.api import AttachedDisk, MappingError, RemoteStorage
from transom.userland.powershell.cmdlets import CmdletCall, cmdlet_row
from transom.userland.powershell.operators import matches_wildcard
from transom.userland.powershell.values import (
    PowerShellError,
    PsObject,
    SecretObject,
    to_items,
    to_text,
)

_CIM: Final = "MSFT_SmbGlobalMapping:ROOT/Microsoft/Windows/SMB/MSFT_SmbGlobalMapping"


def _remote_storage(call: CmdletCall) -> RemoteStorage | None:
    node = call.process.context.node
    return node.storage if node is not None else None


def _storage(call: CmdletCall) -> RemoteStorage:
    found = _remote_storage(call)
    if found is None:
        raise PowerShellError("The network path was not found.", where=call.cmdlet.name)
    return found


def _failed(call: CmdletCall, problem: MappingError) -> None:
    kind = "PermissionDenied" if problem.code == 5 else "NotSpecified"
    call.fail(
        f"{problem} ",
        f"{kind}: ({_CIM}) [{call.cmdlet.name}], CimException",
        f"Windows System Error {problem.code},{call.cmdlet.name}",
    )


def _mapping(call: CmdletCall, path: str) -> PsObject:
    local = _storage(call).drive_of(path) or None
    return PsObject(
        _CIM.partition(":")[0], {"Status": "OK", "LocalPath": local, "RemotePath": path}, path
    )


def _new_mapping(call: CmdletCall) -> None:
    credential = call.get("Credential")
    user, password = "", ""
    if isinstance(credential, SecretObject):
        user, password = to_text(credential.get("UserName")), credential.secret
    path = call.text("RemotePath")
    try:
        _storage(call).map_share(path, user, password, call.text("LocalPath").rstrip("\\"))
    except MappingError as problem:
        _failed(call, problem)
        return
    call.emit(_mapping(call, path))


def _get_mapping(call: CmdletCall) -> None:
    wanted = [to_text(path).lower() for path in to_items(call.get("RemotePath"))]
    known = _storage(call).mappings()
    drives = [to_text(drive).lower().rstrip("\\") for drive in to_items(call.get("LocalPath"))]
    for path in known:
        if drives and _storage(call).drive_of(path).lower() not in drives:
            continue
        if not wanted or any(matches_wildcard(path, pattern) for pattern in wanted):
            call.emit(_mapping(call, path))
    for path in wanted:
        if "*" not in path and path not in known:
            call.fail(
                "No MSFT_SmbGlobalMapping objects found with property 'RemotePath' equal to "
                f"'{path}'.  Verify the value "
                "of the property and retry.",
                f"ObjectNotFound: ({path}:String) [Get-SmbGlobalMapping], CimJobException",
                "CmdletizationQuery_NotFound_RemotePath,Get-SmbGlobalMapping",
            )


def _remove_mapping(call: CmdletCall) -> None:
    given = [
        value.get("RemotePath") if isinstance(value, PsObject) else value
        for value in call.input or ()
    ]
    wanted = (*to_items(call.get("RemotePath")), *to_items(call.get("LocalPath")), *given)
    for path in wanted:
        if not _storage(call).unmap_share(to_text(path)):
            _failed(call, MappingError(2250, "This network connection does not exist."))


def _disk_object(disk: AttachedDisk) -> PsObject:
    return PsObject(
        "MSFT_Disk",
        {
            "Number": disk.number,
            "HealthStatus": "Healthy",
            "OperationalStatus": "Online",
            "FriendlyName": disk.model,
            "SerialNumber": disk.serial or None,
            "DiskNumber": disk.number,
            "DeviceId": disk.number,
            "UniqueId": disk.serial or None,
            "Location": disk.location,
            "Size": disk.size,
            "PartitionStyle": disk.partition_style,
        },
        f"Disk {disk.number}",
    )


def _get_disk(call: CmdletCall) -> None:
    wanted = [
        int(to_text(number))
        for key in ("Number", "DeviceId")
        for number in to_items(call.get(key))
        if to_text(number).isdigit()
    ]
    known = _storage(call).disks()
    for disk in known:
        shown = _disk_object(disk)
        if (not wanted or disk.number in wanted) and all(
            matches_wildcard(to_text(shown.get(key)), call.text(key))
            for key in ("FriendlyName", "UniqueId")
            if call.has(key)
        ):
            call.emit(shown)
    for number in wanted:
        if number not in {disk.number for disk in known}:
            call.fail(
                f"No MSFT_Disk objects found with property 'Number' equal to '{number}'.  "
                "Verify the value of the property and "
                "retry.",
                f"ObjectNotFound: ({number}:UInt32) [Get-Disk], CimJobException",
                "CmdletizationQuery_NotFound_Number,Get-Disk",
            )


def disk_numbers(call: CmdletCall) -> set[int] | None:
    """The numbers of disks that are piped in or named; None for all."""
    if call.input is None and call.get("DiskNumber") is None:
        return None
    given = [value.get("DiskNumber") for value in call.input or () if isinstance(value, PsObject)]
    return {
        int(to_text(number))
        for number in (*given, *to_items(call.get("DiskNumber")))
        if to_text(number).isdigit()
    }


def _get_partition(call: CmdletCall) -> None:
    wanted = disk_numbers(call)
    letters = [to_text(one).upper() for one in to_items(call.get("DriveLetter"))]
    numbers = [to_text(one) for one in to_items(call.get("PartitionNumber"))]
    for disk in _storage(call).disks():
        if (letters and disk.letter.upper() not in letters) or (numbers and "1" not in numbers):
            continue
        if disk.partition_style != "RAW" and (wanted is None or disk.number in wanted):
            call.emit(
                PsObject(
                    "MSFT_Partition",
                    {
                        "PartitionNumber": 1,
                        "DriveLetter": disk.letter or None,
                        "Offset": 1048576,
                        "Size": disk.size,
                        "Type": "IFS",
                        "DiskNumber": disk.number,
                    },
                    f"Partition 1 of disk {disk.number}",
                )
            )


def attached_volumes(call: CmdletCall) -> list[PsObject]:
    """For Get-Volume: the volumes on disks that the cloud has attached to the machine."""
    storage = _remote_storage(call)
    wanted = disk_numbers(call)
    return (
        []
        if storage is None
        else [
            PsObject(
                "MSFT_Volume",
                {
                    "DriveLetter": None,
                    "FriendlyName": "",
                    "FileSystemType": disk.file_system,
                    "DriveType": "Fixed",
                    "HealthStatus": "Healthy",
                    "OperationalStatus": "OK",
                    "SizeRemaining": disk.free,
                    "Size": disk.size,
                    "UniqueId": disk.volume + "\\",
                    "FileSystem": disk.file_system,
                    "Path": disk.volume + "\\",
                },
                disk.volume,
            )
            for disk in storage.disks()
            if disk.volume
            and disk.partition_style != "RAW"
            and (wanted is None or disk.number in wanted)
        ]
    )


CMDLETS = (
    cmdlet_row("Get-Disk", _get_disk, "Number", "", "DeviceId FriendlyName UniqueId"),
    cmdlet_row(
        "Get-Partition", _get_partition, "DiskNumber PartitionNumber", "", "DriveLetter InputObject"
    ),
    cmdlet_row(
        "New-SmbGlobalMapping",
        _new_mapping,
        "LocalPath RemotePath",
        "",
        (
            "Credential Persistent RequireIntegrity RequirePrivacy UseWriteThrough FullAccess "
            "DenyAccess"
        ),
    ),
    cmdlet_row("Get-SmbGlobalMapping", _get_mapping, "LocalPath RemotePath"),
    cmdlet_row(
        "Remove-SmbGlobalMapping",
        _remove_mapping,
        "LocalPath RemotePath",
        "Force PassThru",
        "InputObject",
    ),
)
