"""How objects look in etcd: keys and JSON values as Kubernetes has them.

Kubernetes' keys are `/registry/PLURAL/NAMESPACE/NAME`, with a few old names, and
`/registry/GROUP/PLURAL/...` for custom resources. A value has no resourceVersion: it is the revision
that etcd assigns. Values that a kube-apiserver wrote in protobuf can be read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import orjson

from transom.apiserver.core.integrity import MASTER_LEASES
from transom.kit.lazy import lazy_import
from transom.machinery import conversion
from transom.machinery.kinds import GVK, Kind
from transom.machinery.objects import Object
from transom.machinery.releases import Release
from transom.machinery.served_since import ALL_SINCE, kinds_of

if TYPE_CHECKING:
    from transom.machinery import codec, protobuf, schema
else:
    codec = lazy_import("transom.machinery.codec")
    protobuf = lazy_import("transom.machinery.protobuf")
    schema = lazy_import("transom.machinery.schema")

# Kubernetes: SpecialDefaultResourcePrefixes in pkg/kubeapiserver/default_storage_factory_builder.go
_OLD_NAMES = {
    "replicationcontrollers": "controllers",
    "endpoints": "services/endpoints",
    "nodes": "minions",
    "services": "services/specs",
    "ingresses.networking.k8s.io": "ingress",
    "podsecuritypolicies.policy": "podsecuritypolicy",
}
_WITH_GROUP = ("apiextensions.k8s.io", "apiregistration.k8s.io")
# What Transom and Kubernetes write for built-in kinds: these members come first, in this order.
_HEAD = re.compile(rb'\{"kind":"[^"\\]+","apiVersion":"([^"\\]+)","metadata":\{(?!\})')
_PROTOBUF = b"k8s\x00"


def _bucket(kind: Kind) -> str:
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


def _place(kind: Kind) -> str:
    old = _OLD_NAMES.get(_bucket(kind))
    if old is not None:
        return old
    return f"{kind.group}/{kind.plural}" if kind.group in _WITH_GROUP else kind.plural


class RegistryLayout:
    """Implements `store.etcd.store.EtcdLayout` for the buckets of an API server of the release: its
    built-in kinds have keys without their group.
    """

    def __init__(self, release: Release = ALL_SINCE) -> None:
        self._release = release
        self._kinds = {_bucket(kind): kind for kind in kinds_of(release) if kind.stored}
        self._places = {bucket: _place(kind) for bucket, kind in self._kinds.items()}
        self._places[MASTER_LEASES] = MASTER_LEASES
        self._buckets = {place: bucket for bucket, place in self._places.items()}

    def to_path(self, key: str) -> str:
        bucket, _, rest = key.partition("/")
        place = self._places.get(bucket)
        if place is None:
            plural, _, group = bucket.partition(".")
            place = f"{group}/{plural}"
        return f"{place}/{rest}"

    def from_path(self, path: str, former: bool = False) -> str | None:
        first, _, rest = path.partition("/")
        second, _, after = rest.partition("/")
        bucket = self._buckets.get(f"{first}/{second}")
        if bucket is not None:
            return f"{bucket}/{after}" if after else None
        bucket = self._buckets.get(first)
        if bucket is not None:
            return f"{bucket}/{rest}" if rest else None
        # A group has a dot. Kubernetes has other keys of its own, such as ranges/serviceips.
        if "." not in first or not after:
            return None
        # Earlier versions of Transom wrote built-in kinds that came after 1.20 like custom resources.
        bucket = f"{second}.{first}"
        return f"{bucket}/{after}" if former or bucket not in self._places else None

    def to_etcd(self, key: str, value: bytes) -> bytes:
        return value

    def registry_value(self, key: str, value: bytes, custom_kinds: Mapping[str, str]) -> bytes:
        """A value of a store with its own revisions as it is in etcd: the whole object, without
        resourceVersion. `custom_kinds`: the kinds of custom resources by bucket. Raises ValueError.
        """
        obj = orjson.loads(value)
        bucket = key[: key.find("/")]
        kind = self._kinds.get(bucket)
        meta = {k: v for k, v in obj.pop("metadata").items() if k != "resourceVersion"}
        own = (obj.pop("kind", None), obj.pop("apiVersion", None))
        if kind is not None:
            head = {"kind": kind.kind, "apiVersion": kind.gvk().api_version}
        else:
            name = own[0] or custom_kinds.get(bucket)
            if not name or not own[1]:
                raise ValueError(f"the kind of {key} is not known")
            head = {"kind": name, "apiVersion": own[1]}
        return orjson.dumps({**head, "metadata": meta, **obj})

    def from_etcd(self, key: str, stored: bytes, revision: int) -> bytes:
        kind = self._kinds.get(key[: key.find("/")])
        head = _HEAD.match(stored)
        if head is not None and b'"resourceVersion"' not in stored:
            version = head[1].decode()
            if kind is None:
                start = f'{{"apiVersion":"{version}","metadata":{{"resourceVersion":"{revision}",'
                return start.encode() + stored[head.end() :]
            if version == kind.gvk().api_version:
                start = f'{{"metadata":{{"resourceVersion":"{revision}",'
                return start.encode() + stored[head.end() :]
        return _complete_value(kind, stored, revision, self._release)


def _complete_value(kind: Kind | None, stored: bytes, revision: int, release: Release) -> bytes:
    """Any other form: members in another order, another version, protobuf."""
    obj = _decode(stored, release)
    meta = obj.get("metadata")
    if not isinstance(meta, dict):
        raise ValueError("the value is not an object with metadata")
    if kind is not None:
        group, _, version = str(obj.get("apiVersion", "")).rpartition("/")
        obj = conversion.to_storage(kind, obj, GVK(group, version, kind.kind))
        meta = obj["metadata"]
        obj.pop("apiVersion", None)
    obj.pop("kind", None)
    meta["resourceVersion"] = str(revision)
    return orjson.dumps(obj)


def _decode(stored: bytes, release: Release) -> Object:
    """Protobuf has no field names: fields that the release does not have are dropped."""
    if stored.startswith(_PROTOBUF):
        try:
            found = protobuf.unwrap_envelope(stored)
            group, _, version = found.api_version.rpartition("/")
            gvk = GVK(group, version, found.kind)
            return codec.decode_object(
                stored, codec.PROTOBUF, gvk, types=schema.schema_table(release)
            ).obj
        except (protobuf.MalformedProtobuf, codec.DecodeError) as problem:
            raise ValueError(str(problem)) from problem
    obj = orjson.loads(stored)
    if not isinstance(obj, dict):
        raise ValueError("the value is not an object")
    return obj
