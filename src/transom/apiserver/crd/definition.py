"""A parsed CustomResourceDefinition for serving: the row of its kind, and the data of each
version.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from transom.apiserver.core import definition_conditions, discovery
from transom.kit.lazy_dataclass import dataclass
from transom.machinery.kinds import ALL_VERBS, SCALE, STATUS, Kind, Subresource
from transom.machinery.objects import Object
from transom.machinery.structural import StructuralSchema, compile_schema
from transom.machinery.typed import CustomTypes, TypeNode
from transom.machinery.validation.structural import is_structural_possible, validate_structural


@dataclasses.dataclass(frozen=True)
class DefinitionVersion:
    """One version of a definition, served or not."""

    name: str
    served: bool
    schema: Mapping[str, Any] | None  # the openAPIV3Schema as written
    scale: Mapping[str, str] | None
    columns: list[Mapping[str, Any]]
    deprecation: str  # the warning; empty if the version is not deprecated
    subresources: tuple[Subresource, ...]

    @cached_property
    def structural(self) -> StructuralSchema | None:
        """The compiled schema. A definition may have thousands of versions; most of them are never
        requested.
        """
        return compile_schema(self.schema)


class DefinitionVersions(Mapping[str, DefinitionVersion]):
    """The versions of a definition by name; each is read on first use, because there may be
    thousands.
    """

    def __init__(
        self, rows: Sequence[Mapping[str, Any]], spec: Mapping[str, Any], kind: str
    ) -> None:
        self._rows = {row["name"]: row for row in rows}
        self._spec = spec
        self._kind = kind
        self._read: dict[str, DefinitionVersion] = {}

    @cached_property
    def _best(self) -> str:
        return _recommended(list(self._rows.values()))

    def __getitem__(self, name: str) -> DefinitionVersion:
        found = self._read.get(name)
        if found is None:
            row = self._rows[name]
            best = self._best if row.get("deprecated") else ""
            found = self._read[name] = _version(row, self._spec, self._kind, best)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, name: object) -> bool:
        return name in self._rows


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
    apply_types: Mapping[str, TypeNode]  # the types for server-side apply by apiVersion

    @property
    def storage(self) -> str:
        return self.kind.storage

    def published_schema(self, version: str) -> Mapping[str, Any] | None:
        """The schema for OpenAPI documents: only a structural one is reliable."""
        schema = self.versions[version].schema
        if schema is None or self.preserve_unknown or not is_structural_possible(schema):
            return None
        return None if validate_structural(schema, "") else schema


def is_definition_served(crd: Object) -> bool:
    return definition_conditions.is_condition_true(
        crd, definition_conditions.NAMES_ACCEPTED
    ) or definition_conditions.is_condition_true(crd, definition_conditions.ESTABLISHED)


def read_definition(
    crd: Object, since: int, *, selectable: bool = False, partial_keys: bool = False
) -> Definition | None:
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
    versions = DefinitionVersions(rows, spec, names.get("kind", ""))
    served = sorted((v["name"] for v in rows if v.get("served")), key=discovery.version_key)
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
        version_subresources=tuple((v["name"], _subresources(v)) for v in rows if v.get("served")),
        selectable=tuple(_selectable_fields(rows)) if selectable else (),
    )
    preserve_unknown = bool(spec.get("preserveUnknownFields"))
    return Definition(
        crd["metadata"]["name"],
        crd["metadata"]["uid"],
        kind,
        versions,
        preserve_unknown,
        spec.get("conversion") or {"strategy": "None"},
        definition_conditions.is_condition_true(crd, definition_conditions.ESTABLISHED),
        terminating,
        since,
        (crd["metadata"]["uid"], spec, names, terminating),
        CustomTypes(
            {f"{group}/{v['name']}": (v.get("schema") or {}).get("openAPIV3Schema") for v in rows},
            preserve_unknown,
            partial_keys=partial_keys,
        ),
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


def _version(
    row: Mapping[str, Any], spec: Mapping[str, Any], kind: str, best: str
) -> DefinitionVersion:
    schema = (row.get("schema") or {}).get("openAPIV3Schema")
    wanted = row.get("subresources") or {}
    return DefinitionVersion(
        row["name"],
        bool(row.get("served")),
        schema,
        wanted.get("scale"),
        row.get("additionalPrinterColumns") or [],
        _deprecation(row, spec, kind, best),
        _subresources(row),
    )


def _subresources(row: Mapping[str, Any]) -> tuple[Subresource, ...]:
    wanted = row.get("subresources")
    if not wanted:
        return ()
    rows = (("status", STATUS), ("scale", SCALE))
    return tuple(subresource for name, subresource in rows if wanted.get(name) is not None)


def _recommended(rows: Sequence[Mapping[str, Any]]) -> str:
    """The best served version that is not deprecated."""
    good = [v["name"] for v in rows if v.get("served") and not v.get("deprecated")]
    return min(good, key=discovery.version_key, default="")


def _deprecation(row: Mapping[str, Any], spec: Mapping[str, Any], kind: str, best: str) -> str:
    """`best`: the recommended version of the definition."""
    if not row.get("deprecated"):
        return ""
    if row.get("deprecationWarning") is not None:
        return str(row["deprecationWarning"])
    text = f"{spec['group']}/{row['name']} {kind} is deprecated"
    if best and discovery.version_key(best) < discovery.version_key(row["name"]):
        return f"{text}; use {spec['group']}/{best} {kind}"
    return text
