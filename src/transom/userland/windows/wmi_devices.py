"""Windows Management Instrumentation: the classes of devices, shares, profiles, logs, performance
counters and associations, as rows of the current state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from transom.userland.api import AttachedDisk, ProcessEntry, ProgramContext
from transom.userland.windows import wmi
from transom.userland.windows.wmi import Instance, WmiTimestamp

SHARES: Final = r"HKLM\SYSTEM\CurrentControlSet\Services\LanmanServer\Shares"
SHARE_ACCESS: Final = SHARES + r"\Security"
RUN: Final = r"Software\Microsoft\Windows\CurrentVersion\Run"
UNINSTALL: Final = r"HKLM\SOFTWARE\Microsoft\Windows\CurrentVersion\Uninstall"
LOGS: Final = ("Application", "Security", "System", "Windows PowerShell")
_MODULE: Final = 4 << 30  # the largest memory module
_DISK_SHARE, _DEVICE_SHARE, _IPC_SHARE = 0, 2147483648, 2147483651
_ADMINISTRATIVE_ACCOUNTS = (  # of the shares that Windows makes
    r"BUILTIN\Administrators",
    r"BUILTIN\Backup Operators",
    r"NT AUTHORITY\INTERACTIVE",
)


def wmi_disks(context: ProgramContext) -> list[AttachedDisk]:
    """The machine's disks; in a container the disk of its drives."""
    storage = context.node.storage if context.node is not None else None
    if storage is not None:
        return list(storage.disks())
    return [
        AttachedDisk(number, "Virtual HD", "", "", size, free, "MBR", "NTFS", drive[:1], "")
        for number, (drive, size, free) in enumerate(wmi.local_drives(context))
    ]


def wmi_disk_drives(context: ProgramContext) -> list[Instance]:
    return [
        {
            "Partitions": int(bool(disk.file_system)),
            "DeviceID": rf"\\.\PHYSICALDRIVE{disk.number}",
            "Model": f"{disk.model} SCSI Disk Device" if disk.serial else disk.model,
            "Size": disk.size,
            "Caption": disk.model,
            "BytesPerSector": 512,
            "Description": "Disk drive",
            "Index": disk.number,
            "InterfaceType": "SCSI" if disk.serial else "IDE",
            "MediaType": "Fixed hard disk media",
            "Name": rf"\\.\PHYSICALDRIVE{disk.number}",
            "SerialNumber": disk.serial or None,
            "Status": "OK",
            "SystemName": context.windows.system.computer_name,
        }
        for disk in wmi_disks(context)
    ]


def wmi_disk_partitions(context: ProgramContext) -> list[Instance]:
    return [
        {
            "NumberOfBlocks": disk.size // 512,
            "BootPartition": disk.letter == "C",
            "Name": f"Disk #{disk.number}, Partition #0",
            "PrimaryPartition": True,
            "Size": disk.size,
            "Index": 0,
            "DeviceID": f"Disk #{disk.number}, Partition #0",
            "DiskIndex": disk.number,
            "StartingOffset": 1 << 20,
            "Type": "Installable File System",
            "SystemName": context.windows.system.computer_name,
        }
        for disk in wmi_disks(context)
        if disk.file_system
    ]


def wmi_physical_memory(context: ProgramContext) -> list[Instance]:
    rest, rows = context.windows.resources.total_memory, list[Instance]()
    while rest > 0:
        size = min(rest, _MODULE)
        rows.append(
            {
                "Manufacturer": wmi.VENDOR,
                "BankLabel": "None",
                "Capacity": size,
                "DeviceLocator": f"M{len(rows):04d}",
                "Tag": f"Physical Memory {len(rows)}",
                "FormFactor": 0,
                "SerialNumber": "None",
            }
        )
        rest -= size
    return rows


def wmi_adapters(context: ProgramContext) -> list[Instance]:
    return [
        {
            "ServiceName": "netvsc" if one.physical else "VMSMP",
            "MACAddress": one.mac.replace("-", ":") or None,
            "AdapterType": "Ethernet 802.3",
            "DeviceID": str(one.index),
            "Name": one.description,
            "NetworkAddresses": None,
            "Speed": 10_000_000_000,
            "Caption": f"[{one.index:08d}] {one.description}",
            "Description": one.description,
            "GUID": f"{{{one.guid}}}",
            "Index": one.index,
            "InterfaceIndex": one.index,
            "Manufacturer": "Microsoft",
            "NetConnectionID": one.name,
            "NetConnectionStatus": 2 if one.status == "Up" else 0,
            "NetEnabled": one.status == "Up",
            "PhysicalAdapter": one.physical,
            "SystemName": context.windows.system.computer_name,
        }
        for one in context.windows.network.interfaces()
    ]


def shared_directories(context: ProgramContext) -> dict[str, str]:
    """The shares that an administrator has made, with their directories."""
    out = {}
    for name, lines in (context.windows.system.registry.values(SHARES) or {}).items():
        rows = lines if isinstance(lines, tuple) else ()
        out[name] = next((row[5:] for row in rows if row.startswith("Path=")), "")
    return out


def share_remark(context: ProgramContext, name: str) -> str:
    lines = context.windows.system.registry.get(SHARES, name)
    rows = lines if isinstance(lines, tuple) else ()
    return next((row[7:] for row in rows if row.startswith("Remark=")), "")


def add_share(context: ProgramContext, name: str, path: str, remark: str = "") -> None:
    rows = ("CSCFlags=0", "MaxUses=4294967295", f"Path={path}", "Permissions=0")
    more = (f"Remark={remark}",) if remark else ()
    context.windows.system.registry.set(
        SHARES, name, (*rows, *more, f"ShareName={name}", f"Type={_DISK_SHARE}")
    )


def share_access(context: ProgramContext, name: str) -> list[tuple[str, str]]:
    """Accounts with their rights: Full, Change or Read. Everyone may read, by default; the shares
    that Windows makes are for administrators.
    """
    if name in _administrative_shares(context):
        return [(account, "Full") for account in _ADMINISTRATIVE_ACCOUNTS]
    rows = context.windows.system.registry.get(SHARE_ACCESS, name)
    given = [row.rpartition("=") for row in rows] if isinstance(rows, tuple) else []
    return [(account, right) for account, _, right in given] or [("Everyone", "Read")]


def set_share_access(context: ProgramContext, name: str, access: Sequence[tuple[str, str]]) -> None:
    """Raises LookupError for an account that does not exist, which it names."""
    accounts = context.windows.system.accounts
    rows = []
    for account, right in access:
        sid = accounts.sid_of(account)
        if sid is None:
            raise LookupError(account)
        rows.append(f"{accounts.name_of(sid)}={right}")
    context.windows.system.registry.set(SHARE_ACCESS, name, tuple(rows))


def remove_share(context: ProgramContext, name: str) -> None:
    context.windows.system.registry.delete(SHARES, name)
    context.windows.system.registry.delete(SHARE_ACCESS, name)


def _administrative_shares(context: ProgramContext) -> dict[str, tuple[str, str, int]]:
    """The hidden shares that Windows makes, with path, remark and type."""
    return {
        **{
            drive[0] + "$": (drive + "\\", "Default share", _DEVICE_SHARE)
            for drive, _, _ in wmi.local_drives(context)
        },
        "ADMIN$": (r"C:\Windows", "Remote Admin", _DEVICE_SHARE),
        "IPC$": ("", "Remote IPC", _IPC_SHARE),
    }


def wmi_shares(context: ProgramContext) -> list[Instance]:
    """Those of an administrator, and the hidden ones that Windows makes."""
    rows = [(name, *row) for name, row in _administrative_shares(context).items()]
    rows += [
        (name, path, share_remark(context, name), _DISK_SHARE)
        for name, path in shared_directories(context).items()
    ]
    return [
        {
            "Name": name,
            "Path": path,
            "Description": remark,
            "Caption": remark,
            "AllowMaximum": True,
            "Status": "OK",
            "Type": kind,
        }
        for name, path, remark, kind in sorted(rows)
    ]


def wmi_startup_commands(context: ProgramContext) -> list[Instance]:
    """The values of the keys Run."""
    registry, rows = context.windows.system.registry, list[Instance]()
    for hive, user in (("HKLM", "Public"), ("HKCU", context.windows.account.whoami)):
        for name, value in (registry.values(rf"{hive}\{RUN}") or {}).items():
            rows.append(
                {
                    "Command": str(value),
                    "User": user,
                    "Caption": name,
                    "Name": name,
                    "Location": rf"{hive}\{RUN}",
                }
            )
    return rows


def wmi_products(context: ProgramContext) -> list[Instance]:
    """The programs that installers have registered."""
    registry, rows = context.windows.system.registry, list[Instance]()
    for key in registry.keys(UNINSTALL):
        values = registry.values(rf"{UNINSTALL}\{key}") or {}
        if "DisplayName" in values:
            rows.append(
                {
                    "IdentifyingNumber": key,
                    "Name": str(values["DisplayName"]),
                    "Vendor": str(values.get("Publisher", "")),
                    "Version": str(values.get("DisplayVersion", "")),
                    "Caption": str(values["DisplayName"]),
                }
            )
    return rows


def _reference(context: ProgramContext, name: str, key: str, value: str) -> str:
    computer = context.windows.system.computer_name
    return rf'\\{computer}\root\cimv2:{name}.Domain="{computer}",{key}="{value}"'


def wmi_group_users(context: ProgramContext) -> list[Instance]:
    """The members of each local group."""
    accounts = context.windows.system.accounts
    users = {user.sid: user.name for user in accounts.users()}
    return [
        {
            "GroupComponent": _reference(context, "Win32_Group", "Name", group.name),
            "PartComponent": _reference(context, "Win32_UserAccount", "Name", users[sid]),
        }
        for group in accounts.groups()
        for sid in group.members
        if sid in users
    ]


def wmi_profiles(context: ProgramContext) -> list[Instance]:
    """The users who have a directory."""
    accounts, files = context.windows.system.accounts, context.files
    loaded = {_sid_of(context, entry) for entry in wmi.wmi_processes(context)}
    rows = []
    for user in accounts.users():
        path = rf"C:\Users\{user.name}"
        if files.exists(path):
            rows.append(
                {
                    "LocalPath": path,
                    "SID": user.sid,
                    "Loaded": user.sid in loaded,
                    "Special": False,
                }
            )
    return rows


def _sid_of(context: ProgramContext, entry: ProcessEntry) -> str:
    account = context.windows.system.accounts.identity(entry.user)
    return account.sid if account is not None else ""


def owner_of(context: ProgramContext, pid: int) -> tuple[str, str, str] | None:
    """The domain, name and SID of the account that a process runs as."""
    for entry in wmi.wmi_processes(context):
        if entry.pid == pid:
            account = context.windows.system.accounts.identity(entry.user)
            return (account.domain, account.name, account.sid) if account is not None else None
    return None


def wmi_logon_sessions(context: ProgramContext) -> list[Instance]:
    """One for each account that runs processes."""
    first: dict[str, ProcessEntry] = {}
    for entry in wmi.wmi_processes(context):
        first.setdefault(entry.user, entry)
    services = ("SYSTEM", "LOCAL SERVICE", "NETWORK SERVICE", "")
    return [
        {
            "AuthenticationPackage": "NTLM",
            "LogonId": str(999 if user == "SYSTEM" else 10_000 + entry.pid),
            "LogonType": 5 if user in services else 3,
            "Name": None,
            "StartTime": WmiTimestamp(entry.started),
        }
        for user, entry in first.items()
        if user
    ]


def wmi_logged_on_users(context: ProgramContext) -> list[Instance]:
    computer = context.windows.system.computer_name
    rows, seen = [], set[str]()
    for entry in wmi.wmi_processes(context):
        account = context.windows.system.accounts.identity(entry.user)
        if account is None or account.sid in seen:
            continue
        seen.add(account.sid)
        number = 999 if entry.user == "SYSTEM" else 10_000 + entry.pid
        name = rf'\\.\root\cimv2:Win32_Account.Domain="{computer}",Name="{account.name}"'
        session = rf'\\.\root\cimv2:Win32_LogonSession.LogonId="{number}"'
        rows.append({"Antecedent": name, "Dependent": session})
    return rows


def wmi_event_logs(context: ProgramContext) -> list[Instance]:
    events = context.windows.system.events
    return [
        {
            "FileSize": 69632 + 512 * count,
            "LogfileName": log,
            "Name": rf"C:\Windows\System32\Winevt\Logs\{log}.evtx",
            "NumberOfRecords": count,
            "MaxFileSize": 20971520,
        }
        for log in LOGS
        for count in (sum(1 for event in events if event.log == log),)
    ]


def wmi_events(context: ProgramContext) -> list[Instance]:
    kinds = {"Error": 1, "Warning": 2, "Information": 3}
    return [
        {
            "Category": 0,
            "EventCode": event.event_id,
            "EventIdentifier": event.event_id,
            "EventType": kinds.get(event.level, 3),
            "Logfile": event.log,
            "Message": event.message,
            "RecordNumber": event.number,
            "SourceName": event.source,
            "TimeGenerated": WmiTimestamp(event.time),
            "Type": event.level,
            "ComputerName": context.windows.system.computer_name,
        }
        for event in reversed(context.windows.system.events)
    ]


def wmi_process_counters(context: ProgramContext) -> list[Instance]:
    """Instances of the same program have a number."""
    rows, seen = list[Instance](), dict[str, int]()
    for entry in wmi.wmi_processes(context):
        base = wmi.image_name(entry).removesuffix(".exe") if entry.pid > 4 else entry.argv[0]
        base = "Idle" if entry.pid == 0 else base
        number = seen[base] = seen.get(base, -1) + 1
        rows.append(
            {
                "Name": f"{base}#{number}" if number else base,
                "IDProcess": entry.pid,
                "HandleCount": entry.handles,
                "PercentProcessorTime": round(_busy(context, entry) * 100),
                "PrivateBytes": entry.memory,
                "ThreadCount": wmi.thread_count(entry),
                "WorkingSet": entry.memory,
                "WorkingSetPrivate": entry.memory,
            }
        )
    return rows


def _busy(context: ProgramContext, entry: ProcessEntry) -> float:
    """The share of one processor that it has used since its start."""
    return entry.cpu / max(1.0, context.clock.time() - entry.started)


def wmi_processor_counters(context: ProgramContext) -> list[Instance]:
    busy = round(min(1.0, wmi.average_load(context)) * 100)
    names = [*map(str, range(context.platform.cpus)), "_Total"]
    return [
        {"Name": name, "PercentProcessorTime": busy, "PercentIdleTime": 100 - busy}
        for name in names
    ]


def wmi_system_counters(context: ProgramContext) -> list[Instance]:
    entries = wmi.wmi_processes(context)
    return [
        {
            "Processes": len(entries),
            "SystemUpTime": int(context.clock.time() - context.windows.resources.boot_time),
            "Threads": sum(map(wmi.thread_count, entries)),
        }
    ]


def wmi_disk_counters(context: ProgramContext) -> list[Instance]:
    return [
        {
            "Name": drive,
            "FreeMegabytes": free >> 20,
            "PercentFreeSpace": free * 100 // max(1, size),
        }
        for drive, size, free in wmi.local_drives(context)
    ]


def wmi_computer_product(context: ProgramContext) -> list[Instance]:
    digits = wmi.disk_serial_number(context, "bios") * 4
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return [
        {
            "IdentifyingNumber": wmi.disk_serial_number(context, "bios"),
            "Name": "Virtual Machine",
            "Vendor": wmi.VENDOR,
            "Version": "7.0",
            "Caption": "Computer System Product",
            "UUID": "-".join(parts),
        }
    ]


def wmi_accounts(context: ProgramContext) -> list[Instance]:
    """Users and groups."""
    names = ("Caption", "Domain", "SID", "Name", "LocalAccount", "Status", "Description")
    return [
        {name: row[name] for name in names}
        for row in (*wmi.wmi_user_account(context), *wmi.wmi_group(context))
    ]


def find_files(context: ProgramContext, wanted: str, *, directory: bool) -> list[Instance]:
    """`CIM_DataFile` and `Win32_Directory`: only the one that a query names."""
    files = context.files
    if not wanted or not files.exists(wanted):
        return []
    state = files.stat(wanted)
    if (state.kind == "directory") != directory:
        return []
    row: dict[str, Any] = {
        "Name": wanted,
        "Caption": wanted,
        "Drive": wanted[:2].lower(),
        "LastModified": WmiTimestamp(state.mtime),
        "Status": "OK",
    }
    return [row if directory else {**row, "FileSize": state.size}]
