"""The documents' statements by id, and which tests show what a record says.

`checklist.txt` is written by people: it has the ids of the statements, never their sentences. `shown.txt` is made by
`make docs` from the tests' own `windows` marks, so that an installed transom can name the tests as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple, cast

Scope = Literal["now", "later", "text"]
_HERE = Path(__file__).parent


class Statement(NamedTuple):
    id: str
    scope: Scope  # whether this cluster shows it now, later, or has only to say it
    words: str


@cache
def statements() -> Mapping[str, Statement]:
    found = {}
    for line in _lines("checklist.txt"):
        id, scope, words = line.split(" ", 2)
        found[id] = Statement(id, cast(Scope, scope), words)
    return found


@cache
def shown_by() -> Mapping[str, tuple[str, ...]]:
    """Id of a statement or record, as tests are marked with it -> tests, as pytest names them."""
    found: dict[str, list[str]] = {}
    for line in _lines("shown.txt"):
        id, test = line.split(" ", 1)
        found.setdefault(id, []).append(test)
    return {id: tuple(tests) for id, tests in found.items()}


def tests(ids: Iterable[str]) -> list[str]:
    """Those that show any of these."""
    shown = shown_by()
    return list(dict.fromkeys(test for id in ids for test in shown.get(id, ())))


def _lines(name: str) -> list[str]:
    text = (_HERE / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]
