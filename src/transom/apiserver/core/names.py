"""Names that the server generates."""

from __future__ import annotations

import random

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST_PREFIX = 58


class NameGenerator:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def generate(self, prefix: str) -> str:
        """A name for `metadata.generateName`."""
        return prefix[:_LONGEST_PREFIX] + "".join(self._rng.choices(_SUFFIX_LETTERS, k=5))
