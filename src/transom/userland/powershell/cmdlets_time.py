"""Get-TimeZone and Set-TimeZone: the time zone of the container or the machine."""

from __future__ import annotations

from transom.machines.windows.time_zones import (
    ZONES,
    TimeZone,
    current_zone,
    find_zone,
    set_zone,
)
from transom.userland.powershell.cmdlets import CmdletCall, cmdlet_row
from transom.userland.powershell.operators import matches_wildcard
from transom.userland.powershell.values import PowerShellError, PsObject, to_items, to_text


def time_zone_object(zone: TimeZone) -> PsObject:
    sign, size = ("-" if zone.minutes < 0 else ""), abs(zone.minutes)
    return PsObject(
        "System.TimeZoneInfo",
        {
            "Id": zone.id,
            "DisplayName": zone.display_name,
            "StandardName": zone.standard_name,
            "DaylightName": zone.daylight_name,
            "BaseUtcOffset": f"{sign}{size // 60:02d}:{size % 60:02d}:00",
            "SupportsDaylightSavingTime": bool(zone.rule),
        },
        zone.display_name,
    )


def _unknown(call: CmdletCall, wanted: str) -> None:
    call.fail(
        f"The time zone ID '{wanted}' was not found on the local computer.",
        f"ObjectNotFound: ({wanted}:String) [{call.cmdlet.name}], TimeZoneNotFoundException",
        "TimeZoneNotFound",
    )


def _get(call: CmdletCall) -> None:
    if call.has("ListAvailable"):
        for zone in ZONES:
            call.emit(time_zone_object(zone))
    elif call.has("Id"):
        for wanted in map(to_text, to_items(call.get("Id"))):
            found = find_zone(wanted)
            if found is None:
                _unknown(call, wanted)
            else:
                call.emit(time_zone_object(found))
    elif call.has("Name"):
        for wanted in map(to_text, to_items(call.get("Name"))):
            names = [zone for zone in ZONES if matches_wildcard(zone.standard_name, wanted)]
            for zone in names:
                call.emit(time_zone_object(zone))
            if not names:
                _unknown(call, wanted)
    else:
        call.emit(time_zone_object(current_zone(call.process.context.windows.system.registry)))


def _set(call: CmdletCall) -> None:
    given = call.get("InputObject", call.input[0] if call.input else None)
    wanted = call.text("Id") or call.text("Name")
    if isinstance(given, PsObject):
        wanted = to_text(given.get("Id"))
    zone = find_zone(wanted) or next(
        (one for one in ZONES if one.standard_name.lower() == wanted.lower()), None
    )
    if zone is None:
        _unknown(call, wanted)
        return
    windows = call.process.context.windows
    if not windows.account.administrator:
        raise PowerShellError(
            "A required privilege is not held by the client",
            "NotSpecified: (:) [Set-TimeZone], Win32Exception",
            "System.ComponentModel.Win32Exception,Microsoft.PowerShell.Commands.SetTimeZoneCommand",
            where=call.cmdlet.name,
        )
    set_zone(windows.system.registry, zone)
    if call.has("PassThru"):
        call.emit(time_zone_object(zone))


CMDLETS = (
    cmdlet_row("Get-TimeZone", _get, "Name", "ListAvailable", "Id"),
    cmdlet_row("Set-TimeZone", _set, "Name", "PassThru", "Id InputObject"),
)
