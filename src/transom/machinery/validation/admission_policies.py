"""ValidatingAdmissionPolicy, MutatingAdmissionPolicy and their bindings. Expressions are compiled."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from transom.machinery.cel.admission import (
    ANNOTATION_RESULTS,
    APPLY_RESULTS,
    CONDITION_RESULTS,
    JSON_PATCH_RESULTS,
    MESSAGE_RESULTS,
    AdmissionCompiler,
)
from transom.machinery.field import (
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from transom.machinery.releases import Release
from transom.machinery.validation.admissionregistration import validate_operations_rule
from transom.machinery.validation.checks import check_each
from transom.machinery.validation.godump import go_dump
from transom.machinery.validation.match_conditions import validate_match_conditions
from transom.machinery.validation.meta import (
    validate_any_object_meta,
    validate_conditions,
    validate_label_selector,
)
from transom.machinery.validation.names import (
    is_dns1035_label,
    is_dns1123_subdomain,
    is_path_segment_name,
    is_qualified_name,
    name_is_dns_subdomain,
)
from transom.machinery.validation.rules import Errors, Object, ReleaseRules

_FAILURE_POLICIES: Final = ("Fail", "Ignore")
_MATCH_POLICIES: Final = ("Equivalent", "Exact")
_REASONS: Final = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_ACTIONS: Final = ("Audit", "Deny", "Warn")
_NOT_FOUND_ACTIONS: Final = ("Deny", "Allow")
_REINVOCATION: Final = ("IfNeeded", "Never")
_PATCH_TYPES: Final = ("ApplyConfiguration", "JSONPatch")
_MUTATING_OPERATIONS: Final = ("*", "CONNECT", "CREATE", "UPDATE")
_MOST_ANNOTATIONS: Final = 20
_LONGEST_ANNOTATION: Final = 5 * 1024
_identifier = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*").fullmatch
_RESERVED: Final = frozenset(
    (
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for"),
        *("function", "if", "import", "let", "loop", "package", "namespace", "return", "var"),
        *("void", "while"),
    )
)


class _Stored(NamedTuple):
    """The expressions that the object had before an update. They may use newer libraries."""

    conditions: Collection[str] = ()
    validations: Collection[str] = ()
    messages: Collection[str] = ()
    annotations: Collection[str] = ()
    patches: Collection[str] = ()


def _match_resources(given: Mapping[str, Any], path: str) -> Errors:
    errors: Errors = []
    policy = given.get("matchPolicy")
    if policy is None:
        errors.append(required(f"{path}.matchPolicy"))
    elif policy not in _MATCH_POLICIES:
        errors.append(not_supported(f"{path}.matchPolicy", policy, _MATCH_POLICIES))
    for field in ("namespaceSelector", "objectSelector"):
        if given.get(field) is None:
            errors.append(required(f"{path}.{field}"))
        else:
            errors += validate_label_selector(given[field], f"{path}.{field}")
    for field in ("resourceRules", "excludeResourceRules"):
        for i, rule in enumerate(given.get(field) or ()):
            errors += _named_rule(rule, f"{path}.{field}[{i}]")
    return errors


def _named_rule(rule: Mapping[str, Any], path: str) -> Errors:
    errors: Errors = []
    names: set[str] = set()
    for i, name in enumerate(rule.get("resourceNames") or ()):
        errors += check_each(f"{path}.resourceNames[{i}]", name, is_path_segment_name(name))
        if name in names:
            errors.append(duplicate(f"{path}.resourceNames[{i}]", name))
        names.add(name)
    return errors + validate_operations_rule(rule, path)


def _param_kind(given: Mapping[str, Any], path: str) -> Errors:
    errors: Errors = []
    version, kind = given.get("apiVersion", ""), given.get("kind", "")
    where = f"{path}.apiVersion"
    if not version:
        errors.append(required(where))
    elif version.count("/") > 1:
        errors.append(invalid(where, version, f"unexpected GroupVersion string: {version}"))
    else:
        group, _, name = version.rpartition("/")
        if group and (wrong := is_dns1123_subdomain(group)):
            errors.append(invalid(where, group, ",".join(wrong)))
        if not name:
            errors.append(invalid(where, version, "version must be specified"))
        elif wrong := is_dns1035_label(name):
            errors.append(invalid(where, name, ",".join(wrong)))
    if not kind:
        errors.append(required(f"{path}.kind"))
    elif wrong := is_dns1035_label(kind.lower()):
        text = f"may have mixed case, but should otherwise match: {','.join(wrong)}"
        errors.append(invalid(f"{path}.kind", kind, text))
    return errors


def _common(
    release: Release, spec: Mapping[str, Any], stored: _Stored, *, conditions: bool
) -> Errors:
    """What both types of policies have. `conditions`: whether to check the match conditions."""
    errors: Errors = []
    failure = spec.get("failurePolicy")
    if failure is None:
        errors.append(required("spec.failurePolicy"))
    elif failure not in _FAILURE_POLICIES:
        errors.append(not_supported("spec.failurePolicy", failure, _FAILURE_POLICIES))
    if spec.get("paramKind") is not None:
        errors += _param_kind(spec["paramKind"], "spec.paramKind")
    constraints = spec.get("matchConstraints")
    if constraints is None:
        errors.append(required("spec.matchConstraints"))
    else:
        errors += _match_resources(constraints, "spec.matchConstraints")
        if not constraints.get("resourceRules"):
            errors.append(required("spec.matchConstraints.resourceRules"))
        if "mutations" in spec or "reinvocationPolicy" in spec:
            errors += _mutating_operations(constraints.get("resourceRules") or ())
    if conditions:
        errors += validate_match_conditions(
            release,
            spec.get("matchConditions") or (),
            "spec.matchConditions",
            params=spec.get("paramKind") is not None,
            stored=stored.conditions,
        )
    return errors


def _mutating_operations(rules: Sequence[Mapping[str, Any]]) -> Errors:
    return [
        not_supported(
            "spec.matchConstraints.resourceRules.operations", operation, _MUTATING_OPERATIONS
        )
        for rule in rules
        for operation in rule.get("operations") or ()
        if operation not in _MUTATING_OPERATIONS
    ]


def _variables(compiler: AdmissionCompiler, spec: Mapping[str, Any], stored: _Stored) -> Errors:
    errors: Errors = []
    for i, variable in enumerate(spec.get("variables") or ()):
        path = f"spec.variables[{i}]"
        name, text = variable.get("name", ""), variable.get("expression", "")
        if not name.strip():
            errors.append(required(f"{path}.name", "name is not specified"))
        elif not _identifier(name) or name in _RESERVED:
            errors.append(invalid(f"{path}.name", name, "must be a valid CEL identifier"))
        if not text.strip():
            errors.append(required(f"{path}.expression", "expression is not specified"))
            continue
        found = compiler.add_variable(name, text, stored=text in stored.validations)
        if found.problem:
            errors.append(invalid(f"{path}.expression", text, found.problem))
    return errors


def _has_line_break(text: str) -> bool:
    return "\n" in text or "\r" in text


def _validation(
    compiler: AdmissionCompiler, given: Mapping[str, Any], path: str, stored: _Stored
) -> Errors:
    errors: Errors = []
    text, message = given.get("expression", ""), given.get("message", "")
    if not text.strip():
        errors.append(required(f"{path}.expression", "expression is not specified"))
    else:
        found = compiler.compile(text, CONDITION_RESULTS, stored=text in stored.validations)
        if found.problem:
            errors.append(invalid(f"{path}.expression", text, found.problem))
    text = given.get("messageExpression", "")
    if text and not text.strip():
        errors.append(invalid(f"{path}.messageExpression", text, "must be non-empty if specified"))
    elif text:
        found = compiler.compile(
            text, MESSAGE_RESULTS, authorizer=False, stored=text in stored.messages
        )
        if found.problem:
            errors.append(invalid(f"{path}.messageExpression", text, found.problem))
    if message and not message.strip():
        errors.append(invalid(f"{path}.message", message, "must be non-empty if specified"))
    elif _has_line_break(message.strip()):
        errors.append(invalid(f"{path}.message", message, "must not contain line breaks"))
    reason = given.get("reason")
    if reason is not None and reason not in _REASONS:
        errors.append(not_supported(f"{path}.reason", reason, _REASONS))
    return errors


def _annotations(
    compiler: AdmissionCompiler, policy: str, given: Sequence[Mapping[str, Any]], stored: _Stored
) -> Errors:
    errors: Errors = []
    path = "spec.auditAnnotations"
    if len(given) > _MOST_ANNOTATIONS:
        shown = go_dump("[]admissionregistration.AuditAnnotation", given)
        errors.append(
            invalid(path, shown, f"must not have more than {_MOST_ANNOTATIONS} auditAnnotations")
        )
    keys: set[str] = set()
    for i, annotation in enumerate(given):
        here, key = f"{path}[{i}]", annotation.get("key", "")
        if policy:
            full = f"{policy}/{key}"
            errors += check_each(f"{here}.key", full, is_qualified_name(full))
        else:
            errors.append(invalid(f"{here}.key", key, "requires metadata.name be non-empty"))
        text = annotation.get("valueExpression", "")
        where = f"{here}.valueExpression"
        if not text.strip():
            errors.append(required(where, "valueExpression is not specified"))
        elif len(text.strip().encode("utf-8", "replace")) > _LONGEST_ANNOTATION:
            errors.append(required(where, f"must not exceed {_LONGEST_ANNOTATION} bytes in length"))
        else:
            known = text in stored.annotations
            found = compiler.compile(text.strip(), ANNOTATION_RESULTS, stored=known)
            if found.problem:
                errors.append(invalid(where, text, found.problem))
        if key in keys:
            errors.append(duplicate(f"{here}.key", key))
        keys.add(key)
    return errors


def _validating_policy(release: Release, obj: Object, stored: _Stored, conditions: bool) -> Errors:
    meta, spec = obj["metadata"], obj.get("spec") or {}
    errors = validate_any_object_meta(meta, False, name_is_dns_subdomain)
    errors += _common(release, spec, stored, conditions=conditions)
    compiler = AdmissionCompiler(
        release, params=spec.get("paramKind") is not None, composed=bool(spec.get("variables"))
    )
    errors += _variables(compiler, spec, stored)
    validations, annotations = spec.get("validations") or (), spec.get("auditAnnotations") or ()
    if not validations and not annotations:
        text = "validations or auditAnnotations must contain at least one item"
        errors += [required("spec.validations", text), required("spec.auditAnnotations", text)]
        return errors
    for i, validation in enumerate(validations):
        errors += _validation(compiler, validation, f"spec.validations[{i}]", stored)
    return errors + _annotations(compiler, meta.get("name", ""), annotations, stored)


def _mutation(
    compiler: AdmissionCompiler, given: Mapping[str, Any], path: str, stored: _Stored
) -> Errors:
    kind = given.get("patchType", "")
    if not kind:
        return [required(f"{path}.patchType")]
    if kind not in _PATCH_TYPES:
        return [not_supported(f"{path}.patchType", kind, _PATCH_TYPES)]
    field, other = ("applyConfiguration", "jsonPatch")
    results: Any = APPLY_RESULTS
    if kind == "JSONPatch":
        field, other = other, field
        results = JSON_PATCH_RESULTS
    errors: Errors = []
    if given.get(field) is None:
        errors.append(required(f"{path}.{field}", f"must be specified when patchType is {kind}"))
    else:
        text = given[field].get("expression", "")
        where = f"{path}.{field}.expression"
        if not text.strip():
            errors.append(required(where))
        else:
            known = text in stored.patches
            found = compiler.compile(text.strip(), results, patches=True, stored=known)
            if found.problem:
                errors.append(invalid(where, text.strip(), found.problem))
    if given.get(other) is not None:
        text = f"must not be specified when patchType is {kind}"
        errors.append(invalid(f"{path}.{other}", f"{{{other}}}", text))
    return errors


def _mutating_policy(release: Release, obj: Object, stored: _Stored, conditions: bool) -> Errors:
    spec = {"mutations": (), **(obj.get("spec") or {})}
    errors = validate_any_object_meta(obj["metadata"], False, name_is_dns_subdomain)
    errors += _common(release, spec, stored, conditions=conditions)
    compiler = AdmissionCompiler(release, params=spec.get("paramKind") is not None, composed=True)
    errors += _variables(compiler, spec, stored)
    if not spec["mutations"]:
        errors.append(required("spec.mutations", "mutations must contain at least one item"))
    for i, mutation in enumerate(spec["mutations"] or ()):
        errors += _mutation(compiler, mutation, f"spec.mutations[{i}]", stored)
    policy = spec.get("reinvocationPolicy", "")
    if not policy:
        errors.append(required("spec.reinvocationPolicy"))
    elif policy not in _REINVOCATION:
        errors.append(not_supported("spec.reinvocationPolicy", policy, _REINVOCATION))
    return errors


def _param_ref(given: Mapping[str, Any] | None, path: str) -> Errors:
    if given is None:
        return []
    errors: Errors = []
    name, selector = given.get("name", ""), given.get("selector")
    exclusive = "name and selector are mutually exclusive"
    if name:
        errors += check_each(f"{path}.name", name, is_path_segment_name(name))
        if selector is not None:
            errors.append(forbidden(f"{path}.name", exclusive))
    if selector is not None:
        errors += validate_label_selector(selector, f"{path}.selector")
        if name:
            errors.append(forbidden(f"{path}.selector", exclusive))
    if not name and selector is None:
        errors.append(required(path, "one of name or selector must be specified"))
    action = given.get("parameterNotFoundAction")
    if not action:
        errors.append(required(f"{path}.parameterNotFoundAction"))
    elif action not in _NOT_FOUND_ACTIONS:
        errors.append(not_supported(f"{path}.parameterNotFoundAction", action, _NOT_FOUND_ACTIONS))
    return errors


def _actions(given: Sequence[str], path: str) -> Errors:
    errors: Errors = []
    seen: set[str] = set()
    for i, action in enumerate(given):
        if action not in _ACTIONS:
            errors.append(not_supported(f"{path}[{i}]", action, _ACTIONS))
        if action in seen:
            errors.append(duplicate(f"{path}[{i}]", action))
        seen.add(action)
    if {"Deny", "Warn"} <= seen:
        text = (
            "must not contain both Deny and Warn (repeating the same validation failure "
            "information in the API response and headers serves no purpose)"
        )
        shown = go_dump("[]admissionregistration.ValidationAction", given)
        errors.append(invalid(path, shown, text))
    if not seen:
        errors.append(required(path, "at least one validation action is required"))
    return errors


def _binding(validating: bool, _release: Release, obj: Object) -> Errors:
    spec = obj.get("spec") or {}
    errors = validate_any_object_meta(obj["metadata"], False, name_is_dns_subdomain)
    policy = spec.get("policyName", "")
    if not policy:
        errors.append(required("spec.policyName"))
    else:
        errors += check_each("spec.policyName", policy, name_is_dns_subdomain(policy, False))
    errors += _param_ref(spec.get("paramRef"), "spec.paramRef")
    if spec.get("matchResources") is not None:
        errors += _match_resources(spec["matchResources"], "spec.matchResources")
    if validating:
        errors += _actions(spec.get("validationActions") or (), "spec.validationActions")
    return errors


def _binding_update(validating: bool, release: Release, new: Object, _old: Object) -> Errors:
    return _binding(validating, release, new)


def _same_conditions(new: Object, old: Object) -> bool:
    now, before = new.get("spec") or {}, old.get("spec") or {}
    return all(
        (now.get(field) or None) == (before.get(field) or None)
        for field in ("paramKind", "matchConditions")
    )


def _stored_expressions(obj: Object) -> _Stored:
    spec = obj.get("spec") or {}
    validations = spec.get("validations") or ()
    mutations = spec.get("mutations") or ()
    return _Stored(
        {c.get("expression", "") for c in spec.get("matchConditions") or ()},
        {v.get("expression", "") for v in validations},
        {v.get("messageExpression", "") for v in validations},
        {a.get("valueExpression", "") for a in spec.get("auditAnnotations") or ()},
        {(m.get("applyConfiguration") or {}).get("expression", "") for m in mutations},
    )


def _validating_update(release: Release, new: Object, old: Object) -> Errors:
    return _validating_policy(
        release, new, _stored_expressions(old), not _same_conditions(new, old)
    )


def _mutating_update(release: Release, new: Object, old: Object) -> Errors:
    return _mutating_policy(release, new, _stored_expressions(old), not _same_conditions(new, old))


def _status_update(_release: Release, new: Object, _old: Object) -> Errors:
    """The status that the type checking controller writes."""
    errors: Errors = []
    status = new.get("status") or {}
    path = "status.typeChecking.expressionWarnings"
    for i, warning in enumerate((status.get("typeChecking") or {}).get("expressionWarnings") or ()):
        if not warning.get("warning"):
            errors.append(required(f"{path}[{i}].warning"))
        if not (warning.get("fieldRef") or "").strip():
            errors.append(required(f"{path}[{i}].fieldRef"))
    return errors + validate_conditions(status.get("conditions"), "status.conditions")


_GROUP: Final = "admissionregistration.k8s.io"
VALIDATORS: Final = {
    f"{_GROUP}/ValidatingAdmissionPolicy": ReleaseRules(
        lambda release, obj: _validating_policy(release, obj, _Stored(), True),
        _validating_update,
        _status_update,
    ),
    f"{_GROUP}/MutatingAdmissionPolicy": ReleaseRules(
        lambda release, obj: _mutating_policy(release, obj, _Stored(), True), _mutating_update
    ),
    f"{_GROUP}/ValidatingAdmissionPolicyBinding": ReleaseRules(
        partial(_binding, True), partial(_binding_update, True)
    ),
    f"{_GROUP}/MutatingAdmissionPolicyBinding": ReleaseRules(
        partial(_binding, False), partial(_binding_update, False)
    ),
}
