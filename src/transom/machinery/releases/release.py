"""The releases, their builds, and the ranges of the tables. Light to import: the command line reads
the names from here.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Final

from transom.kit.named_tuple import NamedTuple


class Release(NamedTuple):
    """`Release(1, 20)`; compares with pairs."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


class Build(NamedTuple):
    """What `/version` reports: the last patch of a release."""

    git_version: str
    commit: str
    date: str
    go: str


def parse_release(text: str) -> Release:
    """`1.20`; raises ValueError."""
    major, _, minor = text.partition(".")
    return Release(int(major), int(minor))


def read_table(name: str) -> str:
    """A table beside this module. An installed package has it compressed."""
    path = Path(__file__).with_name(name)
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return zlib.decompress(path.with_name(f"{name}.z").read_bytes()).decode()


def table_lines(name: str) -> list[str]:
    """The lines of a table, without the comment at its head."""
    return [line for line in read_table(name).splitlines() if line and not line.startswith("#")]


def in_range(text: str, release: Release) -> bool:
    """Whether a release is in a range of a table: `24-30`, `24-`, `-25`, `21`, `21,24-`."""
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not dash:
            last = first
        if (not first or release.minor >= int(first)) and (not last or release.minor <= int(last)):
            return True
    return False


def _builds() -> dict[str, Build]:
    return {
        name: Build(*facts) for name, *facts in (line.split() for line in table_lines("builds.txt"))
    }


# Release -> its last patch.
BUILDS: Final = _builds()
RELEASES: Final = tuple(BUILDS)
DEFAULT: Final = Release(1, 20)
NEWEST: Final = parse_release(RELEASES[-1])
TABLES_SINCE: Final = Release(1, 21)  # older releases are described in `releases.older`


def has_tables(release: tuple[int, int]) -> bool:
    """Whether the tables describe the release. Older ones serve what their kinds say."""
    return release >= TABLES_SINCE
