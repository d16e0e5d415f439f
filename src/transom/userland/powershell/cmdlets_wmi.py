"""Cmdlets for WMI and performance counters: Get-CimInstance, Get-WmiObject, Get-ComputerInfo,
Get-Counter.
"""

from __future__ import annotations

from typing import Any, Final

from transom.machines.windows.host import CURRENT_VERSION, TCPIP
from transom.machines.windows.registry import Value
from transom.machines.windows.system import COMPUTER_NAME, SystemResources
from transom.machines.windows.time_zones import current_zone
from transom.userland.powershell.casts import parse_date_time
from transom.userland.powershell.cmdlets import CmdletCall, cmdlet_row
from transom.userland.powershell.cmdlets_storage import attached_volumes, disk_numbers
from transom.userland.powershell.operators import matches_wildcard, time_span
from transom.userland.powershell.values import (
    DateTime,
    PowerShellError,
    PsObject,
    to_items,
    to_number,
    to_text,
)
from transom.userland.powershell.wmi_objects import (
    CIM_KIND,
    WMI_KIND,
    invoke_wmi_method,
    wmi_class_of,
)
from transom.userland.windows import counters, wmi, wmi_query
from transom.userland.windows.power import request_power
from transom.userland.windows.unsupported_classes import (
    NOT_SUPPORTED,
    is_unsupported_class,
    is_unsupported_namespace,
)
from transom.userland.windows.wmi import Instance, WmiTimestamp


def _object(call: CmdletCall, name: str, row_: Instance) -> PsObject:
    old = call.cmdlet.name == "Get-WmiObject"
    properties: dict[str, Any] = {
        key: (value.written if old else DateTime(float(value)))
        if isinstance(value, WmiTimestamp)
        else value
        for key, value in row_.items()
    }
    return PsObject((WMI_KIND if old else CIM_KIND) + name, properties, f"{name}")


_NAMESPACE: Final = "root/cimv2"  # the only one that has classes here


def _check_namespace(call: CmdletCall) -> None:
    """-Namespace and -ComputerName must mean the classes of this computer. Raises
    PowerShellError.
    """
    given = call.text("Namespace", _NAMESPACE).replace("\\", "/").strip("/").lower()
    if is_unsupported_namespace(given) and given != _NAMESPACE:
        raise _unsupported(call, f"The namespace '{call.text('Namespace')}'")
    if given != _NAMESPACE:
        raise PowerShellError(
            "Invalid namespace ",
            f"MetadataError: ({call.text('Namespace')}:String) [{call.cmdlet.name}], CimException",
            f"HRESULT 0x8004100e,Microsoft.Management.Infrastructure.CimCmdlets."
            f"{call.cmdlet.name.replace('-', '')}Command",
            where=call.cmdlet.name,
        )
    own = call.process.context.windows.system.computer_name.lower()
    computer = call.text("ComputerName", ".").lower()
    if computer not in (".", "localhost", "127.0.0.1", own):
        raise PowerShellError(
            "WinRM cannot complete the operation. Verify that the specified computer name is "
            "valid, that the computer is accessible over the network, and that a firewall "
            "exception for the WinRM service is enabled and allows access from this computer.",
            f"ConnectionError: (:) [{call.cmdlet.name}], CimException",
            f"HRESULT 0x80338126,Microsoft.Management.Infrastructure.CimCmdlets."
            f"{call.cmdlet.name.replace('-', '')}Command",
            where=call.cmdlet.name,
        )


def _unsupported(call: CmdletCall, what: str) -> PowerShellError:
    return PowerShellError(
        f"{what} is not supported on simulated machines.",
        f"NotImplemented: (:) [{call.cmdlet.name}], PSNotImplementedException",
        f"HRESULT 0x{NOT_SUPPORTED:08x},Microsoft.Management.Infrastructure.CimCmdlets."
        f"{call.cmdlet.name.replace('-', '')}Command",
        where=call.cmdlet.name,
    )


def _instances(call: CmdletCall) -> None:
    _check_namespace(call)
    if call.has("List"):
        pattern = call.text("Class", call.text("ClassName", "*"))
        _emit_classes(call, pattern)
        return
    condition, name = call.text("Filter"), call.text("ClassName", call.text("Class"))
    try:
        if call.has("Query"):
            name, rows = wmi_query.wmi_query(call.process.context, call.text("Query"))
        else:
            name, rows = wmi_query.instances(call.process.context, name, condition)
    except wmi_query.NoClassError:
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
    except wmi_query.UnsupportedClassError as error:
        raise _unsupported(call, f"The class '{error}'") from None
    except wmi_query.QueryError:
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
    _check_namespace(call)
    _emit_classes(call, call.text("ClassName", "*"))


def _emit_classes(call: CmdletCall, pattern: str) -> None:
    for name in sorted(name for name, _ in wmi_query.CLASSES.values()):
        if matches_wildcard(name, pattern):
            shown = {"CimClassName": name, "NameSpace": "ROOT/cimv2", "Name": name}
            call.emit(PsObject("CimClass", shown, name))


def _computer_info(call: CmdletCall) -> None:
    context = call.process.context
    (system,) = wmi_query.instances(context, "Win32_OperatingSystem")[1]
    (computer,) = wmi_query.instances(context, "Win32_ComputerSystem")[1]

    def version(name: str) -> Value:
        found: Value | None = context.windows.system.registry.get(CURRENT_VERSION, name)
        return found if found is not None else ""

    (bios,) = wmi_query.instances(context, "Win32_BIOS")[1]
    processors = wmi_query.instances(context, "Win32_Processor")[1]
    adapters = wmi_query.instances(context, "Win32_NetworkAdapter")[1]
    boot = float(system["LastBootUpTime"])
    zone = current_zone(context.windows.system.registry)
    properties: dict[str, Any] = {
        "WindowsBuildLabEx": f"{system['BuildNumber']}.1.amd64fre.rs5_release.180914-1434",
        "WindowsCurrentVersion": version("CurrentVersion"),
        "WindowsEditionId": version("EditionID"),
        "WindowsInstallationType": version("InstallationType"),
        "WindowsInstallDateFromRegistry": DateTime(float(system["InstallDate"])),
        "WindowsProductId": system["SerialNumber"],
        "WindowsProductName": version("ProductName"),
        "WindowsRegisteredOrganization": system["Organization"],
        "WindowsRegisteredOwner": system["RegisteredUser"],
        "WindowsSystemRoot": r"C:\Windows",
        "WindowsVersion": version("ReleaseId"),
        "BiosManufacturer": bios["Manufacturer"],
        "BiosName": bios["Name"],
        "BiosSeralNumber": bios["SerialNumber"],
        "BiosVersion": bios["Version"],
        **_prefixed("Cs", computer),
        "CsCaption": computer["Name"],
        "CsNetworkAdapters": [str(one["NetConnectionID"]) for one in adapters],
        "CsPhyicallyInstalledMemory": computer["TotalPhysicalMemory"] >> 10,
        "CsProcessors": [str(one["Name"]) for one in processors],
        **_prefixed("Os", system),
        "OsName": system["Caption"],
        "OsArchitecture": system["OSArchitecture"],
        "OsHotFixes": [
            one["HotFixID"] for one in wmi_query.instances(context, "Win32_QuickFixEngineering")[1]
        ],
        "OsLastBootUpTime": DateTime(boot),
        "OsLocalDateTime": DateTime(float(system["LocalDateTime"])),
        "OsInstallDate": DateTime(float(system["InstallDate"])),
        "OsUptime": time_span(context.clock.time() - boot),
        "OsServerLevel": str(version("InstallationType")).replace(" ", ""),
        "KeyboardLayout": "en-US",
        "TimeZone": zone.display_name,
        "LogonServer": None,
        "HyperVisorPresent": True,
    }
    wanted = [to_text(one) for one in to_items(call.get("Property"))]
    if wanted:
        properties = {
            key: value
            for key, value in properties.items()
            if any(matches_wildcard(key, one) for one in wanted)
        }
    call.emit(PsObject("Microsoft.PowerShell.Commands.ComputerInfo", properties))


def _prefixed(prefix: str, row: Instance) -> dict[str, Any]:
    return {
        prefix + (name.removeprefix("OS") if prefix == "Os" else name): value
        for name, value in row.items()
        if not isinstance(value, WmiTimestamp)
    }


def _hotfix(call: CmdletCall) -> None:
    wanted = [to_text(one).lower() for one in to_items(call.get("Id"))]
    rows = wmi_query.instances(call.process.context, "Win32_QuickFixEngineering")[1]
    known = {str(row["HotFixID"]).lower() for row in rows}
    for one in wanted:
        if one not in known:
            call.fail(
                "Cannot find the requested hotfix on the 'localhost' computer. Verify the input "
                "and run the command again.",
                "ObjectNotFound: (:) [Get-HotFix], ArgumentException",
                "GetHotFixNoEntriesFound",
            )
    for row_ in rows:
        if wanted and str(row_["HotFixID"]).lower() not in wanted:
            continue
        call.emit(
            PsObject(
                "System.Management.ManagementObject#root\\cimv2\\Win32_QuickFixEngineering",
                {**row_, "InstalledOn": parse_date_time(str(row_["InstalledOn"]))},
            )
        )


async def _cim_method(call: CmdletCall) -> None:
    """Invoke-CimMethod and Invoke-WmiMethod: of a class, or of each instance."""
    _check_namespace(call)
    loose = [value for value in call.rest if not wmi_class_of(value)]
    method = call.text("MethodName", call.text("Name"))
    first = call.get("ClassName", call.get("Class"))
    targets = [*(call.input or []), *to_items(call.get("InputObject"))]
    if wmi_class_of(first):  # an instance takes the first place
        targets = to_items(first)
    elif call.input is not None or call.has("InputObject"):
        method = method or to_text(first or "")
    if not method and loose:
        method = to_text(loose[0])
    named, positional = _method_arguments(call)
    if first is not None and not targets:
        found = wmi_query.CLASSES.get(to_text(first).lower())
        if found is None and is_unsupported_class(to_text(first)):
            raise _unsupported(call, f"The class '{to_text(first)}'")
        if found is None:
            call.fail(
                "Invalid class ",
                f"InvalidType: ({to_text(first)}:String) [{call.cmdlet.name}], CimException",
                "HRESULT 0x80041010",
            )
            return
        if call.has("Query") or call.has("Filter"):
            targets = [
                _object(call, found[0], one)
                for one in wmi_query.instances(call.process.context, found[0], call.text("Filter"))[
                    1
                ]
            ]
        else:
            call.emit(
                await invoke_wmi_method(call.evaluator, found[0], None, method, named, positional)
            )
            return
    for value in targets:
        name = wmi_class_of(value)
        call.emit(await invoke_wmi_method(call.evaluator, name, value, method, named, positional))


def _method_arguments(call: CmdletCall) -> tuple[dict[str, Any], list[Any]]:
    given = call.get("Arguments")
    named = {to_text(key): value for key, value in given.items()} if isinstance(given, dict) else {}
    return named, to_items(call.get("ArgumentList"))


async def _set_instance(call: CmdletCall) -> None:
    """Set-CimInstance and Set-WmiInstance, for what can be changed that way: services."""
    named = _method_arguments(call)[0]
    changes = call.get("Property")
    if isinstance(changes, dict):
        named |= {to_text(key): value for key, value in changes.items()}
    for value in [*(call.input or []), *to_items(call.get("InputObject"))]:
        await invoke_wmi_method(call.evaluator, wmi_class_of(value), value, "Change", named, [])
        if call.has("PassThru"):
            call.emit(value)


async def _remove_instance(call: CmdletCall) -> None:
    """Remove-CimInstance and Remove-WmiObject."""
    for value in [*(call.input or []), *to_items(call.get("InputObject"))]:
        await invoke_wmi_method(call.evaluator, wmi_class_of(value), value, "Delete", {}, [])


def _rename_computer(call: CmdletCall) -> None:
    context, name = call.process.context, call.text("NewName")
    if not context.windows.account.administrator:
        raise PowerShellError(
            f"Fail to rename computer '{context.windows.system.computer_name}' due to the following exception: "
            "Access is denied."
        )
    context.windows.system.registry.set(COMPUTER_NAME, "ComputerName", name.upper()[:15])
    context.windows.system.registry.set(TCPIP, "NV Hostname", name)
    old = context.windows.system.computer_name
    if call.has("PassThru"):
        changed = {"HasSucceeded": True, "NewComputerName": name, "OldComputerName": old}
        call.emit(PsObject("Microsoft.PowerShell.Commands.RenameComputerChangeInfo", changed))
    if not call.has("Restart"):
        call.warn(f"The changes will take effect after you restart the computer {old}.")
    elif context.node is not None:
        request_power(call.process, context.node.power, "restart", 0)
    else:  # a container
        call.fail(
            f"Failed to restart the computer {old} with the following error message: "
            "The request is not supported..",
            f"OperationStopped: ({old}:String) [Rename-Computer], InvalidOperationException",
            "InvalidOperationException",
        )


# ---- performance counters ----


def _counter_sets(call: CmdletCall) -> None:
    """Get-Counter -ListSet"""
    sets: dict[str, list[str]] = {}
    for path in counters.counter_paths():
        sets.setdefault(path[1:].partition("\\")[0].partition("(")[0], []).append(path)
    patterns = [to_text(one) for one in to_items(call.get("ListSet"))]
    for name, paths in sorted(sets.items()):
        if any(matches_wildcard(name, pattern) for pattern in patterns):
            several = "(*)" in paths[0]
            call.emit(
                PsObject(
                    "Microsoft.PowerShell.Commands.GetCounter.CounterSet",
                    {
                        "CounterSetName": name,
                        "MachineName": ".",
                        "CounterSetType": "MultiInstance" if several else "SingleInstance",
                        "Paths": paths,
                        "PathsWithInstances": [],
                        "Counter": paths,
                    },
                    name,
                )
            )


async def _counter(call: CmdletCall) -> None:
    if call.has("ListSet"):
        _counter_sets(call)
        return
    context = call.process.context
    requested = [to_text(one) for one in to_items(call.get("Counter"))] or [
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
        for path in requested:
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
                        "FileSystem": "NTFS",
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
        "ClassName MethodName Arguments",
        "",
        "InputObject Namespace Filter Query",
        takes_rest=True,
    ),
    cmdlet_row(
        "Invoke-WmiMethod",
        _cim_method,
        "Class Name ArgumentList",
        "",
        "InputObject Namespace MethodName Arguments Filter",
        takes_rest=True,
    ),
    cmdlet_row("Remove-CimInstance", _remove_instance, "InputObject"),
    cmdlet_row("Remove-WmiObject", _remove_instance, "InputObject"),
    cmdlet_row("Set-CimInstance", _set_instance, "InputObject", "PassThru", "Property"),
    cmdlet_row("Set-WmiInstance", _set_instance, "InputObject", "PassThru", "Arguments"),
    cmdlet_row("Get-ComputerInfo", _computer_info, "Property*"),
    cmdlet_row("Get-HotFix", _hotfix, "Id"),
    cmdlet_row(
        "Get-Counter", _counter, "Counter", "Continuous", "MaxSamples SampleInterval ListSet"
    ),
    cmdlet_row("Rename-Computer", _rename_computer, "NewName", "Force Restart PassThru"),
)
