"""wevtutil and eventcreate: the event logs of a container or a machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from transom.kit.escaping import escape_markup
from transom.machines.windows.journal import LogEntry
from transom.userland.process import Command, Process
from transom.userland.windows.event_query import (
    LEVELS,
    EventQueryError,
    event_filter,
    event_xml_time,
)

LOGS: Final = (
    "Application",
    "HardwareEvents",
    "Internet Explorer",
    "Key Management Service",
    "Security",
    "Setup",
    "System",
    "Windows PowerShell",
)
_SOURCES: Final = r"HKLM\SYSTEM\CurrentControlSet\Services\EventLog"
_NO_SUCH_LOG: Final = 15007
_INVALID_QUERY: Final = 15001


def _entries(process: Process, log: str) -> list[LogEntry]:
    return [
        entry for entry in process.context.windows.system.events if entry.log.lower() == log.lower()
    ]


def _log_names(process: Process) -> list[str]:
    registered = process.context.windows.system.registry.keys(_SOURCES)
    return sorted(
        {*LOGS, *(name for name in registered if name.lower() not in {one.lower() for one in LOGS})}
    )


def _options(words: Sequence[str]) -> dict[str, str]:
    """`/name:value`; accepts both spellings of a name."""
    named = {}
    for word in words:
        if word.startswith(("/", "-")):
            name, _, value = word[1:].partition(":")
            named[_SHORT.get(name.lower(), name.lower())] = value.strip('"')
    return named


_SHORT: Final = {"count": "c", "format": "f", "reversedirection": "rd", "query": "q"}


def wevtutil(process: Process) -> int:
    words = process.argv[1:]
    verb = words[0].lower() if words else ""
    if verb in ("el", "enum-logs"):
        for name in _log_names(process):
            process.print_line(name)
        return 0
    if (
        verb in ("gl", "get-log", "gli", "get-loginfo", "qe", "query-events", "cl", "clear-log")
        and len(words) > 1
    ):
        log = next((name for name in _log_names(process) if name.lower() == words[1].lower()), None)
        if log is None:
            process.complain(
                f"Failed to {'read log configuration' if verb in ('gl', 'get-log') else 'open event query'}. "
                f"The specified channel could not be found."
            )
            return _NO_SUCH_LOG
        if verb in ("qe", "query-events"):
            return _query(process, log, _options(words[2:]))
        if verb in ("cl", "clear-log"):
            return _clear(process, log)
        _describe(process, log, information=verb in ("gli", "get-loginfo"))
        return 0
    process.print_line("Windows Events Command Line Utility.\r\n")
    process.print_line(
        "Usage:\r\n\r\nwevtutil COMMAND [ARGUMENT [ARGUMENT] ...] [/OPTION:VALUE [/OPTION:VALUE] ...]\r\n",
    )
    for short, long, what in _COMMANDS:
        process.print_line(f"{short + ' | ' + long:<32}{what}")
    return 0 if verb in ("", "/?", "-?", "help") else 87


_COMMANDS: Final = (
    ("el", "enum-logs", "List log names."),
    ("gl", "get-log", "Get log configuration information."),
    ("qe", "query-events", "Query events from a log or log file."),
    ("gli", "get-loginfo", "Get log status information."),
    ("cl", "clear-log", "Clear a log."),
)


def _describe(process: Process, log: str, *, information: bool) -> None:
    entries = _entries(process, log)
    if information:
        moments = [event_xml_time(entry.time) for entry in entries]
        process.print_line(f"creationTime: {moments[0] if moments else 'n/a'}")
        process.print_line(f"lastWriteTime: {moments[-1] if moments else 'n/a'}")
        process.print_line(f"numberOfLogRecords: {len(entries)}")
        process.print_line(f"oldestRecordNumber: {entries[0].number if entries else 0}")
        return
    process.print_line(
        f"name: {log}\r\nenabled: true\r\ntype: Admin\r\nowningPublisher: \r\nisolation: Application",
    )
    process.print_line(
        f"logging:\r\n  logFileName: %SystemRoot%\\System32\\Winevt\\Logs\\{log}.evtx\r\n  retention: false",
    )
    process.print_line("  autoBackup: false\r\n  maxSize: 20971520")


def _query(process: Process, log: str, options: dict[str, str]) -> int:
    entries = _entries(process, log)
    if options.get("q"):
        try:
            matches = event_filter(options["q"], process.context.clock.time())
        except EventQueryError:
            process.complain("Failed to open event query.\r\nThe specified query is invalid.")
            return _INVALID_QUERY
        entries = [entry for entry in entries if matches(entry)]
    if options.get("rd", "").lower() == "true":
        entries.reverse()
    count = options.get("c", "")
    if count:
        if not count.isdigit():
            process.complain("Invalid value for option c. The parameter is incorrect.")
            return 87
        entries = entries[: int(count)]
    shape = options.get("f", "xml").lower()
    for position, entry in enumerate(entries):
        process.print_line(
            _as_text(process, entry, position) if shape == "text" else _as_xml(process, entry),
        )
    return 0


def _as_text(process: Process, entry: LogEntry, position: int) -> str:
    computer = process.context.windows.system.computer_name
    rows = (
        ("Log Name", entry.log),
        ("Source", entry.source),
        ("Date", event_xml_time(entry.time)),
        ("Event ID", str(entry.event_id)),
        ("Task", "N/A"),
        ("Level", entry.level),
        ("Opcode", "N/A"),
        ("Keyword", "Classic"),
        ("User", "N/A"),
        ("User Name", "N/A"),
        ("Computer", computer),
    )
    body = "\r\n".join(f"  {name}: {value}" for name, value in rows)
    return f"Event[{position}]:\r\n{body}\r\n  Description: \r\n{entry.message}\r\n"


def _as_xml(process: Process, entry: LogEntry) -> str:
    level, computer = LEVELS.get(entry.level, 4), process.context.windows.system.computer_name
    return (
        "<Event xmlns='http://schemas.microsoft.com/win/2004/08/events/event'><System>"
        f"<Provider Name='{escape_markup(entry.source)}'/>"
        f"<EventID Qualifiers='0'>{entry.event_id}</EventID><Level>{level}</Level>"
        f"<Task>0</Task><Keywords>0x80000000000000</Keywords><TimeCreated SystemTime='{event_xml_time(entry.time)}'/>"
        f"<EventRecordID>{entry.number}</EventRecordID><Channel>{escape_markup(entry.log)}</Channel>"
        f"<Computer>{escape_markup(computer)}</Computer><Security/></System>"
        f"<EventData><Data>{escape_markup(entry.message)}</Data></EventData></Event>"
    )


def _clear(process: Process, log: str) -> int:
    if not process.context.windows.account.administrator:
        process.complain(f"Failed to clear log {log}.\r\nAccess is denied.")
        return 5
    system = process.context.windows.system
    kept = [entry for entry in system.events if entry.log.lower() != log.lower()]
    system.events.clear()
    system.events.extend(kept)
    return 0


def eventcreate(process: Process) -> int:
    words = process.argv[1:]
    given: dict[str, str] = {}
    for position, word in enumerate(words):
        if word.startswith("/") and position + 1 < len(words):
            given[word.lower()] = words[position + 1]
    level, number = given.get("/t", "").capitalize(), given.get("/id", "")
    missing = next((option for option in ("/t", "/id", "/d") if option not in given), None)
    if missing is not None:
        process.complain(
            f"ERROR: Invalid syntax. Mandatory option '{missing}' is missing.\r\n"
            'Type "EVENTCREATE /?" for usage.'
        )
        return 1
    if level not in (*LEVELS, "Success"):
        process.complain(
            f"ERROR: Invalid syntax. '{given['/t']}' value is not allowed for '/t' option.\r\n"
            'Type "EVENTCREATE /?" for usage.'
        )
        return 1
    if not number.isdigit() or not 1 <= int(number) <= 1000:
        process.complain("ERROR: Invalid value for /ID. Value should be in the range 1 - 1000.")
        return 1
    if not process.context.windows.account.administrator:
        process.complain("ERROR: Access is denied.")
        return 1
    log, source = given.get("/l", "Application"), given.get("/so", "EventCreate")
    known = next((name for name in _log_names(process) if name.lower() == log.lower()), None)
    if known is None:
        process.complain(f'ERROR: "{log}" log does not exist.')
        return 1
    system = process.context.windows.system
    system.registry.create(rf"{_SOURCES}\{known}\{source}")
    system.log(
        known,
        process.context.clock.time(),
        level if level in LEVELS else "Information",
        source,
        int(number),
        given["/d"],
    )
    process.print_line(
        f"\r\nSUCCESS: An event of type '{given['/t'].upper()}' was created in the '{known}' log with "
        f"'{source}' as the source.",
    )
    return 0


COMMANDS: Final[dict[str, Command]] = {"eventcreate": eventcreate, "wevtutil": wevtutil}
