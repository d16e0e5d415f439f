"""Cells of columns that releases after 1.20 have."""

from __future__ import annotations

from typing import Any

import pytest

from transom.kit.clock import parse_rfc3339
from transom.machinery.tables.newer import newer_cell

NOW = parse_rfc3339("2026-01-01T00:01:00Z")


def status(*conditions: tuple[str, str]) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": k, "status": v} for k, v in conditions]}}


TAINT = {"key": "k", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("kind", "column", "obj", "expected"),
    [
        ("ClusterTrustBundle", "SignerName", {"spec": {"signerName": "a.b/c"}}, "a.b/c"),
        ("ClusterTrustBundle", "SignerName", {"spec": {}}, "<none>"),
        ("DeviceTaintRule", "Effect", {"spec": {"taint": TAINT}}, "NoExecute"),
        ("DeviceTaintRule", "Value", {"spec": {"taint": TAINT}}, ""),
        ("DeviceTaintRule", "TimeAdded", {"spec": {"taint": TAINT}}, "60s"),
        ("PodCertificateRequest", "State", {}, "Pending"),
        ("PodCertificateRequest", "State", status(("Issued", "True")), "Issued"),
        (
            "PodCertificateRequest",
            "UnverifiedUserAnnotations",
            {"spec": {"unverifiedUserAnnotations": {"b": "2", "a": "1"}}},
            "a=1,b=2",
        ),
        (
            "StorageVersionMigration",
            "Resource",
            {"spec": {"resource": {"group": "apps", "resource": "deployments"}}},
            "deployments.apps",
        ),
        ("StorageVersionMigration", "Resource", {"spec": {"resource": {"resource": "a"}}}, "a"),
        ("StorageVersionMigration", "Status", {}, "Unknown"),
        (
            "StorageVersionMigration",
            "Status",
            status(("Running", "False"), ("Succeeded", "True")),
            "Succeeded",
        ),
    ],
)
def test_cells(kind: str, column: str, obj: dict[str, Any], expected: str) -> None:
    assert newer_cell(kind, column, {"metadata": {"name": "x"}, **obj}, NOW) == expected
