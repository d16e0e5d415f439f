"""Jobs and CronJobs in releases from 1.21 on: what differs from the rules of 1.20 in `batch`."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from transom.machinery.field import invalid, required
from transom.machinery.objects import Object
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import FeatureSet
from transom.machinery.validation import batch, godump
from transom.machinery.validation.job_status import (
    job_status_options,
    validate_job_status_update_with_options,
)
from transom.machinery.validation.meta import immutable
from transom.machinery.validation.podoptions import PodOptions, pod_options
from transom.machinery.validation.rules import Errors, ValidationRules

_PREFIX = "batch.kubernetes.io/"


class JobOptions(NamedTuple):
    prefixed_labels: bool
    mutable_resources: bool  # of the containers of a suspended job
    mutable_scheduling: bool  # of any suspended job without pods
    pods: PodOptions


def job_options(features: FeatureSet) -> JobOptions:
    return JobOptions(
        has_behaviour(features.release, "JobControllerLabels"),
        features.enabled("MutablePodResourcesForSuspendedJobs"),
        features.enabled("MutableSchedulingDirectivesForSuspendedJobs"),
        pod_options(features),
    )


def _prefixed_labels(job: Object) -> Errors:
    """The labels with a prefix, which generated selectors use."""
    spec, meta = job.get("spec") or {}, job["metadata"]
    if spec.get("manualSelector") or spec.get("selector") is None:
        return []
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    errors: Errors = []
    for name, value in (
        ("controller-uid", meta.get("uid", "")),
        ("job-name", meta.get("name", "")),
    ):
        key = f"{_PREFIX}{name}"
        path = f"spec.template.metadata.labels[{key}]"
        if key not in labels:
            errors.append(required(path, f"must be '{value}'"))
        elif labels[key] != value:
            errors.append(invalid(path, godump.dump_string_map(labels), f"must be '{value}'"))
    return errors


def validate_job_create_with_options(job: Object, options: JobOptions) -> Errors:
    errors = batch.validate_job(job, options=options.pods)
    return errors + (_prefixed_labels(job) if options.prefixed_labels else [])


def validate_job_update_with_options(new: Object, old: Object, options: JobOptions) -> Errors:
    template_update = partial(_template_update, options=options)
    return batch.validate_job_update(new, old, template_update, options.pods)


def _template_update(new: Object, old: Object, *, options: JobOptions) -> Errors:
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    template, was = spec.get("template") or {}, before.get("template") or {}
    if template == was:
        return []
    status = old.get("status") or {}
    shown = godump.go_dump("core.PodTemplateSpec", template)
    suspended = bool(before.get("suspend"))
    idle = suspended and not status.get("active") and _never_ran(status)
    free = idle if options.mutable_scheduling else suspended and not status.get("startTime")
    if free:
        template, was = batch.without_scheduling(template), batch.without_scheduling(was)
    if not (options.mutable_resources and idle):
        return immutable(template, was, "spec.template", shown)
    new_pod, old_pod = template.get("spec") or {}, was.get("spec") or {}
    shown = godump.go_dump("core.PodSpec", (spec.get("template") or {}).get("spec"))
    return immutable(new_pod, _with_resources(old_pod, new_pod), "spec.template.spec", shown)


def _never_ran(status: dict[str, Any]) -> bool:
    """It has not started, or is suspended again."""
    return not status.get("startTime") or any(
        condition.get("type") == "Suspended" and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )


def _with_resources(pod: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """The pod spec with the resources of another one, container by container."""
    out = dict(pod)
    for name in ("containers", "initContainers"):
        containers, others = pod.get(name) or [], wanted.get(name) or []
        if len(containers) == len(others) and containers:
            out[name] = [
                _with_field(container, other, "resources")
                if container.get("name") == other.get("name")
                else container
                for container, other in zip(containers, others, strict=True)
            ]
    return out


def _with_field(obj: dict[str, Any], other: dict[str, Any], name: str) -> dict[str, Any]:
    rest = {key: value for key, value in obj.items() if key != name}
    return {**rest, name: other[name]} if name in other else rest


def _job_rules(features: FeatureSet) -> ValidationRules:
    options = job_options(features)
    return ValidationRules(
        partial(validate_job_create_with_options, options=options),
        partial(validate_job_update_with_options, options=options),
        partial(validate_job_status_update_with_options, options=job_status_options(features))
        if has_behaviour(features.release, "UncountedPods")
        else batch.validate_job_status_update,
    )


VALIDATORS = {"batch/Job": _job_rules}
