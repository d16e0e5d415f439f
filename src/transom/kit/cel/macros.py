"""Macros: calls that the parser replaces by other expressions, most of them by comprehensions."""

from __future__ import annotations

from collections.abc import Callable

from transom.kit.cel.ast import (
    CallNode,
    ComprehensionNode,
    ConstNode,
    ExprNode,
    IdentNode,
    ListNode,
    MapNode,
    SelectNode,
)

Macro = Callable[[int, ExprNode | None, list[ExprNode]], ExprNode | None]
ACCUMULATOR = "__result__"


class MacroError(Exception):
    def __init__(self, pos: int, message: str) -> None:
        super().__init__(message)
        self.pos, self.message = pos, message


def _variable(node: ExprNode, message: str = "argument must be a simple name") -> str:
    if not isinstance(node, IdentNode) or node.name.startswith("."):
        raise MacroError(node.pos, message)
    if node.name == ACCUMULATOR:
        raise MacroError(
            node.pos, f"iteration variable overwrites accumulator variable: {node.name}"
        )
    return node.name


def _accu(pos: int) -> ExprNode:
    return IdentNode(pos, ACCUMULATOR)


def _fold(
    pos: int,
    over: ExprNode | None,
    names: tuple[str, str],
    init: ExprNode,
    condition: ExprNode,
    step: ExprNode,
    result: ExprNode,
) -> ExprNode:
    assert over is not None
    return ComprehensionNode(
        pos, over, names[0], names[1], ACCUMULATOR, init, condition, step, result
    )


def _has(pos: int, _target: ExprNode | None, args: list[ExprNode]) -> ExprNode:
    selected = args[0]
    if isinstance(selected, SelectNode) and not selected.test_only:
        return SelectNode(pos, selected.operand, selected.field, test_only=True)
    raise MacroError(args[0].pos, "invalid argument to has() macro")


def _names(args: list[ExprNode], count: int) -> tuple[str, str]:
    first = _variable(args[0])
    if count == 1:
        return first, ""
    second = _variable(args[1])
    if first == second:
        raise MacroError(args[1].pos, f"duplicate variable name: {first}")
    return first, second


def _all(count: int) -> Macro:
    def expand(pos: int, target: ExprNode | None, args: list[ExprNode]) -> ExprNode:
        condition = CallNode(pos, "@not_strictly_false", [_accu(pos)])
        step = CallNode(pos, "_&&_", [_accu(pos), args[count]])
        return _fold(
            pos, target, _names(args, count), ConstNode(pos, True), condition, step, _accu(pos)
        )

    return expand


def _exists(count: int) -> Macro:
    def expand(pos: int, target: ExprNode | None, args: list[ExprNode]) -> ExprNode:
        condition = CallNode(pos, "@not_strictly_false", [CallNode(pos, "!_", [_accu(pos)])])
        step = CallNode(pos, "_||_", [_accu(pos), args[count]])
        return _fold(
            pos, target, _names(args, count), ConstNode(pos, False), condition, step, _accu(pos)
        )

    return expand


def _exists_one(count: int) -> Macro:
    def expand(pos: int, target: ExprNode | None, args: list[ExprNode]) -> ExprNode:
        step = CallNode(
            pos,
            "_?_:_",
            [args[count], CallNode(pos, "_+_", [_accu(pos), ConstNode(pos, 1)]), _accu(pos)],
        )
        result = CallNode(pos, "_==_", [_accu(pos), ConstNode(pos, 1)])
        return _fold(
            pos, target, _names(args, count), ConstNode(pos, 0), ConstNode(pos, True), step, result
        )

    return expand


def _collect(count: int) -> Macro:
    """`map` and `transformList`, with or without a filter before the transformation."""

    def expand(pos: int, target: ExprNode | None, args: list[ExprNode]) -> ExprNode:
        names = _names(args, count)
        step: ExprNode = CallNode(pos, "_+_", [_accu(pos), ListNode(pos, [args[-1]])])
        if len(args) == count + 2:
            step = CallNode(pos, "_?_:_", [args[count], step, _accu(pos)])
        return _fold(pos, target, names, ListNode(pos, []), ConstNode(pos, True), step, _accu(pos))

    return expand


def _filter(pos: int, target: ExprNode | None, args: list[ExprNode]) -> ExprNode:
    names = _names(args, 1)
    added = CallNode(pos, "_+_", [_accu(pos), ListNode(pos, [IdentNode(args[0].pos, names[0])])])
    step = CallNode(pos, "_?_:_", [args[1], added, _accu(pos)])
    return _fold(pos, target, names, ListNode(pos, []), ConstNode(pos, True), step, _accu(pos))


def _transform_map(whole_entry: bool) -> Macro:
    def expand(pos: int, target: ExprNode | None, args: list[ExprNode]) -> ExprNode:
        names = _names(args, 2)
        inserted: list[ExprNode] = (
            [_accu(pos), args[-1]]
            if whole_entry
            else [_accu(pos), IdentNode(args[0].pos, names[0]), args[-1]]
        )
        step: ExprNode = CallNode(pos, "cel.@mapInsert", inserted)
        if len(args) == 4:
            step = CallNode(pos, "_?_:_", [args[2], step, _accu(pos)])
        return _fold(pos, target, names, MapNode(pos, []), ConstNode(pos, True), step, _accu(pos))

    return expand


def _opt_map(flat: bool) -> Macro:
    name = "optFlatMap()" if flat else "optMap()"

    def expand(pos: int, target: ExprNode | None, args: list[ExprNode]) -> ExprNode:
        assert target is not None
        variable = _variable(args[0], f"{name} variable name must be a simple identifier")
        mapped = ComprehensionNode(
            pos,
            ListNode(pos, []),
            "#unused",
            "",
            variable,
            CallNode(pos, "value", [], target),
            ConstNode(pos, False),
            IdentNode(args[0].pos, variable),
            args[1],
        )
        present: ExprNode = mapped if flat else CallNode(pos, "optional.of", [mapped])
        return CallNode(
            pos,
            "_?_:_",
            [CallNode(pos, "hasValue", [], target), present, CallNode(pos, "optional.none", [])],
        )

    return expand


def _bind(pos: int, target: ExprNode | None, args: list[ExprNode]) -> ExprNode | None:
    """`cel.bind(name, value, expression)`; no macro on any other target."""
    if not isinstance(target, IdentNode) or target.name != "cel":
        return None
    variable = _variable(args[0], "cel.bind() variable names must be simple identifiers")
    return ComprehensionNode(
        pos,
        ListNode(pos, []),
        "#unused",
        "",
        variable,
        args[1],
        ConstNode(pos, False),
        IdentNode(args[0].pos, variable),
        args[2],
    )


# Name, number of arguments, whether it is called on a target: the parser looks macros up here.
STANDARD_MACROS: dict[tuple[str, int, bool], Macro] = {
    ("has", 1, False): _has,
    ("all", 2, True): _all(1),
    ("exists", 2, True): _exists(1),
    ("exists_one", 2, True): _exists_one(1),
    ("existsOne", 2, True): _exists_one(1),
    ("map", 2, True): _collect(1),
    ("map", 3, True): _collect(1),
    ("filter", 2, True): _filter,
}
OPTIONAL_MACROS: dict[tuple[str, int, bool], Macro] = {
    ("optMap", 2, True): _opt_map(False),
    ("optFlatMap", 2, True): _opt_map(True),
}
BINDING_MACROS: dict[tuple[str, int, bool], Macro] = {("bind", 3, True): _bind}
TWO_VARIABLE_MACROS: dict[tuple[str, int, bool], Macro] = {
    ("all", 3, True): _all(2),
    ("exists", 3, True): _exists(2),
    ("existsOne", 3, True): _exists_one(2),
    ("exists_one", 3, True): _exists_one(2),
    ("transformList", 3, True): _collect(2),
    ("transformList", 4, True): _collect(2),
    ("transformMap", 3, True): _transform_map(False),
    ("transformMap", 4, True): _transform_map(False),
    ("transformMapEntry", 3, True): _transform_map(True),
    ("transformMapEntry", 4, True): _transform_map(True),
}
