"""Rules of a definition, judged before anything is judged by them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from transom.machinery.field import FieldError, GoText, go_quote, invalid, not_supported, required
from transom.machinery.structural.cel.library import CompileError, Expression
from transom.machinery.structural.cel.rules import VALIDATIONS
from transom.machinery.structural.cel.values import EMBEDDED, CelType, Schema, type_of, with_object_fields

_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_step = re.compile(r"\.([^.\[\]]+)|\['((?:\\.|[^'\\])*)'\]")


def check_rules(schema: Schema, path: str, *, root: bool = True, unrelated: str = "") -> list[FieldError]:
    """What is wrong with the rules of a schema. `unrelated` is the path of the list around, when its elements cannot be
    followed through a change."""
    errors: list[FieldError] = []
    specs = schema.get(VALIDATIONS) or ()
    for i, spec in enumerate(specs):
        errors += _words(spec, schema, f"{path}.{VALIDATIONS}[{i}]")
    if specs and not errors:
        kind = type_of(with_object_fields(schema) if root or schema.get(EMBEDDED) else schema)
        for i, spec in enumerate(specs):
            errors += _compiles(spec, kind, f"{path}.{VALIDATIONS}[{i}]", unrelated)
    for key, inner in (schema.get("properties") or {}).items():
        errors += check_rules(inner, f"{path}.properties[{key}]", root=False, unrelated=unrelated)
    if isinstance(schema.get("additionalProperties"), Mapping):
        errors += check_rules(
            schema["additionalProperties"], f"{path}.additionalProperties", root=False, unrelated=unrelated)
    if isinstance(schema.get("items"), Mapping):
        followed = schema.get("x-kubernetes-list-type") == "map"
        errors += check_rules(
            schema["items"], f"{path}.items", root=False, unrelated=unrelated or ("" if followed else path))
    return errors


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
        errors.append(required(f"{path}.message", "message must be specified if rule contains line breaks"))
    if spec.get("messageExpression") and not spec["messageExpression"].strip():
        errors.append(required(f"{path}.messageExpression", "messageExpression must be non-empty if specified"))
    if spec.get("reason") is not None and spec["reason"] not in _REASONS:
        errors.append(not_supported(f"{path}.reason", spec["reason"], _REASONS))
    where = spec.get("fieldPath", "")
    if where and not where.strip():
        errors.append(invalid(f"{path}.fieldPath", where, "fieldPath must be non-empty if specified"))
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


def _compiles(spec: Mapping[str, Any], kind: CelType, path: str, unrelated: str) -> list[FieldError]:
    errors: list[FieldError] = []
    optional = bool(spec.get("optionalOldSelf"))
    problem, uses_old = _problem(spec["rule"], kind, optional, "BOOL", "cel expression must evaluate to a bool")
    if problem:
        errors.append(invalid(f"{path}.rule", _shown(spec), problem))
    if spec.get("messageExpression"):
        wrong, _ = _problem(spec["messageExpression"], kind, optional, "STRING",
                            "messageExpression must evaluate to a string")
        if wrong:
            text = wrong.replace("compilation failed", "messageExpression compilation failed", 1)
            errors.append(invalid(f"{path}.messageExpression", _shown(spec), text))
    if uses_old and unrelated:
        errors.append(invalid(f"{path}.rule", spec["rule"],
                              f"oldSelf cannot be used on the uncorrelatable portion of the schema within {unrelated}"))
    elif not uses_old and spec.get("optionalOldSelf") is not None:
        errors.append(invalid(f"{path}.optionalOldSelf", spec["optionalOldSelf"],
                              "may not be set if oldSelf is not used in rule"))
    return errors


def _problem(text: str, kind: CelType, optional: bool, wanted: str, complaint: str) -> tuple[str, bool]:
    try:
        expression = Expression(text, kind, optional_old=optional)
    except CompileError as problem:
        return f"compilation failed: {problem}", False
    if expression.result not in (wanted, "DYN"):
        return complaint, expression.uses_old
    return "", expression.uses_old


def _shown(spec: Mapping[str, Any]) -> GoText:
    reason = f"(*apiextensions.FieldValueErrorReason)({'0xc000000000' if spec.get('reason') else 'nil'})"
    optional = f"(*bool)({'0xc000000000' if spec.get('optionalOldSelf') is not None else 'nil'})"
    return GoText(
        f"apiextensions.ValidationRule{{Rule:{go_quote(spec.get('rule', ''))}, Message:{go_quote(spec.get('message', ''))}, "
        f"MessageExpression:{go_quote(spec.get('messageExpression', ''))}, Reason:{reason}, "
        f"FieldPath:{go_quote(spec.get('fieldPath', ''))}, OptionalOldSelf:{optional}}}"
    )
