"""Claims that ask for more than they have: nothing here can enlarge a volume, so the claim is told who has to."""

from __future__ import annotations

from transom.client.events import WARNING
from transom.client.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from transom.client.store import key_of
from transom.client.workqueue import RetryLater, WorkQueue
from transom.controllers.base import Env, work
from transom.controllers.persistentvolume.matching import claim_ref, phase, requested
from transom.machinery import quantity
from transom.machinery.objects import Object

_WORKERS = 10


class VolumeExpansion:
    def __init__(self, env: Env) -> None:
        self._events = env.recorder("volume_expand")
        self._queue: WorkQueue[str] = WorkQueue(env.clock, name="persistentvolume-expander")
        self._claims = env.informers(PERSISTENT_VOLUME_CLAIMS)
        self._volumes = env.informers(PERSISTENT_VOLUMES)
        self._claims.add_handler(add=self._changed, update=self._updated)

    def _changed(self, claim: Object) -> None:
        if phase(claim) == "Bound" and _wants_more(claim):
            self._queue.add(key_of(claim))

    def _updated(self, old: Object, new: Object) -> None:
        if requested(new) > requested(old) or phase(old) != phase(new):
            self._changed(new)

    async def run(self) -> None:
        await work(self._queue, self._sync, (self._claims, self._volumes), _WORKERS)

    async def _sync(self, key: str) -> None:
        claim = self._claims.by_key(key)
        if claim is None or not _wants_more(claim):
            return
        volume = self._volumes.get("", claim["spec"].get("volumeName", ""))
        ref = claim_ref(volume) if volume is not None else None
        if ref is None or ref.get("uid") != claim["metadata"]["uid"]:
            raise RetryLater(f"persistent Volume is not bound to PVC being updated : {key}")
        self._events.event(claim, WARNING, "ExternalExpanding", (
            "Ignoring the PVC: didn't find a plugin capable of expanding the volume;"
            " waiting for an external controller to process this PVC."
        ))


def _wants_more(claim: Object) -> bool:
    has = ((claim.get("status") or {}).get("capacity") or {}).get("storage", "0")
    return requested(claim) > quantity.parse(has)
