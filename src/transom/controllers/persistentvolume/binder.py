"""Binds claims and volumes to each other, and decides all other operations on them."""

from __future__ import annotations

import asyncio

from transom.client.api import is_conflict, is_not_found
from transom.client.events import NORMAL, WARNING
from transom.client.ratelimit import ControllerLimiter
from transom.client.resources import (
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    STORAGE_CLASSES,
)
from transom.client.store import object_key, split_key
from transom.client.workqueue import RetryLater, WorkQueue
from transom.controllers.base import ControllerContext, run_worker
from transom.controllers.persistentvolume import matching
from transom.controllers.persistentvolume.cache import WriteThroughCache
from transom.controllers.persistentvolume.provision import Provisioning
from transom.controllers.persistentvolume.reclaim import Reclaiming, recycled_volume
from transom.controllers.persistentvolume.usage import BY_CLAIM, claims_of, is_pod_terminated
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.machinery.storageclass import newest_default_class

_RESYNC_SECONDS = 15.0
_FIRST_RETRY, _LONGEST_RETRY = 0.5, 122.0
_OPERATIONS = 10  # concurrent operations; creating and deleting may be slow

# provision, delete or recycle; the key of a claim or volume; its uid
Operation = tuple[str, str, str]


class VolumeBinder:
    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        self._retroactive = env.settings.features.enabled("RetroactiveDefaultStorageClass")
        self._events = env.recorder("persistentvolume-controller")
        self._claim_queue: WorkQueue[str] = WorkQueue(env.clock, name="claims", metrics=env.queues)
        self._volume_queue: WorkQueue[str] = WorkQueue(
            env.clock, name="volumes", metrics=env.queues
        )
        self._operations: WorkQueue[Operation] = WorkQueue(
            env.clock,
            ControllerLimiter(env.clock, _FIRST_RETRY, _LONGEST_RETRY),
            name="volume_operations",
            metrics=env.queues,
        )
        volumes, claims = env.informers(PERSISTENT_VOLUMES), env.informers(PERSISTENT_VOLUME_CLAIMS)
        self._classes, self._pods = env.informers(STORAGE_CLASSES), env.informers(PODS)
        self._needs = volumes, claims, self._classes, self._pods, env.informers(NODES)
        self._pods.add_index(BY_CLAIM, claims_of)
        self._volumes, self._claims = WriteThroughCache(volumes), WriteThroughCache(claims)
        volumes.add_handler(
            add=self._volume_changed,
            update=lambda _, new: self._volume_changed(new),
            delete=self._volume_gone,
            resync=_RESYNC_SECONDS,
        )
        claims.add_handler(
            add=self._claim_changed,
            update=lambda _, new: self._claim_changed(new),
            delete=self._claim_gone,
            resync=_RESYNC_SECONDS,
        )
        self._pods.add_handler(update=lambda _, new: self._recycler_changed(new))
        if self._retroactive:
            self._classes.add_handler(
                add=self._class_added, update=lambda _, new: self._class_added(new)
            )
        nodes = env.informers(NODES)
        self._provisioning = Provisioning(env, self._events, self._volumes, self._claims, nodes)
        self._reclaiming = Reclaiming(
            env, self._events, self._volumes, self._claims, self._pods, nodes
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            # One worker for each: two claims must not compete for the same volume.
            group.create_task(run_worker(self._claim_queue, self._sync_claim, self._needs))
            group.create_task(run_worker(self._volume_queue, self._sync_volume, self._needs))
            group.create_task(run_worker(self._operations, self._operate, self._needs, _OPERATIONS))

    # ---- changes ----

    def _claim_changed(self, claim: Object) -> None:
        self._claim_queue.add(object_key(claim))

    def _volume_changed(self, volume: Object) -> None:
        self._volume_queue.add(volume["metadata"]["name"])

    def _claim_gone(self, claim: Object) -> None:
        if claim["spec"].get("volumeName"):
            self._volume_queue.add(claim["spec"]["volumeName"])

    def _volume_gone(self, volume: Object) -> None:
        if matching.claim_ref(volume) is not None:
            self._claim_queue.add(matching.claim_key(volume))

    def _recycler_changed(self, pod: Object) -> None:
        volume = self._volumes.get(recycled_volume(pod)) if is_pod_terminated(pod) else None
        if volume is not None:
            self._operations.add(("recycle", volume["metadata"]["name"], volume["metadata"]["uid"]))

    async def _operate(self, operation: Operation) -> None:
        what, key, uid = operation
        if what == "provision":
            await self._provisioning.make(key, uid, self._classes)
            return
        freed = await (
            self._reclaiming.delete(key) if what == "delete" else self._reclaiming.recycle(key)
        )
        if freed is not None:
            await self._unbind(freed)

    # ---- claims ----

    async def _sync_claim(self, key: str) -> None:
        claim = self._claims.get(key)
        if claim is None:
            return
        try:
            if matching.BIND_COMPLETED in matching.volume_annotations(claim):
                await self._sync_bound_claim(claim)
            else:
                await self._sync_unbound_claim(claim)
        except ApiError as problem:
            _retry_unless_deleted(problem)

    async def _sync_unbound_claim(self, claim: Object) -> None:
        name = claim["spec"].get("volumeName")
        if not name:
            await self._find_volume(claim)
            return
        volume = self._volumes.get(name)
        if volume is None:
            await self._set_claim_phase(claim, "Pending")
        elif matching.claim_ref(volume) is None:
            problem = matching.volume_mismatch(volume, claim)
            if problem:
                text = f'Cannot bind to requested volume "{name}": {problem}'
                self._events.event(claim, WARNING, "VolumeMismatch", text)
                await self._set_claim_phase(claim, "Pending")
            else:
                await self._bind(volume, claim)
        elif matching.is_bound_to(volume, claim):
            await self._bind(volume, claim)
        else:
            text = f'volume "{name}" already bound to a different claim.'
            self._events.event(claim, WARNING, "FailedBinding", text)
            if matching.BOUND_BY_CONTROLLER in matching.volume_annotations(claim):
                raise RetryLater(
                    f"{object_key(claim)} was bound to {name}, which {matching.claim_key(volume)} has"
                )
            await self._set_claim_phase(claim, "Pending")

    async def _assign_default_class(self, claim: Object) -> Object:
        """The claim with the default class, if it was created before there was one."""
        annotated = "volume.beta.kubernetes.io/storage-class" in matching.volume_annotations(claim)
        if not self._retroactive or annotated or claim["spec"].get("storageClassName") is not None:
            return claim
        name = newest_default_class(self._classes.list())
        if not name:
            return claim
        changed = {**claim, "spec": {**claim["spec"], "storageClassName": name}}
        return self._claims.remember(await self._client.update(PERSISTENT_VOLUME_CLAIMS, changed))

    def _class_added(self, _storage_class: Object) -> None:
        """Claims without a class may get this one."""
        for claim in self._claims.list():
            if claim["spec"].get("storageClassName") is None:
                self._claim_changed(claim)

    async def _find_volume(self, claim: Object) -> None:
        delayed = self._is_delayed(claim)
        volume = matching.best_match(claim, self._volumes.list(), delayed)
        if volume is not None:
            await self._bind(volume, claim)
            return
        changed = await self._assign_default_class(claim)
        if changed is not claim:
            return  # its update syncs it again
        if delayed and matching.SELECTED_NODE not in matching.volume_annotations(claim):
            self._report_waiting(claim)
        elif matching.storage_class_of(claim):
            if await self._provisioning.prepare(claim, self._classes):
                self._operations.add(("provision", object_key(claim), claim["metadata"]["uid"]))
            return
        else:
            text = "no persistent volumes available for this claim and no storage class is set"
            self._events.event(claim, NORMAL, "FailedBinding", text)
        await self._set_claim_phase(claim, "Pending")

    def _is_delayed(self, claim: Object) -> bool:
        wanted = matching.storage_class_of(claim)
        storage_class = self._classes.get("", wanted) if wanted else None
        return (storage_class or {}).get("volumeBindingMode") == "WaitForFirstConsumer"

    def _report_waiting(self, claim: Object) -> None:
        pods = [
            pod["metadata"]["name"]
            for pod in self._pods.by_index(BY_CLAIM, object_key(claim))
            if not is_pod_terminated(pod) and not pod["spec"].get("nodeName")
        ]
        reason, text = (
            "WaitForFirstConsumer",
            "waiting for first consumer to be created before binding",
        )
        if pods:
            which = f"pod {pods[0]}" if len(pods) == 1 else f"pods {','.join(pods)}"
            reason, text = "WaitForPodScheduled", f"waiting for {which} to be scheduled"
        self._events.event(claim, NORMAL, reason, text)

    async def _sync_bound_claim(self, claim: Object) -> None:
        name = claim["spec"].get("volumeName")
        volume = self._volumes.get(name) if name else None
        if not name:
            await self._lose(
                claim,
                "ClaimLost",
                "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!",
            )
        elif volume is None:
            await self._lose(
                claim,
                "ClaimLost",
                "Bound claim has lost its PersistentVolume. Data on the volume is lost!",
            )
        elif (matching.claim_ref(volume) or {}).get("uid") in (None, claim["metadata"]["uid"]):
            await self._bind(volume, claim)
        else:
            await self._lose(
                claim,
                "ClaimMisbound",
                "Two claims are bound to the same volume, this one is bound incorrectly",
            )

    async def _lose(self, claim: Object, reason: str, text: str) -> None:
        if matching.volume_phase(claim) != "Lost":
            claim = await self._set_claim_phase(claim, "Lost")
            self._events.event(claim, WARNING, reason, text)

    # ---- volumes ----

    async def _sync_volume(self, name: str) -> None:
        volume = self._volumes.get(name)
        if volume is None:
            return
        try:
            ref = matching.claim_ref(volume)
            if ref is None or not ref.get("uid"):
                await self._set_volume_phase(volume, "Available")
            else:
                await self._sync_claimed_volume(volume, ref)
        except ApiError as problem:
            _retry_unless_deleted(problem)

    async def _sync_claimed_volume(self, volume: Object, ref: Object) -> None:
        claim = await self._claim_of(volume)
        if claim is None or claim["metadata"]["uid"] != ref["uid"]:
            await self._release(volume)
            return
        name, held = volume["metadata"]["name"], claim["spec"].get("volumeName")
        if held == name:
            await self._set_volume_phase(volume, "Bound")
        elif held:
            # The claim has another volume.
            provisioned = matching.PROVISIONED_BY in matching.volume_annotations(volume)
            if provisioned and volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete":
                await self._release(volume)
            else:
                await self._unbind(volume)
        elif matching.modes_differ(claim, volume):
            requested = claim["metadata"]["name"]
            self._events.event(
                volume,
                WARNING,
                "VolumeMismatch",
                (
                    f'Cannot bind PersistentVolume to requested PersistentVolumeClaim "{requested}"'
                    " due to incompatible volumeMode."
                ),
            )
            self._events.event(
                claim,
                WARNING,
                "VolumeMismatch",
                (
                    f'Cannot bind PersistentVolume "{name}" to requested PersistentVolumeClaim'
                    " due to incompatible volumeMode."
                ),
            )
        else:
            self._claim_queue.add(object_key(claim))

    async def _claim_of(self, volume: Object) -> Object | None:
        key = matching.claim_key(volume)
        claim = self._claims.get(key)
        if claim is not None or matching.volume_phase(volume) in ("Released", "Failed"):
            return claim
        # Do not reclaim because an informer lags behind.
        try:
            return await self._client.get(PERSISTENT_VOLUME_CLAIMS, *split_key(key))
        except ApiError as problem:
            if is_not_found(problem):
                return None
            raise

    async def _release(self, volume: Object) -> None:
        """The claim is deleted, or has another volume."""
        if matching.volume_phase(volume) not in ("Released", "Failed"):
            volume = await self._set_volume_phase(volume, "Released")
        meta = volume["metadata"]
        policy = volume["spec"].get("persistentVolumeReclaimPolicy")
        if policy in ("Delete", "Recycle"):
            self._operations.add((policy.lower(), meta["name"], meta["uid"]))
        elif policy != "Retain" and matching.volume_phase(volume) != "Failed":
            text = "Volume has unrecognized PersistentVolumeReclaimPolicy"
            volume = await self._set_volume_phase(volume, "Failed", text)
            self._events.event(volume, WARNING, "VolumeUnknownReclaimPolicy", text)

    # ---- writing ----

    async def _bind(self, volume: Object, claim: Object) -> None:
        """Updates the volume first, because it decides which claim gets it. The next sync completes
        a partial binding.
        """
        changed = matching.bound_volume(volume, claim)
        if changed is not None:
            volume = self._volumes.remember(await self._client.update(PERSISTENT_VOLUMES, changed))
        volume = await self._set_volume_phase(volume, "Bound")
        changed = matching.bound_claim(claim, volume)
        if changed is not None:
            claim = self._claims.remember(
                await self._client.update(PERSISTENT_VOLUME_CLAIMS, changed)
            )
        await self._set_claim_phase(claim, "Bound", volume)

    async def _unbind(self, volume: Object) -> None:
        free = matching.unbound_volume(volume)
        volume = self._volumes.remember(await self._client.update(PERSISTENT_VOLUMES, free))
        await self._set_volume_phase(volume, "Available")

    async def _set_claim_phase(
        self, claim: Object, phase: str, volume: Object | None = None
    ) -> Object:
        status = matching.claim_status(claim, phase, volume)
        if status is None:
            return claim
        written = await self._client.update_status(
            PERSISTENT_VOLUME_CLAIMS, {**claim, "status": status}
        )
        return self._claims.remember(written)

    async def _set_volume_phase(self, volume: Object, phase: str, message: str = "") -> Object:
        if matching.volume_phase(volume) == phase:
            return volume
        status = {k: v for k, v in (volume.get("status") or {}).items() if k != "message"}
        status |= {"phase": phase, **({"message": message} if message else {})}
        return self._volumes.remember(
            await self._client.update_status(PERSISTENT_VOLUMES, {**volume, "status": status})
        )


def _retry_unless_deleted(problem: ApiError) -> None:
    if is_conflict(problem):
        raise RetryLater(str(problem)) from problem
    if not is_not_found(problem):
        raise problem
