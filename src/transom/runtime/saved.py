"""Saves CRI configurations as JSON and loads them: records on disk outlive the process that wrote
them.
"""

from __future__ import annotations

import dataclasses
import json
import os
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, Union

T = TypeVar("T")


def save_record(path: Path, record: object) -> None:
    """Written atomically."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(json.dumps(record, default=_plain, separators=(",", ":")))
    os.rename(fresh, path)


def load_record(path: Path) -> dict[str, Any] | None:
    """None: it does not exist or cannot be read."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"not for a record: {type(value).__name__}")


def restore_record(kind: type[T], value: Any) -> T:
    """Loads what `save_record` has written for a dataclass or a NamedTuple. Missing fields have
    their defaults.
    """
    convert = _converter(typing.cast(Any, kind))
    return typing.cast(T, value if convert is None else convert(value))


Convert = Callable[[Any], Any]


@cache
def _converter(kind: Any) -> Convert | None:
    """The function that converts JSON to a value of this type; None where no conversion is
    necessary.
    """
    if dataclasses.is_dataclass(kind):
        return _record_converter(typing.cast(type, kind))
    if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        hints = typing.get_type_hints(kind)
        fields = [_converter(hints[name]) for name in kind._fields]
        return lambda value: kind(
            *(_converted(field, item) for field, item in zip(fields, value, strict=False))
        )
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        chosen = _converter(
            next(argument for argument in arguments if argument is not types.NoneType)
        )
        return (
            None
            if chosen is None
            else lambda value: None if value is None else _converted(chosen, value)
        )
    if origin is not tuple:
        return None
    if arguments[-1] is Ellipsis:
        inner = _converter(arguments[0])
        return tuple if inner is None else lambda value: tuple(map(inner, value))
    each = [_converter(argument) for argument in arguments]
    return lambda value: tuple(
        _converted(convert, item) for convert, item in zip(each, value, strict=True)
    )


def _record_converter(kind: type) -> Convert:
    converters = {name: _converter(hint) for name, hint in typing.get_type_hints(kind).items()}

    def convert(value: Any) -> Any:
        return kind(
            **{
                name: _converted(converters[name], item)
                for name, item in value.items()
                if name in converters
            }
        )

    return convert


def _converted(convert: Convert | None, value: Any) -> Any:
    return value if convert is None else convert(value)
