"""The configurations of CRI as JSON and back: records on disk outlive the process that made them."""

from __future__ import annotations

import dataclasses
import json
import os
import types
import typing
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, Union

T = TypeVar("T")


def save(path: Path, record: object) -> None:
    """Whole or not at all."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(json.dumps(record, default=_plain, separators=(",", ":")))
    os.rename(fresh, path)


def load(path: Path) -> dict[str, Any] | None:
    """None: there is none that could be read."""
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


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def restore(kind: type[T], value: Any) -> T:
    """What `save` has written of a dataclass or a NamedTuple. Fields that are not there have their defaults."""
    return _restored(kind, value)


def _restored(kind: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(kind):
        hints = _hints(typing.cast(type, kind))
        return typing.cast(Any, kind)(**{name: _restored(hints[name], item) for name, item in value.items() if name in hints})
    if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        hints = _hints(kind)
        return kind(*(_restored(hints[name], item) for name, item in zip(kind._fields, value, strict=False)))
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        chosen = next(argument for argument in arguments if argument is not types.NoneType)
        return None if value is None else _restored(chosen, value)
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            return tuple(_restored(arguments[0], item) for item in value)
        return tuple(_restored(argument, item) for argument, item in zip(arguments, value, strict=True))
    return value
