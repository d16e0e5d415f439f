"""choice: asks for one of several keys."""

from __future__ import annotations

import asyncio
from typing import Final

from transom.userland.process import Command, Process

_USAGE: Final = 'Type "CHOICE /?" for usage.'
_MAX_SECONDS: Final = 9999


def _fail(process: Process, text: str) -> int:
    process.complain(f"ERROR: {text}\r\n{_USAGE}")
    return 255


async def choice(process: Process) -> int:
    """The exit code is the number of the key among the choices."""
    choices, message, default, seconds = "YN", "", "", ""
    sensitive, shown = False, True
    words = iter(process.argv[1:])
    for word in words:
        match word.lower():
            case "/c":
                choices = next(words, "")
            case "/m":
                message = next(words, "")
            case "/d":
                default = next(words, "")
            case "/t":
                seconds = next(words, "")
            case "/cs":
                sensitive = True
            case "/n":
                shown = False
            case _:
                return _fail(process, f"Invalid argument/option - '{word}'.")
    keys = choices if sensitive else choices.upper()
    default = default if sensitive else default.upper()
    if problem := _invalid(keys, default, seconds):
        return _fail(process, problem)
    requested = f"[{','.join(keys)}]?" if shown else ""
    process.write(" ".join(part for part in (message, requested) if part))
    while True:
        key = await _read_key(process, float(seconds) if seconds else None)
        if key is None or not key:
            if not default:
                return _fail(process, "The file is either empty or does not contain the choices.")
            key = default
        key = key if sensitive else key.upper()
        if key in keys:
            process.write(f"{key}\r\n")
            return keys.index(key) + 1


def _invalid(keys: str, default: str, seconds: str) -> str:
    """Why the options do not fit together; empty if they do."""
    if not keys.isalnum() or len(set(keys)) < len(keys):
        return "Invalid choice. The valid choices are: a-z, A-Z, 0-9."
    if bool(default) != bool(seconds):
        missing = "/D" if seconds else "/T"
        return f"Invalid syntax. {missing} must be specified as well."
    if seconds and (not seconds.isdigit() or int(seconds) > _MAX_SECONDS):
        return "Invalid syntax. Valid range for /T is (0 to 9999) seconds."
    if default and default not in keys:
        return "Invalid syntax. /D must be one of the choices."
    return ""


async def _read_key(process: Process, seconds: float | None) -> str | None:
    """One key; "" at the end of the input, None after the timeout."""
    reading = asyncio.ensure_future(process.stdin.read(1))
    if seconds is None:
        return (await reading).decode("ascii", "replace")
    waiting = asyncio.ensure_future(process.sleep(seconds))
    try:
        await asyncio.wait({reading, waiting}, return_when=asyncio.FIRST_COMPLETED)
        return reading.result().decode("ascii", "replace") if reading.done() else None
    finally:
        reading.cancel()
        waiting.cancel()


COMMANDS: dict[str, Command] = {"choice": choice}
