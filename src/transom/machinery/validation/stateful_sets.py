"""StatefulSets in releases from 1.21 on: what differs from the rules of 1.20 in `workloads`."""

from __future__ import annotations

from functools import partial

from transom.machinery.field import FieldError
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import FeatureSet
from transom.machinery.validation.claim import claim_options
from transom.machinery.validation.podoptions import pod_options
from transom.machinery.validation.rules import Errors, Object, ValidationRules
from transom.machinery.validation.workload_status import validate_stateful_set_status_update
from transom.machinery.validation.workloads import (
    BASE_CHECKS,
    StatefulSetChecks,
    check_stateful_set_spec,
    validate_stateful_set,
    validate_stateful_set_update,
)


def stateful_set_rules(features: FeatureSet) -> ValidationRules:
    names_service = has_behaviour(features.release, "StatefulSetServiceName")
    checks_claims = has_behaviour(features.release, "StatefulSetClaims")
    claims, pods = claim_options(features), pod_options(features)
    of_new = StatefulSetChecks(
        claims if checks_claims else None,
        names_service,
        has_behaviour(features.release, "StatefulSetTemplates"),
        has_behaviour(features.release, "StatefulSetLabelNames"),
    )
    # The claims and the name of the service do not change.
    of_valid, of_invalid = StatefulSetChecks(template=of_new.template), BASE_CHECKS

    def create(obj: Object) -> Errors:
        return validate_stateful_set(obj, pods, of_new)

    def update(new: Object, old: Object) -> Errors:
        if names_service:  # since the same release, the history may change
            new = _with_history(new, old)
        checks = of_valid
        if checks.template:
            before: Errors = []
            check_stateful_set_spec(old.get("spec") or {}, before, pods, checks)
            checks = of_invalid if before else of_valid
        errors: list[FieldError] = validate_stateful_set_update(new, old, pods, checks)
        return errors

    counts_available = has_behaviour(features.release, "StatefulSetReadyPath")
    status_update = partial(
        validate_stateful_set_status_update,
        available=counts_available or features.enabled("StatefulSetMinReadySeconds"),
        ready_text="status.readyReplicas" if counts_available else "readyReplicas",
    )
    return ValidationRules(create, update, status_update)


def _with_history(new: Object, old: Object) -> Object:
    """The new object with the old limit of its history."""
    name, before = "revisionHistoryLimit", old.get("spec") or {}
    spec = {key: value for key, value in (new.get("spec") or {}).items() if key != name}
    if name in before:
        spec[name] = before[name]
    return {**new, "spec": spec}


VALIDATORS = {"apps/StatefulSet": stateful_set_rules}
