"""Generic ephemeral volumes: creates the claim of each such volume; the pod owns it."""

from __future__ import annotations

from transom.client.events import WARNING
from transom.client.resources import PERSISTENT_VOLUME_CLAIMS, PODS
from transom.client.store import object_key
from transom.client.workqueue import RetryLater, WorkQueue
from transom.controllers.base import ControllerContext, run_worker
from transom.controllers.ownership import controller_ref
from transom.controllers.pods import is_pod_terminating
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object, controller_of

_WORKERS = 5


class EphemeralVolumes:
    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        self._events = env.recorder("ephemeral_volume")
        self._queue: WorkQueue[str] = WorkQueue(
            env.clock, name="ephemeral_volume", metrics=env.queues
        )
        self._pods = env.informers(PODS)
        self._claims = env.informers(PERSISTENT_VOLUME_CLAIMS)
        self._pods.add_handler(add=self._pod_added)
        self._claims.add_handler(delete=self._claim_deleted)

    async def run(self) -> None:
        await run_worker(self._queue, self._sync, (self._pods, self._claims), _WORKERS)

    def _pod_added(self, pod: Object) -> None:
        if any("ephemeral" in volume for volume in pod["spec"].get("volumes") or ()):
            self._queue.add(object_key(pod))

    def _claim_deleted(self, claim: Object) -> None:
        """A deleted claim may have had the name of a pod's claim."""
        namespace, name = claim["metadata"]["namespace"], claim["metadata"]["name"]
        for pod in self._pods.list(namespace):
            for volume in pod["spec"].get("volumes") or ():
                if "ephemeral" in volume and f"{pod['metadata']['name']}-{volume['name']}" == name:
                    self._queue.add(object_key(pod))

    async def _sync(self, key: str) -> None:
        pod = self._pods.by_key(key)
        if pod is None or is_pod_terminating(pod):
            return
        for volume in pod["spec"].get("volumes") or ():
            if "ephemeral" not in volume:
                continue
            try:
                await self._ensure_claim(pod, volume)
            except (ApiError, RetryLater) as problem:
                message = f"ephemeral volume {volume['name']}: {problem}"
                self._events.event(pod, WARNING, "FailedBinding", message)
                raise RetryLater(f"pod {key}, {message}") from problem

    async def _ensure_claim(self, pod: Object, volume: Object) -> None:
        meta = pod["metadata"]
        name = f"{meta['name']}-{volume['name']}"
        known = self._claims.get(meta["namespace"], name)
        if known is not None:
            owner = controller_of(known)
            if owner is None or owner.get("uid") != meta["uid"]:
                raise RetryLater(
                    f"PVC {meta['namespace']}/{name} was not created for pod "
                    f"{meta['namespace']}/{meta['name']} (pod is not owner)"
                )
            return
        template = volume["ephemeral"].get("volumeClaimTemplate") or {}
        given = template.get("metadata") or {}
        claim_meta: Object = {"name": name, "ownerReferences": [controller_ref(pod, PODS)]}
        for field in ("labels", "annotations"):
            if given.get(field):
                claim_meta[field] = given[field]
        try:
            await self._client.create(
                PERSISTENT_VOLUME_CLAIMS,
                meta["namespace"],
                {"metadata": claim_meta, "spec": template.get("spec") or {}},
            )
        except ApiError as problem:
            raise RetryLater(f"create PVC {name}: {problem}") from problem
