"""The syntax tree of a CEL expression. The checker fills in `type` and `overloads`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transom.kit.cel.functions import Overload
    from transom.kit.cel.types import CelType


class ExprNode:
    __slots__ = ("pos", "type")

    def __init__(self, pos: int) -> None:
        self.pos = pos
        self.type: CelType | None = None


class ConstNode(ExprNode):
    __slots__ = ("value",)

    def __init__(self, pos: int, value: Any) -> None:
        super().__init__(pos)
        self.value = value


class IdentNode(ExprNode):
    __slots__ = ("constant", "name")

    def __init__(self, pos: int, name: str) -> None:
        super().__init__(pos)
        self.name = name
        self.constant: Any = (
            None  # the value of a name that is known when the expression is compiled
        )


class SelectNode(ExprNode):
    """`operand.field`, or `has(operand.field)`. A name with dots is `qualified`."""

    __slots__ = ("field", "operand", "qualified", "test_only")

    def __init__(self, pos: int, operand: ExprNode, field: str, test_only: bool = False) -> None:
        super().__init__(pos)
        self.operand, self.field, self.test_only = operand, field, test_only
        self.qualified: IdentNode | None = None


class CallNode(ExprNode):
    __slots__ = ("args", "function", "overloads", "target")

    def __init__(
        self, pos: int, function: str, args: list[ExprNode], target: ExprNode | None = None
    ) -> None:
        super().__init__(pos)
        self.function, self.args, self.target = function, args, target
        self.overloads: tuple[Overload, ...] = ()


class ListNode(ExprNode):
    __slots__ = ("items", "optional")

    def __init__(
        self, pos: int, items: list[ExprNode], optional: frozenset[int] = frozenset()
    ) -> None:
        super().__init__(pos)
        self.items, self.optional = items, optional


class MapNode(ExprNode):
    __slots__ = ("entries",)

    def __init__(self, pos: int, entries: list[tuple[ExprNode, ExprNode, bool]]) -> None:
        super().__init__(pos)
        self.entries = entries


class StructNode(ExprNode):
    __slots__ = ("fields", "name")

    def __init__(self, pos: int, name: str, fields: list[tuple[str, ExprNode, bool, int]]) -> None:
        super().__init__(pos)
        self.name, self.fields = name, fields


class ComprehensionNode(ExprNode):
    __slots__ = (
        "accu_init",
        "accu_var",
        "condition",
        "iter_range",
        "iter_var",
        "iter_var2",
        "result",
        "step",
    )

    def __init__(
        self,
        pos: int,
        iter_range: ExprNode,
        iter_var: str,
        iter_var2: str,
        accu_var: str,
        accu_init: ExprNode,
        condition: ExprNode,
        step: ExprNode,
        result: ExprNode,
    ) -> None:
        super().__init__(pos)
        self.iter_range, self.iter_var, self.iter_var2 = iter_range, iter_var, iter_var2
        self.accu_var, self.accu_init = accu_var, accu_init
        self.condition, self.step, self.result = condition, step, result


def qualified_name(node: ExprNode) -> str | None:
    """`a.b.c` of nested selections, None if it is anything else."""
    parts: list[str] = []
    while isinstance(node, SelectNode) and not node.test_only:
        parts.append(node.field)
        node = node.operand
    if not isinstance(node, IdentNode):
        return None
    parts.append(node.name)
    return ".".join(reversed(parts))
