"""Decides when to sync a Deployment."""

from __future__ import annotations

from transom.client.api import is_namespace_terminating
from transom.client.events import WARNING
from transom.client.resources import DEPLOYMENTS, PODS, REPLICA_SETS
from transom.client.store import object_key
from transom.client.workqueue import WorkQueue
from transom.controllers.base import ControllerContext, run_worker, with_max_retries
from transom.controllers.dependents import Dependents
from transom.controllers.deployment.rollout import Rollout
from transom.controllers.deployment.sizes import RECREATE
from transom.controllers.ownership import (
    claim_objects,
    index_by_controller,
    owned_objects,
    owned_or_orphaned_objects,
    resolve_controller_ref,
)
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object, controller_of
from transom.machinery.selectors import owner_selector

_WORKERS = 5


class Deployments:
    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        self._features = env.settings.features
        self._clock = env.clock
        self._events = env.recorder("deployment-controller")
        self._queue: WorkQueue[str] = WorkQueue(env.clock, name="deployment", metrics=env.queues)
        self._deployments = env.informers(DEPLOYMENTS)
        self._sets = env.informers(REPLICA_SETS)
        self._pods = env.informers(PODS)
        index_by_controller(self._sets)
        index_by_controller(self._pods)
        self._deployments.add_handler(
            add=self._enqueue, update=lambda _, new: self._enqueue(new), delete=self._enqueue
        )
        Dependents(self._sets, self._deployments, self._enqueue)
        self._pods.add_handler(delete=self._pod_deleted)

    def _enqueue(self, deployment: Object) -> None:
        self._queue.add(object_key(deployment))

    def _pod_deleted(self, pod: Object) -> None:
        """A Deployment with strategy Recreate continues when its last old pod is gone."""
        namespace = pod["metadata"]["namespace"]
        replica_set = resolve_controller_ref(self._sets, namespace, controller_of(pod))
        if replica_set is None:
            return
        deployment = resolve_controller_ref(
            self._deployments, namespace, controller_of(replica_set)
        )
        if deployment is None or deployment["spec"]["strategy"].get("type") != RECREATE:
            return
        siblings = owned_objects(self._sets, deployment["metadata"]["uid"])
        if not any(owned_objects(self._pods, s["metadata"]["uid"]) for s in siblings):
            self._enqueue(deployment)

    async def run(self) -> None:
        await run_worker(
            self._queue, self._sync, (self._deployments, self._sets, self._pods), _WORKERS
        )

    async def _sync(self, key: str) -> None:
        await with_max_retries(self._queue, key, self._try, "deployment")

    async def _try(self, key: str) -> None:
        try:
            await self._look(key)
        except ApiError as error:
            if not is_namespace_terminating(error):
                raise

    async def _look(self, key: str) -> None:
        deployment = self._deployments.by_key(key)
        if deployment is None:
            return
        if deployment["spec"].get("selector") == {}:
            await self._refuse_to_select_all(deployment)
            return
        selector = owner_selector(deployment)
        mine = await claim_objects(
            self._client,
            DEPLOYMENTS,
            deployment,
            selector,
            REPLICA_SETS,
            owned_or_orphaned_objects(self._sets, deployment),
        )
        pods_of = (
            {
                uid: [
                    pod
                    for pod in owned_objects(self._pods, uid)
                    if selector.matches(pod["metadata"].get("labels"))
                ]
                for uid in (s["metadata"]["uid"] for s in mine)
            }
            if deployment["spec"]["strategy"].get("type") == RECREATE
            else {}
        )
        rollout = Rollout(
            self._client,
            self._events,
            self._clock,
            self._sets.get,
            deployment,
            mine,
            pods_of,
            self._features,
        )
        await rollout.sync()
        wait = rollout.check_after
        if wait is not None:
            # Timestamps are whole seconds: wait a little longer, so that the deadline has
            # definitely passed.
            self._queue.add_after(key, max(wait, 0.0) + (1.0 if wait >= 1 else 0.05))

    async def _refuse_to_select_all(self, deployment: Object) -> None:
        message = "This deployment is selecting all pods. A non-empty selector is required."
        self._events.event(deployment, WARNING, "SelectingAll", message)
        status, generation = (
            deployment.get("status") or {},
            deployment["metadata"].get("generation", 0),
        )
        if status.get("observedGeneration", 0) < generation:
            await self._client.update_status(
                DEPLOYMENTS, {**deployment, "status": {**status, "observedGeneration": generation}}
            )
