"""The slow decoder, which finds error texts, must agree with the fast one on what is an error."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transom.machinery import jsoniter, normalise, schema
from transom.machinery.kinds import GVK

POD: dict[str, Any] = {
    "metadata": {
        "name": "a",
        "creationTimestamp": "2020-01-01T00:00:00Z",
        "labels": {"a": "b"},
        "generation": 1,
        "ownerReferences": [{"name": "o", "controller": True}],
        "managedFields": [{"fieldsV1": {"f:a": {}}}],
    },
    "spec": {
        "containers": [
            {
                "name": "c",
                "command": ["x"],
                "tty": True,
                "ports": [{"containerPort": 80}],
                "resources": {"limits": {"cpu": "1"}},
                "livenessProbe": {"httpGet": {"port": "http"}, "periodSeconds": 1},
            }
        ],
        "volumes": [{"name": "v", "secret": {"items": [{"key": "k"}]}}],
        "priority": 1,
        "hostNetwork": True,
        "nodeSelector": {"x": "y"},
    },
    "status": {
        "containerStatuses": [{"restartCount": 1, "state": {"running": {"startedAt": None}}}]
    },
}
SECRET: dict[str, Any] = {
    "metadata": {"name": "s"},
    "data": {"a": "YQ=="},
    "immutable": True,
    "type": "t",
}
SCHEMA = {
    "properties": {
        "a": {
            "type": "array",
            "items": {"type": "string", "maxLength": 3},
            "maximum": 1.5,
            "additionalProperties": {"nullable": True},
            "default": {"x": 1},
        }
    }
}
CRD: dict[str, Any] = {
    "spec": {
        "group": "g",
        "versions": [{"name": "v1", "served": True, "schema": {"openAPIV3Schema": SCHEMA}}],
    }
}


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    children = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, child in children:
        found += places(child, (*path, key))
    return found


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


VALUES = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        1,
        -1,
        1.5,
        3_000_000_000,
        9_999_999_999,
        99_999_999_999,
        "",
        "x",
        "YQ==",
        "YQ=",
        "2020",
        [],
        {},
        [1],
        ["x"],
        [None],
        {"a": 1},
        {"a": "b"},
        {"a": None},
        [{"a": 1}],
        {"name": 5, "a": "\n<é>"},
        [[]],
    ]
)


@pytest.mark.parametrize(
    ("gvk", "obj"),
    [
        (GVK("", "v1", "Pod"), POD),
        (GVK("", "v1", "Secret"), SECRET),
        (GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition"), CRD),
    ],
    ids=["Pod", "Secret", "CustomResourceDefinition"],
)
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_agrees_with_the_fast_decoder(gvk: GVK, obj: dict[str, Any], data: st.DataObject) -> None:
    paths = places(obj)
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from(paths))
        try:
            obj = replaced(obj, path, data.draw(VALUES))
        except (KeyError, IndexError, TypeError):  # the place went with the first change
            continue
    of = schema.lookup_schema_type(gvk)
    assert of is not None
    raw = orjson.dumps(obj)
    text = jsoniter.jsoniter_error(of, raw)
    try:
        normalise.normalise_value(of, obj)
        accepted = True
    except normalise.TypeMismatch:
        accepted = False
    assert accepted == (text == ""), text


def test_white_space_and_escapes_do_not_confuse_it() -> None:
    of = schema.get_schema_type("core/v1.ConfigMap")
    raw = b' {\n "dat\\u0061" : { "a\\"b" : "x" , "c" : 7 } , "\\u006betadata": {} } '
    assert jsoniter.jsoniter_error(of, raw) == (
        'v1.ConfigMap.Data: ReadString: expects " or n, but found 7, error found in #10 byte '
        'of ...| , "c" : 7 } , "'
        '\\u00|..., bigger context ...| {\n "dat\\u0061" : { "a\\"b" : "x" , "c" : 7 } , '
        '"\\u006betadata": {} } |...'
    )


@pytest.mark.parametrize(
    ("schema_part", "text"),
    [
        (
            {"items": {"type": 5}},
            "v1.JSONSchemaProps.Items: unmarshalerDecoder: json: cannot unmarshal number into Go "
            "struct field JSONSchemaProps.type of type string, error found in #10 byte of",
        ),
        (
            {"additionalProperties": 5},
            "unmarshalerDecoder: boolean or JSON schema expected, error found in",
        ),
        (
            {"items": {"properties": {"a": {"maxLength": "x"}}}},
            "json: cannot unmarshal string into Go struct field "
            "JSONSchemaProps.properties.maxLength of type int64",
        ),
    ],
)
def test_nested_schemas(schema_part: dict[str, Any], text: str) -> None:
    of = schema.get_schema_type("apiextensions/v1.CustomResourceDefinition")
    version = {"schema": {"openAPIV3Schema": schema_part}}
    assert text in jsoniter.jsoniter_error(of, orjson.dumps({"spec": {"versions": [version]}}))
