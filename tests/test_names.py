"""Public functions and classes have names that one search finds."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import transom

SOURCE = Path(transom.__file__).parent
_PUBLIC = re.compile(r"^(?:async def|def|class) ([A-Za-z]\w*)", re.MULTILINE)

# Programs that Linux and Windows both have, entry points of programs, and constructors that
# Kubernetes also has both for errors of fields and for errors of requests.
_SHARED = {
    "arp",
    "netstat",
    "route",
    "shutdown",
    "tar",
    "main",
    "forbidden",
    "invalid",
    "not_found",
}


def defined_names(source: Path) -> dict[str, list[str]]:
    found = defaultdict(list)
    for path in sorted(source.rglob("*.py")):
        for name in _PUBLIC.findall(path.read_text()):
            found[name].append(str(path.relative_to(source)))
    return found


def test_public_names_are_unique() -> None:
    repeated = {
        name: files
        for name, files in defined_names(SOURCE).items()
        if len(set(files)) > 1 and name not in _SHARED
    }
    assert repeated == {}


def test_no_exception_is_out_of_date() -> None:
    names = defined_names(SOURCE)
    assert [name for name in _SHARED if len(names[name]) < 2] == []


def test_a_repeated_name_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def read_pod() -> None: ...\n")
    (tmp_path / "b.py").write_text("class A: ...\n\n\nasync def read_pod() -> None: ...\n")
    assert defined_names(tmp_path) == {"read_pod": ["a.py", "b.py"], "A": ["b.py"]}
