"""Validates objects with the rules of their schema, each rule where it is declared, within a cost
budget per object (k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/validation.go).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

import orjson

from transom.kit.cel.environment import CelEnvironment, CelExpression
from transom.kit.cel.errors import CompileError, CostLimitExceededError
from transom.kit.cel.interpreter import EvaluationResult
from transom.kit.cel.types import optional_type
from transom.kit.cel.values import NONE, Optional
from transom.machinery.cel.environment import expression_environment
from transom.machinery.cel.limits import MAX_MESSAGE_BYTES, PER_CALL_LIMIT, RUNTIME_COST_BUDGET
from transom.machinery.field import (
    FieldError,
    GoText,
    RatchetedError,
    RuleValue,
    duplicate,
    forbidden,
    go_value,
    invalid,
    required,
)
from transom.machinery.objects import same_json
from transom.machinery.releases import DEFAULT, Release, has_tables
from transom.machinery.releases.features import is_enabled
from transom.machinery.structural.cel.declarations import (
    DeclType,
    Schema,
    declare_schema,
    with_object_fields,
)
from transom.machinery.structural.cel.presence import SlowRules, has_rules
from transom.machinery.structural.cel.values import converter
from transom.machinery.validation.schema_extensions import VALIDATIONS

log = logging.getLogger("transom.machinery")
_NO_BUDGET = (
    "validation failed due to running out of cost budget, no further validation rules will be run"
)
_NO_MESSAGE_BUDGET = (
    "messageExpression evaluation failed due to running out of cost budget, no further "
    "validation rules will be run"
)
_ABSENT: Any = object()
# A rule is compiled when its definition is validated, and used when the first object is.
_compiled: dict[tuple[str, str, bool, CelEnvironment], CelExpression] = {}
_KEPT, _KEPT_LENGTH = 256, 10_000
_BRIEF_COST = 20_000  # about 10 ms


def compile_expression(
    text: str, declared: DeclType, *, optional_old: bool, environment: CelEnvironment
) -> CelExpression:
    """An expression about `self` and `oldSelf`; raises CompileError."""
    key = (text, declared.signature(), optional_old, environment)
    known = _compiled.get(key)
    if known is not None:
        return known
    old = optional_type(declared.type) if optional_old else declared.type
    variables = {"self": declared.type, "oldSelf": old}
    expression = environment.compile(text, variables, declared.object_fields())
    if len(text) + len(key[1]) <= _KEPT_LENGTH:
        while len(_compiled) >= _KEPT:
            _compiled.pop(next(iter(_compiled)), None)
        _compiled[key] = expression
    return expression


class _Budget:
    """The remaining cost budget of one object; negative if no more rules may run. `brief` is the
    budget on the event loop, None without such a limit.
    """

    __slots__ = ("brief", "remaining")

    def __init__(self, brief: int | None = None) -> None:
        self.remaining = RUNTIME_COST_BUDGET
        self.brief = brief

    def evaluate(self, expression: CelExpression, variables: dict[str, Any]) -> EvaluationResult:
        if self.brief is None:
            return expression.program.evaluate(variables, PER_CALL_LIMIT)
        if expression.program.compiles_patterns:
            raise _NotBriefError
        outcome = expression.program.evaluate(variables, self.brief)
        self.brief -= outcome.cost
        if self.brief < 0:
            raise _NotBriefError
        return outcome


class _NotBriefError(Exception):
    """The rules cost more than the budget on the event loop."""


class CompiledRule:
    """One rule, compiled; `problem` is the reason if that failed."""

    __slots__ = ("_expression", "_message", "_spec", "optional_old", "problem", "uses_old")

    def __init__(
        self, spec: Mapping[str, Any], declared: DeclType | None, environment: CelEnvironment
    ) -> None:
        self._spec = spec
        self.problem = ""
        self.uses_old = False
        self.optional_old = bool(spec.get("optionalOldSelf"))
        self._expression: CelExpression | None = None
        self._message: CelExpression | None = None
        if declared is None:
            self.problem = "failed to convert to declType for CEL validation rules"
            return
        try:
            self._expression = compile_expression(
                spec["rule"],
                declared,
                optional_old=self.optional_old,
                environment=environment,
            )
        except CompileError as problem:
            self.problem = f"compilation failed: {problem}"
            return
        self.uses_old = "oldSelf" in self._expression.references
        if spec.get("messageExpression"):
            try:
                self._message = compile_expression(
                    spec["messageExpression"],
                    declared,
                    optional_old=self.optional_old,
                    environment=environment,
                )
            except CompileError as problem:
                log.info("messageExpression of a rule: %s", problem)

    def check(
        self, kind: str, obj: Any, current: Any, old: Any, path: str, budget: _Budget
    ) -> FieldError | None:
        """`current` is `obj` as a CEL value, as `old`, which is _ABSENT if there is none."""
        if self.uses_old and old is _ABSENT and not self.optional_old:
            return None  # a transition rule needs an old value
        where = path or "<nil>"
        if self._expression is None:
            return invalid(where, kind, f"rule compile error: {self.problem}")
        variables = {"self": current}
        if self.optional_old:
            variables["oldSelf"] = NONE if old is _ABSENT else Optional(True, old)
        elif old is not _ABSENT:
            variables["oldSelf"] = old
        outcome = budget.evaluate(self._expression, variables)
        if outcome.cost > budget.remaining:
            budget.remaining = -1
            return invalid(where, kind, _NO_BUDGET)
        budget.remaining -= outcome.cost
        named = (self._spec.get("message") or self._spec["rule"]).strip()
        if outcome.error is not None:
            if isinstance(outcome.error, CostLimitExceededError):
                budget.remaining = -1
                text = (
                    f"'{outcome.error}': no further validation rules will be run due to call "
                    "cost exceeds limit for "
                    f"rule: {named}"
                )
            elif str(outcome.error).startswith("no such overload"):
                text = (
                    f"'{outcome.error}': call arguments did not match a supported operator, "
                    "function or macro "
                    f"signature for rule: {named}"
                )
            else:
                text = f"{outcome.error} evaluating rule: {named}"
            return invalid(where, kind, text)
        if outcome.value is True:
            return None
        where = (
            f"{path}{self._spec.get('fieldPath', '')}".removeprefix("." if not path else "")
            or "<nil>"
        )
        return self._failure(where, kind, obj, variables, named, budget)

    def _failure(
        self,
        where: str,
        kind: str,
        obj: Any,
        variables: dict[str, Any],
        named: str,
        budget: _Budget,
    ) -> FieldError:
        text = ""
        if self._message is not None:
            outcome = budget.evaluate(self._message, variables)
            if outcome.cost > budget.remaining:
                budget.remaining = -1
                return invalid(where, kind, _NO_MESSAGE_BUDGET)
            if isinstance(outcome.error, CostLimitExceededError):
                budget.remaining = -1
                source = orjson.dumps(self._spec["messageExpression"]).decode()
                return invalid(
                    where,
                    kind,
                    "no further validation rules will be run due to call cost exceeds limit for "
                    f"messageExpression: {source}",
                )
            budget.remaining -= outcome.cost
            if outcome.error is not None:
                log.info("messageExpression of a rule: %s", outcome.error)
            elif isinstance(outcome.value, str):
                message = outcome.value.strip()
                if (
                    "\n" not in message
                    and len(message.encode("utf-8", "replace")) <= MAX_MESSAGE_BYTES
                ):
                    text = message
        text = text or (self._spec.get("message") or "").strip() or f"failed rule: {named}"
        reason = self._spec.get("reason")
        if reason == "FieldValueForbidden":
            return forbidden(where, text)
        if reason == "FieldValueRequired":
            return required(where, text)
        shown = RuleValue(kind, _shown_value(kind, obj))
        if reason == "FieldValueDuplicate":
            return duplicate(where, shown)
        return invalid(where, shown, text)


def _shown_value(kind: str, value: Any) -> GoText | None:
    if kind in ("object", "array") or not isinstance(value, str | int | float):
        return None
    return GoText(go_value(value))


class Ratcheting(Enum):
    """What happens to rules that a value breaks which did not change."""

    OFF = "an error"
    WARN = "a warning"
    SILENT = "nothing"


class RuleSettings(NamedTuple):
    environment: CelEnvironment
    ratcheting: Ratcheting


Unchanged = Callable[[], bool]


def _is_changed() -> bool:
    return False


class CompiledRules:
    """The rules of a schema and of all nested schemas."""

    __slots__ = (
        "_additional",
        "_also",
        "_convert",
        "_items",
        "_keys",
        "_list_type",
        "_named",
        "_properties",
        "_rules",
        "_settings",
        "_type",
    )

    def __init__(self, schema: Schema, settings: RuleSettings, *, root: bool) -> None:
        self._settings = settings
        whole = with_object_fields(schema) if root else schema
        self._type = schema.get("type", "")
        specs = [spec for spec in schema.get(VALIDATIONS) or () if spec.get("rule")]
        declared = declare_schema(schema, root=root) if specs else None
        self._rules = [CompiledRule(spec, declared, settings.environment) for spec in specs]
        self._convert = converter(whole) if specs else None
        self._also = [
            r
            for option in schema.get("allOf") or ()
            if (r := _inner({**schema, **option}, settings)) is not None
        ]
        self._named = frozenset(whole.get("properties") or ())
        properties = schema.get("properties") or {}
        self._properties = {
            k: r for k, inner in properties.items() if (r := _inner(inner, settings)) is not None
        }
        self._additional = _inner(schema.get("additionalProperties"), settings)
        self._items = _inner(schema.get("items"), settings)
        self._list_type = schema.get("x-kubernetes-list-type")
        self._keys: Sequence[str] = schema.get("x-kubernetes-list-map-keys") or ()

    def validate(self, obj: Any, before: Any = None, path: str = "") -> list[FieldError]:
        """The errors of an object, within Kubernetes' budget for one object."""
        return self._validate(obj, before, path, _Budget(), _is_changed)

    def validate_briefly(self, obj: Any, before: Any = None) -> list[FieldError]:
        """Like `validate`, on the event loop: raises SlowRules if the rules take more than a few
        milliseconds.
        """
        try:
            return self._validate(obj, before, "", _Budget(_BRIEF_COST), _is_changed)
        except _NotBriefError:
            raise SlowRules(lambda: self.validate(obj, before)) from None

    def _validate(
        self, obj: Any, before: Any, path: str, budget: _Budget, parent: Unchanged
    ) -> list[FieldError]:
        """`parent`: whether the nearest value around this one that has an old value is unchanged."""
        if obj is None:
            return []
        unchanged = parent if before is None else lambda: same_json(obj, before)
        errors = self._own(obj, before, path, budget, unchanged)
        for more in self._also:
            if budget.remaining < 0:
                return errors
            errors += more._own(obj, before, path, budget, parent)
        if budget.remaining < 0:
            return errors
        if isinstance(obj, dict):
            old = before if isinstance(before, dict) else {}
            self._inside_map(obj, old, path, budget, errors, unchanged)
        elif isinstance(obj, list) and self._items is not None:
            earlier = self._correlate(before)
            for i, item in enumerate(obj):
                errors += self._items._validate(
                    item, earlier.get(self._key(item)), f"{path}[{i}]", budget, unchanged
                )
                if budget.remaining < 0:
                    break
        return errors

    def _own(
        self, obj: Any, before: Any, path: str, budget: _Budget, unchanged: Unchanged
    ) -> list[FieldError]:
        if not self._rules:
            return []
        if budget.remaining <= 0:
            budget.remaining = -1
            return [invalid(path or "<nil>", self._type, _NO_BUDGET)]
        convert = self._convert
        current = obj if convert is None else convert(obj)
        old = _ABSENT if before is None else before if convert is None else convert(before)
        errors = []
        for rule in self._rules:
            problem = rule.check(self._type, obj, current, old, path, budget)
            if problem is not None:
                spent = rule.uses_old or budget.remaining < 0
                errors += [problem] if spent else self._ratchet(problem, before, obj, unchanged)
            if budget.remaining < 0:
                break
        return errors

    def _ratchet(
        self, problem: FieldError, before: Any, obj: Any, unchanged: Unchanged
    ) -> list[FieldError]:
        """Unchanged values may stay invalid."""
        ratcheting = self._settings.ratcheting
        if ratcheting is Ratcheting.SILENT:
            return [problem] if before is None or not same_json(obj, before) else []
        if ratcheting is Ratcheting.WARN and unchanged():
            return [RatchetedError(*problem)]
        return [problem]

    def _inside_map(
        self,
        obj: dict[str, Any],
        before: dict[str, Any],
        path: str,
        budget: _Budget,
        errors: list[FieldError],
        unchanged: Unchanged,
    ) -> None:
        if not self._properties and self._additional is None:
            return
        for key, item in obj.items():
            inner = self._properties.get(key)
            if inner is not None:
                errors += inner._validate(
                    item, before.get(key), f"{path}.{key}" if path else key, budget, unchanged
                )
            elif self._additional is not None and key not in self._named:
                errors += self._additional._validate(
                    item, before.get(key), f"{path}[{key}]", budget, unchanged
                )
            if budget.remaining < 0:
                return

    def _key(self, item: Any) -> bytes | None:
        """The identity of a list element across updates; lists without keys have none."""
        if self._list_type != "map" or not isinstance(item, dict):
            return None
        return orjson.dumps({k: item.get(k) for k in self._keys}, option=orjson.OPT_SORT_KEYS)

    def _correlate(self, before: Any) -> dict[bytes | None, Any]:
        if self._list_type != "map" or not isinstance(before, list):
            return {}
        return {key: item for item in before if (key := self._key(item)) is not None}


def _inner(schema: Any, settings: RuleSettings) -> CompiledRules | None:
    return (
        CompiledRules(schema, settings, root=bool(schema.get("x-kubernetes-embedded-resource")))
        if has_rules(schema)
        else None
    )


def compile_schema_rules(schema: Schema, release: Release = DEFAULT) -> CompiledRules:
    if not has_tables(release):
        ratcheting = Ratcheting.SILENT
    elif is_enabled(release, "CRDValidationRatcheting"):
        ratcheting = Ratcheting.WARN
    else:
        ratcheting = Ratcheting.OFF
    settings = RuleSettings(expression_environment(release, stored=True), ratcheting)
    return CompiledRules(schema, settings, root=True)
