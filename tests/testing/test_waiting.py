"""The conditions that `wait` understands."""

from __future__ import annotations

from typing import Any

import pytest

from transom.testing.waiting import parse_wait_condition

READY = {
    "metadata": {"name": "web", "generation": 2},
    "status": {
        "phase": "Running",
        "ready": True,
        "replicas": 3,
        "conditions": [
            {"type": "Ready", "status": "True"},
            {"type": "Old", "status": "True", "observedGeneration": 1},
        ],
        "containerStatuses": [{"name": "c", "restartCount": 0}],
    },
}


@pytest.mark.parametrize(
    ("condition", "obj", "expected"),
    [
        ("create", READY, True),
        ("create", None, False),
        ("delete", None, True),
        ("delete", READY, False),
        ("condition=Ready", READY, True),
        ("condition=ready=true", READY, True),
        ("condition=Ready=False", READY, False),
        ("condition=Ready", None, False),
        ("condition=Available", READY, False),
        ("condition=Old", READY, False),  # of an earlier generation
        ("jsonpath={.status.phase}=Running", READY, True),
        ("jsonpath={.status.phase}=Pending", READY, False),
        ("jsonpath=.status.ready=true", READY, True),
        ("jsonpath={.status.replicas}=3", READY, True),
        ("jsonpath={.status.containerStatuses[0].restartCount}=0", READY, True),
        ("jsonpath={.status.containerStatuses[1].restartCount}=0", READY, False),
        ("jsonpath={.status.loadBalancer}", READY, False),
        ("jsonpath={.status.phase}", READY, True),
        ("jsonpath={.status.phase}", None, False),
    ],
)
def test_conditions(condition: str, obj: Any, expected: bool) -> None:
    assert parse_wait_condition(condition)(obj) is expected


def test_an_unknown_condition_names_the_possible_ones() -> None:
    with pytest.raises(ValueError, match="use create, delete, condition=NAME"):
        parse_wait_condition("Ready")
