"""The line discipline of a terminal: what is typed becomes lines, echoed; what is printed gets carriage returns.

Sans I/O. Of a Linux pseudo terminal the usual settings are there (ICANON, ECHO, ISIG, ICRNL, ONLCR), of a Windows console
line input with echo.
"""

from __future__ import annotations

from collections.abc import Callable

_INTERRUPT, _END, _BELL_ERASE, _KILL, _WORD, _QUIT, _ESCAPE, _DELETE = 0x03, 0x04, 0x08, 0x15, 0x17, 0x1C, 0x1B, 0x7F


class Terminal:
    __slots__ = ("_echo", "_escape", "_line", "_line_end", "_lines", "_signal", "_windows", "size")

    def __init__(
        self, *, windows: bool, lines: Callable[[bytes], None], echo: Callable[[bytes], None], signal: Callable[[str], None]
    ) -> None:
        """`lines` takes whole lines, and b"" when somebody types the end of the input."""
        self._windows = windows
        self._line_end = b"\r\n" if windows else b"\n"
        self._lines = lines
        self._echo = echo
        self._signal = signal
        self._line = bytearray()
        self._escape = False
        self.size = (80, 24)

    def typed(self, data: bytes) -> None:
        if self._plain(data):
            self._line += data
            self._echo(data)
            return
        for byte in data:
            self._key(byte)

    def printed(self, data: bytes) -> bytes:
        return data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n") if b"\n" in data else data

    def ended(self) -> None:
        """The other side has closed: what was typed so far is handed on."""
        self._hand_on()

    def _plain(self, data: bytes) -> bool:
        return not self._escape and all(byte >= 0x20 and byte != _DELETE for byte in data)

    def _key(self, byte: int) -> None:
        if self._escape:  # cursor keys and their like do nothing here
            self._escape = byte == 0x5B or not (0x40 <= byte <= 0x7E)
        elif byte in (0x0A, 0x0D):
            self._line += self._line_end
            self._echo(b"\r\n")
            self._hand_on()
        elif byte in (_DELETE, _BELL_ERASE):
            self._erase(1)
        elif byte == _KILL and not self._windows:
            self._erase(len(self._line))
        elif byte == _WORD and not self._windows:
            text = bytes(self._line).rstrip(b" ")
            self._erase(len(self._line) - (text.rfind(b" ") + 1))
        elif byte == _INTERRUPT:
            self._interrupt("CTRL_C_EVENT" if self._windows else "SIGINT", b"^C")
        elif byte == _QUIT and not self._windows:
            self._interrupt("SIGQUIT", b"^\\")
        elif byte == _END and not self._windows:
            if self._line:
                self._hand_on()
            else:
                self._lines(b"")
        elif byte == _ESCAPE:
            self._escape = True
        else:
            self._line.append(byte)
            self._echo(bytes((byte,)) if byte >= 0x20 or byte == 0x09 else bytes((0x5E, byte + 0x40)))

    def _interrupt(self, name: str, shown: bytes) -> None:
        self._line.clear()
        self._echo(shown)
        self._signal(name)

    def _erase(self, count: int) -> None:
        line = self._line
        for _ in range(min(count, len(line))):
            if not line:
                break
            while len(line) > 1 and line[-1] & 0xC0 == 0x80:  # the rest of a character of several bytes
                line.pop()
            line.pop()
            self._echo(b"\b \b")

    def _hand_on(self) -> None:
        if self._line:
            line = bytes(self._line)
            self._line.clear()
            self._lines(line)
