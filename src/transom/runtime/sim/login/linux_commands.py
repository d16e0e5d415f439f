"""Programs that a Linux machine has and its containers do not."""

from __future__ import annotations

import posixpath
from collections.abc import Awaitable, Callable
from typing import Final

from transom.runtime.sim.login import linux_power, systemd
from transom.runtime.sim.login.crictl import crictl
from transom.runtime.sim.login.runtime_client import RuntimeClient
from transom.runtime.sim.login.units import LinuxMachine
from transom.userland.api import ProgramContext
from transom.userland.launch.linux_commands import find_linux_command
from transom.userland.process import Command, Process

_DIRECTORIES: Final = ("", "/bin", "/usr/bin", "/sbin", "/usr/sbin", "/usr/local/bin")
_COMMANDS: Final[dict[str, Callable[[LinuxMachine, Process], int | Awaitable[int]]]] = {
    "systemctl": systemd.systemctl,
    "journalctl": systemd.journalctl,
    "service": systemd.service,
    "shutdown": linux_power.shutdown,
    **dict.fromkeys(linux_power.POWER_VERBS, linux_power.switch_power),
    "crictl": lambda machine, process: crictl(RuntimeClient(process, machine)),
}


def find_linux_node_command(
    machine: LinuxMachine, context: ProgramContext, name: str, cwd: str
) -> Command:
    """Raises FileNotFoundError."""
    directory, base = posixpath.split(name)
    command = _COMMANDS.get(base) if directory in _DIRECTORIES else None
    if command is None:
        return find_linux_command(context, name, cwd)
    return lambda process: command(machine, process)
