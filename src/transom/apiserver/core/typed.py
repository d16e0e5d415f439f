"""The operations of a served type: decode, default, convert, validate.

Built-in kinds use the pure functions of `machinery`; custom resources have their own implementation
(`apiserver/crd`). Storage and handlers use only this interface.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import orjson

from transom.apiserver.core.offload import RunInWorker
from transom.kit.lazy import lazy_import
from transom.machinery import codec, schema, validation
from transom.machinery.codec import Decoded
from transom.machinery.defaults.newer import default_rules
from transom.machinery.errors import GroupResource
from transom.machinery.field import FieldError
from transom.machinery.kinds import GVK, Kind
from transom.machinery.normalise import normalise_known
from transom.machinery.objects import Object
from transom.machinery.schema import SchemaTable
from transom.store.api import StoreRecord

# Only requests for other versions than the stored one, and invalid objects, need them.
if TYPE_CHECKING:
    from transom.machinery import conversion
    from transom.machinery.releases import texts
else:
    conversion = lazy_import("transom.machinery.conversion")
    texts = lazy_import("transom.machinery.releases.texts")

T = TypeVar("T")


class Converter(Protocol):
    """Converts custom objects between versions with a webhook, which takes time."""

    async def records(self, records: Sequence[StoreRecord], version: str) -> list[StoreRecord]: ...
    async def settle(self, work: Callable[[], Awaitable[T]]) -> T: ...
    async def convert_one(self, obj: Object, version: str) -> Object: ...


class ScaleAccess(Protocol):
    """Reads and writes the replicas of a custom object."""

    def read(self, obj: Object, *, writing: bool = False) -> tuple[str, int, int]: ...
    def write(self, obj: Object, replicas: int) -> None: ...


class TypeOps(Protocol):
    """The operations of one served version of one kind."""

    strategic: bool  # supports strategic merge patch
    deprecation: str  # the warning for each request, if any
    converter: Converter | None  # set if reads and writes need a webhook
    scale_paths: ScaleAccess | None  # the paths of the scale subresource of a custom object

    @property
    def weight(self) -> float:
        """The relative cost of processing a byte of an object; 1 for built-in kinds."""

    @property
    def table_columns(self) -> Any:
        """The printer columns of a custom resource, None for built-in kinds."""

    @property
    def schema(self) -> Any:
        """The type for strategic merge and server-side apply."""

    def decode(self, raw: bytes, media_type: str, *, strict: bool) -> Decoded: ...
    def normalise(self, obj: Object) -> Object: ...
    def normalise_known(
        self, obj: Object
    ) -> Object | None: ...  # None if fields may be unknown: decode to find out
    def default(self, obj: Object) -> None: ...
    def default_stored(
        self, obj: Object
    ) -> None: ...  # again in the storage version, after strategies
    def load(self, value: bytes) -> Object: ...  # decodes a record
    async def stored(
        self, obj: Object, run: RunInWorker | None = None
    ) -> Object: ...  # converts to the form of a record
    def object_bytes(self, record: StoreRecord) -> bytes: ...  # a record as JSON in this version
    def to_storage(self, obj: Object) -> Object: ...
    def from_storage(self, obj: Object) -> Object: ...
    def in_version(
        self, obj: Object, api_version: str
    ) -> Object | None: ...  # another served version of the object
    def validate_create(self, obj: Object) -> list[FieldError]: ...
    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]: ...
    def error_kind(self, obj: Object) -> GroupResource: ...  # the kind in error messages


class BuiltinType:
    """A built-in kind in one version."""

    strategic: bool = True
    weight: float = 1.0
    table_columns: Any = None
    deprecation: str = ""
    converter: Converter | None = None
    scale_paths: ScaleAccess | None = None
    __slots__ = (
        "_defaults",
        "_error_kind",
        "_kind",
        "_stored",
        "_stored_defaults",
        "_types",
        "gvk",
    )

    def __init__(self, kind: Kind, gvk: GVK, types: SchemaTable = schema.BASE) -> None:
        self._kind = kind
        self._types = types
        self.gvk = gvk
        self._stored = kind.gvk()
        self._defaults = default_rules(types.release, gvk)
        self._stored_defaults = default_rules(types.release, self._stored)
        self._error_kind = GroupResource(*validation.error_kind(kind, types.release))

    @property
    def schema(self) -> Any:
        return self._types.lookup(self.gvk)

    def decode(self, raw: bytes, media_type: str, *, strict: bool) -> Decoded:
        return codec.decode_object(raw, media_type, self.gvk, strict=strict, types=self._types)

    def normalise(self, obj: Object) -> Object:
        return codec.normalise_object(self._types.lookup(self.gvk) or self.gvk, obj)

    def normalise_known(self, obj: Object) -> Object | None:
        of = self._types.lookup(self.gvk)
        return None if of is None else normalise_known(of, obj)

    def default(self, obj: Object) -> None:
        for rule in self._defaults:
            rule(obj)

    def default_stored(self, obj: Object) -> None:
        for rule in self._stored_defaults:
            rule(obj)
        if self.gvk != self._stored:
            conversion.apply_storage_changes(self._kind, obj, self.gvk)

    def load(self, value: bytes) -> Object:
        obj: Object = {"kind": self.gvk.kind, "apiVersion": self._stored.api_version}
        obj.update(orjson.loads(value))
        return obj

    async def stored(self, obj: Object, run: RunInWorker | None = None) -> Object:
        return obj

    def object_bytes(self, record: StoreRecord) -> bytes:
        return orjson.dumps(self.from_storage(self.load(record.value)))

    def to_storage(self, obj: Object) -> Object:
        if self.gvk == self._stored:
            return obj
        return conversion.to_storage(self._kind, obj, self.gvk)

    def from_storage(self, obj: Object) -> Object:
        if self.gvk == self._stored:
            return obj
        return conversion.from_storage(self._kind, obj, self.gvk)

    def in_version(self, obj: Object, api_version: str) -> Object | None:
        current = obj.get("apiVersion", self.gvk.api_version)
        if current == api_version:
            return obj
        source, target = self._kind_in(current), self._kind_in(api_version)
        if self._types.lookup(target) is None:
            return None
        return conversion.from_storage(
            self._kind, conversion.to_storage(self._kind, obj, source), target
        )

    def _kind_in(self, api_version: str) -> GVK:
        group, _, version = api_version.rpartition("/")
        return GVK(group, version, self.gvk.kind)

    def validate_create(self, obj: Object) -> list[FieldError]:
        errors = validation.validate_create(
            self._kind, obj, self.gvk.api_version, self._types.features
        )
        return texts.in_release(self._types.release, errors) if errors else errors

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        errors = validation.validate_update(
            self._kind, new, old, subresource, self.gvk.api_version, self._types.features
        )
        return texts.in_release(self._types.release, errors) if errors else errors

    def error_kind(self, obj: Object) -> GroupResource:
        return self._error_kind
