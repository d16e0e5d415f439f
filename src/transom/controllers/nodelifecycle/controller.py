"""Checks all nodes every few seconds: updates conditions and taints, and marks pods as not
ready.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence

from transom.client.api import MERGE_PATCH, is_not_found
from transom.client.events import NORMAL, WARNING
from transom.client.resources import LEASES, NODES, PODS
from transom.client.store import object_key
from transom.client.workqueue import RetryLater, WorkQueue
from transom.controllers.base import ControllerContext, run_worker
from transom.controllers.nodelifecycle.health import (
    NodeHealthData,
    NodeHealthResult,
    evaluate_node_health,
    find_node_condition,
)
from transom.controllers.nodelifecycle.taint_manager import BY_NODE, TaintManager
from transom.controllers.nodelifecycle.taints import (
    NO_EXECUTE,
    NOT_READY,
    UNREACHABLE,
    Taint,
    Tainter,
    has_taint,
    no_schedule_changes,
)
from transom.controllers.nodelifecycle.zones import Zones, node_zone
from transom.kit.clock import rfc3339
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

log = logging.getLogger("transom.controllers")

_MONITOR_PERIOD = 5.0
_TAINT_PERIOD = 0.1
_WORKERS, _POD_WORKERS = 8, 4
_TRIES, _TRY_SECONDS = 5, 0.02
_LEASE_NAMESPACE = "kube-node-lease"
_EXCLUDED_LABEL = "node.kubernetes.io/exclude-disruption"
# Deprecated names of labels, for old clients.
_COPIED_LABELS = (
    ("kubernetes.io/os", "beta.kubernetes.io/os"),
    ("kubernetes.io/arch", "beta.kubernetes.io/arch"),
)
# status of Ready -> the matching taint, and the other one
_EVICTING: dict[str, tuple[Taint, Taint]] = {
    "False": ((NOT_READY, NO_EXECUTE), (UNREACHABLE, NO_EXECUTE)),
    "Unknown": ((UNREACHABLE, NO_EXECUTE), (NOT_READY, NO_EXECUTE)),
}


class NodeLifecycle:
    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        self._clock = env.clock
        self._grace = env.settings.node_grace
        self._events = env.recorder("node-controller")
        self._tainter = Tainter(env.client, env.clock, env.rng)
        self._zones = Zones(env.clock)
        self._known: dict[str, Object] = {}
        self._health: dict[str, NodeHealthData] = {}
        self._retry: set[str] = set()  # nodes with pods that could not be marked
        self._tainting = asyncio.Event()  # a node is queued for tainting
        self._node_queue: WorkQueue[str] = WorkQueue(
            env.clock, name="node_lifecycle_controller", metrics=env.queues
        )
        self._pod_queue: WorkQueue[str] = WorkQueue(
            env.clock, name="node_lifecycle_controller_pods", metrics=env.queues
        )
        self._nodes = env.informers(NODES)
        self._pods = env.informers(PODS)
        self._leases = env.informers(LEASES)
        self._pods.add_index(BY_NODE, _node_name)
        self._nodes.add_handler(
            add=self._node_changed,
            update=lambda _, new: self._node_changed(new),
            delete=self._node_gone,
        )
        self._pods.add_handler(
            add=lambda pod: self._pod_changed(None, pod), update=self._pod_changed
        )
        self._taint_manager = TaintManager(env, self._nodes, self._pods)

    def _node_changed(self, node: Object) -> None:
        self._node_queue.add(node["metadata"]["name"])

    def _node_gone(self, node: Object) -> None:
        self._retry.discard(node["metadata"]["name"])

    def _pod_changed(self, old: Object | None, new: Object) -> None:
        name = new["spec"].get("nodeName")
        if name and (old is None or old["spec"].get("nodeName") != name):
            self._pod_queue.add(object_key(new))

    async def run(self) -> None:
        needs = self._nodes, self._pods, self._leases
        for informer in needs:
            await informer.synced()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._taint_manager.run())
            group.create_task(run_worker(self._node_queue, self._sync_node, needs, _WORKERS))
            group.create_task(run_worker(self._pod_queue, self._sync_pod, needs, _POD_WORKERS))
            group.create_task(self._taint_slowly())
            group.create_task(self._monitor())

    # ---- at each change ----

    async def _sync_node(self, name: str) -> None:
        node = self._nodes.get("", name)
        if node is None:
            return
        try:
            add, remove = no_schedule_changes(node)
            if add or remove:
                await self._tainter.swap(name, add, remove)
            labels = node["metadata"].get("labels") or {}
            missing = {
                new: labels[old]
                for old, new in _COPIED_LABELS
                if old in labels and labels.get(new) != labels[old]
            }
            if missing:
                await self._client.patch(
                    NODES, "", name, {"metadata": {"labels": missing}}, MERGE_PATCH
                )
        except ApiError as problem:
            if not is_not_found(problem):
                raise

    async def _sync_pod(self, key: str) -> None:
        """Handles a pod that was scheduled to a node that is already marked."""
        pod = self._pods.by_key(key)
        health = self._health.get(_node_of(pod)) if pod is not None else None
        if pod is None or health is None:
            return
        ready = find_node_condition(health.status)
        if ready is not None and ready.get("status") != "True":
            await self._mark_not_ready((pod,))

    # ---- every few seconds ----

    async def _monitor(self) -> None:
        while True:
            try:
                await self.check_all()
            except Exception:
                log.exception("nodelifecycle: checking the nodes failed")
            await self._clock.sleep(_MONITOR_PERIOD)

    async def check_all(self) -> None:
        nodes = self._nodes.list()
        await self._add_new_nodes(nodes)
        ready: dict[str, list[bool]] = defaultdict(list)
        for node in nodes:
            current = await self._check(node)
            if current is not None and not _excluded(node):
                ready[node_zone(node)].append(current == "True")
        all_fail, all_failed = self._zones.update(ready)
        if all_fail:
            log.warning("nodelifecycle: no node is ready; no pods are evicted until one is")
            for node in nodes:
                await self._clear(node)
        elif all_failed:
            now = self._clock.time()
            for node in nodes:
                health = self._health.get(node["metadata"]["name"])
                if health is not None:
                    health.probed = now

    async def _add_new_nodes(self, nodes: Iterable[Object]) -> None:
        """Added nodes, and removed ones."""
        there = {node["metadata"]["name"]: node for node in nodes}
        for name, node in there.items():
            self._zones.queue(node)
            if name not in self._known:
                self._known[name] = node
                self._record_event(
                    node,
                    "RegisteredNode",
                    f"Node {name} event: Registered Node {name} in Controller",
                )
                await self._clear(node)
        for name in [name for name in self._known if name not in there]:
            self._record_event(
                self._known.pop(name),
                "RemovingNode",
                f"Node {name} event: Removing Node {name} from Controller",
            )
            self._health.pop(name, None)

    async def _check(self, node: Object) -> str | None:
        """The status of the node's Ready condition, "" if it has none; None if the update
        failed.
        """
        name = node["metadata"]["name"]
        for attempt in range(_TRIES):
            try:
                if attempt:
                    node = await self._client.get(NODES, "", name)
                verdict = await self._update_health(node)
                break
            except (ApiError, OSError) as problem:
                log.info("nodelifecycle: the health of node %s is not updated: %s", name, problem)
                if is_not_found(problem):
                    return None
            await self._clock.sleep(_TRY_SECONDS)
        else:
            return None
        rows = verdict.conditions
        current = (
            find_node_condition({"conditions": rows})
            if rows is not None
            else find_node_condition(node.get("status"))
        )
        if current is None:
            return ""
        try:
            await self._taint(node, verdict.observed)
            await self._mark_pods(
                node, current.get("status", ""), verdict.observed.get("status", "")
            )
        except (ApiError, OSError, RetryLater) as problem:
            log.info("nodelifecycle: node %s: %s", name, problem)
        return str(current.get("status", ""))

    async def _update_health(self, node: Object) -> NodeHealthResult:
        name = node["metadata"]["name"]
        lease = self._leases.get(_LEASE_NAMESPACE, name)
        verdict = evaluate_node_health(
            node, lease, self._health.get(name), self._grace, self._clock.time()
        )
        self._health[name] = verdict.health
        if verdict.conditions is not None:
            status = {**(node.get("status") or {}), "conditions": verdict.conditions}
            written = await self._client.update_status(NODES, {**node, "status": status})
            self._health[name] = NodeHealthData(
                written["status"], verdict.health.probed, verdict.health.lease_renewed
            )
        return verdict

    async def _taint(self, node: Object, observed: Object) -> None:
        status = observed.get("status", "")
        if status == "True":
            await self._clear(node)
            return
        if status not in _EVICTING:
            return
        wanted, other = _EVICTING[status]
        if has_taint(node, other):
            await self._tainter.swap(node["metadata"]["name"], (wanted,), (other,))
            return
        queue = self._zones.queue(node)
        if not has_taint(node, wanted):
            queue.remove(node["metadata"]["name"])
        if queue.add(node["metadata"]["name"]):
            self._tainting.set()

    async def _clear(self, node: Object) -> None:
        name = node["metadata"]["name"]
        taints = (UNREACHABLE, NO_EXECUTE), (NOT_READY, NO_EXECUTE)
        if any(has_taint(node, taint) for taint in taints):
            try:
                await self._tainter.swap(name, (), taints)
            except (ApiError, OSError) as problem:
                log.info("nodelifecycle: the taints of node %s are not removed: %s", name, problem)
                return
        self._zones.queue(node).remove(name)

    async def _mark_pods(self, node: Object, current: str, observed: str) -> None:
        name = node["metadata"]["name"]
        turned = current != "True" and observed == "True"
        if turned:
            self._record_event(node, "NodeNotReady", f"Node {name} status is now: NodeNotReady")
        if turned or (name in self._retry and observed != "True"):
            self._retry.add(name)
            await self._mark_not_ready(self._pods.by_index(BY_NODE, name))
        self._retry.discard(name)

    async def _mark_not_ready(self, pods: Sequence[Object]) -> None:
        failures = []
        for pod in pods:
            ready = find_node_condition(pod.get("status"))
            if ready is None or ready.get("status") == "False":
                continue
            now = rfc3339(self._clock.time())
            rows = [
                {**row, "status": "False", "lastTransitionTime": now} if row is ready else row
                for row in pod["status"]["conditions"]
            ]
            try:
                await self._client.update_status(
                    PODS, {**pod, "status": {**pod["status"], "conditions": rows}}
                )
            except ApiError as problem:
                if is_not_found(problem):
                    continue
                failures.append(str(problem))
            self._events.event(pod, WARNING, "NodeNotReady", "Node is not ready")
        if failures:
            raise RetryLater("; ".join(failures))

    async def _taint_slowly(self) -> None:
        while True:
            for queue in self._zones.queues():
                await queue.work(self._taint_for_eviction)
            if any(self._zones.queues()):
                await self._clock.sleep(_TAINT_PERIOD)
            else:
                self._tainting.clear()
                await self._tainting.wait()

    async def _taint_for_eviction(self, name: str) -> bool:
        node = self._nodes.get("", name)
        ready = find_node_condition(node.get("status")) if node is not None else None
        if ready is None or ready.get("status") not in _EVICTING:
            return True  # deleted, or healthy again
        wanted, other = _EVICTING[ready["status"]]
        try:
            await self._tainter.swap(name, (wanted,), (other,))
        except (ApiError, OSError) as problem:
            log.info("nodelifecycle: node %s is not tainted: %s", name, problem)
            return is_not_found(problem)
        return True

    def _record_event(self, node: Object, reason: str, message: str) -> None:
        meta = node["metadata"]
        about = {"kind": "Node", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]}
        self._events.event(about, NORMAL, reason, message)


def _node_of(pod: Object) -> str:
    return str(pod["spec"].get("nodeName") or "")


def _node_name(pod: Object) -> Sequence[str]:
    name = _node_of(pod)
    return (name,) if name else ()


def _excluded(node: Object) -> bool:
    """Control plane nodes do not count towards the health of a zone; recognized by label, or by
    name as in old releases.
    """
    name = node["metadata"]["name"]
    if name.endswith("master") or (len(name) >= 10 and name[:-3].endswith("master-")):
        return True
    return _EXCLUDED_LABEL in (node["metadata"].get("labels") or {})
