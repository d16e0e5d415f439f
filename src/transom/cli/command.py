"""What each verb of `transom` defines: its help, its arguments and the function that runs it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from transom.kit.named_tuple import NamedTuple


class Command(NamedTuple):
    help: str
    examples: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]  # the exit code


def file_path(text: str) -> Path:
    """The argument of an option that names a file. An empty one would be the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("the name of the file is empty")
    return Path(text)
