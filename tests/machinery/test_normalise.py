"""The form of a Go round trip."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.recorded_cases import GOLDEN, recorded_cases

from transom.machinery import schema
from transom.machinery.kinds import GVK, KINDS
from transom.machinery.normalise import TypeMismatch, normalise_value
from transom.machinery.serviceaccounts import TOKEN_SOURCES, token_sources


def made(api_version: str, kind: str, obj: dict[str, Any]) -> dict[str, Any]:
    group, _, version = api_version.rpartition("/")
    return normalise_value(GVK(group, version, kind), obj)


@pytest.mark.parametrize(
    ("api_version", "kind", "given", "expected"),
    [
        # value structs and fields without omitempty are there, pointers keep their zero, values do
        # not
        (
            "v1",
            "Pod",
            {
                "spec": {
                    "hostNetwork": False,
                    "automountServiceAccountToken": False,
                    "priority": 0,
                    "nodeName": "",
                    "unknown": 1,
                    "volumes": [],
                    "nodeSelector": {},
                    "securityContext": {},
                }
            },
            {
                "metadata": {"creationTimestamp": None},
                "status": {},
                "spec": {
                    "containers": None,
                    "automountServiceAccountToken": False,
                    "priority": 0,
                    "securityContext": {},
                },
            },
        ),
        (
            "apps/v1",
            "Deployment",
            {"spec": {"replicas": 0, "minReadySeconds": 0}},
            {
                "metadata": {"creationTimestamp": None},
                "status": {},
                "spec": {
                    "replicas": 0,
                    "selector": None,
                    "strategy": {},
                    "template": {
                        "metadata": {"creationTimestamp": None},
                        "spec": {"containers": None},
                    },
                },
            },
        ),
        (
            "v1",
            "Service",
            {"spec": {"ports": [{"port": 80}], "selector": {"a": None}}},
            {
                "metadata": {"creationTimestamp": None},
                "status": {"loadBalancer": {}},
                "spec": {"ports": [{"port": 80, "targetPort": 0}], "selector": {"a": ""}},
            },
        ),
        (
            "v1",
            "Secret",
            {"data": {"a": "YQ==\n", "b": None, "c": [97]}, "type": "Opaque"},
            {
                "metadata": {"creationTimestamp": None},
                "data": {"a": "YQ==", "b": "", "c": "YQ=="},
                "type": "Opaque",
            },
        ),
        # a list of protobuf's is null when empty, one of JSON's is kept
        (
            "rbac.authorization.k8s.io/v1",
            "Role",
            {"rules": []},
            {"metadata": {"creationTimestamp": None}, "rules": None},
        ),
        (
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            {"spec": {"group": "g", "versions": []}},
            {
                "metadata": {"creationTimestamp": None},
                "spec": {
                    "group": "g",
                    "names": {"plural": "", "kind": ""},
                    "scope": "",
                    "versions": [],
                },
                "status": {
                    "conditions": None,
                    "acceptedNames": {"plural": "", "kind": ""},
                    "storedVersions": None,
                },
            },
        ),
        (
            "v1",
            "Event",
            {"firstTimestamp": "2020-01-01T01:00:00+01:00"},
            {
                "metadata": {"creationTimestamp": None},
                "involvedObject": {},
                "source": {},
                "firstTimestamp": "2020-01-01T00:00:00Z",
                "lastTimestamp": None,
                "eventTime": None,
                "reportingComponent": "",
                "reportingInstance": "",
            },
        ),
    ],
)
def test_round_trip(
    api_version: str, kind: str, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert made(api_version, kind, given) == expected


@pytest.mark.parametrize(
    ("given", "printed"),
    [("1000m", "1"), (1, "1"), (0.5, "500m"), ("1024Mi", "1Gi"), (None, "0"), ("1e3", "1e3")],
)
def test_quantities_are_canonical(given: Any, printed: str) -> None:
    pod = made("v1", "Pod", {"spec": {"overhead": {"cpu": given}}})
    assert pod["spec"]["overhead"] == {"cpu": printed}


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeName": 0},
        {"nodeName": False},
        {"hostNetwork": 1},
        {"priority": 1.0},
        {"priority": "1"},
        {"priority": True},
        {"volumes": {}},
        {"nodeSelector": []},
        {"nodeSelector": {"a": 1}},
        {"containers": [1]},
        {"securityContext": []},
        {"overhead": {"cpu": "x"}},
        {"overhead": {"cpu": []}},
        {"imagePullSecrets": ""},
        {"hostAliases": [{"hostnames": [1]}]},
    ],
)
def test_wrong_types_are_noticed(spec: dict[str, Any]) -> None:
    with pytest.raises(TypeMismatch):
        made("v1", "Pod", {"spec": spec})


def test_schemas_inside_a_definition() -> None:
    properties = {
        "a": {"type": "array", "items": {"type": "string", "nope": 1}},
        "b": {"additionalProperties": False},
        "c": {"items": [{"type": "x"}], "default": 1.0, "maximum": 2.0, "enum": [None, 1.5]},
    }
    version = {"schema": {"openAPIV3Schema": {"properties": properties}}}
    crd = made(
        "apiextensions.k8s.io/v1", "CustomResourceDefinition", {"spec": {"versions": [version]}}
    )
    assert crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] == {
        "a": {"type": "array", "items": {"type": "string"}},
        "b": {"additionalProperties": False},
        "c": {"items": [{"type": "x"}], "default": 1, "maximum": 2, "enum": [None, 1.5]},
    }


def test_fields_come_in_the_order_of_the_struct() -> None:
    pod = made(
        "v1",
        "Pod",
        {"spec": {"nodeName": "n", "containers": []}, "kind": "Pod", "apiVersion": "v1"},
    )
    assert list(pod) == ["kind", "apiVersion", "metadata", "spec", "status"]


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.key)
def test_every_served_version_has_a_type_and_its_empty_object_is_stable(kind: Any) -> None:
    for group, versions in ((kind.group, kind.versions), *kind.also):
        for version in versions:
            of = schema.lookup_schema_type(GVK(group, version, kind.kind))
            assert of is not None
            once = normalise_value(of, {})
            assert normalise_value(of, once) == once
            if kind.stored:
                assert schema.lookup_schema_type(GVK(group, version, kind.list_name)) is not None


# --- recorded answers: what a real server printed must be what we would print ----------


def _recorded() -> Iterator[Any]:
    for file in sorted((GOLDEN / "expected" / "1.20").glob("*.json")) if GOLDEN.is_dir() else ():
        cases = {c["name"]: c for c in recorded_cases(GOLDEN / "cases" / f"{file.stem}.yaml")}
        for case, answers in json.loads(file.read_text()).items():
            steps = {s.get("id"): s for s in cases[case]["steps"]}
            for step, answer in answers.items():
                body = answer.get("body") if isinstance(answer, dict) else None
                if not isinstance(body, dict) or steps.get(step, {}).keys() & {"pick", "each"}:
                    continue
                if (
                    isinstance(body.get("metadata"), dict)
                    and "uid" in body["metadata"]
                    and "apiVersion" in body
                ):
                    yield pytest.param(body, id=f"{file.stem}:{case}:{step}")


_MICRO = {"eventTime", "renewTime", "acquireTime", "lastObservedTime"}


def _unmasked(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {k: _unmasked(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [_unmasked(v, key) for v in value]
    masks = {"TIME": "2020-01-01T00:00:00.000000Z" if key in _MICRO else "2020-01-01T00:00:00Z"}
    if key in ("nodePort", "healthCheckNodePort") and isinstance(value, str):
        return 30000
    return masks.get(value, value) if isinstance(value, str) else value


@pytest.mark.parametrize("body", list(_recorded()))
def test_recorded_objects_are_fixed_points(body: dict[str, Any]) -> None:
    group, _, version = body["apiVersion"].rpartition("/")
    of = schema.lookup_schema_type(GVK(group, version, body["kind"]))
    if of is None:
        return  # a custom object
    obj = _unmasked(body)
    got = normalise_value(of, obj)
    if "creationTimestamp" not in obj["metadata"]:  # left out by the recorder
        del got["metadata"]["creationTimestamp"]
    assert got == obj


def _projected(sources: Any) -> Any:
    volume = {"name": "v", "projected": {"sources": sources}}
    spec = made("v1", "Pod", {"metadata": {}, "spec": {"volumes": [volume]}})["spec"]
    return spec["volumes"][0]["projected"]["sources"]


def test_token_sources_are_in_the_normal_order() -> None:
    reversed_fields = [
        {kind: dict(reversed(source.items())) for kind, source in part.items()}
        for part in token_sources()
    ]
    assert json.dumps(_projected(reversed_fields)) == json.dumps(TOKEN_SOURCES)
    assert json.dumps(_projected(token_sources())) == json.dumps(TOKEN_SOURCES)


@pytest.mark.parametrize("seconds", [3607.0, 1 << 64, "3607", True])
def test_sources_that_only_resemble_token_sources_are_checked(seconds: Any) -> None:
    sources = token_sources()
    sources[0]["serviceAccountToken"]["expirationSeconds"] = seconds
    with pytest.raises(TypeMismatch):
        _projected(sources)
