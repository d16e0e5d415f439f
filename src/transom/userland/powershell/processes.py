"""Methods of process objects."""

from __future__ import annotations

from typing import Any, Final

from transom.userland.powershell.session import PowerShellSession
from transom.userland.powershell.values import PsObject, to_number

_STEP: Final = 0.1


def _kill(evaluator: PowerShellSession, target: PsObject, arguments: list[Any]) -> None:
    evaluator.process.context.processes.signal(int(to_number(target.get("Id"))), "SIGKILL")


async def _wait(
    evaluator: PowerShellSession, target: PsObject, arguments: list[Any]
) -> bool | None:
    """True if it ended in time, False after the timeout; no output without a limit."""
    pid, context = int(to_number(target.get("Id"))), evaluator.process.context
    limit = float(to_number(arguments[0])) / 1000 if arguments else None
    waited = 0.0
    while any(entry.pid == pid for entry in context.processes.list()):
        if limit is not None and waited >= limit:
            return False
        await evaluator.process.sleep(_STEP)
        waited += _STEP
    await evaluator.process.sleep(0)
    return True if limit is not None else None


METHODS: Final = {
    (kind, name): method
    for kind in ("System.Diagnostics.Process", "System.Diagnostics.Process#IncludeUserName")
    for name, method in {
        "kill": _kill,
        "waitforexit": _wait,
        "refresh": lambda evaluator, target, arguments: None,
        "close": lambda evaluator, target, arguments: None,
    }.items()
}
