"""Environment variables that every Windows process has, for all accounts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from transom.kit.lazy import lazy_pattern
from transom.machines.windows.registry import ExpandString, Value, WindowsRegistry

MACHINE: Final = r"HKLM\SYSTEM\CurrentControlSet\Control\Session Manager\Environment"
"""The key for the variables of all processes of a machine."""

PATH: Final = r"C:\Windows\system32;C:\Windows;C:\Windows\System32\Wbem;C:\Windows\System32\WindowsPowerShell\v1.0\;"
"""Followed by the user's own."""

INSTALLED: Final = {
    "ALLUSERSPROFILE": r"C:\ProgramData",
    "CommonProgramFiles": r"C:\Program Files\Common Files",
    "CommonProgramFiles(x86)": r"C:\Program Files (x86)\Common Files",
    "CommonProgramW6432": r"C:\Program Files\Common Files",
    "ComSpec": r"C:\Windows\system32\cmd.exe",
    "OS": "Windows_NT",
    "PATHEXT": ".COM;.EXE;.BAT;.CMD;.VBS;.VBE;.JS;.JSE;.WSF;.WSH;.MSC",
    "PROCESSOR_ARCHITECTURE": "AMD64",
    "ProgramData": r"C:\ProgramData",
    "ProgramFiles": r"C:\Program Files",
    "ProgramFiles(x86)": r"C:\Program Files (x86)",
    "ProgramW6432": r"C:\Program Files",
    "PUBLIC": r"C:\Users\Public",
    "SystemDrive": "C:",
    "SystemRoot": r"C:\Windows",
    "windir": r"C:\Windows",
}


_REFERENCE: Final = lazy_pattern(r"%([^%]+)%")


def expand_registry_value(value: Value, known: Mapping[str, str]) -> str:
    """A registry value as a process sees it: expands the variables in a REG_EXPAND_SZ."""
    if not isinstance(value, ExpandString):
        return str(value)
    folded = {name.lower(): text for name, text in known.items()}
    return _REFERENCE.sub(lambda match: folded.get(match[1].lower(), match[0]), value)


def user_variables(registry: WindowsRegistry, sid: str) -> Mapping[str, str]:
    """The variables that a user has set for new processes."""
    values = registry.values(user_key(sid)) or {}
    return {name: expand_registry_value(value, INSTALLED) for name, value in values.items()}


def user_key(sid: str) -> str:
    return rf"HKU\{sid}\Environment"


def machine_variables(registry: WindowsRegistry) -> Mapping[str, str]:
    values = registry.values(MACHINE) or {}
    return {name: expand_registry_value(value, INSTALLED) for name, value in values.items()}
