"""$PSCmdlet of an advanced function: ShouldProcess, ThrowTerminatingError and its like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from transom.userland.powershell.control import Thrown
from transom.userland.powershell.session import PowerShellSession
from transom.userland.powershell.values import PsObject, to_bool, to_text

SCRIPT_CMDLET: Final = "System.Management.Automation.PSScriptCmdlet"


async def _should_process(
    evaluator: PowerShellSession, target: PsObject, arguments: list[Any]
) -> bool:
    """$PSCmdlet.ShouldProcess(target, operation): False after -WhatIf, or an answer of no."""
    shown = [to_text(one) for one in arguments]
    operation = shown[1] if len(shown) > 1 else (evaluator.calls[-1] if evaluator.calls else "")
    text = f'Performing the operation "{operation}" on target "{shown[0] if shown else ""}".'
    if to_bool(evaluator.get("WhatIfPreference")):
        evaluator.flush()
        evaluator.process.write(f"What if: {text}\r\n")
        return False
    if to_text(evaluator.get("ConfirmPreference")).lower() == "low":
        evaluator.flush()
        return await evaluator.ask(text) in ("y", "a")
    if to_text(evaluator.get("VerbosePreference")).lower() == "continue":
        evaluator.write_stream("4", "VERBOSE: ", "Verbose", text)
    return True


def _throw(evaluator: PowerShellSession, target: PsObject, arguments: list[Any]) -> None:
    record = arguments[0] if arguments else None
    message = to_text(record)
    category, identity = "NotSpecified: (:) [], RuntimeException", "RuntimeException"
    if isinstance(record, PsObject):
        category = to_text(record.get("CategoryInfo")) or category
        identity = to_text(record.get("FullyQualifiedErrorId")) or identity
    raise Thrown(message, category, identity, where=evaluator.calls[-1] if evaluator.calls else "")


def _written(number: str, prefix: str, kind: str, preference: str) -> Callable[..., None]:
    def run(evaluator: PowerShellSession, target: PsObject, arguments: list[Any]) -> None:
        if to_text(evaluator.get(preference)).lower() in ("continue", "inquire"):
            evaluator.write_stream(number, prefix, kind, to_text(arguments[0] if arguments else ""))

    return run


METHODS: Final[dict[tuple[str, str], Callable[..., Any]]] = {
    (SCRIPT_CMDLET, "shouldprocess"): _should_process,
    (SCRIPT_CMDLET, "throwterminatingerror"): _throw,
    (SCRIPT_CMDLET, "writeverbose"): _written("4", "VERBOSE: ", "Verbose", "VerbosePreference"),
    (SCRIPT_CMDLET, "writewarning"): _written("3", "WARNING: ", "Warning", "WarningPreference"),
    (SCRIPT_CMDLET, "writedebug"): _written("5", "DEBUG: ", "Debug", "DebugPreference"),
}
