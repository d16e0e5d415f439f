"""The type checker: gives every node of a tree its type and its overloads, or reports what is wrong
with cel-go's texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from transom.kit.cel import ast
from transom.kit.cel.errors import Issues
from transom.kit.cel.functions import Function, Overload
from transom.kit.cel.types import (
    BOOL,
    DYN,
    ERROR,
    INT,
    CelType,
    Substitution,
    is_assignable,
    is_dyn,
    list_type,
    map_type,
    most_general,
    optional_type,
    substitute,
    type_param,
)
from transom.kit.cel.values import type_of


class Declarations:
    """What an expression may refer to: variables, constants (such as type names), functions, fields
    of object types.
    """

    __slots__ = ("constants", "fields", "functions", "variables")

    def __init__(
        self,
        variables: Mapping[str, CelType],
        constants: Mapping[str, tuple[CelType, Any]],
        functions: Mapping[str, Function],
        fields: Mapping[str, Mapping[str, CelType]],
    ) -> None:
        self.variables, self.constants, self.functions, self.fields = (
            variables,
            constants,
            functions,
            fields,
        )


class Checker:
    def __init__(self, declarations: Declarations, issues: Issues) -> None:
        self._known = declarations
        self._issues = issues
        self._found: Substitution = {}
        self._scopes: list[dict[str, CelType]] = []
        self._fresh = 0
        self.references: set[str] = set()  # the variables that the expression uses
        # all nodes, and whether they are arguments of format()
        self.visited: list[tuple[ast.ExprNode, bool]] = []
        self.depth = 0

    def check(self, node: ast.ExprNode) -> CelType:
        """Check a whole expression and return its type."""
        self._check(node)
        self._settle(node)
        assert node.type is not None
        return node.type

    def _new_param(self) -> CelType:
        self._fresh += 1
        return type_param(f"_var{self._fresh}")

    # ---- nodes ----

    def _check(self, node: ast.ExprNode) -> CelType:
        kind = _CHECKS[type(node)](self, node)
        node.type = kind
        return kind

    def _const(self, node: ast.ConstNode) -> CelType:
        return type_of(node.value)

    def _lookup(self, name: str) -> tuple[CelType, Any] | None:
        if not name.startswith("."):
            for scope in reversed(self._scopes):
                if name in scope:
                    return scope[name], None
        name = name.removeprefix(".")
        declared = self._known.variables.get(name)
        if declared is not None:
            self.references.add(name)
            return declared, None
        return self._known.constants.get(name)

    def _ident(self, node: ast.IdentNode) -> CelType:
        found = self._lookup(node.name)
        if found is None:
            self._issues.report(
                node.pos,
                f"undeclared reference to '{node.name.removeprefix('.')}' (in container '')",
            )
            return ERROR
        node.name = node.name.removeprefix(".")
        node.constant = found[1]
        return found[0]

    def _select(self, node: ast.SelectNode) -> CelType:
        if not node.test_only:
            name = ast.qualified_name(node)
            if name is not None and not any(
                name.partition(".")[0] in scope for scope in self._scopes
            ):
                found = self._lookup(name)
                if found is not None:
                    node.qualified = ast.IdentNode(node.pos, name.removeprefix("."))
                    node.qualified.constant, node.qualified.type = found[1], found[0]
                    return found[0]
        target = substitute(self._found, self._check(node.operand))
        result = self._field(node.pos, target, node.field, optional=False)
        return BOOL if node.test_only else result

    def _field(self, pos: int, target: CelType, field: str, optional: bool) -> CelType:
        wrap = optional
        if target.kind == "opaque" and target.name == "optional_type":
            wrap = True
            target = target.params[0]
        result = ERROR
        if target.kind == "map":
            result = target.params[1]
        elif target.kind == "struct":
            fields = self._known.fields.get(target.name)
            if fields is None:
                self._issues.report(pos, f"unexpected failed resolution of '{target.name}'")
            elif field not in fields:
                self._issues.report(pos, f"undefined field '{field}'")
            else:
                result = fields[field]
        elif target.kind == "param":
            self._assign(target, DYN)
            result = DYN
        elif is_dyn(target):
            result = DYN
        else:
            self._issues.report(pos, f"type '{target}' does not support field selection")
        return optional_type(result) if wrap else result

    def _call(self, node: ast.CallNode) -> CelType:
        if node.function == "_?._":
            operand = substitute(self._found, self._check(node.args[0]))
            field = node.args[1]
            self._check(field)
            assert isinstance(field, ast.ConstNode)
            function = self._known.functions.get("_?._")
            if function is None:
                self._issues.report(node.pos, "unsupported syntax '.?'")
                return ERROR
            node.overloads = function.overloads
            return self._field(node.pos, operand, field.value, optional=True)
        for argument in node.args:
            self._check(argument)
        if node.target is not None:
            prefix = ast.qualified_name(node.target)
            if prefix is not None:
                function = self._known.functions.get(f"{prefix}.{node.function}".removeprefix("."))
                if function is not None:
                    node.function, node.target = function.name, None
                    return self._resolve(node, function)
            self._check(node.target)
        name = node.function.removeprefix(".")
        function = self._known.functions.get(name)
        if function is None:
            self._issues.report(node.pos, f"undeclared reference to '{name}' (in container '')")
            return ERROR
        node.function = name
        return self._resolve(node, function)

    def _resolve(self, node: ast.CallNode, function: Function) -> CelType:
        given: list[ast.ExprNode] = (
            [node.target, *node.args] if node.target is not None else node.args
        )
        types = [argument.type or DYN for argument in given]
        result: CelType | None = None
        matched: list[Overload] = []
        for overload in function.overloads:
            if overload.member != (node.target is not None) or len(overload.args) != len(types):
                continue
            if _differ(overload.args, types):
                continue
            params: dict[str, CelType] = {}
            found: Substitution | None = self._found
            for wanted, kind in zip(overload.args, types, strict=True):
                assert found is not None
                found = is_assignable(
                    found, self._instantiate(params, wanted) if overload.generic else wanted, kind
                )
                if found is None:
                    break
            if found is None:
                continue
            self._found = found
            matched.append(overload)
            kind = overload.result
            if overload.generic:
                kind = substitute(self._found, self._instantiate(params, kind))
            if result is None:
                result = kind
            elif not is_dyn(result) and result != kind:
                result = DYN
        if result is None:
            shown = [str(substitute(self._found, kind, True)) for kind in types]
            if node.target is not None:
                signature = f"{shown[0]}.({', '.join(shown[1:])})"
            else:
                signature = f"({', '.join(shown)})"
            self._issues.report(
                node.pos,
                f"found no matching overload for '{function.name}' applied to '{signature}'",
            )
            return ERROR
        node.overloads = tuple(matched)
        return result

    def _instantiate(self, params: dict[str, CelType], kind: CelType) -> CelType:
        if kind.kind == "param":
            if kind.name not in params:
                params[kind.name] = self._new_param()
            return params[kind.name]
        if not kind.params:
            return kind
        return CelType(
            kind.kind, kind.name, tuple(self._instantiate(params, p) for p in kind.params)
        )

    def _assign(self, to: CelType, given: CelType) -> bool:
        found = is_assignable(self._found, to, given)
        if found is None:
            return False
        self._found = found
        return True

    def _join(self, previous: CelType | None, current: CelType) -> CelType:
        if previous is None:
            return current
        if self._assign(previous, current):
            return most_general(previous, current)
        return DYN

    def _mismatch(self, pos: int, wanted: CelType, given: CelType) -> None:
        expected, actual = (
            substitute(self._found, wanted, True),
            substitute(self._found, given, True),
        )
        self._issues.report(pos, f"expected type '{expected}' but found '{actual}'")

    def _optional_item(self, item: ast.ExprNode) -> CelType:
        kind = substitute(self._found, self._check(item))
        if kind.kind == "opaque" and kind.name == "optional_type":
            return kind.params[0]
        if not is_dyn(kind):
            self._mismatch(item.pos, optional_type(kind), kind)
        return DYN

    def _list(self, node: ast.ListNode) -> CelType:
        joined: CelType | None = None
        for at, item in enumerate(node.items):
            kind = self._optional_item(item) if at in node.optional else self._check(item)
            joined = self._join(joined, kind)
        return list_type(self._new_param() if joined is None else joined)

    def _map(self, node: ast.MapNode) -> CelType:
        keys: CelType | None = None
        values: CelType | None = None
        for key, value, optional in node.entries:
            keys = self._join(keys, self._check(key))
            values = self._join(
                values, self._optional_item(value) if optional else self._check(value)
            )
        return map_type(
            self._new_param() if keys is None else keys,
            self._new_param() if values is None else values,
        )

    def _struct(self, node: ast.StructNode) -> CelType:
        name = node.name.removeprefix(".")
        fields = self._known.fields.get(name)
        if fields is None:
            self._issues.report(node.pos, f"undeclared reference to '{name}' (in container '')")
            for _, value, _, _ in node.fields:
                self._check(value)
            return ERROR
        node.name = name
        for field, value, optional, pos in node.fields:
            kind = self._optional_item(value) if optional else self._check(value)
            declared = fields.get(field)
            if declared is None:
                self._issues.report(pos, f"undefined field '{field}'")
            elif not self._assign(declared, kind):
                shown = substitute(self._found, kind, True)
                self._issues.report(
                    pos,
                    (
                        f"expected type of field '{field}' is '{declared}' but provided type is "
                        f"'{shown}'"
                    ),
                )
        return CelType("struct", name)

    def _comprehension(self, node: ast.ComprehensionNode) -> CelType:
        over = substitute(self._found, self._check(node.iter_range))
        accu = self._check(node.accu_init)
        first: CelType = DYN
        second: CelType = DYN
        if over.kind == "list":
            first, second = (INT, over.params[0]) if node.iter_var2 else (over.params[0], DYN)
        elif over.kind == "map":
            first, second = over.params
        elif over.kind == "param":
            self._assign(over, DYN)
        elif not is_dyn(over):
            self._issues.report(
                node.iter_range.pos,
                (
                    f"expression of type '{over}' cannot be range of a comprehension (must be "
                    "list, map, or dynamic)"
                ),
            )
            first = second = ERROR
        self._scopes.append({node.accu_var: accu})
        self._scopes.append(
            {node.iter_var: first, **({node.iter_var2: second} if node.iter_var2 else {})}
        )
        self._expect(node.condition, BOOL)
        self._expect(node.step, accu)
        self._scopes.pop()
        result = self._check(node.result)
        self._scopes.pop()
        return substitute(self._found, result)

    def _expect(self, node: ast.ExprNode, wanted: CelType) -> None:
        kind = self._check(node)
        if not self._assign(wanted, kind):
            self._mismatch(node.pos, wanted, kind)

    # ---- the end ----

    def _settle(self, node: ast.ExprNode) -> None:
        """Replace type parameters by what they turned out to be, and list all nodes."""
        waiting: list[tuple[ast.ExprNode, bool, int]] = [(node, False, 1)]
        while waiting:
            at, formatted, depth = waiting.pop()
            self.depth = max(self.depth, depth)
            self.visited.append((at, formatted))
            kind = at.type
            if kind is not None and (kind.params or kind.kind == "param"):
                at.type = substitute(self._found, kind, params_to_dyn=True)
            if type(at) is ast.CallNode and at.function == "format":
                formatted = True
            for child in _children(at):
                waiting.append((child, formatted, depth + 1))


_CHECKS: dict[type[ast.ExprNode], Callable[[Checker, Any], CelType]] = {
    ast.ConstNode: Checker._const,
    ast.IdentNode: Checker._ident,
    ast.SelectNode: Checker._select,
    ast.CallNode: Checker._call,
    ast.ListNode: Checker._list,
    ast.MapNode: Checker._map,
    ast.StructNode: Checker._struct,
    ast.ComprehensionNode: Checker._comprehension,
}
_OPEN = frozenset(("param", "dyn", "error", "null", "type"))


def _differ(wanted: tuple[CelType, ...], given: list[CelType]) -> bool:
    """Whether types obviously differ; this rules out most overloads."""
    for one, two in zip(wanted, given, strict=True):
        if one.kind != two.kind and one.kind not in _OPEN and two.kind not in _OPEN:
            return True
    return False


def _children(node: ast.ExprNode) -> Sequence[ast.ExprNode]:
    if isinstance(node, ast.ConstNode | ast.IdentNode):
        return ()
    if isinstance(node, ast.SelectNode):
        return (node.operand,) if node.qualified is None else ()
    if isinstance(node, ast.CallNode):
        return node.args if node.target is None else (node.target, *node.args)
    if isinstance(node, ast.ListNode):
        return node.items
    if isinstance(node, ast.MapNode):
        return [part for key, value, _ in node.entries for part in (key, value)]
    if isinstance(node, ast.StructNode):
        return [value for _, value, _, _ in node.fields]
    assert isinstance(node, ast.ComprehensionNode)
    return (node.iter_range, node.accu_init, node.condition, node.step, node.result)
