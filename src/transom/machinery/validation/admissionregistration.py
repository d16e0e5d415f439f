"""Validating and mutating webhook configurations."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from transom.kit.lazy import lazy_import
from transom.machinery.field import duplicate, invalid, not_supported, required
from transom.machinery.releases import Release
from transom.machinery.releases.features import is_enabled
from transom.machinery.validation.checks import check_each
from transom.machinery.validation.godump import go_dump
from transom.machinery.validation.meta import validate_any_object_meta, validate_label_selector
from transom.machinery.validation.names import (
    is_fully_qualified_name,
    name_is_dns_subdomain,
)
from transom.machinery.validation.review_versions import REVIEW_VERSIONS, check_review_versions
from transom.machinery.validation.rules import Errors, Object, ReleaseRules
from transom.machinery.validation.webhook import validate_client_config

# The CEL engine, which few configurations need.
if TYPE_CHECKING:
    from transom.machinery.validation import match_conditions
else:
    match_conditions = lazy_import("transom.machinery.validation.match_conditions")

_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_SCOPES = ("*", "Cluster", "Namespaced")
_SIDE_EFFECTS = ("None", "NoneOnDryRun", "Some", "Unknown")
_NO_SIDE_EFFECTS = ("None", "NoneOnDryRun")
_POLICIES = (("failurePolicy", ("Fail", "Ignore")), ("matchPolicy", ("Equivalent", "Exact")))
_REINVOCATION = ("IfNeeded", "Never")


class _Strictness(NamedTuple):
    """What v1beta1 allows, and an update because the stored object already had it."""

    release: Release
    conditions: bool = True  # whether match conditions are checked
    stored_conditions: Collection[str] = ()
    no_side_effects: bool = True
    known_version: bool = True
    unique_names: bool = True


def _resources(resources: Sequence[str], path: str) -> Errors:
    errors = [] if resources else [required(path)]
    all_subresources: set[str] = set()  # x of x/*
    all_resources: set[str] = set()  # y of */y
    plain = False
    for i, text in enumerate(resources):
        if not text:
            errors.append(required(f"{path}[{i}]"))
            continue
        resource, slash, sub = text.partition("/")
        if not slash:
            plain = text != "*"
            continue
        if resource in all_subresources:
            errors.append(
                invalid(
                    f"{path}[{i}]", text, f"if '{resource}/*' is present, must not specify {text}"
                )
            )
        if sub in all_resources:
            errors.append(
                invalid(f"{path}[{i}]", text, f"if '*/{sub}' is present, must not specify {text}")
            )
        if sub == "*":
            all_subresources.add(resource)
        if resource == "*":
            all_resources.add(sub)
    if len(resources) > 1 and "*/*" in resources:
        errors.append(
            invalid(
                path,
                go_dump("[]string", resources),
                "if '*/*' is present, must not specify other resources",
            )
        )
    if plain and "*" in resources:
        errors.append(
            invalid(
                path,
                go_dump("[]string", resources),
                "if '*' is present, must not specify other resources without subresources",
            )
        )
    return errors


def _listed(values: Sequence[str], path: str, what: str, go_type: str = "[]string") -> Errors:
    if not values:
        return [required(path)]
    if len(values) > 1 and "*" in values:
        return [
            invalid(
                path, go_dump(go_type, values), f"if '*' is present, must not specify other {what}"
            )
        ]
    return []


def validate_operations_rule(rule: Mapping[str, Any], path: str) -> Errors:
    """A rule with operations, of a webhook or a policy."""
    operations, versions = rule.get("operations") or (), rule.get("apiVersions") or ()
    errors = _listed(
        operations, f"{path}.operations", "operations", "[]admissionregistration.OperationType"
    )
    errors += [
        not_supported(f"{path}.operations[{i}]", operation, _OPERATIONS)
        for i, operation in enumerate(operations)
        if operation not in _OPERATIONS
    ]
    errors += _listed(rule.get("apiGroups") or (), f"{path}.apiGroups", "API groups")
    errors += _listed(versions, f"{path}.apiVersions", "API versions")
    errors += [
        required(f"{path}.apiVersions[{i}]") for i, version in enumerate(versions) if not version
    ]
    errors += _resources(rule.get("resources") or (), f"{path}.resources")
    scope = rule.get("scope")
    return (
        errors
        if scope is None or scope in _SCOPES
        else [*errors, not_supported(f"{path}.scope", scope, _SCOPES)]
    )


def _webhook(hook: Mapping[str, Any], strict: _Strictness, path: str) -> Errors:
    name, effects, timeout = (
        hook.get("name", ""),
        hook.get("sideEffects"),
        hook.get("timeoutSeconds"),
    )
    errors = (
        check_each(f"{path}.name", name, is_fully_qualified_name(name))
        if name
        else [required(f"{path}.name")]
    )
    for i, rule in enumerate(hook.get("rules") or ()):
        errors += validate_operations_rule(rule, f"{path}.rules[{i}]")
    errors += [
        not_supported(f"{path}.{field}", hook[field], values)
        for field, values in _POLICIES
        if hook.get(field) is not None and hook[field] not in values
    ]
    allowed = _NO_SIDE_EFFECTS if strict.no_side_effects else _SIDE_EFFECTS
    if effects is None:
        errors.append(required(f"{path}.sideEffects", f"must specify one of {', '.join(allowed)}"))
    elif effects not in allowed:
        errors.append(not_supported(f"{path}.sideEffects", effects, allowed))
    if timeout is not None and not 1 <= timeout <= 30:
        errors.append(
            invalid(
                f"{path}.timeoutSeconds",
                timeout,
                "the timeout value must be between 1 and 30 seconds",
            )
        )
    for field in ("namespaceSelector", "objectSelector"):
        errors += validate_label_selector(hook.get(field), f"{path}.{field}")
    reinvocation = hook.get("reinvocationPolicy")
    if reinvocation is not None and reinvocation not in _REINVOCATION:
        errors.append(not_supported(f"{path}.reinvocationPolicy", reinvocation, _REINVOCATION))
    errors += validate_client_config(hook.get("clientConfig") or {}, f"{path}.clientConfig")
    conditions = hook.get("matchConditions")
    if conditions and strict.conditions:
        errors += match_conditions.validate_match_conditions(
            strict.release, conditions, f"{path}.matchConditions", stored=strict.stored_conditions
        )
    return errors


def _review_versions(versions: Sequence[str], strict: _Strictness, path: str) -> Errors:
    if not versions:
        return [required(path, f"must specify one of {', '.join(REVIEW_VERSIONS)}")]
    return check_review_versions(versions, path, need_known=strict.known_version)


def _configuration(obj: Object, strict: _Strictness) -> Errors:
    errors = validate_any_object_meta(obj["metadata"], False, name_is_dns_subdomain)
    names: set[str] = set()
    for i, hook in enumerate(obj.get("webhooks") or ()):
        path, name = f"webhooks[{i}]", hook.get("name", "")
        errors += _webhook(hook, strict, path)
        versions = hook.get("admissionReviewVersions") or ()
        errors += _review_versions(versions, strict, f"{path}.admissionReviewVersions")
        if strict.unique_names and name:
            if name in names:
                errors.append(duplicate(f"{path}.name", name))
            names.add(name)
    return errors


def validate_webhook_configuration(beta: bool, release: Release, obj: Object) -> Errors:
    return _configuration(
        obj,
        _Strictness(
            release,
            conditions=is_enabled(release, "AdmissionWebhookMatchConditions"),
            no_side_effects=not beta,
            unique_names=not beta,
        ),
    )


def validate_webhook_configuration_update(
    beta: bool, release: Release, new: Object, old: Object
) -> Errors:
    hooks = old.get("webhooks") or ()
    versions = [set(hook.get("admissionReviewVersions") or ()) for hook in hooks]
    names = [hook.get("name", "") for hook in hooks]
    held = [hook.get("matchConditions") or [] for hook in hooks]
    changed = held != [hook.get("matchConditions") or [] for hook in new.get("webhooks") or ()]
    return _configuration(
        new,
        _Strictness(
            release,
            conditions=changed and is_enabled(release, "AdmissionWebhookMatchConditions"),
            stored_conditions={c.get("expression", "") for some in held for c in some},
            no_side_effects=not beta
            and all(hook.get("sideEffects") in _NO_SIDE_EFFECTS for hook in hooks),
            known_version=all(not some or some & set(REVIEW_VERSIONS) for some in versions),
            unique_names=not beta and len(set(names)) == len(names),
        ),
    )


_GROUP = "admissionregistration.k8s.io"
VALIDATORS = {
    f"{_GROUP}/{kind}{version}": ReleaseRules(
        partial(validate_webhook_configuration, beta),
        partial(validate_webhook_configuration_update, beta),
    )
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    for version, beta in (("", False), (f"@{_GROUP}/v1beta1", True))
}
