"""Jobs of releases that track pods with a finalizer: counting, policies, back-off and the end."""

from __future__ import annotations

from typing import Any

import pytest

from transom.controllers.job import status
from transom.controllers.job.backoff import BackoffRecord, finished_time
from transom.controllers.job.features import JobFeatures, job_features
from transom.controllers.job.intervals import IndexIntervals
from transom.controllers.job.policies import match_pod_failure_policy, match_success_policy
from transom.controllers.job.tracked_sync import FAILURE_COUNT, TRACKING_FINALIZER, TrackedSync
from transom.kit.clock import rfc3339
from transom.machinery.objects import Object
from transom.machinery.releases import Release
from transom.machinery.releases.features import FeatureSet

NOW = 1_700_000_000.0
NEWEST = job_features(FeatureSet(Release(1, 36)))


def make_job(**spec: Any) -> Object:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]}}
    filled = {"parallelism": 1, "backoffLimit": 6, "template": template, **spec}
    return {
        "metadata": {"name": "j", "namespace": "n", "uid": "u"},
        "spec": filled,
        "status": {"startTime": rfc3339(NOW - 60)},
    }


def make_pod(name: str, phase: str, index: int | None = None, **meta: Any) -> Object:
    annotations = dict(meta.pop("annotations", {}))
    if index is not None:
        annotations["batch.kubernetes.io/job-completion-index"] = str(index)
    return {
        "metadata": {
            "name": name,
            "namespace": "n",
            "uid": name,
            "creationTimestamp": rfc3339(NOW - 50),
            "finalizers": [TRACKING_FINALIZER],
            "annotations": annotations,
            **meta,
        },
        "spec": {},
        "status": {"phase": phase},
    }


def sync(job: Object, *pods: Object, features: JobFeatures = NEWEST) -> TrackedSync:
    return TrackedSync(job, pods, features, BackoffRecord(), (), NOW)


@pytest.mark.parametrize(
    ("text", "completions", "shown"),
    [
        ("0,2-4,7", 10, "0,2-4,7"),
        ("0-1,2", 10, "0-2"),
        ("0-9", 5, "0-4"),
        ("x,3,4", 5, "3,4"),
        ("6,7", 5, ""),
    ],
)
def test_indexes_are_intervals(text: str, completions: int, shown: str) -> None:
    assert str(IndexIntervals.parse(text, completions)) == shown


def test_missing_indexes_are_found_without_listing_all() -> None:
    done = IndexIntervals.parse("0-1000000000,1000000002", 2_000_000_000)
    assert done.first_missing(2, 2_000_000_000) == [1000000001, 1000000003]
    assert done.total == 1000000002
    assert 1000000001 not in done and 5 in done


def test_finished_pods_are_counted_after_their_finalizer_is_gone() -> None:
    now = sync(make_job(completions=2, parallelism=2), make_pod("a", "Succeeded"))
    losing, changed, more = now.uncount_finished()
    assert [pod["metadata"]["name"] for pod in losing] == ["a"]
    assert changed and not more
    assert now.current_status()["uncountedTerminatedPods"] == {"succeeded": ["a"]}
    assert now.count_without(set())
    assert now.current_status()["succeeded"] == 1
    assert now.current_status()["uncountedTerminatedPods"] == {}


def test_the_end_is_announced_before_it_is_reached() -> None:
    now = sync(make_job(completions=1), make_pod("a", "Succeeded"))
    now.find_completion()
    assert now.announce_end()
    now.count_terminating = 1
    now.count_without(set())
    assert not now.end()
    now.count_terminating = 0
    assert now.end()
    assert [c["type"] for c in now.current_status()["conditions"]] == [
        status.SUCCESS_CRITERIA_MET,
        status.COMPLETE,
    ]


def test_older_releases_have_no_interim_condition() -> None:
    older = job_features(FeatureSet(Release(1, 30)))
    now = sync(make_job(backoffLimit=0), make_pod("a", "Failed"), features=older)
    assert now.finished is not None
    assert now.finished["type"] == status.FAILED
    assert now.finished["reason"] == "BackoffLimitExceeded"


def test_failure_policy_ignores_counts_and_fails() -> None:
    policy = {
        "rules": [
            {
                "action": "Ignore",
                "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
            },
            {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
        ]
    }
    pod = make_pod("a", "Failed")
    assert match_pod_failure_policy(policy, pod, fail_index=True).counts
    pod["status"]["containerStatuses"] = [{"name": "c", "state": {"terminated": {"exitCode": 42}}}]
    found = match_pod_failure_policy(policy, pod, fail_index=True)
    assert found.message == (
        "Container c for pod n/a failed with exit code 42 matching FailJob rule at index 1"
    )
    pod["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True"}]
    assert not match_pod_failure_policy(policy, pod, fail_index=True).counts


@pytest.mark.parametrize(
    ("rule", "done", "met"),
    [
        ({"succeededIndexes": "0-1"}, "0", False),
        ({"succeededIndexes": "0-1"}, "0,1", True),
        ({"succeededIndexes": "0-3", "succeededCount": 2}, "1,3", True),
        ({"succeededCount": 3}, "0-2", True),
    ],
)
def test_success_policy(rule: Object, done: str, met: bool) -> None:
    found = match_success_policy({"rules": [rule]}, 10, IndexIntervals.parse(done, 10))
    assert found == ("Matched rules at index 0" if met else None)


def test_an_index_fails_on_its_own() -> None:
    job = make_job(completions=2, parallelism=2, completionMode="Indexed", backoffLimitPerIndex=1)
    first = make_pod(
        "a", "Failed", 0, annotations={FAILURE_COUNT: "0"}, creationTimestamp=rfc3339(NOW - 5)
    )
    now = sync(job, first, make_pod("b", "Running", 1))
    assert now.finished is None
    assert now.failure_annotations(0) == {FAILURE_COUNT: "1"}
    assert now.plan_indexes(1)[0] == []  # the back-off of the index
    # The failed pod keeps its finalizer until its count is on the new pod.
    assert now.uncount_finished()[0] == []
    second = make_pod("c", "Failed", 0, annotations={FAILURE_COUNT: "1"})
    now = sync(job, second, make_pod("b", "Succeeded", 1))
    assert now.finished is not None
    assert now.finished["reason"] == "FailedIndexes"


def test_terminating_pods_are_not_replaced_early() -> None:
    job = make_job(podReplacementPolicy="Failed")
    going = make_pod("a", "Running", deletionTimestamp=rfc3339(NOW))
    assert sync(job, going).missing() == 0
    job["spec"]["podReplacementPolicy"] = "TerminatingOrFailed"
    assert sync(job, going).missing() == 1


def test_backoff_starts_again_after_a_success() -> None:
    failed = [make_pod(f"f{i}", "Failed") for i in range(3)]
    record = BackoffRecord().after([], failed)
    assert record.failures == 3
    assert record.remaining(finished_time(failed[0]) + 1) == 39.0
    later = make_pod("s", "Succeeded", creationTimestamp=rfc3339(NOW))
    assert record.after([later], failed) == BackoffRecord()
