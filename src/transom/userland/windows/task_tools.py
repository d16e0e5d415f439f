"""tasklist and taskkill, as Windows prints them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from transom.kit.named_tuple import NamedTuple
from transom.userland.api import ProcessEntry
from transom.userland.process import Command, Process
from transom.userland.windows import wmi
from transom.userland.windows.priorities import sessions_of
from transom.userland.windows.wmi import image_name

_USAGE: Final = 'Type "TASKLIST /?" for usage.'


class _TaskRow(NamedTuple):
    name: str
    pid: int
    memory: int
    session: int
    entry: ProcessEntry


_COMPARISONS = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "lt": lambda a, b: a < b,
    "ge": lambda a, b: a >= b,
    "le": lambda a, b: a <= b,
}


def _all_processes(process: Process) -> list[_TaskRow]:
    session = sessions_of(process.context)
    rows = wmi.wmi_processes(process.context)
    if rows and rows[0].pid:  # Wine does not show them
        rows = [entry._replace(memory=max(entry.memory, 4 << 20)) for entry in rows]
        first = ProcessEntry(0, 0, "", ("System Idle Process",), 0.0, 8 << 10, system=True)
        kernel = ProcessEntry(4, 0, "", ("System",), 0.0, 140 << 10, system=True)
        rows = [first, kernel, *rows]
    return [
        _TaskRow(
            wmi.image_name(entry) if entry.pid > 4 else entry.argv[0],
            entry.pid,
            entry.memory,
            session(entry),
            entry,
        )
        for entry in rows
    ]


def tasklist(process: Process) -> int:
    arguments = [_slash(argument) for argument in process.argv[1:]]
    shape = _value_of(arguments, "/fo") or "table"
    if shape not in ("table", "list", "csv"):
        process.complain(f"ERROR: Invalid argument/option - '{shape}'.\r\n{_USAGE}")
        return 1
    if _is_remote(process, arguments):
        return 1
    rows = _all_processes(process)
    conditions = [value for name, value in itertools.pairwise(arguments) if name == "/fi"]
    try:
        for condition in conditions:
            matches = _task_filter(process, condition)
            rows = [row for row in rows if matches(row)]
    except _BadFilterError:
        process.complain("ERROR: The search filter cannot be recognized.")
        return 1
    if conditions and not rows:
        process.print_line("INFO: No tasks are running which match the specified criteria.")
        return 0
    if "/m" in arguments:
        table = _with_modules(rows, _value_of(arguments, "/m") or "*")
    elif "/svc" in arguments:
        table = _with_services(process, rows)
    else:
        table = _in_detail(process, rows, verbose="/v" in arguments)
    _print_tasks(process, table, shape, heading="/nh" not in arguments)
    return 0


def _slash(word: str) -> str:
    """A dash may replace the slash of a switch."""
    return ("/" + word[1:] if word.startswith("-") else word).lower()


def _value_of(arguments: Sequence[str], switch: str) -> str:
    after = [value for name, value in itertools.pairwise(arguments) if name == switch]
    return after[0] if after and not after[0].startswith("/") else ""


def _is_remote(process: Process, arguments: Sequence[str]) -> bool:
    """/s: no other machine can be reached."""
    wanted = _value_of(arguments, "/s").lstrip("\\")
    if wanted in ("", ".", "localhost", process.context.network.hostname.lower()):
        return False
    process.complain("ERROR: The RPC server is unavailable.")
    return True


class _BadFilterError(Exception):
    """A filter that Windows does not accept."""


def _task_filter(process: Process, condition: str) -> Callable[[_TaskRow], bool]:
    """`imagename eq cmd*`, `pid gt 1000`, `services eq iphlpsvc`; raises _BadFilterError."""
    field, operator, value = ([*condition.strip('"').split(None, 2), "", "", ""])[:3]
    compare, value = _COMPARISONS.get(operator), value.strip('"').lower()
    if compare is None or not value:
        raise _BadFilterError
    numbers = _NUMBERS.get(field)
    if numbers is not None:
        read = _seconds(value) if field == "cputime" else int(value) if value.isdigit() else None
        if read is None:
            raise _BadFilterError
        number = read
        return lambda row: bool(compare(numbers(process, row), number))
    found = _TEXTS.get(field)
    if found is None or operator not in ("eq", "ne"):
        raise _BadFilterError
    wanted = operator == "eq"
    return lambda row: any(fnmatchcase(one.lower(), value) for one in found(process, row)) == wanted


def _seconds(text: str) -> int | None:
    parts = text.split(":")
    if len(parts) != 3 or not all(part.isdigit() for part in parts):
        return None
    hours, minutes, seconds = map(int, parts)
    return hours * 3600 + minutes * 60 + seconds


def _cpu_seconds(row: _TaskRow) -> int:
    return int(row.entry.cpu)


def _user_names(process: Process, row: _TaskRow) -> list[str]:
    """With and without the domain."""
    account = process.context.windows.system.accounts.identity(row.entry.user)
    return [account.name, rf"{account.domain}\{account.name}"] if account is not None else ["n/a"]


def _service_names(process: Process, row: _TaskRow) -> list[str]:
    all_services = process.context.windows.system.services.all()
    return [service.name for service in all_services if service.pid and service.pid == row.pid]


_MODULES = ("ntdll.dll", "KERNEL32.DLL", "KERNELBASE.dll")  # that every program loads


def _module_names(row: _TaskRow) -> list[str]:
    return [row.name, *_MODULES] if row.pid > 4 else []


_NUMBERS: Final[Mapping[str, Callable[[Process, _TaskRow], int]]] = {
    "cputime": lambda _process, row: _cpu_seconds(row),
    "memusage": lambda _process, row: row.memory >> 10,
    "pid": lambda _process, row: row.pid,
    "session": lambda _process, row: row.session,
}
_TEXTS: Final[Mapping[str, Callable[[Process, _TaskRow], list[str]]]] = {
    "imagename": lambda _process, row: [row.name],
    "modules": lambda _process, row: _module_names(row),
    "services": _service_names,
    "sessionname": lambda _process, _row: ["services"],
    "status": lambda _process, _row: ["unknown"],
    "username": _user_names,
    "windowtitle": lambda _process, _row: ["n/a"],
}


class _Column(NamedTuple):
    name: str
    width: int
    right: bool = False


_NAME, _PID = _Column("Image Name", 25), _Column("PID", 8, True)
_USUAL: Final = (
    *(_NAME, _PID, _Column("Session Name", 16), _Column("Session#", 11, True)),
    _Column("Mem Usage", 12, True),
)
_VERBOSE: Final = (
    *(_Column("Status", 15), _Column("User Name", 50), _Column("CPU Time", 12, True)),
    _Column("Window Title", 72),
)
_TaskTable = tuple[Sequence[_Column], Sequence[Sequence[str]]]


def _in_detail(process: Process, rows: Sequence[_TaskRow], *, verbose: bool) -> _TaskTable:
    """/v: with the account, the CPU time and the window of each process."""
    table = []
    for row in rows:
        cells = [row.name, str(row.pid), "Services", str(row.session), f"{row.memory >> 10:,} K"]
        if verbose:
            cpu = _cpu_seconds(row)
            user = _user_names(process, row)[-1]
            cells += [
                *("Unknown", user if user != "n/a" else "N/A"),
                *(f"{cpu // 3600}:{cpu // 60 % 60:02d}:{cpu % 60:02d}", "N/A"),
            ]
        table.append(cells)
    return (*_USUAL, *(_VERBOSE if verbose else ())), table


def _with_modules(rows: Sequence[_TaskRow], pattern: str) -> _TaskTable:
    table = []
    for row in rows:
        found = [name for name in _module_names(row) if fnmatchcase(name.lower(), pattern)]
        if found or pattern == "*":
            table.append((row.name, str(row.pid), ", ".join(found) or "N/A"))
    return (_NAME, _PID, _Column("Modules", 44)), table


def _with_services(process: Process, rows: Sequence[_TaskRow]) -> _TaskTable:
    table = [
        (row.name, str(row.pid), ", ".join(_service_names(process, row)) or "N/A") for row in rows
    ]
    return (_NAME, _PID, _Column("Services", 44)), table


def _print_tasks(process: Process, table: _TaskTable, shape: str, *, heading: bool) -> None:
    columns, rows = table
    if shape == "list":
        for row in rows:
            process.print_line()
            for column, cell in zip(columns, row, strict=True):
                process.print_line(f"{column.name + ':':<13} {cell}")
        return
    names = [column.name for column in columns]
    if shape == "csv":
        for row in [names, *rows] if heading else rows:
            process.print_line(",".join(f'"{cell}"' for cell in row))
        return
    if heading:
        process.print_line()
        rows = [names, ["=" * column.width for column in columns], *rows]
    for row in rows:
        cells = []
        for column, cell in zip(columns, row, strict=True):
            last = column is columns[-1]
            shown = cell if last and not column.right else cell[: column.width]
            cells.append(shown.rjust(column.width) if column.right else shown.ljust(column.width))
        process.print_line(" ".join(cells).rstrip())


def _tree_of(entries: Sequence[ProcessEntry], first: ProcessEntry) -> list[ProcessEntry]:
    """A process after those that it has started."""
    below = [one for one in entries if one.parent == first.pid and one.pid != first.pid]
    return [*(each for one in below for each in _tree_of(entries, one)), first]


def _may_end(process: Process, entry: ProcessEntry) -> bool:
    """System processes cannot be ended, and those of other accounts only by administrators."""
    account = process.context.windows.account
    if entry.system or account.administrator:
        return not entry.system
    owner = process.context.windows.system.accounts.identity(entry.user)
    return owner is None or owner.sid == account.sid


def _chosen(process: Process, name: str, value: str) -> list[ProcessEntry]:
    """The processes that an option of taskkill names. Raises _BadFilterError."""
    entries = list(process.context.processes.list())
    if name == "/pid":
        return [entry for entry in entries if str(entry.pid) == value]
    if name == "/im":
        return [one for one in entries if fnmatchcase(image_name(one).lower(), value.lower())]
    session = sessions_of(process.context)
    matches = _task_filter(process, value.lower())
    return [
        entry
        for entry in entries
        if matches(_TaskRow(image_name(entry), entry.pid, entry.memory, session(entry), entry))
    ]


def taskkill(process: Process) -> int:
    arguments = process.argv[1:]
    lower = [_slash(argument) for argument in arguments]
    requested = [
        (name, value)
        for name, value in zip(lower, arguments[1:], strict=False)
        if name in ("/pid", "/im", "/fi")
    ]
    if not requested:
        process.complain(
            "ERROR: Invalid syntax. Neither /FI nor /PID nor /IM were specified.\r\n"
            'Type "TASKKILL /?" for usage.'
        )
        return 1
    if _is_remote(process, lower):
        return 1
    filters = [value for name, value in requested if name == "/fi"]
    named = [one for one in requested if one[0] != "/fi"] or [("/fi", filters[0])]
    code, entries = 0, list(process.context.processes.list())
    try:
        allowed = {entry.pid for entry in entries}
        for condition in filters:
            allowed &= {entry.pid for entry in _chosen(process, "/fi", condition)}
        chosen = [(name, value, _chosen(process, name, value)) for name, value in named]
    except _BadFilterError:
        process.complain("ERROR: The search filter cannot be recognized.")
        return 1
    if filters and not any(one.pid in allowed for _, _, found in chosen for one in found):
        process.print_line("INFO: No tasks running with the specified criteria.")
        return 0
    for name, value, found in chosen:
        if not found:
            process.complain(f'ERROR: The process "{value}" not found.')
            code = 128
        for one in (entry for entry in found if entry.pid in allowed):
            for entry in _tree_of(entries, one) if "/t" in lower else [one]:
                if not _end_task(process, entry, by_pid=name == "/pid", force="/f" in lower):
                    code = 1
    return code


def _end_task(process: Process, entry: ProcessEntry, *, by_pid: bool, force: bool) -> bool:
    shown = "" if by_pid else f' "{image_name(entry)}"'
    if not _may_end(process, entry):
        process.complain(
            f"ERROR: The process{shown} with PID {entry.pid} could not be terminated.\r\n"
            "Reason: Access is denied."
        )
        return False
    process.context.processes.signal(entry.pid, "SIGKILL" if force else "CTRL_CLOSE_EVENT")
    done = "has been terminated." if force else "sent termination signal."
    process.print_line(f"SUCCESS: The process{shown} with PID {entry.pid} {done}")
    return True


COMMANDS: Final[dict[str, Command]] = {"taskkill": taskkill, "tasklist": tasklist}
