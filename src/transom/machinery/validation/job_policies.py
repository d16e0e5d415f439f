"""The fields of a Job that came after 1.20: indexed completion, failure and success policies,
replacement.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import orjson

from transom.kit.goquote import go_quote
from transom.machinery.field import (
    FieldError,
    GoText,
    duplicate,
    go_value,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from transom.machinery.integers import parse_int
from transom.machinery.validation.common import (
    all_invalid,
    check_nonnegative,
    check_nonnegative_fields,
)
from transom.machinery.validation.godump import go_dump
from transom.machinery.validation.names import byte_len, domain_prefixed_path, is_qualified_name
from transom.machinery.validation.repetitions import repetitions
from transom.machinery.validation.rules import Errors

FIELDS = frozenset(
    (
        "backoffLimitPerIndex",
        "maxFailedIndexes",
        "managedBy",
        "completionMode",
        "podFailurePolicy",
        "successPolicy",
        "podReplacementPolicy",
    )
)
_MODES = ("NonIndexed", "Indexed")
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS = ("In", "NotIn")
_STATUSES = ("False", "True", "Unknown")
_REPLACEMENTS = ("Failed", "TerminatingOrFailed")
_INDEXED_LIMIT = 100_000
_HIGH_LIMIT = 10_000
_MAX_RULES = 20
_MAX_CODES = 255
_MAX_MANAGED_BY = 63
_MAX_INDEXES_TEXT = 64 * 1024
_is_number = re.compile(r"[+-]?[0-9]+").fullmatch


def check_job_policies(spec: dict[str, Any], path: str, errs: Errors) -> None:
    if FIELDS.isdisjoint(spec):
        return
    check_nonnegative_fields(spec, ("backoffLimitPerIndex", "maxFailedIndexes"), path, errs)
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        errs.append(required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    manager = spec.get("managedBy")
    if manager is not None:
        for field, text in domain_prefixed_path(manager):
            errs.append(invalid(f"{path}.managedBy", field, text))
        if byte_len(manager) > _MAX_MANAGED_BY:
            errs.append(too_long(f"{path}.managedBy", "", _MAX_MANAGED_BY))
    mode = spec.get("completionMode", "NonIndexed")
    if mode not in _MODES:
        errs.append(not_supported(f"{path}.completionMode", mode, _MODES))
    if mode == "Indexed":
        _check_indexed(spec, path, errs)
    elif mode == "NonIndexed":
        for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if name in spec:
                errs.append(
                    invalid(f"{path}.{name}", spec[name], "requires indexed completion mode")
                )
    if (policy := spec.get("podFailurePolicy")) is not None:
        _check_failure_policy(policy, spec, f"{path}.podFailurePolicy.rules", errs)
    if (policy := spec.get("successPolicy")) is not None:
        if mode != "Indexed":
            errs.append(
                invalid(
                    f"{path}.successPolicy",
                    _shown_policy(policy),
                    "requires indexed completion mode",
                )
            )
        else:
            _check_success_policy(
                policy, spec.get("completions", 0), f"{path}.successPolicy.rules", errs
            )
    replacement = spec.get("podReplacementPolicy")
    supported = _REPLACEMENTS[:1] if "podFailurePolicy" in spec else _REPLACEMENTS
    if replacement is not None and replacement not in supported:
        errs.append(not_supported(f"{path}.podReplacementPolicy", replacement, supported))


def _check_indexed(spec: dict[str, Any], path: str, errs: Errors) -> None:
    completions, parallelism = spec.get("completions"), spec.get("parallelism", 0)
    failed, per_index = spec.get("maxFailedIndexes"), "backoffLimitPerIndex" in spec
    if completions is None:
        errs.append(required(f"{path}.completions", "when completion mode is Indexed"))
    if parallelism > _INDEXED_LIMIT:
        text = f"must be less than or equal to {_INDEXED_LIMIT} when completion mode is Indexed"
        errs.append(invalid(f"{path}.parallelism", parallelism, text))
    if failed is not None:
        if completions is not None and failed > completions:
            errs.append(
                invalid(
                    f"{path}.maxFailedIndexes", failed, "must be less than or equal to completions"
                )
            )
        if failed > _INDEXED_LIMIT:
            errs.append(
                invalid(
                    f"{path}.maxFailedIndexes",
                    failed,
                    f"must be less than or equal to {_INDEXED_LIMIT}",
                )
            )
    if completions is None or completions <= _INDEXED_LIMIT or not per_index:
        return
    text = (
        f"must be less than or equal to {_HIGH_LIMIT} when completions are above "
        f"{_INDEXED_LIMIT} and used with "
        "backoff limit per index"
    )
    if failed is None:
        errs.append(
            required(
                f"{path}.maxFailedIndexes",
                f"must be specified when completions is above {_INDEXED_LIMIT}",
            )
        )
    if parallelism > _HIGH_LIMIT:
        errs.append(invalid(f"{path}.parallelism", parallelism, text))
    if failed is not None and failed > _HIGH_LIMIT:
        errs.append(invalid(f"{path}.maxFailedIndexes", failed, text))


def _bare(path: str, text: str) -> FieldError:
    """An error without its value in the message."""
    return FieldError("Invalid", path, GoText(text), "")


def _valid_values(values: Sequence[str]) -> str:
    return "valid values: [" + " ".join(go_quote(value) for value in values) + "]"


def _check_choice(value: str, supported: Sequence[str], path: str, errs: Errors) -> None:
    if not value:
        errs.append(required(path, _valid_values(supported)))
    elif value not in supported:
        errs.append(not_supported(path, value, supported))


def _check_failure_policy(
    policy: dict[str, Any], spec: dict[str, Any], path: str, errs: Errors
) -> None:
    rules = policy.get("rules") or ()
    if len(rules) > _MAX_RULES:
        errs.append(too_many(path, len(rules), _MAX_RULES))
    pod = (spec.get("template") or {}).get("spec") or {}
    names = {
        c.get("name") for kind in ("containers", "initContainers") for c in pod.get(kind) or ()
    }
    for i, rule in enumerate(rules):
        where = f"{path}[{i}]"
        action = rule.get("action", "")
        if action == "FailIndex" and "backoffLimitPerIndex" not in spec:
            errs.append(
                invalid(f"{where}.action", action, "requires the backoffLimitPerIndex to be set")
            )
        _check_choice(action, _ACTIONS, f"{where}.action", errs)
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions")
        if codes is not None:
            _check_exit_codes(codes, names, f"{where}.onExitCodes", errs)
        if conditions:
            _check_pod_conditions(conditions, f"{where}.onPodConditions", errs)
        if codes is not None and conditions:
            errs.append(
                _bare(where, "specifying both OnExitCodes and OnPodConditions is not supported")
            )
        if codes is None and not conditions:
            errs.append(
                _bare(where, "specifying one of OnExitCodes and OnPodConditions is required")
            )


def _check_pod_conditions(patterns: list[dict[str, Any]], path: str, errs: Errors) -> None:
    if len(patterns) > _MAX_RULES:
        errs.append(too_many(path, len(patterns), _MAX_RULES))
    for i, pattern in enumerate(patterns):
        kind = pattern.get("type", "")
        all_invalid(is_qualified_name(kind), kind, f"{path}[{i}].type", errs)
        _check_choice(pattern.get("status", ""), _STATUSES, f"{path}[{i}].status", errs)


def _check_exit_codes(codes: dict[str, Any], names: set[Any], path: str, errs: Errors) -> None:
    operator, values = codes.get("operator", ""), codes.get("values") or []
    _check_choice(operator, _OPERATORS, f"{path}.operator", errs)
    container = codes.get("containerName")
    if container is not None and container not in names:
        text = "must be one of the container or initContainer names in the pod template"
        errs.append(invalid(f"{path}.containerName", container, text))
    if not values:
        errs.append(
            invalid(
                f"{path}.values",
                GoText(go_dump("[]int32", values), "[]"),
                "at least one value is required",
            )
        )
    elif len(values) > _MAX_CODES:
        errs.append(too_many(f"{path}.values", len(values), _MAX_CODES))
    repeated = repetitions(values)
    for i, value in enumerate(values):
        if operator == "In" and value == 0:
            errs.append(invalid(f"{path}.values[{i}]", value, "must not be 0 for the In operator"))
        if i in repeated:
            errs.append(duplicate(f"{path}.values[{i}]", value))
    if values != sorted(values):
        errs.append(invalid(f"{path}.values", go_dump("[]int32", values), "must be ordered"))


def _shown_policy(policy: dict[str, Any]) -> GoText:
    """As printed: with Go's names, and all fields of each rule."""
    rules = policy.get("rules")
    shown = None
    if rules is not None:
        shown = [
            {
                "SucceededIndexes": rule.get("succeededIndexes"),
                "SucceededCount": rule.get("succeededCount"),
            }
            for rule in rules
        ]
    return GoText(go_value(policy), orjson.dumps({"Rules": shown}).decode())


def _check_success_policy(
    policy: dict[str, Any], completions: int, path: str, errs: Errors
) -> None:
    rules = policy.get("rules") or ()
    if not rules:
        errs.append(
            required(
                path, "at least one rules must be specified when the successPolicy is specified"
            )
        )
    if len(rules) > _MAX_RULES:
        errs.append(too_many(path, len(rules), _MAX_RULES))
    for i, rule in enumerate(rules):
        _check_success_rule(rule, completions, f"{path}[{i}]", errs)


def _check_success_rule(rule: dict[str, Any], completions: int, path: str, errs: Errors) -> None:
    count, indexes = rule.get("succeededCount"), rule.get("succeededIndexes")
    if count is None and indexes is None:
        errs.append(
            required(path, "at least one of succeededCount or succeededIndexes must be specified")
        )
    total = 0
    if indexes is not None:
        where = f"{path}.succeededIndexes"
        if byte_len(indexes) > _MAX_INDEXES_TEXT:
            errs.append(too_long(where, "", _MAX_INDEXES_TEXT))
        total, problem = count_indexes(indexes, completions)
        if problem:
            errs.append(invalid(where, indexes, f"error parsing succeededIndexes: {problem}"))
    if count is None:
        return
    where = f"{path}.succeededCount"
    check_nonnegative(count, where, errs)
    if count > completions:
        text = f"must be less than or equal to {completions} (the number of specified completions)"
        errs.append(invalid(where, count, text))
    if indexes is not None and count > total:
        errs.append(
            invalid(
                where,
                count,
                f"must be less than or equal to {total} (the number of indexes in the "
                "specified succeededIndexes field)",
            )
        )


def count_indexes(text: str, completions: int) -> tuple[int, str]:
    """The number of indexes in `0,3-5`, and an error."""
    total, last = 0, -1
    for interval in text.split(",") if text else ():
        low, high, problem = _index_interval(interval, completions)
        if problem:
            return 0, problem
        if last >= low:
            return 0, f"non-increasing order, previous: {last}, current: {low}"
        total, last = total + high - low + 1, high
    return total, ""


def index_intervals(text: str, completions: int) -> list[tuple[int, int]]:
    """First and last index of each interval in `0,3-5`, without those that cannot be read."""
    found = [_index_interval(one, completions) for one in text.split(",") if text]
    return [(low, high) for low, high, problem in found if not problem]


def _index_interval(text: str, completions: int) -> tuple[int, int, str]:
    ends = text.split("-")
    if len(ends) > 2:
        return (
            0,
            0,
            (
                f"the fragment {go_quote(text)} violates the requirement that an index interval can "
                "have at most two parts separated by '-'"
            ),
        )
    for end in ends:
        if not _is_number(end):
            return 0, 0, f"cannot convert string to integer for index: {go_quote(end)}"
        if parse_int(end) >= completions:
            return 0, 0, f"too large index: {go_quote(end)}"
    low, high = parse_int(ends[0]), parse_int(ends[-1])
    if len(ends) == 2 and low >= high:
        return 0, 0, f"non-increasing order, previous: {low}, current: {high}"
    return low, high, ""
