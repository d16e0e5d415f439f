"""Functions on lists: Kubernetes' own (isSorted, sum, min, max, indexOf) and cel-go's ext.Lists."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from transom.kit.cel.errors import CelError
from transom.kit.cel.functions import Function, Overload
from transom.kit.cel.values import Duration, Timestamp, Uint, cel_equals, is_list

_ORDERED = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_SUMMED: dict[str, Any] = {"int": 0, "uint": Uint(0), "double": 0.0, "duration": Duration(0)}


def _key(value: Any) -> Any:
    return value.nanos if isinstance(value, Duration | Timestamp) else value


def _is_sorted(items: Any) -> bool:
    return all(_key(a) <= _key(b) for a, b in itertools.pairwise(items))


def _sum(zero: Any) -> Callable[[Any], Any]:
    def run(items: Any) -> Any:
        if isinstance(zero, Duration):
            return Duration(sum(item.nanos for item in items))
        total = sum(items, 0.0 if isinstance(zero, float) else 0)
        if isinstance(zero, Uint):
            if total >= 1 << 64:
                raise CelError("unsigned integer overflow")
            return Uint(total)
        if not isinstance(zero, float) and not -(1 << 63) <= total < 1 << 63:
            raise CelError("integer overflow")
        return total

    return run


def _extreme(choose: Callable[..., Any], name: str) -> Callable[[Any], Any]:
    def run(items: Any) -> Any:
        if not len(items):
            raise CelError(f"{name} called on empty list")
        return choose(items, key=_key)

    return run


def _index(items: Any, wanted: Any) -> int:
    return next((at for at, item in enumerate(items) if cel_equals(item, wanted)), -1)


def _last_index(items: Any, wanted: Any) -> int:
    return next((at for at in range(len(items) - 1, -1, -1) if cel_equals(items[at], wanted)), -1)


LIST_FUNCTIONS: tuple[Function, ...] = (
    Function(
        "isSorted",
        (
            Overload(f"list_{k}_is_sorted_bool", f"list({k}).() -> bool", _is_sorted)
            for k in _ORDERED
        ),
    ),
    Function(
        "sum",
        (
            Overload(f"list_{k}_sum_{k}", f"list({k}).() -> {k}", _sum(zero))
            for k, zero in _SUMMED.items()
        ),
    ),
    Function(
        "min",
        (
            Overload(f"list_{k}_min_{k}", f"list({k}).() -> {k}", _extreme(min, "min"))
            for k in _ORDERED
        ),
    ),
    Function(
        "max",
        (
            Overload(f"list_{k}_max_{k}", f"list({k}).() -> {k}", _extreme(max, "max"))
            for k in _ORDERED
        ),
    ),
    Function("indexOf", (Overload("list_a_index_of_int", "list(A).(A) -> int", _index),)),
    Function(
        "lastIndexOf", (Overload("list_a_last_index_of_int", "list(A).(A) -> int", _last_index),)
    ),
)


# ---- ext.Lists ----


def _slice(items: Any, start: int, end: int) -> list[Any]:
    if start < 0 or end < 0:
        raise CelError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise CelError(
            f"cannot slice({start}, {end}), start index must be less than or equal to end index"
        )
    if end > len(items):
        raise CelError(f"cannot slice({start}, {end}), list is length {len(items)}")
    return list(items)[start:end]


def _flatten(items: Any, depth: int = 1) -> list[Any]:
    if depth < 0:
        raise CelError("level must be non-negative")
    out: list[Any] = []
    for item in items:
        if is_list(item) and depth > 0:
            out += _flatten(item, depth - 1)
        else:
            out.append(item)
    return out


def _distinct(items: Any) -> list[Any]:
    out: list[Any] = []
    seen: set[Any] = set()
    for item in items:
        if isinstance(item, str):
            if item not in seen:
                seen.add(item)
                out.append(item)
        elif not any(cel_equals(item, kept) for kept in out):
            out.append(item)
    return out


def _range(count: int) -> list[int]:
    if count > 1_000_000:
        raise CelError("lists.range() is too long")
    return list(range(count))


def _sort(items: Any) -> list[Any]:
    try:
        return sorted(items, key=_key)
    except TypeError:
        raise CelError("list elements must have the same type") from None


EXTENDED_LIST_FUNCTIONS: tuple[Function, ...] = (
    Function("slice", (Overload("list_slice", "list(T).(int, int) -> list(T)", _slice),)),
    Function(
        "flatten",
        (
            Overload("list_flatten", "list(list(T)).() -> list(T)", _flatten),
            Overload("list_flatten_int", "list(dyn).(int) -> list(dyn)", _flatten),
        ),
    ),
    Function(
        "sort", (Overload(f"list_{k}_sort", f"list({k}).() -> list({k})", _sort) for k in _ORDERED)
    ),
    Function("distinct", (Overload("list_distinct", "list(T).() -> list(T)", _distinct),)),
    Function(
        "reverse",
        (Overload("list_reverse", "list(T).() -> list(T)", lambda items: list(items)[::-1]),),
    ),
    Function("lists.range", (Overload("lists_range", "(int) -> list(int)", _range),)),
)
