"""`dataclass(slots=True)` that is cheap to declare, for modules that a cluster imports at its start.

The standard decorator compiles up to six methods of each class when its module is imported, which
was a quarter of the CPU time of all imports. Here `__init__` is compiled when the first object is
made, and the other methods are closures over the fields. Fields, `field` and `asdict` are the
standard library's; `replace` works with classes of both, and is several times faster here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Literal, TypeVar

__all__ = ["dataclass", "replace"]

Fields = dict[str, "dataclasses.Field[Any]"]
T = TypeVar("T")


def replace(obj: T, /, **changes: Any) -> T:
    """A copy of an object of a dataclass with other values for these fields."""
    kind: Any = type(obj)
    names, values = _init_fields(kind)
    copy: T = kind(**dict(zip(names, values(obj), strict=True)) | changes)
    return copy


@cache
def _init_fields(cls: Any) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """The fields that `__init__` takes, and what reads them from an object."""
    names = tuple(field.name for field in dataclasses.fields(cls) if field.init)
    if len(names) == 1:
        return names, lambda obj: (getattr(obj, names[0]),)
    return names, _values(list(names))


def _dataclass(
    *, slots: Literal[True], frozen: bool = False, eq: bool = True
) -> Callable[[type], type]:
    def decorate(cls: type) -> type:
        if cls.__doc__ is None:
            cls.__doc__ = cls.__name__  # else the standard library inspects the signature for it
        dataclasses.dataclass(cls, init=False, repr=False, eq=False)  # finds the fields
        fields = {field.name: field for field in dataclasses.fields(cls)}
        holder: list[type] = []
        methods = _init_and_repr(holder, fields, frozen=frozen)
        if eq:
            methods |= _equality(fields, frozen=frozen)
        if frozen:
            methods |= _immutability(holder, fields)
        holder.append(_with_slots(cls, fields, methods))
        return holder[0]

    return decorate


if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    dataclass = _dataclass


def _with_slots(cls: type, fields: Fields, methods: dict[str, Any]) -> type:
    """The class again, with slots for its own fields and those methods that it does not define."""
    inherited = {slot for base in cls.__mro__[1:-1] for slot in base.__dict__.get("__slots__", ())}
    left_out = {*fields, "__dict__", "__weakref__"}
    content = {name: value for name, value in cls.__dict__.items() if name not in left_out}
    if "__eq__" in content and content["__hash__"] is None:
        del content["__hash__"]  # implied by __eq__
    content["__slots__"] = tuple(name for name in fields if name not in inherited)
    made = type(cls)(cls.__name__, cls.__bases__, methods | content)
    made.__qualname__ = cls.__qualname__
    return made


def _init_and_repr(holder: list[type], fields: Fields, *, frozen: bool) -> dict[str, Any]:
    """`holder` will contain the class."""
    shown = [name for name, field in fields.items() if field.repr]

    def __init__(self: Any, /, *args: Any, **kwargs: Any) -> None:
        init = _compile_init(holder[0], frozen=frozen)
        setattr(holder[0], "__init__", init)  # noqa: B010
        init(self, *args, **kwargs)

    @recursive_repr()
    def __repr__(self: Any) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{type(self).__qualname__}({values})"

    return {"__init__": __init__, "__repr__": __repr__}


def _compile_init(cls: type, *, frozen: bool) -> Callable[..., None]:
    """The method that `dataclasses` would have generated."""
    names: dict[str, Any] = {"_set": object.__setattr__, "_missing": dataclasses.MISSING}
    positional, keywords, body = ["self"], list[str](), list[str]()
    for field in dataclasses.fields(cls):
        default, value = f"_default_{field.name}", field.name
        is_factory = field.default_factory is not dataclasses.MISSING
        is_optional = is_factory or field.default is not dataclasses.MISSING
        names[default] = field.default_factory if is_factory else field.default
        if field.init:
            if is_factory:
                value = f"{default}() if {value} is _missing else {value}"
            argument = field.name
            if is_optional:
                argument += "=_missing" if is_factory else f"={default}"
            (keywords if field.kw_only else positional).append(argument)
        elif is_optional:
            value = default + "()" * is_factory
        else:
            continue  # __post_init__ or a method sets it
        name = field.name
        body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = [*positional, *(["*", *keywords] if keywords else [])]
    exec(f"def __init__({', '.join(parameters)}): {'; '.join(body) or 'pass'}", names)
    init: Callable[..., None] = names["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _equality(fields: Fields, *, frozen: bool) -> dict[str, Any]:
    compared = _values([name for name, field in fields.items() if field.compare])

    def __eq__(self: Any, other: object) -> Any:
        if type(other) is not type(self):
            return NotImplemented
        return self is other or compared(self) == compared(other)

    if not frozen:
        return {"__eq__": __eq__, "__hash__": None}
    hashed = _values([n for n, f in fields.items() if (f.compare if f.hash is None else f.hash)])

    def __hash__(self: Any) -> int:
        return hash(hashed(self))

    return {"__eq__": __eq__, "__hash__": __hash__}


def _values(names: list[str]) -> Callable[[Any], Any]:
    return attrgetter(*names) if names else lambda _: ()


def _immutability(holder: list[type], fields: Fields) -> dict[str, Any]:
    def __setattr__(self: Any, name: str, value: Any) -> None:
        kind: Any = holder[0]
        if type(self) is kind or name in fields:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(kind, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        kind: Any = holder[0]
        if type(self) is kind or name in fields:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(kind, self).__delattr__(name)

    return {
        "__setattr__": __setattr__,
        "__delattr__": __delattr__,
        "__getstate__": _get_state,
        "__setstate__": _set_state,
    }


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
