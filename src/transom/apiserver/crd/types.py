"""The operations of one served version of a custom resource: `TypeOps` from a definition.

Unlike built-in kinds, a custom object is processed in the version of the request: admission,
strategy and validation see that version. Only the store has the storage version, together with its
`apiVersion`, because the storage version of a definition may change. `load` and `stored` convert
between the two.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property, partial
from typing import Any

import orjson

from transom.apiserver.core.offload import RunInWorker
from transom.apiserver.core.typed import Converter, ScaleAccess
from transom.apiserver.crd.conversion import WebhookConverter
from transom.apiserver.crd.definition import Definition
from transom.apiserver.crd.scale import ScalePaths
from transom.kit.goquote import go_quote
from transom.machinery import codec, errors, structural, tables
from transom.machinery.errors import GroupResource
from transom.machinery.field import FieldError, bounded_errors, invalid
from transom.machinery.kinds import GVK
from transom.machinery.objects import Object
from transom.machinery.releases import DEFAULT, Release
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import is_enabled
from transom.machinery.releases.texts import in_release, typed_custom_errors
from transom.machinery.schema import SchemaTable, schema_table
from transom.machinery.structural import cel
from transom.machinery.structural.coerce import Coercion
from transom.machinery.validation import customobject
from transom.machinery.validation.custom import SchemaOptions
from transom.store.api import StoreRecord

_BLOCKING = ("NotSupported", "Required", "TooLong", "TooMany", "TypeInvalid")
_RULES_SKIPPED = (
    "some validation rules were not checked because the object was invalid; correct the "
    "existing errors to complete "
    "validation"
)


def _written_defaults(obj: Object, node: structural.StructuralSchema | None) -> Object:
    """An object to be stored, with defaults. As in Kubernetes, they are found to be too large only
    when the object is written.
    """
    try:
        filled: Object = structural.apply_structural_defaults(obj, node)
    except structural.DefaultsTooLarge:
        raise errors.ApiError(500, "", "etcdserver: request is too large") from None
    return filled


class CustomType:
    strategic: bool = False

    def __init__(
        self,
        definition: Definition,
        gvk: GVK,
        converter: WebhookConverter | None,
        release: Release = DEFAULT,
    ) -> None:
        self._release = release
        self.definition = definition
        self.gvk = gvk
        self._webhook = converter
        self.converter: Converter | None = converter
        self._version = definition.versions[gvk.version]
        self._prune = not definition.preserve_unknown
        self.deprecation = self._version.deprecation
        self.scale_paths: ScaleAccess | None = (
            ScalePaths(self._version.scale) if self._version.scale else None
        )
        self._kind_prefix = f'{{"kind":{orjson.dumps(gvk.kind).decode()},'.encode()
        # Bytes written with this definition are normalized; with several versions, defaults of the
        # stored one may be missing.
        stored = definition.versions[definition.storage]
        only = len(definition.versions) == 1
        in_form = only or stored.structural is None or not stored.structural.has_defaults
        self._own_head = f'{{"apiVersion":"{gvk.api_version}",'.encode() if in_form else b"\0"

    # A definition may have thousands of versions and columns; most of them are never requested.

    @cached_property
    def table_columns(self) -> tables.CustomColumns | None:
        return tables.custom_columns(self._version.columns, self._release)

    @cached_property
    def weight(self) -> float:
        return structural.schema_weight(self._version.schema)

    @cached_property
    def _rules(self) -> Any:
        return cel.schema_rules(self._version.schema, self._release)

    @cached_property
    def schema(self) -> Any:
        return self.definition.apply_types[self.gvk.api_version]

    # ---- bodies ----

    def decode(self, raw: bytes, media_type: str, *, strict: bool) -> codec.Decoded:
        decoded = codec.decode_object(raw, media_type, self.gvk, strict=strict, types=self._types)
        unknown: list[str] | None = [] if strict else None
        decoded.obj = self._in_form(decoded.obj, unknown)
        decoded.problems += [f"unknown field {go_quote(path)}" for path in sorted(unknown or ())]
        return decoded

    @cached_property
    def _types(self) -> SchemaTable:
        return schema_table(self._release)

    def normalise(self, obj: Object) -> Object:
        out = dict(obj)
        if "metadata" in out:
            out["metadata"] = codec.normalise_object_meta(out["metadata"], self._types)
        return self._in_form(out)

    def normalise_known(self, obj: Object) -> Object | None:
        return None  # the schema says which fields are known, and decoding reads it

    def _in_form(self, obj: Object, unknown: list[str] | None = None) -> Object:
        try:
            return self._clean(obj, self.gvk.version, unknown)
        except structural.CoerceError as problem:
            kind, version = self.gvk.kind, self.gvk.version
            text = f'{kind} in version "{version}" cannot be handled as a {kind}: {problem}'
            raise codec.DecodeError(text, str(problem)) from None

    def _clean(
        self, obj: Object, version: str, unknown: list[str] | None = None, *, drop: bool = False
    ) -> Object:
        """The object pruned and defaulted by the schema of a version; shares unchanged parts."""
        node = self.definition.versions[version].structural
        if self._prune:
            obj = structural.prune_object(obj, node, unknown)
        wanted = unknown if has_behaviour(self._release, "FieldValidationWarns") else None
        return structural.coerce_object(obj, node, "", Coercion(self._types, drop, wanted))

    def default(self, obj: Object) -> None:
        filled = _written_defaults(obj, self._version.structural)
        if filled is not obj:
            obj.update(filled)

    # ---- the border to the store ----

    def load(self, value: bytes) -> Object:
        """A stored object in this version, with the defaults of the version it is stored in."""
        obj: Object = {"kind": self.gvk.kind}
        obj.update(orjson.loads(value))
        stored = self._known(obj["apiVersion"])
        node = self.definition.versions[stored].structural
        obj = self._clean(obj, stored, drop=True)
        # Defaults that were added later may be too large for this object. It remains readable.
        with suppress(structural.DefaultsTooLarge):
            obj = structural.apply_structural_defaults(obj, node)
        if stored == self.gvk.version:
            return obj
        return self._clean({**obj, "apiVersion": self.gvk.api_version}, self.gvk.version)

    def _known(self, api_version: str) -> str:
        version = api_version.rpartition("/")[2]
        if version not in self.definition.versions:
            raise errors.ApiError(
                500, "", f"request to convert CR from an invalid group/version: {api_version}"
            )
        return version

    def object_bytes(self, record: StoreRecord) -> bytes:
        """A stored object in this version as JSON."""
        if record.mod_revision > self.definition.since and record.value.startswith(self._own_head):
            return self._kind_prefix + record.value[1:]
        return orjson.dumps(self.load(record.value))

    async def stored(self, obj: Object, run: RunInWorker | None = None) -> Object:
        """An object of this version in stored form: in the storage version, with its apiVersion
        first.
        """
        version = self.definition.storage
        if version != self.gvk.version and self._webhook is not None:
            obj = await self._webhook.convert_one(obj, version)
        work = partial(self._in_storage_form, obj, version)
        return work() if run is None else await run(work)

    def _in_storage_form(self, obj: Object, version: str) -> Object:
        out: Object = {"apiVersion": f"{self.gvk.group}/{version}"}
        out.update((k, v) for k, v in obj.items() if k not in ("apiVersion", "kind"))
        out = self._clean(out, version, drop=True)
        return (
            _written_defaults(out, self._version.structural) if version == self.gvk.version else out
        )

    def to_storage(self, obj: Object) -> Object:
        return obj

    def from_storage(self, obj: Object) -> Object:
        return obj

    def default_stored(self, obj: Object) -> None:
        return None

    def in_version(self, obj: Object, api_version: str) -> Object | None:
        if obj.get("apiVersion", self.gvk.api_version) == api_version:
            return obj
        group, _, version = api_version.rpartition("/")
        if group != self.gvk.group or version not in self.definition.versions:
            return None
        if self._webhook is None:
            return {**obj, "apiVersion": api_version}
        if obj["apiVersion"] != self.gvk.api_version:  # Kubernetes' hub is the request's version
            obj = self._webhook.converted(obj, self.gvk.version)
        return obj if version == self.gvk.version else self._webhook.converted(obj, version)

    # ---- rules ----

    def validate_create(self, obj: Object) -> list[FieldError]:
        with bounded_errors():
            found = customobject.validate_custom_create(
                self.definition.kind,
                self.gvk.version,
                obj,
                self._version.schema,
                self._version.scale,
                self._schema_rules,
            )
        return self._with_rule_errors(obj, None, found)

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        with bounded_errors():
            found = customobject.validate_custom_update(
                self.definition.kind,
                self.gvk.version,
                new,
                old,
                self._version.schema,
                self._version.scale,
                subresource,
                self._schema_rules,
                ratcheting=is_enabled(self._release, "CRDValidationRatcheting"),
            )
        return self._with_rule_errors(new, old, found)

    @cached_property
    def _schema_rules(self) -> SchemaOptions:
        return SchemaOptions(
            typed=has_behaviour(self._release, "TypedCustomErrors"),
            numeric_formats=has_behaviour(self._release, "NumericFormats"),
            name_formats=has_behaviour(self._release, "FormatWarnings"),
            status_alone=has_behaviour(self._release, "CustomStatusAlone"),
            status_lists=has_behaviour(self._release, "CustomStatusLists"),
            positive_factors=has_behaviour(self._release, "PositiveFactors"),
        )

    def _with_rule_errors(
        self, obj: Object, old: Object | None, found: list[FieldError]
    ) -> list[FieldError]:
        """The problems, and those from the rules of the schema; an object with the wrong structure
        is not checked by rules.
        """
        release = self._release
        problems = typed_custom_errors(release, found)
        if self._rules is None:
            return in_release(release, problems)
        typed = self._schema_rules.typed
        if any(
            p.type in _BLOCKING or (not typed and "must be of type" in p.detail) for p in problems
        ):
            return in_release(release, [*problems, invalid("<nil>", None, _RULES_SKIPPED)])
        try:
            return in_release(release, problems + self._rules.validate(obj, old))
        except cel.SlowRules as slow:
            work = slow.work
            raise cel.SlowRules(lambda: in_release(release, problems + work())) from None

    def error_kind(self, obj: Object) -> GroupResource:
        return GroupResource(self.gvk.group, obj.get("kind", self.gvk.kind))
