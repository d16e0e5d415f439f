"""OpenAPI definitions of types: the fields the server decodes, with what the published schema says.

The fields, their types and merge rules come from `machinery.schema`, so that the documents describe
what this server accepts. Which lists state their type in the published schema is in
`list_types.txt` (`tools/openapi_facts.py`). The descriptions come from the data files of the package
`kubernetes-validate` (the extra `descriptions`), which is read and not imported; without it, the
definitions have no descriptions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson

from transom.machinery import schema
from transom.machinery.kinds import GVK, Kind
from transom.machinery.releases import Release, has_tables
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.enums import release_enums
from transom.machinery.releases.openapi_markers import (
    declared_defaults,
    is_atomic_struct,
    marked_required,
)
from transom.machinery.schema import SchemaTable

Definition = dict[str, Any]
# Builds a property that refers to another definition; its form depends on the OpenAPI version.
Reference = Callable[[str, Mapping[str, Any]], Definition]

_DESCRIBED_MINOR = 32  # of releases without tables
_PREFIXES = {
    "apiextensions": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions",
    "apiregistration": "io.k8s.kube-aggregator.pkg.apis.apiregistration",
    "meta": "io.k8s.apimachinery.pkg.apis.meta",
}
_MOVED = {"io.k8s.api.extensions": "io.k8s.api.networking"}
OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
LIST_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"
STATUS = "io.k8s.apimachinery.pkg.apis.meta.v1.Status"
DELETE_OPTIONS = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
PATCH = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch"
WATCH_EVENT = "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent"
_RAW = "io.k8s.apimachinery.pkg.runtime.RawExtension"

_INLINE: dict[str, Definition] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "float": {"type": "number", "format": "double"},
    "bytes": {"type": "string", "format": "byte"},
    "any": {"type": "object"},
}
_APIEXTENSIONS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"
# Types with their own JSON form -> (definition, its content)
_NAMED: dict[str, tuple[str, Definition]] = {
    "time": (
        "io.k8s.apimachinery.pkg.apis.meta.v1.Time",
        {"type": "string", "format": "date-time"},
    ),
    "microtime": (
        "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime",
        {"type": "string", "format": "date-time"},
    ),
    "duration": ("io.k8s.apimachinery.pkg.apis.meta.v1.Duration", {"type": "string"}),
    "quantity": ("io.k8s.apimachinery.pkg.api.resource.Quantity", {"type": "string"}),
    "int-or-string": (
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        {"type": "string", "format": "int-or-string"},
    ),
    "raw": (_RAW, {"type": "object"}),
    "fields": ("io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", {"type": "object"}),
    "json": (f"{_APIEXTENSIONS}.JSON", {}),
    "schema-or-array": (f"{_APIEXTENSIONS}.JSONSchemaPropsOrArray", {}),
    "schema-or-bool": (f"{_APIEXTENSIONS}.JSONSchemaPropsOrBool", {}),
    "schema-or-strings": (f"{_APIEXTENSIONS}.JSONSchemaPropsOrStringArray", {}),
}
# What fields that are always emitted have as their default.
_ZEROS: dict[str, Any] = {
    "string": "",
    "bool": False,
    "int32": 0,
    "int64": 0,
    "float": 0,
}
NAMED_VALUES = dict(_NAMED.values())


def published_definitions(release: Release) -> dict[str, Definition]:
    """The published schema of the release or of the nearest one in the extra `descriptions`, or,
    without the extra, what `list_types.txt` has of it; it is not cached, because it takes several
    megabytes.
    """
    spec = find_spec("kubernetes_validate")
    if spec is None or not spec.submodule_search_locations:
        return _published_list_types()
    folder = Path(spec.submodule_search_locations[0]) / "kubernetes-json-schema"
    wanted = release.minor if has_tables(release) else _DESCRIBED_MINOR
    files = {
        int(file.parent.name.split(".")[1]): file
        for file in folder.glob("v1.*.0-local/_definitions.json")
    }
    nearest = min(files, key=lambda minor: (abs(minor - wanted), minor))
    found: dict[str, Definition] = orjson.loads(files[nearest].read_bytes())["$defs"]
    return found


def _published_list_types() -> dict[str, Definition]:
    found: dict[str, Definition] = {}
    text = Path(__file__).with_name("list_types.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        name, *properties = line.split()
        found[name] = {"properties": {p: {"x-kubernetes-list-type": ""} for p in properties}}
    return found


def openapi_type_name(type_id: str) -> str:
    """`core/v1.Pod` -> `io.k8s.api.core.v1.Pod`"""
    package, _, rest = type_id.partition("/")
    return f"{_PREFIXES.get(package) or 'io.k8s.api.' + package}.{rest}"


def gvk_name(gvk: GVK, types: SchemaTable = schema.BASE) -> str:
    """The definition of a built-in kind, or the name under which a custom one is published."""
    found = types.lookup(gvk)
    if found is not None:
        return openapi_type_name(found.id)
    return f"{'.'.join(reversed(gvk.group.split('.')))}.{gvk.version}.{gvk.kind}"


def gvk_extension(gvk: GVK) -> dict[str, str]:
    return {"group": gvk.group, "kind": gvk.kind, "version": gvk.version}


def served_gvks(kinds: Iterable[Kind], types: SchemaTable) -> list[GVK]:
    """Every kind in every version, and the kinds of its subresources."""
    gvks: dict[GVK, None] = {}
    for kind in kinds:
        places = [(kind.group, v) for v in kind.versions]
        places += [(group, v) for group, versions in kind.also for v in versions]
        for group, version in places:
            gvks[GVK(group, version, kind.kind)] = None
            if "list" in kind.verbs:
                gvks[GVK(group, version, kind.list_name)] = None
            for sub in kind.subresources_of(version, group):
                if sub.kind:
                    gvks[GVK(sub.group or group, sub.version or version, sub.kind)] = None
    return [gvk for gvk in gvks if types.lookup(gvk) is not None]


class DefinitionBuilder:
    """Collects definitions: each type also adds those it refers to."""

    def __init__(
        self,
        described: Mapping[str, Definition],
        reference: Reference,
        named: Mapping[str, Definition],
        types: SchemaTable,
        *,
        with_defaults: bool = False,
    ):
        """`types` are those of the release. Only v3 shows defaults."""
        self._types = types
        self._newer = has_tables(types.release)
        self._required = marked_required(types.release) if self._newer else frozenset()
        self._with_defaults = with_defaults and self._newer
        self._declared = declared_defaults(types.release) if self._with_defaults else {}
        self._named_have_defaults = not has_behaviour(types.release, "NoDefaultsOfNamedTypes")
        enabled = types.features.enabled("OpenAPIEnums")
        self._enums = release_enums(types.release) if enabled else {}
        self.definitions: dict[str, Definition] = {}
        self._described = described
        self._reference = reference
        self._named = named

    def add_kind(self, gvk: GVK) -> str:
        found = self._types.lookup(gvk)
        if found is None:
            raise KeyError(gvk)
        name = self.add(found.id)
        self.mark(name, [gvk])
        return name

    def mark(self, name: str, gvks: Iterable[GVK]) -> None:
        known = self.definitions[name].setdefault("x-kubernetes-group-version-kind", [])
        known += [entry for entry in map(gvk_extension, gvks) if entry not in known]

    def add(self, type_id: str) -> str:
        name = openapi_type_name(type_id)
        if name in self.definitions:
            return name
        of = self._types.get(type_id)
        published = self._published(name)
        definition: Definition = {}
        self.definitions[name] = definition  # before its fields: types can be recursive
        if "description" in published:
            definition["description"] = published["description"]
        properties = published.get("properties") or {}
        definition["type"] = "object"
        if of.properties:
            definition["properties"] = {
                f.name: self._property(f, properties.get(f.name) or {}, f"{type_id}.{f.name}")
                for f in of.properties.values()
            }
        required = [
            f.name
            for f in of.properties.values()
            if f.required or f"{type_id}.{f.name}" in self._required
        ]
        if required:
            definition["required"] = required
        if self._newer and is_atomic_struct(type_id):
            definition["x-kubernetes-map-type"] = "atomic"
        return name

    def add_named(self, name: str) -> str:
        if name not in self.definitions:
            published = self._described.get(name) or {}
            text = {"description": published["description"]} if "description" in published else {}
            self.definitions[name] = {**text, **self._named[name]}
        return name

    def add_meta(self) -> None:
        """The common response types of every group version."""
        for type_id in ("meta/v1.Status", "meta/v1.DeleteOptions", "meta/v1.APIResourceList"):
            self.add(type_id)
        self.definitions[PATCH] = {
            "description": (
                "Patch is provided to give a concrete name and type to the Kubernetes PATCH "
                "request body."
            ),
            "type": "object",
        }
        self.definitions[WATCH_EVENT] = {
            "description": "Event represents a single event to a watched resource.",
            "type": "object",
            "properties": {
                "object": self._reference(self.add_named(_RAW), {}),
                "type": {"type": "string", **({"default": ""} if self._with_defaults else {})},
            },
            "required": ["type", "object"],
        }

    def _published(self, name: str) -> Definition:
        """The published definition of a type; for a removed version, that of its successor."""
        if name in self._described:
            return self._described[name]
        prefix, _, short = name.rpartition(".")
        package, _, version = prefix.rpartition(".")
        package = _MOVED.get(package, package)
        successors = ("v2", "v1") if version.startswith("v2") else ("v1",)
        return next(
            (d for v in successors if (d := self._described.get(f"{package}.{v}.{short}"))), {}
        )

    def _property(
        self,
        field: schema.SchemaField,
        published: Mapping[str, Any],
        name: str,
    ) -> Definition:
        """`name` is that of the field in the tables: `core/v1.Pod.spec`."""
        extras: Definition = {}
        if "description" in published:
            extras["description"] = published["description"]
        if name in self._declared:
            extras["default"] = self._declared[name]
        else:
            extras.update(self._default(field.value, field.always))
        if field.kind == "list":
            explicit = "x-kubernetes-list-type" in published or (
                field.list_type != "atomic" and not field.patch_strategy
            )
            if explicit:
                extras["x-kubernetes-list-type"] = field.list_type
                if field.list_map_keys:
                    extras["x-kubernetes-list-map-keys"] = list(field.list_map_keys)
        elif field.atomic != self._is_atomic(field.value):
            extras["x-kubernetes-map-type"] = "atomic" if field.atomic else "granular"
        if field.patch_strategy:
            extras["x-kubernetes-patch-strategy"] = field.patch_strategy
        if field.patch_merge_key:
            extras["x-kubernetes-patch-merge-key"] = field.patch_merge_key
        made = self._value(field.value, extras)
        enum = self._enums.get(name)  # the values of the field, or of an element of it
        if enum is not None:
            of: Definition = made.get("items") or made.get("additionalProperties") or made
            of["enum"] = enum
        return made

    def _is_atomic(self, value: schema.SchemaValue) -> bool:
        """Whether the definition of a struct says that it is atomic; not before 1.21."""
        return self._newer and is_atomic_struct(value.ref)

    def _value(self, value: schema.SchemaValue, extras: Mapping[str, Any]) -> Definition:
        if value.kind == "struct":
            return self._reference(self.add(value.ref), extras)
        if value.kind in _NAMED:
            return self._reference(self.add_named(_NAMED[value.kind][0]), extras)
        if value.kind == "list" and value.item is not None:
            return {**extras, "type": "array", "items": self._element(value.item)}
        if value.kind == "map" and value.item is not None:
            return {**extras, "type": "object", "additionalProperties": self._element(value.item)}
        return {**extras, **_INLINE[value.kind]}

    def _element(self, value: schema.SchemaValue) -> Definition:
        return self._value(value, self._default(value, True))

    def _default(self, value: schema.SchemaValue, emitted: bool) -> Definition:
        """Structs are never absent; other values if they are always emitted."""
        if not self._with_defaults or value.pointer:
            return {}
        if value.kind == "struct" or (value.kind in _NAMED and self._named_have_defaults):
            return {"default": {}}
        return {"default": _ZEROS[value.kind]} if emitted and value.kind in _ZEROS else {}
