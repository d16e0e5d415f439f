"""LimitRange and ResourceQuota: which resources may be limited, and consistency of the amounts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from transom.machinery.field import duplicate, forbidden, invalid, required
from transom.machinery.quantity import Quantity, from_int, parse_quantity
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import FeatureSet
from transom.machinery.validation import godump
from transom.machinery.validation.godump import go_dump
from transom.machinery.validation.meta import validate_object_meta, validate_object_meta_update
from transom.machinery.validation.names import IMMUTABLE, is_qualified_name, name_is_dns_subdomain
from transom.machinery.validation.resources import (
    HUGE_PAGES,
    check_container_resource_name,
    check_resource_name,
    check_resource_quantity,
    is_overcommit_allowed,
)
from transom.machinery.validation.rules import Errors, Object, ValidationRules

_LIMIT_TYPES = frozenset(("Pod", "Container", "PersistentVolumeClaim"))
_ONE = from_int(1)
_MAX_MILLI = (2**63 - 1) // 1000

_COUNTED_PODS = frozenset(("pods",))
_POD_COMPUTE = _COUNTED_PODS | {
    "cpu",
    "memory",
    "limits.cpu",
    "limits.memory",
    "requests.cpu",
    "requests.memory",
}
_QUOTA_RESOURCES = _POD_COMPUTE | {
    "ephemeral-storage",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.ephemeral-storage",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
}
# scope -> the standard resources it may be applied to
_SCOPES = {
    "Terminating": _POD_COMPUTE,
    "NotTerminating": _POD_COMPUTE,
    "BestEffort": _COUNTED_PODS,
    "NotBestEffort": _POD_COMPUTE,
    "PriorityClass": _POD_COMPUTE,
}
_LATER_SCOPES = {**_SCOPES, "CrossNamespacePodAffinity": _POD_COMPUTE}
_CLAIM_SCOPES = {"VolumeAttributesClass": frozenset(("persistentvolumeclaims", "requests.storage"))}
_OPPOSITES = (("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating"))
_EXISTS_ONLY = frozenset(
    ("BestEffort", "NotBestEffort", "Terminating", "NotTerminating", "CrossNamespacePodAffinity")
)
_EXISTS_ERROR = (
    "must be 'Exist' only operator when scope is any of ResourceQuotaScopeTerminating, "
    "ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort and "
    "ResourceQuotaScopeNotBestEffort"
)
_LATER_EXISTS_ERROR = (
    "must be '{}' when scope is any of ResourceQuotaScopeTerminating, "
    "ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, "
    "ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)


class QuotaScopes(NamedTuple):
    """The scopes of a release."""

    known: Mapping[str, frozenset[str]] = _SCOPES
    exists_error: str = _EXISTS_ERROR  # of a scope that is used with another operator


_BASE_SCOPES = QuotaScopes()


def _limit_type(name: str, path: str) -> Errors:
    messages = is_qualified_name(name)
    if messages:
        return [invalid(path, name, text) for text in messages]
    if "/" not in name and name not in _LIMIT_TYPES:
        return [invalid(path, name, "must be a standard limit type or fully qualified")]
    return []


def validate_limit_range(obj: Object) -> Errors:
    errors = validate_object_meta(obj["metadata"], True, name_is_dns_subdomain)
    types: set[str] = set()
    for i, limit in enumerate((obj.get("spec") or {}).get("limits") or ()):
        path, kind = f"spec.limits[{i}]", limit.get("type", "")
        errors += _limit_type(kind, f"{path}.type")
        if kind in types:
            errors.append(duplicate(f"{path}.type", kind))
        types.add(kind)
        errors += _limit_item(limit, kind, path)
    return errors


def _limit_item(limit: dict[str, Any], kind: str, path: str) -> Errors:
    errors: Errors = []
    check = check_container_resource_name if kind in ("Pod", "Container") else check_resource_name
    amounts: dict[str, dict[str, str]] = {}

    def take(name: str) -> None:
        amounts[name] = limit.get(name) or {}
        for resource in amounts[name]:
            check(resource, f"{path}.{name}[{resource}]", errors)

    take("max")
    take("min")
    for name in ("default", "defaultRequest"):
        if kind != "Pod":
            take(name)
        elif limit.get(name):
            errors.append(forbidden(f"{path}.{name}", "may not be specified when `type` is 'Pod'"))
    if (
        kind == "PersistentVolumeClaim"
        and "storage" not in amounts["min"]
        and "storage" not in amounts["max"]
    ):
        errors.append(
            required(
                f"{path}.limits",
                "either minimum or maximum storage value is required, but neither was provided",
            )
        )
    take("maxLimitRequestRatio")
    for resource in dict.fromkeys(key for held in amounts.values() for key in held):
        errors += _amounts(
            resource,
            {name: held[resource] for name, held in amounts.items() if resource in held},
            path,
        )
    return errors


# (left, right, field, whose value is shown, message): left must not exceed right. `None` as field
# means left.
_ORDER = (
    ("min", "max", "min", "min", "min value {} is greater than max value {}"),
    (
        "min",
        "defaultRequest",
        "defaultRequest",
        "defaultRequest",
        "min value {} is greater than default request value {}",
    ),
    (
        "defaultRequest",
        "max",
        "defaultRequest",
        "defaultRequest",
        "default request value {} is greater than max value {}",
    ),
    (
        "defaultRequest",
        "default",
        "defaultRequest",
        "defaultRequest",
        "default request value {} is greater than default limit value {}",
    ),
    ("min", "default", "default", "min", "min value {} is greater than default value {}"),
    ("default", "max", "default", "max", "default value {} is greater than max value {}"),
)


def _amounts(resource: str, texts: Mapping[str, str], path: str) -> Errors:
    errors: Errors = []
    value: dict[str, Quantity] = {name: parse_quantity(text) for name, text in texts.items()}

    def refuse(name: str, shown: str, detail: str) -> None:
        errors.append(
            invalid(f"{path}.{name}[{resource}]", godump.dump_quantity(texts[shown]), detail)
        )

    for left, right, name, shown, words in _ORDER:
        if left in value and right in value and value[left] > value[right]:
            refuse(name, shown, words.format(value[left], value[right]))
    ratio = value.get("maxLimitRequestRatio")
    if ratio is not None:
        if ratio < _ONE:
            refuse("maxLimitRequestRatio", "maxLimitRequestRatio", f"ratio {ratio} is less than 1")
        if "min" in value and "max" in value:
            possible = _possible_ratio(ratio, value["min"], value["max"])
            if possible is not None:
                refuse(
                    "maxLimitRequestRatio",
                    "maxLimitRequestRatio",
                    f"ratio {ratio} is greater than max/min = {possible}",
                )
    default, request = value.get("default"), value.get("defaultRequest")
    if (
        default is not None
        and request is not None
        and default != request
        and not is_overcommit_allowed(resource)
    ):
        refuse(
            "defaultRequest",
            "defaultRequest",
            f"default value {default} must equal to defaultRequest value {request} in {resource}",
        )
    return errors


def _possible_ratio(ratio: Quantity, low: Quantity, high: Quantity) -> str | None:
    """The largest ratio that minimum and maximum allow, as printed, if the given one exceeds it."""
    requested, bottom, top = float(ratio.value()), low.value(), high.value()
    if ratio.value() < _MAX_MILLI and bottom < _MAX_MILLI and top < _MAX_MILLI:
        requested, bottom, top = ratio.milli_value() / 1000, low.milli_value(), high.milli_value()
    if bottom:
        possible = top / bottom
        return f"{possible:f}" if requested > possible else None
    return "-Inf" if top < 0 else None  # division by zero: any ratio is possible


def validate_limit_range_update(new: Object, old: Object) -> Errors:
    return validate_limit_range(new)


def _standard_for_quota(name: str) -> bool:
    return name in _QUOTA_RESOURCES or name.startswith((HUGE_PAGES, f"requests.{HUGE_PAGES}"))


def _quota_amounts(amounts: Mapping[str, str] | None, path: str) -> Errors:
    errors: Errors = []
    for name, text in (amounts or {}).items():
        where = f"{path}[{name}]"
        check_resource_name(name, where, errors)
        if "/" not in name and not _standard_for_quota(name):
            errors.append(invalid(where, name, "must be a standard resource for quota"))
        check_resource_quantity(name, text, where, errors)
    return errors


def _misapplied(scope: str, hard: Mapping[str, str], scopes: QuotaScopes) -> int:
    """The number of hard limits that the scope cannot be applied to."""
    allowed = scopes.known.get(scope)
    return (
        0
        if allowed is None
        else sum(_standard_for_quota(name) and name not in allowed for name in hard)
    )


def _scopes(spec: dict[str, Any], known: QuotaScopes) -> Errors:
    scopes = spec.get("scopes") or ()
    errors: Errors = []
    shown = go_dump("[]core.ResourceQuotaScope", scopes)
    for scope in scopes:
        if scope not in known.known:
            errors.append(invalid("spec.scopes", shown, "unsupported scope"))
        errors += [
            invalid("spec.scopes", shown, "unsupported scope applied to resource")
        ] * _misapplied(scope, spec.get("hard") or {}, known)
    return errors + [
        invalid("spec.scopes", shown, "conflicting scopes")
        for pair in _OPPOSITES
        if set(pair) <= set(scopes)
    ]


def _scope_selector(spec: dict[str, Any], known: QuotaScopes) -> Errors:
    selector = spec.get("scopeSelector")
    if selector is None:
        return []
    errors: Errors = []
    path = "spec.scopeSelector.matchExpressions"
    expressions = selector.get("matchExpressions") or ()
    for expression in expressions:
        scope, operator = expression.get("scopeName", ""), expression.get("operator", "")
        values = expression.get("values")
        if scope not in known.known:
            errors.append(invalid(f"{path}.scopeName", scope, "unsupported scope"))
        errors += [
            invalid(
                path,
                go_dump("core.ScopeSelector", selector),
                "unsupported scope applied to resource",
            )
        ] * _misapplied(scope, spec.get("hard") or {}, known)
        if scope in known.known and scope in _EXISTS_ONLY and operator != "Exists":
            errors.append(invalid(f"{path}.operator", operator, known.exists_error))
        if operator in ("In", "NotIn"):
            if not values:
                errors.append(
                    required(
                        f"{path}.values",
                        (
                            "must be at least one value when `operator` is 'In' or 'NotIn' for "
                            "scope selector"
                        ),
                    )
                )
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                errors.append(
                    invalid(
                        f"{path}.values",
                        go_dump("[]string", values),
                        (
                            "must be no value when `operator` is 'Exist' or 'DoesNotExist' for "
                            "scope selector"
                        ),
                    )
                )
        else:
            errors.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))
    scopes = {expression.get("scopeName", "") for expression in expressions}
    shown = go_dump("[]core.ResourceQuotaScope", spec.get("scopes"))
    return errors + [
        invalid(path, shown, "conflicting scopes") for pair in _OPPOSITES if set(pair) <= scopes
    ]


def _quota_spec(obj: Object, known: QuotaScopes) -> Errors:
    spec = obj.get("spec") or {}
    errors = _quota_amounts(spec.get("hard"), "spec.hard")
    return errors + _scopes(spec, known) + _scope_selector(spec, known)


def _quota_status(obj: Object) -> Errors:
    status = obj.get("status") or {}
    return _quota_amounts(status.get("hard"), "status.hard") + _quota_amounts(
        status.get("used"), "status.used"
    )


def validate_resource_quota(obj: Object, known: QuotaScopes = _BASE_SCOPES) -> Errors:
    """`known`: the scopes of the release."""
    return (
        validate_object_meta(obj["metadata"], True, name_is_dns_subdomain)
        + _quota_spec(obj, known)
        + _quota_status(obj)
    )


def validate_resource_quota_update(
    new: Object, old: Object, known: QuotaScopes = _BASE_SCOPES
) -> Errors:
    errors = validate_resource_quota(new, known) + validate_object_meta_update(
        new["metadata"], old["metadata"]
    )
    errors += _quota_spec(new, known)
    scopes = (new.get("spec") or {}).get("scopes")
    if set(scopes or ()) != set((old.get("spec") or {}).get("scopes") or ()):
        errors.append(
            invalid("spec.scopes", go_dump("[]core.ResourceQuotaScope", scopes), IMMUTABLE)
        )
    return errors


def validate_resource_quota_status_update(new: Object, old: Object) -> Errors:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    if not new["metadata"].get("resourceVersion"):
        errors.append(required("resourceVersion"))
    return errors + _quota_status(new)


def quota_validation(features: FeatureSet) -> ValidationRules:
    scopes: Mapping[str, frozenset[str]] = _SCOPES
    if features.enabled("PodAffinityNamespaceSelector"):
        scopes = _LATER_SCOPES
    if features.enabled("VolumeAttributesClass"):
        scopes = {**scopes, **_CLAIM_SCOPES}
    error = _EXISTS_ERROR
    if has_behaviour(features.release, "QuotaScopeErrors"):
        spelt = "Exists" if has_behaviour(features.release, "QuotaScopeExists") else "Exist"
        error = _LATER_EXISTS_ERROR.format(spelt)
    known = QuotaScopes(scopes, error)
    return ValidationRules(
        partial(validate_resource_quota, known=known),
        partial(validate_resource_quota_update, known=known),
        validate_resource_quota_status_update,
    )


VALIDATORS = {
    "/LimitRange": ValidationRules(validate_limit_range, validate_limit_range_update),
    "/ResourceQuota": quota_validation,
}
