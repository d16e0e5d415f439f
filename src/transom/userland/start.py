"""Starts the program that a container's command names."""

from __future__ import annotations

from transom.userland.api import Program, ProgramContext
from transom.userland.launch.linux_start import start_linux_program
from transom.userland.launch.windows_start import start_windows_program


def start_program(context: ProgramContext) -> Program:
    """Raises FileNotFoundError, PermissionError or IsADirectoryError where there is nothing to run."""
    if context.os == "windows":
        return start_windows_program(context)
    return start_linux_program(context)
