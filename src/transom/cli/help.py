"""Help texts that fit the terminal: paragraphs are wrapped again, indented lines stay as they are."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from textwrap import fill

from transom.cli.console import terminal_columns

_LINES = 110  # longer lines are hard to read


def help_width() -> int:
    """The width of the terminal; 80 columns where there is none. As argparse, without the last two."""
    return min(terminal_columns(80), _LINES + 2) - 2


def fill_paragraphs(text: str, width: int) -> str:
    made: list[str] = []
    paragraph: list[str] = []
    for line in [*text.splitlines(), ""]:
        if line and not line[0].isspace():
            paragraph.append(line)
            continue
        if paragraph:
            joined = " ".join(paragraph)
            made.append(fill(joined, width, break_long_words=False, break_on_hyphens=False))
            paragraph = []
        made.append(line)
    return "\n".join(made[:-1])


def definition_list(entries: Mapping[str, str], width: int, column: int = 20) -> str:
    """Names, and what they mean in a second column."""
    return "\n".join(
        fill(
            f"  {name:<{column}}{about}",
            max(width, column + 20),
            subsequent_indent=" " * (column + 2),
            break_on_hyphens=False,
        )
        for name, about in entries.items()
    )


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=help_width())

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return fill_paragraphs(text, width)
