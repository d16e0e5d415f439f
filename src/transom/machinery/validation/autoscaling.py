"""HorizontalPodAutoscaler in the shape of autoscaling/v2."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from transom.machinery.field import FieldError, forbidden, invalid, not_supported, required
from transom.machinery.quantity import ZERO, parse_quantity
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import FeatureSet
from transom.machinery.validation import godump
from transom.machinery.validation.checks import check_each, dns_label, nonnegative_quantity
from transom.machinery.validation.meta import (
    nonnegative,
    validate_object_meta,
    validate_object_meta_update,
)
from transom.machinery.validation.names import is_path_segment_name, name_is_dns_subdomain
from transom.machinery.validation.resources import check_container_resource_name
from transom.machinery.validation.rules import Errors, Object, RulesFactory, ValidationRules

_SELECT_POLICIES = ("Disabled", "Max", "Min")
_POLICY_TYPES = ("Percent", "Pods")
_SET_ONE = "must set either a target raw value or a target utilization"
_NOT_BOTH = "may not set both a target raw value and a target utilization"


def _path_segment(value: str, path: str, detail: str = "") -> Errors:
    return (
        check_each(path, value, is_path_segment_name(value)) if value else [required(path, detail)]
    )


def _reference(reference: Mapping[str, Any], path: str) -> Errors:
    return _path_segment(reference.get("kind", ""), f"{path}.kind") + _path_segment(
        reference.get("name", ""), f"{path}.name"
    )


def _target(target: Mapping[str, Any], path: str) -> Errors:
    kind, utilization = target.get("type", ""), target.get("averageUtilization")
    errors = [] if kind else [required(f"{path}.type", "must specify a metric target type")]
    if kind not in ("Utilization", "Value", "AverageValue"):
        errors.append(
            invalid(f"{path}.type", kind, "must be either Utilization, Value, or AverageValue")
        )
    for name in ("value", "averageValue"):
        text = target.get(name)
        if text is not None and parse_quantity(text) <= ZERO:
            errors.append(invalid(f"{path}.{name}", godump.dump_quantity(text), "must be positive"))
    if utilization is not None and utilization < 1:
        errors.append(invalid(f"{path}.averageUtilization", utilization, "must be greater than 0"))
    return errors


def _metric(source: Mapping[str, Any], path: str) -> Errors:
    name = (source.get("metric") or {}).get("name", "")
    return _path_segment(name, f"{path}.metric.name", "must specify a metric name") + _target(
        source.get("target") or {}, f"{path}.target"
    )


def _object(source: Mapping[str, Any], path: str) -> Errors:
    target = source.get("target") or {}
    errors = _reference(source.get("describedObject") or {}, f"{path}.describedObject") + _metric(
        source, path
    )
    if target.get("value") is None and target.get("averageValue") is None:
        errors.append(
            required(
                f"{path}.target.averageValue", "must set either a target value or averageValue"
            )
        )
    return errors


def _external(source: Mapping[str, Any], path: str) -> Errors:
    target = source.get("target") or {}
    given = [name for name in ("value", "averageValue") if target.get(name) is not None]
    errors = _metric(source, path)
    if not given:
        errors.append(
            required(
                f"{path}.target.averageValue",
                "must set either a target value for metric or a per-pod target",
            )
        )
    if len(given) == 2:
        errors.append(
            forbidden(
                f"{path}.target.value",
                "may not set both a target value for metric and a per-pod target",
            )
        )
    return errors


def _pods(source: Mapping[str, Any], path: str) -> Errors:
    errors = _metric(source, path)
    if (source.get("target") or {}).get("averageValue") is None:
        errors.append(
            required(f"{path}.target.averageValue", "must specify a positive target averageValue")
        )
    return errors


def _utilization(source: Mapping[str, Any], path: str) -> Errors:
    target = source.get("target") or {}
    given = [
        name for name in ("averageUtilization", "averageValue") if target.get(name) is not None
    ]
    errors = _target(target, f"{path}.target")
    if not given:
        errors.append(required(f"{path}.target.averageUtilization", _SET_ONE))
    if len(given) == 2:
        errors.append(forbidden(f"{path}.target.averageValue", _NOT_BOTH))
    return errors


def _resource(source: Mapping[str, Any], path: str) -> Errors:
    errors = (
        [] if source.get("name") else [required(f"{path}.name", "must specify a resource name")]
    )
    return errors + _utilization(source, path)


def _container_resource(source: Mapping[str, Any], path: str) -> Errors:
    name, container = source.get("name", ""), source.get("container", "")
    errors: Errors = []
    if name:
        check_container_resource_name(name, f"{path}.name", errors)
    else:
        errors.append(required(f"{path}.name", "must specify a resource name"))
    errors += (
        dns_label(container, f"{path}.container")
        if container
        else [required(f"{path}.container", "must specify a container")]
    )
    return errors + _utilization(source, path)


# field -> (type of the metric, check), in the order of the checks
_SOURCES: dict[str, tuple[str, Callable[[Mapping[str, Any], str], Errors]]] = {
    "object": ("Object", _object),
    "external": ("External", _external),
    "pods": ("Pods", _pods),
    "resource": ("Resource", _resource),
    "containerResource": ("ContainerResource", _container_resource),
}
_FIELDS = {kind: name for name, (kind, _) in _SOURCES.items()}
_TYPES = tuple(sorted(_FIELDS))


def _metric_spec(metric: Mapping[str, Any], path: str) -> Errors:
    kind = metric.get("type", "")
    errors = [] if kind else [required(f"{path}.type", "must specify a metric source type")]
    if kind not in _FIELDS:
        errors.append(not_supported(f"{path}.type", kind, _TYPES))
    present = [name for name in _SOURCES if metric.get(name) is not None]
    if present:
        errors += _SOURCES[present[0]][1](metric[present[0]], f"{path}.{present[0]}")
    expected = _FIELDS.get(kind)
    if expected is None:
        errors.append(not_supported(f"{path}.type", kind, _TYPES))
    elif expected not in present:
        detail = "must populate information for the given metric source"
        if expected == "containerResource":
            detail += " (only allowed when HPAContainerMetrics feature is enabled)"
        errors.append(required(f"{path}.{expected}", detail))
    if len(present) != 1:
        errors += [
            forbidden(f"{path}.{name}", "must populate the given metric source only")
            for name in present
            if name != expected
        ]
    return errors


def _metrics(metrics: Sequence[Mapping[str, Any]], minimum: int | None) -> Errors:
    errors = [
        error
        for i, metric in enumerate(metrics)
        for error in _metric_spec(metric, f"spec.metrics[{i}]")
    ]
    if minimum == 0 and not any(metric.get("type") in ("Object", "External") for metric in metrics):
        errors.append(
            forbidden(
                "spec.metrics",
                "must specify at least one Object or External metric to support "
                "scaling to zero replicas",
            )
        )
    return errors


def _scaling_rules(rules: Mapping[str, Any], path: str) -> Errors:
    errors: Errors = []
    window, select, policies = (
        rules.get("stabilizationWindowSeconds"),
        rules.get("selectPolicy"),
        rules.get("policies"),
    )
    where = f"{path}.stabilizationWindowSeconds"
    if window is not None and window < 0:
        errors.append(invalid(where, window, "must be greater than or equal to zero"))
    if window is not None and window > 3600:
        errors.append(invalid(where, window, "must be less than or equal to 3600"))
    if select is not None and select not in _SELECT_POLICIES:
        errors.append(not_supported(f"{path}.selectPolicy", select, _SELECT_POLICIES))
    if not policies:
        errors.append(required(f"{path}.policies", "must specify at least one Policy"))
    for i, policy in enumerate(policies or ()):
        errors += _scaling_policy(policy, f"{path}.policies[{i}]")
    return errors


def _scaling_policy(policy: Mapping[str, Any], path: str) -> Errors:
    kind, value, period = (
        policy.get("type", ""),
        policy.get("value", 0),
        policy.get("periodSeconds", 0),
    )
    errors = [] if kind in _POLICY_TYPES else [not_supported(f"{path}.type", kind, _POLICY_TYPES)]
    if value <= 0:
        errors.append(invalid(f"{path}.value", value, "must be greater than zero"))
    if period <= 0:
        errors.append(invalid(f"{path}.periodSeconds", period, "must be greater than zero"))
    if period > 1800:
        errors.append(
            invalid(f"{path}.periodSeconds", period, "must be less than or equal to 1800")
        )
    return errors


def _spec(spec: Mapping[str, Any], lowest: int) -> Errors:
    minimum, maximum = spec.get("minReplicas"), spec.get("maxReplicas", 0)
    errors: Errors = []
    if minimum is not None and minimum < lowest:
        errors.append(
            invalid("spec.minReplicas", minimum, f"must be greater than or equal to {lowest}")
        )
    if maximum < 1:
        errors.append(invalid("spec.maxReplicas", maximum, "must be greater than 0"))
    if minimum is not None and maximum < minimum:
        errors.append(
            invalid("spec.maxReplicas", maximum, "must be greater than or equal to `minReplicas`")
        )
    errors += _reference(spec.get("scaleTargetRef") or {}, "spec.scaleTargetRef")
    errors += _metrics(spec.get("metrics") or (), minimum)
    for name in ("scaleUp", "scaleDown"):
        rules = (spec.get("behavior") or {}).get(name)
        if rules is not None:
            errors += _scaling_rules(rules, f"spec.behavior.{name}")
    return errors


def validate_autoscaler(obj: Object, lowest: int = 1) -> Errors:
    return validate_object_meta(obj["metadata"], True, name_is_dns_subdomain) + _spec(
        obj.get("spec") or {}, lowest
    )


def validate_horizontal_pod_autoscaler_update(new: Object, old: Object, lowest: int = 1) -> Errors:
    # An autoscaler that may already scale to zero keeps that.
    lowest = 0 if (old.get("spec") or {}).get("minReplicas") == 0 else lowest
    return validate_object_meta_update(new["metadata"], old["metadata"]) + _spec(
        new.get("spec") or {}, lowest
    )


def validate_horizontal_pod_autoscaler_status_update(new: Object, old: Object) -> Errors:
    status = new.get("status") or {}
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    for name in ("currentReplicas", "desiredReplicas"):
        errors += nonnegative(status.get(name, 0), f"status.{name}")
    return errors


def _version_problem(version: str, *, core: bool) -> str:
    """What is wrong with the apiVersion of a reference; `core` allows the core group."""
    if version.count("/") > 1:
        return f"unexpected GroupVersion string: {version}"
    return "" if core or "/" in version else "apiVersion must specify API group"


def _references(new: Object, old: Object | None) -> Errors:
    """The apiVersion of the target and of described objects, unless the stored ones are as bad."""
    spec, before = new.get("spec") or {}, (old or {}).get("spec") or {}
    target, was = spec.get("scaleTargetRef") or {}, before.get("scaleTargetRef") or {}
    errors: Errors = []
    version, kind = target.get("apiVersion", ""), target.get("kind", "")
    same = old is not None and (version, kind) == (was.get("apiVersion", ""), was.get("kind", ""))
    problem = _version_problem(version, core=kind == "ReplicationController")
    if problem and not same:
        errors.append(invalid("spec.scaleTargetRef.apiVersion", version, problem))
    stored = [_described(metric) for metric in before.get("metrics") or ()]
    if any(_version_problem(version, core=True) for version in stored):
        return errors
    for i, metric in enumerate(spec.get("metrics") or ()):
        problem = _version_problem(_described(metric), core=True)
        if problem:
            path = f"spec.metrics[{i}].object.describedObject.apiVersion"
            errors.append(invalid(path, _described(metric), problem))
    return errors


def _described(metric: Mapping[str, Any]) -> str:
    reference = (metric.get("object") or {}).get("describedObject") or {}
    version: str = reference.get("apiVersion", "")
    return version


def _tolerances(obj: Object) -> Errors:
    behavior = (obj.get("spec") or {}).get("behavior") or {}
    errors: Errors = []
    for name in ("scaleUp", "scaleDown"):
        tolerance = (behavior.get(name) or {}).get("tolerance")
        if tolerance is not None:
            errors += nonnegative_quantity(tolerance, f"spec.behavior.{name}.tolerance")
    return errors


_ORDER = ("spec.scaleTargetRef", "spec.metrics", "spec.behavior")
_match_metric = re.compile(r"spec\.metrics\[(\d+)\](\.object\.describedObject)?").match


def _error_order(error: FieldError) -> tuple[int, int, bool]:
    """Errors of references are among those of their field, in the order of the fields."""
    place = next((i for i, start in enumerate(_ORDER, 1) if error.field.startswith(start)), 0)
    metric = _match_metric(error.field)
    return (place, 0, False) if metric is None else (place, int(metric[1]), metric[2] is None)


def _autoscaler_rules(features: FeatureSet) -> ValidationRules:
    groups = has_behaviour(features.release, "ReferencesNameGroups")
    required_maximum = has_behaviour(features.release, "RequiredMaxReplicas")
    lowest = 0 if features.enabled("HPAScaleToZero") else 1

    def more(new: Object, old: Object | None, errors: Errors) -> Errors:
        if required_maximum:
            errors = [_maximum(error) for error in errors]
        errors = errors + _tolerances(new)
        return sorted(errors + _references(new, old), key=_error_order) if groups else errors

    def create(obj: Object) -> Errors:
        return more(obj, None, validate_autoscaler(obj, lowest))

    def update(new: Object, old: Object) -> Errors:
        return more(new, old, validate_horizontal_pod_autoscaler_update(new, old, lowest))

    return ValidationRules(create, update, validate_horizontal_pod_autoscaler_status_update)


def _maximum(error: FieldError) -> FieldError:
    if error.field != "spec.maxReplicas" or error.detail != "must be greater than 0":
        return error
    if error.value == 0:
        return required(error.field, "must be set and greater than 0")
    return error._replace(detail="must be greater than or equal to 1")


VALIDATORS: Mapping[str, RulesFactory] = {"autoscaling/HorizontalPodAutoscaler": _autoscaler_rules}
