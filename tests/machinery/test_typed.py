"""Types for merging, and the complaints about values that do not fit them."""

from __future__ import annotations

from typing import Any

import pytest

from transom.machinery import typed
from transom.machinery.schema import get_schema_type
from transom.machinery.typed import DEDUCED, type_from_openapi
from transom.machinery.typedvalue import field_set_of, reconcile_field_set, validate_typed_value

SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "set": {
                    "type": "array",
                    "x-kubernetes-list-type": "set",
                    "items": {"type": "string"},
                },
                "map": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["k", "p"],
                    "items": {
                        "type": "object",
                        "properties": {
                            "k": {"type": "string"},
                            "p": {"type": "string", "default": "TCP"},
                            "v": {"type": "integer"},
                        },
                    },
                },
                "plain": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"a": {"type": "string"}}},
                },
                "whole": {
                    "type": "object",
                    "x-kubernetes-map-type": "atomic",
                    "properties": {"a": {"type": "string"}},
                },
                "free": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": True,
                    "properties": {"a": {"type": "string"}},
                },
                "any": {"x-kubernetes-int-or-string": True},
                "flag": {"type": "boolean"},
                "strings": {"type": "object", "additionalProperties": {"type": "string"}},
            },
        }
    },
}
BOLT = type_from_openapi(SCHEMA)


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"set": ["x", "y"]}, {"f:set": {'v:"x"': {}, 'v:"y"': {}}}),
        ({"set": []}, None),
        (
            {"map": [{"k": "a", "v": 1}]},
            {"f:map": {'k:{"k":"a","p":"TCP"}': {".": {}, "f:k": {}, "f:v": {}}}},
        ),
        (
            {"plain": [{"a": "1"}], "whole": {"a": "1"}, "any": {"x": [1]}},
            {"f:plain": {}, "f:whole": {}, "f:any": {}},
        ),
        (
            {"free": {"a": "1", "b": {"c": [1]}}},
            {"f:free": {"f:a": {}, "f:b": {".": {}, "f:c": {}}}},
        ),
        ({"strings": {"a": "1"}, "free": {}}, {"f:strings": {"f:a": {}}, "f:free": {}}),
        ({"set": None, "flag": None}, {"f:set": {}, "f:flag": {}}),
    ],
)
def test_fields_of_a_custom_object(spec: Any, want: Any) -> None:
    assert validate_typed_value({"spec": spec}, BOLT) == ""
    assert field_set_of({"spec": spec}, BOLT) == ({"f:spec": want} if want else {})


def test_fields_without_a_schema_are_all_members() -> None:
    assert field_set_of({"spec": {"a": {"b": [{"c": 1}]}}}, DEDUCED) == {
        "f:spec": {".": {}, "f:a": {".": {}, "f:b": {}}}
    }


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"set": ["q", "q"]}, '.spec.set: duplicate entries for key [="q"]'),
        (
            {"set": [None]},
            (
                ".spec.set: element 0: associative list without keys has an element that's an "
                "explicit null"
            ),
        ),
        (
            {"set": [{}]},
            ".spec.set: element 0: associative list without keys has an element that's a map type",
        ),
        ({"set": "x"}, ".spec.set: expected list, got &{x}"),
        (
            {"map": [{"v": 1}]},
            ".spec.map: element 0: associative list with keys has an element that omits key "
            'field "k" '
            "(and doesn't have default value)",
        ),
        (
            {"map": [{"k": "a"}, {"k": "a", "p": "TCP"}]},
            '.spec.map: duplicate entries for key [k="a",p="TCP"]',
        ),
        (
            {"map": ["x"]},
            ".spec.map: element 0: associative list with keys may not have non-map elements",
        ),
        (
            {"map": [{"k": "a", "v": "x"}]},
            '.spec.map[k="a",p="TCP"].v: expected numeric (int or float), got string',
        ),
        (
            {"plain": [{"a": 1.5}]},
            ".spec.plain[0].a: expected string, got &value.valueUnstructured{Value:1.5}",
        ),
        ({"whole": {"b": 1}}, ".spec.whole.b: field not declared in schema"),
        ({"whole": 5}, ".spec.whole: expected map, got &{5}"),
        ({"flag": "yes"}, ".spec.flag: expected boolean, got &{yes}"),
        (
            {"flag": 1, "strings": {"a": {"b": [True, None]}}},
            "errors:\n  .spec.flag: expected boolean, got &{1}\n  .spec.strings.a: expected "
            "string, got "
            '&value.valueUnstructured{Value:map[string]interface {}{"b":[]interface {}{true, '
            "interface {}(nil)}}}",
        ),
    ],
)
def test_complaints(spec: Any, text: str) -> None:
    assert validate_typed_value({"spec": spec}, BOLT) == text


def test_owners_of_parts_own_the_whole_once_it_is_taken_whole() -> None:
    fields = {
        "f:spec": {
            "f:whole": {"f:a": {}},
            "f:plain": {'k:{"a":"1"}': {".": {}, "f:a": {}}},
            "f:flag": {},
        }
    }
    assert reconcile_field_set(fields, BOLT) == {
        "f:spec": {"f:whole": {}, "f:plain": {}, "f:flag": {}}
    }
    same = {"f:spec": {"f:strings": {".": {}, "f:a": {}}}}
    assert reconcile_field_set(same, BOLT) is same


def test_keys_of_built_in_lists_have_the_defaults_of_the_api() -> None:
    service = typed.type_node_of(get_schema_type("core/v1.Service"))
    assert field_set_of({"spec": {"ports": [{"port": 80}]}}, service) == {
        "f:spec": {"f:ports": {'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}}}}
    }
    pod = typed.type_node_of(get_schema_type("core/v1.Pod"))
    assert validate_typed_value({"spec": {"containers": [{"image": "x"}]}}, pod) == ""
    assert "omits key field" in validate_typed_value({"spec": {"hostAliases": [{}]}}, pod)
