"""Tables: the response to `Accept: ...;as=Table`, with the columns and cells of each kind.

Cells are made from objects in the kind's storage version; the caller passes `now`. Columns are data
(`table_columns.json`), cells are one function for each kind, found by `Kind.key`. A kind without a
function shows its name and creation time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

import orjson

from transom.kit.goquote import go_quote
from transom.machinery.errors import ApiError, bad_request
from transom.machinery.kinds import Kind
from transom.machinery.releases import DEFAULT, Release, has_tables
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.columns import release_columns
from transom.machinery.tables import cluster, custom, network, newer, partial, pods, workloads
from transom.machinery.tables.custom import CustomColumns
from transom.machinery.tables.text import Object, name_cell

__all__ = [
    "SCALE",
    "CustomColumns",
    "check_include_object",
    "custom_columns",
    "custom_scale_columns",
    "make_table",
    "row_cells",
    "table_columns",
]

Cells = Callable[[Object, float], list[Any]]

_CELLS: dict[str, Cells] = {**pods.CELLS, **workloads.CELLS, **network.CELLS, **cluster.CELLS}
_DEFAULT = "default"
SCALE: Final = Kind("autoscaling", "Scale", "scales")
_ZERO_TIME = "0001-01-01T00:00:00Z"


@cache
def _definitions() -> dict[str, list[dict[str, Any]]]:
    data = orjson.loads(files(__package__).joinpath("columns.json").read_bytes())
    shared = data["shared"]
    return {
        key: [shared[c] if isinstance(c, str) else c for c in of]
        for key, of in data["kinds"].items()
    }


# Kinds of other API servers that kube-apiserver contains; their printers did not change.
_OTHER_SERVERS = ("apiextensions.k8s.io", "apiregistration.k8s.io")


def table_columns(kind: Kind, release: Release = DEFAULT) -> list[dict[str, Any]]:
    """The column definitions of a built-in kind."""
    if has_tables(release):
        found = release_columns(release).get(kind.kind)
        if found is None and kind.group in _OTHER_SERVERS:
            found = _other_columns(kind.key, release)
        return found or _default_columns(release)
    return _definitions().get(kind.key) or _definitions()[_DEFAULT]


@cache
def _other_columns(key: str, release: Release) -> list[dict[str, Any]]:
    """Those of 1.20, with the descriptions that the metadata of the release has."""
    columns = release_columns(release)["Namespace"]
    texts = {"Name": columns[0]["description"], "Age": columns[-1]["description"]}
    return [
        {**column, "description": texts.get(column["name"], column["description"])}
        for column in _definitions().get(key, ())
    ]


@cache
def _default_columns(release: Release) -> list[dict[str, Any]]:
    """Those of kinds without a printer: name and creation time."""
    name, created = _definitions()[_DEFAULT]
    columns = release_columns(release)["Namespace"]
    return [
        {**name, "description": columns[0]["description"]},
        {**created, "description": columns[-1]["description"]},
    ]


def row_cells(kind: Kind, obj: Object, now: float, release: Release = DEFAULT) -> list[Any]:
    return _cells_of(kind, release)(obj, now)


def _cells_of(kind: Kind, release: Release) -> Cells:
    known = _CELLS.get(kind.key, _default_cells)
    if kind.kind == "HorizontalPodAutoscaler" and has_behaviour(release, "MetricNamesInTables"):
        known = workloads.print_autoscaler_with_names
    if not has_tables(release) or kind.kind not in release_columns(release):
        return known
    return _cells_by_column(kind, release, known)


def _cells_by_column(kind: Kind, release: Release, known: Cells) -> Cells:
    """The cells of a later release: those of 1.20 by the name of their column, and newer ones."""
    names = [c["name"] for c in release_columns(release)[kind.kind]]
    before = [c["name"] for c in _definitions().get(kind.key, ())]
    changed = {n for n in names if (kind.kind, n) in newer.CELLS and n not in before}
    if (kind.kind, "Restarts") in newer.CELLS and release_columns(release)[kind.kind][3][
        "type"
    ] == "string":
        changed.add("Restarts")
    if names == before and not changed:
        return known

    def cells(obj: Object, now: float) -> list[Any]:
        old = dict(zip(before, known(obj, now), strict=True)) if before else {}
        out = []
        for name in names:
            was = newer.RENAMED.get((kind.kind, name), name)
            if was in old and name not in changed:
                out.append(old[was])
            else:
                out.append(newer.newer_cell(kind.kind, name, obj, now))
        return out

    return cells


def _default_cells(obj: Object, now: float) -> list[Any]:
    return [name_cell(obj), obj["metadata"].get("creationTimestamp") or _ZERO_TIME]


def custom_columns(
    additional: Iterable[Mapping[str, Any]], release: Release = DEFAULT
) -> CustomColumns:
    """The table of a custom resource, compiled once for each served version of its definition."""
    columns = (
        release_columns(release)["Namespace"]
        if has_tables(release)
        else _definitions()["/Namespace"]
    )
    return custom.build_custom_columns(columns[0], columns[2], additional)


@cache
def custom_scale_columns(release: Release) -> CustomColumns:
    """The table of the Scale of a custom resource."""
    replicas = [
        {
            "name": name,
            "type": "integer",
            "description": f"Number of {what} replicas",
            "jsonPath": path,
        }
        for name, what, path in (
            ("Desired", "desired", ".spec.replicas"),
            ("Available", "actual", ".status.replicas"),
        )
    ]
    age = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
    created = release_columns(release)["Namespace"][-1]["description"]
    return custom_columns([*replicas, {**age, "description": created}], release)


def check_include_object(value: str) -> ApiError | None:
    if value in ("", "Metadata", "Object", "None"):
        return None
    return bad_request(
        "Unable to convert to Table as requested: includeObject: Invalid value: "
        f"{go_quote(value)}: "
        "must be 'Metadata', 'Object', 'None', or empty"
    )


def make_table(
    kind: Kind,
    objs: Iterable[Object],
    *,
    now: float,
    include_object: str = "Metadata",
    list_metadata: Mapping[str, Any] | None = None,
    table_version: str = "v1",
    raw_encoder: Callable[[Object], Any] | None = None,
    custom: CustomColumns | None = None,
    headers: bool = True,
    release: Release = DEFAULT,
) -> dict[str, Any]:
    """The Table document of a list (`list_metadata` given) or of a single object.

    `raw_encoder` returns the object of a row for `includeObject=Object`, in the version of the
    request. A watch sends `headers` in its first event only.
    """
    objs = list(objs)
    if list_metadata is None:
        metadata: Mapping[str, Any] = {
            "resourceVersion": objs[0]["metadata"].get("resourceVersion", "")
        }
    else:
        metadata = list_metadata
        if kind.key == "flowcontrol.apiserver.k8s.io/FlowSchema":
            objs.sort(key=_flow_schema_order)
    cells = custom.cells if custom else _cells_of(kind, release)
    rows = [
        _row(
            kind, cells(obj, now), _row_object(obj, include_object, table_version, raw_encoder), obj
        )
        for obj in objs
    ]
    return {
        "kind": "Table",
        "apiVersion": f"{partial.META_GROUP}/{table_version}",
        "metadata": metadata,
        "columnDefinitions": (custom.definitions if custom else table_columns(kind, release))
        if headers
        else None,
        # Kubernetes' default printer returns null rows for an empty list, the others an empty list.
        "rows": rows if rows or cells is not _default_cells else None,
    }


def _flow_schema_order(obj: Object) -> tuple[int, str]:
    return (obj.get("spec") or {}).get("matchingPrecedence", 0), name_cell(obj)


def _row(kind: Kind, cells: list[Any], content: Any, obj: Object) -> dict[str, Any]:
    conditions = pods.row_conditions(obj) if kind.key == "/Pod" else None
    if conditions:
        return {"cells": cells, "conditions": conditions, "object": content}
    return {"cells": cells, "object": content}


def _row_object(
    obj: Object, include: str, version: str, raw_encoder: Callable[[Object], Any] | None
) -> Any:
    if include == "None":
        return None
    if include == "Object":
        return raw_encoder(obj) if raw_encoder else obj
    return partial.object_metadata(obj, version)
