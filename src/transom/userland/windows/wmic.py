"""wmic and systeminfo: WMI as text."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from transom.userland.network_view import NetworkInterface
from transom.userland.process import Command, Process
from transom.userland.windows import wmi_query
from transom.userland.windows.unsupported_classes import ALIASES
from transom.userland.windows.unsupported_programs import NOT_SUPPORTED, unsupported_message
from transom.userland.windows.wmi import Instance, WmiTimestamp
from transom.userland.windows.wmi_methods import NoMethodError, call_wmi_method

_ALIASES: Final = {
    "bios": "Win32_BIOS",
    "computersystem": "Win32_ComputerSystem",
    "cpu": "Win32_Processor",
    "csproduct": "Win32_ComputerSystemProduct",
    "datafile": "CIM_DataFile",
    "diskdrive": "Win32_DiskDrive",
    "fsdir": "Win32_Directory",
    "memorychip": "Win32_PhysicalMemory",
    "netlogin": "Win32_LogonSession",
    "nic": "Win32_NetworkAdapter",
    "ntevent": "Win32_NTLogEvent",
    "nteventlog": "Win32_NTEventlogFile",
    "partition": "Win32_DiskPartition",
    "product": "Win32_Product",
    "share": "Win32_Share",
    "startup": "Win32_StartupCommand",
    "environment": "Win32_Environment",
    "group": "Win32_Group",
    "logicaldisk": "Win32_LogicalDisk",
    "nicconfig": "Win32_NetworkAdapterConfiguration",
    "os": "Win32_OperatingSystem",
    "pagefile": "Win32_PageFileUsage",
    "pagefileset": "Win32_PageFileSetting",
    "process": "Win32_Process",
    "qfe": "Win32_QuickFixEngineering",
    "service": "Win32_Service",
    "sysaccount": "Win32_Account",
    "timezone": "Win32_TimeZone",
    "useraccount": "Win32_UserAccount",
    "volume": "Win32_Volume",
}
_NOTHING: Final = "No Instance(s) Available."
_BRIEF: Final = {
    "process": ("HandleCount", "Name", "Priority", "ProcessId", "ThreadCount", "WorkingSetSize"),
    "service": ("ExitCode", "Name", "ProcessId", "StartMode", "State", "Status"),
    "os": (
        "BuildNumber",
        "Organization",
        "RegisteredUser",
        "SerialNumber",
        "SystemDirectory",
        "Version",
    ),
    "logicaldisk": ("DeviceID", "DriveType", "FreeSpace", "ProviderName", "Size", "VolumeName"),
    "computersystem": (
        "Domain",
        "Manufacturer",
        "Model",
        "Name",
        "PrimaryOwnerName",
        "TotalPhysicalMemory",
    ),
    "useraccount": ("AccountType", "Caption", "Domain", "FullName", "Name", "SID"),
}


def _cell(value: Any) -> str:
    if isinstance(value, WmiTimestamp):
        return value.written
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, list):
        return "{" + ", ".join(f'"{one}"' for one in value) + "}"
    return "" if value is None else str(value)


def _help() -> str:
    rows = "".join(f"{name.upper():<20} - {_ALIASES[name]}\r\n" for name in sorted(_ALIASES))
    return (
        "\r\n[global switches] <command>\r\n\r\n"
        "The following global switches are available:\r\n"
        "/NAMESPACE           Path of the namespace that the alias works in.\r\n"
        "/NODE                Servers that the alias works on.\r\n"
        "/OUTPUT              Where the output goes.\r\n"
        "/?                   Usage information.\r\n\r\n"
        "The following aliases are available:\r\n"
        f"{rows}\r\n"
        "<alias> [WHERE condition] [GET properties | LIST BRIEF|FULL | CALL method | DELETE]\r\n"
    )


async def wmic(process: Process) -> int:
    """`wmic [path] ALIAS [where CONDITION] [get A,B | list brief|full | call METHOD ... | delete]
    [/value | /format:F]`.
    """
    words = [
        word
        for word in process.argv[1:]
        if not word.lower().startswith(("/node:", "/namespace:", "/output:"))
    ]
    if words and words[0].lower() == "path":
        words = words[1:]
    if words[:1] == ["/?"] or words[:1] == ["-?"]:
        process.write(_help())
        return 0
    if not words:
        process.complain("Invalid GET Expression.")
        return 1
    alias, rest = words[0].lower(), words[1:]
    name = _ALIASES.get(alias, words[0] if alias.startswith(("win32_", "cim_")) else "")
    condition = ""
    if rest and rest[0].lower() == "where":
        condition, rest = _condition(rest[1:])
    elif rest and rest[0].startswith("("):
        condition, rest = rest[0], rest[1:]
    try:
        if not name:
            raise wmi_query.NoClassError(alias)
        name, rows = wmi_query.instances(process.context, name, condition)
    except wmi_query.UnsupportedClassError as error:
        process.complain(unsupported_message(f"wmic {error}"))
        return NOT_SUPPORTED
    except wmi_query.NoClassError:
        if alias in ALIASES:
            process.complain(unsupported_message(f"wmic {alias}"))
            return NOT_SUPPORTED
        process.complain(
            f"{words[0]} - Alias not found.\r\n"
            if not alias.startswith(("win32_", "cim_"))
            else "Node - "
            + process.context.windows.system.computer_name
            + "\r\nERROR:\r\nDescription = Invalid class"
        )
        return 0x80041010 if alias.startswith(("win32_", "cim_")) else 44135
    except wmi_query.QueryError:
        process.complain(
            f"Node - {process.context.windows.system.computer_name}\r\nERROR:\r\nDescription = Invalid query"
        )
        return 0x80041017
    verb = rest[0].lower() if rest else ""
    if verb in ("call", "delete"):
        return await _call(process, name, rows, rest)
    if not rows:
        process.complain(_NOTHING)
        return 0
    return _show(process, alias, rows, rest)


def _condition(words: Sequence[str]) -> tuple[str, list[str]]:
    """The condition is one word, or continues up to the verb."""
    for index, word in enumerate(words):
        if word.lower() in ("get", "list", "call", "delete", "assoc") or word.startswith("/"):
            return " ".join(words[:index]).strip().strip('"'), list(words[index:])
    return " ".join(words).strip().strip('"'), []


def _show(process: Process, alias: str, rows: list[Instance], words: Sequence[str]) -> int:
    switches = [word.lower() for word in words if word.startswith("/")]
    plain = [word for word in words if not word.startswith("/")]
    verb = plain[0].lower() if plain else ""
    names: list[str] = sorted(rows[0], key=str.lower)
    if verb == "get" and plain[1:]:
        requested = [one for word in plain[1:] for one in word.split(",") if one]
        known = {key.lower(): key for key in rows[0]}
        if any(one.lower() not in known for one in requested):
            process.complain(
                f"Node - {process.context.windows.system.computer_name}\r\nERROR:\r\nDescription = Invalid query"
            )
            return 0x80041017
        names = sorted({known[one.lower()] for one in requested}, key=str.lower)
    elif verb == "list":
        how = plain[1].lower() if len(plain) > 1 else "full"
        if how == "brief":
            names = [one for one in _BRIEF.get(alias, names[:6]) if one in rows[0]]
        elif "/format:table" not in switches:
            switches.append("/value")
    if "/value" in switches or "/format:list" in switches:
        for row in rows:
            process.print_line(
                "\r\n\r\n" + "\r\n".join(f"{name}={_cell(row[name])}" for name in names)
            )
        process.print_line("\r\n")
        return 0
    if "/format:csv" in switches:
        process.print_line("\r\n" + ",".join(("Node", *names)))
        for row in rows:
            process.print_line(
                ",".join(
                    (
                        process.context.windows.system.computer_name,
                        *(_cell(row[name]) for name in names),
                    )
                ),
            )
        return 0
    widths = {name: max(len(name), *(len(_cell(row[name])) for row in rows)) for name in names}
    process.print_line("".join(f"{name:<{widths[name]}}  " for name in names))
    for row in rows:
        process.print_line("".join(f"{_cell(row[name]):<{widths[name]}}  " for name in names))
    process.print_line()
    return 0


_KEYS: Final = {"Win32_Process": "ProcessId", "Win32_NetworkAdapter": "DeviceID"}


async def _call(process: Process, name: str, rows: list[Instance], words: Sequence[str]) -> int:
    method = words[1] if len(words) > 1 else "delete"
    named, positional = _arguments(words[2:])
    static = method.lower() == "create"
    targets: list[Instance | None] = [None] if static else list(rows)
    if not targets:
        process.complain(_NOTHING)
        return 0
    for row in targets:
        try:
            result = await call_wmi_method(process, name, row, method, named, positional)
        except NoMethodError:
            process.complain("Invalid Verb.")
            return 44124
        place = f"\\\\{process.context.windows.system.computer_name}\\ROOT\\CIMV2:{name}"
        if row is not None:
            key = _KEYS.get(name, "Name")
            place += f'.{"Handle" if key == "ProcessId" else key}="{row.get(key)}"'
        if words[0].lower() == "delete":
            process.print_line(f"Deleting instance {place}\r\nInstance deletion successful.")
            continue
        shown = "".join(
            f"        {key} = {_parameter(value)};\r\n"
            for key, value in result.items()
            if value is not None
        )
        process.print_line(
            f"Executing ({name if static else place})->{method}()\r\n"
            "Method execution successful.\r\nOut Parameters:\r\n"
            f"instance of __PARAMETERS\r\n{{\r\n{shown}}};\r\n",
        )
    return 0


def _parameter(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _arguments(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """`name=value` or values in order, separated by commas."""
    named, positional = dict[str, str](), list[str]()
    for part in " ".join(words).split(","):
        name, equals, value = part.strip().partition("=")
        if equals and name.isidentifier():
            named[name] = value.strip('"')
        elif part.strip():
            positional.append(part.strip().strip('"'))
    return named, positional


# ---- systeminfo ----


def _moment(value: float) -> str:
    return time.strftime("%-m/%-d/%Y, %-I:%M:%S %p", time.gmtime(value))


def _cards(adapters: Sequence[NetworkInterface]) -> list[str]:
    lines = []
    for number, one in enumerate(adapters, 1):
        addresses = [str(address.ip) for address in one.addresses]
        lines += [
            f"{'':27}[{number:02d}]: {one.description}",
            f"{'':33}Connection Name: {one.name}",
            f"{'':33}DHCP Enabled:    No",
            f"{'':33}IP address(es)",
            *(f"{'':33}[{i:02d}]: {address}" for i, address in enumerate(addresses, 1)),
        ]
    return lines


def systeminfo(process: Process) -> int:
    context = process.context
    (system,) = wmi_query.instances(context, "Win32_OperatingSystem")[1]
    (computer,) = wmi_query.instances(context, "Win32_ComputerSystem")[1]
    fixes = wmi_query.instances(context, "Win32_QuickFixEngineering")[1]
    virtual, free = system["TotalVirtualMemorySize"] >> 10, system["FreeVirtualMemory"] >> 10
    adapters = [one for one in context.windows.network.interfaces() if one.addresses]
    rows = (
        ("Host Name", computer["Name"]),
        ("OS Name", system["Caption"]),
        ("OS Version", f"{system['Version']} N/A Build {system['BuildNumber']}"),
        ("OS Manufacturer", system["Manufacturer"]),
        ("OS Configuration", "Member Server" if computer["PartOfDomain"] else "Standalone Server"),
        ("OS Build Type", system["BuildType"]),
        ("Registered Owner", system["RegisteredUser"] or "N/A"),
        ("Registered Organization", system["Organization"] or "N/A"),
        ("Product ID", system["SerialNumber"]),
        ("Original Install Date", _moment(system["InstallDate"])),
        ("System Boot Time", _moment(system["LastBootUpTime"])),
        ("System Manufacturer", computer["Manufacturer"]),
        ("System Model", computer["Model"]),
        ("System Type", computer["SystemType"]),
        (
            "Processor(s)",
            f"1 Processor(s) Installed.\r\n{'':27}[01]: Intel64 Family 6 Model 79 Stepping 1 "
            "GenuineIntel "
            "~2594 Mhz",
        ),
        ("BIOS Version", "American Megatrends Inc. 090007 , 6/2/2017"),
        ("Windows Directory", system["WindowsDirectory"]),
        ("System Directory", system["SystemDirectory"]),
        ("Boot Device", system["BootDevice"]),
        ("System Locale", "en-us;English (United States)"),
        ("Input Locale", "en-us;English (United States)"),
        ("Time Zone", wmi_query.instances(context, "Win32_TimeZone")[1][0]["Caption"]),
        ("Total Physical Memory", f"{system['TotalVisibleMemorySize'] >> 10:,} MB"),
        ("Available Physical Memory", f"{system['FreePhysicalMemory'] >> 10:,} MB"),
        ("Virtual Memory: Max Size", f"{virtual:,} MB"),
        ("Virtual Memory: Available", f"{free:,} MB"),
        ("Virtual Memory: In Use", f"{virtual - free:,} MB"),
        ("Page File Location(s)", r"C:\pagefile.sys"),
        ("Domain", computer["Domain"]),
        ("Logon Server", "N/A"),
        (
            "Hotfix(s)",
            "\r\n".join(
                (
                    f"{len(fixes)} Hotfix(s) Installed.",
                    *(f"{'':27}[{i:02d}]: {fix['HotFixID']}" for i, fix in enumerate(fixes, 1)),
                )
            ),
        ),
        (
            "Network Card(s)",
            "\r\n".join((f"{len(adapters)} NIC(s) Installed.", *_cards(adapters))),
        ),
        (
            "Hyper-V Requirements",
            "A hypervisor has been detected. Features required for Hyper-V will not be displayed.",
        ),
    )
    switches = [word.lower() for word in process.argv[1:]]
    if "csv" in switches:
        if "/nh" not in switches:
            process.print_line(",".join(f'"{name}"' for name, _ in rows))
        process.print_line(",".join(f'"{value}"' for _, value in rows))
        return 0
    process.print_line()
    for name, value in rows:
        process.print_line(f"{name + ':':<26} {value}")
    return 0


COMMANDS: dict[str, Command] = {"systeminfo": systeminfo, "wmic": wmic}
