"""PartialObjectMetadata: an object or a list reduced to its metadata."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from transom.machinery.errors import ApiError
from transom.machinery.kinds import Kind

META_GROUP = "meta.k8s.io"
META_VERSIONS = ("v1", "v1beta1")

# Go's package names of the internal types, which appear in an error message.
_PACKAGES = {
    "": "core",
    "flowcontrol.apiserver.k8s.io": "flowcontrol",
    "rbac.authorization.k8s.io": "rbac",
}


def object_metadata(obj: Mapping[str, Any], version: str = "v1") -> dict[str, Any]:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"{META_GROUP}/{version}",
        "metadata": obj["metadata"],
    }


def object_metadata_list(
    objs: Iterable[Mapping[str, Any]], list_metadata: Mapping[str, Any], version: str = "v1"
) -> dict[str, Any]:
    """The number of remaining items is omitted, and an empty list has null items."""
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": f"{META_GROUP}/{version}",
        "metadata": {k: v for k, v in list_metadata.items() if k != "remainingItemCount"},
        "items": [object_metadata(obj, version) for obj in objs] or None,
    }


def _go_type(kind: Kind, suffix: str) -> str:
    if kind.custom:
        return f"*unstructured.Unstructured{suffix}"
    package = _PACKAGES.get(kind.group) or kind.group.partition(".")[0]
    return f"*{package}.{kind.kind}{suffix}"


def is_a_list(kind: Kind) -> ApiError:
    text = (
        "you requested PartialObjectMetadata, but the requested object is a list "
        f"({_go_type(kind, 'List')})"
    )
    return ApiError(406, "NotAcceptable", text)


def is_no_list(kind: Kind) -> ApiError:
    if kind.custom:
        return ApiError(500, "", "content is not a list")
    text = (
        "you requested PartialObjectMetadataList, but the requested object is not a list "
        f"({_go_type(kind, '')})"
    )
    return ApiError(406, "NotAcceptable", text)
