"""Selectors that are as large as a request may be, over many objects."""

from __future__ import annotations

import random
from itertools import islice, product
from string import ascii_letters
from urllib.parse import quote

import pytest
from tests.hostile.conftest import MIB, PODS, Attack, Victim

CROWD = "/api/v1/namespaces/crowd/pods"

SELECTORS = {
    "different keys, none of them there": ",".join(f"k{n}!=v" for n in range(5000)),
    "one key, many values excluded": ",".join(f"number!={n}" for n in range(4000)),
    "one long set": f"number notin ({','.join(map(str, range(7000)))})",
    "one long set that takes most": f"number in ({','.join(map(str, range(7000)))})",
    "keys that must not exist": ",".join(f"!k{n}" for n in range(7000)),
    "contradiction": ",".join(f"app=app-{n}" for n in range(4000)),
    "keys that must exist": ",".join(f"k{n}" for n in range(8000)),
    "one key, over and over": ",".join(["a"] * 31_000),
    "one empty value, over and over": ",".join(["a="] * 20_000),
    "keys of three letters": ",".join(
        map("".join, islice(product(ascii_letters, repeat=3), 15_000))
    ),
    "many small sets": ",".join(f"number notin({n})" for n in range(2900)),
    "numbers": ",".join(f"number<{n + 100000}" for n in range(4000)),
}


@pytest.mark.parametrize("text", SELECTORS.values(), ids=SELECTORS.keys())
def test_label_selectors_with_thousands_of_terms(
    victim: Victim, attack: Attack, rounds: int, rng: random.Random, text: str
) -> None:
    client = victim.client()
    with attack(rss=150 * MIB + PODS * 6000):
        for _ in range(rounds):
            parts = text.split(",")
            if not text.endswith(")"):
                rng.shuffle(parts)
            answer = client("GET", f"{CROWD}?labelSelector={quote(','.join(parts), safe=',=!()')}")
            assert answer.status == 200, answer
            if text.startswith("app="):
                assert answer.json["items"] == []
    client.close()


def test_field_selectors_with_thousands_of_terms(
    victim: Victim, attack: Attack, rounds: int
) -> None:
    client = victim.client()
    fields = ",".join(f"metadata.name!=x{n}" for n in range(2500))
    with attack(rss=150 * MIB + PODS * 6000):
        for _ in range(min(rounds, 3)):  # each answer has all pods
            answer = client("GET", f"{CROWD}?fieldSelector={quote(fields, safe='=,!')}")
            assert answer.status == 200 and len(answer.json["items"]) == PODS
    client.close()
