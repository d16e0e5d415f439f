"""Validation of device classes, claims, templates and resource slices at release 1.36."""

from __future__ import annotations

from typing import Any

import pytest

from transom.machinery.kinds import Kind
from transom.machinery.releases import Release
from transom.machinery.releases.features import FeatureSet
from transom.machinery.releases.kinds import release_kinds
from transom.machinery.validation import validate_create, validate_update

RELEASE = Release(1, 36)
FEATURES = FeatureSet(RELEASE)
KINDS = {kind.key: kind for kind in release_kinds(RELEASE)}


def kind_of(name: str) -> Kind:
    return KINDS[f"resource.k8s.io/{name}"]


def create(name: str, spec: Any) -> list[str]:
    meta = {"name": "x", "uid": "1"}
    if kind_of(name).namespaced:
        meta["namespace"] = "default"
    obj = {"metadata": meta, "spec": spec}
    return [str(e) for e in validate_create(kind_of(name), obj, "", FEATURES)]


def request(**fields: Any) -> Any:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, **fields}
    return {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}


def device(**fields: Any) -> Any:
    return {
        "driver": "d.example.com",
        "nodeName": "n",
        "pool": {"name": "p", "resourceSliceCount": 1},
        "devices": [{"name": "a", **fields}],
    }


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (request(), ""),
        (request(count=0), "spec.devices.requests[0].exactly.count: Invalid value: 0: must be"),
        (request(selectors=[{"cel": {"expression": "device.driver == 'a'"}}]), ""),
        (
            request(selectors=[{"cel": {"expression": "1"}}]),
            "spec.devices.requests[0].exactly.selectors[0].cel.expression: Invalid value: "
            '"1": must evaluate to bool or the unknown type, not int',
        ),
        (
            {"devices": {**request()["devices"], "constraints": [{"matchAttribute": "a"}]}},
            "spec.devices.constraints[0].matchAttribute: Invalid value: "
            '"a": a fully qualified name must be a domain',
        ),
        (
            {"devices": {**request()["devices"], "config": [{"requests": ["r/x"], "opaque": {}}]}},
            'spec.devices.config[0].requests[0]: Invalid value: "r/x": must be the name of a',
        ),
    ],
)
def test_claims(spec: Any, problem: str) -> None:
    errors = create("ResourceClaim", spec)
    assert errors[0].startswith(problem) if problem else errors == []


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, ""),
        ({"attributes": {"a.example.com/b": {"version": "1.2.3-rc.1"}}}, ""),
        ({"attributes": {"x": {"string": "y" * 65}}}, "spec.devices[0].attributes[x].string: Too"),
        ({"nodeName": "m"}, "spec.devices[0]: Invalid value"),
        ({"bindingConditions": ["a"]}, "spec.devices[0].bindingFailureConditions: Invalid value"),
        (
            {"capacity": {"m": {"value": "1Gi", "requestPolicy": {"default": "1"}}}},
            "spec.devices[0].capacity[m].requestPolicy: Forbidden: allowMultipleAllocations must",
        ),
        (
            {
                "allowMultipleAllocations": True,
                "capacity": {
                    "m": {
                        "value": "10",
                        "requestPolicy": {
                            "default": "3",
                            "validRange": {"min": "2", "max": "8", "step": "2"},
                        },
                    }
                },
            },
            "spec.devices[0].capacity[m].requestPolicy.validRange.step: Invalid value: "
            '"3": value is not a multiple of a given step (2) from (2)',
        ),
    ],
)
def test_devices_of_a_slice(fields: Any, problem: str) -> None:
    errors = create("ResourceSlice", device(**fields))
    assert errors[0].startswith(problem) if problem else errors == []


def test_claim_specs_and_allocations_are_immutable() -> None:
    kind, types = kind_of("ResourceClaim"), FEATURES
    meta = {"name": "x", "namespace": "default", "uid": "1", "resourceVersion": "1"}
    old = {"metadata": meta, "spec": request()}
    [error] = validate_update(
        kind, {"metadata": meta, "spec": request(count=2)}, old, "", "", types
    )
    assert error.field == "spec"
    assert error.detail == "field is immutable"
    result = {"request": "r", "driver": "d.example.com", "pool": "p", "device": "a"}
    allocated = {**old, "status": {"allocation": {"devices": {"results": [result]}}}}
    assert validate_update(kind, allocated, old, "status", "", types) == []
    moved = {**result, "device": "b"}
    other = {**old, "status": {"allocation": {"devices": {"results": [moved]}}}}
    [error] = validate_update(kind, other, allocated, "status", "", types)
    assert error.field == "status.allocation"


def test_reservations_need_an_allocation() -> None:
    kind, types = kind_of("ResourceClaim"), FEATURES
    meta = {"name": "x", "namespace": "default", "uid": "1", "resourceVersion": "1"}
    old = {"metadata": meta, "spec": request()}
    user = {"resource": "pods", "name": "p", "uid": "2"}
    [error] = validate_update(
        kind, {**old, "status": {"reservedFor": [user]}}, old, "status", "", types
    )
    assert error.detail == "may not be specified when `allocated` is not set"
