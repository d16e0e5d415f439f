"""Names that the server generates."""

from __future__ import annotations

import random
import re
from collections import Counter

from transom.apiserver.core.names import NameGenerator


def test_a_suffix_has_five_letters_of_kubernetes_alphabet() -> None:
    generate = NameGenerator(random.Random(1)).generate
    names = [generate("web-") for _ in range(5000)]
    assert all(re.fullmatch("web-[bcdfghjklmnpqrstvwxz2456789]{5}", name) for name in names)
    assert len(set(names)) > 4990
    for place in range(4, 9):  # each letter is about equally frequent at each place
        frequencies = Counter(name[place] for name in names)
        assert len(frequencies) == 27
        assert min(frequencies.values()) > 100
        assert max(frequencies.values()) < 300


def test_a_long_prefix_is_cut() -> None:
    name = NameGenerator(random.Random(1)).generate("a" * 100)
    assert len(name) == 63
    assert name.startswith("a" * 58)


def test_the_largest_random_number_has_a_name() -> None:
    class Largest(random.Random):
        def random(self) -> float:
            return 1 - 2**-53

    assert NameGenerator(Largest()).generate("a-") == "a-99999"
