"""Protects claims that pods use, volumes that are bound to claims, and the attributes classes of
claims and volumes: finalizers delay their deletion until they are unused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from transom.client.api import is_not_found
from transom.client.informer import Informer
from transom.client.resources import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    GroupVersionResource,
)
from transom.client.store import object_key, split_key
from transom.client.workqueue import WorkQueue
from transom.controllers.base import ControllerContext, run_worker
from transom.controllers.persistentvolume.usage import BY_CLAIM, claims_of, is_pod_terminated
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object, with_metadata

CLAIM_FINALIZER = "kubernetes.io/pvc-protection"
VOLUME_FINALIZER = "kubernetes.io/pv-protection"
CLASS_FINALIZER = "kubernetes.io/vac-protection"
ATTRIBUTES_CLASSES = GroupVersionResource(
    "storage.k8s.io", "v1", "volumeattributesclasses", False, "VolumeAttributesClass"
)
_BY_CLASS = "attributes classes"  # the index of volumes and of claims


def _finalizers(obj: Object) -> list[str]:
    return obj["metadata"].get("finalizers") or []


def _concerns(obj: Object, finalizer: str) -> bool:
    """Whether an object is being deleted and has the finalizer, or is not being deleted and lacks
    it.
    """
    return ("deletionTimestamp" in obj["metadata"]) == (finalizer in _finalizers(obj))


class _Protection:
    def __init__(
        self, env: ControllerContext, resource: GroupVersionResource, finalizer: str, name: str
    ) -> None:
        self._client = env.client
        self._resource = resource
        self._finalizer = finalizer
        self._queue: WorkQueue[str] = WorkQueue(env.clock, name=name, metrics=env.queues)
        self._objects = env.informers(resource)
        self._objects.add_handler(add=self._changed, update=lambda _, new: self._changed(new))

    def _changed(self, obj: Object) -> None:
        if _concerns(obj, self._finalizer):
            self._queue.add(object_key(obj))

    async def _sync(self, key: str) -> None:
        obj = self._objects.by_key(key)
        if obj is None or not _concerns(obj, self._finalizer):
            return
        held = _finalizers(obj)
        if "deletionTimestamp" not in obj["metadata"]:
            held = [*held, self._finalizer]
        elif await self._in_use(obj):
            return
        else:
            held = [name for name in held if name != self._finalizer]
        try:
            await self._client.update(self._resource, with_metadata(obj, finalizers=held or None))
        except ApiError as problem:
            if not is_not_found(problem):
                raise

    async def _in_use(self, obj: Object) -> bool:
        raise NotImplementedError


class VolumeProtection(_Protection):
    def __init__(self, env: ControllerContext) -> None:
        super().__init__(env, PERSISTENT_VOLUMES, VOLUME_FINALIZER, "pvprotection")

    async def run(self) -> None:
        await run_worker(self._queue, self._sync, (self._objects,))

    async def _in_use(self, obj: Object) -> bool:
        return bool((obj.get("status") or {}).get("phase") == "Bound")


class ClaimProtection(_Protection):
    def __init__(self, env: ControllerContext) -> None:
        super().__init__(env, PERSISTENT_VOLUME_CLAIMS, CLAIM_FINALIZER, "pvcprotection")
        self._pods = env.informers(PODS)
        self._pods.add_index(BY_CLAIM, claims_of)
        self._pods.add_handler(
            add=self._pod_changed, update=self._pod_updated, delete=self._pod_gone
        )

    async def run(self) -> None:
        await run_worker(self._queue, self._sync, (self._objects, self._pods))

    def _pod_changed(self, pod: Object) -> None:
        if is_pod_terminated(pod) or not pod["spec"].get("nodeName"):
            self._pod_gone(pod)

    def _pod_updated(self, old: Object, new: Object) -> None:
        if old["metadata"]["uid"] != new["metadata"]["uid"]:
            self._pod_gone(old)
        self._pod_changed(new)

    def _pod_gone(self, pod: Object) -> None:
        for key in claims_of(pod):
            claim = self._objects.by_key(key)
            if claim is not None and _concerns(claim, self._finalizer):
                self._queue.add(key)

    async def _in_use(self, obj: Object) -> bool:
        key = object_key(obj)
        if _uses(self._pods.by_index(BY_CLAIM, key), key):
            return True
        # Pods that the informer does not show yet also count.
        return _uses((await self._client.list(PODS, split_key(key)[0])).items, key)


def _uses(pods: Sequence[Object], key: str) -> bool:
    """A pod without a node does not count: it cannot start with a claim that is being deleted."""
    return any(pod["spec"].get("nodeName") and key in claims_of(pod) for pod in pods)


class AttributesClassProtection(_Protection):
    def __init__(self, env: ControllerContext) -> None:
        super().__init__(env, ATTRIBUTES_CLASSES, CLASS_FINALIZER, "vacprotection")
        self._volumes = env.informers(PERSISTENT_VOLUMES)
        self._claims = env.informers(PERSISTENT_VOLUME_CLAIMS)
        self._watch_users(self._volumes, classes_of_volume)
        self._watch_users(self._claims, classes_of_claim)

    def _watch_users(self, users: Informer, classes: Callable[[Object], list[str]]) -> None:
        def updated(old: Object, new: Object) -> None:
            self._released(set(classes(old)) - set(classes(new)))

        users.add_index(_BY_CLASS, classes)
        users.add_handler(update=updated, delete=lambda obj: self._released(classes(obj)))

    async def run(self) -> None:
        await run_worker(self._queue, self._sync, (self._objects, self._volumes, self._claims))

    def _released(self, names: Iterable[str]) -> None:
        for name in names:
            self._queue.add(name)

    async def _in_use(self, obj: Object) -> bool:
        name = obj["metadata"]["name"]
        return any(users.by_index(_BY_CLASS, name) for users in (self._volumes, self._claims))


def classes_of_volume(volume: Object) -> list[str]:
    name = volume["spec"].get("volumeAttributesClassName")
    return [name] if name else []


def classes_of_claim(claim: Object) -> list[str]:
    """The class that the claim requests, the one that it has, and the one that it is changed to."""
    status = claim.get("status") or {}
    names = {
        claim["spec"].get("volumeAttributesClassName"),
        status.get("currentVolumeAttributesClassName"),
        (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName"),
    }
    return sorted(name for name in names if name)
