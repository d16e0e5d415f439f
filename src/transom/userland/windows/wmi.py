"""Windows Management Instrumentation: the classes of the system, its processes, services, drives
and accounts, as rows of the current state. `wmi_devices.py` has the others, `wmi_query.py` the
table of all.

systeminfo, wmic, Get-CimInstance, Get-WmiObject and Get-ComputerInfo all use these classes, so they
cannot disagree.
"""

from __future__ import annotations

import hashlib
import ntpath
import time
from typing import Any, Final

from transom.machines.trees import INSTALLED
from transom.machines.windows.host import (
    CURRENT_VERSION,
    MEMORY_MANAGEMENT,
    PROCESSOR,
    product_id,
)
from transom.machines.windows.time_zones import current_zone, offset_seconds
from transom.userland.api import ProcessEntry, ProgramContext
from transom.userland.files import FileView
from transom.userland.windows.domain import credential_spec
from transom.userland.windows.priorities import priority_of, sessions_of

Instance = dict[str, Any]
VENDOR: Final = "Microsoft Corporation"
_LOCAL_DISK, _NETWORK_DISK = 3, 4
_START_MODES: Final = {"auto": "Auto", "demand": "Manual", "disabled": "Disabled"}
_STATES: Final = {
    "STOPPED": "Stopped",
    "RUNNING": "Running",
    "START_PENDING": "Start Pending",
    "STOP_PENDING": "Stop Pending",
    "PAUSED": "Paused",
}


class WmiTimestamp(float):
    """A point in time, which some tools show as a date and others in WMI's format."""

    __slots__ = ()

    @property
    def written(self) -> str:
        """`20201222000000.000000+000`."""
        return time.strftime("%Y%m%d%H%M%S", time.gmtime(self)) + f".{int(self % 1 * 1e6):06d}+000"


def image_name(entry: ProcessEntry) -> str:
    name = ntpath.basename(entry.argv[0].strip('"').replace("/", "\\"))
    return name if "." in name else name + ".exe"


def _version(context: ProgramContext, name: str) -> str:
    return str(context.windows.system.registry.get(CURRENT_VERSION, name) or "")


def _installed_at(context: ProgramContext) -> float:
    found = context.windows.system.registry.get(CURRENT_VERSION, "InstallDate")
    return float(found if isinstance(found, int) else INSTALLED)


def _minutes_east(context: ProgramContext) -> int:
    return offset_seconds(context.windows.system.registry, context.clock.time()) // 60


def wmi_operating_system(context: ProgramContext) -> list[Instance]:
    found, build = context.windows.resources, _version(context, "CurrentBuildNumber")
    return [
        {
            "SystemDirectory": r"C:\Windows\system32",
            "Organization": _version(context, "RegisteredOrganization"),
            "BuildNumber": build,
            "RegisteredUser": _version(context, "RegisteredOwner"),
            "SerialNumber": _version(context, "ProductId") or product_id(int(build or 0)),
            "Version": f"10.0.{build}",
            "Caption": f"Microsoft {_version(context, 'ProductName')}",
            "BootDevice": r"\Device\HarddiskVolume1",
            "BuildType": "Multiprocessor Free",
            "CSName": context.windows.system.computer_name,
            "CountryCode": "1",
            "CurrentTimeZone": _minutes_east(context),
            "FreePhysicalMemory": found.free_memory >> 10,
            "FreeSpaceInPagingFiles": (found.page_file - found.page_file_used) >> 10,
            "FreeVirtualMemory": max(0, found.commit_limit - found.committed) >> 10,
            "InstallDate": WmiTimestamp(_installed_at(context)),
            "LastBootUpTime": WmiTimestamp(found.boot_time),
            "LocalDateTime": WmiTimestamp(context.clock.time()),
            "Locale": "0409",
            "Manufacturer": VENDOR,
            "Name": f"Microsoft {_version(context, 'ProductName')}|C:\\Windows|",
            "NumberOfProcesses": len(wmi_processes(context)),
            "NumberOfUsers": 0,
            "OSArchitecture": "64-bit",
            "OSLanguage": 1033,
            "OSType": 18,
            "ProductType": 3,
            "SizeStoredInPagingFiles": found.page_file >> 10,
            "Status": "OK",
            "SystemDrive": "C:",
            "TotalVirtualMemorySize": found.commit_limit >> 10,
            "TotalVisibleMemorySize": found.total_memory >> 10,
            "WindowsDirectory": r"C:\Windows",
        }
    ]


def domain(context: ProgramContext) -> str:
    return credential_spec(context).get("DnsName", "WORKGROUP")


def wmi_computer_system(context: ProgramContext) -> list[Instance]:
    found, joined = context.windows.resources, domain(context)
    return [
        {
            "Name": context.windows.system.computer_name,
            "PrimaryOwnerName": _version(context, "RegisteredOwner"),
            "Domain": joined,
            "TotalPhysicalMemory": found.total_memory,
            "Model": "Virtual Machine",
            "Manufacturer": VENDOR,
            "DNSHostName": context.network.hostname,
            "NumberOfLogicalProcessors": context.platform.cpus,
            "NumberOfProcessors": 1,
            "PartOfDomain": joined != "WORKGROUP",
            "SystemType": "x64-based PC",
            "UserName": None,
            "Workgroup": joined,
            "AutomaticManagedPagefile": True,
            "CurrentTimeZone": _minutes_east(context),
            "DomainRole": 3 if joined != "WORKGROUP" else 2,
            "BootupState": "Normal boot",
            "Status": "OK",
        }
    ]


def wmi_processes(context: ProgramContext) -> list[ProcessEntry]:
    """All processes, including the two of the kernel."""
    if context.native is not None:
        return list(context.processes.list())
    started = context.windows.resources.boot_time
    idle = ProcessEntry(0, 0, "SYSTEM", ("System Idle Process",), started, 8 << 10, 0, 0.0, True)
    return [
        idle,
        ProcessEntry(4, 0, "SYSTEM", ("System",), started, 136 << 10, 1200, 0.2, True),
        *context.processes.list(),
    ]


def wmi_process_rows(context: ProgramContext) -> list[Instance]:
    rows, session = [], sessions_of(context)
    for entry in wmi_processes(context):
        program = entry.pid > 4
        line = " ".join(f'"{word}"' if " " in word else word for word in entry.argv)
        rows.append(
            {
                "ProcessId": entry.pid,
                "Name": image_name(entry) if program else entry.argv[0],
                "HandleCount": entry.handles,
                "WorkingSetSize": entry.memory,
                "VirtualSize": entry.memory * 4,
                "Caption": image_name(entry),
                "CommandLine": line if program and not entry.system else None,
                "CreationDate": WmiTimestamp(entry.started),
                "CSName": context.windows.system.computer_name,
                "Description": image_name(entry),
                "ExecutablePath": executable_path(context, entry),
                "KernelModeTime": int(entry.cpu * 3e6),
                "PageFileUsage": entry.memory >> 10,
                "ParentProcessId": entry.parent,
                "Priority": priority_of(entry.argv).base,
                "PrivatePageCount": entry.memory,
                "SessionId": session(entry),
                "ThreadCount": thread_count(entry),
                "QuotaNonPagedPoolUsage": non_paged_pool(entry),
                "UserModeTime": int(entry.cpu * 7e6),
            }
        )
    return rows


def thread_count(entry: ProcessEntry) -> int:
    return 1 + (entry.handles >> 6)


def non_paged_pool(entry: ProcessEntry) -> int:
    """In KiB: what its handles need."""
    return 1 + entry.handles // 40 if entry.pid else 0


def executable_path(context: ProgramContext, entry: ProcessEntry) -> str | None:
    """The path of a process's program."""
    if entry.pid <= 4:
        return None
    name = entry.argv[0].strip('"').replace("/", "\\")
    if ntpath.dirname(name):
        return name
    files = FileView(context, "C:\\")
    base = image_name(entry)
    path = next((value for key, value in context.env.items() if key.lower() == "path"), "")
    for folder in (*path.split(";"), r"C:\Windows\System32"):
        if folder and files.exists(ntpath.join(folder, base)):
            return ntpath.join(folder, base)
    return rf"C:\Windows\System32\{base}"


def wmi_service(context: ProgramContext) -> list[Instance]:
    return [
        {
            "ProcessId": service.pid,
            "Name": service.name,
            "StartMode": _START_MODES[service.start],
            "State": _STATES[service.state],
            "Status": "OK",
            "ExitCode": service.exit_code,
            "Caption": service.display_name,
            "Description": service.description or None,
            "DisplayName": service.display_name,
            "PathName": service.bin_path,
            "ServiceType": "Own Process",
            "AcceptPause": False,
            "ErrorControl": "Normal",
            "TagId": 0,
            "Started": service.state == "RUNNING",
            "StartName": service.account,
            "SystemName": context.windows.system.computer_name,
            "AcceptStop": service.state == "RUNNING" and service.stoppable,
        }
        for service in context.windows.system.services.all()
    ]


def wmi_drives(context: ProgramContext) -> list[tuple[str, int, int]]:
    """Each drive with its size and free space."""
    files = FileView(context, "C:\\")
    return [(drive, *files.space(drive + "\\")) for drive in files.drives()]


def local_drives(context: ProgramContext) -> list[tuple[str, int, int]]:
    """Without the drive letters of shares and of `subst`."""
    linked = FileView(context, "C:\\").drive_targets()
    return [row for row in wmi_drives(context) if row[0] not in linked]


LABELS: Final = r"HKLM\SYSTEM\MountedDevices\Labels"


def volume_label(context: ProgramContext, drive: str) -> str:
    """The label that an administrator has set."""
    return str(context.windows.system.registry.get(LABELS, drive[:2].upper()) or "")


def disk_serial_number(context: ProgramContext, drive: str) -> str:
    """The serial number of a volume, eight hexadecimal digits: the same for the same machine and
    drive.
    """
    digest = hashlib.blake2b(
        f"{context.platform.container_id or context.network.hostname}/{drive}".encode(),
        digest_size=4,
    ).hexdigest()
    return digest.upper()


def _remote_name(target: str) -> str:
    return target.rstrip("\\") if target.startswith("\\\\") else ""


def wmi_logical_disk(context: ProgramContext) -> list[Instance]:
    linked = FileView(context, "C:\\").drive_targets()
    return [
        {
            "DeviceID": drive,
            "DriveType": _NETWORK_DISK if remote else _LOCAL_DISK,
            "ProviderName": remote or None,
            "VolumeName": volume_label(context, drive),
            "Size": size,
            "FreeSpace": free,
            "Caption": drive,
            "Description": "Network Connection" if remote else "Local Fixed Disk",
            "FileSystem": "NTFS",
            "Name": drive,
            "SystemName": context.windows.system.computer_name,
            "VolumeSerialNumber": disk_serial_number(context, drive),
            "MediaType": 0 if remote else 12,
        }
        for drive, size, free in wmi_drives(context)
        for remote in (_remote_name(linked.get(drive, "")),)
    ]


def wmi_volume(context: ProgramContext) -> list[Instance]:
    return [
        {
            "DriveLetter": drive,
            "Label": volume_label(context, drive) or None,
            "Capacity": size,
            "FreeSpace": free,
            "FileSystem": "NTFS",
            "DriveType": 3,
            "Name": drive + "\\",
            "BlockSize": 4096,
            "SystemName": context.windows.system.computer_name,
        }
        for drive, size, free in local_drives(context)
    ]


def wmi_page_file(context: ProgramContext) -> list[Instance]:
    found = context.windows.resources
    used = found.page_file_used >> 20
    return [
        {
            "Name": r"C:\pagefile.sys",
            "AllocatedBaseSize": found.page_file >> 20,
            "CurrentUsage": used,
            "PeakUsage": used,
            "Caption": r"C:\pagefile.sys",
            "Description": r"C:\pagefile.sys",
            "InstallDate": WmiTimestamp(_installed_at(context)),
            "TempPageFile": False,
        }
    ]


def wmi_page_file_setting(context: ProgramContext) -> list[Instance]:
    rows = context.windows.system.registry.get(MEMORY_MANAGEMENT, "PagingFiles")
    out = []
    for row in rows if isinstance(rows, tuple) else ():
        name, *sizes = row.split()
        first, last = (*map(int, sizes), 0, 0)[:2]
        caption = f"{name[:2]}\\ '{ntpath.basename(name)}'"
        out.append({"Name": name, "InitialSize": first, "MaximumSize": last, "Caption": caption})
    return out


def wmi_processor_rows(context: ProgramContext) -> list[Instance]:
    return [
        {
            "DeviceID": "CPU0",
            "Name": PROCESSOR,
            "Caption": "Intel64 Family 6 Model 79 Stepping 1",
            "MaxClockSpeed": 2594,
            "SocketDesignation": "None",
            "Manufacturer": "GenuineIntel",
            "NumberOfCores": max(1, context.platform.cpus // 2),
            "NumberOfLogicalProcessors": context.platform.cpus,
            "AddressWidth": 64,
            "Architecture": 9,
            "CurrentClockSpeed": 2594,
            "LoadPercentage": round(min(1.0, average_load(context)) * 100),
            "Status": "OK",
        }
    ]


def average_load(context: ProgramContext) -> float:
    found = context.windows.resources
    return found.cpu_seconds / max(1.0, (context.clock.time() - found.boot_time) * found.cpus)


def wmi_user_account(context: ProgramContext) -> list[Instance]:
    database = context.windows.system.accounts
    return [
        {
            "Name": user.name,
            "Caption": rf"{database.computer}\{user.name}",
            "AccountType": 512,
            "SID": user.sid,
            "Domain": database.computer,
            "Description": user.description,
            "Disabled": not user.enabled,
            "FullName": user.full_name,
            "LocalAccount": True,
            "PasswordExpires": user.password_expires,
            "Status": "OK",
        }
        for user in database.users()
    ]


def wmi_group(context: ProgramContext) -> list[Instance]:
    database = context.windows.system.accounts
    return [
        {
            "SID": group.sid,
            "Name": group.name,
            "Caption": rf"{database.computer}\{group.name}",
            "Domain": database.computer,
            "Description": group.description,
            "LocalAccount": True,
            "Status": "OK",
        }
        for group in database.groups()
    ]


def wmi_bios(context: ProgramContext) -> list[Instance]:
    return [
        {
            "SMBIOSBIOSVersion": "090007 ",
            "Manufacturer": "American Megatrends Inc.",
            "Name": "BIOS Date: 06/02/17 17:08:58  Ver: 09.00.07",
            "SerialNumber": disk_serial_number(context, "bios"),
            "Version": "VRTUAL - 6001702",
        }
    ]


def wmi_fixes(context: ProgramContext) -> list[Instance]:
    """The update that this build includes."""
    revision = _version(context, "UBR")
    return [
        {
            "Source": context.windows.system.computer_name,
            "Description": "Update",
            "HotFixID": f"KB4{int(revision or 0):06d}",
            "InstalledBy": r"NT AUTHORITY\SYSTEM",
            "InstalledOn": "12/22/2020",
        }
    ]


def wmi_environment(context: ProgramContext) -> list[Instance]:
    return [
        {"Name": name, "UserName": "<SYSTEM>", "VariableValue": value, "SystemVariable": True}
        for name, value in context.windows.system.variables().items()
    ]


def wmi_time_zone(context: ProgramContext) -> list[Instance]:
    zone = current_zone(context.windows.system.registry)
    return [
        {
            "Bias": zone.minutes,
            "SettingID": "",
            "Caption": zone.display_name,
            "StandardName": zone.standard_name,
        }
    ]


def wmi_scheduled(context: ProgramContext) -> list[Instance]:
    return [
        {"Name": task.name, "Command": task.command, "State": task.state}
        for task in context.windows.system.tasks.values()
    ]


def wmi_adapter_configuration(context: ProgramContext) -> list[Instance]:
    view = context.windows.network
    return [
        {
            "ServiceName": "netvsc",
            "DHCPEnabled": False,
            "Index": one.index,
            "Description": one.description,
            "Caption": f"[{one.index:08d}] {one.description}",
            "DefaultIPGateway": list(one.gateways) or None,
            "DNSDomain": next(iter(view.dns.searches), ""),
            "DNSHostName": context.network.hostname if one.addresses else None,
            "DNSServerSearchOrder": list(view.dns_servers(one)) or None,
            "InterfaceIndex": one.index,
            "IPAddress": [str(address.ip) for address in one.addresses] or None,
            "IPEnabled": bool(one.addresses),
            "IPSubnet": [
                str(address.netmask) if address.version == 4 else str(address.network.prefixlen)
                for address in one.addresses
            ]
            or None,
            "MACAddress": one.mac.replace("-", ":"),
            "SettingID": f"{{{one.guid}}}",
        }
        for one in view.interfaces()
    ]


def wmi_memory_counters(context: ProgramContext) -> list[Instance]:
    found = context.windows.resources
    return [
        {
            "AvailableBytes": found.free_memory,
            "AvailableKBytes": found.free_memory >> 10,
            "AvailableMBytes": found.free_memory >> 20,
            "CommitLimit": found.commit_limit,
            "CommittedBytes": found.committed,
            "PercentCommittedBytesInUse": found.committed * 100 // max(1, found.commit_limit),
        }
    ]


SHOWN: Final = {  # properties that PowerShell shows by default
    "Win32_ComputerSystem": 6,
    "Win32_LogicalDisk": 6,
    "Win32_NetworkAdapterConfiguration": 4,
    "Win32_OperatingSystem": 6,
    "Win32_Process": 5,
    "Win32_Service": 6,
    "Win32_BIOS": 5,
    "Win32_Processor": 5,
    "Win32_UserAccount": 5,
    "Win32_Group": 4,
    "Win32_QuickFixEngineering": 5,
    "Win32_PageFileUsage": 4,
    "Win32_PageFileSetting": 3,
    "Win32_Volume": 5,
    "Win32_Environment": 3,
    "Win32_DiskDrive": 4,
    "Win32_DiskPartition": 6,
    "Win32_NetworkAdapter": 7,
    "Win32_NTEventlogFile": 4,
    "Win32_Product": 4,
    "Win32_Share": 3,
    "Win32_StartupCommand": 3,
    "Win32_Account": 4,
}
