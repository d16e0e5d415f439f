"""Cmdlets for WMI and performance counters: Get-CimInstance, Get-WmiObject, Get-ComputerInfo,
Get-Counter.
"""

from __future__ import annotations

from typing import Any, Final

from transom.kit.argv import parse_command_line
from transom.machines.windows.host import CURRENT_VERSION, TCPIP
from transom.machines.windows.registry import Value
from transom.machines.windows.system import COMPUTER_NAME, SystemResources
from transom.machines.windows.time_zones import current_zone
from transom.userland.powershell.cmdlets import CmdletCall, cmdlet_row
from transom.userland.powershell.cmdlets_storage import attached_volumes, disk_numbers
from transom.userland.powershell.operators import matches_wildcard
from transom.userland.powershell.values import (
    DateTime,
    PowerShellError,
    PsObject,
    to_items,
    to_number,
    to_text,
)
from transom.userland.windows import counters, wmi
from transom.userland.windows.wmi import Instance, WmiTimestamp

_CIM: Final = "Microsoft.Management.Infrastructure.CimInstance#root/cimv2/"
_WMI: Final = "System.Management.ManagementObject#root\\cimv2\\"


def _object(call: CmdletCall, name: str, row_: Instance) -> PsObject:
    old = call.cmdlet.name == "Get-WmiObject"
    properties: dict[str, Any] = {
        key: (value.written if old else DateTime(float(value)))
        if isinstance(value, WmiTimestamp)
        else value
        for key, value in row_.items()
    }
    return PsObject((_WMI if old else _CIM) + name, properties, f"{name}")


def _instances(call: CmdletCall) -> None:
    condition, name = call.text("Filter"), call.text("ClassName", call.text("Class"))
    try:
        if call.has("Query"):
            name, rows = wmi.wmi_query(call.process.context, call.text("Query"))
        else:
            name, rows = wmi.instances(call.process.context, name, condition)
    except wmi.NoClassError:
        kind = "ManagementException" if call.cmdlet.name == "Get-WmiObject" else "CimException"
        message = (
            f'Invalid class "{name}"' if call.cmdlet.name == "Get-WmiObject" else "Invalid class "
        )
        call.fail(
            message,
            f"InvalidType: ({name}:String) [{call.cmdlet.name}], {kind}",
            (
                "HRESULT "
                "0x80041010,Microsoft.Management.Infrastructure.CimCmdlets.GetCimInstanceCommand"
            ),
        )
        return
    except wmi.QueryError:
        raise PowerShellError(
            "Invalid query ",
            f"InvalidArgument: (:) [{call.cmdlet.name}], CimException",
            (
                "HRESULT "
                "0x80041017,Microsoft.Management.Infrastructure.CimCmdlets.GetCimInstanceCommand"
            ),
        ) from None
    wanted = [to_text(one).lower() for one in to_items(call.get("Property")) if to_text(one) != "*"]
    for row_ in rows:
        picked = {key: value for key, value in row_.items() if not wanted or key.lower() in wanted}
        call.emit(_object(call, name, picked))


def _classes(call: CmdletCall) -> None:
    pattern = call.text("ClassName", "*")
    for name, _ in sorted(wmi.CLASSES.values()):
        if matches_wildcard(name, pattern):
            call.emit(PsObject("CimClass", {"CimClassName": name, "NameSpace": "ROOT/cimv2"}, name))


def _computer_info(call: CmdletCall) -> None:
    context = call.process.context
    (system,) = wmi.instances(context, "Win32_OperatingSystem")[1]
    (computer,) = wmi.instances(context, "Win32_ComputerSystem")[1]

    def version(name: str) -> Value:
        found: Value | None = context.windows.system.registry.get(CURRENT_VERSION, name)
        return found if found is not None else ""

    properties: dict[str, Any] = {
        "WindowsBuildLabEx": f"{system['BuildNumber']}.1.amd64fre.rs5_release.180914-1434",
        "WindowsCurrentVersion": version("CurrentVersion"),
        "WindowsEditionId": version("EditionID"),
        "WindowsInstallationType": version("InstallationType"),
        "WindowsProductName": version("ProductName"),
        "WindowsSystemRoot": r"C:\Windows",
        "WindowsVersion": version("ReleaseId"),
        "CsCaption": computer["Name"],
        "CsDNSHostName": computer["DNSHostName"],
        "CsDomain": computer["Domain"],
        "CsManufacturer": computer["Manufacturer"],
        "CsModel": computer["Model"],
        "CsName": computer["Name"],
        "CsNumberOfLogicalProcessors": computer["NumberOfLogicalProcessors"],
        "CsTotalPhysicalMemory": computer["TotalPhysicalMemory"],
        "CsPhyicallyInstalledMemory": computer["TotalPhysicalMemory"] >> 10,
        "OsName": system["Caption"],
        "OsVersion": system["Version"],
        "OsBuildNumber": system["BuildNumber"],
        "OsTotalVisibleMemorySize": system["TotalVisibleMemorySize"],
        "OsFreePhysicalMemory": system["FreePhysicalMemory"],
        "OsTotalVirtualMemorySize": system["TotalVirtualMemorySize"],
        "OsFreeVirtualMemory": system["FreeVirtualMemory"],
        "OsSizeStoredInPagingFiles": system["SizeStoredInPagingFiles"],
        "OsNumberOfProcesses": system["NumberOfProcesses"],
        "OsLastBootUpTime": DateTime(float(system["LastBootUpTime"])),
        "OsArchitecture": system["OSArchitecture"],
        "TimeZone": current_zone(call.process.context.windows.system.registry).display_name,
        "LogonServer": None,
    }
    wanted = [to_text(one) for one in to_items(call.get("Property"))]
    if wanted:
        properties = {
            key: value
            for key, value in properties.items()
            if any(matches_wildcard(key, one) for one in wanted)
        }
    call.emit(PsObject("Microsoft.PowerShell.Commands.ComputerInfo", properties))


def _hotfix(call: CmdletCall) -> None:
    for row_ in wmi.instances(call.process.context, "Win32_QuickFixEngineering")[1]:
        call.emit(
            PsObject(
                "System.Management.ManagementObject#root\\cimv2\\Win32_QuickFixEngineering",
                dict(row_),
            )
        )


def _cim_method(call: CmdletCall) -> None:
    """The methods Create and Terminate of processes."""
    context, method = call.process.context, call.text("MethodName", call.text("Name")).lower()
    given = call.get("Arguments")
    if method == "create" and isinstance(given, dict):
        line = next(
            (
                to_text(value)
                for key, value in given.items()
                if to_text(key).lower() == "commandline"
            ),
            "",
        )
        try:
            started = context.windows.launch(
                parse_command_line(line, " \t"),
                context.windows.account,
                call.evaluator.env.plain(),
                "C:\\",
                _discard,
            )
            call.emit(
                PsObject(
                    "CimMethodResult",
                    {"ProcessId": started.pid, "ReturnValue": 0, "PSComputerName": None},
                )
            )
        except OSError:
            call.emit(
                PsObject(
                    "CimMethodResult", {"ProcessId": None, "ReturnValue": 9, "PSComputerName": None}
                )
            )
        return
    for value in [*(call.input or []), *to_items(call.get("InputObject"))]:
        if method == "terminate" and isinstance(value, PsObject):
            done = context.processes.signal(int(to_number(value.get("ProcessId"))), "SIGKILL")
            call.emit(
                PsObject(
                    "CimMethodResult", {"ReturnValue": 0 if done else 2, "PSComputerName": None}
                )
            )


def _discard(_data: bytes) -> None:
    """Its console is not visible."""


def _rename_computer(call: CmdletCall) -> None:
    context, name = call.process.context, call.text("NewName")
    if not context.windows.account.administrator:
        raise PowerShellError(
            f"Fail to rename computer '{context.windows.system.computer_name}' due to the following exception: "
            "Access is denied."
        )
    context.windows.system.registry.set(COMPUTER_NAME, "ComputerName", name.upper()[:15])
    context.windows.system.registry.set(TCPIP, "NV Hostname", name)
    call.process.write(
        "WARNING: The changes will take effect after you restart the computer "
        + context.windows.system.computer_name
        + ".\r\n"
    )


# ---- performance counters ----


async def _counter(call: CmdletCall) -> None:
    context = call.process.context
    asked = [to_text(one) for one in to_items(call.get("Counter"))] or [
        r"\processor(_total)\% processor time",
        r"\memory\% committed bytes in use",
    ]
    samples: list[PsObject] = []
    before, began = context.windows.resources, context.clock.time()
    count = max(1, min(100, int(to_number(call.get("MaxSamples", 1)))))
    for _ in range(count):
        await call.process.sleep(float(to_number(call.get("SampleInterval", 1))))
        found = context.windows.resources
        share = counters.processor_share(before, found, context.clock.time() - began)
        before, began = found, context.clock.time()
        samples = []
        for path in asked:
            samples += _sampled(call, path, found, share)
        if samples:
            call.emit(_sample_set(context.clock.time(), samples))


def _sampled(
    call: CmdletCall, path: str, resources: SystemResources, share: float
) -> list[PsObject]:
    try:
        rows = counters.read_counter(call.process.context, path, resources, share)
    except counters.UnknownCounter as problem:
        call.fail(str(problem), "InvalidResult: (:) [Get-Counter], Exception", "CounterApiError")
        return []
    return [
        PsObject(
            "Microsoft.PowerShell.Commands.GetCounter.PerformanceCounterSample",
            {"Path": one.path, "InstanceName": one.instance, "CookedValue": one.value},
            one.path,
        )
        for one in rows
    ]


def _sample_set(moment: float, samples: list[PsObject]) -> PsObject:
    shown = "".join(
        f"{to_text(one.get('Path'))} :\r\n{to_text(one.get('CookedValue'))}\r\n\r\n"
        for one in samples
    )
    return PsObject(
        "Microsoft.PowerShell.Commands.GetCounter.PerformanceCounterSampleSet",
        {"Timestamp": DateTime(moment), "CounterSamples": samples, "Readings": shown},
    )


def _volumes(call: CmdletCall) -> None:
    wanted = [to_text(one).upper().rstrip(":") for one in to_items(call.get("DriveLetter"))]
    # Needs packages that Wine's stand-ins do not have.
    numbers = disk_numbers(call)
    for drive, size, free in (
        wmi.local_drives(call.process.context) if numbers is None or 0 in numbers else ()
    ):
        if not wanted or drive[0] in wanted:
            call.emit(
                PsObject(
                    "MSFT_Volume",
                    {
                        "DriveLetter": drive[0],
                        "FriendlyName": wmi.volume_label(call.process.context, drive),
                        "FileSystemType": "NTFS",
                        "DriveType": "Fixed",
                        "HealthStatus": "Healthy",
                        "OperationalStatus": "OK",
                        "SizeRemaining": free,
                        "Size": size,
                    },
                )
            )
    for volume in attached_volumes(call) if not wanted else ():
        call.emit(volume)


CMDLETS = (
    cmdlet_row("Get-Volume", _volumes, "DriveLetter", "", "DiskNumber InputObject FilePath"),
    cmdlet_row(
        "Get-CimInstance",
        _instances,
        "ClassName",
        "KeyOnly",
        "Class Filter Namespace Query Property ComputerName",
    ),
    cmdlet_row(
        "Get-WmiObject",
        _instances,
        "Class",
        "List",
        "ClassName Filter Namespace Query Property ComputerName",
    ),
    cmdlet_row("Get-CimClass", _classes, "ClassName"),
    cmdlet_row(
        "Invoke-CimMethod",
        _cim_method,
        "ClassName MethodName",
        "",
        "Arguments InputObject Namespace",
    ),
    cmdlet_row(
        "Invoke-WmiMethod",
        _cim_method,
        "Class Name",
        "",
        "ArgumentList InputObject Namespace MethodName Arguments",
    ),
    cmdlet_row("Get-ComputerInfo", _computer_info, "Property*"),
    cmdlet_row("Get-HotFix", _hotfix, "Id"),
    cmdlet_row(
        "Get-Counter", _counter, "Counter", "Continuous", "MaxSamples SampleInterval ListSet"
    ),
    cmdlet_row("Rename-Computer", _rename_computer, "NewName", "Force Restart PassThru"),
)
