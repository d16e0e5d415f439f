"""Terminals whose programs do for themselves what Unix leaves to the terminal: echo, lines, line ends."""

from __future__ import annotations

import termios
from tty import setraw

_LOCAL_MODES = 3


def leave_to_program(terminal: int) -> None:
    """All but CTRL+C: Wine's console takes no notice of that as a character, its programs do as a signal."""
    setraw(terminal, termios.TCSANOW)
    modes = termios.tcgetattr(terminal)
    modes[_LOCAL_MODES] |= termios.ISIG
    termios.tcsetattr(terminal, termios.TCSANOW, modes)
