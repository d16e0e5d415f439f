"""Detects whether a schema has rules, without the CEL engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from transom.machinery.field import FieldError
from transom.machinery.validation.schema_extensions import VALIDATIONS


def has_rules(schema: Any) -> bool:
    """Whether a schema, or a nested one, has rules."""
    if not isinstance(schema, Mapping):
        return False
    if schema.get(VALIDATIONS):
        return True
    inner = [
        *(schema.get("properties") or {}).values(),
        *(schema.get("allOf") or ()),
        schema.get("items"),
        schema.get("additionalProperties"),
    ]
    return any(map(has_rules, inner))


class SlowRules(Exception):  # not an error: the work continues elsewhere
    """The rules are too slow for the event loop; `work` returns the errors of the object."""

    def __init__(self, work: Callable[[], list[FieldError]]) -> None:
        super().__init__("validation rules need a worker thread")
        self.work = work
