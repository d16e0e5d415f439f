"""Expands claims that request more than they have: in-tree disks here; for others, an event on the
claim names the responsible component. The node expands the file system.
"""

from __future__ import annotations

from typing import Final

from transom.client.api import MERGE_PATCH
from transom.client.events import NORMAL, WARNING
from transom.client.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from transom.client.store import object_key
from transom.client.workqueue import RetryLater, WorkQueue
from transom.cloud.errors import CloudError
from transom.controllers.base import ControllerContext, run_worker
from transom.controllers.persistentvolume.in_tree import GROWING
from transom.controllers.persistentvolume.matching import (
    claim_ref,
    requested_storage_of_claim,
    volume_phase,
)
from transom.kit.clock import rfc3339
from transom.machinery import quantity
from transom.machinery.attachable import ATTACHABLE, unique_volume_name
from transom.machinery.objects import Object

_WORKERS = 10
_RESIZER: Final = "volume.kubernetes.io/storage-resizer"
_CONDITIONS: Final = ("Resizing", "FileSystemResizePending")
_PENDING: Final = (
    "Waiting for user to (re-)start a pod to finish file system resize of volume on node."
)


class VolumeExpansion:
    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        self._clock = env.clock
        self._cloud = env.settings.cloud
        self._events = env.recorder("volume_expand")
        self._queue: WorkQueue[str] = WorkQueue(env.clock, name="volume_expand", metrics=env.queues)
        self._claims = env.informers(PERSISTENT_VOLUME_CLAIMS)
        self._volumes = env.informers(PERSISTENT_VOLUMES)
        self._claims.add_handler(add=self._changed, update=self._updated)

    def _changed(self, claim: Object) -> None:
        if volume_phase(claim) == "Bound" and _wants_more(claim):
            self._queue.add(object_key(claim))

    def _updated(self, old: Object, new: Object) -> None:
        if requested_storage_of_claim(new) > requested_storage_of_claim(old) or volume_phase(
            old
        ) != volume_phase(new):
            self._changed(new)

    async def run(self) -> None:
        await run_worker(self._queue, self._sync, (self._claims, self._volumes), _WORKERS)

    async def _sync(self, key: str) -> None:
        claim = self._claims.by_key(key)
        if claim is None or not _wants_more(claim):
            return
        volume = self._volumes.get("", claim["spec"].get("volumeName", ""))
        ref = claim_ref(volume) if volume is not None else None
        if volume is None or ref is None or ref.get("uid") != claim["metadata"]["uid"]:
            raise RetryLater(f"persistent Volume is not bound to PVC being updated : {key}")
        expander = next(
            (row for source, row in GROWING.items() if volume["spec"].get(source)), None
        )
        if expander is None:
            self._events.event(
                claim,
                WARNING,
                "ExternalExpanding",
                (
                    "Ignoring the PVC: didn't find a plugin capable of expanding the volume;"
                    " waiting for an external controller to process this PVC."
                ),
            )
            return
        await self._grow(claim, volume, *expander)

    async def _grow(self, claim: Object, volume: Object, plugin: str, on_node: bool) -> None:
        size = claim["spec"]["resources"]["requests"]["storage"]
        resizing = self._conditions(claim, "Resizing")
        claim = await self._patch(
            claim,
            {"metadata": {"annotations": {_RESIZER: plugin}}, "status": {"conditions": resizing}},
        )
        if quantity.parse_quantity(volume["spec"]["capacity"]["storage"]) < quantity.parse_quantity(
            size
        ):
            await self._resize_disk(
                claim, volume, plugin, int(quantity.parse_quantity(size).value())
            )
            body = {"spec": {"capacity": {"storage": size}}}
            await self._client.patch(
                PERSISTENT_VOLUMES, "", volume["metadata"]["name"], body, MERGE_PATCH
            )
        if on_node and volume["spec"].get("volumeMode") != "Block":
            await self._patch(
                claim,
                {
                    "status": {
                        "conditions": self._conditions(claim, "FileSystemResizePending", _PENDING)
                    }
                },
            )
            return
        rest = self._conditions(claim)
        await self._patch(
            claim, {"status": {"capacity": {"storage": size}, "conditions": rest or None}}
        )
        meta = claim["metadata"]
        text = f"ExpandVolume succeeded for volume {meta['namespace']}/{meta['name']}"
        self._events.event(claim, NORMAL, "VolumeResizeSuccessful", text)

    async def _resize_disk(self, claim: Object, volume: Object, plugin: str, size: int) -> None:
        """Expands the disk at the cloud provider. Raises RetryLater."""
        kind = next(
            (field for field in volume["spec"] if field in ATTACHABLE and ATTACHABLE[field].cloud),
            "",
        )
        if self._cloud is None or not kind:
            return
        try:
            await self._cloud.resize_disk(unique_volume_name(kind, volume["spec"][kind]), size)
        except CloudError as problem:
            text = f'error expanding volume "{object_key(claim)}" of plugin "{plugin}": {problem}'
            self._events.event(claim, WARNING, "VolumeResizeFailed", text)
            raise RetryLater(text) from problem

    def _conditions(self, claim: Object, kind: str = "", message: str = "") -> list[Object]:
        rest = [
            row
            for row in (claim.get("status") or {}).get("conditions") or ()
            if row["type"] not in _CONDITIONS
        ]
        if not kind:
            return rest
        new = {"type": kind, "status": "True", "lastTransitionTime": rfc3339(self._clock.time())}
        return [*rest, {**new, "message": message} if message else new]

    async def _patch(self, claim: Object, body: Object) -> Object:
        meta = claim["metadata"]
        return await self._client.patch(
            PERSISTENT_VOLUME_CLAIMS,
            meta["namespace"],
            meta["name"],
            body,
            MERGE_PATCH,
            subresource="status",
        )


def _wants_more(claim: Object) -> bool:
    has = ((claim.get("status") or {}).get("capacity") or {}).get("storage", "0")
    return requested_storage_of_claim(claim) > quantity.parse_quantity(has)
