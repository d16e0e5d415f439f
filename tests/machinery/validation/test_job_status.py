"""Writes of the status of a Job, and which of them its transitions allow."""

from __future__ import annotations

from typing import Any

import pytest

from transom.machinery.releases import Release
from transom.machinery.releases.features import FeatureSet
from transom.machinery.validation.job_status import (
    job_status_options,
    validate_job_status_update_with_options,
)

LATEST = Release(1, 36)
START, END = "2026-01-02T03:04:05Z", "2026-01-02T03:05:05Z"
CRITERIA, COMPLETE = "SuccessCriteriaMet", "Complete"
DONE = {"startTime": START, "completionTime": END}


def job(true: tuple[str, ...] = (), spec: dict[str, Any] | None = None, **status: Any) -> Any:
    conditions = [{"type": name, "status": "True"} for name in true]
    return {
        "metadata": {"name": "j", "resourceVersion": "1"},
        "spec": {"completions": 3, "parallelism": 2, **(spec or {})},
        "status": {**status, **({"conditions": conditions} if conditions else {})},
    }


def errors(new: Any, old: Any, release: Release = LATEST) -> list[str]:
    options = job_status_options(FeatureSet(release))
    return [str(error) for error in validate_job_status_update_with_options(new, old, options)]


INDEXED = {"completionMode": "Indexed", "backoffLimitPerIndex": 1}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (job(), job((CRITERIA, COMPLETE), **DONE), []),
        (
            job(),
            job((COMPLETE,), **DONE),
            [
                "status.conditions: Invalid value: cannot set Complete=True condition without the "
                "SuccessCriteriaMet=true condition"
            ],
        ),
        (
            job(),
            job(("Failed",), startTime=START, completionTime=END),
            [
                f"status.completionTime: Invalid value: {END[:10]} {END[11:19]} +0000 UTC: cannot "
                "set completionTime when there is no Complete=True condition",
                "status.conditions: Invalid value: cannot set Failed=True condition without the "
                "FailureTarget=true condition",
            ],
        ),
        (
            job(),
            job((CRITERIA, COMPLETE), active=1, ready=2, terminating=1, completionTime=END),
            [
                "status.active: Invalid value: 1: active>0 is invalid for finished job",
                "status.startTime: Required value: startTime is required for finished job",
                "status.terminating: Invalid value: 1: terminating>0 is invalid for finished job",
                "status.ready: Invalid value: 2: cannot set more ready pods than active",
            ],
        ),
        (
            job(spec=INDEXED),
            job(spec=INDEXED, completedIndexes="0,1", failedIndexes="1-2"),
            [
                'status.failedIndexes: Invalid value: "1-2": failedIndexes and completedIndexes '
                "overlap at index: 1"
            ],
        ),
        (
            job(spec=INDEXED),
            job(spec=INDEXED, completedIndexes="2,1"),
            [
                'status.completedIndexes: Invalid value: "2,1": error parsing completedIndexes: '
                "non-increasing order, previous: 2, current: 1"
            ],
        ),
        (
            job(),
            job(completedIndexes="0", failedIndexes="1"),
            [
                'status.completedIndexes: Invalid value: "0": cannot set non-empty '
                "completedIndexes when non-indexed completion mode",
                'status.failedIndexes: Invalid value: "1": cannot set non-null failedIndexes when '
                "backoffLimitPerIndex is null",
            ],
        ),
        (
            job((CRITERIA, COMPLETE), succeeded=3, failed=1, **DONE),
            job((CRITERIA,), succeeded=2, **DONE),
            [
                "status.completionTime: Invalid value: 2026-01-02 03:05:05 +0000 UTC: cannot set "
                "completionTime when there is no Complete=True condition",
                "status.conditions: Invalid value: cannot disable the terminal Complete=True "
                "condition",
                "status.failed: Invalid value: 0: cannot decrease the failed counter",
                "status.succeeded: Invalid value: 2: cannot decrease the succeeded counter",
            ],
        ),
        (
            job(startTime=START),
            job(startTime=END),
            [
                "status.startTime: Invalid value: 2026-01-02 03:05:05 +0000 UTC: field is "
                "immutable for unsuspended job once set"
            ],
        ),
        (job(spec={"suspend": True}, startTime=START), job(spec={"suspend": True}), []),
        (
            job(),
            job(uncountedTerminatedPods={"succeeded": ["a", ""], "failed": ["a"]}),
            [
                'status.uncountedTerminatedPods.succeeded[1]: Invalid value: "": must not be empty',
                'status.uncountedTerminatedPods.failed[0]: Duplicate value: "a"',
            ],
        ),
        (
            job((CRITERIA,), spec={"successPolicy": {}}),
            job(("FailureTarget",), spec={"successPolicy": {}}),
            [
                "status.conditions: Invalid value: cannot disable the SuccessCriteriaMet=True "
                "condition"
            ],
        ),
    ],
)
def test_status_of_1_36(old: Any, new: Any, expected: list[str]) -> None:
    assert errors(new, old) == expected


def test_a_rule_applies_only_to_changes() -> None:
    bad = job(("Failed",), active=1, startTime=START)
    assert errors(bad, bad) == []


def test_earlier_releases_check_less_and_word_it_differently() -> None:
    old, new = job((CRITERIA, COMPLETE), failed=1, **DONE), job((CRITERIA, COMPLETE), **DONE)
    assert errors(new, old, Release(1, 31)) == []
    moved = job((CRITERIA, COMPLETE), startTime=END, completionTime=START)
    assert errors(moved, old, Release(1, 32))[:1] == [
        "status.completionTime: Invalid value: 2026-01-02 03:04:05 +0000 UTC: completionTime "
        "cannot be set before startTime"
    ]
    assert "status.startTime: Required value: startTime cannot be removed for unsuspended job" in (
        errors(moved, old, Release(1, 32))
    )
