"""Estimates of what an expression costs, before there are any values (cel-go's checker/cost.go)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from transom.kit.cel import ast
from transom.kit.cel.macros import ACCUMULATOR
from transom.kit.cel.types import DYN, SCALARS, CelType
from transom.kit.named_tuple import NamedTuple

MAX: int = (1 << 64) - 1
LIST_COST, MAP_COST, STRUCT_COST = 10, 30, 40
STRING_FACTOR, REGEX_FACTOR = 0.1, 0.25


def _cap(value: int) -> int:
    return min(value, MAX)


def scale_cost(value: int, factor: float) -> int:
    return value if factor == 1 else _cap(math.ceil(float(value) * factor))


class CostRange(NamedTuple):
    """The smallest and the largest size, or cost."""

    min: int
    max: int

    def plus(self, other: CostRange) -> CostRange:
        return CostRange(_cap(self.min + other.min), _cap(self.max + other.max))

    def times(self, other: CostRange) -> CostRange:
        return CostRange(_cap(self.min * other.min), _cap(self.max * other.max))

    def by(self, factor: float) -> CostRange:
        return CostRange(scale_cost(self.min, factor), scale_cost(self.max, factor))

    def union(self, other: CostRange) -> CostRange:
        return CostRange(min(self.min, other.min), max(self.max, other.max))


UNKNOWN = CostRange(0, MAX)
ZERO = CostRange(0, 0)
ONE = CostRange(1, 1)


class _EntrySize(NamedTuple):
    container: str
    key: CostRange
    value: CostRange

    def union(self, other: _EntrySize | None) -> _EntrySize | None:
        if other is None:
            return None
        return _EntrySize(self.container, self.key.union(other.key), self.value.union(other.value))


class CostNode(NamedTuple):
    """An argument of a call as estimators see it."""

    path: tuple[str, ...]
    type: CelType
    node: ast.ExprNode | None
    size: CostRange | None


class CallCost(NamedTuple):
    cost: CostRange
    size: CostRange | None = None


class CostEstimator(Protocol):
    """Sizes of the values at a path, and costs of the functions of libraries."""

    def size(self, path: Sequence[str], kind: CelType) -> CostRange | None: ...
    def call(
        self, function: str, overload: str, target: CostNode | None, args: Sequence[CostNode]
    ) -> CallCost | None: ...


class _Local(NamedTuple):
    path: tuple[str, ...]
    size: CostRange | None
    entry: _EntrySize | None


def estimate_cost(node: ast.ExprNode, estimator: CostEstimator) -> CostRange:
    """The cost of a checked expression. A presence test costs nothing, as in Kubernetes."""
    return _Coster(estimator).cost(node)


class _Coster:
    def __init__(self, estimator: CostEstimator) -> None:
        self._estimator = estimator
        self._paths: dict[int, tuple[str, ...]] = {}
        self._sizes: dict[int, CostRange] = {}
        self._entries: dict[int, _EntrySize] = {}
        self._locals: dict[str, list[_Local]] = {}

    def cost(self, node: ast.ExprNode) -> CostRange:
        if isinstance(node, ast.ConstNode):
            return ZERO
        if isinstance(node, ast.IdentNode):
            self._paths[id(node)] = self._path(node) or (node.name,)
            return ONE
        if isinstance(node, ast.SelectNode):
            return self._select(node)
        if isinstance(node, ast.CallNode):
            return self._call(node)
        if isinstance(node, ast.ListNode):
            return self._list(node)
        if isinstance(node, ast.MapNode):
            return self._map(node)
        if isinstance(node, ast.StructNode):
            total = CostRange(STRUCT_COST, STRUCT_COST)
            for _, value, _, _ in node.fields:
                total = total.plus(self.cost(value))
            return total
        assert isinstance(node, ast.ComprehensionNode)
        return self._bind(node) if _is_bind(node) else self._comprehension(node)

    def _select(self, node: ast.SelectNode) -> CostRange:
        if node.qualified is not None:
            self._paths[id(node)] = (node.qualified.name,)
            return self.cost(node.qualified)
        total = self.cost(node.operand)
        if node.test_only:
            return total
        if _type(node.operand).kind in ("map", "struct", "param"):
            total = total.plus(ONE)
        self._paths[id(node)] = (*self._path(node.operand), node.field)
        return total

    def _list(self, node: ast.ListNode) -> CostRange:
        total = CostRange(LIST_COST, LIST_COST)
        size = CostRange(MAX if node.items else 0, 0)
        for item in node.items:
            total = total.plus(self.cost(item))
            size = size.union(self._size_or_unknown(item))
        self._entries[id(node)] = _EntrySize("list", ONE, size)
        return total

    def _map(self, node: ast.MapNode) -> CostRange:
        total = CostRange(MAP_COST, MAP_COST)
        keys = values = CostRange(MAX if node.entries else 0, 0)
        for key, value, _ in node.entries:
            total = total.plus(self.cost(key)).plus(self.cost(value))
            keys = keys.union(self._size_or_unknown(key))
            values = values.union(self._size_or_unknown(value))
        self._entries[id(node)] = _EntrySize("map", keys, values)
        return total

    def _push(self, name: str, local: _Local) -> None:
        self._locals.setdefault(name, []).append(local)

    def _push_iterated(self, name: str, over: ast.ExprNode, keys: bool | None) -> None:
        """A variable of an iteration: keys, values, or (None) what a single variable receives."""
        entry = self._entry(over)
        container = entry.container if entry is not None else _type(over).kind
        if keys is None:
            keys = container != "list"
        part = (
            ("@indices" if keys else "@items")
            if container == "list"
            else ("@keys" if keys else "@values")
        )
        size = None if entry is None else entry.key if keys else entry.value
        self._push(name, _Local((*self._path(over), part), size, None))

    def _comprehension(self, node: ast.ComprehensionNode) -> CostRange:
        total = self.cost(node.iter_range).plus(self.cost(node.accu_init))
        self._push(
            node.accu_var,
            _Local(
                self._path(node.accu_init), self._size(node.accu_init), self._entry(node.accu_init)
            ),
        )
        if node.iter_var2:
            self._push_iterated(node.iter_var, node.iter_range, True)
            self._push_iterated(node.iter_var2, node.iter_range, False)
        else:
            self._push_iterated(node.iter_var, node.iter_range, None)
        condition, step = self.cost(node.condition), self.cost(node.step)
        self._locals[node.iter_var].pop()
        if node.iter_var2:
            self._locals[node.iter_var2].pop()
        total = total.plus(self.cost(node.result))
        self._locals[node.accu_var].pop()
        count = self._size_or_unknown(node.iter_range)
        total = total.plus(count.times(step.plus(condition)))
        if isinstance(node.accu_init, ast.ConstNode):
            size = self._size(node.accu_init)
            if size is not None:
                self._sizes[id(node)] = size
        elif isinstance(node.accu_init, ast.ListNode | ast.MapNode):
            self._sizes[id(node)] = count
            entry = self._entry(node.step)
            if entry is not None:
                self._entries[id(node)] = entry
        return total

    def _bind(self, node: ast.ComprehensionNode) -> CostRange:
        total = self.cost(node.iter_range).plus(self.cost(node.accu_init))
        self._push(
            node.accu_var,
            _Local(
                self._path(node.accu_init), self._size(node.accu_init), self._entry(node.accu_init)
            ),
        )
        total = total.plus(self.cost(node.result))
        self._locals[node.accu_var].pop()
        self._copy_sizes(node, node.result)
        return total

    def _copy_sizes(self, to: ast.ExprNode, source: ast.ExprNode) -> None:
        size, entry = self._size(source), self._entry(source)
        if size is not None:
            self._sizes[id(to)] = size
        if entry is not None:
            self._entries[id(to)] = entry

    # ---- calls ----

    def _call(self, node: ast.CallNode) -> CostRange:
        if node.function == "dyn" and node.target is None and len(node.args) == 1:
            total = ONE.plus(self.cost(node.args[0]))
            self._copy_sizes(node, node.args[0])
            return total
        costs = [self.cost(argument) for argument in node.args]
        args = [self._cost_node(argument) for argument in node.args]
        if not node.overloads:
            return ZERO
        total, target = ZERO, None
        if node.target is not None:
            total = self.cost(node.target)
            target = self._cost_node(node.target)
        whole = CostRange(MAX, 0)
        size: CostRange | None = None
        for overload in node.overloads:
            found = self._overload(node, overload.id, target, args, costs)
            whole = whole.union(found.cost)
            if found.size is not None:
                size = found.size if size is None else size.union(found.size)
            if overload.id in ("index_list", "index_map") and node.args:
                entry = self._entry(node.args[0])
                size = entry.value if entry is not None else None
                part = "@items" if overload.id == "index_list" else "@values"
                self._paths[id(node)] = (*self._path(node.args[0]), part)
            if size is None:
                size = self._size(node)
        if size is not None:
            self._sizes[id(node)] = size
        return total.plus(whole)

    def _overload(
        self,
        node: ast.CallNode,
        overload: str,
        target: CostNode | None,
        args: list[CostNode],
        costs: list[CostRange],
    ) -> CallCost:
        given = ZERO
        for cost in costs:
            given = given.plus(cost)
        found = self._estimator.call(node.function, overload, target, args)
        if found is not None:
            return CallCost(found.cost.plus(given), found.size)
        if overload in ("logical_or", "logical_and"):
            return CallCost(CostRange(costs[0].min, costs[0].plus(costs[1]).max))
        if overload == "conditional":
            size = _known(args[1]).union(_known(args[2]))
            first = self._entry(node.args[1])
            entry = first.union(self._entry(node.args[2])) if first is not None else None
            if entry is not None:
                self._entries[id(node)] = entry
            return CallCost(costs[0].plus(costs[1].union(costs[2])), size)
        if overload in ("add_string", "add_bytes", "add_list") and len(args) == 2:
            size = _known(args[0]).plus(_known(args[1]))
            first = self._entry(node.args[0])
            entry = first.union(self._entry(node.args[1])) if first is not None else None
            if entry is not None:
                self._entries[id(node)] = entry
            own = ONE if overload == "add_list" else size.by(STRING_FACTOR)
            return CallCost(own.plus(given), size)
        standard = _standard_cost(overload, target, args)
        return CallCost(standard.cost.plus(given), standard.size)

    # ---- sizes and paths ----

    def _local(self, node: ast.ExprNode) -> _Local | None:
        stack = self._locals.get(node.name) if isinstance(node, ast.IdentNode) else None
        return stack[-1] if stack else None

    def _path(self, node: ast.ExprNode) -> tuple[str, ...]:
        local = self._local(node)
        return local.path if local is not None else self._paths.get(id(node), ())

    def _cost_node(self, node: ast.ExprNode) -> CostNode:
        path = self._path(node)
        return CostNode(
            () if path[:1] == (ACCUMULATOR,) else path, _type(node), node, self._size(node)
        )

    def _size_or_unknown(self, node: ast.ExprNode) -> CostRange:
        size = self._size(node)
        return UNKNOWN if size is None else size

    def _size(self, node: ast.ExprNode) -> CostRange | None:
        known = self._sizes.get(id(node)) or _literal_size(node)
        if known is not None:
            return known
        path = self._path(node)
        estimated = self._estimator.size(path, _type(node)) if path else None
        if estimated is not None:
            self._sizes[id(node)] = estimated
            return estimated
        if is_scalar_type(_type(node)):
            return ONE
        local = self._local(node)
        return local.size if local is not None else None

    def _entry(self, node: ast.ExprNode) -> _EntrySize | None:
        known = self._entries.get(id(node))
        if known is not None:
            return known
        local = self._local(node)
        return local.entry if local is not None else None


def _type(node: ast.ExprNode) -> CelType:
    return node.type or DYN


def _known(node: CostNode) -> CostRange:
    return UNKNOWN if node.size is None else node.size


def _is_bind(node: ast.ComprehensionNode) -> bool:
    over, condition = node.iter_range, node.condition
    return (
        isinstance(over, ast.ListNode)
        and not over.items
        and isinstance(condition, ast.ConstNode)
        and condition.value is False
        and node.accu_var != ACCUMULATOR
    )


def _literal_size(node: ast.ExprNode) -> CostRange | None:
    if isinstance(node, ast.ConstNode):
        count = len(node.value) if isinstance(node.value, str | bytes) else 1
    elif isinstance(node, ast.ListNode):
        count = len(node.items)
    elif isinstance(node, ast.MapNode):
        count = len(node.entries)
    else:
        return None
    return CostRange(count, count)


def is_scalar_type(kind: CelType) -> bool:
    if kind.kind == "opaque" and kind.name == "optional_type":
        return is_scalar_type(kind.params[0])
    return kind.kind in SCALARS


_COMPARES_TEXT = frozenset(
    (
        "less_string",
        "greater_string",
        "less_equals_string",
        "greater_equals_string",
        "less_bytes",
        "greater_bytes",
        "less_equals_bytes",
        "greater_equals_bytes",
        "equals",
        "not_equals",
    )
)


def _standard_cost(overload: str, target: CostNode | None, args: list[CostNode]) -> CallCost:
    if overload in _COMPARES_TEXT:
        smallest = min(_known(args[0]).max, _known(args[1]).max)
        return CallCost(CostRange(1 if smallest else 0, smallest).by(STRING_FACTOR))
    if overload == "string_to_bytes":
        size = _known(args[0])
        return CallCost(size.by(STRING_FACTOR), CostRange(size.min, _cap(size.max * 4)))
    if overload == "bytes_to_string":
        size = _known(args[0])
        return CallCost(size.by(STRING_FACTOR), CostRange(size.min // 4, size.max))
    if overload == "strings_quote":
        size = _known(args[0])
        return CallCost(
            size.by(STRING_FACTOR), CostRange(_cap(size.min + 2), _cap(size.max * 2 + 2))
        )
    if overload in ("starts_with_string", "ends_with_string"):
        return CallCost(_known(args[0]).by(STRING_FACTOR))
    if overload == "in_list":
        return CallCost(_known(args[1]))
    if target is not None and overload == "string_format":
        return CallCost(_known(target).by(STRING_FACTOR))
    if target is not None and overload == "matches_string":
        text = _known(target).plus(ONE).by(STRING_FACTOR)
        return CallCost(text.times(_known(args[0]).by(REGEX_FACTOR)))
    if target is not None and overload == "contains_string":
        return CallCost(_known(target).by(STRING_FACTOR).times(_known(args[0]).by(STRING_FACTOR)))
    return CallCost(ONE)
