"""Windows Management Instrumentation: the table of its classes, and queries on them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from transom.userland.api import ProgramContext
from transom.userland.regex import compile_pattern
from transom.userland.windows import wmi, wmi_devices
from transom.userland.windows.unsupported_classes import is_unsupported_class
from transom.userland.windows.wmi import Instance

CLASSES: Final[Mapping[str, tuple[str, Callable[[ProgramContext], list[Instance]]]]] = {
    name.lower(): (name, function)
    for name, function in {
        "CIM_DataFile": lambda context: [],
        "Win32_Account": wmi_devices.wmi_accounts,
        "Win32_BIOS": wmi.wmi_bios,
        "Win32_ComputerSystemProduct": wmi_devices.wmi_computer_product,
        "Win32_Directory": lambda context: [],
        "Win32_DiskDrive": wmi_devices.wmi_disk_drives,
        "Win32_DiskPartition": wmi_devices.wmi_disk_partitions,
        "Win32_GroupUser": wmi_devices.wmi_group_users,
        "Win32_LoggedOnUser": wmi_devices.wmi_logged_on_users,
        "Win32_LogonSession": wmi_devices.wmi_logon_sessions,
        "Win32_NTEventlogFile": wmi_devices.wmi_event_logs,
        "Win32_NTLogEvent": wmi_devices.wmi_events,
        "Win32_NetworkAdapter": wmi_devices.wmi_adapters,
        "Win32_PerfFormattedData_PerfDisk_LogicalDisk": wmi_devices.wmi_disk_counters,
        "Win32_PerfFormattedData_PerfOS_Processor": wmi_devices.wmi_processor_counters,
        "Win32_PerfFormattedData_PerfOS_System": wmi_devices.wmi_system_counters,
        "Win32_PerfFormattedData_PerfProc_Process": wmi_devices.wmi_process_counters,
        "Win32_PhysicalMemory": wmi_devices.wmi_physical_memory,
        "Win32_Product": wmi_devices.wmi_products,
        "Win32_Share": wmi_devices.wmi_shares,
        "Win32_StartupCommand": wmi_devices.wmi_startup_commands,
        "Win32_UserProfile": wmi_devices.wmi_profiles,
        "Win32_ComputerSystem": wmi.wmi_computer_system,
        "Win32_Environment": wmi.wmi_environment,
        "Win32_Group": wmi.wmi_group,
        "Win32_LogicalDisk": wmi.wmi_logical_disk,
        "Win32_NetworkAdapterConfiguration": wmi.wmi_adapter_configuration,
        "Win32_OperatingSystem": wmi.wmi_operating_system,
        "Win32_PerfFormattedData_PerfOS_Memory": wmi.wmi_memory_counters,
        "Win32_PageFileSetting": wmi.wmi_page_file_setting,
        "Win32_PageFileUsage": wmi.wmi_page_file,
        "Win32_Process": wmi.wmi_process_rows,
        "Win32_Processor": wmi.wmi_processor_rows,
        "Win32_QuickFixEngineering": wmi.wmi_fixes,
        "Win32_ScheduledJob": wmi.wmi_scheduled,
        "Win32_Service": wmi.wmi_service,
        "Win32_TimeZone": wmi.wmi_time_zone,
        "Win32_UserAccount": wmi.wmi_user_account,
        "Win32_Volume": wmi.wmi_volume,
    }.items()
}


_FILE_CLASSES: Final = ("CIM_DataFile", "Win32_Directory")  # a query must name the file
_NAMED: Final = re.compile(r"name\s*=\s*['\"]([^'\"]+)['\"]", re.IGNORECASE)


class QueryError(Exception):
    """The query is not valid."""


class NoClassError(QueryError):
    """The class does not exist."""


class UnsupportedClassError(QueryError):
    """Windows has the class, the simulation has not."""


def instances(
    context: ProgramContext, name: str, condition: str = ""
) -> tuple[str, list[Instance]]:
    """The name of a class as WMI writes it, and its instances that meet a condition. Raises
    QueryError.
    """
    found = CLASSES.get(name.lower())
    if found is None:
        raise UnsupportedClassError(name) if is_unsupported_class(name) else NoClassError(name)
    rows = found[1](context)
    if found[0] in _FILE_CLASSES:
        wanted = _NAMED.search(condition)
        path = wanted[1].replace("\\\\", "\\") if wanted is not None else ""
        rows = wmi_devices.find_files(context, path, directory=found[0] == "Win32_Directory")
    if condition.strip():
        meets = parse_condition(condition)
        rows = [row for row in rows if meets(row)]
    return found[0], rows


def wmi_query(context: ProgramContext, text: str) -> tuple[str, list[Instance]]:
    """`SELECT a, b FROM Win32_Process WHERE c = 'd'`. Raises QueryError."""
    words = text.strip().replace("\t", " ").replace("\r", " ").replace("\n", " ")
    place = words.lower().find(" from ")
    if not words.lower().startswith("select ") or place < 0:
        raise QueryError(text)
    name, _, rest = words[place + 6 :].strip().partition(" ")
    rest = rest.strip()
    if rest and not rest.lower().startswith("where "):
        raise QueryError(text)
    name, rows = instances(context, name, rest[6:])
    wanted = [word.strip().lower() for word in words[7:place].split(",")]
    if wanted != ["*"]:
        rows = [{key: value for key, value in row.items() if key.lower() in wanted} for row in rows]
    return name, rows


_TOKEN: Final = re.compile(
    r"\s*(?:(\()|(\))|(and\b|or\b|not\b)|([A-Za-z_]\w*)\s*(<>|!=|<=|>=|=|<|>|like\b|is\s+not\b|is\b)\s*"
    r"(?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"|([^\s()]+)))",
    re.IGNORECASE,
)
Test = Callable[[Instance], bool]


def parse_condition(text: str) -> Test:
    """`Name = 'x' AND (State <> 'Running' OR ProcessId > 4)`. Raises QueryError."""
    tokens: list[re.Match[str]] = []
    position = 0
    while position < len(text.rstrip()):
        match = _TOKEN.match(text, position)
        if match is None:
            raise QueryError(text)
        tokens.append(match)
        position = match.end()
    if not tokens or len(tokens) > 200:
        raise QueryError(text)
    test, rest = _either(tokens, 0)
    if rest != len(tokens):
        raise QueryError(text)
    return test


def _word(tokens: Sequence[re.Match[str]], index: int) -> str:
    return (tokens[index][3] or "").lower() if index < len(tokens) else ""


def _either(tokens: Sequence[re.Match[str]], index: int) -> tuple[Test, int]:
    test, index = _both(tokens, index)
    tests = [test]
    while _word(tokens, index) == "or":
        test, index = _both(tokens, index + 1)
        tests.append(test)
    return (lambda row: any(one(row) for one in tests)), index


def _both(tokens: Sequence[re.Match[str]], index: int) -> tuple[Test, int]:
    test, index = _one(tokens, index)
    tests = [test]
    while _word(tokens, index) == "and":
        test, index = _one(tokens, index + 1)
        tests.append(test)
    return (lambda row: all(one(row) for one in tests)), index


def _one(tokens: Sequence[re.Match[str]], index: int) -> tuple[Test, int]:
    if index >= len(tokens):
        raise QueryError("")
    token = tokens[index]
    if _word(tokens, index) == "not":
        test, index = _one(tokens, index + 1)
        return (lambda row: not test(row)), index
    if token[1]:
        test, index = _either(tokens, index + 1)
        if index >= len(tokens) or not tokens[index][2]:
            raise QueryError("")
        return test, index + 1
    if not token[4]:
        raise QueryError("")
    value = next((part for part in (token[6], token[7], token[8]) if part is not None), "")
    return _comparison(
        token[4].lower(), re.sub(r"\s+", " ", token[5].lower()), value.replace("\\\\", "\\")
    ), index + 1


def _comparison(name: str, operator: str, wanted: str) -> Test:
    def test(row: Instance) -> bool:
        key = next((key for key in row if key.lower() == name), None)
        if key is None:
            raise QueryError(name)
        value = row[key]
        if operator in ("is", "is not"):
            return (value is None) == (operator == "is")
        if operator == "like":
            pattern = re.escape(wanted).replace("%", ".*").replace("_", ".")
            return (
                compile_pattern(f"^(?:{pattern})$", ignore_case=True).search(str(value or ""))
                is not None
            )
        a, b = _comparable(value, wanted)
        order = (a > b) - (a < b)
        return {
            "=": order == 0,
            "<>": order != 0,
            "!=": order != 0,
            "<": order < 0,
            "<=": order <= 0,
            ">": order > 0,
            ">=": order >= 0,
        }[operator]

    return test


def _comparable(value: Any, wanted: str) -> tuple[Any, Any]:
    if isinstance(value, bool):
        return value, wanted.lower() in ("true", "1")
    if isinstance(value, int | float):
        try:
            return value, float(wanted)
        except ValueError:
            return str(value), wanted
    return str(value if value is not None else "").lower(), wanted.lower()
