"""What an edit sends to server-side apply."""

from __future__ import annotations

from typing import Any

import pytest

from transom.web.apply_changes import (
    FIELD_MANAGER,
    configuration_to_apply,
    conflict_rows,
    fields_text,
    removed_fields,
)

Object = dict[str, Any]


def _deployment(**changes: Any) -> Object:
    spec = {"replicas": 3, "template": {"spec": {"containers": [{"name": "a", "image": "x"}]}}}
    meta: Object = {"name": "web", "namespace": "shop", "labels": {"app": "web"}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": meta,
        "spec": spec | changes,
    }


def _managed(obj: Object, manager: str, fields: Object) -> Object:
    entry = {"manager": manager, "operation": "Apply", "fieldsV1": fields}
    meta = obj["metadata"]
    return {**obj, "metadata": {**meta, "managedFields": [*meta.get("managedFields", []), entry]}}


def test_only_changed_fields_are_applied() -> None:
    assert configuration_to_apply(_deployment(), _deployment(replicas=5)) == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"replicas": 5},
    }


def test_no_change_applies_no_field() -> None:
    found = configuration_to_apply(_deployment(), _deployment())
    assert set(found) == {"apiVersion", "kind", "metadata"}


def test_lists_are_applied_as_a_whole() -> None:
    after = _deployment()
    after["spec"]["template"] = {"spec": {"containers": [{"name": "a", "image": "y"}]}}
    found = configuration_to_apply(_deployment(), after)
    assert found["spec"] == {"template": {"spec": {"containers": [{"name": "a", "image": "y"}]}}}


def test_fields_that_the_console_applied_before_are_applied_again() -> None:
    """Otherwise the server would remove them."""
    before = _managed(_deployment(), FIELD_MANAGER, {"f:spec": {"f:replicas": {}}})
    after = _deployment()
    after["metadata"] = {**after["metadata"], "labels": {"app": "web", "tier": "front"}}
    found = configuration_to_apply(before, after)
    assert found["spec"] == {"replicas": 3}
    assert found["metadata"]["labels"] == {"tier": "front"}


def test_a_map_that_is_owned_as_a_whole_is_applied_as_a_whole() -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"selector": {"app": "web", "tier": "front"}},
    }
    before = _managed(service, "kubectl", {"f:spec": {"f:selector": {}}})
    after = {**service, "spec": {"selector": {"app": "web", "tier": "back"}}}
    assert configuration_to_apply(before, after)["spec"] == after["spec"]


def test_fields_that_stay_are_named() -> None:
    wanted = {"spec": {"replicas": 1, "ports": [1]}}
    result = {"spec": {"replicas": 1, "paused": True, "ports": [1, 2]}, "data": {}}
    assert removed_fields(wanted, result) == [".spec.paused", ".spec.ports", ".data"]


def test_conflicts_of_a_refused_apply() -> None:
    cause = {
        "reason": "FieldManagerConflict",
        "message": 'conflict with "kubectl" using apps/v1',
        "field": ".spec.replicas",
    }
    other = {"reason": "FieldValueInvalid", "message": "x", "field": "y"}
    assert conflict_rows({"causes": [cause, other]}) == [
        {"field": ".spec.replicas", "message": 'conflict with "kubectl" using apps/v1'}
    ]
    assert conflict_rows(None) == []


@pytest.mark.parametrize(
    ("fields", "paths"),
    [
        ({"f:spec": {"f:replicas": {}, "f:paused": {}}}, ["spec.replicas", "spec.paused"]),
        (
            {"f:spec": {"f:containers": {'k:{"name":"web"}': {".": {}, "f:image": {}}}}},
            ["spec.containers[name=web].image"],
        ),
        ({"f:finalizers": {'v:"a/b"': {}}}, ['finalizers["a/b"]']),
        (None, []),
        ({}, []),
    ],
)
def test_managed_fields_as_paths(fields: Any, paths: list[str]) -> None:
    assert fields_text(fields) == paths
