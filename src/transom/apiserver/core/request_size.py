"""The size of a write: objects that etcd would reject are rejected with Kubernetes' error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transom.apiserver.core.objectstore import encode_value
from transom.apiserver.core.resources import Resource
from transom.kit.lazy import lazy_import
from transom.machinery import errors
from transom.machinery.objects import Object
from transom.machinery.schema import schema_table

# Few objects are large enough for their protobuf size to matter.
if TYPE_CHECKING:
    from transom.machinery import protobuf
else:
    protobuf = lazy_import("transom.machinery.protobuf")

MAX_REQUEST_BYTES = 1536 * 1024  # etcd's --max-request-bytes
MAX_SEND_BYTES = 2 * 1024 * 1024  # the limit of etcd's client
_STORED_AS_JSON = ("apiextensions.k8s.io", "apiregistration.k8s.io")


def fit_request(res: Resource, key: str, obj: Object, keep_managed_fields: bool = False) -> None:
    """Raises Kubernetes' error if etcd would reject the object. Like Kubernetes, first drops the
    managed fields of an object that is too large. Slow.
    """
    body = encode_value(obj, custom=res.custom)
    # empty messages take more space in protobuf, but not four times as much
    if len(body) < MAX_REQUEST_BYTES // 4:
        return
    problem = _too_large(res, key, obj, body)
    if (
        problem is not None
        and not keep_managed_fields
        and obj["metadata"].pop("managedFields", None)
    ):
        problem = _too_large(res, key, obj, encode_value(obj, custom=res.custom))
    if problem is not None:
        raise problem


def _too_large(res: Resource, key: str, obj: Object, body: bytes) -> errors.ApiError | None:
    """Kubernetes stores built-in kinds as protobuf and custom ones as JSON. A transaction contains
    the key three times.
    """
    gvk, types = res.kind.gvk(), schema_table(res.release)
    as_json = (
        res.custom or gvk.group in _STORED_AS_JSON or not protobuf.is_protobuf_encodable(gvk, types)
    )
    size = len(body) if as_json else len(protobuf.encode_protobuf(obj, gvk, types))
    size += 3 * len(f"/registry/{registry_path(res, key)}") + 40
    if size > MAX_SEND_BYTES:
        return errors.ApiError(
            500,
            "",
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max "
            f"({size} vs. {MAX_SEND_BYTES})",
        )
    return (
        errors.ApiError(500, "", "etcdserver: request is too large")
        if size > MAX_REQUEST_BYTES
        else None
    )


def registry_path(res: Resource, key: str) -> str:
    """The key in Kubernetes' etcd, for error messages."""
    rest = key.split("/", 1)[1]
    return (
        f"{res.kind.group}/{res.kind.plural}/{rest}" if res.custom else f"{res.kind.plural}/{rest}"
    )
