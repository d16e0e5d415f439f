"""Decides when to sync a StatefulSet."""

from __future__ import annotations

from transom.client.resources import (
    CONTROLLER_REVISIONS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    STATEFUL_SETS,
)
from transom.client.store import object_key
from transom.client.workqueue import WorkQueue
from transom.controllers import pods
from transom.controllers.base import ControllerContext, run_worker
from transom.controllers.dependents import Dependents
from transom.controllers.ownership import (
    claim_objects,
    index_by_controller,
    owned_or_orphaned_objects,
)
from transom.controllers.statefulset.features import stateful_set_features
from transom.controllers.statefulset.identity import is_member_of_set
from transom.controllers.statefulset.update import StatefulSetUpdate
from transom.machinery.objects import Object
from transom.machinery.selectors import SelectorError, owner_selector

_WORKERS = 5


class StatefulSets:
    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        self._clock = env.clock
        self._features = stateful_set_features(env.settings.features)
        self._events = env.recorder("statefulset-controller")
        self._queue: WorkQueue[str] = WorkQueue(env.clock, name="statefulset", metrics=env.queues)
        self._sets = env.informers(STATEFUL_SETS)
        self._pods = env.informers(PODS)
        self._claims = env.informers(PERSISTENT_VOLUME_CLAIMS)
        self._revisions = env.informers(CONTROLLER_REVISIONS)
        index_by_controller(self._pods)
        index_by_controller(self._revisions)
        self._sets.add_handler(
            add=self._enqueue, update=lambda _, new: self._enqueue(new), delete=self._enqueue
        )
        Dependents(self._pods, self._sets, self._enqueue, matters=pods.concerns_owner)

    def _enqueue(self, stateful_set: Object) -> None:
        self._queue.add(object_key(stateful_set))

    async def run(self) -> None:
        needs = (self._sets, self._pods, self._claims, self._revisions)
        await run_worker(self._queue, self._sync, needs, _WORKERS)

    async def _sync(self, key: str) -> None:
        stateful_set = self._sets.by_key(key)
        if stateful_set is None:
            return
        try:
            selector = owner_selector(stateful_set)
        except SelectorError:
            return
        revisions = await claim_objects(
            self._client,
            STATEFUL_SETS,
            stateful_set,
            selector,
            CONTROLLER_REVISIONS,
            (
                r
                for r in owned_or_orphaned_objects(self._revisions, stateful_set)
                if selector.matches(r["metadata"].get("labels"))
            ),
        )
        mine = await claim_objects(
            self._client,
            STATEFUL_SETS,
            stateful_set,
            selector,
            PODS,
            owned_or_orphaned_objects(self._pods, stateful_set),
            lambda pod: is_member_of_set(stateful_set, pod),
        )
        now = self._clock.time()
        if self._features.available:
            wait = pods.next_available(mine, stateful_set["spec"].get("minReadySeconds") or 0, now)
            if wait is not None:
                self._queue.add_after(key, wait)
        await StatefulSetUpdate(
            self._client,
            self._events,
            self._claims,
            stateful_set,
            mine,
            revisions,
            self._features,
            now,
        ).sync()
