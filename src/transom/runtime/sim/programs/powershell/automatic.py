"""Variables that PowerShell itself sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from transom.runtime.sim.programs.powershell.values import Hashtable, PowerShellError, PsObject

if TYPE_CHECKING:
    from transom.runtime.sim.programs.powershell.evaluator import Evaluator


def error_record(error: PowerShellError) -> PsObject:
    exception = PsObject("System.Management.Automation.RuntimeException", {"Message": error.message}, error.message)
    return PsObject(
        "System.Management.Automation.ErrorRecord",
        {
            "Exception": exception,
            "FullyQualifiedErrorId": error.identity,
            "TargetObject": error.value,
            "ScriptStackTrace": "at <ScriptBlock>, <No file>: line 1",
        },
        error.message,
    )


def _version_table(evaluator: Evaluator) -> Hashtable:
    windows = evaluator.process.windows and not evaluator.process.name.startswith("pwsh")
    shown = {"PSVersion": "5.1.17763.1490" if windows else "7.1.1", "PSEdition": "Desktop" if windows else "Core"}
    note = evaluator.process.context.image.options.get("note", "")
    return Hashtable(shown | ({"Note": note} if note else {}))


AUTOMATIC: dict[str, Callable[[Evaluator], Any]] = {
    "true": lambda evaluator: True,
    "false": lambda evaluator: False,
    "null": lambda evaluator: None,
    "?": lambda evaluator: evaluator.success,
    "lastexitcode": lambda evaluator: evaluator.last_exit,
    "error": lambda evaluator: [error_record(error) for error in evaluator.errors],
    "pid": lambda evaluator: evaluator.process.pid,
    "pwd": lambda evaluator: PsObject(
        "System.Management.Automation.PathInfo", {"Path": evaluator.process.cwd}, evaluator.process.cwd
    ),
    "home": lambda evaluator: evaluator.env.get("USERPROFILE", "C:\\Users\\ContainerAdministrator"),
    "pshome": lambda evaluator: r"C:\Windows\System32\WindowsPowerShell\v1.0",
    "host": lambda evaluator: PsObject(
        "System.Management.Automation.Internal.Host.InternalHost", {"Name": "ConsoleHost", "Version": "5.1"}
    ),
    "psversiontable": _version_table,
    "iswindows": lambda evaluator: evaluator.process.windows,
    "islinux": lambda evaluator: not evaluator.process.windows,
    "erroractionpreference": lambda evaluator: "Continue",
    "progresspreference": lambda evaluator: "Continue",
    "args": lambda evaluator: [],
    "psscriptroot": lambda evaluator: evaluator.process.cwd,
    "computername": lambda evaluator: None,
}
