"""Metadata that every kind shares: at creation, at an update, and label selectors."""

from __future__ import annotations

from typing import Any

import pytest

from transom.machinery.validation import meta
from transom.machinery.validation.names import name_is_dns_subdomain

OLD = {
    "name": "a",
    "namespace": "ns",
    "uid": "u",
    "resourceVersion": "1",
    "generation": 2,
    "creationTimestamp": "2020-01-02T03:04:05Z",
}


def _texts(errors: list[Any]) -> list[str]:
    return [str(error) for error in errors]


@pytest.mark.parametrize(
    ("change", "texts"),
    [
        ({}, []),
        ({"namespace": ""}, ["metadata.namespace: Required value"]),
        (
            {"generation": -1},
            ["metadata.generation: Invalid value: -1: must be greater than or equal to 0"],
        ),
        (
            {"finalizers": ["orphan", "foregroundDeletion"]},
            [
                'metadata.finalizers: Invalid value: []string{"orphan", '
                '"foregroundDeletion"}: finalizer orphan and '
                "foregroundDeletion cannot be both set"
            ],
        ),
        (
            {"finalizers": ["mine"]},
            [
                'metadata.finalizers[0]: Invalid value: "mine": name is neither a standard '
                "finalizer name nor is it fully "
                "qualified"
            ],
        ),
        (
            {"managedFields": [{"manager": "a\x00", "operation": "Nope", "fieldsType": "V9"}]},
            [
                (
                    'metadata.fieldManager: Invalid value: "a\\x00": invalid character U+0000 '
                    "(at position 1)"
                ),
                (
                    'metadata.managedFields.operation: Invalid value: "Nope": must be `Apply` or '
                    "`Update`"
                ),
                'metadata.managedFields.fieldsType: Invalid value: "V9": must be `FieldsV1`',
            ],
        ),
        (
            {"ownerReferences": [{"apiVersion": "a/b/c", "kind": "X", "name": "n", "uid": "u"}]},
            [
                (
                    'metadata.ownerReferences.apiVersion: Invalid value: "a/b/c": version must '
                    "not be empty"
                )
            ],
        ),
        ({"annotations": {"Example.COM/A": "ok"}}, []),
        ({"labels": {"Example.COM/A": "ok"}}, ["PREFIX"]),
    ],
)
def test_create(change: dict[str, Any], texts: list[str]) -> None:
    got = _texts(
        meta.validate_object_meta(
            {"name": "a", "namespace": "ns", **change}, True, name_is_dns_subdomain
        )
    )
    if texts == ["PREFIX"]:
        assert (
            len(got) == 1
            and 'Invalid value: "Example.COM/A": prefix part a lowercase RFC 1123' in got[0]
        )
    else:
        assert got == texts


def test_a_cluster_kind_has_no_namespace() -> None:
    errors = meta.validate_object_meta(
        {"name": "a", "namespace": "ns"}, False, name_is_dns_subdomain
    )
    assert _texts(errors) == ["metadata.namespace: Forbidden: not allowed on this type"]


@pytest.mark.parametrize(
    ("change", "texts"),
    [
        ({}, []),
        (
            {"resourceVersion": ""},
            ['metadata.resourceVersion: Invalid value: "": must be specified for an update'],
        ),
        ({"generation": 1}, ["metadata.generation: Invalid value: 1: must not be decremented"]),
        (
            {"uid": "v", "name": "b"},
            [
                'metadata.name: Invalid value: "b": field is immutable',
                'metadata.uid: Invalid value: "v": field is immutable',
            ],
        ),
        (
            {"creationTimestamp": "2021-01-02T03:04:05Z"},
            [
                (
                    "metadata.creationTimestamp: Invalid value: 2021-01-02 03:04:05 +0000 UTC: "
                    "field is immutable"
                )
            ],
        ),
        (
            {"deletionGracePeriodSeconds": 3},
            ["metadata.deletionGracePeriodSeconds: Invalid value: 3: field is immutable"],
        ),
    ],
)
def test_update(change: dict[str, Any], texts: list[str]) -> None:
    assert _texts(meta.validate_object_meta_update({**OLD, **change}, OLD)) == texts


def test_no_finalizer_is_added_to_what_is_going() -> None:
    going = {**OLD, "deletionTimestamp": "2020-01-02T03:04:05Z", "finalizers": ["a/b"]}
    assert meta.validate_object_meta_update({**going, "finalizers": []}, going) == []
    errors = meta.validate_object_meta_update({**going, "finalizers": ["a/b", "c/e", "c/d"]}, going)
    assert _texts(errors) == [
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is "
        "being deleted, found new "
        'finalizers []string{"c/d", "c/e"}'
    ]


@pytest.mark.parametrize(
    ("expression", "texts"),
    [
        ({"key": "a", "operator": "In", "values": ["x"]}, []),
        (
            {"key": "a", "operator": "In"},
            [
                (
                    "s.matchExpressions[0].values: Required value: must be specified when "
                    "`operator` is 'In' or 'NotIn'"
                )
            ],
        ),
        (
            {"key": "a", "operator": "Exists", "values": ["x"]},
            [
                "s.matchExpressions[0].values: Forbidden: may not be specified when "
                "`operator` is 'Exists' or "
                "'DoesNotExist'"
            ],
        ),
        (
            {"key": "a", "operator": "Is"},
            ['s.matchExpressions[0].operator: Invalid value: "Is": not a valid selector operator'],
        ),
    ],
)
def test_label_selector(expression: dict[str, Any], texts: list[str]) -> None:
    assert _texts(meta.validate_label_selector({"matchExpressions": [expression]}, "s")) == texts


def test_conditions() -> None:
    good = {
        "type": "Ready",
        "status": "True",
        "reason": "A",
        "lastTransitionTime": "2020-01-02T03:04:05Z",
    }
    assert meta.validate_conditions([good], "c") == []
    texts = _texts(
        meta.validate_conditions(
            [good, {"type": "Ready", "status": "Yes", "observedGeneration": -1}], "c"
        )
    )
    assert texts == [
        'c[1].type: Duplicate value: "Ready"',
        'c[1].status: Unsupported value: "Yes": supported values: "False", "True", "Unknown"',
        "c[1].observedGeneration: Invalid value: -1: must be greater than or equal to zero",
        "c[1].lastTransitionTime: Required value: must be set",
        "c[1].reason: Required value: must be set",
    ]
