"""System.Diagnostics.Stopwatch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from transom.userland.powershell.operators import time_span
from transom.userland.powershell.session import PowerShellSession
from transom.userland.powershell.values import PsObject

STOPWATCH: Final = "System.Diagnostics.Stopwatch"


def update_elapsed(evaluator: PowerShellSession, target: PsObject) -> None:
    """Sets the properties that tell how long it has run."""
    now = evaluator.process.context.clock.monotonic()
    before = float(target.properties.get("before", 0.0))
    seconds = before + (now - float(target.properties["start"]) if target.get("IsRunning") else 0.0)
    target.properties["Elapsed"] = time_span(seconds)
    target.properties["ElapsedMilliseconds"] = int(seconds * 1000)
    target.properties["ElapsedTicks"] = int(seconds * 10_000_000)


def _stop_watch(evaluator: PowerShellSession, target: PsObject, arguments: list[Any]) -> None:
    update_elapsed(evaluator, target)
    target.properties["before"] = target.get("Elapsed").get("TotalSeconds")
    target.properties["IsRunning"] = False


def _start_watch(evaluator: PowerShellSession, target: PsObject, arguments: list[Any]) -> None:
    if not target.get("IsRunning"):
        target.properties["start"] = evaluator.process.context.clock.monotonic()
        target.properties["IsRunning"] = True


def _reset_watch(evaluator: PowerShellSession, target: PsObject, arguments: list[Any]) -> None:
    target.properties |= {"before": 0.0, "IsRunning": False}
    update_elapsed(evaluator, target)


def _restart_watch(evaluator: PowerShellSession, target: PsObject, arguments: list[Any]) -> None:
    _reset_watch(evaluator, target, arguments)
    _start_watch(evaluator, target, arguments)


METHODS: Final[dict[tuple[str, str], Callable[..., None]]] = {
    (STOPWATCH, "stop"): _stop_watch,
    (STOPWATCH, "start"): _start_watch,
    (STOPWATCH, "restart"): _restart_watch,
    (STOPWATCH, "reset"): _reset_watch,
}
