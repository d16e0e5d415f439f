"""StatefulSets in releases from 1.21 on: what differs from the rules of 1.20 in `workloads`."""

from __future__ import annotations

from typing import Any

from transom.machinery.field import FieldError
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import FeatureSet
from transom.machinery.validation.checks import dns_label
from transom.machinery.validation.claim import claim_options, validate_claim_spec
from transom.machinery.validation.podoptions import pod_options
from transom.machinery.validation.rules import Errors, Object, ValidationRules
from transom.machinery.validation.workload_status import validate_stateful_set_status_update
from transom.machinery.validation.workloads import (
    validate_stateful_set,
    validate_stateful_set_update,
)


def stateful_set_rules(features: FeatureSet) -> ValidationRules:
    names_service = has_behaviour(features.release, "StatefulSetServiceName")
    checks_claims = has_behaviour(features.release, "StatefulSetClaims")
    claims, pods = claim_options(features), pod_options(features)

    def create(obj: Object) -> Errors:
        errors = validate_stateful_set(obj, pods)
        spec: dict[str, Any] = obj.get("spec") or {}
        if checks_claims:
            for i, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
                path = f"spec.volumeClaimTemplates[{i}].spec"
                errors += validate_claim_spec(claim.get("spec") or {}, path, claims)
        if names_service and spec.get("serviceName"):
            errors += dns_label(spec["serviceName"], "spec.serviceName")
        return errors

    def update(new: Object, old: Object) -> Errors:
        if names_service:  # since the same release, the history may change
            new = _with_history(new, old)
        errors: list[FieldError] = validate_stateful_set_update(new, old, pods)
        return errors

    return ValidationRules(create, update, validate_stateful_set_status_update)


def _with_history(new: Object, old: Object) -> Object:
    """The new object with the old limit of its history."""
    name, before = "revisionHistoryLimit", old.get("spec") or {}
    spec = {key: value for key, value in (new.get("spec") or {}).items() if key != name}
    if name in before:
        spec[name] = before[name]
    return {**new, "spec": spec}


VALIDATORS = {"apps/StatefulSet": stateful_set_rules}
