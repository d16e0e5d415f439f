"""The OpenAPI v3 documents: an index and one document for each group version."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from transom import __version__
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

_NAMED = {
    **NAMED_VALUES,
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {
        "oneOf": [{"type": "string"}, {"type": "number"}]
    },
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {
        "format": "int-or-string",
        "oneOf": [{"type": "integer"}, {"type": "string"}],
    },
}


def openapi_v3_reference(name: str, extras: Mapping[str, Any]) -> dict[str, Any]:
    ref = {"$ref": f"#/components/schemas/{name}"}
    # In v3 a reference must not have siblings.
    return {**extras, "allOf": [ref]} if extras else ref


def group_versions(
    kinds: Iterable[Kind], customs: Iterable[CustomSchema] = (), *, version: str
) -> dict[tuple[str, str], str]:
    """The served group versions, each with a hash that changes with its document, computed without
    building the documents.
    """
    maker = f"{__version__} {version}".encode()
    parts: dict[tuple[str, str], list[bytes]] = {}
    for kind in kinds:
        if not kind.custom:
            for place in _places(kind):
                parts.setdefault(place, []).append(repr(kind).encode())
    for one in customs:
        content = orjson.dumps(one.schema, option=orjson.OPT_SORT_KEYS)
        parts.setdefault((one.kind.group, one.version), []).append(
            repr(one.kind).encode() + content
        )
    return {
        place: hashlib.sha512(b"\n".join([maker, *of])).hexdigest().upper()
        for place, of in parts.items()
    }


def _places(kind: Kind) -> list[tuple[str, str]]:
    return [(kind.group, v) for v in kind.versions] + [
        (g, v) for g, versions in kind.also for v in versions
    ]


def openapi_v3_path(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def openapi_v3_url(group: str, version: str, digest: str) -> str:
    return f"/openapi/v3/{openapi_v3_path(group, version)}?hash={digest}"


def openapi_v3_index(hashes: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    """`/openapi/v3`"""
    entries = {
        openapi_v3_path(g, v): {"serverRelativeURL": openapi_v3_url(g, v, digest)}
        for (g, v), digest in hashes.items()
    }
    return {"paths": dict(sorted(entries.items()))}


def build_openapi_v3(
    group: str,
    group_version: str,
    kinds: Iterable[Kind],
    customs: Iterable[CustomSchema] = (),
    *,
    version: str,
    field_validation: bool = True,
    types: SchemaTable = BASE,
) -> dict[str, Any]:
    """`/openapi/v3/apis/GROUP/VERSION`; the group version must be served."""
    place = (group, group_version)
    own = [kind for kind in kinds if not kind.custom and place in _places(kind)]
    theirs = [one for one in customs if (one.kind.group, one.version) == place]
    published = published_definitions(types.release)
    builder = DefinitionBuilder(published, openapi_v3_reference, _NAMED, types, with_defaults=True)
    for gvk in served_gvks(own, types):
        if (gvk.group, gvk.version) == place or not any(
            gvk.kind in (k.kind, k.list_name) for k in own
        ):
            builder.add_kind(gvk)
    builder.add_meta()
    for one in theirs:
        builder.definitions.update(custom.custom_definitions(one, openapi_v3_reference, v2=False))
        builder.add("meta/v1.ObjectMeta")
        builder.add("meta/v1.ListMeta")
    if any(sub.name == "scale" for one in theirs for sub in one.kind.subresources_of(one.version)):
        builder.add_kind(GVK("autoscaling", "v1", "Scale"))
    builder.mark(
        "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
        [GVK(group, group_version, "DeleteOptions")],
    )
    rows = [*own, *(one.row() for one in theirs)]
    items = (
        item
        for where, item in paths.paths_of_kinds(
            rows, field_validation=field_validation, types=types
        )
        if where == place
    )
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": version},
        "paths": {item.path: _path_item(item) for item in sorted(items)},
        "components": {"schemas": dict(sorted(builder.definitions.items()))},
    }


def _parameter(p: paths.OpenApiParameter, where: str) -> dict[str, Any]:
    place = "query" if p.name == "pretty" else where
    made: dict[str, Any] = {"name": p.name, "in": place, "description": p.description}
    if place == "path":
        made["required"] = True
    return {**made, "schema": {"type": p.type, "uniqueItems": True}}


def _path_item(item: paths.PathItem) -> dict[str, Any]:
    out: dict[str, Any] = {o.method: _operation(o) for o in item.operations}
    out["parameters"] = [_parameter(p, "path") for p in item.variables]
    return out


def _operation(o: paths.OpenApiOperation) -> dict[str, Any]:
    schema = openapi_v3_reference(o.answer, {}) if o.answer else {"type": "string"}
    content = {media: {"schema": schema} for media in (paths.MEDIA_TYPES if o.answer else ["*/*"])}
    out: dict[str, Any] = {"tags": [o.tag], "description": o.description, "operationId": o.id}
    if o.query:
        out["parameters"] = [_parameter(p, "query") for p in o.query]
    if o.body:
        out["requestBody"] = {
            "content": {media: {"schema": openapi_v3_reference(o.body, {})} for media in o.consumes}
        }
        if not o.body.endswith(".DeleteOptions"):
            out["requestBody"]["required"] = True
    out["responses"] = {
        str(code): {"description": paths.CODES[code], "content": content} for code in o.codes
    }
    out["responses"]["401"] = {"description": paths.CODES[401]}
    out["x-kubernetes-action"] = o.action
    if o.gvk is not None:
        out["x-kubernetes-group-version-kind"] = gvk_extension(o.gvk)
    return out
