"""The XML document of a scheduled task, as `schtasks /query /xml` and Export-ScheduledTask show it."""

from __future__ import annotations

import time
from typing import Final

from transom.kit.escaping import escape_markup
from transom.machines.windows.journal import ScheduledTask
from transom.machines.windows.registry import WindowsRegistry
from transom.machines.windows.time_zones import offset_seconds

_DAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MINUTE: Final = 60.0
_DAY: Final = 86400.0
_LEVELS: Final = {"highest": "HighestAvailable", "limited": "LeastPrivilege"}


def start_boundary(registry: WindowsRegistry, task: ScheduledTask) -> str:
    """The first moment of its trigger in local time; empty if it has none."""
    start = task.start if task.start is not None else task.next_run
    if start is None:
        return ""
    local = start + offset_seconds(registry, start)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(local))


def _schedule(task: ScheduledTask) -> list[str]:
    if task.schedule == "weekly":
        days = "".join(f"<{_DAYS[day]} />" for day in task.days)
        weeks = max(1, round(task.every / (7 * _DAY)))
        return [
            "      <ScheduleByWeek>",
            f"        <WeeksInterval>{weeks}</WeeksInterval>",
            f"        <DaysOfWeek>{days}</DaysOfWeek>",
            "      </ScheduleByWeek>",
        ]
    if task.schedule == "daily":
        return [
            "      <ScheduleByDay>",
            f"        <DaysInterval>{max(1, round(task.every / _DAY))}</DaysInterval>",
            "      </ScheduleByDay>",
        ]
    if task.schedule in ("minute", "hourly"):
        interval = f"PT{round(task.every / _MINUTE)}M"
        if task.schedule == "hourly":
            interval = f"PT{round(task.every / (60 * _MINUTE))}H"
        return [
            "      <Repetition>",
            f"        <Interval>{interval}</Interval>",
            "      </Repetition>",
        ]
    return []


def _trigger(registry: WindowsRegistry, task: ScheduledTask) -> list[str]:
    boundary = start_boundary(registry, task)
    shown = [f"      <StartBoundary>{boundary}</StartBoundary>"] if boundary else []
    kind = {
        "onstart": "BootTrigger",
        "onlogon": "LogonTrigger",
        "daily": "CalendarTrigger",
        "weekly": "CalendarTrigger",
    }.get(task.schedule, "TimeTrigger")
    if not shown and kind.endswith(("CalendarTrigger", "TimeTrigger")):
        return []
    return [f"    <{kind}>", *shown, *_schedule(task), f"    </{kind}>"]


def task_document(registry: WindowsRegistry, task: ScheduledTask, sid: str) -> str:
    """`sid` is that of the account that the task runs as."""
    program, _, arguments = task.command.partition(" ")
    about = f"    <Description>{escape_markup(task.description)}</Description>"
    lines = [
        '<?xml version="1.0" encoding="UTF-16"?>',
        '<Task version="1.2" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task">',
        "  <RegistrationInfo>",
        *([about] if task.description else []),
        f"    <URI>\\{escape_markup(task.name)}</URI>",
        "  </RegistrationInfo>",
        "  <Triggers>",
        *_trigger(registry, task),
        "  </Triggers>",
        "  <Principals>",
        '    <Principal id="Author">',
        f"      <UserId>{sid}</UserId>",
        f"      <RunLevel>{_LEVELS[task.run_level.lower()]}</RunLevel>",
        "    </Principal>",
        "  </Principals>",
        "  <Settings>",
        f"    <Enabled>{str(task.enabled).lower()}</Enabled>",
        "  </Settings>",
        '  <Actions Context="Author">',
        "    <Exec>",
        f"      <Command>{escape_markup(program)}</Command>",
        *([f"      <Arguments>{escape_markup(arguments)}</Arguments>"] if arguments else []),
        "    </Exec>",
        "  </Actions>",
        "</Task>",
    ]
    return "\r\n".join(lines)
