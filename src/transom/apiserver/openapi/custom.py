"""OpenAPI definitions of custom resources, built from their schemas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from transom.apiserver.openapi.definitions import (
    LIST_META,
    OBJECT_META,
    Reference,
    gvk_extension,
    gvk_name,
)
from transom.kit.named_tuple import NamedTuple
from transom.machinery.kinds import GVK, Kind

_JUNCTORS = ("allOf", "oneOf", "anyOf", "not")
_NESTED = ("properties", "items", "additionalProperties")
_DOCS = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
_API_VERSION = (
    "APIVersion defines the versioned schema of this representation of an object. Servers "
    "should convert recognized "
    "schemas to the latest internal value, and may reject unrecognized values. More info: "
    f"{_DOCS}#resources"
)
_KIND = (
    "Kind is a string value representing the REST resource this object represents. Servers "
    "may infer this from the "
    "endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: "
    f"{_DOCS}#types-kinds"
)
_LIST_METADATA = f"Standard list metadata. More info: {_DOCS}#types-kinds"
_METADATA = f"Standard object's metadata. More info: {_DOCS}#metadata"


class CustomSchema(NamedTuple):
    """One served version of a custom resource; `schema` is its openAPIV3Schema, or None."""

    kind: Kind
    version: str
    schema: Mapping[str, Any] | None

    @property
    def gvk(self) -> GVK:
        return GVK(self.kind.group, self.version, self.kind.kind)

    def row(self) -> Kind:
        """The kind with this version only."""
        return replace(
            self.kind,
            versions=(self.version,),
            subresources=self.kind.subresources_of(self.version),
            version_subresources=(),
        )


def custom_definitions(
    custom: CustomSchema, reference: Reference, *, v2: bool
) -> dict[str, dict[str, Any]]:
    """The definitions of the kind and of its list."""
    gvk = custom.gvk
    list_gvk = GVK(gvk.group, gvk.version, custom.kind.list_name)
    name, list_name = gvk_name(gvk), gvk_name(list_gvk)
    item = {
        **_object(custom.schema, reference, v2),
        "x-kubernetes-group-version-kind": [gvk_extension(gvk)],
    }
    listing = {
        "description": f"{list_gvk.kind} is a list of {gvk.kind}",
        "type": "object",
        "required": ["items"],
        "properties": {
            **_type_meta(),
            "items": {
                "description": f"List of {custom.kind.plural}. More info: {_DOCS}",
                "type": "array",
                "items": reference(name, {}),
            },
            "metadata": reference(LIST_META, {"description": _LIST_METADATA}),
        },
        "x-kubernetes-group-version-kind": [gvk_extension(list_gvk)],
    }
    return {name: item, list_name: listing}


def _type_meta() -> dict[str, Any]:
    return {
        "apiVersion": {"description": _API_VERSION, "type": "string"},
        "kind": {"description": _KIND, "type": "string"},
    }


def _object(schema: Mapping[str, Any] | None, reference: Reference, v2: bool) -> dict[str, Any]:
    # kubectl treats every unlisted property as an error, so an open schema lists none.
    if not schema or (v2 and schema.get("x-kubernetes-preserve-unknown-fields")):
        return {"type": "object"}
    content = _embedded(_for_v2(schema) if v2 else dict(schema), reference, v2)
    content["properties"] = {
        **content.get("properties", {}),
        **_type_meta(),
        "metadata": reference(OBJECT_META, {"description": _METADATA}),
    }
    return content


def _map_nested(schema: dict[str, Any], change: Any) -> dict[str, Any]:
    for key in _NESTED:
        inner = schema.get(key)
        if key == "properties" and inner:
            schema[key] = {name: change(sub) for name, sub in inner.items()}
        elif isinstance(inner, Mapping):
            schema[key] = change(inner)
    return schema


def _for_v2(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Removes what OpenAPI v2, or kubectl's implementation of it, does not support."""
    out = {k: v for k, v in schema.items() if k not in _JUNCTORS and k != "nullable"}
    nullable, open_ended = (
        schema.get("nullable"),
        schema.get("x-kubernetes-preserve-unknown-fields"),
    )
    if nullable or open_ended:
        out.pop("items", None)
        out.pop("properties", None)
    if (
        nullable
        or (open_ended and out.get("type") == "object")
        or (out.get("type") == "array" and "items" not in out)
    ):
        out.pop("type", None)
    required = [
        f
        for f in out.get("required") or ()
        if not (schema.get("properties") or {}).get(f, {}).get("nullable")
    ]
    extra = schema.get("additionalProperties")
    out.pop("required", None)
    if required and not (isinstance(extra, Mapping) and extra.get("nullable")):
        out["required"] = required
    return _map_nested(out, _for_v2)


def _embedded(schema: dict[str, Any], reference: Reference, v2: bool) -> dict[str, Any]:
    """Embedded Kubernetes objects get the type and metadata fields."""
    out = _map_nested(dict(schema), lambda inner: _embedded(dict(inner), reference, v2))
    if not out.get("x-kubernetes-embedded-resource") or (
        v2 and out.get("x-kubernetes-preserve-unknown-fields")
    ):
        return out
    out["properties"] = {
        **out.get("properties", {}),
        **_type_meta(),
        "metadata": reference(OBJECT_META, {"description": _METADATA}),
    }
    out["required"] = list(dict.fromkeys([*out.get("required", ()), "kind", "apiVersion"]))
    return out
