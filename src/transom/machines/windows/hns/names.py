"""Parses, formats and generates GUIDs and MAC addresses. Deterministic for the same seed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

from transom.kit.lazy import lazy_pattern

_GUID: Final = lazy_pattern(
    r"\{?([0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12})\}?"
)
_MAC: Final = lazy_pattern(r"[0-9A-Fa-f]{2}(?:[-:][0-9A-Fa-f]{2}){5}")


def guid(text: object) -> str:
    """In capitals and without braces; "" if it is invalid."""
    match = _GUID.fullmatch(text) if isinstance(text, str) else None
    return match[1].upper() if match else ""


def is_mac(text: object) -> bool:
    return isinstance(text, str) and _MAC.fullmatch(text) is not None


def mac_number(mac: str) -> int:
    return int(mac.replace("-", "").replace(":", ""), 16)


def mac_text(number: int) -> str:
    digits = f"{number:012X}"
    return "-".join(digits[at : at + 2] for at in range(0, 12, 2))


class IdGenerator:
    """Generates unique identifiers."""

    __slots__ = ("_count", "_seed")

    def __init__(self, seed: str) -> None:
        self._seed = hashlib.blake2b(seed.encode(), digest_size=32).digest()
        self._count = 0

    def guid(self) -> str:
        self._count += 1
        digits = (
            hashlib.blake2b(self._count.to_bytes(8, "big"), digest_size=16, key=self._seed)
            .hexdigest()
            .upper()
        )
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-A{digits[17:20]}-{digits[20:]}"

    def number(self, what: str, limit: int) -> int:
        digest = hashlib.blake2b(what.encode(), digest_size=8, key=self._seed).digest()
        return int.from_bytes(digest, "big") % limit


class MacPool:
    """The addresses of a network's ranges, allocated in turn."""

    __slots__ = ("_next", "_ranges", "_used")

    def __init__(self, ranges: list[tuple[int, int]]) -> None:
        self._ranges = ranges
        self._used: set[int] = set()
        self._next = self._walk()

    def take(self) -> str:
        """ "" if there is none left."""
        for _ in range(2):  # the second time from the beginning, for released ones
            for number in self._next:
                if number not in self._used:
                    self._used.add(number)
                    return mac_text(number)
            self._next = self._walk()
        return ""

    def give_back(self, mac: str) -> None:
        self._used.discard(mac_number(mac))

    def _walk(self) -> Iterator[int]:
        for first, last in self._ranges:
            yield from range(first, last + 1)
