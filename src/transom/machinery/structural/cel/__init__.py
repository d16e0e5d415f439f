"""Rules of `x-kubernetes-validations`, written in CEL.

`check_rules` validates the rules of a definition and estimates what they cost; `schema_rules`
validates objects with them. The CEL engine (`machinery.cel`) is loaded when the first rule is
found, because most clusters have none. Slow work (loading and compiling, or an expensive
evaluation) raises SlowRules: the caller repeats it in a worker thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from transom.kit.lazy import lazy_import
from transom.machinery.field import FieldError
from transom.machinery.releases import DEFAULT, Release
from transom.machinery.structural.cel.presence import SlowRules, has_rules

if TYPE_CHECKING:
    from transom.machinery.structural.cel import check, rules
else:
    check = lazy_import("transom.machinery.structural.cel.check")
    rules = lazy_import("transom.machinery.structural.cel.rules")


class SchemaRules:
    """The rules of a custom kind, compiled when the first object is validated."""

    __slots__ = ("_release", "_rules", "_schema")

    def __init__(self, schema: Mapping[str, Any], release: Release) -> None:
        self._schema, self._release = schema, release
        self._rules: rules.CompiledRules | None = None

    def validate(self, obj: Any, before: Any) -> list[FieldError]:
        """Raises SlowRules."""
        if self._rules is None:
            raise SlowRules(lambda: self._validate_slowly(obj, before))
        return self._rules.validate_briefly(obj, before)

    def _validate_slowly(self, obj: Any, before: Any) -> list[FieldError]:
        if self._rules is None:
            self._rules = compile_rules(self._schema, self._release)
        assert self._rules is not None
        return self._rules.validate(obj, before)


def schema_rules(
    schema: Mapping[str, Any] | None, release: Release = DEFAULT
) -> SchemaRules | None:
    """The rules of a custom kind, None if there are none."""
    return SchemaRules(schema, release) if schema is not None and has_rules(schema) else None


def check_rules(
    schema: Mapping[str, Any],
    path: str,
    *,
    suppress_cost: bool = False,
    release: Release = DEFAULT,
) -> list[FieldError]:
    """The errors in the rules of a schema. `suppress_cost` accepts stored rules even if a single
    one costs too much.
    """
    if not has_rules(schema):
        return []
    return check.check_schema_rules(schema, path, suppress_cost, release)


def compile_rules(
    schema: Mapping[str, Any] | None, release: Release = DEFAULT
) -> rules.CompiledRules | None:
    """The rules of a schema, ready to run."""
    if schema is None or not has_rules(schema):
        return None
    return rules.compile_schema_rules(schema, release)


__all__ = [
    "SchemaRules",
    "SlowRules",
    "check_rules",
    "compile_rules",
    "has_rules",
    "schema_rules",
]
