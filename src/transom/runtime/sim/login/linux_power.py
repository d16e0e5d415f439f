"""shutdown, reboot, poweroff and halt of a simulated Linux machine."""

from __future__ import annotations

import re
import time
from typing import Final

from transom.machines.power import PowerAction
from transom.runtime.sim.login.units import LinuxMachine
from transom.userland.process import Process

_MINUTE: Final = 60
_DEFAULT: Final = "+1"
_ACTIONS: Final[dict[str, PowerAction]] = {"reboot": "restart", "poweroff": "off", "halt": "off"}
_FLAGS: Final[dict[str, PowerAction]] = {
    "-r": "restart",
    "--reboot": "restart",
    "-h": "off",
    "-P": "off",
    "-H": "off",
    "--poweroff": "off",
    "--halt": "off",
}
_CLOCK: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")


def seconds_until(text: str, now: float) -> float | None:
    """`now`, `+5` (minutes) or `23:30`; None for anything else."""
    if text == "now":
        return 0.0
    if text.removeprefix("+").isdigit():
        return float(text.removeprefix("+")) * _MINUTE
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    wanted = int(match[1]) * 3600 + int(match[2]) * _MINUTE
    return (wanted - now % 86400) % 86400


def shutdown(machine: LinuxMachine, process: Process) -> int:
    power, now = machine.core.host.power, process.context.clock.time()
    words = process.argv[1:]
    if "-c" in words:
        power.cancel()
        return 0
    action: PowerAction = "off"
    for word in words:
        if word.startswith("-") and word not in _FLAGS and word not in ("-k", "--no-wall"):
            process.complain(f"shutdown: invalid option -- '{word.lstrip('-')[:1]}'")
            return 1
        action = _FLAGS.get(word, action)
    when = next((word for word in words if not word.startswith("-")), _DEFAULT)
    seconds = seconds_until(when, now)
    if seconds is None:
        process.complain(f"Failed to parse time specification: {when}")
        return 1
    power.cancel()  # a later request replaces the former one
    power.request(action, seconds)
    if seconds:
        at = time.strftime("%a %Y-%m-%d %H:%M:%S UTC", time.gmtime(now + seconds))
        verb = "Reboot" if action == "restart" else "Shutdown"
        process.complain(f"{verb} scheduled for {at}, use 'shutdown -c' to cancel.")
    return 0


def switch_power(machine: LinuxMachine, process: Process) -> int:
    """reboot, poweroff and halt."""
    return power_verb(machine, process.name)


def power_verb(machine: LinuxMachine, verb: str) -> int:
    power = machine.core.host.power
    power.cancel()
    power.request(_ACTIONS[verb], 0)
    return 0


POWER_VERBS: Final = tuple(_ACTIONS)
