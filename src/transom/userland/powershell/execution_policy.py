"""The execution policy: the settings of the registry and the process, and which scripts may run."""

from __future__ import annotations

from typing import Final

from transom.userland.powershell.session import PowerShellSession
from transom.userland.powershell.values import PowerShellError, to_text

POLICIES: Final = (
    "Unrestricted",
    "RemoteSigned",
    "AllSigned",
    "Restricted",
    "Bypass",
    "Undefined",
    "Default",
)
MACHINE_KEY: Final = r"HKLM\SOFTWARE\Microsoft\PowerShell\1\ShellIds\Microsoft.PowerShell"
PROCESS_VARIABLE: Final = "PSExecutionPolicyPreference"
_SERVER_DEFAULT: Final = "RemoteSigned"


def user_policy_key(evaluator: PowerShellSession) -> str:
    sid = evaluator.process.context.windows.account.sid
    return rf"HKU\{sid}\SOFTWARE\Microsoft\PowerShell\1\ShellIds\Microsoft.PowerShell"


def scope_policy(evaluator: PowerShellSession, scope: str) -> str:
    registry = evaluator.process.context.windows.system.registry
    match scope.lower():
        case "process":
            return evaluator.env.get(PROCESS_VARIABLE) or "Undefined"
        case "currentuser":
            return (
                to_text(registry.get(user_policy_key(evaluator), "ExecutionPolicy")) or "Undefined"
            )
        case "localmachine":
            return to_text(registry.get(MACHINE_KEY, "ExecutionPolicy")) or "Undefined"
    return "Undefined"


def execution_policy(evaluator: PowerShellSession) -> str:
    """The first policy that is defined; the default on servers is RemoteSigned."""
    for scope in ("Process", "CurrentUser", "LocalMachine"):
        policy = scope_policy(evaluator, scope)
        if policy not in ("Undefined", "Default"):
            return policy
    return _SERVER_DEFAULT


def check_script(evaluator: PowerShellSession, path: str) -> None:
    """Raises PowerShell's error for a script file that the policy blocks."""
    if not evaluator.process.windows or evaluator.process.context.native is not None:
        return
    policy = execution_policy(evaluator)
    if policy not in ("Restricted", "AllSigned"):
        return
    why = (
        "because running scripts is disabled on this system. For more information, see "
        "about_Execution_Policies at https:/go.microsoft.com/fwlink/?LinkID=135170."
        if policy == "Restricted"
        else "The file is not digitally signed. You cannot run this script on the current system."
    )
    raise PowerShellError(
        f"File {path} cannot be loaded{'. ' if policy == 'AllSigned' else ' '}{why}",
        "SecurityError: (:) [], PSSecurityException",
        "UnauthorizedAccess",
    )
