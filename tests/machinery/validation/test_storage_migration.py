"""StorageVersionMigrations: the resource, and what a status may change."""

from __future__ import annotations

from typing import Any

import pytest

from transom.machinery.validation.storage_migration import (
    validate_storage_version_migration_create,
    validate_storage_version_migration_status_update,
    validate_storage_version_migration_update,
)


def migration(resource: dict[str, str], **status: Any) -> dict[str, Any]:
    meta = {"name": "m", "uid": "1", "resourceVersion": "1"}
    return {"metadata": meta, "spec": {"resource": resource}, "status": status}


def condition(kind: str, value: str = "True") -> dict[str, str]:
    when = "2026-01-01T00:00:00Z"
    return {"type": kind, "status": value, "reason": "R", "lastTransitionTime": when}


@pytest.mark.parametrize(
    ("resource", "fields"),
    [
        ({"resource": "pods"}, []),
        ({"group": "apps", "resource": "deployments"}, []),
        ({}, ["spec.resource.resource"]),
        ({"resource": "Pods"}, ["spec.resource.resource"]),
        ({"group": "A", "resource": "pods"}, ["spec.resource.group"]),
    ],
)
def test_the_resource_is_checked(resource: dict[str, str], fields: list[str]) -> None:
    assert [
        error.field for error in validate_storage_version_migration_create(migration(resource))
    ] == fields


def test_the_spec_cannot_change() -> None:
    old = migration({"resource": "pods"})
    assert (
        validate_storage_version_migration_update(migration({"resource": "pods", "group": ""}), old)
        == []
    )
    errors = validate_storage_version_migration_update(migration({"resource": "nodes"}), old)
    assert [(error.field, error.detail) for error in errors] == [("spec", "field is immutable")]


@pytest.mark.parametrize(
    ("before", "after", "details"),
    [
        ({}, {"resourceVersion": "7", "conditions": [condition("Running")]}, []),
        ({}, {"resourceVersion": "07"}, ["resource version is not well formed: 07"]),
        ({"resourceVersion": "7"}, {"resourceVersion": "8"}, ["field is immutable"]),
        (
            {},
            {"conditions": [condition("Succeeded"), condition("Failed")]},
            ["Both success and failed conditions cannot be true at the same time"],
        ),
        (
            {"conditions": [condition("Succeeded")]},
            {"conditions": [condition("Succeeded", "False")]},
            ["Success condition cannot be set to false once it is true"],
        ),
        (
            {"conditions": [condition("Failed")]},
            {"conditions": []},
            ["Failed condition cannot be set to false once it is true"],
        ),
    ],
)
def test_the_status_is_checked(
    before: dict[str, Any], after: dict[str, Any], details: list[str]
) -> None:
    pods = {"resource": "pods"}
    errors = validate_storage_version_migration_status_update(
        migration(pods, **after), migration(pods, **before)
    )
    assert [error.detail for error in errors] == details
