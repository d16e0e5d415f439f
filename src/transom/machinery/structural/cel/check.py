"""Validates the rules of a definition before they are applied to objects; their estimated cost is
limited.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

import orjson

from transom.kit.cel.errors import CompileError
from transom.kit.cel.types import BOOL, STRING, CelType
from transom.kit.goquote import go_quote
from transom.machinery import gojson
from transom.machinery.cel.costs import KubernetesEstimator
from transom.machinery.cel.environment import expression_environment
from transom.machinery.cel.limits import MAX_REQUEST_BYTES, STATIC_COST_LIMIT, STATIC_CRD_COST_LIMIT
from transom.machinery.field import (
    FieldError,
    GoText,
    forbidden,
    invalid,
    not_supported,
    required,
)
from transom.machinery.releases import DEFAULT, Release
from transom.machinery.structural.cel.declarations import EMBEDDED, DeclType, Schema, declare_schema
from transom.machinery.structural.cel.presence import has_rules
from transom.machinery.structural.cel.rules import compile_expression
from transom.machinery.validation.schema_extensions import VALIDATIONS

_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_step = re.compile(r"\.([^.\[\]]+)|\['((?:\\.|[^'\\])*)'\]")
_MAX_COST = (1 << 64) - 1
_ADVICE = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, "
    "maps, and strings are declared)"
)


def check_schema_rules(
    schema: Schema, path: str, suppress_cost: bool, release: Release = DEFAULT
) -> list[FieldError]:
    """The errors in the rules of a schema. Stored rules (`suppress_cost`) may use libraries that new
    ones may not use yet.
    """
    check = _Check(suppress_cost, release)
    check.visit(schema, path, root=True, unrelated="", cardinality=1)
    return check.errors + check.total_errors(path)


def _cost_text(name: str, cost: int, limit: int) -> str:
    factor = cost / limit
    shown = (
        "more than 100x" if factor > 100 else f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x"
    )
    return f"{name} exceeds budget by factor of {shown} {_ADVICE}"


def _max_elements(schema: Schema) -> int | None:
    """The maximum number of values inside a schema's value; None if there is no limit."""
    kind = schema.get("type")
    if kind == "object" and schema.get("additionalProperties") is not None:
        most = schema.get("maxProperties")
    elif kind == "array":
        most = schema.get("maxItems")
    else:
        return 1
    return None if most is None else max(0, most)


class _Check:
    def __init__(self, suppress_cost: bool, release: Release) -> None:
        self.errors: list[FieldError] = []
        self._compile = partial(
            compile_expression,
            environment=expression_environment(release, stored=suppress_cost),
        )
        self._suppress_cost = suppress_cost
        self._total = 0
        self._expensive: list[tuple[int, str]] = []

    def visit(
        self, schema: Schema, path: str, *, root: bool, unrelated: str, cardinality: int | None
    ) -> None:
        """`unrelated` is the path of the enclosing list, if its elements cannot be correlated
        across an update; `cardinality` is the maximum number of values at this place, None if
        unknown.
        """
        if not has_rules(schema):
            return
        inner = _max_elements(schema)
        below = (
            None if cardinality is None or inner is None else min(cardinality * inner, _MAX_COST)
        )
        for key, child in (schema.get("properties") or {}).items():
            self.visit(
                child,
                f"{path}.properties[{key}]",
                root=False,
                unrelated=unrelated,
                cardinality=below,
            )
        extra, items = schema.get("additionalProperties"), schema.get("items")
        if isinstance(extra, Mapping):
            self.visit(
                extra,
                f"{path}.additionalProperties",
                root=False,
                unrelated=unrelated,
                cardinality=below,
            )
        if isinstance(items, Mapping):
            followed = schema.get("x-kubernetes-list-type") == "map"
            self.visit(
                items,
                f"{path}.items",
                root=False,
                unrelated=unrelated or ("" if followed else path),
                cardinality=below,
            )
        specs = schema.get(VALIDATIONS) or ()
        problems = [
            e
            for i, spec in enumerate(specs)
            for e in _words(spec, schema, f"{path}.{VALIDATIONS}[{i}]")
        ]
        self.errors += problems
        if not specs or problems:
            return
        declared = declare_schema(schema, root=root or bool(schema.get(EMBEDDED)))
        if declared is None:
            self.errors.append(
                FieldError(
                    "InternalError",
                    f"{path}.{VALIDATIONS}",
                    None,
                    "internal error: failed to "
                    "construct type information for x-kubernetes-validations rules: unable "
                    "to convert "
                    "structural schema to CEL declarations",
                )
            )
            return
        # Without a limit, as many values as fit into a request.
        count = MAX_REQUEST_BYTES // (declared.min_size + 1) if cardinality is None else cardinality
        for i, spec in enumerate(specs):
            self._rule(spec, declared, f"{path}.{VALIDATIONS}[{i}]", unrelated, count)

    def _rule(
        self, spec: Mapping[str, Any], declared: DeclType, path: str, unrelated: str, count: int
    ) -> None:
        optional = bool(spec.get("optionalOldSelf"))
        problem, uses_old, cost = self._compiled(
            spec["rule"], declared, optional, BOOL, "cel expression must evaluate to a bool"
        )
        cost = min(cost * count, _MAX_COST)
        self._observe(f"{path}.rule", "estimated rule cost", cost)
        if problem:
            self.errors.append(invalid(f"{path}.rule", _shown(spec), problem))
        if spec.get("messageExpression") and not problem:
            wrong, _, cost = self._compiled(
                spec["messageExpression"],
                declared,
                optional,
                STRING,
                "messageExpression must evaluate to a string",
            )
            if wrong:
                text = wrong.replace(
                    "compilation failed", "messageExpression compilation failed", 1
                )
                self.errors.append(invalid(f"{path}.messageExpression", _shown(spec), text))
            else:
                self._observe(f"{path}.messageExpression", "estimated messageExpression cost", cost)
        if uses_old and unrelated:
            self.errors.append(
                invalid(
                    f"{path}.rule",
                    spec["rule"],
                    (
                        "oldSelf cannot be used on the uncorrelatable portion of the schema "
                        f"within {unrelated}"
                    ),
                )
            )
        elif not uses_old and spec.get("optionalOldSelf") is not None:
            self.errors.append(
                invalid(
                    f"{path}.optionalOldSelf",
                    spec["optionalOldSelf"],
                    "may not be set if oldSelf is not used in rule",
                )
            )

    def _compiled(
        self, text: str, declared: DeclType, optional: bool, wanted: CelType, complaint: str
    ) -> tuple[str, bool, int]:
        """A problem or an empty text, whether the expression uses oldSelf, and its estimated cost."""
        try:
            expression = self._compile(text, declared, optional_old=optional)
        except CompileError as problem:
            return f"compilation failed: {problem}", False, 0
        uses_old = "oldSelf" in expression.references
        if expression.type != wanted:
            return complaint, False, 0
        return "", uses_old, expression.estimate(KubernetesEstimator(declared.size_at)).max

    def _observe(self, path: str, name: str, cost: int) -> None:
        if cost > STATIC_COST_LIMIT and not self._suppress_cost:
            self.errors.append(forbidden(path, _cost_text(name, cost, STATIC_COST_LIMIT)))
        self._total = min(self._total + cost, _MAX_COST)
        if cost >= STATIC_CRD_COST_LIMIT // 100:
            self._expensive = sorted([*self._expensive, (cost, path)], key=lambda row: -row[0])[:4]

    def total_errors(self, path: str) -> list[FieldError]:
        if self._total <= STATIC_CRD_COST_LIMIT:
            return []
        text = (
            "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 "
            "schema"
        )
        whole = _cost_text(
            "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema",
            self._total,
            STATIC_CRD_COST_LIMIT,
        )
        return [*(forbidden(where, text) for _, where in self._expensive), forbidden(path, whole)]


def _words(spec: Mapping[str, Any], schema: Schema, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    rule, message = spec.get("rule", "").strip(), spec.get("message", "")
    if not rule:
        errors.append(required(f"{path}.rule", "rule is not specified"))
    elif message and not message.strip():
        errors.append(invalid(f"{path}.message", message, "message must be non-empty if specified"))
    elif "\n" in message.strip():
        errors.append(invalid(f"{path}.message", message, "message must not contain line breaks"))
    elif "\n" in rule and not message.strip():
        errors.append(
            required(f"{path}.message", "message must be specified if rule contains line breaks")
        )
    if spec.get("messageExpression") and not spec["messageExpression"].strip():
        errors.append(
            required(
                f"{path}.messageExpression", "messageExpression must be non-empty if specified"
            )
        )
    if spec.get("reason") is not None and spec["reason"] not in _REASONS:
        errors.append(not_supported(f"{path}.reason", spec["reason"], _REASONS))
    where = spec.get("fieldPath", "")
    if where and not where.strip():
        errors.append(
            invalid(f"{path}.fieldPath", where, "fieldPath must be non-empty if specified")
        )
    if "\n" in where:
        errors.append(invalid(f"{path}.fieldPath", where, "fieldPath must not contain line breaks"))
    if where and not _leads_somewhere(where, schema):
        errors.append(invalid(f"{path}.fieldPath", where, "fieldPath must be a valid path"))
    return errors


def _leads_somewhere(text: str, schema: Schema) -> bool:
    at = 0
    place: Any = schema
    while at < len(text):
        found = _step.match(text, at)
        if found is None or not isinstance(place, Mapping):
            return False
        name = found[1] or found[2]
        properties = place.get("properties")
        if properties:
            if name not in properties:
                return False
            place = properties[name]
        elif isinstance(place.get("additionalProperties"), Mapping):
            place = place["additionalProperties"]
        else:
            return False
        at = found.end()
    return True


def _shown(spec: Mapping[str, Any]) -> GoText:
    reason = (
        f"(*apiextensions.FieldValueErrorReason)({'0xc000000000' if spec.get('reason') else 'nil'})"
    )
    optional = f"(*bool)({'0xc000000000' if spec.get('optionalOldSelf') is not None else 'nil'})"
    shown = {
        "Rule": spec.get("rule", ""),
        "Message": spec.get("message", ""),
        "MessageExpression": spec.get("messageExpression", ""),
        "Reason": spec.get("reason"),
        "FieldPath": spec.get("fieldPath", ""),
        "OptionalOldSelf": spec.get("optionalOldSelf"),
    }
    return GoText(
        f"apiextensions.ValidationRule{{Rule:{go_quote(spec.get('rule', ''))}, "
        f"Message:{go_quote(spec.get('message', ''))}, "
        f"MessageExpression:{go_quote(spec.get('messageExpression', ''))}, Reason:{reason}, "
        f"FieldPath:{go_quote(spec.get('fieldPath', ''))}, OptionalOldSelf:{optional}}}",
        gojson.escape_html(orjson.dumps(shown)).decode(),
    )
