"""PowerShell's automatic variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from transom.userland.powershell.exceptions import error_record
from transom.userland.powershell.values import (
    Hashtable,
    PowerShellError,
    PsObject,
    version_object,
)
from transom.userland.process import Process
from transom.userland.windows.variables import Variables


class AutomaticState(Protocol):
    """What the automatic variables show of a session."""

    process: Process
    env: Variables
    success: bool
    last_exit: int | None
    errors: list[PowerShellError]


def windows_powershell_version(build: str) -> str:
    """The version of Windows PowerShell 5.1, which is serviced with Windows: 5.1.17763.1697."""
    return "5.1." + build.removeprefix("10.0.")


def _desktop_versions(build: str) -> dict[str, Any]:
    return {
        "PSVersion": version_object(windows_powershell_version(build)),
        "PSEdition": "Desktop",
        "PSCompatibleVersions": [
            version_object(one)
            for one in ("1.0", "2.0", "3.0", "4.0", "5.0", windows_powershell_version(build))
        ],
        "BuildVersion": version_object(build),
        "CLRVersion": version_object("4.0.30319.42000"),
        "WSManStackVersion": version_object("3.0"),
        "PSRemotingProtocolVersion": version_object("2.3"),
        "SerializationVersion": version_object("1.1.0.1"),
    }


def _version_table(evaluator: AutomaticState) -> Hashtable:
    process = evaluator.process
    if process.windows and not process.name.startswith("pwsh"):
        shown = _desktop_versions(process.context.platform.build)
    else:
        shown = {"PSVersion": version_object("7.1.1"), "PSEdition": "Core"}
    note = process.context.image.options.get("note", "")
    return Hashtable(shown | ({"Note": note} if note else {}))


def _is_core(evaluator: AutomaticState) -> bool:
    """PowerShell 7 has variables that Windows PowerShell does not have."""
    return not evaluator.process.windows or evaluator.process.name.startswith("pwsh")


AUTOMATIC: dict[str, Callable[[AutomaticState], Any]] = {
    "true": lambda evaluator: True,
    "false": lambda evaluator: False,
    "null": lambda evaluator: None,
    "?": lambda evaluator: evaluator.success,
    "lastexitcode": lambda evaluator: evaluator.last_exit,
    "error": lambda evaluator: [error_record(error) for error in evaluator.errors],
    "pid": lambda evaluator: evaluator.process.pid,
    "pwd": lambda evaluator: PsObject(
        "System.Management.Automation.PathInfo",
        {"Path": evaluator.process.cwd},
        evaluator.process.cwd,
    ),
    "home": lambda evaluator: evaluator.env.get("USERPROFILE", "C:\\Users\\ContainerAdministrator"),
    "pshome": lambda evaluator: r"C:\Windows\System32\WindowsPowerShell\v1.0",
    "host": lambda evaluator: PsObject(
        "System.Management.Automation.Internal.Host.InternalHost",
        {
            "Name": "ConsoleHost",
            "Version": _version_table(evaluator)["PSVersion"],
            "CurrentCulture": "en-US",
            "CurrentUICulture": "en-US",
            "IsRunspacePushed": False,
        },
    ),
    "psversiontable": _version_table,
    "iswindows": lambda evaluator: evaluator.process.windows if _is_core(evaluator) else None,
    "islinux": lambda evaluator: not evaluator.process.windows if _is_core(evaluator) else None,
    "erroractionpreference": lambda evaluator: "Continue",
    "warningpreference": lambda evaluator: "Continue",
    "verbosepreference": lambda evaluator: "SilentlyContinue",
    "debugpreference": lambda evaluator: "SilentlyContinue",
    "informationpreference": lambda evaluator: "SilentlyContinue",
    "confirmpreference": lambda evaluator: "High",
    "psculture": lambda evaluator: "en-US",
    "psuiculture": lambda evaluator: "en-US",
    "profile": lambda evaluator: (
        evaluator.env.get("USERPROFILE", "C:\\Users\\ContainerAdministrator")
        + r"\Documents\WindowsPowerShell\Microsoft.PowerShell_profile.ps1"
    ),
    "ofs": lambda evaluator: " ",
    "maximumerrorcount": lambda evaluator: 256,
    "progresspreference": lambda evaluator: "Continue",
    "args": lambda evaluator: [],
    "psscriptroot": lambda evaluator: evaluator.process.cwd,
    "computername": lambda evaluator: None,
}
