"""What one served version of a custom resource knows how to do: `TypeOps` from a definition.

Unlike built-in kinds, a custom object is handled in the version of the request all the way: admission, strategy and
validation see that version. Only the store holds the storage version, together with its `apiVersion`, because the
storage version of a definition may change. `load` and `stored` stand at that border.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import orjson

from transom.apiserver.crd.conversion import WebhookConverter
from transom.apiserver.crd.definition import Definition
from transom.apiserver.crd.scale import ScalePaths
from transom.apiserver.typed import Converter
from transom.machinery import codec, errors, structural, tables
from transom.machinery.errors import GroupResource
from transom.machinery.field import FieldError, go_quote, invalid
from transom.machinery.kinds import GVK
from transom.machinery.objects import Object
from transom.machinery.structural import cel
from transom.machinery.validation import customobject
from transom.store.api import Record

_BLOCKING = ("NotSupported", "Required", "TooLong", "TooMany", "TypeInvalid")
_RULES_SKIPPED = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete "
    "validation"
)


class CustomType:
    strategic: bool = False

    def __init__(self, definition: Definition, gvk: GVK, converter: WebhookConverter | None) -> None:
        self.definition = definition
        self.gvk = gvk
        self._webhook = converter
        self.converter: Converter | None = converter
        self._version = definition.versions[gvk.version]
        self._prune = not definition.preserve_unknown
        self.table_columns: tables.CustomColumns | None = tables.custom_columns(self._version.columns)
        self.deprecation = self._version.deprecation
        self.scale_paths = ScalePaths(self._version.scale) if self._version.scale else None
        self._kind_prefix = f'{{"kind":{orjson.dumps(gvk.kind).decode()},'.encode()
        # Bytes written under this definition are in form; with several versions, defaults of the stored one are not.
        stored = definition.versions[definition.storage]
        only = len(definition.versions) == 1
        in_form = only or stored.structural is None or not stored.structural.has_defaults
        self._rules = cel.compile_rules(self._version.schema)
        self._own_head = f'{{"apiVersion":"{gvk.api_version}",'.encode() if in_form else b"\0"

    @cached_property
    def schema(self) -> Any:
        return self.definition.apply_types()[self.gvk.api_version]

    # ---- bodies --------------------------------------------------------------------------------------------------

    def decode(self, raw: bytes, media_type: str, *, strict: bool) -> codec.Decoded:
        decoded = codec.decode(raw, media_type, self.gvk, strict=strict)
        unknown: list[str] | None = [] if strict else None
        decoded.obj = self._in_form(decoded.obj, unknown)
        decoded.problems += [f"unknown field {go_quote(path)}" for path in sorted(unknown or ())]
        return decoded

    def normalise(self, obj: Object) -> Object:
        out = dict(obj)
        if "metadata" in out:
            out["metadata"] = codec.normalise_meta(out["metadata"])
        return self._in_form(out)

    def _in_form(self, obj: Object, unknown: list[str] | None = None) -> Object:
        try:
            return self._clean(obj, self.gvk.version, unknown)
        except structural.CoerceError as problem:
            kind, version = self.gvk.kind, self.gvk.version
            text = f'{kind} in version "{version}" cannot be handled as a {kind}: {problem}'
            raise codec.DecodeError(text, str(problem)) from None

    def _clean(self, obj: Object, version: str, unknown: list[str] | None = None, *, drop: bool = False) -> Object:
        """The object as the schema of a version leaves it; shares what it does not change."""
        node = self.definition.versions[version].structural
        if self._prune:
            obj = structural.prune_object(obj, node, unknown)
        return structural.coerce(obj, node, drop=drop)

    def default(self, obj: Object) -> None:
        filled = structural.default(obj, self._version.structural)
        if filled is not obj:
            obj.update(filled)

    # ---- the border to the store ---------------------------------------------------------------------------------

    def load(self, value: bytes) -> Object:
        """A stored object in this version, with the defaults of the version it is stored in."""
        obj: Object = {"kind": self.gvk.kind}
        obj.update(orjson.loads(value))
        stored = self._known(obj["apiVersion"])
        node = self.definition.versions[stored].structural
        obj = structural.default(self._clean(obj, stored, drop=True), node)
        if stored == self.gvk.version:
            return obj
        return self._clean({**obj, "apiVersion": self.gvk.api_version}, self.gvk.version)

    def _known(self, api_version: str) -> str:
        version = api_version.rpartition("/")[2]
        if version not in self.definition.versions:
            raise errors.ApiError(500, "", f"request to convert CR from an invalid group/version: {api_version}")
        return version

    def object_bytes(self, record: Record) -> bytes:
        """A stored object in this version as JSON."""
        if record.mod_revision > self.definition.since and record.value.startswith(self._own_head):
            return self._kind_prefix + record.value[1:]
        return orjson.dumps(self.load(record.value))

    async def stored(self, obj: Object) -> Object:
        """An object of this version as the store keeps it: in the storage version, with its apiVersion first."""
        version = self.definition.storage
        if version != self.gvk.version and self._webhook is not None:
            obj = await self._webhook.convert_one(obj, version)
        out: Object = {"apiVersion": f"{self.gvk.group}/{version}"}
        out.update((k, v) for k, v in obj.items() if k not in ("apiVersion", "kind"))
        out = self._clean(out, version, drop=True)
        return structural.default(out, self._version.structural) if version == self.gvk.version else out

    def to_storage(self, obj: Object) -> Object:
        return obj

    def from_storage(self, obj: Object) -> Object:
        return obj

    def default_stored(self, obj: Object) -> None:
        return None

    def in_version(self, obj: Object, api_version: str) -> Object | None:
        if api_version == self.gvk.api_version:
            return obj
        group, _, version = api_version.rpartition("/")
        if group != self.gvk.group or version not in self.definition.versions:
            return None
        if self._webhook is not None:
            return self._webhook.converted(obj, version)
        return {**obj, "apiVersion": api_version}

    # ---- rules ---------------------------------------------------------------------------------------------------

    def validate_create(self, obj: Object) -> list[FieldError]:
        return self._judged(obj, None, customobject.create(
            self.definition.kind, self.gvk.version, obj, self._version.schema, self._version.scale
        ))

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        return self._judged(new, old, customobject.update(
            self.definition.kind, self.gvk.version, new, old, self._version.schema, self._version.scale, subresource
        ))

    def _judged(self, obj: Object, old: Object | None, problems: list[FieldError]) -> list[FieldError]:
        """The problems and what the rules of the schema add; an object of a wrong shape is not put to them."""
        if self._rules is None:
            return problems
        if any(p.type in _BLOCKING or "must be of type" in p.detail for p in problems):
            return [*problems, invalid("<nil>", None, _RULES_SKIPPED)]
        return problems + self._rules.validate(obj, old)

    def error_kind(self, obj: Object) -> GroupResource:
        return GroupResource(self.gvk.group, obj.get("kind", self.gvk.kind))
