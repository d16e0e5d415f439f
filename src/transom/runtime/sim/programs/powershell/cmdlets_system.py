"""Cmdlets that wait, ask the system or the network: Start-Sleep, Get-Process, Invoke-WebRequest, jobs and their like."""

from __future__ import annotations

import asyncio
import json
import ntpath
import re
import socket
from typing import Any

from transom.runtime.sim.program_api import real
from transom.runtime.sim.programs import netclient
from transom.runtime.sim.programs.powershell import members
from transom.runtime.sim.programs.powershell.cmdlets import Call, find, row
from transom.runtime.sim.programs.powershell.cmdlets_output import from_plain, plain
from transom.runtime.sim.programs.powershell.operators import like, time_span
from transom.runtime.sim.programs.powershell.values import (
    DateTime,
    Hashtable,
    PowerShellError,
    PsObject,
    ScriptBlock,
    items,
    number,
    text,
    truth,
)
from transom.runtime.sim.programs.process import Exit
from transom.runtime.sim.programs.win.network import link_local, physical_address
from transom.windows import builds


async def _sleep(call: Call) -> None:
    seconds = (
        float(number(call.get("Milliseconds"))) / 1000 if call.has("Milliseconds") else float(number(call.get("Seconds", 0)))
    )
    call.evaluator.flush()
    await call.process.sleep(seconds)


def _get_date(call: Call) -> None:
    moment = DateTime(call.process.context.clock.time())
    given = call.get("Date")
    if given is not None:
        moment = given if isinstance(given, DateTime) else members.parse_date(text(given))
    if call.has("Format"):
        call.emit(moment.format(call.text("Format")))
    elif call.has("UFormat"):
        shape = call.text("UFormat").lstrip("+")
        letters = {"%Y": "yyyy", "%m": "MM", "%d": "dd", "%H": "HH", "%M": "mm", "%S": "ss"}
        shown = re.sub(r"%[YmdHMS]", lambda match: moment.format(letters[match[0]]), shape)
        call.emit(shown.replace("%s", str(int(moment.moment))))
    else:
        call.emit(moment)


def _new_timespan(call: Call) -> None:
    if call.has("Start"):
        end = call.get("End") or DateTime(call.process.context.clock.time())
        call.emit(time_span(end.moment - call.get("Start").moment))
        return
    units = {"Days": 86400.0, "Hours": 3600.0, "Minutes": 60.0, "Seconds": 1.0}
    call.emit(time_span(sum(float(number(call.get(name, 0))) * size for name, size in units.items())))


def _get_process(call: Call) -> None:
    wanted = [text(name).removesuffix(".exe") for name in items(call.get("Name"))]
    missing = dict.fromkeys(wanted)
    for entry in call.process.context.processes.list():
        name = ntpath.basename(entry.argv[0].replace("/", "\\")).removesuffix(".exe")
        meant = [one for one in wanted if like(name, one)]
        if (wanted and not meant) or (call.has("Id") and entry.pid != int(number(call.get("Id")))):
            continue
        for one in meant:
            missing.pop(one, None)
        kib = (entry.memory or 20 << 20) >> 10
        call.emit(
            PsObject(
                "System.Diagnostics.Process",
                {
                    "Handles": entry.handles,
                    "NPM(K)": 12,
                    "PM(K)": kib,
                    "WS(K)": kib,
                    "CPU(s)": entry.cpu,
                    "Id": entry.pid,
                    "SI": 2,
                    "ProcessName": name,
                    "Name": name,
                    "WorkingSet64": kib << 10,
                    "WS": kib << 10,
                    "CPU": entry.cpu,
                    "StartTime": DateTime(entry.started),
                    "Path": entry.argv[0],
                },
                f"System.Diagnostics.Process ({name})",
            )
        )
    for one in missing:
        if "*" not in one:
            call.fail(
                f'Cannot find a process with the name "{one}". Verify the process name and call the cmdlet again.',
                f"ObjectNotFound: ({one}:String) [Get-Process], ProcessCommandException",
                "NoProcessFoundForGivenName",
            )


def _stop_process(call: Call) -> None:
    ids = [int(number(one)) for one in items(call.get("Id"))]
    ids += [int(number(value.get("Id"))) for value in call.input or [] if isinstance(value, PsObject)]
    names = [text(name).lower() for name in items(call.get("Name"))]
    for entry in list(call.process.context.processes.list()):
        if ntpath.basename(entry.argv[0]).lower().removesuffix(".exe") in names:
            ids.append(entry.pid)
    for pid in ids:
        if not call.process.context.processes.signal(pid, "SIGKILL"):
            call.fail(
                f"Cannot find a process with the process identifier {pid}.",
                f"ObjectNotFound: ({pid}:Int32) [Stop-Process], ProcessCommandException",
                "NoProcessFoundForGivenId",
            )


async def start_process(call: Call) -> None:
    evaluator = call.evaluator
    words = [text(word) for word in items(call.get("ArgumentList"))]
    arguments = tuple(("value", word) for word in words)
    node = ("command", ("value", call.text("FilePath")), arguments, (), "&")
    if call.has("Wait") or call.has("NoNewWindow"):
        await evaluator.command(node, None)
        if call.has("PassThru"):
            ended = {"HasExited": True, "ExitCode": evaluator.last_exit}
            call.emit(PsObject("System.Diagnostics.Process", {"Name": call.text("FilePath"), **ended}))
    else:
        call.process.program.spawn(evaluator.command(node, None))


def _get_service(call: Call) -> None:
    rows = {
        "cexecsvc": ("Container Execution Agent", "Running"),
        "Dnscache": ("DNS Client", "Running"),
        "EventLog": ("Windows Event Log", "Running"),
        "RpcEptMapper": ("RPC Endpoint Mapper", "Running"),
    }
    if call.process.context.image.program == "iis":
        rows["W3SVC"] = ("World Wide Web Publishing Service", "Running")
    own = real(call.process.context)
    if own is not None:
        rows = {name: (shown, state) for name, shown, state in own.services()}
    wanted = [text(name).lower() for name in items(call.get("Name"))]
    found = False
    for name, (shown, state) in sorted(rows.items()):
        if not wanted or name.lower() in wanted or "*" in wanted:
            found = True
            call.emit(
                PsObject(
                    "System.ServiceProcess.ServiceController", {"Status": state, "Name": name, "DisplayName": shown}, name
                )
            )
    if wanted and not found:
        _no_service(call, wanted[0])


def _no_service(call: Call, name: str) -> None:
    call.fail(
        f"Cannot find any service with service name '{name}'.",
        f"ObjectNotFound: ({name}:String) [{call.cmdlet.name}], ServiceCommandException", "NoServiceFoundForGivenName",
    )  # fmt: skip


async def _change_service(call: Call) -> None:
    """A simulated container's services run, whatever is said. A real one has a program for them."""
    own = real(call.process.context)
    if own is None:
        return
    verb = call.cmdlet.name.partition("-")[0].lower()
    known = {name.lower(): shown for name, shown, _ in own.services()}
    for name in map(text, items(call.get("Name"))):
        if name.lower() not in known:
            _no_service(call, name)
            continue
        await call.evaluator.collect(("command", ("value", "net.exe"), (("value", verb), ("value", name)), (), "&"))
        if call.evaluator.last_exit:
            call.fail(
                f"Failed to {verb} service '{known[name.lower()]} ({name})'.",
                f"OpenError: ({name}:String) [{call.cmdlet.name}], ServiceCommandException", "CouldNotChangeService",
            )  # fmt: skip


async def _web_request(call: Call) -> None:
    url = call.text("Uri")
    body = call.get("Body")
    data = (
        json.dumps(plain(body)).encode()
        if isinstance(body, Hashtable | PsObject)
        else text(body).encode()
        if body is not None
        else b""
    )
    headers = [(text(key), text(value)) for key, value in (call.get("Headers") or {}).items()]
    if call.has("ContentType"):
        headers.append(("Content-Type", call.text("ContentType")))
    if "://" not in url:
        url = "http://" + url
    timeout = float(number(call.get("TimeoutSec", 0))) or 100.0
    answer = await members.web_request(
        call.evaluator, url, call.text("Method", "GET").upper(), headers=headers, body=data, timeout=timeout
    )
    if call.has("OutFile"):
        call.process.files.write(call.text("OutFile"), answer.body)
        return
    content = answer.body.decode("utf-8", "replace")
    if call.cmdlet.name == "Invoke-RestMethod":
        kind = answer.header("Content-Type")
        try:
            call.emit(from_plain(json.loads(content)) if "json" in kind or content[:1] in "{[" else content)
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


async def _test_connection(call: Call) -> None:
    context = call.process.context
    host = call.text("ComputerName", "internetbeacon.msedge.net")
    port = int(number(call.get("Port", 0)))
    address = ""
    reached = False
    try:
        address = (await context.resolve(host))[0]
        if port:
            connection = await netclient.limited(context, 21, context.connect(host, port))
            connection.close()
            reached = True
        else:
            reached = await context.echo(address, 4)
    except socket.gaierror:
        call.process.write(f"WARNING: Name resolution of {host} failed\r\n")
    except OSError:
        call.process.write(f"WARNING: TCP connect to ({address} : {port}) failed\r\n")
    if call.cmdlet.name == "Test-Connection":
        call.emit(reached)
        return
    if call.text("InformationLevel").lower() == "quiet":
        call.emit(reached)
        return
    own = context.ips[0] if context.ips else ""
    properties: dict[str, Any] = {"ComputerName": host, "RemoteAddress": address}
    if port:
        properties |= {
            "RemotePort": port,
            "InterfaceAlias": f"vEthernet ({context.container_id[:8]})",
            "SourceAddress": own,
            "TcpTestSucceeded": reached,
        }
    else:
        properties |= {
            "InterfaceAlias": f"vEthernet ({context.container_id[:8]})",
            "SourceAddress": own,
            "PingSucceeded": reached,
        }
    call.emit(PsObject("TestNetConnectionResult", properties))


def _net_adapter(call: Call) -> None:
    alias = f"vEthernet ({call.process.context.container_id[:8]})"
    call.emit(PsObject("MSFT_NetAdapter", {
        "Name": alias, "InterfaceDescription": "Hyper-V Virtual Ethernet Container Adapter", "ifIndex": 30, "Status": "Up",
        "MacAddress": physical_address(next(iter(call.process.context.ips), "")), "LinkSpeed": "10 Gbps",
    }))  # fmt: skip


def _ip_address(call: Call) -> None:
    """The adapter's addresses as Windows orders them: the link's own first."""
    context = call.process.context
    alias = f"vEthernet ({context.container_id[:8]})"
    family = call.text("AddressFamily")
    for address in ([link_local(context.ips[0])] if context.ips else []) + list(context.ips):
        version = "IPv6" if ":" in address else "IPv4"
        if family.lower() in ("", version.lower()):
            call.emit(PsObject("MSFT_NetIPAddress", {
                "IPAddress": address, "InterfaceIndex": 30, "InterfaceAlias": alias, "AddressFamily": version,
                "PrefixLength": 64 if version == "IPv6" else 24,
            }))  # fmt: skip


def _dns_servers(call: Call) -> None:
    dns = call.process.context.dns
    call.emit(
        PsObject(
            "MSFT_DNSClientServerAddress",
            {
                "InterfaceAlias": f"vEthernet ({call.process.context.container_id[:8]})",
                "InterfaceIndex": 30,
                "AddressFamily": 2,
                "ServerAddresses": list(dns.servers),
            },
        )
    )


def _computer_info(call: Call) -> None:
    context = call.process.context
    build = builds.by_name(context.build) or builds.DEFAULT
    call.emit(
        PsObject(
            "Microsoft.PowerShell.Commands.ComputerInfo",
            {
                "WindowsProductName": build.product,
                "WindowsVersion": build.release,
                "OsName": f"Microsoft {build.product}",
                "OsVersion": f"10.0.{build.number}",
                "OsBuildNumber": str(build.number),
                "CsName": context.hostname.upper(),
                "CsNumberOfLogicalProcessors": context.cpus,
                "CsTotalPhysicalMemory": context.memory_limit,
            },
        )
    )


def _cim_instance(call: Call) -> None:
    context = call.process.context
    name = call.text("ClassName", call.text("Class")).lower()
    build = builds.by_name(context.build) or builds.DEFAULT
    if name == "win32_operatingsystem":
        properties: dict[str, Any] = {
            "SystemDirectory": "C:\\Windows\\system32", "BuildNumber": str(build.number), "Version": f"10.0.{build.number}",
            "Caption": f"Microsoft {build.product}", "TotalVisibleMemorySize": context.memory_limit >> 10,
            "FreePhysicalMemory": context.memory_limit >> 11, "CSName": context.hostname.upper(),
        }  # fmt: skip
    elif name == "win32_computersystem":
        properties = {
            "Name": context.hostname.upper(),
            "TotalPhysicalMemory": context.memory_limit,
            "NumberOfLogicalProcessors": context.cpus,
            "Domain": "WORKGROUP",
        }
    else:
        raise PowerShellError(
            "Invalid class ", f"InvalidArgument: ({name}:String) [{call.cmdlet.name}], CimException", "HRESULT 0x80041010"
        )
    call.emit(PsObject(f"Microsoft.Management.Infrastructure.CimInstance#root/cimv2/{name}", properties))


def _get_command(call: Call) -> None:
    for name in items(call.get("Name")):
        cmdlet = find(text(name), machine=call.process.context.machine is not None)
        if cmdlet is None:
            call.fail(
                f"The term '{text(name)}' is not recognized as the name of a cmdlet, function, script "
                f"file, or operable program.",
                f"ObjectNotFound: ({text(name)}:String) [Get-Command], CommandNotFoundException",
                "CommandNotFoundException",
            )
        else:
            call.emit(
                PsObject(
                    "System.Management.Automation.CmdletInfo",
                    {"CommandType": "Cmdlet", "Name": cmdlet.name, "Version": "3.1.0.0", "Source": "Microsoft.PowerShell"},
                    cmdlet.name,
                )
            )


class Job(PsObject):
    __slots__ = ("output", "task")
    task: asyncio.Task[None] | None
    output: list[Any]


def _start_job(call: Call) -> None:
    from transom.runtime.sim.programs.powershell.evaluator import Evaluator

    block = call.get("ScriptBlock")
    if not isinstance(block, ScriptBlock):
        raise PowerShellError("Cannot bind argument to parameter 'ScriptBlock' because it is null.")
    process = call.process.child(["powershell.exe"])
    inner = Evaluator(process)
    output: list[Any] = []
    inner.emit = output.append
    number_ = len(call.evaluator.jobs) * 2 + 1
    job = Job(
        "System.Management.Automation.PSRemotingJob",
        {"Id": number_, "Name": call.text("Name", f"Job{number_}"), "PSJobTypeName": "BackgroundJob", "State": "Running",
        "HasMoreData": True, "Location": "localhost", "Command": ""},
    )  # fmt: skip

    async def body() -> None:
        try:
            await process.run(run)
            job.properties["State"] = "Completed"
        finally:
            process.ended()

    async def run(process: Any) -> int:
        try:
            await inner.call_block(block, items(call.get("ArgumentList")), own_scope=True)
        except PowerShellError:
            job.properties["State"] = "Failed"
        except Exit as end:
            return end.code
        return 0

    task: asyncio.Task[None] = call.process.program.spawn(body())
    process.task = task
    job.task, job.output = task, output
    call.evaluator.jobs.append(job)
    call.emit(job)


def _picked(call: Call) -> list[Job]:
    by_place = [one for one in items(call.get("Id")) if isinstance(one, Job)] or None
    given = call.get("Job", by_place or call.input)
    if given is not None:
        return [job for job in items(given) if isinstance(job, Job)]
    wanted = [text(one).lower() for one in (*items(call.get("Name")), *items(call.get("Id")))]
    return [
        job
        for job in call.evaluator.jobs
        if not wanted or text(job.get("Name")).lower() in wanted or text(job.get("Id")) in wanted
    ]


def _get_job(call: Call) -> None:
    for job in _picked(call):
        call.emit(job)


async def _wait_job(call: Call) -> None:
    limit = float(number(call.get("Timeout", 0)))
    for job in _picked(call):
        if job.task is not None and not job.task.done():
            try:
                await netclient.limited(call.process.context, limit or None, _joined(job.task))
            except TimeoutError:
                continue
        call.emit(job)


async def _joined(task: asyncio.Task[None]) -> None:
    await asyncio.wait((task,))


def _receive_job(call: Call) -> None:
    for job in _picked(call):
        for value in job.output:
            call.emit(value)
        job.output.clear()
        if job.task is None or job.task.done():
            job.properties["HasMoreData"] = False


def _stop_job(call: Call) -> None:
    for job in _picked(call):
        if job.task is not None:
            job.task.cancel()
        job.properties["State"] = "Stopped"


def _remove_job(call: Call) -> None:
    for job in _picked(call):
        call.evaluator.jobs.remove(job)


async def _read_host(call: Call) -> None:
    if call.has("Prompt"):
        call.process.write(call.text("Prompt") + ": ")
    line = await call.process.stdin.readline()
    call.emit(line.decode("utf-8", "surrogateescape").rstrip("\r\n"))


def _nothing(call: Call) -> None:
    return


def _get_culture(call: Call) -> None:
    call.emit(
        PsObject(
            "System.Globalization.CultureInfo",
            {"LCID": 1033, "Name": "en-US", "DisplayName": "English (United States)"},
            "en-US",
        )
    )


def _hotfix(call: Call) -> None:
    call.emit(
        PsObject(
            "Microsoft.Management.Infrastructure.CimInstance",
            {
                "Source": call.process.context.hostname.upper(),
                "Description": "Security Update",
                "HotFixID": "KB4598480",
                "InstalledBy": "NT AUTHORITY\\SYSTEM",
            },
        )
    )


def _strict(call: Call) -> None:
    truth(call.get("Version"))


CMDLETS = (
    row("Start-Sleep", _sleep, "Seconds", "", "Milliseconds"),
    row("Get-Date", _get_date, "Date", "AsUTC", "Format UFormat"),
    row("New-TimeSpan", _new_timespan, "Start End", "", "Days Hours Minutes Seconds"),
    row("Get-Process", _get_process, "Name", "IncludeUserName", "Id"),
    row("Stop-Process", _stop_process, "Id", "Force PassThru", "Name"),
    row(
        "Start-Process",
        start_process,
        "FilePath ArgumentList*",
        "Wait NoNewWindow PassThru",
        "WindowStyle WorkingDirectory Verb",
    ),
    row("Get-Service", _get_service, "Name"),
    row("Start-Service", _change_service, "Name"),
    row("Stop-Service", _change_service, "Name", "Force"),
    row(
        "Invoke-WebRequest",
        _web_request,
        "Uri",
        "UseBasicParsing UseDefaultCredentials DisableKeepAlive SkipCertificateCheck",
        "Method Body Headers ContentType TimeoutSec OutFile UserAgent",
    ),
    row(
        "Invoke-RestMethod",
        _web_request,
        "Uri",
        "UseBasicParsing SkipCertificateCheck",
        "Method Body Headers ContentType TimeoutSec OutFile",
    ),
    row("Test-NetConnection", _test_connection, "ComputerName", "TraceRoute", "Port CommonTCPPort InformationLevel"),
    row("Test-Connection", _test_connection, "ComputerName", "Quiet", "Count Delay"),
    row("Get-NetAdapter", _net_adapter, "Name"),
    row("Get-NetIPAddress", _ip_address, "IPAddress", "", "AddressFamily InterfaceAlias"),
    row("Get-DnsClientServerAddress", _dns_servers, "", "", "AddressFamily InterfaceAlias"),
    row("Get-ComputerInfo", _computer_info, "Property"),
    row("Get-CimInstance", _cim_instance, "ClassName", "", "Class Filter Namespace"),
    row("Get-WmiObject", _cim_instance, "Class", "", "ClassName Filter Namespace"),
    row("Get-Command", _get_command, "Name"),
    row("Get-HotFix", _hotfix, "Id"),
    row("Get-Culture", _get_culture),
    row("Start-Job", _start_job, "ScriptBlock", "", "Name ArgumentList"),
    row("Get-Job", _get_job, "Id", "", "Name State"),
    row("Wait-Job", _wait_job, "Id", "Any", "Name Job Timeout"),
    row("Receive-Job", _receive_job, "Job", "Wait Keep AutoRemoveJob", "Name Id"),
    row("Stop-Job", _stop_job, "Id", "", "Name Job"),
    row("Remove-Job", _remove_job, "Id", "Force", "Name Job"),
    row("Read-Host", _read_host, "Prompt", "AsSecureString"),
    row("Clear-Host", _nothing),
    row("Set-StrictMode", _strict, "", "Off", "Version"),
    row("Set-ExecutionPolicy", _nothing, "ExecutionPolicy Scope", "Force"),
    row("Import-Module", _nothing, "Name*", "Force DisableNameChecking"),
    row("Add-Type", _nothing, "TypeDefinition", "PassThru", "AssemblyName Path"),
    row("Pop-Location", _nothing),
)
