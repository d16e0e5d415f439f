"""schtasks: the scheduled tasks of a container or a machine. chcp, doskey and clip."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Final

from transom.kit.argv import parse_command_line
from transom.machines.windows.journal import ScheduledTask
from transom.machines.windows.time_zones import offset_seconds
from transom.userland.process import Command, Process
from transom.userland.windows.task_documents import task_document
from transom.userland.windows.unsupported_programs import unsupported_message

_MISSING: Final = "ERROR: The system cannot find the file specified."
DAY: Final = 86400.0
_EPOCH_DAY: Final = 4  # 1 January 1970 was a Thursday
_REPEATED: Final = {"minute": 60.0, "hourly": 3600.0, "daily": DAY, "weekly": 7 * DAY}


_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


def parse_days(words: Iterable[str]) -> list[int]:
    """Days of the week by their names or the first three letters. Raises ValueError."""
    return sorted({_DAYS.index(word.strip().lower()[:3]) for word in words})


def next_weekday(start: float, days: Sequence[int], offset: float = 0.0) -> float:
    """The first of the moments `start`, a day later and so on that is on one of the days.
    `offset` is that of the time zone, in seconds.
    """
    while days and _weekday(start, offset) not in days:
        start += DAY
    return start


def _weekday(moment: float, offset: float) -> int:
    return int((moment + offset) // DAY + _EPOCH_DAY) % 7


def _options(words: Sequence[str]) -> dict[str, str]:
    out: dict[str, str] = {}
    name = ""
    for word in words:
        if word.startswith("/"):
            name = word.lower()
            out[name] = ""
        elif name:
            out[name] = word
    return out


# The options of each verb that are performed, and those that Windows has besides.
_PERFORMED: Final = {
    "/create": ("/tn", "/tr", "/sc", "/st", "/mo", "/d", "/ru", "/rp", "/rl", "/f"),
    "/query": ("/tn", "/fo", "/nh", "/v", "/xml"),
    "/delete": ("/tn", "/f"),
    "/run": ("/tn", "/i"),
    "/end": ("/tn",),
    "/change": ("/tn", "/tr", "/enable", "/disable"),
}
_NOT_PERFORMED: Final = frozenset(
    (
        *("/s", "/u", "/p", "/ru", "/rp", "/rl", "/st", "/sd", "/ed", "/et", "/du", "/ri", "/k"),
        *("/i", "/it", "/np", "/z", "/m", "/xml", "/v1", "/delay", "/ec", "/hresult"),
    )
)


def _refused_option(process: Process, verb: str, options: dict[str, str]) -> bool:
    """Complains about the first option that is not performed."""
    known = _PERFORMED[verb]
    for name in options:
        if name == verb or name in known:
            continue
        if name in _NOT_PERFORMED:
            process.complain(unsupported_message(f"schtasks {verb} {name}"))
        else:
            process.complain(
                f"ERROR: Invalid argument/option - '{name}'.\r\n"
                f'Type "SCHTASKS {verb.upper()} /?" for usage.'
            )
        return True
    return False


def schtasks(process: Process) -> int:
    options = _options(process.argv[1:])
    verb = next((verb for verb in _PERFORMED if verb in options), "/query")
    if _refused_option(process, verb, options):
        return 1
    tasks, name = process.context.windows.system.tasks, options.get("/tn", "").strip("\\")
    if verb == "/create":
        return _create(process, options, name)
    if verb == "/query":
        return _query(process, options, name)
    task = tasks.get(name.lower())
    if task is None:
        unknown = f'ERROR: The specified task name "{name}" does not exist in the system.'
        process.complain(unknown if verb == "/delete" else _MISSING)
        return 1
    if verb == "/delete":
        del tasks[name.lower()]
        process.print_line(f'SUCCESS: The scheduled task "{name}" was successfully deleted.')
    elif verb == "/run" and not task.enabled:
        process.complain("ERROR: The task is disabled.")
        return 1
    elif verb == "/run":
        run_task(process, task)
        process.print_line(f'SUCCESS: Attempted to run the scheduled task "{name}".')
    elif verb == "/change":
        task.enabled = "/disable" not in options and (task.enabled or "/enable" in options)
        task.state = "Ready" if task.enabled else "Disabled"
        task.command = options.get("/tr", task.command)
        process.print_line(f'SUCCESS: The parameters of scheduled task "{name}" have been changed.')
    else:
        process.print_line(
            f'SUCCESS: The scheduled task "{name}" has been terminated successfully.'
        )
    return 0


def _create(process: Process, options: dict[str, str], name: str) -> int:
    context = process.context
    if not name or not options.get("/tr") or not options.get("/sc"):
        process.complain(
            'ERROR: Invalid syntax. Mandatory option missing.\r\nType "SCHTASKS /CREATE /?" '
            "for usage."
        )
        return 1
    if not context.windows.account.administrator:
        process.complain("ERROR: Access is denied.")
        return 1
    if not context.windows.system.can_schedule():
        process.complain(
            "ERROR: Insufficient system resources exist to complete the requested service."
        )
        return 1
    user = options.get("/ru", context.windows.account.name)
    if context.windows.system.accounts.identity(user) is None:
        process.complain("ERROR: No mapping between account names and security IDs was done.")
        return 1
    if name.lower() in context.windows.system.tasks and "/f" not in options:
        process.complain(
            f'WARNING: The task name "{name}" already exists. Do you want to replace it (Y/N)? \r\n'
            "ERROR: Cannot create a file when that file already exists."
        )
        return 1
    level = options.get("/rl", "LIMITED").capitalize()
    if level not in ("Limited", "Highest"):
        process.complain(
            f"ERROR: Invalid syntax. '{options['/rl']}' value is not allowed for '/rl' option.\r\n"
            'Type "SCHTASKS /CREATE /?" for usage.'
        )
        return 1
    now = context.clock.time()
    hours, _, minutes = options.get("/st", "00:00").partition(":")
    schedule, count = options["/sc"].lower(), options.get("/mo", "1")
    every = _REPEATED.get(schedule, 0.0) * (int(count) if count.isdigit() else 1)
    offset = offset_seconds(context.windows.system.registry, now)  # /st is local time
    local = now + offset
    start = local // DAY * DAY + int(hours or 0) * 3600.0 + int(minutes or 0) * 60.0 - offset
    if "/st" not in options:
        start = now // 60 * 60
    try:
        days = (
            parse_days(options["/d"].split(","))
            if schedule == "weekly" and options.get("/d")
            else []
        )
    except ValueError:
        process.complain("ERROR: Invalid value for /D option.")
        return 1
    while start <= now:
        start += (DAY if days else every) or DAY
    start = next_weekday(start, days, offset)
    task = ScheduledTask(
        name,
        options["/tr"],
        schedule,
        user,
        next_run=start if every or schedule == "once" else None,
        every=every,
        days=days or ([_weekday(start, offset)] if schedule == "weekly" else []),
        run_level=level,
        start=start if every or schedule == "once" else None,
    )
    context.windows.system.tasks[name.lower()] = task
    process.print_line(f'SUCCESS: The scheduled task "{name}" has successfully been created.')
    if task.next_run is not None:
        context.clock.call_later(task.next_run - now, task_due, process, task)
    return 0


def task_due(process: Process, task: ScheduledTask) -> None:
    """Runs the task, unless it was deleted or disabled, or the service is stopped."""
    system = process.context.windows.system
    if system.tasks.get(task.name.lower()) is not task:
        return
    scheduler = system.services.find("Schedule")
    if task.enabled and (scheduler is None or scheduler.state == "RUNNING"):
        run_task(process, task)
    every = task.every or (DAY if task.schedule == "daily" else 0.0)
    if every and task.next_run is not None:
        due, now = task.next_run, process.context.clock.time()
        offset = offset_seconds(system.registry, now)
        task.next_run = next_weekday(due + DAY, task.days, offset) if task.days else due + every
        process.context.clock.call_later(task.next_run - due, task_due, process, task)
    else:
        task.next_run = None


def run_task(process: Process, task: ScheduledTask) -> None:
    context = process.context
    task.last_run = context.clock.time()
    account = context.windows.system.accounts.identity(task.user)
    try:
        if account is None:
            raise FileNotFoundError(task.user)
        context.windows.launch(
            parse_command_line(task.command, " \t"),
            account,
            context.env,
            r"C:\Windows\system32",
            lambda _data: None,
        )
        task.last_result = 0
    except OSError:
        task.last_result = 0x80070002


def _moment(process: Process, value: float | None) -> str:
    if value is None:
        return "N/A"
    local = value + offset_seconds(process.context.windows.system.registry, value)
    return time.strftime("%-m/%-d/%Y %-I:%M:%S %p", time.gmtime(local))


def _query(process: Process, options: dict[str, str], name: str) -> int:
    tasks = [
        task
        for task in process.context.windows.system.tasks.values()
        if not name or task.name.lower() == name.lower()
    ]
    if name and not tasks:
        process.complain(_MISSING)
        return 1
    if not tasks:
        process.print_line(
            "INFO: There are no scheduled tasks presently available at your access level."
        )
        return 0
    if "/xml" in options:
        _print_documents(process, tasks, one="one" if name else options["/xml"].lower())
        return 0
    shape = options.get("/fo", "table").lower()
    if shape not in ("table", "list", "csv"):
        process.complain(
            f"ERROR: Invalid syntax. '{options['/fo']}' value is not allowed for '/fo' option.\r\n"
            'Type "SCHTASKS /QUERY /?" for usage.'
        )
        return 1
    if shape == "csv":
        _print_csv(process, tasks, verbose="/v" in options, heading="/nh" not in options)
        return 0
    if shape == "list" or "/v" in options:
        verbose = "/v" in options
        width = 37 if verbose else 14
        process.print_line()
        for task in tasks:
            rows = [row for row in _details(process, task) if verbose or row[0] in _BRIEF]
            process.print_line("Folder: \\")
            for key, value in rows:
                process.print_line(f"{key + ':':<{width}} {value}")
            process.print_line()
        return 0
    process.print_line("\r\nFolder: \\")
    if "/nh" not in options:
        process.print_line(f"{'TaskName':<40} {'Next Run Time':<22} {'Status':<15}")
        process.print_line(f"{'=' * 40} {'=' * 22} {'=' * 15}")
    for task in tasks:
        process.print_line(f"{task.name:<40} {_next_run(process, task):<22} {task.state:<15}")
    return 0


def _print_documents(process: Process, tasks: list[ScheduledTask], *, one: str) -> None:
    """`/xml ONE` shows one document for all tasks."""
    system = process.context.windows.system
    documents = [
        task_document(system.registry, task, system.accounts.sid_of(task.user) or task.user)
        for task in tasks
    ]
    if not one or len(tasks) == 1:
        process.print_line("\r\n\r\n".join(documents))
    else:
        process.print_line("<Tasks>")
        for text in documents:
            process.print_line(text.partition("\r\n")[2])
        process.print_line("</Tasks>")


def _next_run(process: Process, task: ScheduledTask) -> str:
    return _moment(process, task.next_run if task.enabled else None)


def _start(process: Process, task: ScheduledTask, shape: str) -> str:
    if task.start is None:
        return "N/A"
    local = task.start + offset_seconds(process.context.windows.system.registry, task.start)
    return time.strftime(shape, time.gmtime(local))


_BRIEF: Final = ("HostName", "TaskName", "Next Run Time", "Status", "Logon Mode")


def _details(process: Process, task: ScheduledTask) -> list[tuple[str, str]]:
    return [
        ("HostName", process.context.windows.system.computer_name),
        ("TaskName", f"\\{task.name}"),
        ("Next Run Time", _next_run(process, task)),
        ("Status", task.state),
        ("Logon Mode", "Interactive/Background"),
        ("Last Run Time", _moment(process, task.last_run)),
        ("Last Result", str(task.last_result)),
        ("Task To Run", task.command),
        ("Comment", task.description or "N/A"),
        ("Scheduled Task State", "Enabled" if task.enabled else "Disabled"),
        ("Run As User", task.user),
        ("Schedule Type", task.schedule.capitalize()),
        ("Start Time", _start(process, task, "%-I:%M:%S %p")),
        ("Start Date", _start(process, task, "%-m/%-d/%Y")),
        ("Days", ", ".join(_DAYS[day].upper() for day in task.days) or "N/A"),
    ]


def _print_csv(
    process: Process, tasks: list[ScheduledTask], *, verbose: bool, heading: bool
) -> None:
    shown = ("TaskName", "Next Run Time", "Status")
    for number, task in enumerate(tasks):
        rows = [row for row in _details(process, task) if verbose or row[0] in shown]
        if heading and not number:
            process.print_line(",".join(f'"{key}"' for key, _ in rows))
        process.print_line(",".join(f'"{value}"' for _, value in rows))


def chcp(process: Process) -> int:
    process.print_line(f"Active code page: {process.argv[1] if len(process.argv) > 1 else '437'}")
    return 0


def _quiet(process: Process) -> int:
    return 0


COMMANDS: dict[str, Command] = {
    "chcp": chcp,
    "clip": _quiet,
    "doskey": _quiet,
    "schtasks": schtasks,
}
