"""Terminal sessions as pictures: colours, wrapped lines, and text that stays text."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree

import pytest
from tools.terminal_svg import (
    COLUMNS,
    TerminalLine,
    record_session,
    render_terminal,
    styled_parts,
    wrap_parts,
)


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("plain", [("", "plain")]),
        ("\x1b[31mred\x1b[0m rest", [("red", "red"), ("", " rest")]),
        ("\x1b[1;32mok\x1b[m", [("bold green", "ok")]),
        ("a\x1b[2Kb\x1b[?25lc", [("", "a"), ("", "b"), ("", "c")]),
        ("", []),
    ],
)
def test_escape_sequences_become_classes(line: str, parts: list[tuple[str, str]]) -> None:
    assert styled_parts(line) == parts


def test_long_lines_are_broken_where_the_terminal_ends() -> None:
    rows = list(wrap_parts([("red", "x" * (COLUMNS - 1)), ("", "yz")]))
    assert rows == [(("red", "x" * (COLUMNS - 1)), ("", "y")), (("", "z"),)]
    assert list(wrap_parts([])) == [()]
    line = "x" * (COLUMNS - 4) + " words"
    assert list(wrap_parts([("", line)])) == [(("", line[:-5]),), (("", "words"),)]


def test_the_picture_is_xml_with_every_line() -> None:
    lines = [
        TerminalLine(0.5, (("prompt", "$ "), ("bold", "echo '<b>&'"))),
        TerminalLine(1.25, (("", "<b>&"),)),
    ]
    root = ElementTree.fromstring(render_terminal(lines, 'a "title"'))
    texts = root.findall("{http://www.w3.org/2000/svg}text")
    assert ["".join(text.itertext()) for text in texts] == ["$ echo '<b>&'", "<b>&"]
    assert [text.get("style") for text in texts] == [
        "animation-delay:0.50s",
        "animation-delay:1.25s",
    ]


def test_a_session_runs_in_a_terminal() -> None:
    program = "import sys, os; print(sys.stdout.isatty(), os.get_terminal_size().columns)"
    lines = record_session([f"{sys.executable} -c '{program}'"], {"PATH": "/usr/bin:/bin"})
    assert lines[1].parts == (("", f"True {COLUMNS}"),)
    assert lines[1].seconds > lines[0].seconds
