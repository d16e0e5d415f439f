"""Environment variables that every process of Windows has, whoever it runs for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from transom.hosts.windows.registry import Registry

MACHINE: Final = r"HKLM\SYSTEM\CurrentControlSet\Control\Session Manager\Environment"
"""Where a machine keeps those that somebody has set for all of its processes."""

PATH: Final = r"C:\Windows\system32;C:\Windows;C:\Windows\System32\Wbem;C:\Windows\System32\WindowsPowerShell\v1.0\;"
"""To be followed by the user's own."""

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


def of_machine(registry: Registry) -> Mapping[str, str]:
    return {name: str(value) for name, value in (registry.values(MACHINE) or {}).items()}
