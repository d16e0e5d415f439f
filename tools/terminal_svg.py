"""`python -m tools.terminal_svg FILE.svg`: records a terminal session and draws it as an animated SVG.

The commands run for real, in a terminal of their own, with a new home and a new cluster, which is
deleted afterwards. Lines appear after the time that they really took, at most `_LONGEST` seconds
apart; the picture needs no script and shows everything where motion is not wanted.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

IIS: Final = "mcr.microsoft.com/windows/servercore/iis:windowsservercore-ltsc2019"
SESSION: Final = (
    "transom up | grep ready",
    "kubectl get nodes --label-columns kubernetes.io/os,node.kubernetes.io/windows-build",
    f"kubectl run web --port=80 --expose --image={IIS} \\\n"
    """    --overrides '{"spec":{"nodeSelector":{"kubernetes.io/os":"windows"}}}'""",
    "kubectl wait --for=condition=Ready pod/web",
    "kubectl exec web -- cmd /c ver",
    "transom trace windows-1 svc/web",
)
COLUMNS: Final = 146
_LONGEST: Final = 1.5  # seconds between two lines
_TYPING: Final = 0.9  # seconds for a command
_WIDTH: Final = 7.23  # of a character
_LINE: Final = 18
_MARGIN: Final = 18
_BAR: Final = 34
_COLOURS: Final = {
    "1": "bold",
    "2": "dim",
    "31": "red",
    "32": "green",
    "33": "yellow",
    "36": "cyan",
}
_ESCAPE: Final = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")
STYLE: Final = """
text { font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #dfe6ee; white-space: pre }
.prompt { fill: #58c98a; font-weight: 700 }
.bold { font-weight: 700 } .dim { fill: #8fa0b3 } .red { fill: #ff8a8d } .green { fill: #6fdc9f }
.yellow { fill: #f0c36a } .cyan { fill: #6cc9e8 }
@media not (prefers-reduced-motion: reduce) { .line { opacity: 0; animation: show 1ms forwards } }
@keyframes show { to { opacity: 1 } }
"""


@dataclass(frozen=True)
class TerminalLine:
    """A line of the session: when it appears, and its text with classes."""

    seconds: float
    parts: tuple[tuple[str, str], ...]  # class and text


def record_session(commands: Sequence[str], env: dict[str, str]) -> list[TerminalLine]:
    lines: list[TerminalLine] = []
    now = 0.4
    for command in commands:
        first, *rest = command.splitlines()
        lines.append(TerminalLine(now, (("prompt", "$ "), ("bold", first))))
        lines += [TerminalLine(now, (("bold", line),)) for line in rest]
        now += _TYPING
        before = 0.0
        for seconds, line in _run(command, env):
            now += min(seconds - before, _LONGEST)
            before = seconds
            lines += [TerminalLine(now, parts) for parts in wrap_parts(styled_parts(line))]
        now += 0.6
    return lines


def _run(command: str, env: dict[str, str]) -> Iterator[tuple[float, str]]:
    """The lines of a command in a terminal, each with the seconds since its start."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    began = time.monotonic()
    process = subprocess.Popen(
        ["bash", "-c", command], env=env, stdin=slave, stdout=slave, stderr=slave, close_fds=True
    )
    os.close(slave)
    rest = ""
    while True:
        try:
            data = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        *whole, rest = (rest + data.decode(errors="replace")).replace("\r", "").split("\n")
        for line in whole:
            yield time.monotonic() - began, line
    if rest:
        yield time.monotonic() - began, rest
    os.close(master)
    process.wait()


def styled_parts(line: str) -> list[tuple[str, str]]:
    """Text with escape sequences -> class and text."""
    found: list[tuple[str, str]] = []
    style, at = "", 0
    for match in _ESCAPE.finditer(line):
        if match.start() > at:
            found.append((style, line[at : match.start()]))
        if match[2] == "m":
            codes = [code for code in match[1].split(";") if code not in ("", "0")]
            style = " ".join(_COLOURS[code] for code in codes if code in _COLOURS)
        at = match.end()
    if line[at:]:
        found.append((style, line[at:]))
    return found


def wrap_parts(parts: Sequence[tuple[str, str]]) -> Iterator[tuple[tuple[str, str], ...]]:
    """Breaks a line where the terminal is full, between words."""
    row: list[tuple[str, str]] = []
    used = 0
    for style, part in parts:
        text = part
        while text:
            piece = text[: COLUMNS - used]
            full = len(piece) < len(text)
            if full and " " in piece:
                piece = piece[: piece.rindex(" ") + 1]
            row.append((style, piece))
            used += len(piece)
            text = text[len(piece) :]
            if full or used == COLUMNS:
                yield tuple(row)
                row, used = [], 0
    if row or not parts:
        yield tuple(row)


def render_terminal(lines: Sequence[TerminalLine], title: str) -> str:
    width = round(COLUMNS * _WIDTH + 2 * _MARGIN)
    height = _BAR + _LINE * len(lines) + _MARGIN
    rows = []
    for number, line in enumerate(lines):
        spans = "".join(
            f'<tspan class="{style}">{escape(text)}</tspan>' if style else escape(text)
            for style, text in line.parts
        )
        y = _BAR + _LINE * (number + 1) - 4
        rows.append(
            f'<text class="line" x="{_MARGIN}" y="{y}" xml:space="preserve" '
            f'style="animation-delay:{line.seconds:.2f}s">{spans}</text>'
        )
    lamps = "".join(
        f'<circle cx="{_MARGIN + 20 * i}" cy="17" r="6" fill="{colour}"/>'
        for i, colour in enumerate(("#ff6b63", "#f5bf4f", "#61c554"))
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            f'<rect width="{width}" height="{height}" rx="10" fill="#141b24"/>',
            lamps,
            *rows,
            "</svg>",
            "",
        ]
    )


def main() -> None:
    target = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as home:
        env = {
            "HOME": home,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "PYTHONPYCACHEPREFIX": os.environ.get("PYTHONPYCACHEPREFIX", ""),
        }
        try:
            lines = record_session(SESSION, env)
        finally:
            subprocess.run(
                [sys.executable, "-m", "transom.cli.main", "delete"], env=env, capture_output=True
            )
    title = (
        "A terminal: transom up, a Windows pod, and a trace that explains why a packet is dropped"
    )
    target.write_text(render_terminal(lines, title))
    print(f"{target}: {len(lines)} lines, {lines[-1].seconds:.1f} s")


if __name__ == "__main__":
    main()
