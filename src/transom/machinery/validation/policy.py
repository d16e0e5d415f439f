"""PodDisruptionBudget and Eviction."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from transom.machinery.field import FieldError, invalid, not_supported
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import FeatureSet
from transom.machinery.releases.release import has_tables
from transom.machinery.schema import schema_table
from transom.machinery.validation.checks import int_or_percent
from transom.machinery.validation.godump import go_dump
from transom.machinery.validation.internal_dump import dump_internal
from transom.machinery.validation.meta import (
    nonnegative,
    validate_conditions,
    validate_label_selector,
)
from transom.machinery.validation.rules import Errors, Object, RulesFactory, ValidationRules

_COUNTS = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")


def _bound(spec: dict[str, Any], name: str) -> Errors:
    return int_or_percent(spec[name], f"spec.{name}") if spec.get(name) is not None else []


def validate_budget(obj: Object) -> Errors:
    """The name only has to meet the common rules, so metadata is not checked here."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    errors: Errors = []
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        errors.append(
            invalid(
                "spec",
                go_dump("policy.PodDisruptionBudgetSpec", spec),
                "minAvailable and maxUnavailable cannot be both set",
            )
        )
    errors += _bound(spec, "minAvailable") + _bound(spec, "maxUnavailable")
    errors += validate_label_selector(spec.get("selector"), "spec.selector")
    for name in _COUNTS:
        errors += nonnegative(status.get(name, 0), f"status.{name}")
    return errors


def validate_pod_disruption_budget_update(new: Object, old: Object) -> Errors:
    return validate_budget(new)


def validate_pod_disruption_budget_status_update(new: Object, old: Object) -> Errors:
    """Any status is accepted in 1.20."""
    return []


def _status_update(counts: bool, new: Object, old: Object) -> Errors:
    status = new.get("status") or {}
    errors = validate_conditions(status.get("conditions"), "status.conditions")
    for name in _COUNTS if counts else ():
        errors += nonnegative(status.get(name, 0), f"status.{name}")
    return errors


def validate_eviction(obj: Object) -> Errors:
    """Checks only the form of the request, not whether the pod may be evicted."""
    return []


_EVICTION_POLICIES = ("AlwaysAllow", "IfHealthyBudget")


def _budget_rules(beta: bool, features: FeatureSet) -> ValidationRules:
    status_update = validate_pod_disruption_budget_status_update
    if has_tables(features.release):
        status_update = partial(_status_update, not beta)
    if not has_behaviour(features.release, "UnhealthyPodEviction"):
        return ValidationRules(
            validate_budget,
            validate_pod_disruption_budget_update,
            status_update,
        )

    def create(obj: Object) -> Errors:
        errors = [_with_current_spec(error, obj, features) for error in validate_budget(obj)]
        policy = (obj.get("spec") or {}).get("unhealthyPodEvictionPolicy")
        if policy is not None and policy not in _EVICTION_POLICIES:
            path = "spec.unhealthyPodEvictionPolicy"
            errors.append(not_supported(path, policy, _EVICTION_POLICIES))
        return errors

    return ValidationRules(create, lambda new, old: create(new), status_update)


def _with_current_spec(error: FieldError, obj: Object, features: FeatureSet) -> FieldError:
    """Errors that show the whole spec show the fields of the release."""
    if error.field != "spec":
        return error
    of = schema_table(features.release).get("policy/v1.PodDisruptionBudgetSpec")
    return error._replace(value=dump_internal(of, obj["spec"]))


VALIDATORS: Mapping[str, ValidationRules | RulesFactory] = {
    "policy/PodDisruptionBudget": partial(_budget_rules, False),
    "policy/PodDisruptionBudget@policy/v1beta1": partial(_budget_rules, True),
    "policy/Eviction": ValidationRules(validate_eviction, lambda new, old: validate_eviction(new)),
}
