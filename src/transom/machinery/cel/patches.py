"""The types with which expressions of mutating policies build patches: `Object{...}` and
`JSONPatch{...}` (k8s.io/apiserver/pkg/cel/mutation).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from transom.kit.cel.errors import CelError
from transom.kit.cel.times import show_duration, show_timestamp
from transom.kit.cel.types import DYN, STRING, CelType, struct_type
from transom.kit.cel.values import (
    NONE,
    CelMap,
    Duration,
    Opaque,
    Optional,
    Timestamp,
    cel_equals,
    is_list,
    is_map,
    map_find,
    map_keys,
)

_OBJECT: Final = "Object"
OBJECT_TYPE: Final = struct_type(_OBJECT)
PATCH_TYPE: Final = struct_type("JSONPatch")
_PATCH_FIELDS: Final[Mapping[str, CelType]] = {
    "op": STRING,
    "from": STRING,
    "path": STRING,
    "value": DYN,
}


class _AnyField(Mapping[str, CelType]):
    """The fields of `Object` and its inner types: every name, of any type."""

    def __getitem__(self, name: str) -> CelType:
        return DYN

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class _PatchTypes(Mapping[str, Mapping[str, CelType]]):
    def __getitem__(self, name: str) -> Mapping[str, CelType]:
        if name == PATCH_TYPE.name:
            return _PATCH_FIELDS
        if name == _OBJECT or name.startswith(f"{_OBJECT}."):
            return _AnyField()
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter((PATCH_TYPE.name, _OBJECT))

    def __len__(self) -> int:
        return 2


PATCH_TYPES: Final = _PatchTypes()


class ObjectValue(CelMap):
    """`Object.spec{...}`: a part of an apply configuration."""

    __slots__ = ("_fields", "cel_type")

    def __init__(self, name: str, fields: dict[str, Any]) -> None:
        self.cel_type = struct_type(name)
        self._fields = fields

    def find(self, key: Any) -> Optional:
        return Optional(True, self._fields[key]) if key in self._fields else NONE

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


class JsonPatchOperation(Opaque):
    """`JSONPatch{...}`: one operation."""

    __slots__ = ("fields",)
    cel_type: CelType = PATCH_TYPE

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields

    def equals(self, other: Any) -> bool:
        if not isinstance(other, JsonPatchOperation) or self.fields.keys() != other.fields.keys():
            return False
        return all(cel_equals(value, other.fields[name]) for name, value in self.fields.items())


def make_patch_struct(name: str, fields: dict[str, Any]) -> Any:
    if name == PATCH_TYPE.name:
        for field, value in fields.items():
            if field != "value" and not isinstance(value, str):
                raise CelError(f"unexpected type for JSONPatchType '{field}' field")
        return JsonPatchOperation(fields)
    return ObjectValue(name, fields)


class PatchTypeMismatch(Exception):
    """An `Object` type is used at a path that differs from its name."""


def check_object_types(value: Any) -> None:
    """The name of each nested object type must be the path at which it stands."""
    if isinstance(value, ObjectValue):
        problems = list(_misplaced(value, value.cel_type.name))
        if problems:
            raise PatchTypeMismatch("\n".join(problems))


def _misplaced(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, ObjectValue):
        name = value.cel_type.name
        if name != path:
            yield (
                f'unexpected type name "{name}", expected "{path}", which matches field name path '
                "from root Object type"
            )
        for key in value:
            yield from _misplaced(value.find(key).value, f"{path}.{key}")
    elif is_list(value):
        for item in value:
            yield from _misplaced(item, path)
    elif is_map(value):
        for key in map_keys(value):
            yield from _misplaced(map_find(value, key).value, path)


def patch_json(value: Any) -> Any:
    """A value of an expression as JSON; raises ValueError if it has none."""
    if value is None or isinstance(value, str | bool | float):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, Timestamp):
        return show_timestamp(value)
    if isinstance(value, Duration):
        return show_duration(value)
    if is_list(value):
        return [patch_json(item) for item in value]
    if is_map(value):
        out = {}
        for key in map_keys(value):
            if not isinstance(key, str):
                raise ValueError(f"map key {key!r} is not a string")
            out[key] = patch_json(map_find(value, key).value)
        return out
    raise ValueError("it cannot be represented as JSON")
