"""What a cluster does about objects that use what Windows cannot do: warn, refuse, or neither.

Small, because it is part of a server's options; the registry is read only when ids are checked.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import NamedTuple


class Policy(NamedTuple):
    warn: bool = True
    reject: tuple[str, ...] = ()  # ids, or patterns of them: "WIN-STO-*"

    def rejects(self, id: str) -> bool:
        return any(fnmatchcase(id, pattern) for pattern in self.reject)


class UnknownRecord(ValueError):
    """An id or pattern that means no record, or none that an object shows; `hint` says what may have been meant."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def parse(patterns: Iterable[str]) -> tuple[str, ...]:
    """Ids as people write them -> patterns that mean something. Raises UnknownRecord."""
    from difflib import get_close_matches

    from transom.windows.advice import seen_in_objects
    from transom.windows.limits import LIMITS

    found = []
    for given in patterns:
        pattern = given.strip().upper()
        if not pattern:
            continue
        meant = [limit for limit in LIMITS.values() if fnmatchcase(limit.id, pattern)]
        if not meant:
            near = get_close_matches(pattern, LIMITS, 3)
            hint = f"did you mean {' or '.join(near)}?" if near else "`transom matrix` lists the records"
            raise UnknownRecord(f"there is no record {given.strip()}", hint)
        if not any(map(seen_in_objects, meant)):
            raise UnknownRecord(
                f"{pattern} cannot be refused: no object shows it when it is written", f"see `transom explain {meant[0].id}`"
            )
        found.append(pattern)
    return tuple(dict.fromkeys(found))
