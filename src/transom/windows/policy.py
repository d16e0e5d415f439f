"""The policy for objects that use features that Windows does not support: warn, reject, or neither.

Small, because it is part of a server's options; the registry is read only when ids are checked.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from transom.kit.lazy import lazy_import
from transom.kit.named_tuple import NamedTuple

if TYPE_CHECKING:
    import difflib

    from transom.windows import limits, podchecks
else:
    limits = lazy_import("transom.windows.limits")
    podchecks = lazy_import("transom.windows.podchecks")
    difflib = lazy_import("difflib")


class WarningPolicy(NamedTuple):
    warn: bool = True
    reject: tuple[str, ...] = ()  # ids, or patterns: "WIN-STO-*"

    def rejects(self, id: str) -> bool:
        return any(fnmatchcase(id, pattern) for pattern in self.reject)


class UnknownRecord(ValueError):
    """An id or pattern that matches no record, or none that is visible in an object; `hint` has
    suggestions.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def parse_record_patterns(patterns: Iterable[str]) -> tuple[str, ...]:
    """Ids as users write them -> valid patterns. Raises UnknownRecord."""
    found = []
    for given in patterns:
        pattern = given.strip().upper()
        if not pattern:
            continue
        meant = [limit for limit in limits.LIMITS.values() if fnmatchcase(limit.id, pattern)]
        if not meant:
            near = difflib.get_close_matches(pattern, limits.LIMITS, 3)
            hint = (
                f"did you mean {' or '.join(near)}?"
                if near
                else "`transom matrix` lists the records"
            )
            raise UnknownRecord(f"there is no record {given.strip()}", hint)
        if not any(map(podchecks.seen_in_objects, meant)):
            raise UnknownRecord(
                f"{pattern} cannot be refused: no object shows it when it is written",
                f"see `transom explain {meant[0].id}`",
            )
        found.append(pattern)
    return tuple(dict.fromkeys(found))
