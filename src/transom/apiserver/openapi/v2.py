"""The OpenAPI v2 (swagger) document of all served resources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from transom.apiserver.openapi import custom, paths
from transom.apiserver.openapi.custom import CustomSchema
from transom.apiserver.openapi.definitions import (
    NAMED_VALUES,
    DefinitionBuilder,
    gvk_extension,
    published_definitions,
    served_gvks,
)
from transom.machinery.kinds import GVK, Kind
from transom.machinery.schema import BASE, SchemaTable

_STREAMS = ["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"]


def openapi_v2_reference(name: str, extras: Mapping[str, Any]) -> dict[str, Any]:
    return {**extras, "$ref": f"#/definitions/{name}"}


def build_openapi_v2(
    kinds: Iterable[Kind],
    customs: Iterable[CustomSchema] = (),
    *,
    version: str,
    field_validation: bool = True,
    types: SchemaTable = BASE,
) -> dict[str, Any]:
    """`version` is the server's, as in `/version`: `v1.20.15`."""
    built_in = [kind for kind in kinds if not kind.custom]
    customs = list(customs)
    published = published_definitions(types.release)
    builder = DefinitionBuilder(published, openapi_v2_reference, NAMED_VALUES, types)
    for gvk in served_gvks(built_in, types):
        builder.add_kind(gvk)
    builder.add_meta()
    _mark_meta(builder, built_in)
    for one in customs:
        builder.definitions.update(custom.custom_definitions(one, openapi_v2_reference, v2=True))
    items = dict(
        _writer(paths.paths_of_kinds(built_in, field_validation=field_validation, types=types))
    )
    for one in customs:
        items |= _writer(
            paths.paths_of_kinds([one.row()], field_validation=field_validation, types=types)
        )
    return {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": version},
        "paths": dict(sorted(items.items())),
        "definitions": dict(sorted(builder.definitions.items())),
    }


def _mark_meta(builder: DefinitionBuilder, kinds: Iterable[Kind]) -> None:
    """Options and watch events are in every group version."""
    places = dict.fromkeys(
        [(k.group, v) for k in kinds for v in k.versions]
        + [(g, v) for k in kinds for g, vs in k.also for v in vs]
    )
    for kind in ("DeleteOptions", "WatchEvent"):
        name = f"io.k8s.apimachinery.pkg.apis.meta.v1.{kind}"
        builder.mark(name, [GVK(group, version, kind) for group, version in places])
    builder.mark("io.k8s.apimachinery.pkg.apis.meta.v1.Status", [GVK("", "v1", "Status")])


def _writer(items: Iterable[tuple[tuple[str, str], paths.PathItem]]) -> dict[str, Any]:
    shared: dict[Any, list[dict[str, Any]]] = {}
    return {item.path: _path_item(item, shared) for _, item in items}


def _parameters(
    of: Iterable[paths.OpenApiParameter],
    body: str,
    where: str,
    shared: dict[Any, list[dict[str, Any]]],
) -> list[dict[str, Any]]:
    """Equal lists become one object, which makes the protobuf encoder fast."""
    key = (tuple(of), body, where)
    if key not in shared:
        made: list[dict[str, Any]] = []
        if body:
            optional = body.endswith(".DeleteOptions")
            made.append(
                {
                    "name": "body",
                    "in": "body",
                    **({} if optional else {"required": True}),
                    "schema": openapi_v2_reference(body, {}),
                }
            )
        for p in key[0]:
            place = "query" if p.name == "pretty" else where
            made.append(
                {
                    "uniqueItems": True,
                    "type": p.type,
                    "description": p.description,
                    "name": p.name,
                    "in": place,
                    **({"required": True} if place == "path" else {}),
                }
            )
        shared[key] = made
    return shared[key]


def _path_item(item: paths.PathItem, shared: dict[Any, list[dict[str, Any]]]) -> dict[str, Any]:
    out: dict[str, Any] = {o.method: _operation(o, shared) for o in item.operations}
    out["parameters"] = _parameters(item.variables, "", "path", shared)
    return out


def _operation(
    o: paths.OpenApiOperation, shared: dict[Any, list[dict[str, Any]]]
) -> dict[str, Any]:
    answer = (
        {"schema": openapi_v2_reference(o.answer, {})}
        if o.answer
        else {"schema": {"type": "string"}}
    )
    produces = paths.MEDIA_TYPES + _STREAMS if o.action == "list" else paths.MEDIA_TYPES
    out: dict[str, Any] = {
        "description": o.description,
        "consumes": list(o.consumes),
        "produces": produces if o.answer else ["*/*"],
        "schemes": ["https"],
        "tags": [o.tag],
        "operationId": o.id,
    }
    if o.query or o.body:
        out["parameters"] = _parameters(o.query, o.body, "query", shared)
    out["responses"] = {str(code): {"description": paths.CODES[code], **answer} for code in o.codes}
    out["responses"]["401"] = {"description": paths.CODES[401]}
    out["x-kubernetes-action"] = o.action
    if o.gvk is not None:
        out["x-kubernetes-group-version-kind"] = gvk_extension(o.gvk)
    return out
