"""Scheduling fields of a pod: affinity, tolerations, topology spread, scheduling gates."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from transom.kit.caching import text_cache
from transom.kit.goquote import go_quote
from transom.machinery.field import duplicate, forbidden, invalid, not_supported, required
from transom.machinery.validation.common import all_invalid
from transom.machinery.validation.godump import go_dump
from transom.machinery.validation.meta import validate_label_selector
from transom.machinery.validation.names import (
    is_label_value,
    is_qualified_name,
    name_is_dns_label,
    name_is_dns_subdomain,
)
from transom.machinery.validation.podoptions import BASE_OPTIONS, PodOptions
from transom.machinery.validation.rules import Errors

TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_TOLERATION_OPERATORS = ("Equal", "Exists")
_SPREAD_ACTIONS = ("DoNotSchedule", "ScheduleAnyway")
_NODE_POLICIES = ("Honor", "Ignore")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_WEIGHT = "must be in the range 1-100"


def check_affinity(
    affinity: dict[str, Any], path: str, errs: Errors, options: PodOptions = BASE_OPTIONS
) -> None:
    if (node := affinity.get("nodeAffinity")) is not None:
        _check_node_affinity(node, f"{path}.nodeAffinity", errs, options)
    for kind in ("podAffinity", "podAntiAffinity"):
        if (pod := affinity.get(kind)) is not None:
            _check_pod_affinity(pod, f"{path}.{kind}", errs, options)


def _check_node_affinity(
    affinity: dict[str, Any], path: str, errs: Errors, options: PodOptions
) -> None:
    if (selector := affinity.get(_REQUIRED)) is not None:
        check_node_selector(
            selector, f"{path}.{_REQUIRED}", errs, values=options.checks_node_values
        )
    for i, term in enumerate(affinity.get(_PREFERRED) or ()):
        where = f"{path}.{_PREFERRED}[{i}]"
        _check_weight(term.get("weight", 0), where, errs)
        check_node_selector_term(term.get("preference") or {}, f"{where}.preference", errs)


def _check_weight(weight: int, path: str, errs: Errors) -> None:
    if not 0 < weight <= 100:
        errs.append(invalid(f"{path}.weight", weight, _WEIGHT))


def check_node_selector(
    selector: dict[str, Any], path: str, errs: Errors, *, values: bool = False
) -> None:
    """`values`: the values of expressions must be valid values of labels."""
    terms = selector.get("nodeSelectorTerms")
    if not terms:
        errs.append(
            required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")
        )
        return
    for i, term in enumerate(terms):
        check_node_selector_term(term, f"{path}.nodeSelectorTerms[{i}]", errs, values=values)


def check_node_selector_term(
    term: dict[str, Any], path: str, errs: Errors, *, values: bool = False
) -> None:
    for i, requirement in enumerate(term.get("matchExpressions") or ()):
        where = f"{path}.matchExpressions[{i}]"
        _check_expression(requirement, where, errs)
        for j, value in enumerate(requirement.get("values") or () if values else ()):
            all_invalid(is_label_value(value), value, f"{where}.values[{j}]", errs)
    for i, requirement in enumerate(term.get("matchFields") or ()):
        _check_field_requirement(requirement, f"{path}.matchFields[{i}]", errs)


def _check_expression(requirement: dict[str, Any], path: str, errs: Errors) -> None:
    operator, values = requirement.get("operator", ""), requirement.get("values") or ()
    if operator in ("In", "NotIn"):
        if not values:
            errs.append(
                required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
            )
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            errs.append(forbidden(f"{path}.values", text))
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            text = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            errs.append(required(f"{path}.values", text))
    else:
        errs.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))
    check_label_name(requirement.get("key", ""), f"{path}.key", errs)


def _check_field_requirement(requirement: dict[str, Any], path: str, errs: Errors) -> None:
    operator, values = requirement.get("operator", ""), requirement.get("values") or ()
    if operator not in ("In", "NotIn"):
        errs.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))
    elif len(values) != 1:
        text = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        errs.append(required(f"{path}.values", text))
    key = requirement.get("key", "")
    if key != "metadata.name":
        errs.append(invalid(f"{path}.key", key, "not a valid field selector key"))
        return
    for i, value in enumerate(values):
        all_invalid(name_is_dns_subdomain(value, False), value, f"{path}.values[{i}]", errs)


# Taint and topology keys repeat from pod to pod.
_qualified = text_cache(2048)(is_qualified_name)


def check_label_name(name: str, path: str, errs: Errors) -> None:
    all_invalid(_qualified(name), name, path, errs)


def _check_pod_affinity(
    affinity: dict[str, Any], path: str, errs: Errors, options: PodOptions
) -> None:
    for i, term in enumerate(affinity.get(_REQUIRED) or ()):
        _check_pod_affinity_term(term, f"{path}.{_REQUIRED}[{i}]", errs, options)
    for i, weighted in enumerate(affinity.get(_PREFERRED) or ()):
        where = f"{path}.{_PREFERRED}[{i}]"
        _check_weight(weighted.get("weight", 0), where, errs)
        _check_pod_affinity_term(
            weighted.get("podAffinityTerm") or {}, f"{where}.podAffinityTerm", errs, options
        )


def _check_pod_affinity_term(
    term: dict[str, Any], path: str, errs: Errors, options: PodOptions
) -> None:
    # Older releases name the selector `matchExpressions` here.
    selector_field = "labelSelector" if options.newer else "matchExpressions"
    errs += validate_label_selector(term.get("labelSelector"), f"{path}.{selector_field}")
    if (selector := term.get("namespaceSelector")) is not None:
        errs += validate_label_selector(selector, f"{path}.namespaceSelector")
    for namespace in term.get("namespaces") or ():
        all_invalid(name_is_dns_label(namespace, False), namespace, f"{path}.namespace", errs)
    _check_label_keys(term, path, errs, options)
    key = term.get("topologyKey", "")
    if not key:
        errs.append(required(f"{path}.topologyKey", "can not be empty"))
    check_label_name(key, f"{path}.topologyKey", errs)


def _check_label_keys(term: dict[str, Any], path: str, errs: Errors, options: PodOptions) -> None:
    """`matchLabelKeys` and `mismatchLabelKeys` of a pod affinity term."""
    matching, mismatching = term.get("matchLabelKeys") or (), term.get("mismatchLabelKeys") or ()
    for name, keys in (("matchLabelKeys", matching), ("mismatchLabelKeys", mismatching)):
        if keys and term.get("labelSelector") is None:
            errs.append(
                forbidden(f"{path}.{name}", "must not be specified when labelSelector is not set")
            )
            continue
        for i, key in enumerate(keys):
            check_label_name(key, f"{path}.{name}[{i}]", errs)
    if options.merges_label_keys:
        _check_merged_keys(term, matching, path, errs)
    for i, key in enumerate(matching):
        if key in mismatching:
            errs.append(
                invalid(
                    f"{path}.matchLabelKeys[{i}]",
                    key,
                    "exists in both matchLabelKeys and mismatchLabelKeys",
                )
            )


def _check_merged_keys(
    holder: dict[str, Any], keys: Sequence[str], path: str, errs: Errors
) -> None:
    """A key must be selected once: the server has added an expression for each key."""
    selector = holder.get("labelSelector")
    if selector is None:
        return
    indexes = {key: i for i, key in enumerate(keys)}
    selected = set(selector.get("matchLabels") or ())
    for expression in selector.get("matchExpressions") or ():
        key = expression.get("key", "")
        if key in indexes and key in selected:
            text = "exists in both matchLabelKeys and labelSelector"
            errs.append(invalid(f"{path}[{indexes[key]}]", key, text))
        selected.add(key)


def check_tolerations(
    tolerations: Iterable[dict[str, Any]],
    path: str,
    errs: Errors,
    options: PodOptions = BASE_OPTIONS,
) -> None:
    for i, toleration in enumerate(tolerations):
        where = f"{path}[{i}]"
        key, operator, effect = (toleration.get(name, "") for name in ("key", "operator", "effect"))
        value = toleration.get("value", "")
        if key:
            check_label_name(key, f"{where}.key", errs)
        elif operator != "Exists":
            text = (
                'operator must be Exists when `key` is empty, which means "match all values and '
                'all keys"'
            )
            errs.append(invalid(f"{where}.operator", operator, text))
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            errs.append(invalid(f"{where}.effect", effect, text))
        if operator in ("Equal", ""):
            messages = is_label_value(value)
            if messages:
                errs.append(invalid(f"{where}.operator", value, ";".join(messages)))
        elif operator in _COMPARING_OPERATORS and options.compares_tolerations:
            _check_comparison(operator, value, where, errs, options)
        elif operator != "Exists":
            errs.append(not_supported(f"{where}.operator", operator, _TOLERATION_OPERATORS))
        elif value:
            errs.append(
                invalid(
                    f"{where}.operator",
                    value
                    if options.shows_toleration_value
                    else go_dump("core.Toleration", toleration),
                    "value must be empty when `operator` is 'Exists'",
                )
            )
        if effect and effect not in TAINT_EFFECTS:
            errs.append(not_supported(f"{where}.effect", effect, TAINT_EFFECTS))


_COMPARING_OPERATORS = ("Lt", "Gt")
_NOT_DECIMAL = "must be a valid decimal integer in canonical form"
_match_integer = re.compile("[-+]?[0-9]{1,40}").fullmatch
_match_decimal = re.compile("0|-?[1-9][0-9]*").fullmatch


def _check_comparison(
    operator: str, value: str, path: str, errs: Errors, options: PodOptions
) -> None:
    if not options.comparing_tolerations:
        known = (*_TOLERATION_OPERATORS, *_COMPARING_OPERATORS)
        errs.append(not_supported(f"{path}.operator", operator, known))
        return
    if not value:
        errs.append(invalid(f"{path}.value", value, "must be non-empty"))
    elif not _match_decimal(value):
        errs.append(invalid(f"{path}.value", value, _NOT_DECIMAL))
    if not _match_integer(value):
        problem = "invalid syntax"
    elif not -(1 << 63) <= int(value) < 1 << 63:
        problem = "value out of range"
    else:
        return
    text = f"strconv.ParseInt: parsing {go_quote(value)}: {problem}"
    errs.append(invalid(f"{path}.value", value, text))


def check_only_added_tolerations(
    new: list[dict[str, Any]],
    old: list[dict[str, Any]],
    path: str,
    errs: Errors,
    options: PodOptions = BASE_OPTIONS,
) -> None:
    """An update may add tolerations and change their seconds, nothing else."""
    if new != old:  # most updates keep them
        kept = {_without_seconds(toleration) for toleration in new}
        if any(_without_seconds(toleration) not in kept for toleration in old):
            text = "existing toleration can not be modified except its tolerationSeconds"
            errs.append(forbidden(path, text))
            return
    check_tolerations(new, path, errs, options)


def _without_seconds(toleration: dict[str, Any]) -> frozenset[tuple[str, str]]:
    return frozenset(
        (name, value) for name, value in toleration.items() if name != "tolerationSeconds"
    )


def check_topology_spread(
    constraints: list[dict[str, Any]],
    path: str,
    errs: Errors,
    options: PodOptions = BASE_OPTIONS,
) -> None:
    pairs = [(c.get("topologyKey", ""), c.get("whenUnsatisfiable", "")) for c in constraints]
    last = {pair: i for i, pair in enumerate(pairs)}
    for i, constraint in enumerate(constraints):
        where = f"{path}[{i}]"
        skew, key = constraint.get("maxSkew", 0), constraint.get("topologyKey", "")
        action = constraint.get("whenUnsatisfiable", "")
        if skew <= 0:
            errs.append(invalid(f"{where}.maxSkew", skew, "must be greater than zero"))
        if not key:
            errs.append(required(f"{where}.topologyKey", "can not be empty"))
        if action not in _SPREAD_ACTIONS:
            errs.append(not_supported(f"{where}.whenUnsatisfiable", action, _SPREAD_ACTIONS))
        if last[pairs[i]] > i:
            errs.append(
                duplicate(f"{where}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}")
            )
        _check_spread_extras(constraint, action, where, errs, options)
        if options.checks_spread_selector and constraint.get("labelSelector") is not None:
            errs += validate_label_selector(constraint["labelSelector"], f"{where}.labelSelector")


def _check_spread_extras(
    constraint: dict[str, Any], action: str, path: str, errs: Errors, options: PodOptions
) -> None:
    """The fields that came after 1.20."""
    domains = constraint.get("minDomains")
    if domains is not None:
        if domains <= 0:
            errs.append(invalid(f"{path}.minDomains", domains, "must be greater than zero"))
        if action != "DoNotSchedule":
            text = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
            errs.append(invalid(f"{path}.minDomains", domains, text))
    for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        policy = constraint.get(name)
        if policy is not None and policy not in _NODE_POLICIES:
            errs.append(not_supported(f"{path}.{name}", policy, _NODE_POLICIES))
    keys = constraint.get("matchLabelKeys")
    if not keys:
        return
    selector = constraint.get("labelSelector")
    if selector is None:
        errs.append(
            forbidden(
                f"{path}.matchLabelKeys", "must not be specified when labelSelector is not set"
            )
        )
    if options.merges_spread_keys:
        if selector is not None:
            for i, key in enumerate(keys):
                check_label_name(key, f"{path}.matchLabelKeys[{i}]", errs)
        _check_merged_keys(constraint, keys, path, errs)
        return
    selected = {
        *((selector or {}).get("matchLabels") or ()),
        *(e.get("key", "") for e in (selector or {}).get("matchExpressions") or ()),
    }
    for i, key in enumerate(keys):
        check_label_name(key, f"{path}.matchLabelKeys[{i}]", errs)
        if key in selected:
            errs.append(
                invalid(
                    f"{path}.matchLabelKeys[{i}]",
                    key,
                    "exists in both matchLabelKeys and labelSelector",
                )
            )


def check_scheduling_gates(gates: list[dict[str, Any]], path: str, errs: Errors) -> None:
    seen: set[str] = set()
    for i, gate in enumerate(gates):
        name = gate.get("name", "")
        check_label_name(name, f"{path}[{i}]", errs)
        if name in seen:
            errs.append(duplicate(f"{path}[{i}]", name))
        seen.add(name)


def check_only_deleted_gates(
    new: list[dict[str, Any]], old: list[dict[str, Any]], path: str, errs: Errors
) -> None:
    known = {gate.get("name", "") for gate in old}
    for i, gate in enumerate(new):
        name = gate.get("name", "")
        if name not in known:
            text = f"only deletion is allowed, but found new scheduling gate '{name}'"
            errs.append(forbidden(f"{path}[{i}].name", text))
