"""What a shell and its builtins share: control flow, jobs and the names of signals."""

from __future__ import annotations

import asyncio

from transom.userland.process import SIGNAL_NUMBERS, Process


class LoopExit(Exception):
    """`break` and `continue`."""

    def __init__(self, levels: int, again: bool) -> None:
        super().__init__()
        self.levels = levels
        self.again = again


class FunctionReturn(Exception):
    def __init__(self, code: int) -> None:
        super().__init__()
        self.code = code


class ExpansionFault(Exception):
    """`${x:?text}`, an unset variable with `set -u`, or bad arithmetic. Its text follows the
    shell's name.
    """


class ShellJob:
    __slots__ = ("done", "number", "process", "text")

    def __init__(self, number: int, process: Process, done: asyncio.Task[int], text: str) -> None:
        self.number = number
        self.process = process
        self.done = done
        self.text = text


SIGNALS_BY_NUMBER = {number: name for name, number in SIGNAL_NUMBERS.items()}


def trap_signal_name(text: str) -> str | None:
    """`TERM`, `SIGTERM`, `15` -> `SIGTERM`; `EXIT` and `0` -> `EXIT`."""
    upper = text.upper()
    if upper in ("0", "EXIT"):
        return "EXIT"
    if upper.isdigit():
        return SIGNALS_BY_NUMBER.get(int(upper))
    name = upper if upper.startswith("SIG") else "SIG" + upper
    return name if name in SIGNAL_NUMBERS else None
