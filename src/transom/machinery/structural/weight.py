"""Estimates the validation cost of a schema, to decide whether an object is processed in a worker
thread.

A short object can take long to validate: every value is compared with all alternatives of `anyOf`,
all values of an `enum`, a pattern of many repetitions. The weight is an upper bound of the number of
such steps for one value; 1 stands for a schema without any of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from transom.kit.lazy import lazy_pattern

Schema = Mapping[str, Any]
_REPETITION = lazy_pattern(r"\{(\d{1,4})(?:,(\d{0,4}))?\}")
_MAPPING = (dict, Mapping)  # the test for a plain dictionary is faster, and so comes first
_CHOICES = ("allOf", "anyOf", "oneOf")
_WEIGHED = frozenset(
    (
        *("properties", "items", "additionalProperties", *_CHOICES, "not"),
        *("required", "enum", "pattern"),
    )
)
# A schema beyond these sizes is not fully traversed, because the event loop waits for its weight.
_MOST_STEPS = 6_000  # a step is a nested schema, or as much of a pattern or default; about 1 us
_INNER_STEPS = 2  # in addition, for a schema that is more than a type
_PATTERN_STEP = 4  # characters
_DEFAULT_STEP = 100  # bytes
_LARGE_SCHEMA = 100.0
_MOST_ALTERNATIVES = 1_000  # schemas inside anyOf and the like, which may all apply to one value
_HEAVIEST = 1e9  # every object of such a type counts as costly
# How many of each cost as much as one step of validation, about 2 microseconds.
_PROPERTIES = 50
_REQUIRED = 2
_ENUM_VALUES = 25
_PATTERN_CHARACTERS = 20
_DEFAULT_BYTES = 200
_FEW_REPETITIONS = 64  # as in the pattern of a DNS label
# More patterns than this are not kept compiled.
_COMPILED_PATTERNS = 100


class _TooLarge(Exception):
    pass


class _Walk:
    def __init__(self) -> None:
        self.steps = 0
        self.alternatives = 0
        self.patterns = 0

    def weight(self, schema: Any, depth: int = 0) -> float:
        """`depth`: the number of enclosing alternatives."""
        if not isinstance(schema, _MAPPING):
            return 0.0
        self.alternatives += depth > 0
        if self.alternatives > _MOST_ALTERNATIVES:
            raise _TooLarge
        if _WEIGHED.isdisjoint(schema):  # most schemas are only a type and a description
            return 1.0
        weight = self._own(schema)
        for child in _children(schema):
            weight = max(weight, self.weight(child, depth))
        for option in _alternatives(schema):
            weight += self.weight(option, depth + 1)
        return weight

    def _count(self, steps: int) -> None:
        self.steps += steps
        if self.steps > _MOST_STEPS:
            raise _TooLarge

    def _own(self, schema: Schema) -> float:
        properties = schema.get("properties") or {}
        self._count(_INNER_STEPS + len(properties))  # before they are traversed
        own = 1 + len(properties) / _PROPERTIES + len(schema.get("required") or ()) / _REQUIRED
        own += len(schema.get("enum") or ()) / _ENUM_VALUES
        pattern = schema.get("pattern")
        if isinstance(pattern, str):
            self.patterns += 1
            self._count(len(pattern) // _PATTERN_STEP)
            own += _pattern_weight(pattern)
        for inner in properties.values():
            if isinstance(inner, _MAPPING) and inner.get("default") is not None:
                size = len(orjson.dumps(inner["default"]))
                self._count(size // _DEFAULT_STEP)
                own += 0.2 + size / _DEFAULT_BYTES
        return own


def _children(schema: Schema) -> Iterator[Any]:
    yield from (schema.get("properties") or {}).values()
    yield schema.get("items")
    yield schema.get("additionalProperties")


def _alternatives(schema: Schema) -> Iterator[Any]:
    for field in _CHOICES:
        yield from schema.get(field) or ()
    yield schema.get("not")


def _pattern_weight(pattern: str) -> float:
    repetitions = sum(max(int(low), int(high or 0)) for low, high in _REPETITION.findall(pattern))
    if repetitions <= _FEW_REPETITIONS:
        repetitions = 0
    return len(pattern) / _PATTERN_CHARACTERS + 3 * repetitions


def schema_weight(schema: Schema | None) -> float:
    """The weight of a schema; at least 1."""
    if schema is None:
        return 1.0
    walk = _Walk()
    try:
        weight = walk.weight(schema)
    except _TooLarge:  # the part that was not traversed may be of any weight
        return _HEAVIEST
    if walk.patterns > _COMPILED_PATTERNS:
        weight = max(weight, _LARGE_SCHEMA)
    return max(1.0, weight)


def may_have_patterns(schema: Any) -> bool:
    """Whether a schema, or a nested one, has a pattern, which must be compiled for validation; or
    is too large to find out on the event loop.
    """
    steps = 0
    waiting = [schema]
    while waiting:
        current = waiting.pop()
        if not isinstance(current, _MAPPING):
            continue
        steps += 1
        if steps > _MOST_STEPS or current.get("pattern"):
            return True
        if not _WEIGHED.isdisjoint(current):
            waiting += _children(current)
            waiting += _alternatives(current)
            if len(waiting) > _MOST_STEPS:
                return True
    return False
