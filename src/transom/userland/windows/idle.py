"""Windows programs that only keep a container running: a timer instead of a task."""

from __future__ import annotations

import ntpath
from collections.abc import Sequence

from transom.userland.api import Program, ProgramContext
from transom.userland.process import CONTROL_C_EXIT


class Endless:
    """`ping -t` and similar: prints lines regularly, from a timer."""

    __slots__ = ("_context", "_stopped", "_text")

    def __init__(self, context: ProgramContext, first: bytes, text: bytes) -> None:
        self._context = context
        self._text = text
        self._stopped = False
        context.terminal.out(first)
        self._tick()

    def _tick(self) -> None:
        if not self._stopped:
            self._context.terminal.out(self._text)
            self._context.clock.call_later(1.0, self._tick)

    def signal(self, name: str) -> None:
        self.kill()
        self._context.exit(CONTROL_C_EXIT)

    def kill(self) -> None:
        self._stopped = True


def windows_idle_program(context: ProgramContext) -> Program | None:
    """`ping -t localhost`, alone or after `cmd /c`, which keeps a Windows container running."""
    argv = _without_cmd(context.argv)
    stem = ntpath.basename(argv[0].replace("/", "\\")).lower().removesuffix(".exe") if argv else ""
    options = [argument.lower().replace("/", "-") for argument in argv[1:]]
    if stem != "ping" or "-t" not in options or len(options) != 2:
        return None
    host = options[1 - options.index("-t")]
    if host not in ("localhost", "127.0.0.1"):
        return None
    address = "127.0.0.1" if host == "127.0.0.1" else "::1"
    name = address if host == "127.0.0.1" else f"{context.network.hostname} [{address}]"
    first = f"\r\nPinging {name} with 32 bytes of data:\r\n".encode()
    reply = (
        "Reply from 127.0.0.1: bytes=32 time<1ms TTL=128"
        if address == "127.0.0.1"
        else "Reply from ::1: time<1ms "
    )
    return Endless(context, first, reply.encode() + b"\r\n")


def _without_cmd(argv: Sequence[str]) -> list[str]:
    words = list(argv)
    stem = ntpath.basename(words[0].replace("/", "\\")).lower().removesuffix(".exe")
    if stem != "cmd":
        return words
    for index, word in enumerate(words[1:], 1):
        if word.lower() in ("/c", "/k"):
            rest = words[index + 1 :]
            line = " ".join(rest)
            return [] if any(c in line for c in '&|<>()^%"') else line.split()
    return []
