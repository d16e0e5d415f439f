"""The scale sub-resource: every workload seen as a number of replicas."""

from __future__ import annotations

from collections.abc import Callable

from transom.apiserver import respond, writes
from transom.apiserver.negotiate import body_media
from transom.apiserver.resources import Resource
from transom.apiserver.subresources.call import Call
from transom.http.messages import Response
from transom.kit.clock import rfc3339
from transom.machinery import apply, codec, errors, patch, schema, selectors
from transom.machinery.errors import GroupResource
from transom.machinery.kinds import GVK
from transom.machinery.objects import Object, copy_object
from transom.machinery.tables import partial
from transom.machinery.validation.scale import validate_scale

SCALE = GVK("autoscaling", "v1", "Scale")


def _type() -> schema.Type:
    found = schema.lookup(SCALE)
    assert found is not None
    return found


def _gr(call: Call) -> GroupResource:
    return GroupResource(call.res.kind.group, f"{call.res.kind.plural}/scale")


# What a read calls the Scale of a workload that does not exist; the others, and every write, name the workload.
_MISSING = {
    "/ReplicationController": GroupResource("autoscaling", "replicationcontrollers/scale"),
    "apps/Deployment": GroupResource("apps", "deployments/scale"),
    "apps/ReplicaSet": GroupResource("apps", "replicasets/scale"),
}


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


def _answer(call: Call, scale: Object) -> Response:
    form = call.form
    if form.transform == "PartialObjectMetadata":
        return respond.document(partial.object_metadata(scale, form.version), form)
    return respond.document(scale, form)


async def get(call: Call) -> Response:
    storage, res = call.server.storage, call.res
    record = storage.store.get(res.key(call.info.namespace, call.info.name))
    if record is None:
        raise errors.not_found(_MISSING.get(res.kind.key, res.gr), call.info.name)
    return _answer(call, read(res, storage.decode(res, await storage.readable(res, record))))


async def update(call: Call) -> Response:
    writes.begin(call.ctx, call.request, "UpdateOptions")
    media = body_media(call.request.header(b"content-type"))
    given = codec.decode(call.request.body, media, SCALE, strict=False).obj
    writes.check_name(given, call.info)
    return await _store(call, lambda _current: copy_object(given), reread=False)


async def patch_(call: Call) -> Response:
    media = writes.patch_media(call.request, call.res)
    options = writes.begin(call.ctx, call.request, "PatchOptions", media)
    raw = call.request.body
    config = apply.parse_config(raw) if media == writes.APPLY_PATCH else None

    def change(current: Object) -> Object:
        new = _patched(media, raw, current) if config is None else _applied(call, config, current, bool(options.get("force")))
        writes.check_name(new, call.info)
        return new

    return await _store(call, change, reread=True)


def _patched(media: str, raw: bytes, current: Object) -> Object:
    patched = patch.apply_patch(media, raw, current, _type())
    try:
        return codec.normalise(SCALE, patched)
    except codec.DecodeError as problem:
        raise patch.undecodable(media, raw, patched, problem.base, _type()) from None


def _applied(call: Call, config: Object, current: Object, force: bool) -> Object:
    """Nobody is remembered as the owner of a Scale, so whoever applies meets all that is there already."""
    new = apply.server_side_apply(
        current, config, _type(), call.ctx.manager, "autoscaling/v1", force, rfc3339(call.ctx.now),
        normalise=lambda obj: codec.normalise(SCALE, obj), kind=SCALE.kind,
    )
    new["metadata"].pop("managedFields", None)
    return new


async def _store(call: Call, change: Callable[[Object], Object], *, reread: bool) -> Response:
    res = call.res

    def transform(old: Object | None) -> Object:
        assert old is not None
        scale = change(read(res, old, writing=True))
        if not res.custom:
            _check(call, scale, old)
        new = copy_object(old)
        write(res, new, (scale.get("spec") or {}).get("replicas", 0))
        version = scale["metadata"].get("resourceVersion")
        if version:
            new["metadata"]["resourceVersion"] = version
        elif not res.custom:
            new["metadata"].pop("resourceVersion", None)
        return new

    record, _ = await call.server.storage.update(
        call.ctx, res, call.info.namespace, call.info.name, transform, reread=reread, admit_as="scale",
    )
    stored = call.server.storage.decode(res, record)
    return _answer(call, read(res, stored, writing=True))


def _check(call: Call, scale: Object, old: Object) -> None:
    """A custom object is judged itself, when it is written."""
    problems = validate_scale(scale)
    if problems:
        raise errors.invalid(GroupResource("autoscaling", "Scale"), old["metadata"]["name"], problems)
    uid, actual = scale["metadata"].get("uid"), old["metadata"]["uid"]
    if uid and uid != actual:
        raise errors.conflict(
            _gr(call), old["metadata"]["name"],
            f"Precondition failed: UID in precondition: {uid}, UID in object meta: {actual}",
        )
