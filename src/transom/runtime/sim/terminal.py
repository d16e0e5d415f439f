"""The line discipline of a terminal: input becomes lines, echoed; output gets carriage returns.

Sans I/O. Implements the default settings of a Linux pseudo terminal (ICANON, ECHO, ISIG, ICRNL,
ONLCR), and line input with echo of a Windows console.
"""

from __future__ import annotations

from collections.abc import Callable

_LONGEST_LINE = 4095  # further input is lost, as on Linux
_INTERRUPT, _END, _BELL_ERASE, _KILL, _WORD, _QUIT, _ESCAPE, _DELETE = (
    0x03,
    0x04,
    0x08,
    0x15,
    0x17,
    0x1C,
    0x1B,
    0x7F,
)


class Terminal:
    __slots__ = (
        "_echo",
        "_escape",
        "_line",
        "_line_end",
        "_lines",
        "_shown",
        "_signal",
        "_windows",
        "size",
    )

    def __init__(
        self,
        *,
        windows: bool,
        lines: Callable[[bytes], None],
        echo: Callable[[bytes], None],
        signal: Callable[[str], None],
    ) -> None:
        """`lines` receives whole lines, and b"" when EOF is typed."""
        self._windows = windows
        self._line_end = b"\r\n" if windows else b"\n"
        self._lines = lines
        self._echo = echo
        self._signal = signal
        self._line = bytearray()
        self._shown = bytearray()  # to be echoed
        self._escape = False
        self.size = (80, 24)

    def typed(self, data: bytes) -> None:
        if self._plain(data):
            data = data[: max(0, _LONGEST_LINE - len(self._line))]
            self._line += data
            self._show(data)
        else:
            for byte in data:
                self._key(byte)
        self._flush()

    def _show(self, data: bytes) -> None:
        """Echoes, together with other input that arrives at the same time."""
        self._shown += data

    def _flush(self) -> None:
        if self._shown:
            shown = bytes(self._shown)
            self._shown.clear()
            self._echo(shown)

    def printed(self, data: bytes) -> bytes:
        return data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n") if b"\n" in data else data

    def ended(self) -> None:
        """The other side has closed: delivers the pending input."""
        self._hand_on()

    def _plain(self, data: bytes) -> bool:
        return not self._escape and all(byte >= 0x20 and byte != _DELETE for byte in data)

    def _key(self, byte: int) -> None:
        if self._escape:  # cursor keys and the like have no effect here
            self._escape = byte == 0x5B or not (0x40 <= byte <= 0x7E)
        elif byte in (0x0A, 0x0D):
            self._line += self._line_end
            self._show(b"\r\n")
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
        elif len(self._line) < _LONGEST_LINE:
            self._line.append(byte)
            self._show(
                bytes((byte,)) if byte >= 0x20 or byte == 0x09 else bytes((0x5E, byte + 0x40))
            )

    def _interrupt(self, name: str, shown: bytes) -> None:
        self._line.clear()
        self._show(shown)
        self._flush()
        self._signal(name)

    def _erase(self, count: int) -> None:
        line = self._line
        for _ in range(min(count, len(line))):
            if not line:
                break
            # continuation bytes of a multi-byte character
            while len(line) > 1 and line[-1] & 0xC0 == 0x80:
                line.pop()
            line.pop()
            self._show(b"\b \b")

    def _hand_on(self) -> None:
        if self._line:
            line = bytes(self._line)
            self._line.clear()
            self._lines(line)
