"""Cmdlets for event logs: Get-EventLog, Write-EventLog, Get-WinEvent and others."""

from __future__ import annotations

from typing import Any, Final

from transom.machines.windows.journal import LogEntry
from transom.userland.powershell.casts import cast_value
from transom.userland.powershell.cmdlets import CmdletCall, cmdlet_row
from transom.userland.powershell.members import local_date
from transom.userland.powershell.operators import matches_wildcard
from transom.userland.powershell.values import (
    DateTime,
    Hashtable,
    PowerShellError,
    PsObject,
    to_items,
    to_number,
    to_text,
)
from transom.userland.windows.event_query import LEVELS, EventQueryError, event_filter

_LOGS: Final = (
    "Application",
    "HardwareEvents",
    "Internet Explorer",
    "Key Management Service",
    "Security",
    "System",
    "Windows PowerShell",
)


def _entries(call: CmdletCall, log: str) -> list[LogEntry]:
    """Newest first."""
    return [
        entry
        for entry in reversed(call.process.context.windows.system.events)
        if entry.log.lower() == log.lower()
    ]


def _known(call: CmdletCall, log: str) -> bool:
    return log.lower() in (one.lower() for one in _LOGS) or bool(_entries(call, log))


def _get_log(call: CmdletCall) -> None:
    log = call.text("LogName")
    if call.has("List"):
        for name in _LOGS:
            call.emit(
                PsObject(
                    "System.Diagnostics.EventLog",
                    {
                        "MaximumKilobytes": 20480,
                        "MinimumRetentionDays": 0,
                        "OverflowAction": "OverwriteAsNeeded",
                        "Entries": [entry.message for entry in _entries(call, name)],
                        "Log": name,
                        "LogDisplayName": name,
                        "MachineName": ".",
                    },
                )
            )
        return
    if not _known(call, log):
        call.fail(
            f"The event log '{log}' on computer '.' does not exist.",
            "ObjectNotFound: (:) [Get-EventLog], InvalidOperationException",
            "System.InvalidOperationException",
        )
        return
    kinds = [to_text(one).lower() for one in to_items(call.get("EntryType"))]
    numbers = [int(to_number(one)) for one in to_items(call.get("InstanceId"))]
    found = [
        entry
        for entry in _entries(call, log)
        if (
            not call.has("Source")
            or any(
                matches_wildcard(entry.source, to_text(one)) for one in to_items(call.get("Source"))
            )
        )
        and (not kinds or entry.level.lower() in kinds)
        and (not numbers or entry.event_id in numbers)
        and (not call.has("Message") or matches_wildcard(entry.message, call.text("Message")))
        and _between(call, entry, call.get("After"), call.get("Before"))
    ]
    for entry in found[: int(to_number(call.get("Newest", len(found))))]:
        call.emit(
            PsObject(
                "System.Diagnostics.EventLogEntry",
                {
                    "Index": entry.number,
                    "Time": DateTime(entry.time).format("MMM dd HH:mm"),
                    "EntryType": entry.level,
                    "Source": entry.source,
                    "InstanceID": entry.event_id,
                    "Message": entry.message,
                    "EventID": entry.event_id,
                    "TimeGenerated": DateTime(entry.time),
                    "TimeWritten": DateTime(entry.time),
                    "MachineName": call.process.context.windows.system.computer_name,
                },
            )
        )


def _between(call: CmdletCall, entry: LogEntry, after: Any, before: Any) -> bool:
    """Limits are in the time zone of the machine."""
    moment = local_date(call.evaluator, entry.time).moment
    return (after is None or moment >= cast_value("datetime", after).moment) and (
        before is None or moment <= cast_value("datetime", before).moment
    )


def _list_logs(call: CmdletCall) -> None:
    wanted = [to_text(one) for one in to_items(call.get("ListLog"))]
    for name in _LOGS:
        if any(matches_wildcard(name, one) for one in wanted):
            call.emit(
                PsObject(
                    "System.Diagnostics.Eventing.Reader.EventLogConfiguration",
                    {
                        "LogMode": "Circular",
                        "MaximumSizeInBytes": 20480 << 10,
                        "RecordCount": len(_entries(call, name)),
                        "LogName": name,
                        "IsEnabled": True,
                        "LogType": "Administrative",
                        "LogIsolation": "System" if name == "System" else "Application",
                        "LogFilePath": rf"%SystemRoot%\System32\Winevt\Logs\{name}.evtx",
                    },
                    name,
                )
            )


def _list_providers(call: CmdletCall) -> None:
    """Providers are the sources of the events in the logs."""
    sources = sorted({entry.source for log in _LOGS for entry in _entries(call, log)})
    for name in map(to_text, to_items(call.get("ListProvider"))):
        found = [source for source in sources if matches_wildcard(source, name)]
        if not found:
            call.fail(
                f'There is not an event provider on the localhost computer that matches "{name}".',
                f"ObjectNotFound: ({name}:String) [Get-WinEvent], Exception",
                "NoMatchingProvidersFound",
            )
        for source in found:
            call.emit(PsObject("EventLogProvider", {"Name": source, "LogLinks": ""}, source))


def _win_event(call: CmdletCall) -> None:
    if call.has("ListLog"):
        _list_logs(call)
        return
    if call.has("ListProvider"):
        _list_providers(call)
        return
    filter_ = call.get("FilterHashtable")
    wanted = filter_ if isinstance(filter_, Hashtable) else Hashtable()
    logs = [
        to_text(one) for one in (to_items(call.get("LogName")) or to_items(wanted.find("LogName")))
    ]
    found: list[LogEntry] = []
    for log in logs:
        if not _known(call, log):
            call.fail(
                f'There is not an event log on the localhost computer that matches "{log}".',
                f"ObjectNotFound: ({log}:String) [Get-WinEvent], Exception",
                "NoMatchingLogsFound",
            )
            continue
        found += _entries(call, log)
    levels, ids = (
        [int(to_number(one)) for one in to_items(wanted.find(key))] for key in ("Level", "Id")
    )
    names = [
        to_text(one)
        for one in (*to_items(wanted.find("ProviderName")), *to_items(call.get("ProviderName")))
    ]
    if names and not logs:
        found = [entry for log in _LOGS for entry in _entries(call, log)]
    found = [
        entry
        for entry in found
        if (not levels or LEVELS[entry.level] in levels)
        and (not ids or entry.event_id in ids)
        and (not names or any(matches_wildcard(entry.source, name) for name in names))
        and _between(call, entry, wanted.find("StartTime"), wanted.find("EndTime"))
    ]
    if call.has("FilterXPath"):
        try:
            matches = event_filter(call.text("FilterXPath"), call.process.context.clock.time())
        except EventQueryError:
            raise PowerShellError(
                "The specified query is invalid",
                "NotSpecified: (:) [Get-WinEvent], EventLogException",
                "System.Diagnostics.Eventing.Reader.EventLogException,"
                "Microsoft.PowerShell.Commands.GetWinEventCommand",
            ) from None
        found = [entry for entry in found if matches(entry)]
    if call.has("Oldest"):
        found.sort(key=lambda entry: entry.number)
    if not found:
        call.fail(
            "No events were found that match the specified selection criteria.",
            "ObjectNotFound: (:) [Get-WinEvent], Exception",
            "NoMatchingEventsFound",
        )
    for entry in found[: int(to_number(call.get("MaxEvents", len(found))))]:
        call.emit(
            PsObject(
                "System.Diagnostics.Eventing.Reader.EventLogRecord",
                {
                    "TimeCreated": DateTime(entry.time),
                    "Id": entry.event_id,
                    "LevelDisplayName": entry.level,
                    "Message": entry.message,
                    "ProviderName": entry.source,
                    "LogName": entry.log,
                    "Level": LEVELS[entry.level],
                    "RecordId": entry.number,
                    "MachineName": call.process.context.windows.system.computer_name,
                },
            )
        )


def _write_log(call: CmdletCall) -> None:
    system, kind = (
        call.process.context.windows.system,
        call.text("EntryType", "Information").capitalize(),
    )
    source, log = call.text("Source"), call.text("LogName")
    key = rf"HKLM\SYSTEM\CurrentControlSet\Services\EventLog\{log}\{source}"
    if not system.registry.exists(key):
        call.fail(
            f'The source name "{source}" does not exist on computer "localhost".',
            "InvalidOperation: (:) [Write-EventLog], Exception",
            "Source does not exist",
        )
        return
    level = kind if kind in LEVELS else "Information"
    system.log(
        log,
        call.process.context.clock.time(),
        level,
        source,
        int(to_number(call.get("EventId", 0))),
        call.text("Message"),
    )


def _new_log(call: CmdletCall) -> None:
    for source in to_items(call.get("Source")):
        key = rf"HKLM\SYSTEM\CurrentControlSet\Services\EventLog\{call.text('LogName')}\{to_text(source)}"
        if call.process.context.windows.system.registry.exists(key):
            call.fail(
                f'The "{to_text(source)}" source is already registered on the "localhost" computer.',
                "InvalidOperation: (:) [New-EventLog], InvalidOperationException",
                "LogOrSourceExists",
            )
            continue
        call.process.context.windows.system.registry.create(key)


def _clear_log(call: CmdletCall) -> None:
    system = call.process.context.windows.system
    wanted = {to_text(one).lower() for one in to_items(call.get("LogName"))}
    kept = [entry for entry in system.events if entry.log.lower() not in wanted]
    system.events.clear()
    system.events.extend(kept)


CMDLETS = (
    cmdlet_row(
        "Get-EventLog",
        _get_log,
        "LogName InstanceId",
        "List",
        "Newest Source EntryType After Before Message",
    ),
    cmdlet_row(
        "Get-WinEvent",
        _win_event,
        "LogName",
        "Oldest",
        "MaxEvents FilterHashtable ListLog ListProvider ProviderName FilterXPath",
    ),
    cmdlet_row(
        "Write-EventLog", _write_log, "LogName Source EventId EntryType Message", "", "Category"
    ),
    cmdlet_row("New-EventLog", _new_log, "LogName Source"),
    cmdlet_row("Clear-EventLog", _clear_log, "LogName"),
)
