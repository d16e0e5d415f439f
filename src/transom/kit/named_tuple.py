"""`typing.NamedTuple` that is cheap to declare, for modules that a cluster imports at its start.

The standard one compiles the annotation of each field: half of the CPU time of a declaration.
Here `__annotations__` contains the strings, as in other classes; `typing.get_type_hints`
evaluates them. Generic tuples need the standard one.
"""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any

__all__ = ["NamedTuple"]

_REPLACED = frozenset(("__new__", "__slots__", "__getnewargs__", "_fields", "_field_defaults"))


class _NamedTupleMeta(type):
    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
        if not bases:
            return super().__new__(cls, name, bases, namespace)
        annotations: dict[str, str] = namespace.pop("__annotations__", {})
        optional = [field for field in annotations if field in namespace]
        if optional != list(annotations)[len(annotations) - len(optional) :]:
            raise TypeError(f"{name}: fields without a default cannot follow those with one")
        defaults = [namespace.pop(field) for field in optional]
        for key in _REPLACED.intersection(namespace):
            raise AttributeError(f"Cannot overwrite NamedTuple attribute {key}")
        declare: Any = namedtuple
        made = declare(name, annotations, defaults=defaults, module=namespace["__module__"])
        made.__annotations__ = made.__new__.__annotations__ = annotations
        for key, value in namespace.items():
            setattr(made, key, value)
        return made


if TYPE_CHECKING:
    from typing import NamedTuple
else:

    class NamedTuple(metaclass=_NamedTupleMeta):
        """The base of named tuples, which are subclasses of `tuple` only."""
