"""Containers that join a running pod, in both shapes they have had: the kind EphemeralContainers, which is what releases up
to 1.21 serve and their kubectl reads and puts, and the Pod itself, which newer clients send."""

from __future__ import annotations

from transom.apiserver import respond, writes
from transom.apiserver.negotiate import body_media
from transom.apiserver.subresources.call import Call
from transom.http.messages import Response
from transom.machinery import codec, defaults, errors
from transom.machinery.kinds import GVK
from transom.machinery.objects import Object, copy_object

KIND = GVK("", "v1", "EphemeralContainers")
POD = GVK("", "v1", "Pod")


def prepare(_storage: object, _ctx: object, new: Object, old: Object) -> None:
    """The sub-resource changes that list only."""
    added = (new.get("spec") or {}).get("ephemeralContainers")
    new["spec"] = {k: v for k, v in old["spec"].items() if k != "ephemeralContainers"}
    if added:
        new["spec"]["ephemeralContainers"] = added
    new["status"] = old.get("status") or {}


def of(pod: Object) -> Object:
    meta = pod["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": KIND.kind, "apiVersion": "v1", "metadata": {k: meta[k] for k in kept if k in meta},
        "ephemeralContainers": pod["spec"].get("ephemeralContainers") or [],
    }


async def get(call: Call) -> Response:
    storage, res = call.server.storage, call.res
    record = storage.store.get(res.key(call.info.namespace, call.info.name))
    if record is None:
        raise errors.not_found(res.gr, call.info.name)
    return respond.document(of(storage.decode(res, await storage.readable(res, record))), call.form)


async def update(call: Call) -> Response:
    media = body_media(call.request.header(b"content-type"))
    given = codec.decode(call.request.body, media, POD, strict=False, also=(KIND,))
    if given.gvk != KIND:
        return await writes.update(
            call.server.storage, call.ctx, call.res, call.info, call.request, call.form, prepare=prepare
        )
    writes.begin(call.ctx, call.request, "UpdateOptions")
    given.obj.setdefault("metadata", {})
    writes.check_name(given.obj, call.info)
    defaults.apply(KIND, given.obj)
    # As the Pod they become a part of will have them.
    wanted = codec.normalise(POD, {"spec": {"ephemeralContainers": given.obj.get("ephemeralContainers")}})["spec"]
    version = given.obj["metadata"].get("resourceVersion")

    def transform(old: Object | None) -> Object:
        assert old is not None
        new = copy_object(old)
        new["spec"] = {**old["spec"], "ephemeralContainers": wanted.get("ephemeralContainers")}
        if version:
            new["metadata"]["resourceVersion"] = version
        else:
            new["metadata"].pop("resourceVersion", None)
        return new

    record, _ = await call.server.storage.update(
        call.ctx, call.res, call.info.namespace, call.info.name, transform, subresource="ephemeralcontainers",
        prepare=prepare,
    )
    return respond.document(of(call.server.storage.decode(call.res, record)), call.form)
