"""Cmdlets for processes, jobs and web requests: Start-Sleep, Get-Process, Invoke-WebRequest and
others.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import ntpath
import re
import socket
from typing import Any, Final

from transom.userland import http_client as netclient
from transom.userland.api import NativeSystem, ProcessEntry, ProgramContext
from transom.userland.powershell import members, web_client
from transom.userland.powershell.casts import cast_value, parse_date_time
from transom.userland.powershell.cmdlets import CmdletCall, cmdlet_row
from transom.userland.powershell.cmdlets_output import from_plain, to_plain
from transom.userland.powershell.operators import matches_wildcard, time_span
from transom.userland.powershell.tree import CommandNode, ValueLiteral
from transom.userland.powershell.values import (
    DateTime,
    Hashtable,
    PowerShellError,
    PsObject,
    ScriptBlock,
    to_items,
    to_number,
    to_text,
)
from transom.userland.process import Exit, Process
from transom.userland.termination import DOTNET, terminate
from transom.userland.windows import wmi
from transom.userland.windows.priorities import priority_of, sessions_of

_PENDING: Final = {"start": "StartPending", "stop": "StopPending"}
_PENDING_POLL: Final = 0.1


async def _sleep(call: CmdletCall) -> None:
    seconds = (
        float(to_number(call.get("Milliseconds"))) / 1000
        if call.has("Milliseconds")
        else float(to_number(call.get("Seconds", 0)))
    )
    call.evaluator.flush()
    await call.process.sleep(seconds)


_DATE_PARTS = ("Year", "Month", "Day", "Hour", "Minute", "Second", "Millisecond")


def _with_parts(moment: DateTime, parts: dict[str, int]) -> DateTime:
    """The date with other parts. A day that the month does not have is an error, as in .NET."""
    date = datetime.datetime.fromtimestamp(moment.moment // 1, datetime.UTC)
    given = {name.lower(): value for name, value in parts.items()}
    fraction = given["millisecond"] / 1000 if "millisecond" in given else moment.moment % 1
    try:
        changed = date.replace(
            year=given.get("year", date.year),
            month=given.get("month", date.month),
            day=given.get("day", date.day),
            hour=given.get("hour", date.hour),
            minute=given.get("minute", date.minute),
            second=given.get("second", date.second),
        )
    except ValueError as problem:
        raise PowerShellError(
            "Cannot bind parameter. Year, Month, and Day parameters describe an un-representable DateTime.",
            "InvalidArgument: (:) [Get-Date], ArgumentOutOfRangeException",
            "System.ArgumentOutOfRangeException,Microsoft.PowerShell.Commands.GetDateCommand",
            where="Get-Date",
        ) from problem
    return DateTime(changed.timestamp() + fraction, moment.offset, moment.kind)


def _get_date(call: CmdletCall) -> None:
    given = [call.get("Date")] if call.input is None or call.has("Date") else call.input
    for one in given:
        _show_date(call, one)


def _show_date(call: CmdletCall, given: Any) -> None:
    moment = members.local_date(call.evaluator, call.process.context.clock.time())
    if given is not None:
        moment = given if isinstance(given, DateTime) else parse_date_time(to_text(given))
    parts = {part: int(to_number(call.get(part))) for part in _DATE_PARTS if call.has(part)}
    if parts:
        moment = _with_parts(moment, parts)
    if call.has("AsUTC"):
        moment = DateTime(moment.moment - moment.offset, 0, "Utc")
    if call.has("Format"):
        call.emit(moment.format(call.text("Format")))
    elif call.has("UFormat"):
        shape = call.text("UFormat").lstrip("+")
        letters = {"%Y": "yyyy", "%m": "MM", "%d": "dd", "%H": "HH", "%M": "mm", "%S": "ss"}
        shown = re.sub(r"%[YmdHMS]", lambda match: moment.format(letters[match[0]]), shape)
        call.emit(shown.replace("%s", str(int(moment.moment))))
    else:
        call.emit(moment)


def _new_timespan(call: CmdletCall) -> None:
    if call.has("Start") or call.has("End"):
        now = members.local_date(call.evaluator, call.process.context.clock.time())
        start = cast_value("datetime", call.get("Start", now))
        end = cast_value("datetime", call.get("End", now))
        call.emit(time_span(end.moment - start.moment))
        return
    units = {"Days": 86400.0, "Hours": 3600.0, "Minutes": 60.0, "Seconds": 1.0}
    call.emit(
        time_span(sum(float(to_number(call.get(name, 0))) * size for name, size in units.items()))
    )


def _get_process(call: CmdletCall) -> None:
    wanted = [to_text(name).removesuffix(".exe") for name in to_items(call.get("Name"))]
    numbers = [int(to_number(one)) for one in to_items(call.get("Id"))]
    missing = dict.fromkeys(wanted)
    unseen = dict.fromkeys(numbers)
    context = call.process.context
    session = sessions_of(context)
    for entry in wmi.wmi_processes(context):
        name = ntpath.basename(entry.argv[0].replace("/", "\\")).removesuffix(".exe")
        name = "Idle" if entry.pid == 0 else name
        meant = [one for one in wanted if matches_wildcard(name, one)]
        if (wanted and not meant) or (numbers and entry.pid not in numbers):
            continue
        unseen.pop(entry.pid, None)
        for one in meant:
            missing.pop(one, None)
        call.emit(
            PsObject(
                "System.Diagnostics.Process"
                + ("#IncludeUserName" if call.has("IncludeUserName") else ""),
                {
                    "Handles": entry.handles,
                    "Id": entry.pid,
                    "SI": session(entry),
                    "ProcessName": name,
                    "Name": name,
                    "WorkingSet64": entry.memory,
                    "WS": entry.memory,
                    "WorkingSet": entry.memory,
                    "PM": entry.memory,
                    "PrivateMemorySize64": entry.memory,
                    "VM": entry.memory * 4,
                    "CPU": entry.cpu,
                    "TotalProcessorTime": time_span(entry.cpu),
                    "HandleCount": entry.handles,
                    "NPM": wmi.non_paged_pool(entry) << 10,
                    "Threads": [
                        PsObject("System.Diagnostics.ProcessThread", {"Id": entry.pid + 4 * number})
                        for number in range(1, wmi.thread_count(entry) + 1)
                    ],
                    "Responding": True,
                    "MainWindowTitle": "",
                    "Company": None,
                    "StartTime": members.local_date(call.evaluator, entry.started),
                    "Path": wmi.executable_path(context, entry),
                    "SessionId": session(entry),
                    "PriorityClass": priority_of(entry.argv).name,
                    "BasePriority": priority_of(entry.argv).base,
                    "ProcessorAffinity": sum(1 << cpu for cpu in context.platform.cpuset),
                    "MachineName": ".",
                    "HasExited": False,
                    **({"UserName": _owner(context, entry)} if call.has("IncludeUserName") else {}),
                },
                f"System.Diagnostics.Process ({name})",
            )
        )
    for one in missing:
        if "*" not in one:
            call.fail(
                (
                    f'Cannot find a process with the name "{one}". Verify the process name and '
                    "call the cmdlet again."
                ),
                f"ObjectNotFound: ({one}:String) [Get-Process], ProcessCommandException",
                "NoProcessFoundForGivenName",
            )

    for number in unseen:
        call.fail(
            f"Cannot find a process with the process identifier {number}.",
            f"ObjectNotFound: ({number}:Int32) [Get-Process], ProcessCommandException",
            "NoProcessFoundForGivenId",
        )


def _owner(context: ProgramContext, entry: ProcessEntry) -> str:
    account = context.windows.system.accounts.identity(entry.user)
    return rf"{account.domain}\{account.name}" if account is not None else entry.user


def _stop_process(call: CmdletCall) -> None:
    given = [*to_items(call.get("Id")), *to_items(call.get("InputObject")), *(call.input or ())]
    ids = [int(to_number(one.get("Id") if isinstance(one, PsObject) else one)) for one in given]
    names = [to_text(name).lower() for name in to_items(call.get("Name"))]
    guarded = {entry.pid for entry in wmi.wmi_processes(call.process.context) if entry.system}
    for wanted in names:
        found = [
            entry.pid
            for entry in call.process.context.processes.list()
            if matches_wildcard(
                ntpath.basename(entry.argv[0]).lower().removesuffix(".exe"),
                wanted.removesuffix(".exe"),
            )
        ]
        if not found and "*" not in wanted:
            call.fail(
                f'Cannot find a process with the name "{wanted}". Verify the process name and '
                "call the cmdlet again.",
                f"ObjectNotFound: ({wanted}:String) [Stop-Process], ProcessCommandException",
                "NoProcessFoundForGivenName",
            )
        ids += found
    known = {entry.pid: entry.argv[0] for entry in call.process.context.processes.list()}
    for pid in ids:
        if pid in guarded:
            call.fail(
                (
                    f"Cannot stop process with Id {pid} because of the following error: Access "
                    "is denied"
                ),
                f"CloseError: ({pid}:Int32) [Stop-Process], ProcessCommandException",
                "CouldNotStopProcess",
            )
            continue
        if not call.process.context.processes.signal(pid, terminate(DOTNET)):
            call.fail(
                f"Cannot find a process with the process identifier {pid}.",
                f"ObjectNotFound: ({pid}:Int32) [Stop-Process], ProcessCommandException",
                "NoProcessFoundForGivenId",
            )
        elif call.has("PassThru") and pid in known:
            name = ntpath.basename(known[pid]).removesuffix(".exe")
            call.emit(PsObject("System.Diagnostics.Process", {"Id": pid, "ProcessName": name}))


def real_services(call: CmdletCall) -> None:
    """Get-Service in a container with real Win32 processes."""
    own = call.process.context.native
    rows = (
        {name: (shown, state) for name, shown, state in own.services()} if own is not None else {}
    )
    wanted = [to_text(name).lower() for name in to_items(call.get("Name"))]
    found = False
    for name, (shown, state) in sorted(rows.items()):
        if not wanted or any(matches_wildcard(name, one) for one in wanted):
            found = True
            properties = {"Status": state, "Name": name, "DisplayName": shown}
            call.emit(PsObject("System.ServiceProcess.ServiceController", properties, name))
    if wanted and not found:
        _no_service(call, wanted[0])


def _no_service(call: CmdletCall, name: str) -> None:
    call.fail(
        f"Cannot find any service with service name '{name}'.",
        f"ObjectNotFound: ({name}:String) [{call.cmdlet.name}], ServiceCommandException",
        "NoServiceFoundForGivenName",
    )


async def change_real_service(call: CmdletCall) -> None:
    """Start-Service and Stop-Service in a container with real Win32 processes, through net.exe."""
    own = call.process.context.native
    if own is None:
        return
    verb = call.cmdlet.name.partition("-")[0].lower()
    known = {name.lower(): shown for name, shown, _ in own.services()}
    for name in map(to_text, to_items(call.get("Name"))):
        if name.lower() not in known:
            _no_service(call, name)
            continue
        await call.evaluator.collect(
            CommandNode(ValueLiteral("net.exe"), (ValueLiteral(verb), ValueLiteral(name)), (), "&")
        )
        if call.evaluator.last_exit:
            call.fail(
                f"Failed to {verb} service '{known[name.lower()]} ({name})'.",
                f"OpenError: ({name}:String) [{call.cmdlet.name}], ServiceCommandException",
                "CouldNotChangeService",
            )
            continue
        while _state_of(own, name) == _PENDING.get(verb):  # net.exe does not wait for the service
            await call.process.sleep(_PENDING_POLL)


def _state_of(own: NativeSystem, name: str) -> str:
    return next((state for known, _, state in own.services() if known.lower() == name.lower()), "")


async def _web_request(call: CmdletCall) -> None:
    url = call.text("Uri")
    body = call.get("Body")
    data = (
        json.dumps(to_plain(body)).encode()
        if isinstance(body, Hashtable | PsObject)
        else to_text(body).encode()
        if body is not None
        else b""
    )
    headers = [(to_text(key), to_text(value)) for key, value in (call.get("Headers") or {}).items()]
    if call.has("UserAgent"):
        headers.append(("User-Agent", call.text("UserAgent")))
    if call.has("ContentType"):
        headers.append(("Content-Type", call.text("ContentType")))
    if "://" not in url:
        url = "http://" + url
    timeout = float(to_number(call.get("TimeoutSec", 0))) or 100.0
    answer = await web_client.web_request(
        call.evaluator,
        url,
        call.text("Method", "GET").upper(),
        call.cmdlet.name,
        headers=headers,
        body=data,
        timeout=timeout,
    )
    if call.has("OutFile"):
        call.process.files.write(call.text("OutFile"), answer.body)
        return
    content = answer.body.decode("utf-8", "replace")
    if call.cmdlet.name == "Invoke-RestMethod":
        kind = answer.header("Content-Type")
        try:
            call.emit(
                from_plain(json.loads(content))
                if "json" in kind or content[:1] in "{["
                else content
            )
        except ValueError:
            call.emit(content)
        return
    shown = Hashtable(dict(answer.headers))
    raw = (
        f"{answer.version} {answer.status} {answer.reason}\r\n"
        + "".join(f"{k}: {v}\r\n" for k, v in answer.headers)
        + "\r\n"
        + content
    )
    call.emit(
        PsObject(
            "Microsoft.PowerShell.Commands.BasicHtmlWebResponseObject",
            {
                "StatusCode": answer.status,
                "StatusDescription": answer.reason,
                "Content": content,
                "RawContent": raw,
                "Headers": shown,
                "RawContentLength": len(answer.body),
            },
        )
    )


_COMMON_PORTS: Final = {"http": 80, "rdp": 3389, "smb": 445, "winrm": 5985}


async def _test_connection(call: CmdletCall) -> None:
    context = call.process.context
    host = call.text("ComputerName", "internetbeacon.msedge.net")
    port = int(
        to_number(call.get("Port", _COMMON_PORTS.get(call.text("CommonTCPPort").lower(), 0)))
    )
    address = ""
    reached = False
    try:
        address = (await context.network.resolve(host))[0]
        if port:
            connection = await netclient.with_timeout(
                context, 21, context.network.connect(host, port)
            )
            connection.close()
            reached = True
        else:
            reached = await context.network.echo(address, 4)
    except socket.gaierror:
        call.warn(f"Name resolution of {host} failed")
    except OSError:
        call.warn(f"TCP connect to ({address} : {port}) failed")
    if call.cmdlet.name == "Test-Connection":
        _ping_result(call, host, address, reached)
        return
    if call.text("InformationLevel").lower() == "quiet":
        call.emit(reached)
        return
    own = context.network.ips[0] if context.network.ips else ""
    alias = next((one.name for one in context.windows.network.interfaces() if one.ipv4), "")
    properties: dict[str, Any] = {"ComputerName": host, "RemoteAddress": address}
    if port:
        properties |= {
            "RemotePort": port,
            "InterfaceAlias": alias,
            "SourceAddress": own,
            "TcpTestSucceeded": reached,
        }
    else:
        properties |= {
            "InterfaceAlias": alias,
            "SourceAddress": own,
            "PingSucceeded": reached,
        }
    if call.has("TraceRoute"):
        hops = context.windows.network.hops(address) if address else []
        properties["TraceRoute"] = [*hops, *([address] if reached else [])]
    call.emit(PsObject("TestNetConnectionResult", properties))


def _ping_result(call: CmdletCall, host: str, address: str, reached: bool) -> None:
    if call.has("Quiet"):
        call.emit(reached)
        return
    if not reached:
        why = "Error due to lack of resources" if address else "No such host is known"
        call.fail(
            f"Testing connection to computer '{host}' failed: {why}",
            f"ResourceUnavailable: ({host}:String) [Test-Connection], PingException",
            "TestConnectionException",
        )
        return
    own = call.process.context.windows.system.computer_name
    for _ in range(int(to_number(call.get("Count", 4)))):
        call.emit(
            PsObject(
                "System.Management.ManagementObject#root\\cimv2\\Win32_PingStatus",
                {
                    "Source": own,
                    "Destination": host,
                    "IPV4Address": address if ":" not in address else None,
                    "IPV6Address": address if ":" in address else None,
                    "Bytes": 32,
                    "Time(ms)": 0,
                },
            )
        )


class PowerShellJob(PsObject):
    __slots__ = ("error", "output", "task")
    error: PowerShellError | None  # that ended it
    task: asyncio.Task[None] | None
    output: list[Any]


def _start_job(call: CmdletCall) -> None:
    block = call.get("ScriptBlock")
    if not isinstance(block, ScriptBlock):
        raise PowerShellError("Cannot bind argument to parameter 'ScriptBlock' because it is null.")
    process = call.process.child(["powershell.exe"])
    inner = call.evaluator.fork(process)
    output: list[Any] = []
    inner.emit = output.append
    number_ = len(call.evaluator.jobs) * 2 + 1
    job = PowerShellJob(
        "System.Management.Automation.PSRemotingJob",
        {
            "Id": number_,
            "Name": call.text("Name", f"Job{number_}"),
            "PSJobTypeName": "BackgroundJob",
            "State": "Running",
            "HasMoreData": True,
            "Location": "localhost",
            "Command": "",
        },
    )

    async def body() -> None:
        try:
            await process.run(run)
            job.properties["State"] = "Completed" if job.error is None else "Failed"
        finally:
            process.ended()

    async def run(process: Process) -> int:
        try:
            await inner.call_block(block, to_items(call.get("ArgumentList")), own_scope=True)
        except PowerShellError as error:
            job.error = error
        except Exit as end:
            return end.code
        return 0

    task: asyncio.Task[None] = call.process.program.spawn(body())
    process.task = task
    job.task, job.output, job.error = task, output, None
    call.evaluator.jobs.append(job)
    call.emit(job)


def _picked(call: CmdletCall) -> list[PowerShellJob]:
    by_place = [one for one in to_items(call.get("Id")) if isinstance(one, PowerShellJob)] or None
    given = call.get("Job", by_place or call.input)
    if given is not None:
        return [job for job in to_items(given) if isinstance(job, PowerShellJob)]
    wanted = [
        to_text(one).lower() for one in (*to_items(call.get("Name")), *to_items(call.get("Id")))
    ]
    return [
        job
        for job in call.evaluator.jobs
        if not wanted
        or to_text(job.get("Name")).lower() in wanted
        or to_text(job.get("Id")) in wanted
    ]


def _get_job(call: CmdletCall) -> None:
    for job in _picked(call):
        call.emit(job)


async def _wait_job(call: CmdletCall) -> None:
    limit = float(to_number(call.get("Timeout", 0)))
    for job in _picked(call):
        if job.task is not None and not job.task.done():
            try:
                await netclient.with_timeout(call.process.context, limit or None, _joined(job.task))
            except TimeoutError:
                continue
        call.emit(job)


async def _joined(task: asyncio.Task[None]) -> None:
    await asyncio.wait((task,))


async def _receive_job(call: CmdletCall) -> None:
    if call.has("Wait"):
        for job in _picked(call):
            if job.task is not None and not job.task.done():
                await _joined(job.task)
    for job in _picked(call):
        for value in list(job.output):
            call.emit(value)
        if job.error is not None:
            call.evaluator.write_error(job.error)
        if not call.has("Keep"):
            job.output.clear()
            job.error = None
        if call.has("AutoRemoveJob"):
            call.evaluator.jobs.remove(job)
        if job.task is None or job.task.done():
            job.properties["HasMoreData"] = False


def _stop_job(call: CmdletCall) -> None:
    for job in _picked(call):
        if job.task is not None:
            job.task.cancel()
        job.properties["State"] = "Stopped"


def _remove_job(call: CmdletCall) -> None:
    for job in _picked(call):
        call.evaluator.jobs.remove(job)


async def _read_host(call: CmdletCall) -> None:
    if call.has("Prompt"):
        call.process.write(call.text("Prompt") + ": ")
    line = await call.process.stdin.readline()
    call.emit(line.decode("utf-8", "surrogateescape").rstrip("\r\n"))


def _nothing(call: CmdletCall) -> None:
    return


def _get_culture(call: CmdletCall) -> None:
    call.emit(
        PsObject(
            "System.Globalization.CultureInfo",
            {"LCID": 1033, "Name": "en-US", "DisplayName": "English (United States)"},
            "en-US",
        )
    )


CMDLETS = (
    cmdlet_row("Start-Sleep", _sleep, "Seconds", "", "Milliseconds"),
    cmdlet_row("Get-Date", _get_date, "Date", "AsUTC", " ".join(("Format UFormat", *_DATE_PARTS))),
    cmdlet_row("New-TimeSpan", _new_timespan, "Start End", "", "Days Hours Minutes Seconds"),
    cmdlet_row("Get-Process", _get_process, "Name", "IncludeUserName", "Id"),
    cmdlet_row("Stop-Process", _stop_process, "Id", "Force PassThru", "Name InputObject"),
    cmdlet_row(
        "Invoke-WebRequest",
        _web_request,
        "Uri",
        "UseBasicParsing UseDefaultCredentials DisableKeepAlive SkipCertificateCheck",
        "Method Body Headers ContentType TimeoutSec OutFile UserAgent",
    ),
    cmdlet_row(
        "Invoke-RestMethod",
        _web_request,
        "Uri",
        "UseBasicParsing SkipCertificateCheck",
        "Method Body Headers ContentType TimeoutSec OutFile",
    ),
    cmdlet_row(
        "Test-NetConnection",
        _test_connection,
        "ComputerName",
        "TraceRoute",
        "Port CommonTCPPort InformationLevel",
    ),
    cmdlet_row("Test-Connection", _test_connection, "ComputerName", "Quiet", "Count Delay"),
    cmdlet_row("Get-Culture", _get_culture),
    cmdlet_row("Get-UICulture", _get_culture),
    cmdlet_row("Start-Job", _start_job, "ScriptBlock", "", "Name ArgumentList"),
    cmdlet_row("Get-Job", _get_job, "Id", "", "Name State"),
    cmdlet_row("Wait-Job", _wait_job, "Id", "Any", "Name Job Timeout"),
    cmdlet_row("Receive-Job", _receive_job, "Job", "Wait Keep AutoRemoveJob", "Name Id"),
    cmdlet_row("Stop-Job", _stop_job, "Id", "", "Name Job"),
    cmdlet_row("Remove-Job", _remove_job, "Id", "Force", "Name Job"),
    cmdlet_row("Read-Host", _read_host, "Prompt", "AsSecureString"),
    cmdlet_row("Clear-Host", _nothing),
)
