"""Custom values: the errors of nested, chosen and listed values, and sets and maps among lists."""

from __future__ import annotations

from typing import Any

import pytest

from transom.machinery.validation.custom import go_json, go_number, validate_value
from transom.machinery.validation.customobject import validate_embedded, validate_lists
from transom.machinery.validation.structural import (
    prune_default,
    validate_defaults,
    validate_structural,
)


def _texts(errors: list[Any]) -> list[str]:
    return [str(error) for error in errors]


STRING, INTEGER = {"type": "string"}, {"type": "integer"}


@pytest.mark.parametrize(
    ("schema", "value", "texts"),
    [
        (INTEGER, 1.0, []),
        (
            INTEGER,
            True,
            ['a: Invalid value: "boolean": a in body must be of type integer: "boolean"'],
        ),
        ({"type": "number"}, 3, []),
        (STRING, None, ['a: Invalid value: "null": a in body must be of type string: "null"']),
        ({"type": "string", "nullable": True}, None, []),
        (
            {"type": "string", "format": "date-time"},
            5,
            ['a: Invalid value: "int64": a in body must be of type date-time: "int64"'],
        ),
        ({"type": "string", "format": "unknown"}, "x", []),
        (
            {"type": "number", "maximum": 1.5, "exclusiveMaximum": True},
            1.5,
            ["a: Invalid value: 1.5: a in body should be less than 1.5"],
        ),
        (
            {"type": "integer", "multipleOf": 5},
            12,
            ["a: Invalid value: 12: a in body should be a multiple of 5"],
        ),
        ({"type": "number", "multipleOf": 0.1}, 0.3, []),
        (
            {"type": "array", "items": {"type": "object", "properties": {"n": INTEGER}}},
            [{"n": "x"}],
            ['a.n: Invalid value: "string": a.n in body must be of type integer: "string"'],
        ),
        (
            {"type": "object", "additionalProperties": INTEGER},
            {"k": "x"},
            ['a.k: Invalid value: "string": a.k in body must be of type integer: "string"'],
        ),
        (
            {"type": "object", "minProperties": 1},
            {},
            ["a: Invalid value: 1: a in body should have at least 1 properties"],
        ),
        (
            {"enum": [1, "x", {"b": None}]},
            {"c": [1.5, True]},
            [
                'a: Unsupported value: map[string]interface {}{"c":[]interface {}{1.5, '
                'true}}: supported values: "1", "x", '
                '"{\\"b\\":null}"'
            ],
        ),
        ({"enum": [1]}, True, ['a: Unsupported value: true: supported values: "1"']),
        (
            {"anyOf": [INTEGER, {"type": "string", "maxLength": 1}]},
            "xy",
            [
                '<nil>: Invalid value: "": "a" must validate at least one schema (anyOf)',
                'a: Invalid value: "xy": a in body should be at most 1 chars long',
            ],
        ),
        (
            {"not": STRING},
            "x",
            ['<nil>: Invalid value: "": "a" must not validate the schema (not)'],
        ),
        (
            {"allOf": [STRING, INTEGER]},
            "x",
            [
                'a: Invalid value: "string": a in body must be of type integer: "string"',
                '<nil>: Invalid value: "": "a" must validate all the schemas (allOf)',
            ],
        ),
        (
            {"oneOf": [STRING, {"minLength": 1}]},
            "x",
            [
                (
                    '<nil>: Invalid value: "": "a" must validate one and only one schema '
                    "(oneOf). Found 2 valid alternatives"
                )
            ],
        ),
        (
            {"x-kubernetes-int-or-string": True},
            1.5,
            ['a: Invalid value: "number": a in body must be of type integer,string: "number"'],
        ),
    ],
)
def test_values(schema: dict[str, Any], value: Any, texts: list[str]) -> None:
    assert (
        _texts(validate_value({"type": "object", "properties": {"a": schema}}, {"a": value}))
        == texts
    )


def test_below_a_path() -> None:
    schema = {"type": "object", "required": ["a"], "additionalProperties": INTEGER}
    assert _texts(validate_value(schema, {"b": "x"}, "p.default")) == [
        'p.default.b: Invalid value: "string": .b in body must be of type integer: "string"',
        "p.default.a: Required value",
    ]


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "1"), (1e21, "1e+21"), (0.1, "0.1"), (1e-7, "1e-07"), (-0.5, "-0.5")]
)
def test_go_numbers(value: float, text: str) -> None:
    assert go_number(value) == text


def test_go_json() -> None:
    assert (
        go_json({"b": [None], "a": "q"})
        == 'map[string]interface {}{"a":"q", "b":[]interface {}{interface {}(nil)}}'
    )


def test_sets_and_maps() -> None:
    schema = {
        "properties": {
            "s": {"x-kubernetes-list-type": "set"},
            "m": {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]},
        }
    }
    assert _texts(
        validate_lists(schema, {"s": [1, "1", 1, 1], "m": [{"k": 1}, {"k": 1}, {}, {}]})
    ) == [
        "s[2]: Duplicate value: 1",
        'm[1]: Duplicate value: map[string]interface {}{"k":1}',
        "m[3]: Duplicate value: map[string]interface {}{}",
    ]


def test_embedded_resources() -> None:
    schema = {"properties": {"e": {"x-kubernetes-embedded-resource": True}}}
    assert _texts(validate_embedded(schema, {"e": {"kind": 5, "metadata": {"name": "a/b"}}})) == [
        "e.apiVersion: Required value: must not be empty",
        "e.kind: Invalid value: 5: must be a string",
        "e.metadata.name: Invalid value: \"a/b\": may not contain '/'",
    ]


def test_pruning_keeps_what_is_declared() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "array", "items": {"type": "object", "properties": {"x": STRING}}},
            "free": {
                "x-kubernetes-preserve-unknown-fields": True,
                "properties": {"y": {"type": "object"}},
            },
        },
    }
    value = {
        "kind": "K",
        "metadata": {"any": 1},
        "a": [{"x": "1", "z": 2}],
        "free": {"y": {"z": 1}, "k": 1},
        "b": 1,
    }
    prune_default(value, schema, resource=True)
    assert value == {
        "kind": "K",
        "metadata": {"any": 1},
        "a": [{"x": "1"}],
        "free": {"y": {}, "k": 1},
    }


@pytest.mark.parametrize(
    ("schema", "texts"),
    [
        (
            {
                "type": "object",
                "properties": {
                    "a": {"x-kubernetes-int-or-string": True, "anyOf": [INTEGER, STRING]}
                },
            },
            [],
        ),
        (
            {
                "type": "object",
                "properties": {
                    "a": {
                        "x-kubernetes-int-or-string": True,
                        "allOf": [{"anyOf": [INTEGER, STRING]}, {"pattern": "a"}],
                    }
                },
            },
            [],
        ),
        ({"type": "object", "anyOf": [{"required": ["a"]}]}, []),
        (
            {"type": "object", "anyOf": [{"properties": {"a": {"minLength": 1}}}]},
            ["s.properties[a]: Required value: because it is defined in s.anyOf[0].properties[a]"],
        ),
        (
            {
                "type": "object",
                "properties": {"metadata": {"type": "object", "properties": {"name": STRING}}},
            },
            [],
        ),
        (
            {"type": "object", "additionalProperties": STRING},
            ["s.additionalProperties: Forbidden: must not be used at the root"],
        ),
        (
            {"type": "object", "properties": {"kind": INTEGER}},
            ['s.properties[kind].type: Invalid value: "integer": must be string'],
        ),
    ],
)
def test_structural(schema: dict[str, Any], texts: list[str]) -> None:
    assert _texts(validate_structural(schema, "s")) == texts


def test_defaults_of_embedded_metadata() -> None:
    schema = {
        "type": "object",
        "properties": {
            "e": {
                "type": "object",
                "x-kubernetes-embedded-resource": True,
                "properties": {
                    "metadata": {
                        "type": "object",
                        "properties": {"name": {"type": "string", "default": "a/b"}},
                    }
                },
            }
        },
    }
    assert _texts(validate_defaults(schema, "s", True)) == [
        "s.properties[e].properties[metadata].properties[name].default: Invalid value: "
        '"a/b": must result in valid '
        "metadata: metadata.name: Invalid value: \"a/b\": may not contain '/'"
    ]
