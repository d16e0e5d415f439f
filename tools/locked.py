"""Reads the lock files: what `make lock` has pinned, with the hashes of all files of each
version.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
RUNTIME, FAST, DEVELOPMENT, BUILD, SITE = (
    ROOT / f"requirements{part}.lock" for part in ("", "-fast", "-dev", "-build", "-docs")
)
_PIN = re.compile(r"([A-Za-z0-9._-]+)==([^\s;\\]+)(?:\s*;\s*([^\\]*[^\\\s]))?")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_VIA = re.compile(r"\s+#(?:\s+via)?\s+(\S+).*")


@dataclass
class Locked:
    """One pinned package. `via` has the packages that need it."""

    name: str
    version: str
    marker: str = ""
    hashes: list[str] = field(default_factory=list)
    via: list[str] = field(default_factory=list)

    @property
    def purl(self) -> str:
        return f"pkg:pypi/{self.name}@{self.version}"


def read_lock(path: Path) -> list[Locked]:
    found: list[Locked] = []
    for line in path.read_text().splitlines():
        if pin := _PIN.match(line):
            found.append(Locked(re.sub(r"[-_.]+", "-", pin[1]).lower(), pin[2], pin[3] or ""))
        elif found and (digest := _HASH.search(line)):
            found[-1].hashes.append(digest[1])
        elif (
            found
            and (via := _VIA.fullmatch(line))
            and via[1] != "via"
            and not via[1].startswith("-")
        ):
            found[-1].via.append(via[1])
    return found


def without(text: str, names: set[str]) -> str:
    """A lock file's text without these packages."""
    kept, keep = [], True
    for line in text.splitlines(keepends=True):
        if pin := _PIN.match(line):
            keep = pin[1] not in names
        if keep:
            kept.append(line)
    return "".join(kept)


if __name__ == "__main__":  # the packages that only the first file has
    more, base = map(Path, sys.argv[1:3])
    sys.stdout.write(without(more.read_text(), {package.name for package in read_lock(base)}))
