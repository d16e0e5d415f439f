"""Pruning, defaulting and the metadata of embedded objects."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.machinery.objects import copy_object
from transom.machinery.structural import (
    CoerceError,
    apply_structural_defaults,
    coerce_object,
    compile_schema,
    prune_object,
    prune_value,
)
from transom.machinery.structural.coerce import Coercion

TEXT = {"type": "string"}
PRESERVE, EMBEDDED = "x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"


def obj(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("schema", "value", "left"),
    [
        (obj(a=TEXT), {"a": "x", "b": "y"}, {"a": "x"}),
        (obj(a=obj(b=TEXT)), {"a": {"b": "x", "c": 1}}, {"a": {"b": "x"}}),
        (
            {**obj(a=obj(b=TEXT)), PRESERVE: True},
            {"a": {"b": "x", "c": 1}, "z": {"y": 1}},
            {"a": {"b": "x"}, "z": {"y": 1}},
        ),
        (
            obj(a={**obj(b=TEXT), PRESERVE: True}),
            {"a": {"c": {"d": 1}}, "z": 1},
            {"a": {"c": {"d": 1}}},
        ),
        (
            obj(a={"type": "array", "items": obj(b=TEXT)}),
            {"a": [{"b": "x", "c": 1}, {}]},
            {"a": [{"b": "x"}, {}]},
        ),
        # In a list that preserves, elements keep what they have, but not what is below their known
        # fields.
        (
            {"type": "array", PRESERVE: True, "items": obj(b=obj(c=TEXT))},
            [{"x": 1, "b": {"c": "y", "d": 1}}],
            [{"x": 1, "b": {"c": "y"}}],
        ),
        (
            {"type": "object", "additionalProperties": obj(b=TEXT)},
            {"k": {"b": "x", "c": 1}},
            {"k": {"b": "x"}},
        ),
        (
            {"type": "object", "additionalProperties": True},
            {"k": {"b": 1}, "l": "x"},
            {"k": {}, "l": "x"},
        ),
        # A null that is not a value is dropped, unless there is a default.
        (
            obj(a=TEXT, b={**TEXT, "nullable": True}, c={**TEXT, "default": "d"}),
            {"a": None, "b": None, "c": None},
            {"b": None, "c": None},
        ),
        (
            obj(e={"type": "object", EMBEDDED: True, "properties": {"spec": obj()}}),
            {
                "e": {
                    "kind": "K",
                    "apiVersion": "v1",
                    "metadata": {"name": "n", "odd": 1},
                    "spec": {"x": 1},
                    "more": 1,
                }
            },
            {
                "e": {
                    "kind": "K",
                    "apiVersion": "v1",
                    "metadata": {"name": "n", "odd": 1},
                    "spec": {},
                }
            },
        ),
    ],
)
def test_pruning(schema: dict[str, Any], value: Any, left: Any) -> None:
    before = copy_object(value)
    assert prune_value(value, compile_schema(schema)) == left
    assert value == before  # the value itself may be shared


def test_an_object_keeps_its_type_and_metadata_and_dropped_paths_are_reported() -> None:
    unknown: list[str] = []
    whole = {
        "kind": "K",
        "apiVersion": "g/v1",
        "metadata": {"x": 1},
        "spec": {"a": "x", "l": [{"b": 1}]},
        "y": {},
    }
    schema = compile_schema(obj(spec=obj(a=TEXT, l={"type": "array", "items": obj()})))
    pruned = prune_object(whole, schema, unknown)
    assert pruned == {
        "kind": "K",
        "apiVersion": "g/v1",
        "metadata": {"x": 1},
        "spec": {"a": "x", "l": [{}]},
    }
    assert unknown == ["spec.l[0].b", "y"]


@pytest.mark.parametrize(
    ("schema", "value", "full"),
    [
        (obj(a={**TEXT, "default": "d"}), {}, {"a": "d"}),
        (obj(a={**TEXT, "default": "d"}), {"a": "x"}, {"a": "x"}),
        (obj(a={**TEXT, "default": "d"}), {"a": None}, {"a": "d"}),
        (obj(a={**TEXT, "default": "d", "nullable": True}), {"a": None}, {"a": None}),
        (
            obj(a=obj(b={**TEXT, "default": "d"})),
            {},
            {},
        ),  # an object that is not there gets no defaults inside
        (obj(a={**obj(b={**TEXT, "default": "d"}), "default": {}}), {}, {"a": {"b": "d"}}),
        (
            obj(a={"type": "array", "items": obj(b={"type": "integer", "default": 0})}),
            {"a": [{}, {"b": 1}]},
            {"a": [{"b": 0}, {"b": 1}]},
        ),
        (
            {"type": "object", "additionalProperties": obj(b={**TEXT, "default": "d"})},
            {"k": {}},
            {"k": {"b": "d"}},
        ),
        (obj(a={"type": "boolean", "default": False}), {}, {"a": False}),
    ],
)
def test_defaults(schema: dict[str, Any], value: Any, full: Any) -> None:
    before = copy_object(value)
    assert apply_structural_defaults(value, compile_schema(schema)) == full
    assert value == before


def test_defaults_are_copies_and_hold_nothing_unknown() -> None:
    node = compile_schema(
        obj(a={**obj(b={"type": "array", "items": TEXT}), "default": {"b": [], "odd": 1}})
    )
    first, second = apply_structural_defaults({}, node), apply_structural_defaults({}, node)
    assert first == {"a": {"b": []}}
    first["a"]["b"].append("x")
    assert second == {"a": {"b": []}}


def test_what_cannot_be_structural_is_not_compiled() -> None:
    assert compile_schema({"type": "object", "$ref": "#/x"}) is None
    assert compile_schema(None) is None


EMBED = obj(e={"type": "object", EMBEDDED: True, PRESERVE: True})


def test_metadata_of_embedded_objects_is_read_as_such() -> None:
    node = compile_schema(EMBED)
    value = {
        "e": {"kind": "K", "apiVersion": "v1", "metadata": {"name": "n", "odd": 1, "labels": None}}
    }
    assert coerce_object(value, node) == {
        "e": {"kind": "K", "apiVersion": "v1", "metadata": {"name": "n"}}
    }


@pytest.mark.parametrize(
    ("inner", "text"),
    [
        ({"kind": 1}, "e.kind: Invalid value: 1: must be a string"),
        ({"metadata": {"labels": {"a": 1}}}, "e.metadata: Invalid value: "),
    ],
)
def test_unreadable_values_are_reported_or_dropped(inner: dict[str, Any], text: str) -> None:
    node = compile_schema(EMBED)
    with pytest.raises(CoerceError, match="^" + text.replace("(", r"\(")):
        coerce_object({"e": inner}, node)
    dropped = coerce_object({"e": inner}, node, how=Coercion(drop=True))
    assert dropped in ({"e": {}}, {"e": {"metadata": {}}})


_NAMES = st.sampled_from("abc")
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("xy", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=12,
)
_SCHEMAS = st.recursive(
    st.sampled_from(
        [
            TEXT,
            {"type": "integer"},
            {**TEXT, "default": "d"},
            {**TEXT, "nullable": True},
            {PRESERVE: True},
        ]
    ),
    lambda inner: (
        st.builds(
            lambda p, keep: {**obj(**p), **({PRESERVE: True} if keep else {})},
            st.dictionaries(_NAMES, inner, max_size=3),
            st.booleans(),
        )
        | st.builds(lambda i: {"type": "array", "items": i}, inner)
        | st.builds(lambda i: {"type": "object", "additionalProperties": i}, inner)
    ),
    max_leaves=8,
)


@given(_SCHEMAS, _VALUES)
def test_doing_it_again_changes_nothing(schema: dict[str, Any], value: Any) -> None:
    node = compile_schema(schema)
    once = prune_value(value, node)
    assert prune_value(once, node) is once
    full = apply_structural_defaults(once, node)
    assert apply_structural_defaults(full, node) is full
    assert prune_value(full, node) is full  # what is filled in is known


def test_unknown_metadata_of_embedded_objects_is_named() -> None:
    schema = {
        "type": "object",
        "properties": {
            "e": {
                "type": "object",
                "x-kubernetes-embedded-resource": True,
                "x-kubernetes-preserve-unknown-fields": True,
            }
        },
    }
    node = compile_schema(schema)
    unknown: list[str] = []
    owner = {"name": "o", "uid": "1", "kind": "K", "apiVersion": "v1", "nick": "x"}
    meta = {"name": "a", "nickname": "b", "ownerReferences": [owner]}
    coerce_object({"e": {"metadata": meta}}, node, how=Coercion(unknown=unknown))
    assert unknown == ["e.metadata.nickname", "e.metadata.ownerReferences[0].nick"]
