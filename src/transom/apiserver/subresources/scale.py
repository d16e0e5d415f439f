"""The scale sub-resource: every workload seen as a number of replicas."""

from __future__ import annotations

from typing import Any

from transom.apiserver import respond, writes
from transom.apiserver.http.messages import Response
from transom.apiserver.negotiate import body_media
from transom.apiserver.resources import Resource
from transom.apiserver.subresources.call import Call
from transom.machinery import codec, errors, patch, schema, selectors
from transom.machinery.errors import GroupResource
from transom.machinery.kinds import GVK
from transom.machinery.objects import Object, copy_object
from transom.machinery.validation.scale import validate_scale

SCALE = GVK("autoscaling", "v1", "Scale")


def _gr(call: Call) -> GroupResource:
    return GroupResource(call.res.kind.group, f"{call.res.kind.plural}/scale")


def scale_of(obj: Object, selector: str, replicas: int, current: int) -> Object:
    meta = obj["metadata"]
    out: Object = {"kind": "Scale", "apiVersion": "autoscaling/v1"}
    out["metadata"] = {
        k: meta[k] for k in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp") if k in meta
    }
    out["spec"] = {"replicas": replicas} if replicas else {}
    out["status"] = {"replicas": current}
    if selector:
        out["status"]["selector"] = selector
    return out


def _selector_text(res: Resource, obj: Object) -> str:
    selector = (obj.get("spec") or {}).get("selector")
    if res.kind.key == "/ReplicationController":
        return str(selectors.from_map(selector))
    return str(selectors.from_object(selector)) if selector is not None else ""


def read(res: Resource, obj: Object, *, writing: bool = False) -> Object:
    """A Scale from a stored workload or custom object, to be shown or to be changed."""
    paths = getattr(res.ops, "scale_paths", None)
    if paths is not None:
        return scale_of(obj, *paths.read(obj, writing=writing))
    return scale_of(
        obj, _selector_text(res, obj), (obj.get("spec") or {}).get("replicas", 0),
        (obj.get("status") or {}).get("replicas", 0),
    )


def write(res: Resource, obj: Object, replicas: int) -> None:
    paths = getattr(res.ops, "scale_paths", None)
    if paths is not None:
        paths.write(obj, replicas)
    else:
        obj["spec"] = {**(obj.get("spec") or {}), "replicas": replicas}


async def get(call: Call) -> Response:
    storage, res = call.server.storage, call.res
    record = storage.store.get(res.key(call.info.namespace, call.info.name))
    if record is None:
        raise errors.not_found(res.gr if res.custom else _gr(call), call.info.name)
    return respond.document(read(res, storage.decode(res, await storage.readable(res, record))), call.form)


async def update(call: Call) -> Response:
    writes.begin(call.ctx, call.request, "UpdateOptions")
    media = body_media(call.request.header(b"content-type"))
    given = codec.decode(call.request.body, media, SCALE, strict=False).obj
    writes.check_name(given, call.info)
    return await _store(call, lambda _current: copy_object(given), reread=False)


async def patch_(call: Call) -> Response:
    media = writes.patch_media(call.request, call.res)
    writes.begin(call.ctx, call.request, "PatchOptions", media)
    type_ = schema.lookup(SCALE)

    def change(current: Object) -> Object:
        raw = call.request.body
        new = patch.apply_patch(writes.MERGE_PATCH if media == writes.APPLY_PATCH else media, raw, current, type_)
        new = codec.normalise(SCALE, new)
        writes.check_name(new, call.info)
        return new

    return await _store(call, change, reread=True)


async def _store(call: Call, change: Any, *, reread: bool) -> Response:
    def transform(old: Object | None) -> Object:
        assert old is not None
        before = read(call.res, old, writing=True)
        scale = change(before)
        problems = validate_scale(scale) if not call.res.custom else []  # the custom object itself is judged
        if problems:
            raise errors.invalid(GroupResource("autoscaling", "Scale"), scale["metadata"].get("name", ""), problems)
        new = copy_object(old)
        write(call.res, new, (scale.get("spec") or {}).get("replicas", 0))
        for name in ("uid", "resourceVersion"):
            value = scale["metadata"].get(name)
            if value:
                new["metadata"][name] = value
            elif not call.res.custom:
                new["metadata"].pop(name, None)
        return new

    record, _ = await call.server.storage.update(
        call.ctx, call.res, call.info.namespace, call.info.name, transform, reread=reread, admit_as="scale"
    )
    stored = call.server.storage.decode(call.res, record)
    return respond.document(read(call.res, stored, writing=True), call.form)
