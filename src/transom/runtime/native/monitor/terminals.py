"""Raw terminals, for programs that implement echo, line editing and line ends themselves."""

from __future__ import annotations

import termios
from tty import setraw

_LOCAL_MODES = 3


def leave_to_program(terminal: int) -> None:
    """All but CTRL+C: Wine's console ignores it as a character, but its programs handle it as a
    signal.
    """
    setraw(terminal, termios.TCSANOW)
    modes = termios.tcgetattr(terminal)
    modes[_LOCAL_MODES] |= termios.ISIG
    termios.tcsetattr(terminal, termios.TCSANOW, modes)
