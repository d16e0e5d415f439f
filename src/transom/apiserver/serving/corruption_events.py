"""Events about corrupt stored records that were quarantined."""

from __future__ import annotations

import asyncio
import random

from transom.apiserver.core.resources import ResourceRegistry
from transom.client.api import ApiClient
from transom.client.events import WARNING, EventRecorder
from transom.kit.clock import Clock
from transom.machinery.objects import Object
from transom.store.api import KeyQuarantined

REASON = "CorruptRecord"


class CorruptionEvents:
    def __init__(
        self, client: ApiClient, resources: ResourceRegistry, clock: Clock, rng: random.Random
    ) -> None:
        self._resources = resources
        self._recorder = EventRecorder(
            client, "kube-apiserver", clock, rng, release=resources.release
        )
        self._task: asyncio.Task[None] | None = None

    def report(self, one: KeyQuarantined) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._recorder.run(), name="integrity events")
        message = (
            f"The stored record of revision {one.revision} is corrupt and was quarantined: "
            f"{one.reason}"
        )
        self._recorder.event(self._reference(one.key), WARNING, REASON, message)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _reference(self, key: str) -> Object:
        """The object of a key; for an unknown key, a reference to the store."""
        bucket, _, rest = key.partition("/")
        namespace, _, name = rest.rpartition("/")
        for kind in self._resources.kinds():
            if bucket == (f"{kind.plural}.{kind.group}" if kind.group else kind.plural) and name:
                found = {"apiVersion": kind.gvk().api_version, "kind": kind.kind, "name": name}
                return {**found, "namespace": namespace} if namespace else found
        return {"apiVersion": "v1", "kind": "ComponentStatus", "name": "etcd-0"}
