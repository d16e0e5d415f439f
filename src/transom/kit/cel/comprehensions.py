"""Comprehensions: the loops of all(), exists(), map(), filter() and the like, with their costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transom.kit.cel import ast
from transom.kit.cel.cost import LIST_COST
from transom.kit.cel.errors import CelError, CostLimitExceededError
from transom.kit.cel.evaluation import Constant, Evaluation, FailedValue, Run
from transom.kit.cel.macros import ACCUMULATOR
from transom.kit.cel.values import is_list, is_map, map_find, map_keys


def plan_comprehension(node: ast.ComprehensionNode, plan: Callable[[ast.ExprNode], Run]) -> Run:
    over = plan(node.iter_range)
    quantified = _quantifier(node)
    if quantified is not None:
        predicate, any_of = quantified
        return _quantify(over, node.iter_var, node.iter_var2, plan(predicate), any_of)
    counted = _one(node)
    if counted is not None:
        return _exists_one(over, node.iter_var, node.iter_var2, plan(counted))
    collected = _collection(node)
    if collected is not None:
        predicate_node, item = collected
        predicate_run = None if predicate_node is None else plan(predicate_node)
        return _collect(over, node.iter_var, node.iter_var2, predicate_run, plan(item))
    return _fold(
        over,
        node,
        plan(node.accu_init),
        plan(node.condition),
        plan(node.step),
        plan(node.result),
    )


def _is_accumulator(node: ast.ExprNode) -> bool:
    return isinstance(node, ast.IdentNode) and node.name == ACCUMULATOR


def _quantifier(node: ast.ComprehensionNode) -> tuple[ast.ExprNode, bool] | None:
    """The predicate of all() and exists(), and which of the two it is."""
    step = node.step
    if (
        node.accu_var == ACCUMULATOR
        and isinstance(node.condition, ast.CallNode)
        and node.condition.function == "@not_strictly_false"
        and isinstance(step, ast.CallNode)
        and step.function in ("_&&_", "_||_")
        and _is_accumulator(step.args[0])
        and _is_accumulator(node.result)
    ):
        return step.args[1], step.function == "_||_"
    return None


def _one(node: ast.ComprehensionNode) -> ast.ExprNode | None:
    """The predicate of exists_one()."""
    step = node.step
    if (
        node.accu_var == ACCUMULATOR
        and isinstance(node.accu_init, ast.ConstNode)
        and isinstance(step, ast.CallNode)
        and step.function == "_?_:_"
        and isinstance(step.args[1], ast.CallNode)
        and step.args[1].function == "_+_"
        and _is_accumulator(step.args[1].args[0])
        and _is_accumulator(step.args[2])
    ):
        return step.args[0]
    return None


def _collection(node: ast.ComprehensionNode) -> tuple[ast.ExprNode | None, ast.ExprNode] | None:
    """The condition (if any) and the item of map(), filter() and transformList()."""
    predicate: ast.ExprNode | None = None
    step = node.step
    if (
        node.accu_var != ACCUMULATOR
        or not isinstance(node.accu_init, ast.ListNode)
        or not _is_accumulator(node.result)
    ):
        return None
    if isinstance(step, ast.CallNode) and step.function == "_?_:_":
        if not _is_accumulator(step.args[2]):
            return None
        predicate, step = step.args[0], step.args[1]
    if (
        isinstance(step, ast.CallNode)
        and step.function == "_+_"
        and _is_accumulator(step.args[0])
        and isinstance(step.args[1], ast.ListNode)
        and len(step.args[1].items) == 1
        and not step.args[1].optional
    ):
        return predicate, step.args[1].items[0]
    return None


def _pairs(value: Any) -> Any:
    if is_list(value):
        return enumerate(value)
    if is_map(value):
        return ((key, map_find(value, key).value) for key in map_keys(value))
    raise CelError("no such overload")


def _singles(value: Any) -> Any:
    if isinstance(value, list) or is_list(value):
        return value
    if is_map(value):
        return map_keys(value)
    raise CelError("no such overload")


_MISSING: Any = object()


class _Scope:
    """Variables of a comprehension; restores the variables they shadowed afterwards."""

    __slots__ = ("_hidden", "_names")

    def __init__(self, variables: dict[str, Any], *names: str) -> None:
        self._names = [name for name in names if name]
        self._hidden = [variables.get(name, _MISSING) for name in self._names]

    def restore(self, variables: dict[str, Any]) -> None:
        for name, value in zip(self._names, self._hidden, strict=True):
            if value is _MISSING:
                variables.pop(name, None)
            else:
                variables[name] = value


def _quantify(over: Run, name: str, second: str, predicate: Run, any_of: bool) -> Run:
    # Each turn costs the condition (the accumulator, its negation for exists(),
    # @not_strictly_false) and the step.
    stop_cost = 3 if any_of else 2
    turn_cost = stop_cost + 1

    def run(state: Evaluation) -> Any:
        variables = state.variables
        items = over(state)
        turns = _pairs(items) if second else _singles(items)
        scope = _Scope(variables, name, second)
        failed: CelError | None = None
        decided = False
        for item in turns:
            if decided:
                state.cost += stop_cost
                break
            state.cost += turn_cost
            if second:
                variables[name], variables[second] = item
            else:
                variables[name] = item
            try:
                value = predicate(state)
            except CostLimitExceededError:
                raise
            except CelError as error:
                failed = failed or error
            else:
                if value is any_of:
                    decided = True
                elif value is not (not any_of):
                    failed = failed or CelError("no such overload")
            if state.cost > state.limit:
                raise CostLimitExceededError
        scope.restore(variables)
        state.cost += 1
        if decided:
            return any_of
        if failed is None:
            return not any_of
        try:
            raise failed
        finally:
            failed = None  # its traceback refers to this frame

    return run


def _exists_one(over: Run, name: str, second: str, predicate: Run) -> Run:
    def run(state: Evaluation) -> Any:
        variables = state.variables
        items = over(state)
        turns = _pairs(items) if second else _singles(items)
        scope = _Scope(variables, name, second)
        count = 0
        for item in turns:
            if second:
                variables[name], variables[second] = item
            else:
                variables[name] = item
            value = predicate(state)
            if value is True:
                count += 1
                state.cost += 2  # the accumulator and the addition
            elif value is not False:
                raise CelError("no such overload")
            if state.cost > state.limit:
                raise CostLimitExceededError
        scope.restore(variables)
        state.cost += 2
        return count == 1

    return run


def _collect(over: Run, name: str, second: str, predicate: Run | None, item_run: Run) -> Run:
    # Each item costs the accumulator, the addition, and the list around the item unless that is a
    # constant.
    item_cost = 2 if isinstance(item_run, Constant) else 2 + LIST_COST

    def run(state: Evaluation) -> Any:
        variables = state.variables
        items = over(state)
        turns = _pairs(items) if second else _singles(items)
        scope = _Scope(variables, name, second)
        out: list[Any] = []
        for item in turns:
            if second:
                variables[name], variables[second] = item
            else:
                variables[name] = item
            if predicate is not None:
                keep = predicate(state)
                if keep is False:
                    continue
                if keep is not True:
                    raise CelError("no such overload")
            state.cost += item_cost
            out.append(item_run(state))
            if state.cost > state.limit:
                raise CostLimitExceededError
        scope.restore(variables)
        state.cost += 1
        return out

    return run


def _fold(
    over: Run, node: ast.ComprehensionNode, init: Run, condition: Run, step: Run, result: Run
) -> Run:
    name, second, accu = node.iter_var, node.iter_var2, node.accu_var

    def run(state: Evaluation) -> Any:
        variables = state.variables
        items = over(state)
        start = init(state)
        scope = _Scope(variables, name, second, accu)
        variables[accu] = start
        for item in _pairs(items) if second else _singles(items):
            if second:
                variables[name], variables[second] = item
            else:
                variables[name] = item
            if condition(state) is not True:
                break
            try:
                variables[accu] = step(state)
            except CostLimitExceededError:
                raise
            except CelError as error:
                variables[accu] = FailedValue(error)
            if state.cost > state.limit:
                raise CostLimitExceededError
        value = result(state)
        scope.restore(variables)
        return value

    return run
