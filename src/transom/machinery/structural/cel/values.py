"""Converts JSON to CEL values according to its schema. Values are converted on access."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson

from transom.kit.cel.errors import CelError
from transom.kit.cel.times import parse_cel_duration, parse_timestamp
from transom.kit.cel.values import NONE, CelList, CelMap, Optional, cel_equals, is_list
from transom.machinery.structural.cel.declarations import (
    EMBEDDED,
    INT_OR_STRING,
    Schema,
    escape_identifier,
    with_object_fields,
)

Convert = Callable[[Any], Any]


class ObjectView(CelMap):
    """An object with the fields that its schema declares, under their CEL names."""

    __slots__ = ("_data", "_fields")

    def __init__(
        self, data: dict[str, Any], fields: Mapping[str, tuple[str, Convert | None]]
    ) -> None:
        self._data, self._fields = data, fields

    def find(self, key: Any) -> Optional:
        field = self._fields.get(key)
        if field is None or field[0] not in self._data:
            return NONE
        value = self._data[field[0]]
        return Optional(True, value if field[1] is None else field[1](value))

    def is_set(self, key: Any) -> bool:
        field = self._fields.get(key)
        return field is not None and field[0] in self._data

    def __iter__(self) -> Iterator[str]:
        return (name for name, (raw, _) in self._fields.items() if raw in self._data)

    def __len__(self) -> int:
        return sum(raw in self._data for raw, _ in self._fields.values())


class MapView(CelMap):
    __slots__ = ("_convert", "_data")

    def __init__(self, data: dict[str, Any], convert: Convert) -> None:
        self._data, self._convert = data, convert

    def find(self, key: Any) -> Optional:
        if not isinstance(key, str) or key not in self._data:
            return NONE
        return Optional(True, self._convert(self._data[key]))

    def is_set(self, key: Any) -> bool:
        return key in self._data

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)


class ListView(CelList):
    __slots__ = ("_convert", "_data")

    def __init__(self, data: list[Any], convert: Convert | None) -> None:
        self._data, self._convert = data, convert

    def __len__(self) -> int:
        return len(self._data)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._data) if self._convert is None else map(self._convert, self._data)

    def __getitem__(self, index: int) -> Any:
        item = self._data[index]
        return item if self._convert is None else self._convert(item)


class SetView(ListView):
    """`x-kubernetes-list-type: set`: the order of the items is irrelevant."""

    __slots__ = ()

    def equals(self, other: Any) -> bool:
        if len(self) != len(other):
            return False
        mine, theirs = list(self), list(other)
        if all(isinstance(item, str) for item in (*mine, *theirs)):
            return set(mine) == set(theirs)
        return all(any(cel_equals(item, one) for one in theirs) for item in mine)

    def add(self, other: Any) -> Any:
        mine = list(self)
        return [*mine, *(item for item in other if not any(cel_equals(item, one) for one in mine))]


class MapListView(ListView):
    """`x-kubernetes-list-type: map`: items with equal keys are the same item."""

    __slots__ = ("_keys",)

    def __init__(self, data: list[Any], convert: Convert | None, keys: tuple[str, ...]) -> None:
        super().__init__(data, convert)
        self._keys = keys

    def _by_key(self, items: Any) -> dict[bytes, Any]:
        return {_key_of(item, self._keys): item for item in items}

    def equals(self, other: Any) -> bool:
        if not is_list(other) or len(self) != len(other):
            return False
        theirs = self._by_key(other)
        return all(
            key in theirs and cel_equals(item, theirs[key])
            for key, item in self._by_key(self).items()
        )

    def add(self, other: Any) -> Any:
        return list({**self._by_key(self), **self._by_key(other)}.values())


def _key_of(item: Any, keys: tuple[str, ...]) -> bytes:
    found = []
    for key in keys:
        value = item.find(key) if isinstance(item, CelMap) else Optional(key in item, item.get(key))
        found.append(value.value if value.present else None)
    return orjson.dumps(found, default=str)


def converter(schema: Schema) -> Convert | None:
    """The conversion of a schema's values to CEL values; None if they are CEL values already."""
    plain = _converter(schema)
    nullable = schema.get("nullable")

    def convert(value: Any) -> Any:
        if value is None:
            if nullable:
                return None
            raise CelError("invalid data, got null for schema with nullable=false")
        return value if plain is None else plain(value)

    if plain is None and schema.get("type") in ("string", "boolean"):
        return None
    return convert


def _converter(schema: Schema) -> Convert | None:
    if schema.get(INT_OR_STRING):
        return None
    kind = schema.get("type")
    if kind == "object":
        return _object_converter(schema)
    if kind == "array":
        return _array_converter(schema)
    if kind == "number":
        return lambda value: (
            float(value) if isinstance(value, int) and not isinstance(value, bool) else value
        )
    if kind == "integer":
        return lambda value: (
            int(value) if isinstance(value, float) and value.is_integer() else value
        )
    return _TEXT_CONVERTERS.get(schema.get("format", "")) if kind == "string" else None


def _object_converter(schema: Schema) -> Convert | None:
    extra = schema.get("additionalProperties")
    if isinstance(extra, Mapping):
        inner = converter(extra)
        if inner is None:
            return None
        return lambda value: MapView(value, inner) if isinstance(value, dict) else value
    if schema.get(EMBEDDED):
        schema = with_object_fields(schema)
    fields = {
        escaped: (name, converter(inner))
        for name, inner in (schema.get("properties") or {}).items()
        if (escaped := escape_identifier(name)) is not None
    }
    return lambda value: ObjectView(value, fields) if isinstance(value, dict) else value


def _array_converter(schema: Schema) -> Convert | None:
    items = schema.get("items")
    inner = converter(items) if isinstance(items, Mapping) else None
    list_type = schema.get("x-kubernetes-list-type")
    if list_type == "set":
        return lambda value: SetView(value, inner) if isinstance(value, list) else value
    if list_type == "map":
        names = (
            escape_identifier(key) or key for key in schema.get("x-kubernetes-list-map-keys") or ()
        )
        keys = tuple(names)
        return lambda value: MapListView(value, inner, keys) if isinstance(value, list) else value
    if inner is None:
        return None
    return lambda value: ListView(value, inner) if isinstance(value, list) else value


def _bytes(text: str) -> Any:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise CelError(
            f"Invalid byte formatted string {text}, byte formatted strings must be base64 encoded"
        ) from None


def _time(text: str) -> Any:
    try:
        return parse_timestamp(text.upper())
    except ValueError:
        raise CelError(f"Invalid date formatted string {text}") from None


def _date(text: str) -> Any:
    try:
        return parse_timestamp(f"{text}T00:00:00Z")
    except ValueError:
        raise CelError(f"Invalid date formatted string {text}") from None


def _duration(text: str) -> Any:
    try:
        return parse_cel_duration(text)
    except ValueError:
        raise CelError(f"Invalid duration formatted string {text}") from None


def _only_text(convert: Convert) -> Convert:
    return lambda value: convert(value) if isinstance(value, str) else value


_TEXT_CONVERTERS: dict[str, Convert] = {
    "byte": _only_text(_bytes),
    "date": _only_text(_date),
    "date-time": _only_text(_time),
    "duration": _only_text(_duration),
}
