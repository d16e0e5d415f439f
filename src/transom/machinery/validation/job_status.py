"""The status of a Job in releases from 1.22 on.

With JobManagedBy other controllers write it, so transitions are checked too: finished jobs stay
finished, counters do not decrease. A rule only applies when a field that it is about changes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from transom.machinery.field import NO_VALUE, duplicate, invalid, required
from transom.machinery.objects import Object
from transom.machinery.releases import Release
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import FeatureSet
from transom.machinery.validation import godump
from transom.machinery.validation.common import check_nonnegative_fields
from transom.machinery.validation.job_policies import count_indexes, index_intervals
from transom.machinery.validation.meta import validate_object_meta_update
from transom.machinery.validation.rules import Errors

Fields = dict[str, Any]
_CONDITIONS = "status.conditions"
_COUNTERS = ("active", "succeeded", "failed", "ready", "terminating")
_COMPLETE, _FAILED, _FAILURE_TARGET = "Complete", "Failed", "FailureTarget"
_CRITERIA = "SuccessCriteriaMet"


class JobStatusTexts(NamedTuple):
    """What differs between releases."""

    ends_early: str
    uncounted: str
    completion_changed: str
    start_changed: str  # "" for an error that the start time is required


class JobStatusOptions(NamedTuple):
    transitions: bool
    criteria_of_all_jobs: bool  # SuccessCriteriaMet does not need an indexed job or a policy
    texts: JobStatusTexts


_FIRST_TEXTS = JobStatusTexts(
    "completionTime cannot be set before startTime",
    "uncountedTerminatedPods needs to be empty for finished job",
    "completionTime cannot be mutated",
    "",
)
_TEXTS = {
    Release(1, 36): JobStatusTexts(
        "must be equal to or after `startTime`",
        "must be empty for finished job",
        "field is immutable",
        "field is immutable for unsuspended job once set",
    ),
    Release(1, 34): JobStatusTexts(
        "must be equal to or after `startTime`",
        "must be empty for finished job",
        "field is immutable",
        "",
    ),
}


def job_status_options(features: FeatureSet) -> JobStatusOptions:
    release = features.release
    transitions = features.enabled("JobManagedBy")
    texts = next((text for since, text in _TEXTS.items() if release >= since), _FIRST_TEXTS)
    return JobStatusOptions(
        transitions, transitions or has_behaviour(release, "JobSuccessCriteriaOfAllJobs"), texts
    )


class _Status:
    """The status of a Job, with the fields of its spec that matter for it."""

    def __init__(self, job: Object) -> None:
        self.spec: Fields = job.get("spec") or {}
        self.fields: Fields = job.get("status") or {}
        self.true = {
            row.get("type")
            for row in self.fields.get("conditions") or ()
            if row.get("status") == "True"
        }
        self.false = {
            row.get("type")
            for row in self.fields.get("conditions") or ()
            if row.get("status") == "False"
        }
        self.complete, self.failed = _COMPLETE in self.true, _FAILED in self.true
        self.finished = self.complete or self.failed
        self.failure_target = _FAILURE_TARGET in self.true
        self.criteria = _CRITERIA in self.true
        self.completions: int | None = self.spec.get("completions")
        self.indexed = self.spec.get("completionMode") == "Indexed"

    def count(self, name: str) -> int:
        return self.fields.get(name) or 0

    def get(self, name: str) -> Any:
        return self.fields.get(name)


def validate_job_status_update_with_options(
    new: Object, old: Object, options: JobStatusOptions
) -> Errors:
    errors = validate_object_meta_update(new["metadata"], old["metadata"], "metadata")
    status, before = _Status(new), _Status(old)
    check_nonnegative_fields(status.fields, _COUNTERS, "status", errors)
    _check_uncounted(status, errors)
    if options.transitions:
        _check_conditions(status, before, options, errors)
        _check_finished(status, before, options, errors)
        _check_indexes(status, before, errors)
        _check_pods(status, before, errors)
    _check_criteria(status, options, errors)
    if options.transitions:
        _check_transitions(status, before, options, errors)
    if before.criteria and not status.criteria:
        errors.append(_condition("cannot disable the SuccessCriteriaMet=True condition"))
    if before.complete and not before.criteria and status.criteria:
        errors.append(
            _condition(
                "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions"
            )
        )
    return errors


def _condition(detail: str) -> Any:
    return invalid(_CONDITIONS, NO_VALUE, detail)


def _time(value: str | None) -> Any:
    return godump.go_dump("v1.Time", value)


def _check_uncounted(status: _Status, errors: Errors) -> None:
    seen = set()
    uncounted = status.get("uncountedTerminatedPods") or {}
    for name in ("succeeded", "failed"):
        for i, uid in enumerate(uncounted.get(name) or ()):
            path = f"status.uncountedTerminatedPods.{name}[{i}]"
            if not uid:
                errors.append(invalid(path, uid, "must not be empty"))
            elif uid in seen:
                errors.append(duplicate(path, uid))
            seen.add(uid)


def _changed(status: _Status, before: _Status, *names: str) -> bool:
    return any(status.get(name) != before.get(name) for name in names)


def _check_conditions(
    status: _Status, before: _Status, options: JobStatusOptions, errors: Errors
) -> None:
    completes = status.complete != before.complete
    fails = status.failed != before.failed
    targets = status.failure_target != before.failure_target
    if (completes or fails) and status.complete and status.failed:
        errors.append(_condition("cannot set Complete=True and Failed=true conditions"))
    if (completes or targets) and status.complete and status.failure_target:
        errors.append(_condition("cannot set Complete=True and FailureTarget=true conditions"))
    started, ended = status.get("startTime"), status.get("completionTime")
    timed = completes or _changed(status, before, "completionTime")
    path = "status.completionTime"
    if timed and ended is not None and not status.complete:
        text = "cannot set completionTime when there is no Complete=True condition"
        errors.append(invalid(path, _time(ended), text))
    if timed and ended is None and status.complete:
        errors.append(required(path, "completionTime is required for Complete jobs"))
    if (
        _changed(status, before, "startTime", "completionTime")
        and started is not None
        and ended is not None
        and ended < started
    ):
        errors.append(invalid(path, _time(ended), options.texts.ends_early))
    if (
        (fails or _changed(status, before, "failedIndexes"))
        and status.failed
        and not status.failure_target
    ):
        errors.append(
            _condition("cannot set Failed=True condition without the FailureTarget=true condition")
        )
    if (
        (completes or status.criteria != before.criteria)
        and status.complete
        and not status.criteria
    ):
        errors.append(
            _condition(
                "cannot set Complete=True condition without the SuccessCriteriaMet=true condition"
            )
        )


def _check_finished(
    status: _Status, before: _Status, options: JobStatusOptions, errors: Errors
) -> None:
    if not status.finished:
        return
    finishes = not before.finished
    active = status.count("active")
    if active > 0 and (finishes or active != before.count("active")):
        errors.append(invalid("status.active", active, "active>0 is invalid for finished job"))
    empty = status.spec.get("suspend") is True and status.completions == 0
    if (
        status.get("startTime") is None
        and not empty
        and (finishes or before.get("startTime") is not None)
    ):
        errors.append(required("status.startTime", "startTime is required for finished job"))
    uncounted = status.get("uncountedTerminatedPods") or {}
    shown = {name.capitalize(): uncounted.get(name) or None for name in ("succeeded", "failed")}
    changes = finishes or _changed(status, before, "uncountedTerminatedPods")
    if any(shown.values()) and changes:
        path = "status.uncountedTerminatedPods"
        errors.append(invalid(path, shown, options.texts.uncounted))


def _check_indexes(status: _Status, before: _Status, errors: Errors) -> None:
    done: str = status.get("completedIndexes") or ""
    failed: str | None = status.get("failedIndexes")
    done_path, failed_path = "status.completedIndexes", "status.failedIndexes"
    done_changes = done != (before.get("completedIndexes") or "")
    failed_changes = _changed(status, before, "failedIndexes")
    completions, per_index = status.completions, "backoffLimitPerIndex" in status.spec
    if done_changes and completions is not None:
        _, problem = count_indexes(done, completions)
        if problem:
            errors.append(invalid(done_path, done, f"error parsing completedIndexes: {problem}"))
    if failed_changes and completions is not None and per_index and failed is not None:
        _, problem = count_indexes(failed, completions)
        if problem:
            errors.append(invalid(failed_path, failed, f"error parsing failedIndexes: {problem}"))
    if done_changes and done and not status.indexed:
        text = "cannot set non-empty completedIndexes when non-indexed completion mode"
        errors.append(invalid(done_path, done, text))
    if failed_changes and failed is not None and not per_index:
        text = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        errors.append(invalid(failed_path, failed, text))
    if (done_changes or failed_changes) and completions is not None and failed is not None:
        overlap = _first_overlap(done, failed, completions)
        if overlap is not None:
            text = f"failedIndexes and completedIndexes overlap at index: {overlap}"
            errors.append(invalid(failed_path, failed, text))


def _first_overlap(done: str, failed: str, completions: int) -> int | None:
    """The first index in both lists; intervals that cannot be read do not count."""
    ours, theirs = index_intervals(done, completions), index_intervals(failed, completions)
    i = j = 0
    while i < len(ours) and j < len(theirs):
        (low, high), (first, last) = ours[i], theirs[j]
        if low <= last and first <= high:
            return max(low, first)
        if low <= first:
            i += 1
        else:
            j += 1
    return None


def _check_pods(status: _Status, before: _Status, errors: Errors) -> None:
    terminating = status.count("terminating")
    if (
        terminating > 0
        and status.finished
        and (not before.finished or _changed(status, before, "terminating"))
    ):
        text = "terminating>0 is invalid for finished job"
        errors.append(invalid("status.terminating", terminating, text))
    ready, active = status.get("ready"), status.count("active")
    if (
        ready is not None
        and ready > active
        and (_changed(status, before, "ready") or active != before.count("active"))
    ):
        text = "cannot set more ready pods than active"
        errors.append(invalid("status.ready", ready, text))


def _check_criteria(status: _Status, options: JobStatusOptions, errors: Errors) -> None:
    policy = status.spec.get("successPolicy")
    narrow = status.criteria and not options.criteria_of_all_jobs
    if narrow and not status.indexed:
        errors.append(_condition("cannot set SuccessCriteriaMet to NonIndexed Job"))
    if status.criteria and status.failed:
        errors.append(_condition("cannot set SuccessCriteriaMet=True and Failed=true conditions"))
    if status.criteria and status.failure_target:
        errors.append(
            _condition("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
        )
    if narrow and policy is None:
        errors.append(
            _condition("cannot set SuccessCriteriaMet=True for Job without SuccessPolicy")
        )
    if policy is not None and not status.criteria and status.complete:
        errors.append(
            _condition(
                "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True"
            )
        )


def _check_transitions(
    status: _Status, before: _Status, options: JobStatusOptions, errors: Errors
) -> None:
    for name in (_FAILED, _COMPLETE, _FAILURE_TARGET):
        if name in before.true and name not in status.true:
            errors.append(_condition(f"cannot disable the terminal {name}=True condition"))
    # Indexed jobs with as many pods as completions can be scaled down.
    scalable = status.indexed and status.completions == status.spec.get("parallelism")
    for name in ("failed",) if scalable else ("failed", "succeeded"):
        if status.count(name) < before.count(name):
            text = f"cannot decrease the {name} counter"
            errors.append(invalid(f"status.{name}", status.count(name), text))
    ended, was = status.get("completionTime"), before.get("completionTime")
    if ended is not None and was is not None and ended != was:
        text = options.texts.completion_changed
        errors.append(invalid("status.completionTime", _time(ended), text))
    started, was = status.get("startTime"), before.get("startTime")
    resumes = "Suspended" in before.true and "Suspended" in status.false
    if was is not None and started != was and not resumes and not status.spec.get("suspend"):
        path = "status.startTime"
        text = options.texts.start_changed
        if text:
            errors.append(invalid(path, _time(started), text))
        else:
            errors.append(required(path, "startTime cannot be removed for unsuspended job"))
