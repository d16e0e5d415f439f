"""shutdown.exe of a Windows machine."""

from __future__ import annotations

from typing import Final

from transom.kit.named_tuple import NamedTuple
from transom.machines.power import PowerAction, PowerSwitch
from transom.userland.process import Command, Process

_USAGE: Final = (
    "Usage: shutdown [/i | /l | /s | /sg | /r | /g | /a | /p | /h | /e | /o] [/hybrid] [/soft] "
    '[/fw] [/f]\r\n    [/m \\\\computer][/t xxx][/d [p|u:]xx:yy [/c "comment"]]\r\n'
)
_DENIED, _NOT_SUPPORTED, _ALREADY, _NONE = 5, 50, 1190, 1116
_ERRORS: Final = {
    _DENIED: "Access is denied.",
    _NOT_SUPPORTED: "The request is not supported.",
    _ALREADY: "A system shutdown has already been scheduled.",
    _NONE: "Unable to abort the system shutdown because no shutdown was in progress.",
}
_ACTIONS: Final[dict[str, PowerAction]] = {
    "r": "restart",
    "g": "restart",
    "s": "off",
    "sg": "off",
    "p": "off",
}
_WITH_VALUE: Final = ("t", "c", "d", "m")
_FLAGS: Final = frozenset((*_ACTIONS, *_WITH_VALUE, "a", "f", "h", "l", "hybrid", "soft", "fw"))
_WAIT: Final = 30  # seconds, unless /t is given
_LONGEST: Final = 315360000


class _Options(NamedTuple):
    flags: frozenset[str]
    values: dict[str, str]


def _parse(words: list[str]) -> _Options | None:
    """None for a wrong command line."""
    flags: set[str] = set()
    values: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name = word[1:].lower()
        if word[:1] not in ("/", "-") or name not in _FLAGS:
            return None
        flags.add(name)
        if name in _WITH_VALUE:
            if not rest:
                return None
            values[name] = rest.pop(0)
    return _Options(frozenset(flags), values)


def _failed(process: Process, code: int) -> int:
    process.complain(f"{_ERRORS[code]}({code})")
    return code


def shutdown(process: Process) -> int:
    options = _parse(process.argv[1:])
    power = process.context.windows.power
    delay = options.values.get("t", str(_WAIT)) if options is not None else ""
    if options is None or not delay.isdigit() or int(delay) > _LONGEST:
        process.write(_USAGE)
        return 1
    if power is None or "h" in options.flags:
        return _failed(process, _NOT_SUPPORTED)
    if not process.context.windows.account.administrator:
        return _failed(process, _DENIED)
    if "a" in options.flags:
        return 0 if power.cancel() else _failed(process, _NONE)
    action = next((name for flag, name in _ACTIONS.items() if flag in options.flags), None)
    if action is None:
        process.write(_USAGE)
        return 0
    seconds = 0 if "p" in options.flags else int(delay)
    return request_power(process, power, action, seconds, options.values.get("c", ""))


def request_power(
    process: Process, power: PowerSwitch, action: PowerAction, seconds: int, comment: str = ""
) -> int:
    """Also records it in the event log. Returns the exit code."""
    if not power.request(action, seconds):
        return _failed(process, _ALREADY)
    windows = process.context.windows
    computer, account = windows.system.computer_name, windows.account
    kind = "restart" if action == "restart" else "power off"
    windows.system.log(
        "System",
        process.context.clock.time(),
        "Information",
        "User32",
        1074,
        f"The process {process.argv[0]} ({computer}) has initiated the {kind} of computer "
        f"{computer} on behalf of user {account.domain}\\{account.name} for the following reason: "
        "No title for this reason could be found\r\n Reason Code: 0x800000ff\r\n "
        f"Shutdown Type: {kind}\r\n Comment: {comment}",
    )
    return 0


COMMANDS: Final[dict[str, Command]] = {"shutdown": shutdown}
