"""Which commands and programs a Linux image has, by name."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from transom.kit.lazy import lazy_import
from transom.userland.api import ProgramContext
from transom.userland.launch.server_table import program_for
from transom.userland.launch.shells import has_shell
from transom.userland.posix.commands import table
from transom.userland.posix.sh.main import run_shell
from transom.userland.process import Command
from transom.userland.subprogram import command_from_program

# PowerShell is as large as all other programs together, and few clusters run it.
if TYPE_CHECKING:
    from transom.userland.powershell import main as powershell_main
else:
    powershell_main = lazy_import("transom.userland.powershell.main")

_BIN = ("/bin", "/usr/bin", "/sbin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin")
_SHELLS = frozenset(("sh", "ash", "dash", "bash"))


def find_linux_command(context: ProgramContext, name: str, cwd: str) -> Command:
    """A command or program by its name or its usual path. Raises FileNotFoundError."""
    directory, base = posixpath.split(name)
    factory = program_for(context, name)
    if factory is not None:
        return command_from_program(factory)
    found: Command | None = None
    if directory and directory not in _BIN and not directory.startswith("/opt"):
        pass
    elif base in _SHELLS and has_shell(context, base):
        found = run_shell
    elif base == "pwsh" and (context.image.userland == "any" or "pwsh" in context.image.cmd):
        found = powershell_main.run_powershell
    else:
        found = table.find_posix_tool(context, base)
    if found is None:
        raise FileNotFoundError(name)
    return found
