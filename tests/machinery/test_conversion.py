"""Versions convert without loss, and as Kubernetes converts them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transom.machinery import conversion, normalise, schema
from transom.machinery.conversion import from_storage, to_storage
from transom.machinery.kinds import BY_KEY, GVK, KINDS, Kind

MULTI = [
    (kind, GVK(group, version, kind.kind))
    for kind in KINDS
    for group, versions in ((kind.group, kind.versions), *kind.also)
    for version in versions
    if (group, version) != (kind.group, kind.storage)
]


def ids(value: Any) -> str:
    return value.api_version if isinstance(value, GVK) else value.kind


@pytest.mark.parametrize(("kind", "gvk"), MULTI, ids=ids)
def test_storage_version_is_free_and_others_fit_their_type(kind: Kind, gvk: GVK) -> None:
    stored = normalise.normalise_value(
        kind.gvk(), {"apiVersion": kind.gvk().api_version, "kind": kind.kind}
    )
    assert to_storage(kind, stored, kind.gvk()) is stored
    assert from_storage(kind, stored, kind.gvk()) is stored
    shown = from_storage(kind, stored, gvk)
    assert shown["apiVersion"] == gvk.api_version
    assert normalise.normalise_value(gvk, shown) == shown


def filled(type_id: str, depth: int = 0) -> Any:
    """An object with a value in every field, so that a field the conversion forgets is missed."""
    out: dict[str, Any] = {}
    for f in schema.get_schema_type(type_id).properties.values():
        value = filled_value(f.value, f.name, depth)
        if value is not None:
            out[f.name] = value
    return out


def filled_value(value: schema.SchemaValue, name: str, depth: int) -> Any:
    if value.kind == "struct":
        return filled(value.ref, depth + 1) if depth < 12 else None
    if value.item is not None:
        item = filled_value(value.item, name, depth + 1)
        return None if item is None else [item] if value.kind == "list" else {"some": item}
    return {
        "string": name,
        "bool": True,
        "int32": 7,
        "int64": 7,
        "float": 7,
        "bytes": "YQ==",
        "quantity": "7",
        "time": "2020-01-02T03:04:05Z",
        "microtime": "2020-01-02T03:04:05.000006Z",
        "int-or-string": 7,
        "fields": {},
        "raw": {},
    }.get(value.kind)


# Their metrics have another shape, which has no room for a target of several kinds at once.
FLAT = ("autoscaling/v1", "autoscaling/v2beta1")


@pytest.mark.parametrize(
    ("kind", "gvk"), [m for m in MULTI if m[1].api_version not in FLAT], ids=ids
)
def test_no_field_is_lost(kind: Kind, gvk: GVK) -> None:
    of = schema.lookup_schema_type(kind.gvk())
    assert of is not None
    stored = normalise.normaliser(of)(filled(of.id))
    stored["apiVersion"], stored["kind"] = kind.gvk().api_version, kind.kind
    for rule in stored["spec"]["rules"] if kind.kind == "Ingress" else ():
        # a port has a name or a number
        rule["http"]["paths"][0]["backend"]["service"]["port"].pop("number")
    if kind.kind == "Ingress":
        stored["spec"]["defaultBackend"]["service"]["port"].pop("name")
    assert to_storage(kind, from_storage(kind, stored, gvk), gvk) == stored


HPA = BY_KEY["autoscaling/HorizontalPodAutoscaler"]
V1, V2BETA1 = GVK("autoscaling", "v1", HPA.kind), GVK("autoscaling", "v2beta1", HPA.kind)


def stored_hpa(spec: dict[str, Any], **more: Any) -> dict[str, Any]:
    return normalise.normalise_value(
        HPA.gvk(),
        {
            "apiVersion": "autoscaling/v2",
            "kind": HPA.kind,
            "metadata": {"name": "h"},
            "spec": {
                "scaleTargetRef": {"kind": "Deployment", "name": "d"},
                "maxReplicas": 3,
                **spec,
            },
            **more,
        },
    )


def resource(name: str, **target: Any) -> dict[str, Any]:
    return {"type": "Resource", "resource": {"name": name, "target": target}}


def test_hpa_v1_carries_the_rest_in_annotations() -> None:
    target = {"type": "AverageValue", "averageValue": "10"}
    pods = {"type": "Pods", "pods": {"metric": {"name": "qps"}, "target": target}}
    stored = stored_hpa(
        {
            "metrics": [pods, resource("cpu", type="Utilization", averageUtilization=50)],
            "behavior": {
                "scaleUp": {
                    "stabilizationWindowSeconds": 0,
                    "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}],
                }
            },
        },
        status={
            "conditions": [{"type": "AbleToScale", "status": "True", "lastTransitionTime": None}]
        },
    )
    shown = from_storage(HPA, stored, V1)
    assert shown["spec"]["targetCPUUtilizationPercentage"] == 50
    assert "metrics" not in shown["spec"]
    notes = shown["metadata"]["annotations"]
    prefix = "autoscaling.alpha.kubernetes.io/"
    assert (
        notes[prefix + "metrics"]
        == '[{"type":"Pods","pods":{"metricName":"qps","targetAverageValue":"10"}}]'
    )
    assert json.loads(notes[prefix + "behavior"]) == {
        "ScaleUp": {
            "StabilizationWindowSeconds": 0,
            "SelectPolicy": None,
            "Policies": [{"Type": "Pods", "Value": 4, "PeriodSeconds": 15}],
        },
        "ScaleDown": None,
    }
    assert (
        notes[prefix + "conditions"]
        == '[{"type":"AbleToScale","status":"True","lastTransitionTime":null}]'
    )
    assert to_storage(HPA, shown, V1) == stored


def test_hpa_v1_without_metrics_means_80_percent_cpu() -> None:
    given_v1 = normalise.normalise_value(
        V1,
        {
            "apiVersion": "autoscaling/v1",
            "kind": HPA.kind,
            "metadata": {
                "name": "h",
                "annotations": {"autoscaling.alpha.kubernetes.io/metrics": "no json"},
            },
        },
    )
    stored = to_storage(HPA, given_v1, V1)
    assert stored["spec"]["metrics"] == [resource("cpu", type="Utilization", averageUtilization=80)]
    assert "annotations" not in stored["metadata"]


_QUANTITY = st.sampled_from(["10", "500m", "1Gi"])
_SELECTOR = st.none() | st.just({"matchLabels": {"a": "<b>"}})
_IDENTIFIER = st.builds(
    lambda s: {"name": "m"} if s is None else {"name": "m", "selector": s}, _SELECTOR
)
_METRICS = st.one_of(
    st.builds(lambda q: resource("memory", type="AverageValue", averageValue=q), _QUANTITY),
    st.builds(
        lambda u: resource("memory", type="Utilization", averageUtilization=u), st.integers(1, 100)
    ),
    st.builds(
        lambda m, q: {
            "type": "Pods",
            "pods": {"metric": m, "target": {"type": "AverageValue", "averageValue": q}},
        },
        _IDENTIFIER,
        _QUANTITY,
    ),
    st.builds(
        lambda m, q: {
            "type": "External",
            "external": {"metric": m, "target": {"type": "Value", "value": q}},
        },
        _IDENTIFIER,
        _QUANTITY,
    ),
    st.builds(
        lambda m, q: {
            "type": "Object",
            "object": {
                "describedObject": {"kind": "K", "name": "n"},
                "metric": m,
                "target": {"type": "Value", "value": q},
            },
        },
        _IDENTIFIER,
        _QUANTITY,
    ),
    st.builds(
        lambda u: {
            "type": "ContainerResource",
            "containerResource": {
                "name": "cpu",
                "container": "c",
                "target": {"type": "Utilization", "averageUtilization": u},
            },
        },
        st.integers(1, 100),
    ),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(_METRICS, max_size=4), st.integers(1, 100), st.sampled_from([V1, V2BETA1]))
def test_hpa_metrics_survive_older_versions(
    metrics: list[dict[str, Any]], utilization: int, version: GVK
) -> None:
    """v1 puts the CPU utilisation last, so that is where it starts here."""
    stored = stored_hpa(
        {"metrics": [*metrics, resource("cpu", type="Utilization", averageUtilization=utilization)]}
    )
    assert to_storage(HPA, from_storage(HPA, stored, version), version) == stored


def test_hpa_v2beta1_is_flat_and_has_no_room_for_the_behaviour() -> None:
    stored = stored_hpa(
        {
            "metrics": [resource("cpu", type="Utilization", averageUtilization=50)],
            "behavior": {"scaleDown": {"selectPolicy": "Disabled"}},
        },
        status={
            "currentMetrics": [
                {
                    "type": "Pods",
                    "pods": {"metric": {"name": "qps"}, "current": {"averageValue": "7"}},
                }
            ]
        },
    )
    shown = from_storage(HPA, stored, V2BETA1)
    assert shown["spec"]["metrics"] == [
        {"type": "Resource", "resource": {"name": "cpu", "targetAverageUtilization": 50}}
    ]
    assert shown["status"]["currentMetrics"] == [
        {"type": "Pods", "pods": {"metricName": "qps", "currentAverageValue": "7"}}
    ]
    assert shown["metadata"]["annotations"] == {
        "autoscaling.alpha.kubernetes.io/behavior": (
            '{"ScaleUp":null,"ScaleDown":{"StabilizationWindowSeconds":null,'
            '"SelectPolicy":"Disabled","Policies":null}}'
        )
    }
    assert to_storage(HPA, shown, V2BETA1) == stored


SLICE = BY_KEY["discovery.k8s.io/EndpointSlice"]
PDB = BY_KEY["policy/PodDisruptionBudget"]


@pytest.mark.parametrize(
    ("endpoint", "v1"),
    [
        (
            {
                "addresses": ["10.0.0.1"],
                "conditions": {},
                "topology": {
                    "kubernetes.io/hostname": "n",
                    "x": "y",
                    "topology.kubernetes.io/zone": "z",
                },
            },
            {
                "addresses": ["10.0.0.1"],
                "conditions": {},
                "zone": "z",
                "deprecatedTopology": {"kubernetes.io/hostname": "n", "x": "y"},
            },
        ),
        (
            {
                "addresses": ["10.0.0.1"],
                "conditions": {},
                "nodeName": "n",
                "topology": {"kubernetes.io/hostname": "n"},
            },
            {"addresses": ["10.0.0.1"], "conditions": {}, "nodeName": "n"},
        ),
    ],
)
def test_endpoint_topology(endpoint: dict[str, Any], v1: dict[str, Any]) -> None:
    beta = GVK(SLICE.group, "v1beta1", SLICE.kind)
    shown = normalise.normalise_value(
        beta,
        {
            "apiVersion": beta.api_version,
            "kind": SLICE.kind,
            "addressType": "IPv4",
            "endpoints": [endpoint],
        },
    )
    stored = conversion.convert(SLICE, shown, "v1")
    assert stored["endpoints"] == [v1]
    assert conversion.convert(SLICE, stored, "v1beta1") == shown


def test_an_empty_selector_means_nothing_in_v1beta1_and_everything_in_v1() -> None:
    beta = GVK(PDB.group, "v1beta1", PDB.kind)
    shown = {"apiVersion": "policy/v1beta1", "kind": PDB.kind, "spec": {"selector": {}}}
    stored = to_storage(PDB, shown, beta)
    assert stored["spec"]["selector"]["matchExpressions"][0]["operator"] == "Exists"
    assert from_storage(PDB, stored, beta)["spec"]["selector"] == {}
    everything = {**stored, "spec": {"selector": {}}}
    assert (
        from_storage(PDB, everything, beta)["spec"]["selector"]["matchExpressions"][0]["operator"]
        == "DoesNotExist"
    )
    assert to_storage(PDB, from_storage(PDB, everything, beta), beta)["spec"]["selector"] == {}


def test_input_is_left_alone() -> None:
    for kind, gvk in MULTI:
        of = schema.lookup_schema_type(gvk)
        assert of is not None
        shown = normalise.normaliser(of)(filled(of.id))
        shown["apiVersion"], shown["kind"] = gvk.api_version, kind.kind
        before = json.dumps(shown)
        to_storage(kind, shown, gvk)
        assert json.dumps(shown) == before


@pytest.mark.parametrize(
    ("version", "order"), [("v2beta2", ["memory", "cpu"]), ("v2", ["cpu", "memory"])]
)
def test_an_autoscaler_is_kept_with_the_room_of_v1(version: str, order: list[str]) -> None:
    kind = BY_KEY["autoscaling/HorizontalPodAutoscaler"]
    metrics = [
        {
            "type": "Resource",
            "resource": {"name": name, "target": {"type": "Utilization", "averageUtilization": 5}},
        }
        for name in ("cpu", "memory")
    ]
    obj = normalise.normalise_value(
        kind.gvk(),
        {"apiVersion": kind.gvk().api_version, "kind": kind.kind, "spec": {"metrics": metrics}},
    )
    conversion.apply_storage_changes(kind, obj, GVK(kind.group, version, kind.kind))
    assert [metric["resource"]["name"] for metric in obj["spec"]["metrics"]] == order
