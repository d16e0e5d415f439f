"""What the functions of Kubernetes' libraries cost: estimated when a rule is created, charged when
it runs (k8s.io/apiserver/pkg/cel/library/cost.go).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from transom.kit.cel import ast
from transom.kit.cel.cost import (
    LIST_COST,
    MAX,
    ONE,
    REGEX_FACTOR,
    STRING_FACTOR,
    UNKNOWN,
    CallCost,
    CostNode,
    CostRange,
    scale_cost,
)
from transom.kit.cel.interpreter import regex_cost
from transom.kit.cel.sets import SET_COST_FACTORS
from transom.kit.cel.types import CelType
from transom.kit.cel.values import Opaque, is_list, is_map, map_find, map_keys, size_of
from transom.machinery.cel.quantities import Cidr, Ip
from transom.machinery.cel.texts import FORMAT_TYPE, URL_TYPE, NamedFormat

_TRAVERSED = frozenset(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"))
_ONCE = frozenset(("url", "lowerAscii", "upperAscii", "substring", "trim", "jsonpatch.escapeKey"))
_PARSED = frozenset(("cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"))
_FIXED = frozenset(
    (
        "masked",
        "prefixLength",
        "family",
        "isUnspecified",
        "isLoopback",
        "isLinkLocalMulticast",
        "isLinkLocalUnicast",
        "isGlobalUnicast",
        "format.named",
        "sign",
        "asInteger",
        "isInteger",
        "asApproximateFloat",
        "isGreaterThan",
        "isLessThan",
        "compareTo",
        "add",
        "sub",
        "major",
        "minor",
        "patch",
        "getScheme",
        "getHostname",
        "getHost",
        "getPort",
        "getEscapedPath",
        "getQuery",
    )
)
_ALLOCATING = frozenset(("slice", "flatten", "sort", "distinct", "reverse", "lists.range"))
_MAX_NAME_FORMAT_REGEX = 128
_MAX_FORMAT = 64
_FIXED_COSTS = {
    **dict.fromkeys(_FIXED, 1),
    "check": 350_000,  # the authorizer: allows two checks in each expression
}
CHARGED: frozenset[str] = frozenset(
    (
        *_TRAVERSED,
        *_ONCE,
        *_PARSED,
        *_FIXED_COSTS,
        *SET_COST_FACTORS,
        "replace",
        "split",
        "join",
        "find",
        "findAll",
        "ip",
        "ip.isCanonical",
        "containsIP",
        "containsCIDR",
        "validate",
        "_==_",
        *_ALLOCATING,
    )
)


def _size(value: Any) -> int:
    return len(value) if isinstance(value, Ip | Cidr) else size_of(value)


def _text(value: Any, factor: float = STRING_FACTOR) -> int:
    return math.ceil(_size(value) * factor)


def _traversal(value: Any) -> int:
    if isinstance(value, str):
        return int(len(value.encode("utf-8", "replace")) * STRING_FACTOR)
    if isinstance(value, bytes):
        return int(len(value) * STRING_FACTOR)
    if is_list(value):
        return sum(map(_traversal, value))
    if is_map(value):
        return sum(
            _traversal(key) + _traversal(map_find(value, key).value) for key in map_keys(value)
        )
    return 1


def charge_call(function: str, overload: str, args: Sequence[Any], result: Any) -> int | None:
    """The actual cost of a call; None for functions with the standard cost."""
    fixed = _FIXED_COSTS.get(function)
    if fixed is not None:
        return fixed
    if function == "_==_":
        return 1 if isinstance(args[0], Opaque) else None
    if function in _TRAVERSED:
        return _traversal(args[0])
    if function in _ONCE or function in _PARSED:
        return _text(args[0])
    if function in ("replace", "split"):
        return _text(args[0], 2 * STRING_FACTOR)
    if function == "join":
        return _text(result, 2 * STRING_FACTOR)
    if function in ("find", "findAll"):
        return regex_cost(args, result)
    if function in SET_COST_FACTORS:
        return 1 + size_of(args[0]) * size_of(args[1]) * SET_COST_FACTORS[function]
    if function in _ALLOCATING:
        return 1 + LIST_COST + _items_compared(function, args[0], result)
    if function == "ip":
        return 1 if overload == "cidr_ip" else _text(args[0])
    if function == "ip.isCanonical":
        return _text(args[0], 2 * STRING_FACTOR)
    if function in ("containsIP", "containsCIDR"):
        cost = math.ceil(2 * _size(args[0]) * STRING_FACTOR)
        if function == "containsCIDR":
            cost += _text(args[0]) + 1
        return cost + (_text(args[1]) if overload.endswith("_string") else 0)
    if function == "validate" and isinstance(args[0], NamedFormat):
        text = math.ceil((1.0 + size_of(args[1])) * STRING_FACTOR)
        return text * math.ceil(args[0].regex_size * REGEX_FACTOR)
    return None


def _items_compared(function: str, items: Any, result: Any) -> int:
    if function not in ("sort", "distinct"):
        return size_of(result)
    first = items[0] if is_list(items) and len(items) else None
    factor = 2 + STRING_FACTOR if isinstance(first, str | bytes) else 2
    return int(size_of(items) ** 2 * factor)


SizeOf = Callable[[Sequence[str], CelType], CostRange | None]


class KubernetesEstimator:
    """Estimates for Kubernetes' functions; the sizes of values come from the caller's schema."""

    def __init__(self, size_of_path: SizeOf) -> None:
        self._size_of_path = size_of_path

    def size(self, path: Sequence[str], kind: CelType) -> CostRange | None:
        return self._size_of_path(path, kind)

    def _of(self, node: CostNode) -> CostRange:
        if node.size is not None:
            return node.size
        found = self._size_of_path(node.path, node.type) if node.path else None
        return UNKNOWN if found is None else found

    def _item(self, node: CostNode) -> CostNode | None:
        if not node.type.params:
            return None
        path = (*node.path, "@items") if node.path else ()
        return CostNode(path, node.type.params[0], None, None)

    def call(
        self, function: str, overload: str, target: CostNode | None, args: Sequence[CostNode]
    ) -> CallCost | None:
        fixed = _FIXED_COSTS.get(function)
        if fixed is not None:
            return CallCost(CostRange(fixed, fixed))
        if function == "_==_" and len(args) == 2:
            return _equality(args[0], args[1])
        if function in SET_COST_FACTORS and len(args) == 2:
            both = self._of(args[0]).times(self._of(args[1]))
            return CallCost(both.by(SET_COST_FACTORS[function]).plus(ONE))
        if function in _ALLOCATING:
            return self._allocating(function, target, args)
        if target is not None:
            return self._member(function, overload, target, args)
        if not args:
            return None
        if function in ("url", "jsonpatch.escapeKey"):
            size = self._of(args[0])
            return CallCost(size.by(STRING_FACTOR), size)
        if function in _PARSED or function == "ip":
            return CallCost(self._of(args[0]).by(STRING_FACTOR))
        if function == "ip.isCanonical":
            return CallCost(self._of(args[0]).by(2 * STRING_FACTOR))
        return None

    def _member(
        self, function: str, overload: str, target: CostNode, args: Sequence[CostNode]
    ) -> CallCost | None:
        if function in _TRAVERSED:
            item = self._item(target)
            if item is None:
                return CallCost(self._of(target).by(STRING_FACTOR))
            each = ONE
            if item.type.kind in ("string", "bytes"):
                each = each.plus(self._of(item).by(STRING_FACTOR))
            return CallCost(self._of(target).times(each))
        if function in ("lowerAscii", "upperAscii", "substring", "trim"):
            size = self._of(target)
            return CallCost(size.by(STRING_FACTOR), size)
        if function == "replace" and len(args) >= 2:
            return self._replace(target, args)
        if function == "split":
            size = self._of(target)
            most = size.max
            limit = args[1].node if len(args) > 1 else None
            if isinstance(limit, ast.ConstNode) and isinstance(limit.value, int):
                most = limit.value if limit.value >= 0 else MAX
            return CallCost(size.by(2 * STRING_FACTOR), CostRange(0, most))
        if function == "join":
            return self._join(target, args)
        if function in ("find", "findAll") and args:
            size = self._of(target)
            text = size.plus(ONE).by(STRING_FACTOR)
            return CallCost(text.times(self._of(args[0]).by(REGEX_FACTOR)), CostRange(0, size.max))
        if overload == "cidr_ip":
            return CallCost(ONE)
        if function in ("containsIP", "containsCIDR") and args:
            size = CostRange(4, 16)
            cost = size.plus(size).by(STRING_FACTOR)
            if function == "containsCIDR":
                cost = cost.plus(size.by(STRING_FACTOR)).plus(ONE)
            if overload.endswith("_string"):
                cost = cost.plus(self._of(args[0]).by(STRING_FACTOR))
            return CallCost(cost)
        if function == "validate" and args:
            cost = self._of(args[0]).by(STRING_FACTOR).by(_MAX_NAME_FORMAT_REGEX * REGEX_FACTOR)
            return CallCost(cost)
        return None

    def _allocating(
        self, function: str, target: CostNode | None, args: Sequence[CostNode]
    ) -> CallCost:
        if target is None:
            count = args[0].node if args else None
            known = isinstance(count, ast.ConstNode) and isinstance(count.value, int)
            most = max(0, count.value) if known and isinstance(count, ast.ConstNode) else MAX
            size = CostRange(most, most)
        else:
            size = self._of(target)
        if function in ("sort", "distinct"):
            textual = (
                target is not None
                and bool(target.type.params)
                and target.type.params[0].kind in ("string", "bytes")
            )
            size = size.times(size)
            cost = size.by(2 + STRING_FACTOR if textual else 2)
        else:
            cost = size
        return CallCost(cost.plus(CostRange(1 + LIST_COST, 1 + LIST_COST)), size)

    def _replace(self, target: CostNode, args: Sequence[CostNode]) -> CallCost:
        size, old, new = self._of(target), self._of(args[0]), self._of(args[1])
        kept_min = kept_max = 0
        if old.min == 0:
            most, kept_max = min(size.max + 1, MAX), size.max
        elif new.max <= old.min:
            most, kept_max = 0, size.max
        else:
            most = min(MAX, math.ceil(size.max / old.min))
        if old.max == 0:
            least, kept_min = min(size.min + 1, MAX), size.min
        elif old.max <= new.min:
            least, kept_min = 0, size.min
        else:
            least = min(MAX, math.ceil(size.min / old.max))
        result = CostRange(least, most).times(new).plus(CostRange(kept_min, kept_max))
        return CallCost(size.by(2 * STRING_FACTOR), result)

    def _join(self, target: CostNode, args: Sequence[CostNode]) -> CallCost:
        count, size = self._of(target), CostRange(0, 0)
        item = self._item(target)
        if item is not None:
            size = count.times(self._of(item))
        if args:
            separators = CostRange(max(count.min - 1, 0), max(count.max - 1, 0))
            size = size.plus(self._of(args[0]).times(separators))
        return CallCost(size.by(STRING_FACTOR), size)


def _equality(one: CostNode, two: CostNode) -> CallCost | None:
    if one.type != two.type or one.type.kind not in ("opaque", "struct"):
        return None
    if one.type == FORMAT_TYPE:
        return CallCost(CostRange(1, _MAX_FORMAT).by(STRING_FACTOR))
    if one.type == URL_TYPE:
        most = two.size.max if two.size is not None else 1
        return CallCost(CostRange(1, scale_cost(most, STRING_FACTOR)))
    return CallCost(ONE) if one.type.name.startswith(("kubernetes.", "net.")) else None
