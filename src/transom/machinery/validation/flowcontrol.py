"""FlowSchema and PriorityLevelConfiguration. The four mandatory objects are fixed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from transom.machinery.field import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from transom.machinery.flowcontrol import PRESERVE_ZERO_SHARES
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import FeatureSet
from transom.machinery.validation.checks import check_each, dns_label, dns_subdomain
from transom.machinery.validation.godump import go_dump
from transom.machinery.validation.meta import validate_object_meta
from transom.machinery.validation.names import is_dns1123_label, name_is_dns_subdomain
from transom.machinery.validation.rules import Errors, Object, RulesFactory, ValidationRules

_VERBS = (
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "proxy",
    "update",
    "watch",
)
_METHODS = ("ByNamespace", "ByUser")
_MAX_PRECEDENCE = 10000
_MAX_QUEUES = 10_000_000
_HASH_BITS = 60
_ONE_VERB = "verbs must contain at least one value"
_SUBJECTS = {"ServiceAccount": "serviceAccount", "User": "user", "Group": "group"}


def _everything(*groups: str) -> list[dict[str, Any]]:
    return [
        {
            "subjects": [{"kind": "Group", "group": {"name": group}} for group in groups],
            "resourceRules": [
                {
                    "verbs": ["*"],
                    "apiGroups": ["*"],
                    "resources": ["*"],
                    "clusterScope": True,
                    "namespaces": ["*"],
                }
            ],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        }
    ]


_FIXED_SCHEMAS = {
    "exempt": {
        "priorityLevelConfiguration": {"name": "exempt"},
        "matchingPrecedence": 1,
        "rules": _everything("system:masters"),
    },
    "catch-all": {
        "priorityLevelConfiguration": {"name": "catch-all"},
        "matchingPrecedence": 10000,
        "distinguisherMethod": {"type": "ByUser"},
        "rules": _everything("system:unauthenticated", "system:authenticated"),
    },
}
# The required spec of the fixed levels; fields that later versions added may be defaulted.
_FIXED_LEVELS: dict[str, dict[str, Any]] = {
    "exempt": {"type": "Exempt"},
    "catch-all": {"type": "Limited", "nominalConcurrencyShares": 5, "response": "Reject"},
}


def _choice(values: Sequence[str], path: str, empty: str, others: str) -> Errors:
    """A list that must not be empty, and in which `*` must be the only item."""
    if not values:
        return [required(path, empty)]
    if len(values) > 1 and "*" in values:
        return [
            invalid(
                path,
                go_dump("[]string", values),
                f"if '*' is present, must not specify other {others}",
            )
        ]
    return []


def _verbs(verbs: Sequence[str], path: str) -> Errors:
    errors = _choice(verbs, path, _ONE_VERB, "verbs")
    if not errors and "*" not in verbs and not set(verbs) <= set(_VERBS):
        errors.append(not_supported(path, go_dump("[]string", verbs), _VERBS))
    return errors


def non_resource_url_problem(url: str) -> str:
    if not url:
        return "must not be empty"
    if url == "/":
        return ""
    if not url.startswith("/"):
        return "must start with slash"
    if " " in url:
        return "must not contain white-space"
    if "//" in url:
        return "must not contain double slash"
    stars = url.count("*")
    return (
        "wildcard can only do suffix matching"
        if stars > 1 or (stars and not url.endswith("/*"))
        else ""
    )


def _non_resource_rule(rule: Mapping[str, Any], path: str) -> Errors:
    urls, where = rule.get("nonResourceURLs") or (), f"{path}.nonResourceURLs"
    errors = _verbs(rule.get("verbs") or (), f"{path}.verbs")
    errors += _choice(
        urls, where, "nonResourceURLs must contain at least one value", "non-resource URLs"
    )
    if "*" in urls:
        return errors
    return errors + [
        invalid(f"{where}[{i}]", url, problem)
        for i, url in enumerate(urls)
        if (problem := non_resource_url_problem(url))
    ]


def _resource_rule(rule: Mapping[str, Any], path: str) -> Errors:
    namespaces, where = rule.get("namespaces") or (), f"{path}.namespaces"
    errors = _verbs(rule.get("verbs") or (), f"{path}.verbs")
    errors += _choice(
        rule.get("apiGroups") or (),
        f"{path}.apiGroups",
        "resource rules must supply at least one api group",
        "api groups",
    )
    errors += _choice(
        rule.get("resources") or (),
        f"{path}.resources",
        "resource rules must supply at least one resource",
        "resources",
    )
    if namespaces or not rule.get("clusterScope"):
        errors += _choice(
            namespaces,
            where,
            "resource rules that are not cluster scoped must supply at least one namespace",
            "namespaces",
        )
    if "*" in namespaces:
        return errors
    return errors + [
        invalid(
            f"{where}[{i}]",
            name,
            f"each member of this list must be '*' or a DNS-1123 label; {text}",
        )
        for i, name in enumerate(namespaces)
        for text in is_dns1123_label(name)
    ]


def _subject(subject: Mapping[str, Any], path: str) -> Errors:
    kind = subject.get("kind", "")
    if kind not in _SUBJECTS:
        return [not_supported(f"{path}.kind", kind, ("Group", "ServiceAccount", "User"))]
    field = _SUBJECTS[kind]
    held, where = subject.get(field), f"{path}.{field}"
    errors: Errors = []
    if held is None:
        errors.append(required(where, f"{field} is required when subject kind is '{kind}'"))
    elif not held.get("name"):
        errors.append(required(f"{where}.name"))
    elif kind == "ServiceAccount" and held["name"] != "*":
        errors += dns_subdomain(held["name"], f"{where}.name")
    if held is not None and kind == "ServiceAccount":
        namespace = held.get("namespace")
        errors += (
            dns_label(namespace, f"{where}.namespace")
            if namespace
            else [required(f"{where}.namespace", "must specify namespace for service account")]
        )
    return errors + [
        forbidden(f"{path}.{other}", f"{other} is forbidden when subject kind is not '{name}'")
        for name, other in _SUBJECTS.items()
        if name != kind and subject.get(other) is not None
    ]


def _rule(rule: Mapping[str, Any], path: str) -> Errors:
    subjects, resources = rule.get("subjects") or (), rule.get("resourceRules") or ()
    others = rule.get("nonResourceRules") or ()
    errors = (
        []
        if subjects
        else [required(f"{path}.subjects", "subjects must contain at least one value")]
    )
    for i, subject in enumerate(subjects):
        errors += _subject(subject, f"{path}.subjects[{i}]")
    if not resources and not others:
        errors.append(
            required(path, "at least one of resourceRules and nonResourceRules has to be non-empty")
        )
    for i, resource in enumerate(resources):
        errors += _resource_rule(resource, f"{path}.resourceRules[{i}]")
    for i, other in enumerate(others):
        errors += _non_resource_rule(other, f"{path}.nonResourceRules[{i}]")
    return errors


def _status(obj: Object) -> Errors:
    errors: Errors = []
    seen: set[str] = set()
    for i, condition in enumerate((obj.get("status") or {}).get("conditions") or ()):
        path, kind = f"status.conditions[{i}].type", condition.get("type", "")
        if kind in seen:
            errors.append(duplicate(path, kind))
        seen.add(kind)
        if not kind:
            errors.append(required(path, "must not be empty"))
    return errors


def validate_flow_schema(obj: Object) -> Errors:
    spec, name = obj.get("spec") or {}, obj["metadata"].get("name", "")
    precedence, path = spec.get("matchingPrecedence", 0), "spec.matchingPrecedence"
    errors = validate_object_meta(obj["metadata"], False, name_is_dns_subdomain)
    if precedence <= 0:
        errors.append(invalid(path, precedence, "must be a positive value"))
    if precedence > _MAX_PRECEDENCE:
        errors.append(invalid(path, precedence, f"must not be greater than {_MAX_PRECEDENCE}"))
    if precedence == 1 and name != "exempt":
        errors.append(
            invalid(
                path, precedence, "only the schema named 'exempt' may have matchingPrecedence 1"
            )
        )
    method = spec.get("distinguisherMethod")
    if method is not None and method.get("type") not in _METHODS:
        errors.append(
            not_supported(
                "spec.distinguisherMethod.type",
                go_dump("flowcontrol.FlowDistinguisherMethod", method),
                _METHODS,
            )
        )
    level, path = (
        (spec.get("priorityLevelConfiguration") or {}).get("name", ""),
        "spec.priorityLevelConfiguration.name",
    )
    errors += (
        check_each(path, level, name_is_dns_subdomain(level, False))
        if level
        else [required(path, "must reference a priority level")]
    )
    for i, rule in enumerate(spec.get("rules") or ()):
        errors += _rule(rule, f"spec.rules[{i}]")
    if name in _FIXED_SCHEMAS and spec != _FIXED_SCHEMAS[name]:
        errors.append(
            invalid(
                "spec",
                go_dump("flowcontrol.FlowSchemaSpec", spec),
                f"spec of '{name}' must equal the fixed value",
            )
        )
    return errors + _status(obj)


def _queuing(queuing: Mapping[str, Any], path: str) -> Errors:
    length, queues, hand = (
        queuing.get("queueLengthLimit", 0),
        queuing.get("queues", 0),
        queuing.get("handSize", 0),
    )
    errors = [] if length > 0 else [invalid(f"{path}.queueLengthLimit", length, "must be positive")]
    if queues <= 0:
        errors.append(invalid(f"{path}.queues", queues, "must be positive"))
    elif queues > _MAX_QUEUES:
        errors.append(invalid(f"{path}.queues", queues, f"must not be greater than {_MAX_QUEUES}"))
    if hand <= 0:
        errors.append(invalid(f"{path}.handSize", hand, "must be positive"))
    elif hand > queues:
        errors.append(
            invalid(f"{path}.handSize", hand, f"should not be greater than queues ({queues})")
        )
    elif math.ceil(math.log2(queues) * hand) > _HASH_BITS:
        errors.append(
            invalid(
                f"{path}.handSize",
                hand,
                f"required entropy bits of deckSize {queues} and handSize "
                f"{hand} should not be greater than {_HASH_BITS}",
            )
        )
    return errors


def _limited(limited: Mapping[str, Any], beta: bool, allows_zero: bool) -> Errors:
    path, shares = "spec.limited", limited.get("nominalConcurrencyShares", 0)
    errors: Errors = []
    if shares < 0 or not (shares or allows_zero):
        named = "assuredConcurrencyShares" if beta else "nominalConcurrencyShares"
        text = "must be a non-negative integer" if allows_zero else "must be positive"
        errors.append(invalid(f"{path}.{named}", shares, text))
    response, path = limited.get("limitResponse") or {}, f"{path}.limitResponse"
    kind, queuing = response.get("type", ""), response.get("queuing")
    if kind == "Reject" and queuing is not None:
        errors.append(
            forbidden(f"{path}.queuing", "must be nil if limited.limitResponse.type is not Limited")
        )
    elif kind == "Queue" and queuing is None:
        errors.append(
            required(
                f"{path}.queuing", "must not be empty if limited.limitResponse.type is Limited"
            )
        )
    elif kind == "Queue" and queuing is not None:
        errors += _queuing(queuing, f"{path}.queuing")
    elif kind not in ("Queue", "Reject"):
        errors.append(not_supported(f"{path}.type", kind, ("Queue", "Reject")))
    return errors


def _is_fixed(name: str, spec: Mapping[str, Any]) -> bool:
    fixed, limited = _FIXED_LEVELS[name], spec.get("limited") or {}
    response = limited.get("limitResponse") or {}
    return (
        spec.get("type") == fixed["type"]
        and limited.get("nominalConcurrencyShares") == fixed.get("nominalConcurrencyShares")
        and response.get("type") == fixed.get("response")
        and response.get("queuing") is None
    )


def validate_priority_level(
    beta: bool, obj: Object, *, allows_zero: bool, allows_annotation: bool = True
) -> Errors:
    spec, name = obj.get("spec") or {}, obj["metadata"].get("name", "")
    kind, limited = spec.get("type", ""), spec.get("limited")
    errors = validate_object_meta(obj["metadata"], False, name_is_dns_subdomain)
    annotations = obj["metadata"].get("annotations") or {}
    if PRESERVE_ZERO_SHARES in annotations and not allows_annotation:  # the others are converted
        text = f"annotation '{PRESERVE_ZERO_SHARES}' is forbidden"
        errors.append(forbidden("metadata.annotations", text))
    if (name == "exempt") != (kind == "Exempt"):
        errors.append(
            invalid("spec.type", kind, "type must be 'Exempt' if and only if name is 'exempt'")
        )
    if kind == "Exempt" and limited is not None:
        errors.append(forbidden("spec.limited", "must be nil if the type is not Limited"))
    elif kind == "Limited":
        errors += (
            [required("spec.limited", "must not be empty when type is Limited")]
            if limited is None
            else (_limited(limited, beta, allows_zero))
        )
    elif kind not in ("Exempt", "Limited"):
        errors.append(not_supported("spec.type", kind, ("Exempt", "Limited")))
    if name in _FIXED_LEVELS and not _is_fixed(name, spec):
        errors.append(
            invalid(
                "spec",
                go_dump("flowcontrol.PriorityLevelConfigurationSpec", spec),
                f"spec of '{name}' must equal the fixed value",
            )
        )
    return errors + _status(obj)


def _percents(holder: Mapping[str, Any], path: str) -> Errors:
    errors: Errors = []
    lendable, limit = holder.get("lendablePercent"), holder.get("borrowingLimitPercent")
    if lendable is not None and not 0 <= lendable <= 100:
        text = "must be between 0 and 100, inclusive"
        errors.append(invalid(f"{path}.lendablePercent", lendable, text))
    if limit is not None and limit < 0:
        text = "if specified, must be a non-negative integer"
        errors.append(invalid(f"{path}.borrowingLimitPercent", limit, text))
    return errors


def _exempt(spec: Mapping[str, Any]) -> Errors:
    exempt, path = spec.get("exempt"), "spec.exempt"
    if exempt is None:
        return []
    if spec.get("type") == "Limited":
        return [forbidden(path, "must be nil if the type is Limited")]
    if spec.get("type") != "Exempt":
        return []
    shares = exempt.get("nominalConcurrencyShares")
    errors: Errors = []
    if shares is not None and shares < 0:
        text = "must be a non-negative integer"
        errors.append(invalid(f"{path}.nominalConcurrencyShares", shares, text))
    return errors + _percents(exempt, path)


def _current_error(error: FieldError) -> FieldError:
    """A missing type is required, not an unsupported value."""
    if error.type == "NotSupported" and error.field.endswith(".type") and not error.value:
        return required(error.field)
    return error


def _release_level_rules(beta: bool, features: FeatureSet) -> ValidationRules:
    if not has_behaviour(features.release, "LentSeats"):
        return _level_rules(beta)
    current = has_behaviour(features.release, "OptionalFlowTypes")
    annotates = has_behaviour(features.release, "PreservedZeroShares")
    zero = has_behaviour(features.release, "ZeroShares") or features.enabled(
        "ZeroLimitedNominalConcurrencyShares"
    )

    def check(obj: Object, allows_zero: bool = zero) -> Errors:
        spec = obj.get("spec") or {}
        errors = validate_priority_level(
            beta, obj, allows_zero=allows_zero, allows_annotation=not annotates
        )
        if current:
            errors = [_current_error(error) for error in errors]
        if spec.get("type") == "Limited":
            errors += _percents(spec.get("limited") or {}, "spec.limited")
        return errors + _exempt(spec)

    def check_update(new: Object, old: Object) -> Errors:
        return check(new, zero or (annotates and _has_zero_shares(old)))

    return ValidationRules(check, check_update, _update_status)


def _has_zero_shares(obj: Object) -> bool:
    limited = (obj.get("spec") or {}).get("limited") or {}
    return bool(limited.get("nominalConcurrencyShares") == 0)


def _update_status(new: Object, old: Object) -> Errors:
    return _status(new)


def _level_rules(beta: bool) -> ValidationRules:
    check = partial(validate_priority_level, beta, allows_zero=not beta)
    return ValidationRules(check, lambda new, old: check(new), _update_status)


_GROUP = "flowcontrol.apiserver.k8s.io"
VALIDATORS: Mapping[str, ValidationRules | RulesFactory] = {
    f"{_GROUP}/FlowSchema": ValidationRules(
        validate_flow_schema, lambda new, old: validate_flow_schema(new), _update_status
    ),
    f"{_GROUP}/PriorityLevelConfiguration": partial(_release_level_rules, False),
    f"{_GROUP}/PriorityLevelConfiguration@{_GROUP}/v1beta1": partial(_release_level_rules, True),
    f"{_GROUP}/PriorityLevelConfiguration@{_GROUP}/v1beta2": partial(_release_level_rules, True),
}
