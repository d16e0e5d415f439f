"""Checked trees become closures, which evaluate them and count what they cost (cel-go's
interpreter/runtimecost.go).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from transom.kit.cel import ast
from transom.kit.cel.comprehensions import plan_comprehension
from transom.kit.cel.cost import LIST_COST, MAP_COST, REGEX_FACTOR, STRING_FACTOR, STRUCT_COST
from transom.kit.cel.errors import CelError, CostLimitExceededError, deep_recursion
from transom.kit.cel.evaluation import Constant, Evaluation, FailedValue, Run
from transom.kit.cel.functions import Function, Overload
from transom.kit.cel.types import DYN, CelType
from transom.kit.cel.values import (
    CelMap,
    Optional,
    Uint,
    fits_int64,
    is_list,
    is_map,
    map_find,
    map_key,
    size_of,
    type_of,
)
from transom.kit.named_tuple import NamedTuple

# The cost of a call by its arguments and result; None leaves it to the standard costs.
CallCharge = Callable[[str, str, Sequence[Any], Any], int | None]
MakeStruct = Callable[[str, dict[str, Any]], Any]


class EvaluationResult(NamedTuple):
    value: Any
    error: CelError | None
    cost: int


class CelProgram:
    """An expression that is ready to run."""

    __slots__ = ("_deep", "_run", "compiles_patterns")

    def __init__(self, run: Run, deep: bool, compiles_patterns: bool) -> None:
        self._run, self._deep = run, deep
        # Whether patterns come from the data: compiling one takes far longer than its cost says.
        self.compiles_patterns = compiles_patterns

    def evaluate(self, variables: Mapping[str, Any], limit: int) -> EvaluationResult:
        if self._deep:
            with deep_recursion():
                return self._evaluate(variables, limit)
        return self._evaluate(variables, limit)

    def _evaluate(self, variables: Mapping[str, Any], limit: int) -> EvaluationResult:
        state = Evaluation(dict(variables), limit)
        try:
            value = self._run(state)
            if state.cost > limit:
                raise CostLimitExceededError
        except CelError as error:
            # A new one: tracebacks of the error and of its cause refer to the variables.
            limited = isinstance(error, CostLimitExceededError)
            fresh = CostLimitExceededError() if limited else CelError(str(error))
            return EvaluationResult(None, fresh, state.cost)
        except RecursionError:
            return EvaluationResult(
                None, CelError("expression recursion limit exceeded"), state.cost
            )
        return EvaluationResult(value, None, state.cost)


def plan_program(
    node: ast.ExprNode,
    functions: Mapping[str, Function],
    charged: frozenset[str],
    charge: CallCharge,
    make_struct: MakeStruct,
    *,
    deep: bool,
) -> CelProgram:
    """`charged` names the functions whose cost `charge` knows."""
    planner = _Planner(functions, charged, charge, make_struct)
    run = planner.plan(node)
    return CelProgram(run, deep, planner.compiles_patterns)


_CONVERSIONS = frozenset(
    ("bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint", "dyn", "type")
)


_PATTERNS = frozenset(("matches", "find", "findAll"))  # the second argument is a pattern


class _Planner:
    def __init__(
        self,
        functions: Mapping[str, Function],
        charged: frozenset[str],
        charge: CallCharge,
        make_struct: MakeStruct,
    ) -> None:
        self._functions, self._charged, self._charge = functions, charged, charge
        self._make_struct = make_struct
        self.compiles_patterns = False

    def plan(self, node: ast.ExprNode) -> Run:
        if isinstance(node, ast.ConstNode):
            return Constant(node.value)
        if isinstance(node, ast.IdentNode):
            return Constant(node.constant) if node.constant is not None else _variable(node.name)
        if isinstance(node, ast.SelectNode):
            return self._select(node)
        if isinstance(node, ast.CallNode):
            return self._call(node)
        if isinstance(node, ast.ListNode):
            return self._list(node)
        if isinstance(node, ast.MapNode):
            return self._map(node)
        if isinstance(node, ast.StructNode):
            return self._struct(node)
        assert isinstance(node, ast.ComprehensionNode)
        return plan_comprehension(node, self.plan)

    # ---- names and fields ----

    def _select(self, node: ast.SelectNode) -> Run:
        if node.qualified is not None:
            return self.plan(node.qualified)
        if node.test_only:
            return _presence(self.plan(node.operand), node.field)
        fields: list[str] = []
        at: ast.ExprNode = node
        while isinstance(at, ast.SelectNode) and not at.test_only and at.qualified is None:
            fields.append(at.field)
            at = at.operand
        fields.reverse()
        operand = self.plan(at)
        if isinstance(at, ast.IdentNode) and at.constant is None:
            return _variable_fields(at.name, fields)
        return _fields(operand, fields)

    # ---- calls ----

    def _call(self, node: ast.CallNode) -> Run:
        if node.function in ("_&&_", "_||_"):
            return _logical(
                self.plan(node.args[0]), self.plan(node.args[1]), node.function == "_||_"
            )
        if node.function == "_?_:_":
            return self._conditional(node)
        if node.function in ("or", "orValue") and node.target is not None and len(node.args) == 1:
            return _or_else(
                self.plan(node.target), self.plan(node.args[0]), node.function == "orValue"
            )
        given = [node.target, *node.args] if node.target is not None else node.args
        runs = [self.plan(argument) for argument in given if argument is not None]
        constant = all(isinstance(run, Constant) for run in runs)
        if node.function == "_[_]" and len(runs) == 2:
            return _index(runs[0], runs[1], _is_attribute(node.args[1]))
        if node.function in ("_?._", "_[?_]") and len(runs) == 2:
            return _optional_index(runs[0], runs[1])
        overload = node.overloads[0] if len(node.overloads) == 1 else None
        if overload is not None and overload.id == "in_list" and isinstance(runs[1], Constant):
            member = _membership(runs[0], runs[1].value)
            if member is not None:
                return member
        implementation = self._implementation(
            node, overload, [a.type or DYN for a in given if a is not None]
        )
        cost = self._cost_of(node.function, overload)
        if node.function in _PATTERNS and not isinstance(runs[1], Constant):
            self.compiles_patterns = True
        run = _invoke(implementation, runs, cost)
        if constant and len(runs) == 1 and node.function in _CONVERSIONS:
            state = Evaluation({}, 1 << 62)
            try:
                return Constant(run(state))
            except CelError:
                return run
        return run

    def _implementation(
        self, node: ast.CallNode, overload: Overload | None, types: list[CelType]
    ) -> Callable[..., Any]:
        if overload is not None:
            if not any(kind.kind in ("dyn", "error") for kind in types):
                return overload.run
            return _guarded((overload,))
        function = self._functions[node.function]
        member = node.target is not None
        return _guarded([o for o in function.overloads if o.member == member])

    def _cost_of(
        self, function: str, overload: Overload | None
    ) -> int | Callable[[Sequence[Any], Any], int]:
        """A fixed cost, or how it follows from arguments and result."""
        id = overload.id if overload is not None else ""
        if function in ("_==_", "_!=_"):
            id = "equals"
        standard = _STANDARD_COSTS.get(id)
        if function in self._charged:
            charge = self._charge

            def cost(args: Sequence[Any], result: Any) -> int:
                found = charge(function, id, args, result)
                if found is not None:
                    return found
                return standard(args, result) if standard is not None else 1

            return cost
        return 1 if standard is None else standard

    def _conditional(self, node: ast.CallNode) -> Run:
        condition, first, second = (self.plan(argument) for argument in node.args)
        # A branch that is a plain name or a selection is part of the attribute: its name itself is
        # not charged.
        free_first, free_second = (_is_attribute(argument) for argument in node.args[1:])

        def run(state: Evaluation) -> Any:
            chosen = condition(state)
            if chosen is True:
                value = first(state)
                state.cost -= free_first
                return value
            if chosen is False:
                value = second(state)
                state.cost -= free_second
                return value
            raise CelError("no such overload")

        return run

    # ---- literals ----

    def _list(self, node: ast.ListNode) -> Run:
        runs = [self.plan(item) for item in node.items]
        if not node.optional:
            if all(isinstance(run, Constant) for run in runs):
                return Constant([run.value for run in runs])  # type: ignore[attr-defined]

            def plain(state: Evaluation) -> Any:
                state.cost += LIST_COST
                return [run(state) for run in runs]

            return plain
        optional = node.optional

        def run_list(state: Evaluation) -> Any:
            state.cost += LIST_COST
            out = []
            for at, run in enumerate(runs):
                value = run(state)
                if at not in optional:
                    out.append(value)
                elif not isinstance(value, Optional):
                    raise CelError("no such overload")
                elif value.present:
                    out.append(value.value)
            return out

        return run_list

    def _map(self, node: ast.MapNode) -> Run:
        entries = [
            (self.plan(key), self.plan(value), optional) for key, value, optional in node.entries
        ]
        constant = all(
            isinstance(key, Constant) and isinstance(value, Constant) and not optional
            for key, value, optional in entries
        )

        def run(state: Evaluation) -> Any:
            state.cost += MAP_COST
            out: dict[Any, Any] = {}
            for key_run, value_run, optional in entries:
                key = map_key(key_run(state))
                value = value_run(state)
                if optional:
                    if not isinstance(value, Optional):
                        raise CelError("no such overload")
                    if not value.present:
                        continue
                    value = value.value
                out[key] = value
            return out

        if constant:
            try:
                return Constant(run(Evaluation({}, 1 << 62)))
            except CelError:
                return run
        return run

    def _struct(self, node: ast.StructNode) -> Run:
        fields = [(name, self.plan(value), optional) for name, value, optional, _ in node.fields]
        name, make = node.name, self._make_struct

        def run(state: Evaluation) -> Any:
            state.cost += STRUCT_COST
            out: dict[str, Any] = {}
            for field, value_run, optional in fields:
                value = value_run(state)
                if optional:
                    if not isinstance(value, Optional):
                        raise CelError("no such overload")
                    if not value.present:
                        continue
                    value = value.value
                out[field] = value
            return make(name, out)

        return run

    # ---- comprehensions ----


def _is_attribute(node: ast.ExprNode) -> bool:
    if isinstance(node, ast.IdentNode):
        return node.constant is None
    if isinstance(node, ast.CallNode):
        return node.function == "_[_]"
    return isinstance(node, ast.SelectNode) and not node.test_only and node.qualified is None


def _variable(name: str) -> Run:
    def run(state: Evaluation) -> Any:
        state.cost += 1
        try:
            value = state.variables[name]
        except KeyError:
            raise CelError(f"no such attribute(s): {name}") from None
        if type(value) is FailedValue:
            raise value.error
        return value

    return run


def select_field(value: Any, field: str) -> Any:
    if isinstance(value, dict):
        try:
            return value[field]
        except KeyError:
            raise CelError(f"no such key: {field}") from None
    if isinstance(value, CelMap):
        found = value.find(field)
        if not found.present:
            raise CelError(f"no such key: {field}")
        return found.value
    if isinstance(value, Optional):
        if not value.present:
            return value
        return map_find(value.value, field) if is_map(value.value) else Optional(False)
    raise CelError("no such overload")


def _variable_fields(name: str, fields: list[str]) -> Run:
    charge = len(fields) + 1

    def run(state: Evaluation) -> Any:
        state.cost += charge
        try:
            value = state.variables[name]
        except KeyError:
            raise CelError(f"no such attribute(s): {name}") from None
        for field in fields:
            value = select_field(value, field)
        return value

    return run


def _fields(operand: Run, fields: list[str]) -> Run:
    charge = len(fields)

    def run(state: Evaluation) -> Any:
        value = operand(state)
        state.cost += charge
        for field in fields:
            value = select_field(value, field)
        return value

    return run


def _presence(operand: Run, field: str) -> Run:
    def run(state: Evaluation) -> Any:
        value = operand(state)
        if isinstance(value, dict):
            return field in value
        if isinstance(value, CelMap):
            return value.is_set(field)
        if isinstance(value, Optional):
            return value.present and is_map(value.value) and map_find(value.value, field).present
        raise CelError("no such overload")

    return run


def _index(container: Run, key: Run, free_key: bool) -> Run:
    # A key that is a name or a selection is part of the attribute: its name itself is not charged.
    charge = 1 - free_key

    def run(state: Evaluation) -> Any:
        items, at = container(state), key(state)
        state.cost += charge
        if isinstance(items, list) or is_list(items):
            if type(at) is not int:
                if isinstance(at, float) and at.is_integer():
                    at = int(at)
                elif not isinstance(at, Uint):
                    raise CelError(f"unsupported index type '{type_of(at).name}' in list")
            if 0 <= at < len(items):
                return items[at]
            raise CelError(f"index out of bounds: {at}")
        if isinstance(items, Optional):
            if not items.present:
                return items
            items = items.value
            if is_list(items):
                return (
                    Optional(True, items[at])
                    if isinstance(at, int) and 0 <= at < len(items)
                    else Optional(False)
                )
            return map_find(items, at)
        if is_map(items):
            found = map_find(items, at)
            if found.present:
                return found.value
            raise CelError(f"no such key: {_shown(at)}")
        raise CelError("no such overload")

    return run


def _optional_index(container: Run, key: Run) -> Run:
    """`a.?b` and `a[?b]`: only existing fields are charged."""

    def run(state: Evaluation) -> Any:
        items, at = container(state), key(state)
        if isinstance(items, Optional):
            if not items.present:
                return items
            items = items.value
        if is_map(items):
            found = map_find(items, at)
        elif is_list(items):
            inside = (
                isinstance(at, int | float) and not isinstance(at, bool) and 0 <= at < len(items)
            )
            found = Optional(True, items[int(at)]) if inside else Optional(False)
        else:
            raise CelError("no such overload")
        state.cost += found.present
        return found

    return run


def _or_else(value: Run, other: Run, unwrap: bool) -> Run:
    """`or` and `orValue`: the alternative is evaluated only if it is needed."""

    def run(state: Evaluation) -> Any:
        found = value(state)
        if not isinstance(found, Optional):
            raise CelError("no such overload")
        if found.present:
            return found.value if unwrap else found
        return other(state)

    return run


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _logical(left: Run, right: Run, is_or: bool) -> Run:
    decisive = is_or

    def run(state: Evaluation) -> Any:
        failed: CelError | None = None
        try:
            first = left(state)
            if first is decisive:
                return decisive
            if first is not (not decisive):
                failed = CelError("no such overload")
        except CostLimitExceededError:
            raise
        except CelError as error:
            failed = error
        try:
            second = right(state)
            if second is decisive:
                return decisive
            if second is not (not decisive):
                raise failed or CelError("no such overload")
            if failed is not None:
                raise failed
            return not decisive
        finally:
            failed = None  # its traceback refers to this frame

    return run


def _membership(value: Run, items: list[Any]) -> Run | None:
    """`x in [...]` with a constant list of strings or numbers: a hash lookup, free of charge."""
    if not items:
        return Constant(False)
    if not all(isinstance(item, str | int | float) for item in items):
        return None
    texts = frozenset(item for item in items if isinstance(item, str))
    numbers = frozenset(item for item in items if not isinstance(item, str | bool))
    bools = [item for item in items if isinstance(item, bool)]

    def run(state: Evaluation) -> Any:
        wanted = value(state)
        if isinstance(wanted, str):
            return wanted in texts
        if isinstance(wanted, bool):
            return wanted in bools
        return isinstance(wanted, int | float) and wanted in numbers

    return run


def _guarded(overloads: Sequence[Overload]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        for overload in overloads:
            if len(overload.args) == len(args) and all(map(fits_int64, args, overload.args)):
                return overload.run(*args)
        raise CelError("no such overload")

    return run


def _invoke(
    call: Callable[..., Any], runs: list[Run], cost: int | Callable[[Sequence[Any], Any], int]
) -> Run:
    if isinstance(cost, int):
        fixed = cost
        if len(runs) == 1:
            only = runs[0]

            def run_one(state: Evaluation) -> Any:
                try:
                    value = only(state)
                except CelError:
                    state.cost += fixed
                    raise
                state.cost += fixed
                return call(value)

            return run_one
        if len(runs) == 2:

            def run_two(state: Evaluation) -> Any:
                a, b = _arguments(runs, state, fixed)
                state.cost += fixed
                return call(a, b)

            return run_two

        def run_fixed(state: Evaluation) -> Any:
            args = _arguments(runs, state, fixed)
            state.cost += fixed
            return call(*args)

        return run_fixed
    charge = cost

    def run_charged(state: Evaluation) -> Any:
        args = _arguments(runs, state, 1)
        result = call(*args)
        state.cost += charge(args, result)
        if state.cost > state.limit:
            raise CostLimitExceededError
        return result

    return run_charged


def _arguments(runs: list[Run], state: Evaluation, charge: int) -> list[Any]:
    """All arguments. The call is charged even if one fails."""
    try:
        return [run(state) for run in runs]
    except CostLimitExceededError:
        raise
    except CelError:
        state.cost += charge
        raise


def _text_cost(args: Sequence[Any], _result: Any) -> int:
    return math.ceil(size_of(args[0]) * STRING_FACTOR)


def _compare_cost(args: Sequence[Any], _result: Any) -> int:
    return math.ceil(min(size_of(args[0]), size_of(args[1])) * STRING_FACTOR)


def _add_cost(args: Sequence[Any], _result: Any) -> int:
    return math.ceil((size_of(args[0]) + size_of(args[1])) * STRING_FACTOR)


def regex_cost(args: Sequence[Any], _result: Any) -> int:
    text = math.ceil((1.0 + size_of(args[0])) * STRING_FACTOR)
    return text * math.ceil(size_of(args[1]) * REGEX_FACTOR)


def _contains_cost(args: Sequence[Any], _result: Any) -> int:
    return math.ceil(size_of(args[0]) * STRING_FACTOR) * math.ceil(size_of(args[1]) * STRING_FACTOR)


def _in_cost(args: Sequence[Any], _result: Any) -> int:
    return size_of(args[1])


_STANDARD_COSTS: dict[str, Callable[[Sequence[Any], Any], int]] = {
    **dict.fromkeys(
        (
            "starts_with_string",
            "ends_with_string",
            "string_to_bytes",
            "bytes_to_string",
            "strings_quote",
            "string_format",
        ),
        _text_cost,
    ),
    **{
        f"{word}_{kind}": _compare_cost
        for word in ("less", "greater", "less_equals", "greater_equals")
        for kind in ("string", "bytes")
    },
    "equals": _compare_cost,
    "in_list": _in_cost,
    "add_string": _add_cost,
    "add_bytes": _add_cost,
    "matches_string": regex_cost,
    "contains_string": _contains_cost,
}


__all__ = [
    "CelProgram",
    "EvaluationResult",
    "plan_program",
    "regex_cost",
    "select_field",
]
