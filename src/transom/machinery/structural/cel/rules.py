"""Objects against the rules of their schema, each rule at the place where it stands."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from transom.machinery.field import FieldError, duplicate, forbidden, invalid, required
from transom.machinery.objects import same_json
from transom.machinery.structural.cel.library import CompileError, EvalError, Expression
from transom.machinery.structural.cel.values import Schema, type_of, value, with_object_fields

log = logging.getLogger("transom.machinery")
VALIDATIONS = "x-kubernetes-validations"
_MAX_MESSAGE = 5120


class Rule:
    """One rule, compiled; `problem` says why it could not be."""

    __slots__ = ("_expression", "_message", "_spec", "optional_old", "problem", "uses_old")

    def __init__(self, spec: Mapping[str, Any], schema: Schema) -> None:
        self._spec = spec
        self.problem = ""
        self.optional_old = bool(spec.get("optionalOldSelf"))
        kind = type_of(schema)
        self._message: Expression | None = None
        try:
            self._expression = Expression(spec["rule"], kind, optional_old=self.optional_old)
        except CompileError as problem:
            self.problem = f"compilation failed: {problem}"
            self.uses_old = False
            return
        self.uses_old = self._expression.uses_old
        if spec.get("messageExpression"):
            try:
                self._message = Expression(spec["messageExpression"], kind, optional_old=self.optional_old)
            except CompileError as problem:
                log.info("messageExpression of a rule: %s", problem)

    def check(self, schema: Schema, current: Any, old: Any, before: Any, path: str) -> FieldError | None:
        """`current` and `old` are CEL values; `before` tells whether there is an old value at all."""
        if self.uses_old and before is None and not self.optional_old:
            return None  # a rule about a change needs something that changed
        kind = schema.get("type", "")
        where = path or "<nil>"
        if self.problem:
            return invalid(where, kind, f"rule compile error: {self.problem}")
        named = (self._spec.get("message") or self._spec["rule"]).strip()
        try:
            if self._expression.run(current, old) is True:
                return None
        except EvalError as problem:
            if str(problem).startswith("no such overload"):
                text = (f"'{problem}': call arguments did not match a supported operator, function or macro signature for "
                        f"rule: {named}")
            else:
                text = f"{problem} evaluating rule: {named}"
            return invalid(where, kind, text)
        return self._failure(f"{path}{self._spec.get('fieldPath', '')}".removeprefix("." if not path else "") or "<nil>",
                             kind, self._text(current, old, named))

    def _text(self, current: Any, old: Any, named: str) -> str:
        if self._message is not None:
            try:
                text = self._message.run(current, old)
            except EvalError as problem:
                log.info("messageExpression of a rule: %s", problem)
            else:
                text = text.strip() if isinstance(text, str) else ""
                if text and "\n" not in text and len(text) <= _MAX_MESSAGE:
                    return str(text)
        return (self._spec.get("message") or "").strip() or f"failed rule: {named}"

    def _failure(self, where: str, kind: str, text: str) -> FieldError:
        reason = self._spec.get("reason")
        if reason == "FieldValueForbidden":
            return forbidden(where, text)
        if reason == "FieldValueRequired":
            return required(where, text)
        if reason == "FieldValueDuplicate":
            return duplicate(where, kind)
        return invalid(where, kind, text)


class Rules:
    """The rules of a schema and of everything inside it."""

    __slots__ = ("_additional", "_also", "_items", "_keys", "_list_type", "_properties", "_rules", "_schema", "_whole")

    def __init__(self, schema: Schema, *, root: bool) -> None:
        self._schema = with_object_fields(schema) if root else schema
        self._rules = [Rule(spec, self._schema) for spec in schema.get(VALIDATIONS) or () if spec.get("rule")]
        self._also = [r for option in schema.get("allOf") or () if (r := _inner({**schema, **option})) is not None]
        properties = schema.get("properties") or {}
        self._properties = {k: r for k, inner in properties.items() if (r := _inner(inner)) is not None}
        self._additional = _inner(schema.get("additionalProperties"))
        self._items = _inner(schema.get("items"))
        self._whole = schema.get("x-kubernetes-map-type") == "atomic"
        self._list_type = schema.get("x-kubernetes-list-type")
        self._keys: Sequence[str] = schema.get("x-kubernetes-list-map-keys") or ()

    def validate(self, obj: Any, before: Any = None, path: str = "") -> list[FieldError]:
        if obj is None:
            return []
        errors = self._own(obj, before, path)
        for more in self._also:
            errors += more._own(obj, before, path)
        if isinstance(obj, dict):
            errors += self._inside_map(obj, before if isinstance(before, dict) else {}, path)
        elif isinstance(obj, list) and self._items is not None:
            earlier = self._correlate(before)
            for i, item in enumerate(obj):
                errors += self._items.validate(item, earlier.get(self._key(item)), f"{path}[{i}]")
        return errors

    def _own(self, obj: Any, before: Any, path: str) -> list[FieldError]:
        if not self._rules:
            return []
        current = value(obj, self._schema)
        old = None if before is None else value(before, self._schema)
        errors = []
        for rule in self._rules:
            problem = rule.check(self._schema, current, old, before, path)
            # What was there before and did not change may stay, unless the rule is about the change.
            if problem is not None and (rule.uses_old or before is None or not same_json(obj, before)):
                errors.append(problem)
        return errors

    def _inside_map(self, obj: dict[str, Any], before: dict[str, Any], path: str) -> list[FieldError]:
        errors = []
        for key, item in obj.items():
            old = None if self._whole else before.get(key)
            inner = self._properties.get(key)
            if inner is not None:
                errors += inner.validate(item, old, f"{path}.{key}" if path else key)
            elif self._additional is not None and key not in (self._schema.get("properties") or ()):
                errors += self._additional.validate(item, old, f"{path}[{key}]")
        return errors

    def _key(self, item: Any) -> bytes | None:
        """What makes an element of a list the same element after a change; lists without keys have no such thing."""
        if self._list_type != "map" or not isinstance(item, dict):
            return None
        return orjson.dumps({k: item.get(k) for k in self._keys}, option=orjson.OPT_SORT_KEYS)

    def _correlate(self, before: Any) -> dict[bytes | None, Any]:
        if self._list_type != "map" or not isinstance(before, list):
            return {}
        return {key: item for item in before if (key := self._key(item)) is not None}


def _has_rules(schema: Any) -> bool:
    if not isinstance(schema, Mapping):
        return False
    if schema.get(VALIDATIONS):
        return True
    inner = [*(schema.get("properties") or {}).values(), *(schema.get("allOf") or ()), schema.get("items"),
             schema.get("additionalProperties")]
    return any(map(_has_rules, inner))


def _inner(schema: Any) -> Rules | None:
    return Rules(schema, root=bool(schema.get("x-kubernetes-embedded-resource"))) if _has_rules(schema) else None


def compile_rules(schema: Schema | None) -> Rules | None:
    """The rules of a custom kind, None when there are none."""
    return Rules(schema, root=True) if schema is not None and _has_rules(schema) else None
