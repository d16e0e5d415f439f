"""Decides when to sync a DaemonSet, and syncs it: creates and deletes pods, advances a rolling
update, updates the status.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from transom.client.api import is_namespace_terminating, is_not_found
from transom.client.backoff import KeyedBackoff
from transom.client.events import WARNING
from transom.client.resources import CONTROLLER_REVISIONS, DAEMON_SETS, NODES, PODS
from transom.client.store import join_key, object_key
from transom.client.workqueue import WorkQueue
from transom.controllers import pods
from transom.controllers.base import ControllerContext, run_worker
from transom.controllers.daemonset import revisions, surge, template
from transom.controllers.daemonset.placement import Placement
from transom.controllers.dependents import Dependents
from transom.controllers.expectations import Expectations
from transom.controllers.ownership import (
    claim_objects,
    controller_ref,
    index_by_controller,
    owned_or_orphaned_objects,
)
from transom.controllers.percent import scaled_value
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.machinery.selectors import owner_selector

_WORKERS = 2
BURST = 250
_FIRST_BACKOFF, _LONGEST_BACKOFF = 1.0, 900.0
_COUNTS = (
    "desiredNumberScheduled",
    "currentNumberScheduled",
    "numberMisscheduled",
    "numberReady",
    "updatedNumberScheduled",
    "numberAvailable",
    "numberUnavailable",
)
_ALWAYS = frozenset(_COUNTS[:4])

ByNode = dict[str, list[Object]]


class DaemonSets:
    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        self._clock = env.clock
        self._surges = env.settings.features.enabled("DaemonSetUpdateSurge")
        self._events = env.recorder("daemonset-controller")
        self._pod_control = pods.PodControl(env.client, self._events)
        self._expectations = Expectations(env.clock)
        self._backoff = KeyedBackoff(_FIRST_BACKOFF, _LONGEST_BACKOFF)
        self._placements: dict[str, tuple[str, int, Placement]] = {}
        self._queue: WorkQueue[str] = WorkQueue(env.clock, name="daemonset", metrics=env.queues)
        self._sets = env.informers(DAEMON_SETS)
        self._pods = env.informers(PODS)
        self._nodes = env.informers(NODES)
        self._revisions = env.informers(CONTROLLER_REVISIONS)
        index_by_controller(self._pods)
        index_by_controller(self._revisions)
        self._sets.add_handler(
            add=self._enqueue, update=self._set_updated, delete=self._set_deleted
        )
        self._nodes.add_handler(add=self._node_added, update=self._node_updated)
        Dependents(self._revisions, self._sets, self._enqueue)
        Dependents(
            self._pods,
            self._sets,
            self._enqueue,
            expectations=self._expectations,
        )

    async def run(self) -> None:
        needs = (self._sets, self._pods, self._nodes, self._revisions)
        await run_worker(self._queue, self._sync, needs, _WORKERS)

    # ---- event handlers ----

    def _enqueue(self, daemon_set: Object) -> None:
        self._queue.add(object_key(daemon_set))

    def _set_updated(self, old: Object, new: Object) -> None:
        if old["metadata"]["uid"] != new["metadata"]["uid"]:
            self._expectations.forget(object_key(old))
        self._enqueue(new)

    def _set_deleted(self, daemon_set: Object) -> None:
        self._expectations.forget(object_key(daemon_set))
        self._placements.pop(object_key(daemon_set), None)
        self._enqueue(daemon_set)

    def _node_added(self, node: Object) -> None:
        for daemon_set in self._sets.list():
            if self._placement(daemon_set).node_should_run(node)[0]:
                self._enqueue(daemon_set)

    def _node_updated(self, old: Object, new: Object) -> None:
        same_labels = old["metadata"].get("labels") == new["metadata"].get("labels")
        if same_labels and (old.get("spec") or {}).get("taints") == (new.get("spec") or {}).get(
            "taints"
        ):
            return  # most updates are heartbeats
        for daemon_set in self._sets.list():
            placement = self._placement(daemon_set)
            if placement.node_should_run(old) != placement.node_should_run(new):
                self._enqueue(daemon_set)

    def _placement(self, daemon_set: Object) -> Placement:
        key, meta = object_key(daemon_set), daemon_set["metadata"]
        uid, generation = meta["uid"], meta.get("generation", 0)
        known = self._placements.get(key)
        if known is None or known[:2] != (uid, generation):
            known = self._placements[key] = uid, generation, Placement(daemon_set)
        return known[2]

    # ---- one DaemonSet ----

    async def _sync(self, key: str) -> None:
        daemon_set = self._sets.by_key(key)
        if daemon_set is None:
            self._expectations.forget(key)
            return
        if daemon_set["spec"].get("selector") == {}:
            message = "This daemon set is selecting all pods. A non-empty selector is required."
            self._events.event(daemon_set, WARNING, "SelectingAll", message)
            return
        if "deletionTimestamp" in daemon_set["metadata"]:
            return  # its history may already be deleted, so its revision is unknown
        found = await revisions.construct_history(
            self._client,
            daemon_set,
            await self._claim_revisions(daemon_set),
            await self._claim_pods(daemon_set),
        )
        if not self._expectations.satisfied(key):
            # The informer does not show all previous writes yet; the status of this generation is
            # unknown.
            await self._update_status(daemon_set, found.hash, observed=False)
            self._look_again(key)
            return
        await self._manage(key, daemon_set, found.hash)
        strategy = daemon_set["spec"].get("updateStrategy") or {}
        if self._expectations.satisfied(key) and strategy.get("type") == "RollingUpdate":
            await self._roll(key, daemon_set, found.hash)
        await revisions.clean_up_history(
            self._client, daemon_set, found.old, await self._claim_pods(daemon_set)
        )
        await self._update_status(daemon_set, found.hash, observed=True)
        self._look_again(key)

    def _look_again(self, key: str) -> None:
        left = self._expectations.seconds_left(key)
        if left is not None:
            self._queue.add_after(key, left)

    async def _claim_revisions(self, daemon_set: Object) -> list[Object]:
        return await claim_objects(
            self._client,
            DAEMON_SETS,
            daemon_set,
            owner_selector(daemon_set),
            CONTROLLER_REVISIONS,
            owned_or_orphaned_objects(self._revisions, daemon_set),
        )

    async def _claim_pods(self, daemon_set: Object) -> list[Object]:
        return await claim_objects(
            self._client,
            DAEMON_SETS,
            daemon_set,
            owner_selector(daemon_set),
            PODS,
            owned_or_orphaned_objects(self._pods, daemon_set),
        )

    async def _pods_by_node(self, daemon_set: Object) -> ByNode:
        found: ByNode = {}
        for pod in await self._claim_pods(daemon_set):
            node = template.target_node(pod)
            if node:
                found.setdefault(node, []).append(pod)
        return found

    # ---- nodes without a pod, pods without a node ----

    async def _manage(self, key: str, daemon_set: Object, revision_hash: str) -> None:
        by_node = await self._pods_by_node(daemon_set)
        placement = self._placement(daemon_set)
        empty: list[str] = []
        pods_to_delete: list[str] = []
        nodes = self._nodes.list()
        for node in nodes:
            name = node["metadata"]["name"]
            should_run, may_stay = placement.node_should_run(node)
            there = by_node.get(name)
            if should_run and there is None:
                empty.append(name)
            elif may_stay:
                pods_to_delete += self._surplus(daemon_set, name, there or (), revision_hash)
            elif there is not None:
                pods_to_delete += [
                    pod["metadata"]["name"] for pod in there if not pods.is_pod_terminating(pod)
                ]
        # A pod of a node that does not exist stays pending forever, and no other controller deletes
        # it.
        existing = {node["metadata"]["name"] for node in nodes}
        pods_to_delete += [
            pod["metadata"]["name"]
            for name, there in by_node.items()
            if name not in existing
            for pod in there
            if not pod["spec"].get("nodeName")
        ]
        await self._apply(key, daemon_set, pods_to_delete, empty, revision_hash)

    def _surplus(
        self, daemon_set: Object, node: str, there: Sequence[Object], revision_hash: str
    ) -> list[str]:
        """Pods to delete from a node that keeps one: failed ones, and all but the oldest of the
        others.
        """
        pods_to_delete = []
        running = []
        for pod in there:
            if pods.is_pod_terminating(pod):
                continue
            if pods.pod_phase(pod) != "Failed":
                running.append(pod)
                continue
            # Back off: a kubelet that rejects pods would otherwise get one after the other.
            generation = (daemon_set.get("status") or {}).get("observedGeneration", 0)
            backoff_key = f"{daemon_set['metadata']['uid']}/{generation}/{node}"
            started = self._clock.monotonic()
            if self._backoff.left(backoff_key, started) > 0:
                self._queue.add_after(object_key(daemon_set), self._backoff.get(backoff_key))
                continue
            self._backoff.next(backoff_key, started, started)
            self._backoff.collect(started)
            message = (
                f"Found failed daemon pod {object_key(pod)} on node {node}, will try to kill it"
            )
            self._events.event(daemon_set, WARNING, "FailedDaemonPod", message)
            pods_to_delete.append(pod["metadata"]["name"])
        running.sort(key=_by_age)
        excess = running[1:]
        if self._max_surge(daemon_set, 1) > 0:
            seconds = daemon_set["spec"].get("minReadySeconds") or 0
            excess = surge.surplus_pods(running, revision_hash, seconds, self._clock.time())
        return pods_to_delete + [pod["metadata"]["name"] for pod in excess]

    def _max_surge(self, daemon_set: Object, desired: int) -> int:
        """How many nodes may have a second pod during an update."""
        strategy = daemon_set["spec"].get("updateStrategy") or {}
        if not self._surges or strategy.get("type") != "RollingUpdate":
            return 0
        most = (strategy.get("rollingUpdate") or {}).get("maxSurge") or 0
        return scaled_value(most, desired, up=True)

    async def _apply(
        self,
        key: str,
        daemon_set: Object,
        pods_to_delete: Sequence[str],
        empty: Sequence[str],
        revision_hash: str,
    ) -> None:
        """Creates pods for these nodes and deletes these pods; raises the first failure."""
        pods_to_delete, empty = pods_to_delete[:BURST], empty[:BURST]
        namespace = daemon_set["metadata"]["namespace"]
        self._expectations.expect(
            key, len(empty), [join_key(namespace, name) for name in pods_to_delete]
        )
        base = pods.pod_from_template(
            template.daemon_pod_template(daemon_set, revision_hash),
            daemon_set,
            controller_ref(daemon_set, DAEMON_SETS),
        )

        async def create(place: int) -> None:
            try:
                await self._pod_control.create(
                    daemon_set, template.pod_template_for_node(base, empty[place])
                )
            except ApiError as problem:
                # A terminating namespace accepts no new pods, which is not a failure.
                if not is_namespace_terminating(problem):
                    raise

        async def delete(name: str) -> Exception | None:
            try:
                await self._pod_control.delete(daemon_set, name)
            except (ApiError, OSError, pods.DeleteFailed) as problem:
                self._expectations.deleted(key, join_key(namespace, name))
                return None if is_not_found(problem) else problem
            return None

        succeeded, problem = await pods.slow_start(len(empty), create)
        self._expectations.created(key, len(empty) - succeeded)
        problems = [problem, *await asyncio.gather(*(delete(name) for name in pods_to_delete))]
        for first in problems:
            if first is not None:
                raise first

    # ---- rolling update ----

    async def _roll(self, key: str, daemon_set: Object, revision_hash: str) -> None:
        """Deletes pods of older revisions, as many as may be unavailable; the next sync creates
        their replacements.
        """
        by_node = await self._pods_by_node(daemon_set)
        seconds, now = daemon_set["spec"].get("minReadySeconds") or 0, self._clock.time()
        desired, unavailable, allowed = self._unavailable(daemon_set, by_node, seconds, now)
        most = self._max_surge(daemon_set, desired)
        if most > 0:
            plan = surge.plan_surge(by_node, revision_hash, seconds, now, most)
            await self._apply(key, daemon_set, plan.delete, plan.create, revision_hash)
            return
        old = [
            pod
            for there in by_node.values()
            for pod in there
            if not template.is_updated(pod, revision_hash)
        ]
        pods_to_delete, working = [], []
        for pod in old:
            if pods.is_pod_available(pod, seconds, now):
                working.append(pod)
            elif not pods.is_pod_terminating(pod):
                pods_to_delete.append(pod)
        pods_to_delete += working[: max(allowed - unavailable, 0)]
        await self._apply(
            key, daemon_set, [pod["metadata"]["name"] for pod in pods_to_delete], [], revision_hash
        )

    def _unavailable(
        self, daemon_set: Object, by_node: ByNode, seconds: int, now: float
    ) -> tuple[int, int, int]:
        """Nodes that need a pod, those without an available one, and the maximum number of them."""
        placement = self._placement(daemon_set)
        unavailable = desired = 0
        for node in self._nodes.list():
            if not placement.node_should_run(node)[0]:
                continue
            desired += 1
            there = by_node.get(node["metadata"]["name"], ())
            if not any(
                pods.is_pod_available(pod, seconds, now) and not pods.is_pod_terminating(pod)
                for pod in there
            ):
                unavailable += 1
        limits = (daemon_set["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}
        most = scaled_value(limits.get("maxUnavailable", 1), desired, up=True)
        return desired, unavailable, most

    # ---- status ----

    async def _update_status(
        self, daemon_set: Object, revision_hash: str, *, observed: bool
    ) -> None:
        by_node = await self._pods_by_node(daemon_set)
        placement, now = self._placement(daemon_set), self._clock.time()
        seconds = daemon_set["spec"].get("minReadySeconds") or 0
        desired = current = wrong = ready = updated = available = 0
        for node in self._nodes.list():
            there = by_node.get(node["metadata"]["name"])
            if not placement.node_should_run(node)[0]:
                wrong += there is not None
                continue
            desired += 1
            if there is None:
                continue
            current += 1
            pod = min(there, key=_by_age)
            ready += pods.is_pod_ready(pod)
            available += pods.is_pod_available(pod, seconds, now)
            updated += template.is_updated(pod, revision_hash)
        counts = dict(
            zip(
                _COUNTS,
                (desired, current, wrong, ready, updated, available, desired - available),
                strict=True,
            )
        )
        await self._write_status(daemon_set, counts, observed=observed)
        wait = pods.next_available(
            (pod for there in by_node.values() for pod in there), seconds, now
        )
        if wait is not None:
            self._queue.add_after(object_key(daemon_set), wait)

    async def _write_status(
        self, daemon_set: Object, counts: dict[str, int], *, observed: bool
    ) -> None:
        old, generation = (
            daemon_set.get("status") or {},
            daemon_set["metadata"].get("generation", 0),
        )
        seen = old.get("observedGeneration", 0)
        if seen >= generation and all(old.get(name, 0) == count for name, count in counts.items()):
            return
        status = {name: value for name, value in old.items() if name not in counts}
        status |= {name: count for name, count in counts.items() if count or name in _ALWAYS}
        status["observedGeneration"] = generation if observed else seen
        await self._client.update_status(DAEMON_SETS, {**daemon_set, "status": status})


def _by_age(pod: Object) -> tuple[bool, str, str]:
    """Scheduled pods first, then the oldest; ties are broken by name."""
    meta = pod["metadata"]
    return not pod["spec"].get("nodeName"), meta.get("creationTimestamp") or "", meta["name"]
