"""One table for the rule, which the plain function and the index must both follow."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from transom.machinery.tolerations import (
    TolerationIndex,
    find_toleration,
    tolerates_taint,
    untolerated_taints,
)

TAINT = {"key": "team", "value": "red", "effect": "NoSchedule"}


def toleration(
    key: str = "", operator: str = "", value: str = "", effect: str = ""
) -> dict[str, Any]:
    fields = {"key": key, "operator": operator, "value": value, "effect": effect}
    return {name: text for name, text in fields.items() if text}


# The cases of Kubernetes' own TestTolerationToleratesTaint, and what is missing or null in JSON.
TABLE: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    (
        toleration("foo", "Exists", effect="NoSchedule"),
        {"key": "foo", "effect": "NoSchedule"},
        True,
    ),
    (toleration("foo", "Exists"), {"key": "foo", "effect": "NoExecute"}, True),
    (toleration("foo", "Exists"), {"key": "foo", "value": "x", "effect": "NoExecute"}, True),
    (toleration("foo", "Exists"), {"key": "bar", "effect": "NoSchedule"}, False),
    (toleration("", "Exists"), {"key": "bar", "value": "x", "effect": "NoExecute"}, True),
    (toleration("", "Exists", effect="NoExecute"), {"key": "bar", "effect": "NoSchedule"}, False),
    (toleration("team", "Equal", "red", "NoSchedule"), TAINT, True),
    (toleration("team", "Equal", "red"), TAINT, True),
    (toleration("team", "Equal", "blue", "NoSchedule"), TAINT, False),
    (toleration("team", "Equal", "red", "NoExecute"), TAINT, False),
    (toleration("team", "", "red", "NoSchedule"), TAINT, True),
    (toleration("team", "", "", "NoSchedule"), TAINT, False),
    (toleration("team", "Equal"), {"key": "team", "effect": "NoSchedule"}, True),
    (toleration("Team", "Equal", "red"), TAINT, False),
    (toleration("", "Equal", "red"), TAINT, True),
    (toleration("team", "In", "red"), TAINT, False),
    (
        {"key": "team", "operator": None, "value": None, "effect": None},
        {"key": "team", "value": None, "effect": "NoSchedule"},
        True,
    ),
]


@pytest.mark.parametrize(("given", "taint", "expected"), TABLE)
def test_tolerates_taint(given: dict[str, Any], taint: dict[str, Any], expected: bool) -> None:
    assert tolerates_taint(given, taint) is expected
    assert (find_toleration([given], taint) is not None) is expected
    assert (untolerated_taints([given], [taint]) == []) is expected
    index = TolerationIndex([given])
    assert index.tolerates(taint["key"], taint.get("value") or "", taint["effect"]) is expected


def test_the_index_follows_the_same_rule() -> None:
    keys, values, effects = ("", "a", "b"), ("", "x", "y"), ("", "NoSchedule", "NoExecute")
    tolerations = [
        toleration(*fields)
        for fields in itertools.product(keys, ("", "Equal", "Exists", "Gt"), values, effects)
    ]
    taints = list(itertools.product(("a", "b"), values, ("NoSchedule", "PreferNoSchedule")))
    for one, (key, value, effect) in itertools.product(tolerations, taints):
        taint = {"key": key, "value": value, "effect": effect}
        assert TolerationIndex([one]).tolerates(key, value, effect) is tolerates_taint(one, taint)


def test_only_taints_of_the_given_effects_count() -> None:
    taints = [
        {"key": "a", "effect": effect} for effect in ("PreferNoSchedule", "NoSchedule", "NoExecute")
    ]
    assert [taint["effect"] for taint in untolerated_taints([], taints)] == [
        "NoSchedule",
        "NoExecute",
    ]
    assert untolerated_taints([], taints, ("NoExecute",)) == [taints[2]]
    assert untolerated_taints([toleration("", "Exists")], taints) == []
