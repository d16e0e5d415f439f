"""Requests that are answered but not stored: access reviews and tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from transom.machinery.field import invalid
from transom.machinery.validation.checks import token_lifetime
from transom.machinery.validation.godump import go_dump
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
    return []


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
