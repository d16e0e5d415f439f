"""Evaluates PowerShell expressions and assignments in a session. The evaluator of statements extends
this one.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from transom.userland.limits import bounded
from transom.userland.powershell import members
from transom.userland.powershell.casts import convert_value
from transom.userland.powershell.classes import (
    cast_defined,
    defined_method,
    defined_static,
    set_member,
)
from transom.userland.powershell.cmdlets_item_properties import set_file_property
from transom.userland.powershell.dotnet_collections import convert_element
from transom.userland.powershell.operators import OPERATORS, expression
from transom.userland.powershell.session import PowerShellSession
from transom.userland.powershell.static_members import static_member
from transom.userland.powershell.tree import (
    ArrayExpression,
    ArrayLiteral,
    Assignment,
    BinaryExpression,
    CastExpression,
    CommandNode,
    ExpandableString,
    HashtableLiteral,
    IncrementExpression,
    IndexExpression,
    MemberExpression,
    Parenthesized,
    PipelineNode,
    PsNode,
    ScriptBlockLiteral,
    StatementValue,
    StaticMemberExpression,
    SubExpression,
    TypeLiteral,
    UnaryExpression,
    ValueLiteral,
    VariableReference,
)
from transom.userland.powershell.values import (
    CUSTOM_OBJECT,
    Allocated,
    Hashtable,
    OrderedDictionary,
    PowerShellError,
    PsObject,
    ScriptBlock,
    TypedArray,
    TypeName,
    VariableLink,
    VariableScope,
    to_bool,
    to_items,
    to_number,
    to_text,
    unrolled,
)
from transom.userland.powershell.xml_objects import XmlObject

log = logging.getLogger("transom.runtime")


@contextmanager
def _no_overload(name: str, arguments: list[Any]) -> Iterator[None]:
    """Reports arguments that a method of .NET does not take, by their number or type."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as problem:
        log.debug("%s%r: %r", name, arguments, problem)
        raise PowerShellError(
            f'Cannot find an overload for "{name}" and the argument count: "{len(arguments)}".',
            "NotSpecified: (:) [], MethodException",
            "MethodCountCouldNotFindBest",
        ) from problem


class ExpressionEvaluator(PowerShellSession):
    """Evaluates expressions; statements inside of them are run by the subclass."""

    async def assign_statement(self, node: Assignment) -> None:
        operator, target, source = node.operator, node.target, node.source
        if isinstance(source, CommandNode | PipelineNode | StatementValue | Assignment):
            inner = source.statement if isinstance(source, StatementValue) else source
            value = (
                await self._assigned(inner)
                if isinstance(inner, Assignment)
                else unrolled(await self.collect(inner))
            )
        else:
            value = await self.value(source)
        if operator != "=":
            value = OPERATORS[operator[0]](await self.value(target), value)
        await self.assign(target, value)
        self.success = True

    async def _assigned(self, node: Assignment) -> Any:
        await self.assign_statement(node)
        return await self.value(node.target)

    async def _assign_several(self, target: ArrayLiteral, values: list[Any]) -> None:
        """`$first, $second, $rest = ...`: the last variable takes the rest."""
        last = len(target.items) - 1
        for index, single in enumerate(target.items):
            one = values[index] if index < len(values) else None
            await self.assign(single, values[index:] if index == last < len(values) - 1 else one)

    async def assign(self, target: PsNode, value: Any) -> None:
        if isinstance(target, VariableReference):
            scope, name = self.scope_of(target.name)
            declared = scope.types.get(name)
            self.put(target.name, self._as_declared(declared, value) if declared else value)
        elif isinstance(target, CastExpression):
            operand = target.operand
            if isinstance(operand, VariableReference):
                self.put(operand.name, self._as_declared(target.type, value))
                scope, name = self.scope_of(operand.name)
                scope.types[name] = target.type
                return
            await self.assign(operand, cast_defined(self, target.type, value))
        elif isinstance(target, ArrayLiteral):
            await self._assign_several(target, to_items(value))
        elif isinstance(target, IndexExpression):
            container, key = await self.value(target.target), await self.value(target.index)
            if isinstance(container, Hashtable):
                container.put(key, value)
            elif isinstance(container, list):
                self._set_element(container, int(to_number(key)), value)
        elif isinstance(target, MemberExpression):
            container, name = (
                await self.value(target.target),
                to_text(await self.value(target.name)),
            )
            if isinstance(container, Hashtable | XmlObject):
                container.put(name, value)
            elif isinstance(container, PsObject):
                if container.kind.startswith("System.IO.") and set_file_property(
                    self, container, name, value
                ):
                    return
                if isinstance(container, VariableLink):
                    container.set(value)
                    return
                if container.kind == CUSTOM_OBJECT:
                    members.check_property(container, name)
                known = next(
                    (key for key in container.properties if key.lower() == name.lower()), name
                )
                container.properties[known] = value
                await self.refresh(container)
        elif isinstance(target, StaticMemberExpression):
            owner = await self.value(target.target)
            name = to_text(await self.value(target.name))
            set_member(self, owner.name if isinstance(owner, TypeName) else "", name, value)
        else:
            raise PowerShellError("The assignment expression is not valid.")

    def _as_declared(self, kind: str, value: Any) -> Any:
        """The value of a variable that was declared with a type."""
        try:
            return cast_defined(self, kind, value)
        except PowerShellError as problem:
            if problem.identity == "TypeNotFound":
                raise
            raise PowerShellError(
                problem.message,
                "MetadataError: (:) [], ArgumentTransformationMetadataException",
                "RuntimeException",
            ) from None

    def _set_element(self, container: list[Any], index: int, value: Any) -> None:
        if not -len(container) <= index < len(container):
            if isinstance(container, Allocated) and index < container.size:
                return
            raise PowerShellError(
                "Index was outside the bounds of the array.",
                "OperationStopped: (:) [], IndexOutOfRangeException",
                "System.IndexOutOfRangeException",
            )
        if isinstance(container, TypedArray):
            value = convert_element(container, index, value, convert_value)
        container[index] = value

    async def value(self, node: PsNode) -> Any:
        evaluate = _EXPRESSIONS.get(type(node))
        if evaluate is not None:
            return await evaluate(self, node)
        return unrolled(await self.collect(node))

    async def _value(self, node: ValueLiteral) -> Any:
        return node.value

    async def refresh(self, target: PsObject, only: str = "") -> None:
        for name, block in (target.script_properties or {}).items():
            if only and only.lower() != name.lower():
                continue
            self.scopes.append(VariableScope({"this": target}))
            try:
                target.properties[name] = unrolled(await self.invoke_with(block, []))
            finally:
                self.scopes.pop()

    async def _text(self, node: ExpandableString) -> str:
        return bounded("".join([await self._part(part) for part in node.parts]))

    async def _part(self, node: PsNode) -> str:
        """A value in an expandable string: classes can define ToString, $OFS is between items."""
        value = await self.value(node)
        if isinstance(value, PsObject):
            own = defined_method(self, value, "ToString", [])
            return to_text(await own if inspect.isawaitable(own) else value)
        if isinstance(value, list) and self.defines("ofs"):
            return bounded(to_text(self.get("ofs")).join(to_text(one) for one in value))
        return to_text(value)

    async def _variable(self, node: VariableReference) -> Any:
        if self.strict and not self.defines(node.name):
            raise PowerShellError(
                f"The variable '${node.name}' cannot be retrieved because it has not been set.",
                f"InvalidOperation: ({node.name}:String) [], RuntimeException",
                "VariableIsUndefined",
            )
        return self.get(node.name)

    async def _subexpression(self, node: SubExpression) -> Any:
        return unrolled(await self.collect(node.body))

    async def _list(self, node: ArrayExpression) -> list[Any]:
        out: list[Any] = []
        for value in await self.collect(node.body):
            out.extend(to_items(value) if isinstance(value, range) else [value])
        return out

    async def _array(self, node: ArrayLiteral) -> list[Any]:
        return [await self.value(item) for item in node.items]

    async def _group(self, node: Parenthesized) -> Any:
        if isinstance(node.inner, Assignment):
            return await self._assigned(node.inner)
        return await self.value(node.inner)

    async def _hashtable(self, node: HashtableLiteral) -> Hashtable:
        out = Hashtable()
        for key, value in node.pairs:
            out.put(await self.value(key), await self.value(value))
        return out

    async def _script_block(self, node: ScriptBlockLiteral) -> ScriptBlock:
        return ScriptBlock(node.parameters, node.body, node.binding, node.text)

    async def _type(self, node: TypeLiteral) -> TypeName:
        return TypeName(node.name)

    async def _cast(self, node: CastExpression) -> Any:
        operand = node.operand
        if node.type.lower() == "ref" and isinstance(operand, VariableReference):
            return VariableLink(self.get(operand.name), partial(self.put, operand.name))
        return cast_defined(self, node.type, await self.value(node.operand))

    async def _unary(self, node: UnaryExpression) -> Any:
        value = await self.value(node.operand)
        if node.operator == "-not":
            return not to_bool(value)
        if node.operator == "-join":
            return "".join(to_text(item) for item in to_items(value))
        if node.operator in ("-split", "-isplit", "-csplit"):
            return to_text(value).split()
        if node.operator == "-bnot":
            return ~int(to_number(value))
        return -to_number(value) if node.operator == "-" else to_number(value)

    async def _operator(self, node: BinaryExpression) -> Any:
        operator = node.operator
        left = await self.value(node.left)
        if operator == "-and":
            return to_bool(left) and to_bool(await self.value(node.right))
        if operator == "-or":
            return to_bool(left) or to_bool(await self.value(node.right))
        right = await self.value(node.right)
        if operator in ("-match", "-imatch", "-cmatch"):
            return self._match(left, to_text(right), operator != "-cmatch")
        if operator == "-as":
            try:
                return cast_defined(
                    self,
                    right.name if isinstance(right, TypeName) else to_text(right),
                    left,
                )
            except PowerShellError:
                return None
        return OPERATORS[operator](left, right)

    def _match(self, left: Any, pattern: str, fold: bool) -> Any:
        compiled = expression(pattern, fold)
        if isinstance(left, list):
            return [item for item in left if compiled.search(to_text(item))]
        found = compiled.search(to_text(left))
        if found is not None:
            groups = Hashtable(enumerate((found[0], *found.groups())))
            groups.update(found.groupdict())
            self.put("matches", groups)
        return found is not None

    async def _change(self, node: IncrementExpression) -> Any:
        old = to_number(await self.value(node.target))
        new = old + (1 if node.operator == "++" else -1)
        await self.assign(node.target, new)
        return old if node.postfix else new

    async def _index(self, node: IndexExpression) -> Any:
        container, key = await self.value(node.target), await self.value(node.index)
        if isinstance(container, OrderedDictionary) and isinstance(key, int):
            return members.item_at(list(container.values()), key)
        if isinstance(container, Hashtable):
            return container.find(key)
        if isinstance(container, list) and isinstance(key, str) and not key.lstrip("-").isdigit():
            named = [one for one in container if isinstance(one, PsObject)]
            return next(
                (one for one in named if to_text(one.get("Name")).lower() == key.lower()), None
            )
        if isinstance(key, list):
            return [members.item_at(container, int(to_number(one))) for one in key]
        if isinstance(container, PsObject):
            return container.get(to_text(key))
        return members.item_at(container, int(to_number(key)))

    async def _member(self, node: MemberExpression) -> Any:
        target = await self.value(node.target)
        name = to_text(await self.value(node.name))
        if node.arguments is None:
            if self.strict > 1 and isinstance(target, PsObject | bool | int | float | str):
                members.check_property(target, name)
            if isinstance(target, PsObject) and target.script_properties:
                await self.refresh(target, name)
            return members.get_property(self, target, name)
        arguments = [await self.value(argument) for argument in node.arguments]
        inner = node.target.inner if isinstance(node.target, Parenthesized) else None
        seen_as = inner.type if isinstance(inner, CastExpression) else ""
        with _no_overload(name, arguments):
            result = defined_method(self, target, name, arguments, seen_as)
            if result is None:
                result = members.call_method(self, target, name, arguments)
            return await result if inspect.isawaitable(result) else result

    async def _static(self, node: StaticMemberExpression) -> Any:
        target = await self.value(node.target)
        name = to_text(await self.value(node.name))
        arguments = (
            [await self.value(argument) for argument in node.arguments]
            if node.arguments is not None
            else None
        )
        kind = target.name if isinstance(target, TypeName) else to_text(target)
        made = self.types.get(kind.lower())
        with _no_overload(name, arguments or []):
            result = (
                defined_static(self, made, name, arguments)
                if made is not None
                else static_member(self, kind, name, arguments)
            )
            return await result if inspect.isawaitable(result) else result


_EXPRESSIONS: dict[type, Callable[[ExpressionEvaluator, Any], Awaitable[Any]]] = {
    ValueLiteral: ExpressionEvaluator._value,
    ExpandableString: ExpressionEvaluator._text,
    VariableReference: ExpressionEvaluator._variable,
    SubExpression: ExpressionEvaluator._subexpression,
    ArrayExpression: ExpressionEvaluator._list,
    ArrayLiteral: ExpressionEvaluator._array,
    Parenthesized: ExpressionEvaluator._group,
    HashtableLiteral: ExpressionEvaluator._hashtable,
    ScriptBlockLiteral: ExpressionEvaluator._script_block,
    TypeLiteral: ExpressionEvaluator._type,
    CastExpression: ExpressionEvaluator._cast,
    UnaryExpression: ExpressionEvaluator._unary,
    BinaryExpression: ExpressionEvaluator._operator,
    IncrementExpression: ExpressionEvaluator._change,
    IndexExpression: ExpressionEvaluator._index,
    MemberExpression: ExpressionEvaluator._member,
    StaticMemberExpression: ExpressionEvaluator._static,
}
