"""Programs that only wait: a timer or nothing at all, no task."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from transom.kit.clock import Timer
from transom.userland.api import Program, ProgramContext
from transom.userland.posix.commands.options import parse_seconds
from transom.userland.process import IGNORED_BY_DEFAULT, SIGNAL_NUMBERS

_LONGEST = 10.0**9
_USUAL = ("", "/bin", "/usr/bin")


class Sleeper:
    """`sleep`: ends after its time; signals end it unless it is pid 1."""

    __slots__ = ("_context", "_timer")

    def __init__(self, context: ProgramContext, duration: float | None) -> None:
        self._context = context
        self._timer: Timer | None = None
        if duration is not None and duration < _LONGEST:
            self._timer = context.clock.call_later(duration, context.exit, 0)

    def signal(self, name: str) -> None:
        if self._context.pid != 1 and name not in IGNORED_BY_DEFAULT:
            self.kill()
            self._context.exit(128 + SIGNAL_NUMBERS.get(name, 15))

    def kill(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class Pause:
    """Keeps a sandbox alive, or only waits; exits on SIGTERM."""

    __slots__ = ("_context",)

    def __init__(self, context: ProgramContext) -> None:
        self._context = context
        if context.os == "linux" and context.pid != 1:
            context.terminal.err(b"Warning: pause should be the first process\n")

    def signal(self, name: str) -> None:
        context = self._context
        if name in ("SIGTERM", "SIGINT"):
            context.terminal.err(
                f"Shutting down, got signal: {'Terminated' if name == 'SIGTERM' else 'Interrupt'}\n".encode()
            )
            context.exit(0)
        elif name in ("CTRL_C_EVENT", "CTRL_BREAK_EVENT"):
            context.terminal.err(b"Shutting down, got signal\n")
            context.exit(0)
        elif context.os == "windows":
            context.exit(0xC000013A)

    def kill(self) -> None:
        return


def linux_idle_program(context: ProgramContext, argv: Sequence[str]) -> Program | None:
    """A timer program for commands that only wait."""
    if context.image.userland == "none":
        return None
    directory, name = posixpath.split(argv[0])
    if directory not in _USUAL or len(argv) < 2:
        return None
    if name == "sleep":
        try:
            return Sleeper(context, sum(parse_seconds(argument) for argument in argv[1:]))
        except ValueError:
            return None
    if name == "tail" and "-f" in argv[1:] and argv[-1] == "/dev/null" and len(argv) == 3:
        return Sleeper(context, None)
    return None
