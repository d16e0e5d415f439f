"""The weight of a schema: an upper bound of the work for one value."""

from __future__ import annotations

import time
from typing import Any

import pytest

from transom.machinery.structural import (
    DefaultsTooLarge,
    apply_structural_defaults,
    compile_schema,
    schema_weight,
)
from transom.machinery.structural.weight import may_have_patterns

TEXT = {"type": "string"}


def test_an_ordinary_schema_weighs_little() -> None:
    assert schema_weight(None) == 1
    properties = {f"p{n}": TEXT for n in range(30)}
    inner = {"type": "object", "properties": properties, "required": ["p1"]}
    schema = {"type": "object", "properties": {"spec": inner, "status": inner}}
    assert schema_weight(schema) < 3
    label = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"}
    assert schema_weight({"type": "object", "properties": {"name": label}}) < 5


@pytest.mark.parametrize(
    ("schema", "least"),
    [
        ({"anyOf": [{"minimum": n} for n in range(500)]}, 500),
        ({"items": {"allOf": [{"not": {"oneOf": [TEXT] * 10}}] * 10}}, 100),
        ({"enum": list(range(10_000))}, 400),
        ({"pattern": "(?:.{0,300}){3}"}, 300),
        ({"properties": {f"p{n}": {"default": "x" * 100} for n in range(1000)}}, 500),
        ({"properties": {f"p{n}": TEXT for n in range(50_000)}}, 100),
        ({"anyOf": [TEXT] * 5000}, 1e6),
    ],
)
def test_alternatives_enums_patterns_and_defaults_weigh(
    schema: dict[str, Any], least: float
) -> None:
    assert schema_weight({"type": "object", "properties": {"spec": schema}}) >= least


def _nested(width: int, depth: int) -> dict[str, Any]:
    if not depth:
        return TEXT
    return {"properties": {f"p{n}": _nested(width, depth - 1) for n in range(width)}}


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {f"p{n}": TEXT for n in range(50_000)}},
        _nested(11, 4),
        _nested(3000, 1) | {"items": _nested(2, 12)},
        {"properties": {f"p{n}": {"pattern": "a{1,2}" * 1000} for n in range(400)}},
        {"properties": {f"p{n}": {"pattern": "{1}" * 33_000} for n in range(20)}},
        {"properties": {f"p{n}": {"default": [1] * 500} for n in range(3000)}},
    ],
    ids=["wide", "tree", "wide and deep", "patterns", "long patterns", "defaults"],
)
def test_a_large_schema_is_heavy_and_weighed_at_once(schema: dict[str, Any]) -> None:
    begin = time.process_time()
    assert schema_weight(schema) >= 1e6  # not all of it was seen
    assert time.process_time() - begin < 0.1  # the event loop waits for it


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (None, False),
        ({"properties": {"a": TEXT, "b": {"items": TEXT}}}, False),
        ({"properties": {"a": TEXT, "b": {"items": {"pattern": "a"}}}}, True),
        ({"properties": {"a": {"additionalProperties": {"pattern": "a"}}}}, True),
        ({"anyOf": [{"not": {"pattern": "a"}}]}, True),
        ({"properties": {f"p{n}": TEXT for n in range(1000)}}, False),
    ],
)
def test_patterns_are_found_at_any_depth(schema: Any, expected: bool) -> None:
    assert may_have_patterns(schema) is expected


class _CountedSchema(dict[str, Any]):
    reads = 0

    def get(self, key: str, default: Any = None) -> Any:
        type(self).reads += 1
        return super().get(key, default)


@pytest.mark.parametrize("inside", [1, 100])
def test_a_large_schema_counts_as_one_with_patterns(inside: int) -> None:
    leaf = _CountedSchema(TEXT)
    _CountedSchema.reads = 0
    rows = [{"properties": {f"p{n}": leaf for n in range(inside)}} for _ in range(60_000 // inside)]
    assert may_have_patterns({"properties": {f"r{n}": row for n, row in enumerate(rows)}})
    assert _CountedSchema.reads < 10_000


def test_defaults_of_one_object_are_bounded() -> None:
    item = {"type": "object", "properties": {"q": {"type": "string", "default": "x" * 1000}}}
    node = compile_schema(
        {"type": "object", "properties": {"list": {"type": "array", "items": item}}}
    )
    filled = apply_structural_defaults({"list": [{}] * 1000}, node)
    assert filled["list"][999] == {"q": "x" * 1000}
    with pytest.raises(DefaultsTooLarge):
        apply_structural_defaults({"list": [{}] * 3000}, node)
