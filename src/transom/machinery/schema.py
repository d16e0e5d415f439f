"""Types of every served built-in group version, as Go structs see them.

Decoding, strategic merge, server-side apply and OpenAPI need the same facts (which fields exist,
their types, which are pointers, which are emitted when empty, how lists merge). They are in two
text files: `gotypes.txt` for releases up to 1.20, which also serve some newer versions, and
`releases/types.txt` for later ones. A `SchemaTable` has the types of one release; it reads its file
once and builds `SchemaType` objects on first use. This module handles types, not values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from transom.kit.lazy_dataclass import dataclass
from transom.machinery.kinds import GVK
from transom.machinery.releases import Release, has_tables, in_range
from transom.machinery.releases.features import FeatureSet
from transom.machinery.releases.release import read_table

# Go's scalar types and the types with a custom JSON form -> the kind of value.
_SCALARS = {
    "string": "string",
    "bool": "bool",
    "int32": "int32",
    "int64": "int64",
    "float64": "float",
    "bytes": "bytes",
    "Time": "time",
    "MicroTime": "microtime",
    "Duration": "duration",
    "Quantity": "quantity",
    "IntOrString": "int-or-string",
    "RawExtension": "raw",
    "FieldsV1": "fields",
    "interface{}": "any",
    "JSON": "json",
    "JSONSchemaPropsOrArray": "schema-or-array",
    "JSONSchemaPropsOrBool": "schema-or-bool",
    "JSONSchemaPropsOrStringArray": "schema-or-strings",
}
# How Go prints the element type of a list of these.
_GO_NAMES = {
    "bytes": "[]uint8",
    "Time": "v1.Time",
    "MicroTime": "v1.MicroTime",
    "Duration": "v1.Duration",
    "Quantity": "resource.Quantity",
    "IntOrString": "intstr.IntOrString",
    "RawExtension": "runtime.RawExtension",
    "FieldsV1": "v1.FieldsV1",
    "interface{}": "interface {}",
    "JSON": "v1.JSON",
    "JSONSchemaPropsOrArray": "v1.JSONSchemaPropsOrArray",
    "JSONSchemaPropsOrBool": "v1.JSONSchemaPropsOrBool",
    "JSONSchemaPropsOrStringArray": "v1.JSONSchemaPropsOrStringArray",
}
JSON_SCHEMA_PROPS = "apiextensions/v1.JSONSchemaProps"
OBJECT_META = "meta/v1.ObjectMeta"

# Kinds that every group version has although they belong to meta/v1.
_FOUND_KEPT = 2000
_META_KINDS = frozenset(
    {
        "APIGroup",
        "APIGroupList",
        "APIResourceList",
        "APIVersions",
        "CreateOptions",
        "DeleteOptions",
        "GetOptions",
        "List",
        "ListOptions",
        "PartialObjectMetadata",
        "PartialObjectMetadataList",
        "PatchOptions",
        "Status",
        "Table",
        "UpdateOptions",
    }
)
# These groups are stored as JSON by Kubernetes, all others as protobuf, which does not distinguish
# an empty list from none.
# Types whose lists may not be empty; a list that is not given is something else.
_EMPTY_IS_INVALID = (".HPAScalingRules", ".PodFailurePolicyOnExitCodesRequirement")
_JSON_STORED = ("apiextensions/", "apiregistration/")


@dataclass(frozen=True, slots=True)
class SchemaValue:
    """The type of a value: `kind` is string, bool, int32, int64, float, bytes, time, microtime,
    duration, quantity, int-or-string, raw, fields, any, json, schema-or-array, schema-or-bool,
    schema-or-strings, list, map or struct.
    """

    kind: str
    go_name: str
    pointer: bool = False
    item: SchemaValue | None = None  # of a list or map
    ref: str = ""  # of a struct: its name in the table
    table: SchemaTable | None = field(default=None, repr=False, compare=False)

    @property
    def type(self) -> SchemaType:
        return (self.table or BASE).get(self.ref)


@dataclass(frozen=True, slots=True)
class SchemaField:
    name: str
    go_path: tuple[str, ...]  # Go's field name, after those of embedding structs
    value: SchemaValue
    always: bool = False  # emitted even when empty
    required: bool = False
    patch_strategy: str = ""
    patch_merge_key: str = ""
    list_type: str = ""  # atomic, set or map; "" for what is not a list
    list_map_keys: tuple[str, ...] = ()
    atomic: bool = False  # a struct or map that server-side apply treats as atomic
    omit_zero: bool = False  # a struct that is left out when it is zero
    gates: tuple[str, ...] = ()  # the feature gates that all must be on for the field to be kept

    @property
    def kind(self) -> str:
        return self.value.kind

    @property
    def item(self) -> SchemaValue | None:
        return self.value.item

    @property
    def pointer(self) -> bool:
        return self.value.pointer

    @property
    def struct(self) -> SchemaType | None:
        """The struct behind the field: its own type, or that of its list elements or map values."""
        value = self.value
        while value.item is not None:
            value = value.item
        return value.type if value.ref else None


@dataclasses.dataclass(frozen=True)
class SchemaType:
    id: str  # "core/v1.PodSpec"
    name: str  # "v1.PodSpec", as error texts print it
    properties: Mapping[str, SchemaField] = field(repr=False)
    table: SchemaTable = field(repr=False, compare=False)

    @property
    def keeps_empty_lists(self) -> bool:
        return self.id.startswith(_JSON_STORED) or self.id.endswith("List")

    @property
    def shows_empty_lists(self) -> bool:
        """Whether validation sees an empty list, which it rejects."""
        return self.id.endswith(_EMPTY_IS_INVALID) and has_tables(self.table.release)

    @cached_property
    def required(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.properties.values() if f.required)


class SchemaTable:
    """The types of one release."""

    def __init__(self, release: Release, feature_gates: Mapping[str, bool] | None = None) -> None:
        self.release = release
        self.features = FeatureSet(release, feature_gates or {})
        self._types: dict[str, SchemaType] = {}
        self._found: dict[GVK, SchemaType] = {}
        # Compiled from the types by other modules, on first use.
        self.normalisers: dict[str, Any] = {}
        self.structs: dict[str, Any] = {}
        self.nodes: dict[str, Any] = {}
        self.zero_values: dict[str, dict[str, Any]] = {}
        self.message_readers: dict[str, Any] = {}
        self.message_writers: dict[str, Any] = {}

    @cached_property
    def _blocks(self) -> dict[str, str]:
        """Name of a type -> its lines, after a line with `NAME =GoName` if errors print another
        name.
        """
        blocks = {}
        if not has_tables(self.release):
            text = Path(__file__).with_name("gotypes.txt").read_text(encoding="utf-8")
            for block in text.rstrip().split("\n\n")[1:]:
                head, _, body = block.partition("\n")
                blocks[head.partition(" ")[0]] = block if " " in head else body
            return blocks
        for block in read_table("types.txt").rstrip().split("\n\n")[1:]:
            head, _, body = block.partition("\n")
            name, at, where = head.partition(" @")
            if not at or in_range(where, self.release):
                blocks[name] = body
        return blocks

    def __contains__(self, name: object) -> bool:
        return name in self._blocks

    def keeps(self, f: SchemaField) -> bool:
        """Whether the gates of a field are on; the server drops a field whose gate is off."""
        return all(self.features.enabled(gate) for gate in f.gates)

    def names(self) -> list[str]:
        """Every type's full name."""
        return list(self._blocks)

    def field_numbers(self, name: str) -> list[tuple[str, int]]:
        """The fields of a type that protobuf has, and their numbers; an embedded struct that
        protobuf nests is `&` and its name. Only the tables of releases since 1.21 have them.
        """
        out = []
        for line in self._blocks[name].splitlines():
            line, at, where = line.partition(" @")
            if at and not in_range(where, self.release):
                continue
            line, _, number = line.partition(" #")
            if number:
                word = line.removeprefix("& ").partition(" ")[0]
                out.append(
                    (f"&{word}" if line.startswith("& ") else word.rstrip("!?~"), int(number))
                )
        return out

    def get(self, name: str) -> SchemaType:
        """The type with that full name (`core/v1.PodSpec`); raises KeyError. Components of the
        cluster use some versions that the release has removed; their types are those of 1.20.
        """
        made = self._types.get(name)
        if made is None:
            if name not in self._blocks and self is not BASE:
                return BASE.get(name)
            made = self._types[name] = self._make(name)
        return made

    def lookup(self, gvk: GVK) -> SchemaType | None:
        """The type of a group version kind, or None for a custom or unknown one."""
        found = self._found.get(gvk)
        return self._look_up(gvk) if found is None else found

    def _look_up(self, gvk: GVK) -> SchemaType | None:
        package = gvk.group.partition(".")[0] or "core"
        name = f"{package}/{gvk.version}.{gvk.kind}"
        if name in self._blocks:
            found = self.get(name)
            if len(self._found) < _FOUND_KEPT:  # clients choose the rest of the group's name
                self._found[gvk] = found
            return found
        if gvk.kind in _META_KINDS:
            return self.get(f"meta/v1.{gvk.kind}")
        return None if self is BASE else BASE.lookup(gvk)

    def _make(self, name: str) -> SchemaType:
        package, _, short = name.partition(".")
        lines = self._blocks[name].splitlines()
        go_name = f"{package.partition('/')[2]}.{short}"
        if lines and lines[0].startswith(name + " ="):
            go_name = lines.pop(0).partition(" =")[2]
        properties: dict[str, SchemaField] = {}
        for line in lines:
            line, at, where = line.partition(" @")
            if at and not in_range(where, self.release):
                continue
            line = line.partition(" #")[0]
            if line.startswith("& "):
                embedded, _, called = line[2:].partition(" =")
                prefix = called or embedded.rpartition(".")[2]
                for f in self.get(_absolute(embedded, package)).properties.values():
                    properties[f.name] = _moved(f, prefix)
            else:
                f = self._parse_field(line, package)
                properties[f.name] = f
        return SchemaType(name, go_name, properties, self)

    def _parse_field(self, line: str, package: str) -> SchemaField:
        name, _, rest = line.partition(" ")
        if rest.startswith("map"):
            head, expression, *notes = rest.split(" ")
            expression = f"{head} {expression}"
        else:
            expression, *notes = rest.split(" ")
        always = name.endswith(("!", "!?"))
        required = name.endswith("!")
        omit_zero = name.endswith("~")
        name = name.rstrip("!?~")
        go_name = name[:1].upper() + name[1:]
        strategy = merge_key = list_type = map_type = ""
        keys: tuple[str, ...] = ()
        gates: tuple[str, ...] = ()
        for note in notes:
            what, _, text = note.partition("=")
            if what == "":
                go_name = text
            elif what == "patch":
                strategy, _, merge_key = text.partition(":")
            elif what == "list":
                list_type, _, joined = text.partition(":")
                keys = tuple(joined.split(",")) if joined else ()
            elif what == "map":
                map_type = text
            elif what == "gate":
                gates = tuple(text.split(","))
        value = self._parse_value(expression, package)
        if value.kind == "list" and not list_type:
            # Without a list type, the patch strategy determines how server-side apply merges the list.
            list_type = "atomic"
            if strategy.startswith("merge"):
                list_type, keys = ("map", (merge_key,)) if merge_key else ("set", ())
        return SchemaField(
            name,
            (go_name,),
            value,
            always,
            required,
            strategy,
            merge_key,
            list_type,
            keys,
            map_type == "atomic",
            omit_zero,
            gates,
        )

    def _parse_value(self, expression: str, package: str) -> SchemaValue:
        if expression.startswith("*"):
            inner = self._parse_value(expression[1:], package)
            return SchemaValue(
                inner.kind, "*" + inner.go_name, True, inner.item, inner.ref, inner.table
            )
        if expression.startswith("map"):
            head, _, rest = expression.partition(" ")
            head, _, own_name = head.partition("=")
            item = self._parse_value(rest, package)
            key = head[4:-1] or "string"
            return SchemaValue("map", own_name or f"map[{key}]{item.go_name}", item=item)
        if expression.startswith("[]"):
            rest, _, own_name = expression[2:].partition("=")
            item = self._parse_value(rest, package)
            return SchemaValue("list", own_name or f"[]{item.go_name}", item=item)
        expression, _, own_name = expression.partition(":")
        if expression in _SCALARS:
            go_name = own_name or _GO_NAMES.get(expression, expression)
            return SchemaValue(_SCALARS[expression], go_name)
        ref = _absolute(expression, package)
        head, _, _ = self._blocks[ref].partition("\n")
        if head.startswith(ref + " ="):
            return SchemaValue("struct", head.partition(" =")[2], ref=ref, table=self)
        return SchemaValue("struct", f"{ref.partition('/')[2]}", ref=ref, table=self)


@cache
def _default_table(release: Release) -> SchemaTable:
    return SchemaTable(release)


def schema_table(release: Release, feature_gates: Mapping[str, bool] | None = None) -> SchemaTable:
    """The types of a release with the feature gates of a cluster."""
    if not has_tables(release):
        return BASE
    return SchemaTable(release, feature_gates) if feature_gates else _default_table(release)


BASE = SchemaTable(Release(1, 20))
get_schema_type = BASE.get
lookup_schema_type = BASE.lookup


def _absolute(name: str, package: str) -> str:
    return name if "/" in name else f"{package}.{name}"


def _moved(f: SchemaField, prefix: str) -> SchemaField:
    return SchemaField(
        f.name,
        (prefix, *f.go_path),
        f.value,
        f.always,
        f.required,
        f.patch_strategy,
        f.patch_merge_key,
        f.list_type,
        f.list_map_keys,
        f.atomic,
        f.omit_zero,
        f.gates,
    )
