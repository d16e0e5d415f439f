"""CEL's set functions on lists (cel-go's ext/sets.go)."""

from __future__ import annotations

from typing import Any

from transom.kit.cel.functions import Function, Overload
from transom.kit.cel.values import cel_equals


def _contains(items: Any, wanted: Any) -> bool:
    return all(any(cel_equals(item, one) for item in items) for one in wanted)


SET_FUNCTIONS: tuple[Function, ...] = (
    Function(
        "sets.contains",
        (Overload("list_sets_contains_list", "(list(T), list(T)) -> bool", _contains),),
    ),
    Function(
        "sets.equivalent",
        (
            Overload(
                "list_sets_equivalent_list",
                "(list(T), list(T)) -> bool",
                lambda a, b: _contains(a, b) and _contains(b, a),
            ),
        ),
    ),
    Function(
        "sets.intersects",
        (
            Overload(
                "list_sets_intersects_list",
                "(list(T), list(T)) -> bool",
                lambda a, b: any(cel_equals(x, y) for x in a for y in b),
            ),
        ),
    ),
)
# How many times each pair of items is compared.
SET_COST_FACTORS = {"sets.contains": 1, "sets.equivalent": 2, "sets.intersects": 1}
