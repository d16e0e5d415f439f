"""Cmdlets for SMB shares, physical disks, network profiles and address translation."""

from __future__ import annotations

from typing import Any

from transom.userland.powershell.cmdlets import CmdletCall, cmdlet_row
from transom.userland.powershell.operators import matches_wildcard
from transom.userland.powershell.values import (
    PowerShellError,
    PsObject,
    to_items,
    to_number,
    to_text,
)
from transom.userland.windows import wmi_devices

_ACCESS = {"FullAccess": "Full", "ChangeAccess": "Change", "ReadAccess": "Read"}
_KINDS = {2147483648: True, 2147483651: True}  # the special shares of Windows


def _share_object(row: dict[str, Any]) -> PsObject:
    return PsObject(
        "MSFT_SmbShare",
        {
            "Name": row["Name"],
            "ScopeName": "*",
            "Path": row["Path"],
            "Description": row["Description"],
            "Special": row["Type"] in _KINDS,
            "ShareState": "Online",
            "ShareType": "FileSystemDirectory",
            "CurrentUsers": 0,
        },
        row["Name"],
    )


def _names(call: CmdletCall) -> list[str]:
    piped = [one.get("Name") if isinstance(one, PsObject) else one for one in call.input or []]
    return [to_text(one) for one in (*to_items(call.get("Name")), *piped)]


def _demand_server(call: CmdletCall) -> None:
    service = call.process.context.windows.system.services.find("LanmanServer")
    if service is not None and service.state != "RUNNING":
        raise PowerShellError(
            "The Server service is not started.",
            f"NotSpecified: (MSFT_SmbShare:String) [{call.cmdlet.name}], CimException",
            f"Windows System Error 2114,{call.cmdlet.name}",
            where=call.cmdlet.name,
        )


def _get_shares(call: CmdletCall) -> None:
    _demand_server(call)
    wanted = _names(call)
    rows = wmi_devices.wmi_shares(call.process.context)
    if call.has("Special"):
        rows = [row for row in rows if row["Type"] in _KINDS]
    for row in rows:
        if not wanted or any(matches_wildcard(row["Name"], one) for one in wanted):
            call.emit(_share_object(row))
    for one in wanted:
        if "*" not in one and one.lower() not in (row["Name"].lower() for row in rows):
            call.fail(
                f"No MSFT_SMBShare objects found with property 'Name' equal to '{one}'.  Verify "
                "the value of the property and retry.",
                f"ObjectNotFound: ({one}:String) [{call.cmdlet.name}], CimJobException",
                f"CmdletizationQuery_NotFound_Name,{call.cmdlet.name}",
            )


def _refused(call: CmdletCall, text: str, code: int) -> PowerShellError:
    return PowerShellError(
        text,
        f"NotSpecified: (MSFT_SMBShare:ROOT/Microsoft/Windows/SMB/MSFT_SMBShare) "
        f"[{call.cmdlet.name}], CimException",
        f"Windows System Error {code},{call.cmdlet.name}",
        where=call.cmdlet.name,
    )


def _new_share(call: CmdletCall) -> None:
    _demand_server(call)
    context, name, path = call.process.context, call.text("Name"), call.text("Path")
    if not context.windows.account.administrator:
        raise _refused(call, "Access is denied. ", 5)
    if not call.process.files.is_directory(path):
        raise _refused(call, "The system cannot find the file specified. ", 2)
    known = wmi_devices.wmi_shares(context)
    if name.lower() in (row["Name"].lower() for row in known):
        raise _refused(call, "The name has already been shared. ", 2118)
    access = [
        (to_text(one), right)
        for parameter, right in _ACCESS.items()
        for one in to_items(call.get(parameter))
    ]
    if access:
        try:
            wmi_devices.set_share_access(context, name, access)
        except LookupError:
            raise _refused(
                call, "No mapping between account names and security IDs was done. ", 1332
            ) from None
    wmi_devices.add_share(
        context, name, call.process.files.real_path(path), call.text("Description")
    )
    for row in wmi_devices.wmi_shares(context):
        if row["Name"] == name:
            call.emit(_share_object(row))


def _remove_share(call: CmdletCall) -> None:
    context = call.process.context
    if not context.windows.account.administrator:
        raise _refused(call, "Access is denied. ", 5)
    known = {name.lower(): name for name in wmi_devices.shared_directories(context)}
    for name in _names(call):
        if name.lower() not in known:
            raise _refused(call, "The specified share does not exist. ", 2310)
        wmi_devices.remove_share(context, known[name.lower()])


def _share_rights(call: CmdletCall) -> None:
    context = call.process.context
    known = {str(row["Name"]).lower(): row["Name"] for row in wmi_devices.wmi_shares(context)}
    for given in _names(call):
        name = known.get(given.lower())
        if name is None:
            raise _refused(call, "The specified share does not exist. ", 2310)
        for account, right in wmi_devices.share_access(context, name):
            call.emit(
                PsObject(
                    "MSFT_SmbShareAccessControlEntry",
                    {
                        "Name": name,
                        "ScopeName": "*",
                        "AccountName": account,
                        "AccessControlType": "Allow",
                        "AccessRight": right,
                    },
                    name,
                )
            )


def _physical_disks(call: CmdletCall) -> None:
    wanted = [to_text(one) for one in to_items(call.get("FriendlyName"))]
    for disk in wmi_devices.wmi_disks(call.process.context):
        if wanted and not any(matches_wildcard(disk.model, one) for one in wanted):
            continue
        call.emit(
            PsObject(
                "MSFT_PhysicalDisk",
                {
                    "Number": disk.number,
                    "FriendlyName": disk.model,
                    "SerialNumber": disk.serial or None,
                    "MediaType": "Unspecified",
                    "CanPool": False,
                    "OperationalStatus": "OK",
                    "HealthStatus": "Healthy",
                    "Usage": "Auto-Select",
                    "Size": disk.size,
                    "DeviceId": disk.number,
                },
                disk.model,
            )
        )


def _profiles(call: CmdletCall) -> None:
    """One for each connected adapter with a gateway."""
    names = [to_text(one) for one in to_items(call.get("InterfaceAlias"))]
    indexes = [int(to_number(one)) for one in to_items(call.get("InterfaceIndex"))]
    for one in call.process.context.windows.network.interfaces():
        if names and not any(matches_wildcard(one.name, name) for name in names):
            continue
        if indexes and one.index not in indexes:
            continue
        if one.gateways and one.status == "Up":
            call.emit(
                PsObject(
                    "MSFT_NetConnectionProfile",
                    {
                        "Name": "Network",
                        "InterfaceAlias": one.name,
                        "InterfaceIndex": one.index,
                        "NetworkCategory": "Public",
                        "IPv4Connectivity": "LocalNetwork" if one.ipv4 else "NoTraffic",
                        "IPv6Connectivity": "LocalNetwork" if one.ipv6 else "NoTraffic",
                    },
                    one.name,
                )
            )


CMDLETS = (
    cmdlet_row("Get-SmbShare", _get_shares, "Name", "Special"),
    cmdlet_row("Get-SmbShareAccess", _share_rights, "Name"),
    cmdlet_row(
        "New-SmbShare",
        _new_share,
        "Name Path",
        "",
        "Description FullAccess ChangeAccess ReadAccess",
    ),
    cmdlet_row("Remove-SmbShare", _remove_share, "Name", "Force"),
    cmdlet_row("Get-PhysicalDisk", _physical_disks, "", "", "FriendlyName"),
    cmdlet_row("Get-NetConnectionProfile", _profiles, "", "", "InterfaceAlias InterfaceIndex"),
)
