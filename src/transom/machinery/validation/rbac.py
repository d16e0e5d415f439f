"""Roles and bindings: rules have verbs and targets, bindings have subjects and an immutable role."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transom.machinery import selectors
from transom.machinery.field import invalid, not_supported, required
from transom.machinery.validation.checks import check_each, dns_subdomain
from transom.machinery.validation.godump import go_dump
from transom.machinery.validation.meta import (
    validate_label_selector,
    validate_object_meta,
    validate_object_meta_update,
)
from transom.machinery.validation.names import is_path_segment_name
from transom.machinery.validation.rules import Errors, Object, ValidationRules

GROUP = "rbac.authorization.k8s.io"


def _name(name: str, prefix: bool) -> list[str]:
    return is_path_segment_name(name)


def _rule(rule: Mapping[str, Any], namespaced: bool, path: str) -> Errors:
    errors = (
        []
        if rule.get("verbs")
        else [required(f"{path}.verbs", "verbs must contain at least one value")]
    )
    urls = rule.get("nonResourceURLs")
    if urls:
        where, shown = f"{path}.nonResourceURLs", go_dump("[]string", urls)
        if namespaced:
            errors.append(
                invalid(where, shown, "namespaced rules cannot apply to non-resource URLs")
            )
        if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            errors.append(
                invalid(
                    where,
                    shown,
                    "rules cannot apply to both regular resources and non-resource URLs",
                )
            )
        return errors
    if not rule.get("apiGroups"):
        errors.append(
            required(f"{path}.apiGroups", "resource rules must supply at least one api group")
        )
    if not rule.get("resources"):
        errors.append(
            required(f"{path}.resources", "resource rules must supply at least one resource")
        )
    return errors


def validate_role(role: Object, namespaced: bool = True) -> Errors:
    errors = validate_object_meta(role["metadata"], namespaced, _name)
    for i, rule in enumerate(role.get("rules") or ()):
        errors += _rule(rule, namespaced, f"rules[{i}]")
    return errors


def validate_role_update(new: Object, old: Object) -> Errors:
    return validate_role(new) + validate_object_meta_update(new["metadata"], old["metadata"])


def validate_cluster_role(role: Object) -> Errors:
    errors = validate_role(role, namespaced=False)
    aggregation = role.get("aggregationRule")
    if aggregation is None:
        return errors
    path, chosen = (
        "aggregationRule.clusterRoleSelectors",
        aggregation.get("clusterRoleSelectors") or (),
    )
    if not chosen:
        errors.append(
            required(
                path, "at least one clusterRoleSelector required if aggregationRule is non-nil"
            )
        )
    for i, selector in enumerate(chosen):
        errors += validate_label_selector(selector, f"{path}[{i}]")
        try:
            selectors.from_object(selector)
        except selectors.SelectorError:
            errors.append(invalid(f"{path}[{i}]", None, "invalid label selector."))
    return errors


def validate_cluster_role_update(new: Object, old: Object) -> Errors:
    return validate_cluster_role(new) + validate_object_meta_update(
        new["metadata"], old["metadata"]
    )


def _subject(subject: Mapping[str, Any], namespaced: bool, path: str) -> Errors:
    kind, name, group = (
        subject.get("kind", ""),
        subject.get("name", ""),
        subject.get("apiGroup", ""),
    )
    errors = [] if name else [required(f"{path}.name")]
    if kind == "ServiceAccount":
        if name:
            errors += dns_subdomain(name, f"{path}.name")
        if group:
            errors.append(not_supported(f"{path}.apiGroup", group, ("",)))
        if not namespaced and not subject.get("namespace"):
            errors.append(required(f"{path}.namespace"))
    elif kind in ("User", "Group"):
        if group != GROUP:
            errors.append(not_supported(f"{path}.apiGroup", group, (GROUP,)))
    else:
        errors.append(not_supported(f"{path}.kind", kind, ("ServiceAccount", "User", "Group")))
    return errors


def validate_role_binding(binding: Object, namespaced: bool = True) -> Errors:
    reference = binding.get("roleRef") or {}
    group, kind, name = (
        reference.get("apiGroup", ""),
        reference.get("kind", ""),
        reference.get("name", ""),
    )
    kinds = ("Role", "ClusterRole") if namespaced else ("ClusterRole",)
    errors = validate_object_meta(binding["metadata"], namespaced, _name)
    if group != GROUP:
        errors.append(not_supported("roleRef.apiGroup", group, (GROUP,)))
    if kind not in kinds:
        errors.append(not_supported("roleRef.kind", kind, kinds))
    errors += (
        check_each("roleRef.name", name, is_path_segment_name(name))
        if name
        else [required("roleRef.name")]
    )
    for i, subject in enumerate(binding.get("subjects") or ()):
        errors += _subject(subject, namespaced, f"subjects[{i}]")
    return errors


def _role_kept(new: Object, old: Object) -> Errors:
    if new.get("roleRef") == old.get("roleRef"):
        return []
    return [
        invalid("roleRef", go_dump("rbac.RoleRef", new.get("roleRef")), "cannot change roleRef")
    ]


def validate_role_binding_update(new: Object, old: Object) -> Errors:
    return (
        validate_role_binding(new)
        + validate_object_meta_update(new["metadata"], old["metadata"])
        + _role_kept(new, old)
    )


def validate_cluster_role_binding(binding: Object) -> Errors:
    return validate_role_binding(binding, namespaced=False)


def validate_cluster_role_binding_update(new: Object, old: Object) -> Errors:
    errors = validate_cluster_role_binding(new) + validate_object_meta_update(
        new["metadata"], old["metadata"]
    )
    return errors + _role_kept(new, old)


VALIDATORS = {
    f"{GROUP}/Role": ValidationRules(validate_role, validate_role_update),
    f"{GROUP}/ClusterRole": ValidationRules(validate_cluster_role, validate_cluster_role_update),
    f"{GROUP}/RoleBinding": ValidationRules(validate_role_binding, validate_role_binding_update),
    f"{GROUP}/ClusterRoleBinding": ValidationRules(
        validate_cluster_role_binding, validate_cluster_role_binding_update
    ),
}
