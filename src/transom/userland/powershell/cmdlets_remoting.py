"""Invoke-Command, Enter-PSSession and New-PSSession: no machine here answers WS-Management."""

from __future__ import annotations

from typing import Final

from transom.userland.powershell.cmdlets import CmdletCall, cmdlet_row
from transom.userland.powershell.values import PowerShellError, ScriptBlock, to_items, to_text

_HELP: Final = "For more information, see the about_Remote_Troubleshooting Help topic."
_UNTRUSTED: Final = (
    "The WinRM client cannot process the request. If the authentication scheme is different from "
    "Kerberos, or if the client computer is not joined to a domain, then HTTPS transport must be "
    "used or the destination machine must be added to the TrustedHosts configuration setting. Use "
    "winrm.cmd to configure TrustedHosts. Note that computers in the TrustedHosts list might not be "
    "authenticated. You can get more information about that by running the following command: winrm "
    f"help config. {_HELP}"
)
_UNREACHABLE: Final = (
    "The client cannot connect to the destination specified in the request. Verify that the service "
    "on the destination is running and is accepting requests. Consult the logs and documentation "
    "for the WS-Management service running on the destination, most commonly IIS or WinRM. If the "
    "destination is the WinRM service, run the following command on the destination to analyze and "
    f'configure the WinRM service: "winrm quickconfig". {_HELP}'
)


def _is_local(call: CmdletCall, computer: str) -> bool:
    own = call.process.context.windows.system.computer_name.lower()
    return computer.lower() in ("localhost", ".", "127.0.0.1", "::1", own)


def _reason(call: CmdletCall, computer: str) -> tuple[str, str]:
    """The message and the identity of the error when connecting to a computer."""
    failed = f"Connecting to remote server {computer} failed with the following error message : "
    if _is_local(call, computer):
        return failed + _UNREACHABLE, "CannotConnect"
    return failed + _UNTRUSTED, "ServerNotTrusted"


async def _invoke(call: CmdletCall) -> None:
    block = call.get("ScriptBlock")
    computers = [to_text(one) for one in to_items(call.get("ComputerName"))]
    if not isinstance(block, ScriptBlock) and computers:  # `Invoke-Command COMPUTER BLOCK`
        computers, block = [to_text(block)], call.get("ComputerName")
    if not isinstance(block, ScriptBlock):
        raise PowerShellError("Cannot evaluate parameter 'ScriptBlock'.")
    if not computers:
        await call.evaluator.call_block(block, to_items(call.get("ArgumentList")), own_scope=True)
    for computer in computers:
        message, identity = _reason(call, computer)
        call.fail(
            f"[{computer}] {message}",
            f"OpenError: ({computer}:String) [], PSRemotingTransportException",
            f"{identity},PSSessionStateBroken",
        )


def _enter(call: CmdletCall) -> None:
    computer = call.text("ComputerName", "localhost")
    message, _ = _reason(call, computer)
    call.fail(
        message,
        f"InvalidArgument: ({computer}:String) [Enter-PSSession], PSRemotingTransportException",
        "CreateRemoteRunspaceFailed",
    )


def _new(call: CmdletCall) -> None:
    for computer in map(to_text, to_items(call.get("ComputerName", "localhost"))):
        message, identity = _reason(call, computer)
        call.fail(
            f"[{computer}] {message}",
            "OpenError: (System.Manageme....RemoteRunspace:RemoteRunspace) [New-PSSession], "
            "PSRemotingTransportException",
            f"{identity},PSSessionOpenFailed",
        )


CMDLETS = (
    cmdlet_row(
        "Invoke-Command",
        _invoke,
        "ScriptBlock",
        "AsJob HideComputerName",
        "ArgumentList ComputerName Credential Port UseSSL Session Authentication",
    ),
    cmdlet_row("Enter-PSSession", _enter, "ComputerName", "UseSSL", "Credential Port"),
    cmdlet_row("New-PSSession", _new, "ComputerName", "UseSSL", "Credential Port Name"),
)
