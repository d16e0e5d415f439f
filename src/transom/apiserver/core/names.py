"""Names that the server generates."""

from __future__ import annotations

import random

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST_PREFIX = 58
# A suffix has five letters: one and two pairs of them. One random number selects all of them.
_PAIRS = tuple(a + b for a in _SUFFIX_LETTERS for b in _SUFFIX_LETTERS)
_SUFFIXES = len(_SUFFIX_LETTERS) * len(_PAIRS) ** 2


class NameGenerator:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def generate(self, prefix: str) -> str:
        """A name for `metadata.generateName`."""
        number = int(self._rng.random() * _SUFFIXES)
        number, last = divmod(number, len(_PAIRS))
        first, middle = divmod(number, len(_PAIRS))
        return prefix[:_LONGEST_PREFIX] + _SUFFIX_LETTERS[first] + _PAIRS[middle] + _PAIRS[last]
