"""The statements of the source documents by id.

`checklist.txt` has the ids of the statements and a few keywords for each, never their sentences.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple, cast

Scope = Literal["now", "later", "text"]
_HERE = Path(__file__).parent


class ChecklistStatement(NamedTuple):
    id: str
    scope: Scope  # whether this cluster shows it now, later, or only documents it
    words: str


@cache
def checklist_statements() -> Mapping[str, ChecklistStatement]:
    found = {}
    for line in _lines("checklist.txt"):
        id, scope, words = line.split(" ", 2)
        found[id] = ChecklistStatement(id, cast(Scope, scope), words)
    return found


def _lines(name: str) -> list[str]:
    text = (_HERE / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]
