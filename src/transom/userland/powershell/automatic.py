"""PowerShell's automatic variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from transom.userland.powershell.exceptions import error_record
from transom.userland.powershell.values import Hashtable, PowerShellError, PsObject
from transom.userland.process import Process
from transom.userland.windows.variables import Variables


class AutomaticState(Protocol):
    """What the automatic variables show of a session."""

    process: Process
    env: Variables
    success: bool
    last_exit: int | None
    errors: list[PowerShellError]


def _version_table(evaluator: AutomaticState) -> Hashtable:
    windows = evaluator.process.windows and not evaluator.process.name.startswith("pwsh")
    version = "5.1.17763.1490" if windows else "7.1.1"
    major, minor, *rest = (int(part) for part in version.split("."))
    parts = {
        "Major": major,
        "Minor": minor,
        "Build": rest[0],
        "Revision": rest[1] if len(rest) > 1 else -1,
    }
    shown: dict[str, Any] = {
        "PSVersion": PsObject("System.Version", parts, version),
        "PSEdition": "Desktop" if windows else "Core",
    }
    note = evaluator.process.context.image.options.get("note", "")
    return Hashtable(shown | ({"Note": note} if note else {}))


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
    "iswindows": lambda evaluator: evaluator.process.windows,
    "islinux": lambda evaluator: not evaluator.process.windows,
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
