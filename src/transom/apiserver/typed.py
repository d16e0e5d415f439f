"""What a served type knows how to do: decode, default, convert, validate.

Built-in kinds do it with the pure functions of `machinery`; custom resources bring an implementation of their own
(`apiserver/crd`). Storage and handlers see only this interface.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import orjson

from transom.machinery import codec, defaults, schema, validation
from transom.machinery.codec import Decoded
from transom.machinery.errors import GroupResource
from transom.machinery.field import FieldError
from transom.machinery.kinds import GVK, Kind
from transom.machinery.objects import Object
from transom.store.api import Record

T = TypeVar("T")


class Converter(Protocol):
    """Moves custom objects between versions with the help of a webhook, which takes time."""

    async def records(self, records: Sequence[Record], version: str) -> list[Record]: ...
    async def settle(self, work: Callable[[], T]) -> T: ...


class TypeOps(Protocol):
    """Everything about one served version of one kind."""

    strategic: bool  # strategic merge patch is offered
    deprecation: str  # the warning that goes with each request, if any
    table_columns: Any  # printer columns of a custom resource, None for built-in kinds
    converter: Converter | None  # set when it takes a webhook to read or write

    @property
    def schema(self) -> Any:
        """The type for strategic merge and server-side apply."""

    def decode(self, raw: bytes, media_type: str, *, strict: bool) -> Decoded: ...
    def normalise(self, obj: Object) -> Object: ...
    def default(self, obj: Object) -> None: ...
    def default_stored(self, obj: Object) -> None: ...  # once more in the storage version, after strategies ran
    def load(self, value: bytes) -> Object: ...  # what a record holds
    async def stored(self, obj: Object) -> Object: ...  # what a record shall hold
    def object_bytes(self, record: Record) -> bytes: ...  # a record as JSON in this version
    def to_storage(self, obj: Object) -> Object: ...
    def from_storage(self, obj: Object) -> Object: ...
    def in_version(self, obj: Object, api_version: str) -> Object | None: ...  # another served version of the object
    def validate_create(self, obj: Object) -> list[FieldError]: ...
    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]: ...
    def error_kind(self, obj: Object) -> GroupResource: ...  # what a refusal of the object calls its kind


class BuiltinType:
    """A built-in kind in one version."""

    strategic: bool = True
    table_columns: Any = None
    deprecation: str = ""
    converter: Converter | None = None
    __slots__ = ("_error_kind", "_kind", "_stored", "gvk")

    def __init__(self, kind: Kind, gvk: GVK) -> None:
        self._kind = kind
        self.gvk = gvk
        self._stored = kind.gvk()
        self._error_kind = GroupResource(*validation.ERROR_KINDS.get(kind.key, (kind.group, kind.kind)))

    @property
    def schema(self) -> Any:
        return schema.lookup(self.gvk)

    def decode(self, raw: bytes, media_type: str, *, strict: bool) -> Decoded:
        return codec.decode(raw, media_type, self.gvk, strict=strict)

    def normalise(self, obj: Object) -> Object:
        return codec.normalise(self.gvk, obj)

    def default(self, obj: Object) -> None:
        defaults.apply(self.gvk, obj)

    def default_stored(self, obj: Object) -> None:
        defaults.apply(self._stored, obj)
        if self.gvk != self._stored:
            from transom.machinery import conversion

            conversion.settle(self._kind, obj, self.gvk)

    def load(self, value: bytes) -> Object:
        obj: Object = {"kind": self.gvk.kind, "apiVersion": self._stored.api_version}
        obj.update(orjson.loads(value))
        return obj

    async def stored(self, obj: Object) -> Object:
        return obj

    def object_bytes(self, record: Record) -> bytes:
        return orjson.dumps(self.from_storage(self.load(record.value)))

    def to_storage(self, obj: Object) -> Object:
        if self.gvk == self._stored:
            return obj
        from transom.machinery import conversion

        return conversion.to_storage(self._kind, obj, self.gvk)

    def from_storage(self, obj: Object) -> Object:
        if self.gvk == self._stored:
            return obj
        from transom.machinery import conversion

        return conversion.from_storage(self._kind, obj, self.gvk)

    def in_version(self, obj: Object, api_version: str) -> Object | None:
        if api_version == self.gvk.api_version:
            return obj
        group, _, version = api_version.rpartition("/")
        gvk = GVK(group, version, self.gvk.kind)
        if schema.lookup(gvk) is None:
            return None
        from transom.machinery import conversion

        return conversion.from_storage(self._kind, conversion.to_storage(self._kind, obj, self.gvk), gvk)

    def validate_create(self, obj: Object) -> list[FieldError]:
        return validation.create(self._kind, obj, self.gvk.api_version)

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        return validation.update(self._kind, new, old, subresource, self.gvk.api_version)

    def error_kind(self, obj: Object) -> GroupResource:
        return self._error_kind
