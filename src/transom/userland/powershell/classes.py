"""`class` and `enum`: definitions, instances, their methods."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from transom.userland.powershell.casts import cast_value
from transom.userland.powershell.control import Return, call_depth_error
from transom.userland.powershell.defined_types import DefinedType, MethodScope
from transom.userland.powershell.dotnet_collections import typed_array
from transom.userland.powershell.parameters import parameter_value
from transom.userland.powershell.session import PowerShellSession
from transom.userland.powershell.tree import ClassMember, ClassStatement, EnumStatement
from transom.userland.powershell.values import (
    Hashtable,
    PowerShellError,
    PsObject,
    ScriptBlock,
    VariableScope,
    to_items,
    to_text,
    unrolled,
)

_ZERO = {
    "int": 0,
    "int32": 0,
    "int64": 0,
    "long": 0,
    "double": 0.0,
    "bool": False,
    "boolean": False,
}


def define_enum(evaluator: PowerShellSession, node: EnumStatement) -> None:
    evaluator.types[node.name.lower()] = DefinedType(node.name, dict(node.members))


async def define_class(evaluator: PowerShellSession, node: ClassStatement) -> None:
    base = evaluator.types.get(node.base.lower()) if node.base else None
    made = DefinedType(node.name, None, node.members, base)
    evaluator.types[node.name.lower()] = made
    for member in node.members:
        if member.static and member.script is None:
            made.statics[member.name.lower()] = await _initial(evaluator, member)


async def _initial(evaluator: PowerShellSession, member: ClassMember) -> Any:
    if member.default is not None:
        value = await evaluator.value(member.default)
        return cast_defined(evaluator, member.type, value) if member.type else value
    return _ZERO.get(member.type.lower())


def enum_value(made: DefinedType, name: str) -> PsObject:
    """By name or number."""
    for member, number in (made.values or {}).items():
        if name.lower() in (member.lower(), str(number)):
            return PsObject(made.name, {"value__": number}, member)
    names = ",".join(made.values or {})
    raise PowerShellError(
        f'Cannot convert value "{name}" to type "{made.name}". Error: "Unable to match the '
        f"identifier name {name} to a valid enumerator name. Specify one of the following "
        f'enumerator names and try again:\r\n{names.replace(",", ", ")}"',
        "InvalidArgument: (:) [], RuntimeException",
        "InvalidCastFromStringToEnumeration",
    )


def cast_defined(evaluator: PowerShellSession, kind: str, value: Any) -> Any:
    """A cast to a type of the script, or of .NET."""
    made = evaluator.types.get(kind.lower())
    if made is None and kind.endswith("[]") and kind[:-2].lower() in evaluator.types:
        items = [cast_defined(evaluator, kind[:-2], one) for one in to_items(value)]
        return typed_array(kind[:-2], items)
    if made is None:
        return cast_value(kind, value)
    if made.values is not None:
        return value if isinstance(value, PsObject) else enum_value(made, to_text(value))
    return value


def set_member(evaluator: PowerShellSession, kind: str, name: str, value: Any) -> None:
    """`[type]::name = value`"""
    made = evaluator.types.get(kind.lower())
    table = made.statics if made is not None else evaluator.static_values.setdefault(kind, {})
    table[name.lower()] = value


async def _call(
    evaluator: PowerShellSession,
    found: list[ClassMember],
    arguments: list[Any],
    this: Any,
    construct: Callable[[ClassMember], Awaitable[None]] | None = None,
) -> Any:
    """`construct` calls the constructor of the base class, with the parameters in scope."""
    fitting = [
        one
        for one in found
        if one.script is not None and len(one.script.parameters) == len(arguments)
    ]
    if not fitting or fitting[0].script is None:
        raise PowerShellError(
            f'Cannot find an overload for "{found[0].name}" and the argument count: '
            f'"{len(arguments)}".',
            "NotSpecified: (:) [], MethodException",
            "MethodCountCouldNotFindBest",
        )
    member, script = fitting[0], fitting[0].script
    scope = MethodScope({"this": this})
    for parameter, value in zip(script.parameters, arguments, strict=True):
        scope[parameter.name.lower()] = parameter_value(parameter, value, member.name)
    if construct is not None:
        evaluator.scopes.append(scope)
        try:
            await construct(member)
        finally:
            evaluator.scopes.pop()
    saved, evaluator.emit = evaluator.emit, _discard
    evaluator.scopes.append(scope)
    try:
        await evaluator.block(script.body)
    except Return:
        pass  # `scope` has the value
    except RecursionError:
        raise call_depth_error() from None
    finally:
        evaluator.scopes.pop()
        evaluator.emit = saved
    if member.type.lower() in ("", "void") or scope.result is None:
        return scope.result
    return cast_defined(evaluator, member.type, scope.result)


def _discard(value: Any) -> None:
    """Only what a method returns is its output."""


async def _new(evaluator: PowerShellSession, made: DefinedType, arguments: list[Any]) -> PsObject:
    this = PsObject(made.name, {})
    for member in made.properties():
        this.properties[member.name] = await _initial(evaluator, member)
    this.hidden = frozenset(one.name for one in made.properties() if one.hidden)
    await _construct(evaluator, made, arguments, this)
    return this


async def _construct(
    evaluator: PowerShellSession, made: DefinedType, arguments: list[Any], this: PsObject
) -> None:
    """Runs a constructor, after that of the base class."""

    async def construct_base(member: ClassMember) -> None:
        if made.base is not None:
            given = [await evaluator.value(one) for one in member.base_arguments or ()]
            await _construct(evaluator, made.base, given, this)

    constructors = made.own_methods(made.name, static=False)
    if constructors:
        await _call(evaluator, constructors, arguments, this, construct_base)
        return
    if made.base is not None:
        await _construct(evaluator, made.base, [], this)
    if len(arguments) == 1 and isinstance(arguments[0], Hashtable):
        this.properties.update({to_text(key): value for key, value in arguments[0].items()})


def defined_static(
    evaluator: PowerShellSession, made: DefinedType, name: str, arguments: list[Any] | None
) -> Any:
    """`[type]::name`, or a call of it."""
    lower = name.lower()
    if made.values is not None:
        return enum_value(made, name)
    if arguments is None:
        return made.statics.get(lower)
    if lower == "new":
        return _new(evaluator, made, arguments)
    found = made.methods(name, static=True)
    if found:
        return _call(evaluator, found, arguments, None)
    raise PowerShellError(
        f"Method invocation failed because [{made.name}] does not contain a method named '{name}'.",
        f"InvalidOperation: ({name}:String) [], RuntimeException",
        "MethodNotFound",
    )


async def _call_script_method(
    evaluator: PowerShellSession, block: ScriptBlock, this: PsObject, arguments: list[Any]
) -> Any:
    """A method that Add-Member has added."""
    evaluator.scopes.append(VariableScope({"this": this}))
    try:
        return unrolled(await evaluator.invoke_with(block, arguments))
    finally:
        evaluator.scopes.pop()


def defined_method(
    evaluator: PowerShellSession, target: Any, name: str, arguments: list[Any], seen_as: str = ""
) -> Any:
    """A call of a method of an instance; None if neither its class nor Add-Member has defined one
    of this name. `seen_as` is the class that the instance was cast to: its method is called.
    """
    if isinstance(target, PsObject) and target.script_methods:
        block = target.script_methods.get(name.lower())
        if block is not None:
            return _call_script_method(evaluator, block, target, arguments)
    kind = seen_as or (target.kind if isinstance(target, PsObject) else "")
    made = evaluator.types.get(kind.lower()) if isinstance(target, PsObject) else None
    found = made.methods(name, static=False) if made is not None else []
    return _call(evaluator, found, arguments, target) if found else None
