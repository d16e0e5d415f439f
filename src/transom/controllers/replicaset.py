"""ReplicaSets and ReplicationControllers: keep the desired number of pods of a template running.

The two differ only in their name and the form of their selector, so one controller serves both;
`ReplicaSetVariant` has the differences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from transom.client.resources import (
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    GroupVersionResource,
)
from transom.client.store import object_key
from transom.client.workqueue import WorkQueue
from transom.controllers import pods
from transom.controllers.base import ControllerContext, run_worker
from transom.controllers.dependents import Dependents
from transom.controllers.expectations import Expectations
from transom.controllers.expected_pods import ExpectedPods
from transom.controllers.ownership import (
    claim_objects,
    controller_ref,
    index_by_controller,
    owned_objects,
    owned_or_orphaned_objects,
)
from transom.kit.clock import rfc3339
from transom.kit.named_tuple import NamedTuple
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object, controller_of
from transom.machinery.selectors import (
    LabelSelector,
    SelectorError,
    from_map,
    nothing,
    owner_selector,
)

_WORKERS = 5
BURST = 500
_LARGE = 100
_PACE = 0.0005  # seconds per pod between two full syncs of a large set
_FAILURE = "ReplicaFailure"
_COUNTS = ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas")


class ReplicaSetVariant(NamedTuple):
    resource: GroupVersionResource
    component: str
    queue: str
    selector: Callable[[Object], LabelSelector]


def _map_selector(controller: Object) -> LabelSelector:
    labels = controller["spec"].get("selector")
    return from_map(labels) if labels else nothing()


REPLICA_SET = ReplicaSetVariant(REPLICA_SETS, "replicaset-controller", "replicaset", owner_selector)
REPLICATION_CONTROLLER = ReplicaSetVariant(
    REPLICATION_CONTROLLERS, "replication-controller", "replicationmanager", _map_selector
)


class ReplicaSets:
    def __init__(self, env: ControllerContext, flavour: ReplicaSetVariant = REPLICA_SET) -> None:
        self._flavour = flavour
        features = env.settings.features
        self._deletion_cost = features.enabled("PodDeletionCost")
        self._counts_terminating = (
            features.enabled("DeploymentReplicaSetTerminatingReplicas")
            and flavour.resource == REPLICA_SETS
        )
        self._client = env.client
        self._clock = env.clock
        self._expectations = Expectations(env.clock)
        control = pods.PodControl(env.client, env.recorder(flavour.component))
        self._expected_pods = ExpectedPods(control, self._expectations)
        self._looked: dict[str, float] = {}  # when a set was last synced
        self._queue: WorkQueue[str] = WorkQueue(env.clock, name=flavour.queue, metrics=env.queues)
        self._sets = env.informers(flavour.resource)
        self._pods = env.informers(PODS)
        index_by_controller(self._pods)
        index_by_controller(self._sets)
        self._sets.add_handler(
            add=self._enqueue, update=self._set_updated, delete=self._set_deleted
        )
        Dependents(
            self._pods,
            self._sets,
            self._enqueue,
            selector=flavour.selector,
            matters=pods.concerns_owner,
            expectations=self._expectations,
        )

    async def run(self) -> None:
        await run_worker(self._queue, self._sync, (self._sets, self._pods), _WORKERS)

    # ---- event handlers ----

    def _enqueue(self, replica_set: Object) -> None:
        self._queue.add(object_key(replica_set))

    def _set_updated(self, old: Object, new: Object) -> None:
        if old["metadata"]["uid"] != new["metadata"]["uid"]:
            self._expectations.forget(object_key(old))
        self._enqueue(new)

    def _set_deleted(self, replica_set: Object) -> None:
        # A new set with the same name must not wait for the expectations of this one.
        self._expectations.forget(object_key(replica_set))
        self._enqueue(replica_set)

    # ---- one ReplicaSet ----

    async def _sync(self, key: str) -> None:
        replica_set = self._sets.by_key(key)
        if replica_set is None:
            self._expectations.forget(key)
            self._looked.pop(key, None)
            return
        try:
            selector = self._flavour.selector(replica_set)
        except SelectorError:
            return
        if _settled(replica_set):
            left = (
                self._looked.get(key, 0.0)
                + replica_set["spec"]["replicas"] * _PACE
                - self._clock.monotonic()
            )
            if key in self._looked and left > 0:
                self._queue.add_after(key, left)
                return
        self._looked[key] = self._clock.monotonic()
        satisfied = self._expectations.satisfied(key)
        terminating = (
            sum(
                pods.is_pod_terminating(pod) and pods.pod_phase(pod) not in ("Succeeded", "Failed")
                for pod in owned_objects(self._pods, replica_set["metadata"]["uid"])
            )
            if self._counts_terminating
            else None
        )
        candidates = (
            pod
            for pod in owned_or_orphaned_objects(self._pods, replica_set)
            if pods.is_pod_active(pod)
        )
        mine = await claim_objects(
            self._client, self._flavour.resource, replica_set, selector, PODS, candidates
        )
        problem = None
        if satisfied and "deletionTimestamp" not in replica_set["metadata"]:
            problem = await self._manage(key, replica_set, mine)
        now = self._clock.time()
        status = _status(replica_set, mine, problem, now)
        if terminating is not None:
            status["terminatingReplicas"] = terminating
        await self._update_status(replica_set, status)
        if problem is not None:
            raise problem
        wait = pods.next_available(mine, replica_set["spec"].get("minReadySeconds") or 0, now)
        for seconds in (wait, self._expectations.seconds_left(key)):
            if seconds is not None:
                self._queue.add_after(key, seconds)

    async def _manage(
        self, key: str, replica_set: Object, mine: Sequence[Object]
    ) -> Exception | None:
        """Creates or deletes pods; returns the first failure."""
        missing = replica_set["spec"].get("replicas", 0) - len(mine)
        if missing > 0:
            return await self._create(key, replica_set, min(missing, BURST))
        if missing < 0:
            return await self._delete(
                key,
                replica_set,
                _to_delete(
                    mine,
                    self._related(replica_set),
                    min(-missing, BURST),
                    by_cost=self._deletion_cost,
                ),
            )
        return None

    async def _create(self, key: str, replica_set: Object, count: int) -> Exception | None:
        ref = controller_ref(replica_set, self._flavour.resource)
        pod = pods.pod_from_template(replica_set["spec"].get("template") or {}, replica_set, ref)
        _, problem = await self._expected_pods.create(key, replica_set, [pod] * count)
        return problem

    async def _delete(
        self, key: str, replica_set: Object, pods_to_delete: Sequence[Object]
    ) -> Exception | None:
        problems = await self._expected_pods.delete(key, replica_set, pods_to_delete)
        return problems[0] if problems else None

    def _related(self, replica_set: Object) -> Iterable[Object]:
        """Pods of all ReplicaSets with the same owner, such as a Deployment."""
        ref = controller_of(replica_set)
        if ref is None:
            return
        seen: set[str] = set()
        for sibling in owned_objects(self._sets, ref["uid"]):
            for pod in self._pods.list(
                sibling["metadata"]["namespace"], self._flavour.selector(sibling)
            ):
                if pod["metadata"]["uid"] not in seen:
                    seen.add(pod["metadata"]["uid"])
                    yield pod

    async def _update_status(self, replica_set: Object, status: Object) -> None:
        """Writes the status if it changed. Retries a conflict once with the server's current
        object.
        """
        meta, old = replica_set["metadata"], replica_set.get("status") or {}
        if (
            old.get("observedGeneration", 0) == meta.get("generation", 0)
            and all(old.get(name, 0) == status.get(name, 0) for name in _COUNTS)
            and old.get("conditions") == status.get("conditions")
            and old.get("terminatingReplicas") == status.get("terminatingReplicas")
        ):
            return
        resource = self._flavour.resource
        status["observedGeneration"] = meta.get("generation", 0)
        try:
            await self._client.update_status(resource, {**replica_set, "status": status})
        except ApiError:
            fresh = await self._client.get(resource, meta["namespace"], meta["name"])
            await self._client.update_status(resource, {**fresh, "status": status})


def replication_controllers(env: ControllerContext) -> ReplicaSets:
    return ReplicaSets(env, REPLICATION_CONTROLLER)


# ---- status ----


def _settled(replica_set: Object) -> bool:
    """A large set that has all its pods: only their status changes, so the changes of many pods are
    counted together.
    """
    spec, status = replica_set["spec"], replica_set.get("status") or {}
    return (
        status.get("replicas", 0) >= _LARGE
        and spec.get("replicas", 0) == status["replicas"]
        and status.get("observedGeneration", 0) == replica_set["metadata"].get("generation")
        and "deletionTimestamp" not in replica_set["metadata"]
    )


def _status(
    replica_set: Object, mine: Sequence[Object], problem: Exception | None, now: float
) -> Object:
    spec, old = replica_set["spec"], replica_set.get("status") or {}
    template_labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    wanted, seconds = template_labels.items(), spec.get("minReadySeconds") or 0
    labelled = ready = available = 0
    for pod in mine:
        if wanted <= (pod["metadata"].get("labels") or {}).items():
            labelled += 1
        if pods.is_pod_ready(pod):
            ready += 1
            if pods.is_pod_available(pod, seconds, now):
                available += 1
    counts = dict(zip(_COUNTS, (len(mine), labelled, ready, available), strict=True))
    status: Object = {name: value for name, value in counts.items() if value or name == "replicas"}
    conditions = old.get("conditions") or []
    failed = any(condition["type"] == _FAILURE for condition in conditions)
    if problem is not None and not failed:
        surplus = len(mine) - spec.get("replicas", 0)
        condition = {
            "type": _FAILURE,
            "status": "True",
            "lastTransitionTime": rfc3339(now),
            "reason": "FailedCreate" if surplus < 0 else "FailedDelete",
            "message": str(problem),
        }
        conditions = [*conditions, condition]
    elif problem is None and failed:
        conditions = [condition for condition in conditions if condition["type"] != _FAILURE]
    if conditions:
        status["conditions"] = conditions
    return status


# ---- deletion order ----


def _to_delete(
    mine: Sequence[Object], related: Iterable[Object], count: int, *, by_cost: bool = False
) -> Sequence[Object]:
    if count >= len(mine):
        return mine
    active_on_node = Counter(pods.assigned_node(pod) for pod in related if pods.is_pod_active(pod))
    return sorted(
        mine,
        key=lambda pod: pods.deletion_rank(
            pod, active_on_node[pods.assigned_node(pod)], by_cost=by_cost
        ),
    )[:count]
