"""The matrix as a diagram: sources on the left, destinations on the right, an arrow for each flow.
Plain SVG.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from transom.network.trace.matrix import MatrixResult

_WIDTH: Final = 1120
_ROW: Final = 44
_TOP: Final = 96
_LEFT, _RIGHT, _BOX = 40, 640, 250
_COLOURS: Final = {True: "#1a7f37", False: "#cf222e", None: "#8c959f"}
_WORDS: Final = {True: "yes", False: "no", None: "not tried"}
_STYLE: Final = (
    "text{font-family:system-ui,Segoe UI,Helvetica,Arial,sans-serif;font-size:13px;fill:#1f2328}"
    ".head{font-size:20px;font-weight:600}.dim{fill:#656d76;font-size:12px}.box{fill:#f6f8fa;stroke:#d0d7de}"
    ".label{font-size:12px;font-weight:600}"
)


def trace_svg(results: Sequence[MatrixResult], title: str) -> str:
    height = _TOP + _ROW * len(results) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" '
        f'role="img" aria-label="{escape(title)}">',
        f"<style>{_STYLE}</style>",
        "<defs>"
        + "".join(_arrowhead(name, _COLOURS[works]) for name, works in _heads())
        + "</defs>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="40" class="head">{escape(title)}</text>',
        f'<text x="{_LEFT}" y="66" class="dim">{escape(_summary(results))}</text>',
    ]
    for number, result in enumerate(results):
        parts += _row(result, _TOP + number * _ROW)
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _heads() -> list[tuple[str, bool | None]]:
    return [("yes", True), ("no", False), ("none", None)]


def _arrowhead(name: str, colour: str) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
        'markerHeight="7" orient="auto">'
        f'<path d="M0 0L10 5L0 10z" fill="{colour}"/></marker>'
    )


def _summary(results: Sequence[MatrixResult]) -> str:
    count = {works: sum(1 for r in results if r.works is works) for works in _WORDS}
    return f"{count[True]} flows work, {count[False]} do not, {count[None]} were not tried"


def _row(result: MatrixResult, y: int) -> list[str]:
    colour, middle = _COLOURS[result.works], y + 15
    head = {True: "yes", False: "no", None: "none"}[result.works]
    dash = "" if result.works else ' stroke-dasharray="5 4"'
    protocol = result.protocol.upper()
    parts = [
        _box(_LEFT, y, result.origin or "-"),
        _box(_RIGHT, y, result.target or "-"),
        f'<line x1="{_LEFT + _BOX + 6}" y1="{middle}" x2="{_RIGHT - 6}" y2="{middle}" '
        f'stroke="{colour}" stroke-width="2"{dash} '
        f'marker-end="url(#{head})"/>',
        f'<text x="{(_LEFT + _BOX + _RIGHT) // 2}" y="{middle - 6}" text-anchor="middle" '
        'class="label">'
        f"{escape(result.flow)} ({protocol})</text>",
        (
            f'<text x="{_RIGHT + _BOX + 14}" y="{middle + 4}" '
            f'style="fill:{colour};font-weight:600">{_WORDS[result.works]}</text>'
        ),
    ]
    reason = f"{result.limit}: {result.why}" if result.limit else result.why
    note = f"{result.id}{'. ' + reason if reason else ''}"
    parts.append(
        f'<text x="{(_LEFT + _BOX + _RIGHT) // 2}" y="{middle + 14}" text-anchor="middle" '
        'class="dim">'
        f"{escape(_cut(note, 58))}<title>{escape(note)}</title></text>"
    )
    return parts


def _box(x: int, y: int, text: str) -> str:
    shown = f"{escape(_cut(text, 36))}<title>{escape(text)}</title>"
    return (
        f'<rect x="{x}" y="{y}" width="{_BOX}" height="30" rx="6" class="box"/>'
        f'<text x="{x + _BOX // 2}" y="{y + 20}" text-anchor="middle">{shown}</text>'
    )


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
