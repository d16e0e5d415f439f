"""Converts the object of a request for a webhook, and back.

A webhook sees the version of its rule, the object of a subresource (a Scale, an Eviction, options),
and JSON as Go encodes it. Internally, built-in kinds are in the storage version and custom ones in
the version of the request.
"""

from __future__ import annotations

from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.resources import Resource
from transom.apiserver.core.subresources import scale
from transom.kit.named_tuple import NamedTuple
from transom.machinery import codec
from transom.machinery.kinds import GVK
from transom.machinery.objects import Object, copy_object


class VersionedObject(NamedTuple):
    kind: GVK
    obj: Object | None
    old: Object | None


def own_kind(attributes: Attributes, target: Resource) -> GVK:
    """The object of the request, as seen by a request for `target`."""
    if attributes.subresource == "scale":
        return scale.SCALE
    carried = attributes.obj
    if carried and not _is_whole(attributes, carried):
        group, _, version = carried["apiVersion"].rpartition("/")
        return GVK(group, version, carried["kind"])
    return target.gvk


def _is_whole(attributes: Attributes, obj: Object) -> bool:
    """An object of the resource's own kind, not that of a subresource."""
    return bool(obj.get("kind", attributes.resource.kind.kind) == attributes.resource.kind.kind)


async def seen_by(attributes: Attributes, target: Resource) -> VersionedObject:
    return VersionedObject(
        own_kind(attributes, target),
        await _show(attributes, attributes.obj, target),
        await _show(attributes, attributes.old, target),
    )


async def _show(attributes: Attributes, obj: Object | None, target: Resource) -> Object | None:
    if not obj:
        return None
    source = attributes.resource
    if attributes.subresource == "scale":
        return _as_go(scale.read_scale(source, obj))
    if not _is_whole(attributes, obj):
        return _as_go(obj)
    return _as_go(await _to_version(source, target, obj))


async def _to_version(source: Resource, target: Resource, obj: Object) -> Object:
    if not source.custom:
        return target.ops.from_storage(obj)
    if target is source:
        return obj
    converter = source.ops.converter
    if converter is not None:
        converted: Object = await converter.convert_one(obj, target.version)
        return converted
    return {**obj, "apiVersion": target.api_version}


def _as_go(obj: Object) -> Object:
    """Kind and version first, and a creationTimestamp even if it is null."""
    out: Object = {"kind": obj.get("kind"), "apiVersion": obj.get("apiVersion")}
    out.update(obj)
    meta = out.get("metadata")
    if meta is not None and "creationTimestamp" not in meta:
        out["metadata"] = {**meta, "creationTimestamp": None}
    return out


class WebhookChange(NamedTuple):
    """The result of a webhook's patch."""

    obj: Object
    changed: bool


def read_change(
    attributes: Attributes, target: Resource, shown: Object, patched: Object
) -> WebhookChange:
    """The object as the webhook left it, with defaults. Raises DecodeError if it is invalid.

    A pure function that is slow for large objects.
    """
    if attributes.subresource == "scale":
        return WebhookChange(codec.normalise_object(scale.SCALE, patched), True)
    if not _is_whole(attributes, attributes.obj):
        new = codec.normalise_object(own_kind(attributes, target), patched)
        return WebhookChange(
            new, new != codec.normalise_object(own_kind(attributes, target), shown)
        )
    new = target.ops.normalise(patched)
    new.setdefault("metadata", {})
    changed = new != target.ops.normalise(shown)
    # Defaults are set in place, and parts that the webhook did not change are shared with the
    # previous object.
    new = copy_object(new)
    target.ops.default(new)
    return WebhookChange(new if attributes.resource.custom else target.ops.to_storage(new), changed)


async def take_over(attributes: Attributes, target: Resource, change: WebhookChange) -> bool:
    """Continues with the webhook's result. True if it changed the object."""
    if attributes.subresource == "scale":
        return _scaled(attributes, change.obj)
    if not _is_whole(attributes, attributes.obj):
        attributes.obj.clear()
        attributes.obj.update(change.obj)
        return change.changed
    source = attributes.resource
    attributes.obj = await _to_version(target, source, change.obj) if source.custom else change.obj
    return change.changed


def _scaled(attributes: Attributes, new: Object) -> bool:
    before = scale.read_scale(attributes.resource, attributes.obj)
    replicas = (new.get("spec") or {}).get("replicas", 0)
    if replicas == (before.get("spec") or {}).get("replicas", 0):
        return False
    scale.write_scale(attributes.resource, attributes.obj, replicas)
    return True
