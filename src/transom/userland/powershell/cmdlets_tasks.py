"""Cmdlets for scheduled tasks: the same tasks that schtasks shows."""

from __future__ import annotations

import re
from typing import Any, Final

from transom.machines.windows.journal import ScheduledTask
from transom.machines.windows.registry import WindowsRegistry
from transom.userland.powershell.casts import cast_value
from transom.userland.powershell.cmdlets import CmdletCall, cmdlet_row
from transom.userland.powershell.members import local_date
from transom.userland.powershell.operators import matches_wildcard
from transom.userland.powershell.values import (
    DateTime,
    PowerShellError,
    PsObject,
    to_items,
    to_text,
)
from transom.userland.windows.task_documents import start_boundary, task_document
from transom.userland.windows.tasks import DAY, next_weekday, parse_days, run_task, task_due

_ACTION: Final = "MSFT_TaskExecAction"
_TRIGGERS: Final = {
    "Once": "once",
    "Daily": "daily",
    "Weekly": "weekly",
    "AtStartup": "onstart",
    "AtLogOn": "onlogon",
}
_TIME: Final = re.compile(r"(\d{1,2})(?::(\d{2}))?\s*([ap]m)?", re.IGNORECASE)


_TRIGGER_KINDS: Final = {
    "onstart": "MSFT_TaskBootTrigger",
    "onlogon": "MSFT_TaskLogonTrigger",
    "daily": "MSFT_TaskDailyTrigger",
    "weekly": "MSFT_TaskWeeklyTrigger",
}


def _triggers(registry: WindowsRegistry, task: ScheduledTask) -> list[PsObject]:
    boundary = start_boundary(registry, task)
    kind = _TRIGGER_KINDS.get(task.schedule, "MSFT_TaskTimeTrigger")
    if not boundary and kind not in ("MSFT_TaskBootTrigger", "MSFT_TaskLogonTrigger"):
        return []
    shown: dict[str, Any] = {"Enabled": True, "StartBoundary": boundary or None}
    if task.schedule == "weekly":
        shown["DaysOfWeek"] = sum(1 << day for day in task.days)
        shown["WeeksInterval"] = max(1, round(task.every / (7 * DAY)))
    elif task.schedule == "daily":
        shown["DaysInterval"] = max(1, round(task.every / DAY))
    return [PsObject(kind, shown, kind)]


def _task_object(registry: WindowsRegistry, task: ScheduledTask) -> PsObject:
    program, _, rest = task.command.partition(" ")
    action = PsObject(_ACTION, {"Execute": program, "Arguments": rest or None}, _ACTION)
    principal = PsObject("MSFT_TaskPrincipal2", {"UserId": task.user, "RunLevel": task.run_level})
    return PsObject(
        "MSFT_ScheduledTask",
        {
            "TaskPath": "\\",
            "TaskName": task.name,
            "State": task.state,
            "Actions": [action],
            "Triggers": _triggers(registry, task),
            "Principal": principal,
            "Description": task.description or None,
            "URI": f"\\{task.name}",
        },
        task.name,
    )


def _missing(call: CmdletCall, name: str) -> None:
    call.fail(
        f"No MSFT_ScheduledTask objects found with property 'TaskName' equal to '{name}'.  Verify "
        "the value of the property and retry.",
        f"ObjectNotFound: ({name}:String) [{call.cmdlet.name}], CimJobException",
        f"CmdletizationQuery_NotFound_TaskName,{call.cmdlet.name}",
    )


def _meant(call: CmdletCall) -> list[ScheduledTask]:
    """By name or from the pipeline."""
    tasks = call.process.context.windows.system.tasks
    given = [one for one in call.input or () if isinstance(one, PsObject)]
    if not _in_root(call):
        return []
    names = [to_text(one) for one in to_items(call.get("TaskName"))]
    names += [to_text(one.get("TaskName")) for one in given]
    found: list[ScheduledTask] = []
    for name in names:
        hits = [task for task in tasks.values() if matches_wildcard(task.name, name.strip("\\"))]
        if not hits and "*" not in name:
            _missing(call, name)
        found += hits
    return found


def _in_root(call: CmdletCall) -> bool:
    """All tasks are in the folder `\\`."""
    wanted = [to_text(one) for one in to_items(call.get("TaskPath"))]
    return not wanted or any(matches_wildcard("\\", one) for one in wanted)


def _get(call: CmdletCall) -> None:
    if not _in_root(call):
        return
    listed = call.has("TaskName") or call.input
    tasks = _meant(call) if listed else call.process.context.windows.system.tasks.values()
    for task in tasks:
        call.emit(_task_object(call.process.context.windows.system.registry, task))


def _info(call: CmdletCall) -> None:
    for task in _meant(call):
        call.emit(
            PsObject(
                "MSFT_TaskDynamicInfo",
                {
                    "LastRunTime": _moment(call, task.last_run),
                    "LastTaskResult": task.last_result,
                    "NextRunTime": _moment(call, task.next_run),
                    "NumberOfMissedRuns": 0,
                    "TaskName": task.name,
                    "TaskPath": "\\",
                },
            )
        )


def _moment(call: CmdletCall, value: float | None) -> DateTime | None:
    return None if value is None else local_date(call.evaluator, value)


def _action(call: CmdletCall) -> None:
    call.emit(
        PsObject(
            _ACTION,
            {
                "Execute": call.text("Execute"),
                "Arguments": call.text("Argument") or None,
                "WorkingDirectory": call.text("WorkingDirectory") or None,
            },
            _ACTION,
        )
    )


def _start_of(call: CmdletCall, given: Any) -> float:
    """The next moment with this time of day, or the moment itself."""
    if isinstance(given, DateTime):
        return given.moment - given.offset
    match = _TIME.fullmatch(to_text(given).strip())
    now = call.process.context.clock.time()
    if match is None:
        date = cast_value("datetime", given)
        return float(date.moment)
    hours = int(match[1]) % 12 if match[3] else int(match[1])
    hours += 12 if (match[3] or "").lower() == "pm" else 0
    start = now // DAY * DAY + hours * 3600.0 + int(match[2] or 0) * 60.0
    return start if start > now else start + DAY


def _days_of_week(call: CmdletCall) -> int:
    """A bit for each day, as Windows has it. Raises PowerShellError."""
    words = [word for one in to_items(call.get("DaysOfWeek")) for word in to_text(one).split(",")]
    try:
        return sum(1 << day for day in parse_days(words))
    except ValueError:
        raise PowerShellError(
            "Cannot bind parameter 'DaysOfWeek'. Cannot convert value "
            f'"{",".join(words)}" to type "System.DayOfWeek".',
            "InvalidArgument: (:) [New-ScheduledTaskTrigger], ParameterBindingException",
            "CannotConvertArgumentNoMessage,New-ScheduledTaskTrigger",
        ) from None


def _trigger(call: CmdletCall) -> None:
    schedule = next((value for name, value in _TRIGGERS.items() if call.has(name)), "")
    if not schedule:
        raise PowerShellError(
            "Parameter set cannot be resolved using the specified named parameters.",
            "InvalidArgument: (:) [New-ScheduledTaskTrigger], ParameterBindingException",
            "AmbiguousParameterSet,New-ScheduledTaskTrigger",
        )
    needed = {"weekly": ("DaysOfWeek", "At"), "daily": ("At",), "once": ("At",)}
    missing = [name for name in needed.get(schedule, ()) if not call.has(name)]
    if missing:
        raise PowerShellError(
            "Cannot process command because of one or more missing mandatory parameters: "
            f"{' '.join(missing)}.",
            "InvalidArgument: (:) [New-ScheduledTaskTrigger], ParameterBindingException",
            "MissingMandatoryParameter,New-ScheduledTaskTrigger",
        )
    start = _start_of(call, call.get("At")) if call.has("At") else None
    call.emit(
        PsObject(
            "MSFT_TaskTrigger",
            {
                "Enabled": True,
                "Schedule": schedule,
                "DaysOfWeek": _days_of_week(call) if schedule == "weekly" else None,
                "StartBoundary": DateTime(start) if start is not None else None,
            },
        )
    )


def _password_matches(call: CmdletCall, user: str) -> bool:
    database = call.process.context.windows.system.accounts
    sid = database.sid_of(user)
    return any(
        local.sid == sid and local.password == call.text("Password") for local in database.users()
    )


def _register(call: CmdletCall) -> None:
    context, name = call.process.context, call.text("TaskName").strip("\\")
    system = context.windows.system
    actions = [one for one in to_items(call.get("Action")) if isinstance(one, PsObject)]
    triggers = [one for one in to_items(call.get("Trigger")) if isinstance(one, PsObject)]
    user = call.text("User", context.windows.account.name)
    problem = ""
    if not context.windows.account.administrator:
        problem = "Access is denied."
    elif name.lower() in system.tasks and not call.has("Force"):
        problem = "Cannot create a file when that file already exists."
    elif system.accounts.identity(user) is None:
        problem = "No mapping between account names and security IDs was done."
    elif call.has("Password") and not _password_matches(call, user):
        problem = "The user name or password is incorrect."
    if problem or not actions:
        call.fail(
            problem or "The task XML is missing a required element or attribute.",
            "NotSpecified: (PS_ScheduledTask:Root/Microsoft/...S_ScheduledTask) "
            "[Register-ScheduledTask], CimException",
            "HRESULT 0x80070005,Register-ScheduledTask",
        )
        return
    words = [to_text(actions[0].get("Execute")), to_text(actions[0].get("Arguments"))]
    schedule = to_text(triggers[0].get("Schedule")) if triggers else "once"
    start = triggers[0].get("StartBoundary") if triggers else None
    mask = triggers[0].get("DaysOfWeek") if triggers else None
    days = [day for day in range(7) if mask >> day & 1] if isinstance(mask, int) else []
    task = ScheduledTask(
        name,
        " ".join(word for word in words if word),
        schedule,
        user,
        next_run=next_weekday(start.moment, days) if isinstance(start, DateTime) else None,
        every=7 * DAY if schedule == "weekly" else 0.0,
        days=days,
        run_level=call.text("RunLevel", "Limited"),
        description=call.text("Description"),
        start=start.moment if isinstance(start, DateTime) else None,
    )
    system.tasks[name.lower()] = task
    if task.next_run is not None:
        wait = max(0.0, task.next_run - context.clock.time())
        context.clock.call_later(wait, task_due, call.process, task)
    call.emit(_task_object(call.process.context.windows.system.registry, task))


def _export(call: CmdletCall) -> None:
    system = call.process.context.windows.system
    for task in _meant(call):
        sid = system.accounts.sid_of(task.user) or task.user
        call.emit(task_document(system.registry, task, sid))


def _unregister(call: CmdletCall) -> None:
    for task in _meant(call):
        del call.process.context.windows.system.tasks[task.name.lower()]


def _start(call: CmdletCall) -> None:
    for task in _meant(call):
        run_task(call.process, task)


def _switch(call: CmdletCall) -> None:
    for task in _meant(call):
        task.enabled = call.cmdlet.name.startswith("Enable")
        task.state = "Ready" if task.enabled else "Disabled"
        call.emit(_task_object(call.process.context.windows.system.registry, task))


CMDLETS = (
    cmdlet_row("Get-ScheduledTask", _get, "TaskName", "", "TaskPath"),
    cmdlet_row("Get-ScheduledTaskInfo", _info, "TaskName", "", "TaskPath"),
    cmdlet_row("New-ScheduledTaskAction", _action, "Execute Argument WorkingDirectory"),
    cmdlet_row("New-ScheduledTaskTrigger", _trigger, "", " ".join(_TRIGGERS), "At DaysOfWeek"),
    cmdlet_row(
        "Register-ScheduledTask",
        _register,
        "TaskName",
        "Force",
        "Action Trigger User Password Description TaskPath RunLevel Settings Principal",
    ),
    cmdlet_row("Unregister-ScheduledTask", _unregister, "TaskName", "", "TaskPath"),
    cmdlet_row("Export-ScheduledTask", _export, "TaskName", "", "TaskPath"),
    cmdlet_row("Start-ScheduledTask", _start, "TaskName", "", "TaskPath"),
    cmdlet_row("Enable-ScheduledTask", _switch, "TaskName", "", "TaskPath"),
    cmdlet_row("Disable-ScheduledTask", _switch, "TaskName", "", "TaskPath"),
)
