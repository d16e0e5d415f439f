"""Requests that are answered but not stored: access reviews and tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from transom.machinery.field import forbidden, invalid, required
from transom.machinery.validation.checks import token_lifetime
from transom.machinery.validation.godump import go_dump
from transom.machinery.validation.names import is_label_value, is_qualified_name
from transom.machinery.validation.rules import Errors, Object, ValidationRules

_GROUP = "authorization.k8s.io"


def _attributes(spec: Mapping[str, Any]) -> Errors:
    resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and other is not None:
        return [
            invalid(
                "spec.nonResourceAttributes",
                go_dump("authorization.NonResourceAttributes", other),
                "cannot be specified in combination with resourceAttributes",
            )
        ]
    if resource is None and other is None:
        return [
            invalid(
                "spec.resourceAttributes",
                None,
                "exactly one of nonResourceAttributes or resourceAttributes must be specified",
            )
        ]
    errors: Errors = []
    for kind in ("fieldSelector", "labelSelector"):  # releases before 1.31 have neither
        selector = (resource or {}).get(kind)
        if selector is not None:
            _check_selector(selector, kind, f"spec.resourceAttributes.{kind}", errors)
    return errors


def _check_selector(selector: Mapping[str, Any], kind: str, path: str, errs: Errors) -> None:
    raw, requirements = selector.get("rawSelector"), selector.get("requirements")
    if raw and requirements:
        text = "may not specified at the same time as requirements"
        errs.append(invalid(f"{path}.rawSelector", raw, text))
    if not raw and not requirements:
        text = f"when {path} is specified, requirements or rawSelector is required"
        errs.append(required(f"{path}.requirements", text))
    for i, requirement in enumerate(requirements or ()):
        where, key = f"{path}.requirements[{i}]", requirement.get("key", "")
        operator, values = requirement.get("operator", ""), requirement.get("values") or ()
        if kind == "fieldSelector" and not key:
            errs.append(required(f"{where}.key", "must be specified"))
        if operator in ("In", "NotIn") and not values:
            text = "must be specified when `operator` is 'In' or 'NotIn'"
            errs.append(required(f"{where}.values", text))
        if operator in ("Exists", "DoesNotExist") and values:
            text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            errs.append(forbidden(f"{where}.values", text))
        if kind == "labelSelector":
            errs += [invalid(f"{where}.key", key, text) for text in is_qualified_name(key)]
            for j, value in enumerate(values):
                errs += [
                    invalid(f"{where}.values[{j}]", value, text) for text in is_label_value(value)
                ]


def _spec(spec: Mapping[str, Any]) -> Errors:
    errors = _attributes(spec)
    if not spec.get("user") and not spec.get("groups"):
        errors.append(invalid("spec.user", "", "at least one of user or group must be specified"))
    return errors


def _empty_metadata(review: Object, allowed: frozenset[str], detail: str) -> Errors:
    meta = review.get("metadata") or {}
    if any(value for key, value in meta.items() if key not in allowed):
        return [invalid("metadata", go_dump("v1.ObjectMeta", meta), detail)]
    return []


_IGNORED = frozenset(("managedFields",))


def validate_access_review(review: Object) -> Errors:
    return _spec(review.get("spec") or {}) + _empty_metadata(review, _IGNORED, "must be empty")


def validate_self_access_review(review: Object) -> Errors:
    return _attributes(review.get("spec") or {}) + _empty_metadata(
        review, _IGNORED, "must be empty"
    )


def validate_local_access_review(review: Object) -> Errors:
    spec = review.get("spec") or {}
    errors = _spec(spec) + _empty_metadata(
        review, _IGNORED | {"namespace"}, "must be empty except for namespace"
    )
    resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and resource.get("namespace", "") != (review.get("metadata") or {}).get(
        "namespace", ""
    ):
        errors.append(
            invalid(
                "spec.resourceAttributes.namespace",
                resource.get("namespace", ""),
                "must match metadata.namespace",
            )
        )
    if other is not None:
        errors.append(
            invalid(
                "spec.nonResourceAttributes",
                go_dump("authorization.NonResourceAttributes", other),
                "disallowed on this kind of request",
            )
        )
    return errors


def validate_token_request(request: Object) -> Errors:
    return token_lifetime(
        (request.get("spec") or {}).get("expirationSeconds") or 0, "spec.expirationSeconds"
    )


def _anything(obj: Object) -> Errors:
    return []


def _only_created(check: Callable[[Object], Errors]) -> ValidationRules:
    return ValidationRules(check, lambda new, old: check(new))


VALIDATORS = {
    f"{_GROUP}/SubjectAccessReview": _only_created(validate_access_review),
    f"{_GROUP}/SelfSubjectAccessReview": _only_created(validate_self_access_review),
    f"{_GROUP}/LocalSubjectAccessReview": _only_created(validate_local_access_review),
    f"{_GROUP}/SelfSubjectRulesReview": _only_created(_anything),
    "authentication.k8s.io/TokenRequest": _only_created(validate_token_request),
    "authentication.k8s.io/TokenReview": _only_created(_anything),
    "authentication.k8s.io/SelfSubjectReview": _only_created(_anything),
}
