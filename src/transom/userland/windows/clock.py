"""tzutil and w32tm: time zone and clock of the container or the machine."""

from __future__ import annotations

import time
from typing import Final

from transom.machines.windows.services import ServiceError
from transom.machines.windows.time_zones import (
    DISABLED,
    ZONES,
    current_zone,
    find_zone,
    offset_seconds,
    set_zone,
    uses_daylight_time,
)
from transom.userland.api import ProgramContext
from transom.userland.process import Command, Process

_PEER: Final = "VM IC Time Synchronization Provider"
_POLL_SECONDS: Final = 64
_NOT_STARTED: Final = "The following error occurred: The service has not been started. (0x80070426)"


def wall_clock_time(context: ProgramContext, moment: float) -> float:
    """A moment in local time, in seconds since 1970."""
    return moment + offset_seconds(context.windows.system.registry, moment)


def tzutil(process: Process) -> int:
    words = process.argv[1:]
    verb = words[0].lower() if words else "/?"
    registry = process.context.windows.system.registry
    if verb == "/g":
        zone = current_zone(registry)
        off = zone.rule and not uses_daylight_time(registry)
        process.write(zone.id + (DISABLED if off else ""))
        return 0
    if verb == "/l":
        for zone in ZONES:
            process.print_line(f"{zone.display_name}\r\n{zone.id}\r\n")
        return 0
    if verb == "/s" and len(words) > 1:
        wanted = find_zone(words[1].removesuffix(DISABLED))
        if wanted is None:
            process.complain("The specified time zone ID is invalid.")
            return 1
        if not process.context.windows.account.administrator:
            process.complain("A required privilege is not held by the client.")
            return 1
        set_zone(registry, wanted, daylight=not words[1].endswith(DISABLED))
        return 0
    process.print_line("Windows Time Zone Utility\r\n\r\nUsage:\r\n")
    process.print_line("TZUTIL </? | /g | /s TimeZoneID[_dstoff] | /l>")
    return 0 if verb in ("/?", "-?") else 1


def _time_service_runs(process: Process) -> bool:
    try:
        return process.context.windows.system.services.get("W32Time").state == "RUNNING"
    except ServiceError:
        return False


def w32tm(process: Process) -> int:
    words = [word.lower() for word in process.argv[1:]]
    verb = words[0] if words else "/?"
    if verb == "/tz":
        return _show_zone(process)
    if verb == "/resync":
        process.print_line("Sending resync command to local computer")
        if not _time_service_runs(process):
            process.print_line(_NOT_STARTED)
            return 1
        process.print_line("The command completed successfully.")
        return 0
    if verb == "/query":
        if not _time_service_runs(process):
            process.print_line(_NOT_STARTED)
            return 1
        query = _QUERIES.get(next((word for word in words[1:] if word in _QUERIES), ""))
        if query is not None:
            query(process)
            return 0
    process.print_line(
        "w32tm [/? | /register | /unregister ]\r\n  /query /source | /status | /peers"
    )
    process.print_line("  /resync\r\n  /tz")
    return 0 if verb == "/?" else 1


def _show_zone(process: Process) -> int:
    context = process.context
    registry, now = context.windows.system.registry, context.clock.time()
    zone = current_zone(registry)
    summer = offset_seconds(registry, now) != zone.minutes * 60
    state = "TIME_ZONE_ID_DAYLIGHT" if summer else "TIME_ZONE_ID_STANDARD"
    if not uses_daylight_time(registry):
        state = "TIME_ZONE_ID_UNKNOWN"
    process.print_line(f"Time zone: Current:{state} Bias: {-zone.minutes}min (UTC=LocalTime+Bias)")
    process.print_line(f'  [Standard Name:"{zone.standard_name}" Bias:0min Date:(unspecified)]')
    daylight = -60 if zone.rule else 0
    process.print_line(
        f'  [Daylight Name:"{zone.daylight_name}" Bias:{daylight}min Date:(unspecified)]'
    )
    return 0


def _last_sync(process: Process) -> float:
    """The time service syncs at fixed intervals after the machine's start."""
    context = process.context
    running = max(0.0, context.clock.time() - context.windows.resources.boot_time)
    return context.clock.time() - running % _POLL_SECONDS


def _status(process: Process) -> None:
    last = wall_clock_time(process.context, _last_sync(process))
    shown = time.strftime("%-m/%-d/%Y %-I:%M:%S %p", time.gmtime(last))
    process.print_line("Leap Indicator: 0(no warning)")
    process.print_line("Stratum: 4 (secondary reference - syncd by (S)NTP)")
    process.print_line("Precision: -23 (119.209ns per tick)")
    process.print_line("Root Delay: 0.0000000s\r\nRoot Dispersion: 0.0100000s")
    process.print_line("ReferenceId: 0x564D5450 (source IP:  86.77.84.80)")
    process.print_line(f"Last Successful Sync Time: {shown}\r\nSource: {_PEER} ")
    process.print_line(f"Poll Interval: 6 ({_POLL_SECONDS}s)\r\n")


def _source(process: Process) -> None:
    process.print_line(_PEER)


def _peers(process: Process) -> None:
    process.print_line("#Peers: 0")


_QUERIES: Final = {"/status": _status, "/source": _source, "/peers": _peers}

COMMANDS: dict[str, Command] = {"tzutil": tzutil, "w32tm": w32tm}
