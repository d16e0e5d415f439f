"""Jobs and CronJobs."""

from __future__ import annotations

import re
from typing import Any

from transom.machinery.field import invalid, not_supported, required
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.validation import godump
from transom.machinery.validation.common import check_nonnegative_fields
from transom.machinery.validation.cron import check_schedule, load_time_zone
from transom.machinery.validation.job_policies import check_job_policies
from transom.machinery.validation.meta import (
    immutable,
    validate_label_selector,
    validate_object_meta,
    validate_object_meta_update,
)
from transom.machinery.validation.names import byte_len, is_dns1123_label, name_is_dns_subdomain
from transom.machinery.validation.podoptions import BASE_OPTIONS, PodOptions, template_rules
from transom.machinery.validation.podspec import check_pod_template
from transom.machinery.validation.rules import Errors, Object, Update
from transom.machinery.validation.workloads import immutable_selector, parsed_selector

_NUMBERS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
)
_CONCURRENCY = ("Allow", "Forbid", "Replace")
_RESTARTS = ("OnFailure", "Never")
_CRON_JOB_NAME_LIMIT = 52  # a Job's name adds eleven characters, and it becomes a label value
_FIXED_LATER = (
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
)
_SCHEDULING = ("nodeSelector", "tolerations", "schedulingGates")
_match_zone_part = re.compile(r"[A-Za-z._0-9+-]{1,14}").fullmatch


def _spec(obj: Object) -> dict[str, Any]:
    return obj.get("spec") or {}


def _meta(obj: Object) -> dict[str, Any]:
    return obj.get("metadata") or {}


def _template_labels(spec: dict[str, Any]) -> dict[str, str]:
    return ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}


def validate_job(job: Object, options: PodOptions = BASE_OPTIONS) -> Errors:
    """A Job after selector generation, which the server does before validation."""
    errs = validate_object_meta(_meta(job), True, name_is_dns_subdomain, "metadata")
    _check_generated_selector(job, errs)
    _check_job_spec(_spec(job), errs, options=options)
    _check_index_hostname(job, errs)
    return errs


def _check_generated_selector(job: Object, errs: Errors) -> None:
    """Unless the user sets the selector, the pods have the Job's uid and name as labels."""
    meta, spec = _meta(job), _spec(job)
    if spec.get("manualSelector") or spec.get("selector") is None:
        return
    uid, name = meta.get("uid", ""), meta.get("name", "")
    if not uid:
        errs.append(required("metadata.uid"))
    labels = _template_labels(spec)
    expected = {"controller-uid": uid, "job-name": name}
    for key, value in expected.items():
        path = f"spec.template.metadata.labels[{key}]"
        if key not in labels:
            errs.append(required(path, f"must be '{value}'"))
        elif labels[key] != value:
            errs.append(invalid(path, godump.dump_string_map(labels), f"must be '{value}'"))
    # Newer clients use the prefixed labels; a selector may contain either.
    prefixed = {f"batch.kubernetes.io/{key}": value for key, value in expected.items()}
    known = {
        **expected,
        **{key: value for key, value in prefixed.items() if labels.get(key) == value},
    }
    selector = parsed_selector(spec["selector"])
    if selector is not None and not selector.matches(known):
        errs.append(
            invalid(
                "spec.selector",
                godump.dump_label_selector(spec["selector"]),
                "`selector` not auto-generated",
            )
        )


def _check_job_spec(spec: dict[str, Any], errs: Errors, options: PodOptions = BASE_OPTIONS) -> None:
    _check_job_template_spec(spec, "spec", errs, options=options)
    selector = spec.get("selector")
    if selector is None:
        errs.append(required("spec.selector"))
    else:
        errs += validate_label_selector(selector, "spec.selector")
    ready = parsed_selector(selector)
    labels = _template_labels(spec)
    if ready is not None and not ready.matches(labels):
        text = "`selector` does not match template `labels`"
        errs.append(invalid("spec.template.metadata.labels", godump.dump_string_map(labels), text))


def _check_job_template_spec(
    spec: dict[str, Any], path: str, errs: Errors, options: PodOptions = BASE_OPTIONS
) -> None:
    """The rules for the spec of a Job and of the template in a CronJob."""
    check_nonnegative_fields(spec, _NUMBERS, path, errs)
    check_job_policies(spec, path, errs)
    template = spec.get("template") or {}
    check_pod_template(template, f"{path}.template", errs, options=options)
    policy = (template.get("spec") or {}).get("restartPolicy", "")
    where = f"{path}.template.spec.restartPolicy"
    if policy in ("Always", ""):
        errs.append(required(where, 'valid values: "OnFailure", "Never"'))
    elif policy not in _RESTARTS:
        errs.append(not_supported(where, policy, _RESTARTS))
    elif policy != "Never" and "podFailurePolicy" in spec:
        errs.append(
            invalid(where, policy, 'only "Never" is supported when podFailurePolicy is specified')
        )


def _check_index_hostname(job: Object, errs: Errors) -> None:
    spec, name = _spec(job), _meta(job).get("name", "")
    completions = spec.get("completions") or 0
    if spec.get("completionMode") != "Indexed" or completions <= 0:
        return
    hostname = f"{name}-{completions - 1}"
    if is_dns1123_label(hostname):
        text = f"will not able to create pod with invalid DNS label: {hostname}"
        errs.append(invalid("metadata.name", name, text))


def validate_job_update(
    new: Object,
    old: Object,
    template_update: Update | None = None,
    options: PodOptions = BASE_OPTIONS,
) -> Errors:
    """`template_update` are the rules of the release for the template."""
    errs = validate_job(new, options=options) + validate_object_meta_update(
        _meta(new), _meta(old), "metadata"
    )
    spec, before = _spec(new), _spec(old)
    _check_job_spec(spec, errs, options=options)
    errs += _completions_update(spec, before)
    errs += immutable_selector(new, old)
    if template_update is None:
        errs += _template_update(spec, before, old.get("status") or {})
    else:
        errs += template_update(new, old)
    for name in _FIXED_LATER:
        errs += immutable(spec.get(name), before.get(name), f"spec.{name}")
    return errs


def _completions_update(spec: dict[str, Any], before: dict[str, Any]) -> Errors:
    completions = spec.get("completions")
    if spec.get("completionMode") != "Indexed":
        return immutable(completions, before.get("completions"), "spec.completions")
    if completions in (None, before.get("completions"), spec.get("parallelism")):
        return []
    text = "can only be modified in tandem with spec.parallelism"
    return [invalid("spec.completions", completions, text)]


def _template_update(
    spec: dict[str, Any], before: dict[str, Any], status: dict[str, Any]
) -> Errors:
    """The template is immutable, but a suspended Job that never started may still change its
    scheduling.
    """
    template, old = spec.get("template") or {}, before.get("template") or {}
    if template == old:
        return []
    shown = godump.go_dump("core.PodTemplateSpec", template)
    if before.get("suspend") and not status.get("startTime"):
        template, old = without_scheduling(template), without_scheduling(old)
    return immutable(template, old, "spec.template", shown)


def without_scheduling(template: dict[str, Any]) -> dict[str, Any]:
    meta = {
        k: v
        for k, v in (template.get("metadata") or {}).items()
        if k not in ("labels", "annotations")
    }
    spec = {k: v for k, v in (template.get("spec") or {}).items() if k not in _SCHEDULING}
    affinity = {k: v for k, v in (spec.pop("affinity", None) or {}).items() if k != "nodeAffinity"}
    return {"metadata": meta, "spec": {**spec, **({"affinity": affinity} if affinity else {})}}


def validate_job_status_update(new: Object, old: Object) -> Errors:
    errs = validate_object_meta_update(_meta(new), _meta(old), "metadata")
    names = ("active", "succeeded", "failed", "ready", "terminating")
    check_nonnegative_fields(new.get("status") or {}, names, "status", errs)
    return errs


def validate_cron_job(obj: Object, options: PodOptions = BASE_OPTIONS) -> Errors:
    errs = validate_object_meta(_meta(obj), True, name_is_dns_subdomain, "metadata")
    _check_cron_job_spec(_spec(obj), errs, options=options)
    name = _meta(obj).get("name", "")
    if byte_len(name) > _CRON_JOB_NAME_LIMIT:
        errs.append(
            invalid(
                "metadata.name", name, f"must be no more than {_CRON_JOB_NAME_LIMIT} characters"
            )
        )
    return errs


def validate_cron_job_update(
    new: Object, old: Object, options: PodOptions = BASE_OPTIONS
) -> Errors:
    errs = validate_object_meta_update(_meta(new), _meta(old), "metadata")
    _check_cron_job_spec(_spec(new), errs, _spec(old), options=options)
    return errs


def _check_cron_job_spec(
    spec: dict[str, Any],
    errs: Errors,
    old: dict[str, Any] | None = None,
    *,
    options: PodOptions = BASE_OPTIONS,
) -> None:
    schedule = spec.get("schedule", "")
    if not schedule:
        errs.append(required("spec.schedule"))
    else:
        zoned = has_behaviour(options.release, "ZonesInSchedules")
        if problem := check_schedule(schedule, zoned=zoned):
            errs.append(invalid("spec.schedule", schedule, problem))
        if has_behaviour(options.release, "NoZonesInSchedules"):
            errs += _zone_in_schedule(spec, old)
    check_nonnegative_fields(spec, ("startingDeadlineSeconds",), "spec", errs)
    policy = spec.get("concurrencyPolicy", "")
    if not policy:
        errs.append(required("spec.concurrencyPolicy"))
    elif policy not in _CONCURRENCY:
        errs.append(not_supported("spec.concurrencyPolicy", policy, _CONCURRENCY))
    zone = spec.get("timeZone")
    if zone is not None and (old is None or old.get("timeZone") != zone):
        errs += [invalid("spec.timeZone", zone, problem) for problem in _time_zone_errors(zone)]
    job = (spec.get("jobTemplate") or {}).get("spec") or {}
    path = "spec.jobTemplate.spec"
    _check_job_template_spec(job, path, errs, options=options)
    if (selector := job.get("selector")) is not None:
        errs.append(
            invalid(
                f"{path}.selector",
                godump.dump_label_selector(selector),
                "`selector` will be auto-generated",
            )
        )
    if job.get("manualSelector"):
        errs.append(not_supported(f"{path}.manualSelector", True, ("nil", "false")))
    check_nonnegative_fields(
        spec, ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"), "spec", errs
    )


def _zone_in_schedule(spec: dict[str, Any], old: dict[str, Any] | None) -> Errors:
    schedule = spec.get("schedule", "")
    if "TZ" not in schedule:
        return []
    if old is None or "TZ" not in old.get("schedule", ""):
        text = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
    elif spec.get("timeZone") is not None:
        text = "cannot use both timeZone field and TZ or CRON_TZ in schedule"
    else:
        return []
    return [invalid("spec.schedule", schedule, text)]


def _time_zone_errors(zone: str) -> list[str]:
    if not zone:
        return ["timeZone must be nil or non-empty string"]
    unknown = f"unknown time zone {zone}"
    for part in zone.split("/"):
        if part in (".", "..") or part.startswith("-") or not _match_zone_part(part):
            return [unknown]
    problems = []
    if zone.lower() == "local":
        problems.append(
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        )
    if zone not in ("Local", "UTC") and load_time_zone(zone) is None:
        problems.append(unknown)
    return problems


def _no_rules(new: Object, old: Object) -> Errors:
    """Kubernetes does not validate the status of a CronJob."""
    return []


VALIDATORS = {
    "batch/Job": template_rules(validate_job, validate_job_update, validate_job_status_update),
    "batch/CronJob": template_rules(validate_cron_job, validate_cron_job_update, _no_rules),
}
