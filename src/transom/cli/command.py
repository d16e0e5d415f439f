"""What each verb of `transom` defines: its help, its arguments and the function that runs it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from transom.kit.named_tuple import NamedTuple

_WIDEST_TEXT = 100


class Command(NamedTuple):
    help: str
    examples: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]  # the exit code


class HelpFormatter(argparse.HelpFormatter):
    """Fills the paragraphs of a help text; keeps those with indented lines: examples and tables."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        from textwrap import fill

        return "\n\n".join(
            paragraph
            if "\n " in paragraph
            else fill(
                " ".join(paragraph.split()),
                min(width, _WIDEST_TEXT),
                break_long_words=False,
                break_on_hyphens=False,
            )
            for paragraph in text.split("\n\n")
        )


def file_path(text: str) -> Path:
    """The argument of an option that names a file. An empty one would be the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("the name of the file is empty")
    return Path(text)
