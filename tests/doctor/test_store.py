"""What doctor reports about the data on disk."""

from __future__ import annotations

from typing import Any

import pytest

from transom.doctor.examine import examine
from transom.doctor.snapshot import ClusterSnapshot

GOOD: dict[str, Any] = {"problem": "", "readOnly": False, "freeBytes": 1 << 30, "quarantined": []}
CORRUPT = {
    "key": "pods/default/web",
    "revision": 7,
    "reason": "the checksum does not match",
    "found": 1.0,
}


def findings(**store: Any) -> list[tuple[str, str, tuple[str, ...]]]:
    found = examine(ClusterSnapshot(store={**GOOD, **store}))
    return [(one.severity, one.what, one.where) for one in found if "no nodes" not in one.what]


@pytest.mark.parametrize(
    ("store", "severity", "text", "where"),
    [
        (
            {"quarantined": [CORRUPT]},
            "error",
            "the checksum does not match (revision 7)",
            ("pods/default/web",),
        ),
        (
            {"quarantined": [{**CORRUPT, "key": "", "revision": 0}]},
            "error",
            "the checksum does not match",
            (),
        ),
        (
            {"problem": "cannot write store.db: database or disk is full"},
            "error",
            "writes fail: cannot write store.db",
            (),
        ),
        ({"readOnly": True}, "error", "read-only", ()),
        ({"freeBytes": 3 << 20}, "warning", "only 3.0 MiB are free", ()),
    ],
)
def test_problems_of_the_store_are_reported(
    store: dict[str, Any], severity: str, text: str, where: tuple[str, ...]
) -> None:
    (found,) = [one for one in findings(**store) if "DNS" not in one[1] and "dns" not in one[1]]
    assert found[0] == severity and text in found[1] and found[2] == where


def test_clusters_of_others_say_nothing_of_their_store() -> None:
    assert not [
        one for one in examine(ClusterSnapshot()) if "disk" in one.what or "quarantine" in one.what
    ]
