"""A parsed CustomResourceDefinition for serving: the row of its kind, and the data of each
version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from transom.apiserver.core import definition_conditions, discovery
from transom.machinery.kinds import ALL_VERBS, SCALE, STATUS, Kind, Subresource
from transom.machinery.objects import Object
from transom.machinery.structural import StructuralSchema, compile_schema
from transom.machinery.typed import TypeNode, types_from_openapi
from transom.machinery.validation.structural import validate_structural


@dataclass(frozen=True, slots=True)
class DefinitionVersion:
    """One version of a definition, served or not."""

    name: str
    served: bool
    schema: Mapping[str, Any] | None  # the openAPIV3Schema as written
    structural: StructuralSchema | None
    scale: Mapping[str, str] | None
    columns: list[Mapping[str, Any]]
    deprecation: str  # the warning; empty if the version is not deprecated
    subresources: tuple[Subresource, ...]


@dataclass(frozen=True, slots=True)
class Definition:
    name: str
    uid: str
    kind: Kind
    versions: Mapping[str, DefinitionVersion]
    preserve_unknown: bool
    conversion: Mapping[str, Any]
    established: bool
    terminating: bool
    since: int  # objects written after this revision were written with this exact definition
    stamp: object  # equal for definitions that serve the same resources
    _types: dict[str, TypeNode] = field(default_factory=dict, compare=False)

    @property
    def storage(self) -> str:
        return self.kind.storage

    def apply_types(self, *, partial_keys: bool = False) -> Mapping[str, TypeNode]:
        """The types for server-side apply by apiVersion; created on first use. `partial_keys` as for
        types_from_openapi, the same in all calls.
        """
        if not self._types:
            schemas = {f"{self.kind.group}/{v.name}": v.schema for v in self.versions.values()}
            self._types.update(
                types_from_openapi(schemas, self.preserve_unknown, partial_keys=partial_keys)
            )
        return self._types

    def published_schema(self, version: str) -> Mapping[str, Any] | None:
        """The schema for OpenAPI documents: only a structural one is reliable."""
        schema = self.versions[version].schema
        if schema is None or self.preserve_unknown or self.versions[version].structural is None:
            return None
        return None if validate_structural(schema, "") else schema


def is_definition_served(crd: Object) -> bool:
    return definition_conditions.is_condition_true(
        crd, definition_conditions.NAMES_ACCEPTED
    ) or definition_conditions.is_condition_true(crd, definition_conditions.ESTABLISHED)


def read_definition(crd: Object, since: int, *, selectable: bool = False) -> Definition | None:
    """What the definition serves, or None if it serves nothing (yet). `selectable`: whether the
    release has selectable fields.
    """
    spec = crd["spec"]
    rows = spec.get("versions") or []
    storage = next((v["name"] for v in rows if v.get("storage")), "")
    if not is_definition_served(crd) or not storage:
        return None
    names = crd["status"].get("acceptedNames") or {}
    group = spec["group"]
    versions = {v["name"]: _version(v, spec, names.get("kind", "")) for v in rows}
    served = sorted((v.name for v in versions.values() if v.served), key=discovery.version_key)
    terminating = definition_conditions.is_condition_true(crd, definition_conditions.TERMINATING)
    kind = Kind(
        group,
        names.get("kind", ""),
        names.get("plural", ""),
        versions=tuple(served),
        storage=storage,
        namespaced=spec.get("scope") == "Namespaced",
        short=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=versions[served[0] if served else storage].subresources,
        verbs=_TERMINATING_VERBS if terminating else ALL_VERBS,
        singular=names.get("singular", ""),
        list_kind=names.get("listKind", ""),
        custom=True,
        version_subresources=tuple((name, versions[name].subresources) for name in served),
        selectable=tuple(_selectable_fields(rows)) if selectable else (),
    )
    return Definition(
        crd["metadata"]["name"],
        crd["metadata"]["uid"],
        kind,
        versions,
        bool(spec.get("preserveUnknownFields")),
        spec.get("conversion") or {"strategy": "None"},
        definition_conditions.is_condition_true(crd, definition_conditions.ESTABLISHED),
        terminating,
        since,
        (crd["metadata"]["uid"], spec, names, terminating),
    )


def _selectable_fields(
    rows: Sequence[Mapping[str, Any]],
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The selectable fields of each version as field labels."""
    for row in rows:
        fields = row.get("selectableFields") or ()
        if fields:
            yield row["name"], tuple(f["jsonPath"].removeprefix(".") for f in fields)


_TERMINATING_VERBS = tuple(v for v in ALL_VERBS if v not in ("create", "patch", "update"))


def _version(row: Mapping[str, Any], spec: Mapping[str, Any], kind: str) -> DefinitionVersion:
    schema = (row.get("schema") or {}).get("openAPIV3Schema")
    wanted = row.get("subresources") or {}
    subresources = []
    if wanted.get("status") is not None:
        subresources.append(STATUS)
    if wanted.get("scale") is not None:
        subresources.append(SCALE)
    return DefinitionVersion(
        row["name"],
        bool(row.get("served")),
        schema,
        compile_schema(schema),
        wanted.get("scale"),
        row.get("additionalPrinterColumns") or [],
        _deprecation(row, spec, kind),
        tuple(subresources),
    )


def _deprecation(row: Mapping[str, Any], spec: Mapping[str, Any], kind: str) -> str:
    if not row.get("deprecated"):
        return ""
    if row.get("deprecationWarning") is not None:
        return str(row["deprecationWarning"])
    text = f"{spec['group']}/{row['name']} {kind} is deprecated"
    mine = discovery.version_key(row["name"])
    better = sorted(
        (
            v["name"]
            for v in spec["versions"]
            if v.get("served")
            and not v.get("deprecated")
            and discovery.version_key(v["name"]) < mine
        ),
        key=discovery.version_key,
    )
    return f"{text}; use {spec['group']}/{better[0]} {kind}" if better else text
