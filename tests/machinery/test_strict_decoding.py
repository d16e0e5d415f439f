"""Unknown and duplicate fields are found, however the body is written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from transom.machinery import codec
from transom.machinery.codec import Decoded, decode_object
from transom.machinery.kinds import GVK
from transom.machinery.normalise import normalise_known
from transom.machinery.releases import Release
from transom.machinery.schema import SchemaTable, schema_table
from transom.machinery.strictness import has_no_duplicates, strict_decoding_problems

POD = GVK("", "v1", "Pod")


@pytest.mark.parametrize(
    ("body", "problems"),
    [
        ('{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","env":[]}]}}', []),
        ('{"metadata" : {"name":"a"}}', []),
        ('{"metadata":{"labels":{"a":": \\": x"}}}', []),
        ('{"metadata":{"labels":{"a\\\\":"b"}}}', []),
        ('{"metadata":{"name":"a"},"spec":{"foo":1}}', ['unknown field "spec.foo"']),
        (
            '{"metadata":{"name":"a","name":"b"},"spec":{"containers":[{"name":"c","nam":1}]}}',
            ['duplicate field "metadata.name"', 'unknown field "spec.containers[0].nam"'],
        ),
        (
            '{"metadata":{"labels":{"a\\\\":"1","a\\\\":"2"}}}',
            ['duplicate field "metadata.labels.a\\\\"'],
        ),
        ('{"spec":{"nodeSelector":{"a":"1","a" :"2"}}}', ['duplicate field "spec.nodeSelector.a"']),
        (
            '{"spec":{"volumes":[{"name":"v","csi":{"volumeAttributes":{"x":"y","x":"z"}}}]}}',
            ['duplicate field "spec.volumes[0].csi.volumeAttributes.x"'],
        ),
    ],
)
def test_fields_of_a_pod(body: str, problems: list[str]) -> None:
    pod = schema_table(Release(1, 36)).lookup(POD)
    assert strict_decoding_problems(pod, body.encode(), False) == problems
    assert _decode(body).problems == problems


@pytest.mark.parametrize(
    "body",
    [
        '{"metadata":{"annotations":{"a":"\\u0022:","b":"1","b":"2"}}}',
        '{"metadata":{"annotations":{"a" :"1","a":"2"}}}',
        '{"metadata":{"annotations":{"k:{\\"name\\":\\"c\\"}":":","k:{\\"name\\":\\"c\\"}":"2"}}}',
        '{"metadata":{"annotations":{"a":"x\\":","a":"2"}}}',
        '{"spec":{"priority":123456789012345678901234567890,"priority":1}}',
    ],
)
def test_lost_keys_are_noticed(body: str) -> None:
    assert not has_no_duplicates(json.loads(body), body.encode())


def test_a_clean_body_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    body: Any = {
        "metadata": {
            "name": "a",
            "labels": {"b": ":c"},
            "annotations": {"d": '" :" < \\":'},
            "ownerReferences": [{"name": "d"}],
            "managedFields": [{"fieldsV1": {'k:{"containerPort":80,"protocol":"TCP"}': {}}}],
        },
        "spec": {
            "containers": [{"name": "c", "resources": {"limits": {"cpu": 1}}, "args": ["x"]}],
            "nodeSelector": {"a": "b"},
            "affinity": {"nodeAffinity": {}},
        },
    }
    parsed: list[bytes] = []
    monkeypatch.setattr(
        codec.strictness,
        "strict_decoding_problems",
        lambda _of, raw, _yaml: parsed.append(raw) or [],
    )
    for indent in (None, 2):
        _decode(json.dumps(body, indent=indent))
    _decode(json.dumps(body, separators=(" ,", " : ")).replace("<", "\\u003c"))
    assert not parsed
    body["spec"]["containers"][0]["ports"] = [{"port": 1}]
    _decode(json.dumps(body))
    assert parsed


def test_a_field_of_a_disabled_gate_is_searched_for_unknown_fields() -> None:
    types = SchemaTable(Release(1, 36), {"PodLevelResources": False})
    body = b'{"spec":{"resources":{"foo":1}}}'
    decoded = decode_object(body, "application/json", POD, strict=True, types=types)
    assert decoded.problems == ['unknown field "spec.resources.foo"']
    assert "resources" not in decoded.obj["spec"]


def test_only_objects_without_unknown_fields_are_normalised() -> None:
    of = schema_table(Release(1, 36)).lookup(POD)
    assert of is not None
    assert normalise_known(of, {"spec": {"containers": [{"name": "a", "tty": False}]}}) == {
        "metadata": {},
        "spec": {"containers": [{"name": "a", "resources": {}}]},
        "status": {},
    }
    assert normalise_known(of, {"spec": {"containers": [{"name": "a", "ty": False}]}}) is None
    assert normalise_known(of, {"spec": {"containers": "a"}}) is None


def _decode(body: str) -> Decoded:
    types = schema_table(Release(1, 36))
    return decode_object(body.encode(), "application/json", POD, strict=True, types=types)
