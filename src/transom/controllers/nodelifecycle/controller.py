"""Every few seconds a look at all nodes: who is alive, who is tainted, which pods are not ready any more."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence

from transom.client.api import MERGE_PATCH, is_not_found
from transom.client.events import NORMAL, WARNING
from transom.client.resources import LEASES, NODES, PODS
from transom.client.store import key_of
from transom.client.workqueue import RetryLater, WorkQueue
from transom.controllers.base import Env, work
from transom.controllers.nodelifecycle.health import Health, Verdict, condition, judge
from transom.controllers.nodelifecycle.taint_manager import BY_NODE, TaintManager
from transom.controllers.nodelifecycle.taints import (
    NO_EXECUTE,
    NOT_READY,
    UNREACHABLE,
    Taint,
    Tainter,
    has,
    no_schedule_changes,
)
from transom.controllers.nodelifecycle.zones import Zones, zone_of
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
# What old clients know a label by.
_COPIED_LABELS = (
    ("kubernetes.io/os", "beta.kubernetes.io/os"), ("kubernetes.io/arch", "beta.kubernetes.io/arch"),
)
_EVICTING: dict[str, tuple[Taint, Taint]] = {  # status of Ready -> the taint that says so, and the other one
    "False": ((NOT_READY, NO_EXECUTE), (UNREACHABLE, NO_EXECUTE)),
    "Unknown": ((UNREACHABLE, NO_EXECUTE), (NOT_READY, NO_EXECUTE)),
}


class NodeLifecycle:
    def __init__(self, env: Env) -> None:
        self._client = env.client
        self._clock = env.clock
        self._grace = env.settings.node_grace
        self._events = env.recorder("node-controller")
        self._tainter = Tainter(env.client, env.clock, env.rng)
        self._zones = Zones(env.clock)
        self._known: dict[str, Object] = {}
        self._health: dict[str, Health] = {}
        self._retry: set[str] = set()  # nodes whose pods could not all be marked
        self._tainting = asyncio.Event()  # a node waits to be tainted
        self._node_queue: WorkQueue[str] = WorkQueue(env.clock, name="nodelifecycle")
        self._pod_queue: WorkQueue[str] = WorkQueue(env.clock, name="nodelifecycle pods")
        self._nodes = env.informers(NODES)
        self._pods = env.informers(PODS)
        self._leases = env.informers(LEASES)
        self._pods.add_index(BY_NODE, _node_name)
        self._nodes.add_handler(
            add=self._node_changed, update=lambda _, new: self._node_changed(new), delete=self._node_gone
        )
        self._pods.add_handler(add=lambda pod: self._pod_changed(None, pod), update=self._pod_changed)
        self._taint_manager = TaintManager(env, self._nodes, self._pods)

    def _node_changed(self, node: Object) -> None:
        self._node_queue.add(node["metadata"]["name"])

    def _node_gone(self, node: Object) -> None:
        self._retry.discard(node["metadata"]["name"])

    def _pod_changed(self, old: Object | None, new: Object) -> None:
        name = new["spec"].get("nodeName")
        if name and (old is None or old["spec"].get("nodeName") != name):
            self._pod_queue.add(key_of(new))

    async def run(self) -> None:
        needs = self._nodes, self._pods, self._leases
        for informer in needs:
            await informer.synced()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._taint_manager.run())
            group.create_task(work(self._node_queue, self._sync_node, needs, _WORKERS))
            group.create_task(work(self._pod_queue, self._sync_pod, needs, _POD_WORKERS))
            group.create_task(self._taint_slowly())
            group.create_task(self._monitor())

    # ---- at each change ------------------------------------------------------------------------------------------

    async def _sync_node(self, name: str) -> None:
        node = self._nodes.get("", name)
        if node is None:
            return
        try:
            add, remove = no_schedule_changes(node)
            if add or remove:
                await self._tainter.swap(name, add, remove)
            labels = node["metadata"].get("labels") or {}
            missing = {new: labels[old] for old, new in _COPIED_LABELS if old in labels and labels.get(new) != labels[old]}
            if missing:
                await self._client.patch(NODES, "", name, {"metadata": {"labels": missing}}, MERGE_PATCH)
        except ApiError as problem:
            if not is_not_found(problem):
                raise

    async def _sync_pod(self, key: str) -> None:
        """A pod that came to a node which was marked already."""
        pod = self._pods.by_key(key)
        health = self._health.get(_node_of(pod)) if pod is not None else None
        if pod is None or health is None:
            return
        ready = condition(health.status)
        if ready is not None and ready.get("status") != "True":
            await self._mark_not_ready((pod,))

    # ---- every few seconds ---------------------------------------------------------------------------------------

    async def _monitor(self) -> None:
        while True:
            try:
                await self.check_all()
            except Exception:
                log.exception("nodelifecycle: checking the nodes failed")
            await self._clock.sleep(_MONITOR_PERIOD)

    async def check_all(self) -> None:
        nodes = self._nodes.list()
        await self._greet(nodes)
        ready: dict[str, list[bool]] = defaultdict(list)
        for node in nodes:
            current = await self._check(node)
            if current is not None and not _excluded(node):
                ready[zone_of(node)].append(current == "True")
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

    async def _greet(self, nodes: Iterable[Object]) -> None:
        """Nodes that came, and those that went."""
        there = {node["metadata"]["name"]: node for node in nodes}
        for name, node in there.items():
            self._zones.queue(node)
            if name not in self._known:
                self._known[name] = node
                self._tell(node, "RegisteredNode", f"Node {name} event: Registered Node {name} in Controller")
                await self._clear(node)
        for name in [name for name in self._known if name not in there]:
            self._tell(self._known.pop(name), "RemovingNode", f"Node {name} event: Removing Node {name} from Controller")
            self._health.pop(name, None)

    async def _check(self, node: Object) -> str | None:
        """The status of the node's Ready condition, "" if it has none; None if nothing could be done about it."""
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
        current = condition({"conditions": rows}) if rows is not None else condition(node.get("status"))
        if current is None:
            return ""
        try:
            await self._taint(node, verdict.observed)
            await self._mark_pods(node, current.get("status", ""), verdict.observed.get("status", ""))
        except (ApiError, OSError, RetryLater) as problem:
            log.info("nodelifecycle: node %s: %s", name, problem)
        return str(current.get("status", ""))

    async def _update_health(self, node: Object) -> Verdict:
        name = node["metadata"]["name"]
        lease = self._leases.get(_LEASE_NAMESPACE, name)
        verdict = judge(node, lease, self._health.get(name), self._grace, self._clock.time())
        self._health[name] = verdict.health
        if verdict.conditions is not None:
            status = {**(node.get("status") or {}), "conditions": verdict.conditions}
            written = await self._client.update_status(NODES, {**node, "status": status})
            self._health[name] = Health(written["status"], verdict.health.probed, verdict.health.lease_renewed)
        return verdict

    async def _taint(self, node: Object, observed: Object) -> None:
        status = observed.get("status", "")
        if status == "True":
            await self._clear(node)
            return
        if status not in _EVICTING:
            return
        wanted, other = _EVICTING[status]
        if has(node, other):
            await self._tainter.swap(node["metadata"]["name"], (wanted,), (other,))
            return
        queue = self._zones.queue(node)
        if not has(node, wanted):
            queue.remove(node["metadata"]["name"])
        if queue.add(node["metadata"]["name"]):
            self._tainting.set()

    async def _clear(self, node: Object) -> None:
        name = node["metadata"]["name"]
        taints = (UNREACHABLE, NO_EXECUTE), (NOT_READY, NO_EXECUTE)
        if any(has(node, taint) for taint in taints):
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
            self._tell(node, "NodeNotReady", f"Node {name} status is now: NodeNotReady")
        if turned or (name in self._retry and observed != "True"):
            self._retry.add(name)
            await self._mark_not_ready(self._pods.by_index(BY_NODE, name))
        self._retry.discard(name)

    async def _mark_not_ready(self, pods: Sequence[Object]) -> None:
        failures = []
        for pod in pods:
            ready = condition(pod.get("status"))
            if ready is None or ready.get("status") == "False":
                continue
            now = rfc3339(self._clock.time())
            rows = [
                {**row, "status": "False", "lastTransitionTime": now} if row is ready else row
                for row in pod["status"]["conditions"]
            ]
            try:
                await self._client.update_status(PODS, {**pod, "status": {**pod["status"], "conditions": rows}})
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
        ready = condition(node.get("status")) if node is not None else None
        if ready is None or ready.get("status") not in _EVICTING:
            return True  # gone, or well again
        wanted, other = _EVICTING[ready["status"]]
        try:
            await self._tainter.swap(name, (wanted,), (other,))
        except (ApiError, OSError) as problem:
            log.info("nodelifecycle: node %s is not tainted: %s", name, problem)
            return is_not_found(problem)
        return True

    def _tell(self, node: Object, reason: str, message: str) -> None:
        meta = node["metadata"]
        about = {"kind": "Node", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]}
        self._events.event(about, NORMAL, reason, message)


def _node_of(pod: Object) -> str:
    return str(pod["spec"].get("nodeName") or "")


def _node_name(pod: Object) -> Sequence[str]:
    name = _node_of(pod)
    return (name,) if name else ()


def _excluded(node: Object) -> bool:
    """Control plane nodes say nothing about how the others fare; by label, or by name as before there was one."""
    name = node["metadata"]["name"]
    if name.endswith("master") or (len(name) >= 10 and name[:-3].endswith("master-")):
        return True
    return _EXCLUDED_LABEL in (node["metadata"].get("labels") or {})
