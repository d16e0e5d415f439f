"""Decoding of recorded responses, and invariants of the normalised form."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from tests.recorded_cases import GOLDEN, recorded_cases

from transom.machinery import codec
from transom.machinery.errors import ApiError
from transom.machinery.kinds import GVK, KINDS

CONFIG_MAP = GVK("", "v1", "ConfigMap")


def message(
    raw: bytes, expected: GVK = CONFIG_MAP, media_type: str = codec.JSON, **more: Any
) -> str:
    with pytest.raises(ApiError) as caught:
        codec.decode_object(raw, media_type, expected, **more)
    assert caught.value.code == 400
    return caught.value.message


BY_PLURAL = {(k.group, k.plural): k for k in KINDS}


def _recorded() -> list[Any]:
    if not GOLDEN.is_dir():
        return []
    cases = []
    for file, case in (
        ("api-validation", "request-bodies"),
        ("api-negotiation", "accept-and-types"),
    ):
        expected = json.loads((GOLDEN / "expected" / "1.20" / f"{file}.json").read_text())[case]
        steps = next(
            c for c in recorded_cases(GOLDEN / "cases" / f"{file}.yaml") if c["name"] == case
        )
        for step in steps["steps"]:
            answer = expected.get(step["id"])
            if step["method"] != "POST" or not answer or answer["status"] != 400:
                continue
            media_type = step.get("type", codec.JSON)
            if media_type in (codec.JSON, codec.YAML):
                cases.append(
                    pytest.param(step, answer["body"]["message"], id=f"{file}:{step['id']}")
                )
    return cases


@pytest.mark.parametrize(("step", "text"), _recorded())
def test_recorded_refusals(step: dict[str, Any], text: str) -> None:
    parts = step["path"].split("/")
    group, version, plural = (
        ("", parts[2], parts[5]) if parts[1] == "api" else (parts[2], parts[3], parts[6])
    )
    kind = BY_PLURAL[group, plural]
    raw = step["raw"].encode() if "raw" in step else json.dumps(step["body"]).encode()
    got = message(raw, GVK(group, version, kind.kind), step.get("type", codec.JSON))
    assert got.replace("2006-01-02T15:04:05Z07:00", "TIME07:00") == text


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (
            b'{"kind":5}',
            "the object provided is unrecognized (must be of type ConfigMap): couldn't get "
            "version/kind; "
            "json parse error: json: cannot unmarshal number into Go struct field .kind of "
            'type string ({"kind":5})',
        ),
        (
            b'{"apiVersion":"a/b/c"}',
            "the object provided is unrecognized (must be of type ConfigMap): unexpected "
            'GroupVersion string: a/b/c ({"apiVersion":"a/b/c"})',
        ),
        (
            b'{"apiVersion":"x/"}',
            "ConfigMap in version \"\" cannot be handled as a ConfigMap: Object 'apiVersion' is "
            'missing in \'{"apiVersion":"x/"}\'',
        ),
        (
            b'"text"',
            "the object provided is unrecognized (must be of type ConfigMap): couldn't get "
            "version/kind; json "
            r"parse error: json: cannot unmarshal string into Go value of type struct { "
            r"APIVersion string "
            r'"json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" } '
            r"(227465787422)",
        ),
        (
            b'{"metadata":{"name":"a"},"x":' + b"[" * 20_000,
            "the object provided is unrecognized (must be of type "
            "ConfigMap): couldn't get version/kind; json parse error: invalid character '[' "
            "exceeded max depth "
            '({"metadata":{"name":"a"},"x":[ ...)',
        ),
        (
            b'{"kind":"Deployment","apiVersion":"apps/v1"}',
            'Deployment in version "v1" cannot be handled as a '
            "ConfigMap: converting (v1.Deployment) to (core.ConfigMap): unknown conversion",
        ),
        # The decoder goes on after a mistake and names every field it passes.
        (
            b'{"metadata":{"name":5,"namespace":"x"}}',
            'ConfigMap in version "v1" cannot be handled as a ConfigMap: '
            'v1.ConfigMap.ObjectMeta: v1.ObjectMeta.Namespace: Name: ReadString: expects " '
            "or n, but found 5, error found "
            'in #10 byte of ...|:{"name":5,"namespac|..., bigger context '
            '...|{"metadata":{"name":5,"namespace":"x"}}|...',
        ),
        (
            b'{"immutable":"x"}',
            'ConfigMap in version "v1" cannot be handled as a ConfigMap: v1.ConfigMap.Immutable: '
            'ReadBool: expect t or f, but found ", error found in #10 byte of '
            '...|mutable":"x"}|..., bigger context '
            '...|{"immutable":"x"}|...',
        ),
    ],
)
def test_refusals(raw: bytes, text: str) -> None:
    assert message(raw) == text


@pytest.mark.parametrize(
    ("resources", "text"),
    [
        (
            '{"limits":{"cpu":"x"}}',
            "unmarshalerDecoder: quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$', error found in #10 byte of ...|",
        ),
        (
            '{"limits":{"cpu":true}}',
            "unmarshalerDecoder: quantities must match the regular expression",
        ),
        (
            '{"limits":[]}',
            "v1.ResourceRequirements.Limits: ReadMapCB: expect { or n, but found [, error found in",
        ),
    ],
)
def test_bad_quantities(resources: str, text: str) -> None:
    raw = f'{{"spec":{{"containers":[{{"name":"c","resources":{resources}}}]}}}}'.encode()
    got = message(raw, GVK("", "v1", "Pod"))
    assert "v1.Pod.Spec: v1.PodSpec.Containers: []v1.Container: v1.Container.Resources: " in got
    assert text in got


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            "1.5",
            (
                "v1.DeploymentSpec.Replicas: assertInteger: can not decode float as int, error "
                "found in #10 byte"
            ),
        ),
        (
            "3000000000",
            "v1.DeploymentSpec.Replicas: ReadInt32: overflow: 3000000000, error found in #10 byte",
        ),
        (
            "99999999999",
            "v1.DeploymentSpec.Replicas: readUint32: overflow, error found in #10 byte",
        ),
        (
            "true",
            (
                "v1.DeploymentSpec.Replicas: readUint32: unexpected character: \ufffd, error "
                "found in #10 byte"
            ),
        ),
        (
            "1e3",
            (
                "v1.DeploymentSpec.isObjectEnd: object ended prematurely, unexpected char e, "
                "error found in #10 byte"
            ),
        ),
    ],
)
def test_bad_integers(value: str, text: str) -> None:
    raw = f'{{"metadata":{{"name":"a"}},"spec":{{"replicas":{value}}}}}'.encode()
    assert text in message(raw, GVK("apps", "v1", "Deployment"))


def test_overflows_that_the_decoder_does_not_notice() -> None:
    """What a 1.20 server makes of `replicas: 9999999999`."""
    raw = b'{"spec":{"replicas":9999999999,"progressDeadlineSeconds":600}}'
    assert (
        codec.decode_object(raw, codec.JSON, GVK("apps", "v1", "Deployment")).obj["spec"][
            "replicas"
        ]
        == 1410065407
    )
    raw = b'{"spec":{"activeDeadlineSeconds":25000000000000000000}}'
    spec = codec.decode_object(raw, codec.JSON, GVK("", "v1", "Pod")).obj["spec"]
    assert spec["activeDeadlineSeconds"] == 25 * 10**18 - 2**64


def test_kind_and_version_are_filled_in() -> None:
    made = codec.decode_object(b'{"metadata":{"name":"a"}}', codec.JSON, CONFIG_MAP)
    assert made.gvk == CONFIG_MAP
    assert list(made.obj.items())[:2] == [("kind", "ConfigMap"), ("apiVersion", "v1")]
    assert codec.decode_object(b"null", codec.JSON, CONFIG_MAP).obj["metadata"] == {
        "creationTimestamp": None
    }


def test_a_place_may_take_several_versions() -> None:
    beta, stable = GVK("policy", "v1beta1", "Eviction"), GVK("policy", "v1", "Eviction")
    raw = b'{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"a"}}'
    assert codec.decode_object(raw, codec.JSON, beta, also=(stable,)).gvk == stable
    assert "does not match the expected API version (policy/v1beta1)" in message(raw, beta)


def test_options_of_any_version_and_bare_errors() -> None:
    options = GVK("", "v1", "DeleteOptions")
    raw = b'{"apiVersion":"apps/v1","kind":"DeleteOptions","gracePeriodSeconds":0}'
    assert codec.decode_options(raw, codec.JSON, options)["gracePeriodSeconds"] == 0
    for bad, text in (
        (
            b"{nope",
            "couldn't get version/kind; json parse error: invalid character 'n' looking for "
            "beginning of "
            "object key string",
        ),
        (
            b'{"kind":"Pod"}',
            'no kind "Pod" is registered for version "v1" in scheme '
            '"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27"',
        ),
    ):
        with pytest.raises(ApiError) as caught:
            codec.decode_options(bad, codec.JSON, options)
        assert (caught.value.code, caught.value.reason, caught.value.message) == (500, "", text)


def test_yaml_is_version_1_1() -> None:
    raw = b"metadata:\n  name: a\ndata:\n  y: '1'\n---\nnot: read\n"
    assert codec.decode_object(raw, codec.YAML, CONFIG_MAP).obj["data"] == {"true": "1"}
    assert message(b"a: [b", media_type=codec.YAML) == (
        "the object provided is unrecognized (must be of type ConfigMap): yaml: line 1: did "
        "not find expected ',' "
        "or ']' (613a205b62)"
    )


def test_bad_utf8_is_replaced_byte_by_byte() -> None:
    made = codec.decode_object(b'{"data":{"a":"x\xe2\x82y\\ud800"}}', codec.JSON, CONFIG_MAP)
    assert made.obj["data"] == {"a": "x\ufffd\ufffdy\ufffd"}
    orjson.dumps(made.obj)


WIDGET = GVK("example.com", "v1", "Widget")


def test_custom_objects_keep_all_but_their_metadata() -> None:
    raw = b'{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","nope":1},"spec":{"x":1.0,"y":null}}'
    assert codec.decode_object(raw, codec.JSON, WIDGET).obj == {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "a", "creationTimestamp": None},
        "spec": {"x": 1, "y": None},
    }


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (
            b'{"metadata": {"name": "a"}}',
            'Widget in version "v1" cannot be handled as a Widget: unmarshalerDecoder: '
            'Object \'Kind\' is missing in \'{"metadata": {"name": "a"}}\', error found in '
            "#10 byte of "
            '...|me": "a"}}|..., bigger context ...|{"metadata": {"name": "a"}}|...',
        ),
        (
            b'{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"f","labels":{"l":5}}}',
            "Widget in "
            'version "v1" cannot be handled as a Widget: v1.ObjectMeta.Name: Labels: '
            'ReadString: expects " or n, but '
            'found 5, error found in #10 byte of ...|ls":{"l":5},"name":"|..., bigger context '
            '...|{"labels":{"l":5},"name":"f"}|...',
        ),
        (
            b'{"apiVersion":"example.com/v2","kind":"Widget"}',
            "the API version in the data (example.com/v2) does not "
            "match the expected API version (example.com/v1)",
        ),
        (
            b'{"kind":"Widget"}',
            "the API version in the data () does not "
            "match the expected API version (example.com/v1)",
        ),
        *(
            (
                b'{"apiVersion":"%s","kind":"Widget"}' % written.encode(),
                f"the API version in the data ({written}) does not "
                "match the expected API version (example.com/v1)",
            )
            for written in ("v1", "apps/v1", "example.com/", "example.com/v3")
        ),
    ],
)
def test_custom_refusals(raw: bytes, text: str) -> None:
    assert message(raw, WIDGET) == text


def test_unknown_and_duplicate_fields() -> None:
    pod = GVK("", "v1", "Pod")
    raw = (
        b'{"metadata":{"labels":{"a":"1","a":"2"},"x":1},"spec":{"foo":1,"foo":2,"containers":[{"bar":1},'
        b'{"name":"a","name":"b"}],"nodeName":"a","nodeName":"b"},"Spec":{}}'
    )
    made = codec.decode_object(raw, codec.JSON, pod, strict=True)
    assert made.problems == [
        'duplicate field "metadata.labels.a"',
        'unknown field "metadata.x"',
        'unknown field "spec.foo"',
        'unknown field "spec.containers[0].bar"',
        'duplicate field "spec.containers[1].name"',
        'duplicate field "spec.nodeName"',
        'unknown field "Spec"',
    ]
    refusal = codec.strict_error(made, pod)
    assert refusal is not None
    assert refusal.message.startswith(
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error: dupl'
    )
    assert codec.decode_object(raw, codec.JSON, pod).problems == []
    in_yaml = codec.decode_object(
        b"metadata:\n  name: a\n  name: b\nx: 1\n", codec.YAML, pod, strict=True
    )
    assert in_yaml.problems == [
        'yaml: unmarshal errors:\n  line 3: key "name" already set in map',
        'unknown field "x"',
    ]


def test_error_as_yaml() -> None:
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'configmaps "none" not found',
        "reason": "NotFound",
        "details": {"name": "none", "kind": "configmaps"},
        "code": 404,
    }
    assert codec.to_yaml(status) == (
        "apiVersion: v1\ncode: 404\ndetails:\n  kind: configmaps\n  name: none\nkind: Status\n"
        'message: configmaps "none" not found\nmetadata: {}\nreason: NotFound\nstatus: Failure\n'
    )
