"""The display format of objects on the console."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from transom.userland.powershell.values import (
    DateTime,
    Dictionary,
    Hashtable,
    PsObject,
    table_entries,
    to_text,
)
from transom.userland.windows.wmi import SHOWN

# The properties that a table shows, by kind. Other kinds show all, as a list if there are more than
# four.
_COLUMNS: dict[str, tuple[str, ...]] = {
    "System.Diagnostics.Process": (
        "Handles",
        "NPM(K)",
        "PM(K)",
        "WS(K)",
        "CPU(s)",
        "Id",
        "SI",
        "ProcessName",
    ),
    "System.Diagnostics.Process#IncludeUserName": (
        "Handles",
        "WS(K)",
        "CPU(s)",
        "Id",
        "UserName",
        "ProcessName",
    ),
    "System.ServiceProcess.ServiceController": ("Status", "Name", "DisplayName"),
    "MSFT_Disk": (
        "Number",
        "Friendly Name",
        "Serial Number",
        "HealthStatus",
        "OperationalStatus",
        "Total Size",
        "Partition Style",
    ),
    "MSFT_PhysicalDisk": (
        "Number",
        "FriendlyName",
        "SerialNumber",
        "MediaType",
        "CanPool",
        "OperationalStatus",
        "HealthStatus",
        "Usage",
        "Size",
    ),
    "MSFT_SmbShareAccessControlEntry": (
        "Name",
        "ScopeName",
        "AccountName",
        "AccessControlType",
        "AccessRight",
    ),
    "System.Management.ManagementObject#root\\cimv2\\Win32_QuickFixEngineering": (
        "Source",
        "Description",
        "HotFixID",
        "InstalledBy",
        "InstalledOn",
    ),
    "System.Management.ManagementObject#root\\cimv2\\Win32_PingStatus": (
        "Source",
        "Destination",
        "IPV4Address",
        "IPV6Address",
        "Bytes",
        "Time(ms)",
    ),
    "MSFT_DNSClientServerAddress": (
        "InterfaceAlias",
        "InterfaceIndex",
        "AddressFamily",
        "ServerAddresses",
    ),
    "MSFT_SmbShare": ("Name", "ScopeName", "Path", "Description"),
    "MSFT_Partition": ("PartitionNumber", "DriveLetter", "Offset", "Size", "Type"),
    "MSFT_NetAdapter": (
        "Name",
        "InterfaceDescription",
        "ifIndex",
        "Status",
        "MacAddress",
        "LinkSpeed",
    ),
    "MSFT_NetRoute": (
        "ifIndex",
        "DestinationPrefix",
        "NextHop",
        "RouteMetric",
        "ifMetric",
        "PolicyStore",
    ),
    "MSFT_NetTCPConnection": (
        "LocalAddress",
        "LocalPort",
        "RemoteAddress",
        "RemotePort",
        "State",
        "AppliedSetting",
        "OwningProcess",
    ),
    "MSFT_NetUDPEndpoint": ("LocalAddress", "LocalPort"),
    "MSFT_NetNeighbor": ("ifIndex", "IPAddress", "LinkLayerAddress", "State", "PolicyStore"),
    "MSFT_NetIPInterface": (
        "ifIndex",
        "InterfaceAlias",
        "AddressFamily",
        "NlMtu(Bytes)",
        "InterfaceMetric",
        "Dhcp",
        "ConnectionState",
        "PolicyStore",
    ),
    "MSFT_DNSClient": (
        "InterfaceAlias",
        "InterfaceIndex",
        "ConnectionSpecificSuffix",
        "ConnectionSpecificSuffixSearchList",
        "RegisterThisConnectionsAddress",
        "UseSuffixWhenRegistering",
    ),
    "Microsoft.HyperV.PowerShell.VMSwitch": (
        "Name",
        "SwitchType",
        "NetAdapterInterfaceDescription",
    ),
    "System.Management.Automation.PSRemotingJob": (
        "Id",
        "Name",
        "PSJobTypeName",
        "State",
        "HasMoreData",
        "Location",
        "Command",
    ),
    **{
        f"Microsoft.DnsClient.Commands.DnsRecord_{kind}": ("Name", "Type", "TTL", "Section", *own)
        for kind, own in (
            ("A", ("IPAddress",)),
            ("PTR", ("NameHost",)),
            ("SRV", ("NameTarget", "Priority", "Weight", "Port")),
            ("TXT", ("Strings",)),
            ("SOA", ("PrimaryServer", "NameAdministrator", "SerialNumber")),
            ("MX", ("NameExchange", "Preference")),
        )
    },
    "System.Management.Automation.PathInfo": ("Path",),
    "System.Security.Cryptography.X509Certificates.X509Certificate2": ("Thumbprint", "Subject"),
    "Microsoft.Windows.ServerManager.Commands.Feature": (
        "Display Name",
        "Name",
        "Install State",
    ),
    "Microsoft.Windows.ServerManager.Commands.FeatureOperationResult": (
        "Success",
        "Restart Needed",
        "Exit Code",
        "Feature Result",
    ),
    "System.Management.Automation.PSDriveInfo": (
        "Name",
        "Used (GB)",
        "Free (GB)",
        "Provider",
        "Root",
        "CurrentLocation",
    ),
    "Microsoft.PowerShell.Commands.LocalUser": ("Name", "Enabled", "Description"),
    "Microsoft.PowerShell.Commands.LocalGroup": ("Name", "Description"),
    "Microsoft.PowerShell.Commands.LocalPrincipal": ("ObjectClass", "Name", "PrincipalSource"),
    "System.Diagnostics.EventLogEntry": (
        "Index",
        "Time",
        "EntryType",
        "Source",
        "InstanceID",
        "Message",
    ),
    "System.Diagnostics.Eventing.Reader.EventLogRecord": (
        "TimeCreated",
        "Id",
        "LevelDisplayName",
        "Message",
    ),
    "System.Diagnostics.Eventing.Reader.EventLogConfiguration": (
        "LogMode",
        "MaximumSizeInBytes",
        "RecordCount",
        "LogName",
    ),
    "System.Diagnostics.EventLog": ("Max(K)", "Retain", "OverflowAction", "Entries", "Log"),
    "System.Security.AccessControl.FileSecurity": ("Path", "Owner", "AccessToString"),
    "System.Security.AccessControl.DirectorySecurity": ("Path", "Owner", "AccessToString"),
    "Microsoft.Win32.RegistryKey": ("PSChildName", "Values"),
    "Microsoft.PowerShell.Commands.GetCounter.PerformanceCounterSampleSet": (
        "Timestamp",
        "Readings",
    ),
    "MSFT_Volume": (
        "DriveLetter",
        "FriendlyName",
        "FileSystemType",
        "DriveType",
        "HealthStatus",
        "OperationalStatus",
        "SizeRemaining",
        "Size",
    ),
    "MSFT_ScheduledTask": ("TaskPath", "TaskName", "State"),
    "System.Collections.DictionaryEntry": ("Name", "Value"),
    "CimClass": ("CimClassName", "NameSpace"),
    "System.Version": ("Major", "Minor", "Build", "Revision"),
    **{
        f"System.Management.Automation.{kind}": ("CommandType", "Name", "Version", "Source")
        for kind in ("CmdletInfo", "FunctionInfo", "ApplicationInfo")
    },
    "System.Management.Automation.AliasInfo": (
        "CommandType",
        "DisplayName",
        "Version",
        "Source",
    ),
    "Microsoft.PowerShell.Commands.GroupInfo": ("Count", "Name", "Group"),
    "Microsoft.PowerShell.Commands.GroupInfo#NoElement": ("Count", "Name"),
    "ContentWritten": (),
}


def _gigabytes(value: Any) -> str | None:
    return f"{value / (1 << 30):.2f}" if isinstance(value, int) else None


def _of(name: str) -> Callable[[PsObject], Any]:
    return lambda value: value.get(name)


def _lines_of(name: str) -> Callable[[PsObject], Any]:
    """The items of a list, below each other."""
    return lambda value: "\n".join(to_text(one) for one in value.get(name))


def _kilobytes(name: str) -> Callable[[PsObject], Any]:
    return lambda value: value.get(name) >> 10


# Columns that show something else than the property with their name.
_COMPUTED: Final[dict[str, dict[str, Callable[[PsObject], Any]]]] = {
    "System.Diagnostics.Process": {
        "NPM(K)": _kilobytes("NPM"),
        "PM(K)": _kilobytes("PM"),
        "WS(K)": _kilobytes("WS"),
        "CPU(s)": lambda value: round(value.get("CPU"), 2),
    },
    "System.Diagnostics.EventLog": {
        "Max(K)": _of("MaximumKilobytes"),
        "Retain": _of("MinimumRetentionDays"),
        "Entries": lambda value: len(value.get("Entries")),
    },
    "MSFT_Disk": {
        "Friendly Name": _of("FriendlyName"),
        "Serial Number": _of("SerialNumber"),
        "Total Size": lambda value: shown_bytes(value.get("Size")),
        "Partition Style": _of("PartitionStyle"),
    },
    "Microsoft.Windows.ServerManager.Commands.Feature": {
        "Display Name": lambda value: (
            f"[{'X' if value.get('Installed') else ' '}] {value.get('DisplayName')}"
        ),
        "Install State": _of("InstallState"),
    },
    "Microsoft.Windows.ServerManager.Commands.FeatureOperationResult": {
        "Restart Needed": _of("RestartNeeded"),
        "Exit Code": _of("ExitCode"),
        "Feature Result": _of("FeatureResult"),
    },
    "MSFT_NetIPInterface": {"NlMtu(Bytes)": _of("NlMtu")},
    "MSFT_DNSClientServerAddress": {
        "AddressFamily": lambda value: {2: "IPv4", 23: "IPv6"}.get(value.get("AddressFamily")),
    },
    "NetIPConfiguration": {
        name: _lines_of(name)
        for name in ("IPv4Address", "IPv6DefaultGateway", "IPv4DefaultGateway", "DNSServer")
    },
    "MSFT_DNSClientGlobalSetting": {},
    "System.Management.Automation.PSDriveInfo": {
        "Used (GB)": lambda value: _gigabytes(value.get("Used")),
        "Free (GB)": lambda value: _gigabytes(value.get("Free")),
    },
}


def _view(kind: str) -> str:
    """Files and directories are rows of one table."""
    return "System.IO.FileInfo" if kind == "System.IO.DirectoryInfo" else kind


def format_objects(values: list[Any]) -> str:
    """The console output of one statement."""
    out: list[str] = []
    group: list[PsObject] = []

    def flush() -> None:
        if group:
            out.append(_objects(group))
            group.clear()

    for value in values:
        if isinstance(value, PsObject) and not _is_text(value):
            if group and _view(group[0].kind) != _view(value.kind):
                flush()
            group.append(value)
            continue
        flush()
        out.append(_plain(value))
    flush()
    return "".join(out)


_RECORDS = ("Warning", "Verbose", "Debug", "Information")
_AS_TEXT = frozenset(
    (
        "System.Guid",
        "System.Security.SecureString",
        *(f"System.Management.Automation.{one}Record" for one in _RECORDS),
        "System.Uri",
        "Microsoft.PowerShell.Commands.MatchInfo",
    )
)


def _is_text(value: PsObject) -> bool:
    """Shown as its text, including enum values."""
    return bool(value.text) and (value.kind in _AS_TEXT or "value__" in value.properties)


def _plain(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, DateTime):
        return f"\r\n{value.format('F')}\r\n\r\n"
    if isinstance(value, Dictionary):
        return _objects(table_entries(value)) if value else ""
    if isinstance(value, Hashtable):
        rows = [(to_text(key), _cell(item)) for key, item in value.items()]
        return (
            format_table(
                [
                    ("Name", [row[0] for row in rows], False),
                    ("Value", [row[1] for row in rows], False),
                ],
                pad=30,
            )
            if rows
            else ""
        )
    return to_text(value).replace("\r\n", "\n").replace("\n", "\r\n") + "\r\n"


def _objects(group: list[PsObject]) -> str:
    kind = group[0].kind
    if kind in ("System.IO.FileInfo", "System.IO.DirectoryInfo"):
        return _files(group)
    if kind == "Microsoft.Win32.RegistryKey":
        return _keys(group)
    if kind == "Microsoft.PowerShell.Commands.MemberDefinition":
        return _members(group)
    if kind == "System.RuntimeType":
        return _types(group)
    if kind == "System.Management.Automation.ErrorRecord":
        return "".join(_error(item) for item in group)
    columns = _columns(kind, group[0])
    listed = list_names(group[0]) if columns is None else None
    names = list(columns or listed or shown_properties(group[0]))
    if not names:
        return ""
    if columns == ():
        return ""
    if columns is None and (len(names) > 4 or listed is not None):
        return as_list(group, names)
    return as_table(group, names)


def shown_properties(value: PsObject) -> list[str]:
    return [name for name in value.properties if name not in value.hidden]


def has_own_view(value: Any) -> bool:
    """Files, registry keys and members: grouped below a heading."""
    return isinstance(value, PsObject) and value.kind in _OWN_VIEWS


_OWN_VIEWS = (
    "System.IO.FileInfo",
    "System.IO.DirectoryInfo",
    "Microsoft.Win32.RegistryKey",
    "Microsoft.PowerShell.Commands.MemberDefinition",
)


def default_columns(value: PsObject) -> tuple[str, ...] | None:
    return _columns(value.kind, value)


# What Format-List shows by default; of other kinds, all properties.
_LISTED: Final = {
    "System.Diagnostics.Process": ("Id", "Handles", "CPU", "SI", "Name"),
    "System.ServiceProcess.ServiceController": (
        "Name",
        "DisplayName",
        "Status",
        "DependentServices",
        "ServicesDependedOn",
        "CanPauseAndContinue",
        "CanShutdown",
        "CanStop",
        "ServiceType",
    ),
    "System.Collections.DictionaryEntry": ("Name", "Value"),
    "MSFT_NetIPAddress": (
        "IPAddress",
        "InterfaceIndex",
        "InterfaceAlias",
        "AddressFamily",
        "Type",
        "PrefixLength",
        "PrefixOrigin",
        "SuffixOrigin",
        "AddressState",
        "ValidLifetime",
        "PreferredLifetime",
        "SkipAsSource",
        "PolicyStore",
    ),
    "NetIPConfiguration": (
        "InterfaceAlias",
        "InterfaceIndex",
        "InterfaceDescription",
        "NetProfile.Name",
        "IPv4Address",
        "IPv6DefaultGateway",
        "IPv4DefaultGateway",
        "DNSServer",
    ),
    "MSFT_NetProtocolPortFilter": (
        "Protocol",
        "LocalPort",
        "RemotePort",
        "IcmpType",
        "DynamicTarget",
    ),
    "MSFT_DNSClientGlobalSetting": (
        "UseSuffixSearchList",
        "SuffixSearchList",
        "UseDevolution",
        "DevolutionLevel",
    ),
}


def list_names(value: PsObject) -> tuple[str, ...] | None:
    shown = SHOWN.get(value.kind.replace("\\", "/").rpartition("/")[2])
    if shown is not None and len(value.properties) > shown:
        return tuple(value.properties)[:shown]
    return _LISTED.get(value.kind)


def _columns(kind: str, first: PsObject) -> tuple[str, ...] | None:
    shown = SHOWN.get(kind.replace("\\", "/").rpartition("/")[2])
    if shown is not None and len(first.properties) > shown:
        names = tuple(first.properties)[:shown]
        return names if "CimInstance" in kind else None
    return _COLUMNS.get(kind)


def _error(record: PsObject) -> str:
    invocation = record.get("InvocationInfo")
    where = to_text(invocation.get("MyCommand")) if isinstance(invocation, PsObject) else ""
    return (
        f"{f'{where} : ' if where else ''}{record.text}\r\n"
        f"    + CategoryInfo          : {to_text(record.get('CategoryInfo'))}\r\n"
        f"    + FullyQualifiedErrorId : {to_text(record.get('FullyQualifiedErrorId'))}\r\n \r\n"
    )


def _keys(group: list[PsObject]) -> str:
    """Registry keys with their values, grouped by parent key."""
    out: list[str] = []
    above = ""
    for item in group:
        here = to_text(item.get("Name")).rpartition("\\")[0]
        if here != above:
            above = here
            out.append(
                f"\r\n\r\n    Hive: {here}\r\n\r\n\r\nName                           Property\r\n"
                "----                           --------\r\n"
            )
        values = item.get("Values") or {}
        width = max((len(name) for name in values), default=0)
        rows = [
            f"{name or '(default)':<{width}} : {_cell(value)}" for name, value in values.items()
        ] or [""]
        name = to_text(item.get("PSChildName"))
        out.append(f"{name:<30} {rows[0]}".rstrip() + "\r\n")
        out += [f"{'':<30} {row}\r\n" for row in rows[1:]]
    return "".join(out) + "\r\n\r\n"


def _types(group: list[PsObject]) -> str:
    names = ("IsPublic", "IsSerial", "Name", "BaseType")
    rows = [[to_text(item.get(name)) for name in names] for item in group]
    lines = [list(names), ["-" * len(name) for name in names], *rows]
    shown = [f"{a:<8} {b:<8} {c:<40} {d}".rstrip() for a, b, c, d in lines]
    return "\r\n" + "\r\n".join(shown) + "\r\n\r\n\r\n"


def _members(group: list[PsObject]) -> str:
    """Members grouped by their type."""
    out: list[str] = []
    for type_name in dict.fromkeys(to_text(item.get("TypeName")) for item in group):
        rows = [item for item in group if to_text(item.get("TypeName")) == type_name]
        table = as_table(rows, ["Name", "MemberType", "Definition"])
        out.append(f"\r\n\r\n   TypeName: {type_name}\r\n{table.removesuffix(chr(13) + chr(10))}")
    return "".join(out)


_SAMPLE_SET: Final = "Microsoft.PowerShell.Commands.GetCounter.PerformanceCounterSampleSet"
_HEADINGS = {
    "System.Management.Automation.AliasInfo": {"DisplayName": "Name"},
    _SAMPLE_SET: {"Readings": "CounterSamples"},
}
_FIRST_WIDTHS: Final = {_SAMPLE_SET: 25}
_BYTES = {"MSFT_Volume": ("SizeRemaining", "Size"), "MSFT_Partition": ("Size",)}
_UNITS = ((1 << 40, "TB"), (1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB"))


def shown_bytes(value: Any) -> Any:
    """A number of bytes as the storage cmdlets show it."""
    if not isinstance(value, int):
        return value
    for size, unit in _UNITS:
        if value >= size:
            return f"{value / size:.2f}".rstrip("0").rstrip(".") + f" {unit}"
    return f"{value} B"


def as_table(group: list[Any], names: list[str]) -> str:
    rows: list[tuple[str, list[str], bool]] = []
    kind = group[0].kind if isinstance(group[0], PsObject) else ""
    for name in names:
        values = [_column_value(item, name) for item in group]
        if name in _BYTES.get(kind, ()):
            shown = [to_text(shown_bytes(value)) for value in values]
            rows.append((name, shown, True))
            continue
        numeric = all(
            isinstance(value, int | float) and not isinstance(value, bool) for value in values
        )
        heading = _HEADINGS.get(kind, {}).get(name, name)
        rows.append((heading, [_cell(value) for value in values], numeric))
    return format_table(rows, pad=_FIRST_WIDTHS.get(kind, 0))


def as_list(group: list[Any], names: list[str]) -> str:
    width = max(len(name) for name in names)
    blocks = [
        "".join(
            f"{name:<{width}} : "
            + _cell(_column_value(item, name)).replace("\n", "\r\n" + " " * (width + 3))
            + "\r\n"
            for name in names
        )
        for item in group
    ]
    return "\r\n\r\n" + "\r\n".join(blocks) + "\r\n\r\n\r\n"


def _column_value(value: Any, name: str) -> Any:
    if isinstance(value, PsObject):
        computed = _COMPUTED.get(value.kind.partition("#")[0], {}).get(name)
        if computed is not None:
            return computed(value)
    return property_text(value, name)


def property_text(value: Any, name: str) -> Any:
    if isinstance(value, PsObject):
        return value.get(name)
    if isinstance(value, Hashtable):
        return value.find(name)
    if isinstance(value, str) and name.lower() == "length":
        return len(value)
    return None


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return "{" + ", ".join(to_text(item) for item in value) + "}"
    if isinstance(value, DateTime):
        return value.format("G")
    return to_text(value)


def format_table(columns: list[tuple[str, list[str], bool]], pad: int = 0) -> str:
    """Header, dashes and rows; numbers are right-aligned."""
    widths = [
        max([len(name), pad if index == 0 else 0, *(len(value) for value in values)])
        for index, (name, values, _) in enumerate(columns)
    ]
    lines: list[str] = []

    def line(cells: list[str]) -> str:
        shown = [
            cell.rjust(width) if columns[i][2] else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return " ".join(shown).rstrip()

    lines.append(line([name for name, _, _ in columns]))
    lines.append(line(["-" * len(name) for name, _, _ in columns]))
    for row in range(len(columns[0][1]) if columns else 0):
        lines.append(line([values[row] for _, values, _ in columns]))
    return "\r\n" + "\r\n".join(lines) + "\r\n\r\n\r\n"


def _files(group: list[PsObject]) -> str:
    out: list[str] = []
    directory: str | None = None
    for item in group:
        here = to_text(item.get("DirectoryName"))
        if here != directory:
            if directory is not None:
                out.append("\r\n\r\n")
            directory = here
            out.append(f"\r\n\r\n    Directory: {here}\r\n\r\n\r\n")
            out.append(
                "Mode                LastWriteTime         Length Name\r\n----                "
                "-------------         ------ ----\r\n"
            )
        written = item.get("LastWriteTime")
        when = (
            f"{written.format('M/d/yyyy'):>10} {written.format('h:mm tt'):>10}"
            if isinstance(written, DateTime)
            else " " * 21
        )
        length = to_text(item.get("Length")) if item.kind == "System.IO.FileInfo" else ""
        out.append(
            f"{to_text(item.get('Mode')):<6}    {when:>22} {length:>14} {to_text(item.get('Name'))}\r\n"
        )
    return "".join(out) + "\r\n\r\n"
