"""Ephemeral containers in both API forms: the kind EphemeralContainers, which releases up to 1.21
serve, and the Pod itself, which newer clients send.
"""

from __future__ import annotations

from transom.apiserver.core.bodies import begin_write, check_object_name, read_media
from transom.apiserver.core.call import ApiCall, DocumentResult, ObjectResult
from transom.apiserver.core.reads import get_object
from transom.apiserver.core.storage import Storage
from transom.apiserver.core.strategies.pods import prepare_ephemeral
from transom.apiserver.core.writes import patch_object, update_object
from transom.machinery import codec, defaults, errors
from transom.machinery.kinds import GVK
from transom.machinery.objects import Object, copy_object
from transom.machinery.releases.behaviour import has_behaviour

KIND = GVK("", "v1", "EphemeralContainers")
POD = GVK("", "v1", "Pod")


def ephemeral_containers_object(pod: Object) -> Object:
    meta = pod["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": KIND.kind,
        "apiVersion": "v1",
        "metadata": {k: meta[k] for k in kept if k in meta},
        "ephemeralContainers": pod["spec"].get("ephemeralContainers") or [],
    }


class EphemeralContainersSubresource:
    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def patch(self, call: ApiCall) -> ObjectResult:
        return await patch_object(self._storage, call, prepare_ephemeral)

    async def get(self, call: ApiCall) -> DocumentResult | ObjectResult:
        storage, res = self._storage, call.res
        if has_behaviour(res.release, "EphemeralContainersOfPods"):
            found = get_object(storage, call)
            return found if isinstance(found, ObjectResult) else await found
        record = storage.store.get(res.key(call.info.namespace, call.info.name))
        if record is None:
            raise errors.not_found(res.gr, call.info.name)
        return DocumentResult(
            ephemeral_containers_object(storage.decode(res, await storage.readable(res, record)))
        )

    async def update(self, call: ApiCall) -> DocumentResult | ObjectResult:
        if has_behaviour(call.res.release, "EphemeralContainersOfPods"):
            return await update_object(self._storage, call, prepare_ephemeral)
        raw, media = call.body, read_media(call)
        given = await self._storage.compute(
            call.ctx, lambda: codec.decode_object(raw, media, POD, strict=False, also=(KIND,))
        )
        if given.gvk != KIND:
            return await update_object(self._storage, call, prepare_ephemeral)
        begin_write(call, "UpdateOptions")
        given.obj.setdefault("metadata", {})
        check_object_name(call.res, given.obj, call.info)
        defaults.apply_defaults(KIND, given.obj)
        # Normalized like the Pod that they become a part of.
        wanted = codec.normalise_object(
            POD, {"spec": {"ephemeralContainers": given.obj.get("ephemeralContainers")}}
        )["spec"]
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

        record, _ = await self._storage.update(
            call.ctx,
            call.res,
            call.info.namespace,
            call.info.name,
            transform,
            subresource="ephemeralcontainers",
            prepare=prepare_ephemeral,
        )
        return DocumentResult(ephemeral_containers_object(self._storage.decode(call.res, record)))
