"""`typing.NamedTuple` that is cheap to declare, for modules that a cluster imports at its start.

The standard one compiles the annotation of each field and the constructor of each class: most of the
CPU time of a declaration. Here `__annotations__` contains the strings, as in other classes;
`typing.get_type_hints` evaluates them. The constructor is compiled when the first object is made.
Generic tuples need the standard one.
"""

from __future__ import annotations

from collections import _tuplegetter  # type: ignore[attr-defined]
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

__all__ = ["NamedTuple"]

_REPLACED = frozenset(("__new__", "__slots__", "__getnewargs__", "_fields", "_field_defaults"))
_GETTERS: list[Any] = []  # descriptors by index; all classes share them


class _NamedTupleMeta(type):
    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
        if not bases:
            return super().__new__(cls, name, bases, namespace)
        annotations: dict[str, str] = namespace.setdefault("__annotations__", {})
        optional = [field for field in annotations if field in namespace]
        if optional != list(annotations)[len(annotations) - len(optional) :]:
            raise TypeError(f"{name}: fields without a default cannot follow those with one")
        for key in _REPLACED.intersection(namespace):
            raise AttributeError(f"Cannot overwrite NamedTuple attribute {key}")
        defaults = {field: namespace.pop(field) for field in optional}
        fields = tuple(annotations)
        for field in fields:
            if field.startswith("_"):
                raise ValueError(f"Field names cannot start with an underscore: {field!r}")
        for index in range(len(_GETTERS), len(fields)):
            _GETTERS.append(_tuplegetter(index, f"Alias for field number {index}"))
        content = {
            "__doc__": f"{name}({', '.join(fields)})",
            "__slots__": (),
            "__match_args__": fields,
            "_fields": fields,
            "_field_defaults": defaults,
            **_METHODS,
            **dict(zip(fields, _GETTERS, strict=False)),
            **namespace,
        }
        made = type(name, (tuple,), content)
        setattr(made, "__new__", staticmethod(_first_new(made)))  # noqa: B010
        return made


def _first_new(made: Any) -> Callable[..., Any]:
    def __new__(cls: Any, /, *args: Any, **kwargs: Any) -> Any:
        new = _compile_new(made)
        made.__new__ = staticmethod(new)
        return new(cls, *args, **kwargs)

    return __new__


def _compile_new(made: Any) -> Callable[..., Any]:
    """The constructor that `collections.namedtuple` would have generated."""
    names = ", ".join(made._fields)
    source = f"lambda _cls, {names}: _tuple_new(_cls, ({names}{',' if names else ''}))"
    new: Callable[..., Any] = eval(source, {"_tuple_new": tuple.__new__})
    new.__name__ = "__new__"
    new.__qualname__ = f"{made.__name__}.__new__"
    new.__annotations__ = made.__annotations__
    new.__defaults__ = tuple(made._field_defaults.values()) or None
    return new


def _make(cls: Any, iterable: Iterable[Any]) -> Any:
    made = tuple.__new__(cls, iterable)
    if len(made) != len(cls._fields):
        raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
    return made


def _replace(self: Any, /, **changes: Any) -> Any:
    made = self._make(map(changes.pop, self._fields, self))
    if changes:
        raise ValueError(f"Got unexpected field names: {list(changes)!r}")
    return made


def _asdict(self: Any) -> dict[str, Any]:
    return dict(zip(self._fields, self, strict=True))


def _repr(self: Any) -> str:
    values = ", ".join(f"{n}={v!r}" for n, v in zip(self._fields, self, strict=True))
    return f"{type(self).__name__}({values})"


def _get_new_arguments(self: Any) -> tuple[Any, ...]:
    return tuple(self)


_METHODS = {
    "__getnewargs__": _get_new_arguments,
    "__repr__": _repr,
    "_asdict": _asdict,
    "_make": classmethod(_make),
    "_replace": _replace,
}

if TYPE_CHECKING:
    from typing import NamedTuple
else:

    class NamedTuple(metaclass=_NamedTupleMeta):
        """The base of named tuples, which are subclasses of `tuple` only."""
