"""The object of a request as a webhook sees it, and back.

A webhook sees the version that its rule names, a sub-resource as what travels there (a Scale, an Eviction, options), and
JSON as Go writes it. Inside, built-in kinds are in the storage version and custom ones in the version of the request.
"""

from __future__ import annotations

from typing import NamedTuple

from transom.apiserver.admission.attributes import Attributes
from transom.apiserver.resources import Resource
from transom.apiserver.subresources import scale
from transom.machinery import codec
from transom.machinery.kinds import GVK
from transom.machinery.objects import Object, copy_object


class Subject(NamedTuple):
    kind: GVK
    obj: Object | None
    old: Object | None


def own_kind(attributes: Attributes, target: Resource) -> GVK:
    """What the request carries, seen as a request for `target`."""
    if attributes.subresource == "scale":
        return scale.SCALE
    carried = attributes.obj
    if carried and not _is_whole(attributes, carried):
        group, _, version = carried["apiVersion"].rpartition("/")
        return GVK(group, version, carried["kind"])
    return target.gvk


def _is_whole(attributes: Attributes, obj: Object) -> bool:
    """An object of the resource's own kind, not something that travels by a sub-resource of it."""
    return bool(obj.get("kind", attributes.resource.kind.kind) == attributes.resource.kind.kind)


async def seen_by(attributes: Attributes, target: Resource) -> Subject:
    return Subject(
        own_kind(attributes, target),
        await _show(attributes, attributes.obj, target),
        await _show(attributes, attributes.old, target),
    )


async def _show(attributes: Attributes, obj: Object | None, target: Resource) -> Object | None:
    if not obj:
        return None
    source = attributes.resource
    if attributes.subresource == "scale":
        return _as_go(scale.read(source, obj))
    if not _is_whole(attributes, obj):
        return _as_go(obj)
    return _as_go(await _to_version(source, target, obj))


async def _to_version(source: Resource, target: Resource, obj: Object) -> Object:
    if not source.custom:
        return target.ops.from_storage(obj)
    if target is source:
        return obj
    converter = getattr(source.ops, "converter", None)
    if converter is not None:
        converted: Object = await converter.convert_one(obj, target.version)
        return converted
    return {**obj, "apiVersion": target.api_version}


def _as_go(obj: Object) -> Object:
    """Kind and version in front, and a creation time even before there is one."""
    out: Object = {"kind": obj.get("kind"), "apiVersion": obj.get("apiVersion")}
    out.update(obj)
    meta = out.get("metadata")
    if meta is not None and "creationTimestamp" not in meta:
        out["metadata"] = {**meta, "creationTimestamp": None}
    return out


async def take_over(attributes: Attributes, target: Resource, shown: Object, patched: Object) -> bool:
    """The object becomes what a webhook made of it, with defaults filled in again. True when that changed anything.

    DecodeError when the result is no such object.
    """
    if attributes.subresource == "scale":
        return _scaled(attributes, codec.normalise(scale.SCALE, patched))
    if not _is_whole(attributes, attributes.obj):
        new = codec.normalise(own_kind(attributes, target), patched)
        changed = new != codec.normalise(own_kind(attributes, target), shown)
        attributes.obj.clear()
        attributes.obj.update(new)
        return changed
    new = target.ops.normalise(patched)
    new.setdefault("metadata", {})
    changed = new != target.ops.normalise(shown)
    # Defaults are filled in in place, and what the webhook did not touch is shared with the object before.
    new = copy_object(new)
    target.ops.default(new)
    source = attributes.resource
    attributes.obj = await _to_version(target, source, new) if source.custom else target.ops.to_storage(new)
    return changed


def _scaled(attributes: Attributes, new: Object) -> bool:
    before = scale.read(attributes.resource, attributes.obj)
    replicas = (new.get("spec") or {}).get("replicas", 0)
    if replicas == (before.get("spec") or {}).get("replicas", 0):
        return False
    scale.write(attributes.resource, attributes.obj, replicas)
    return True
