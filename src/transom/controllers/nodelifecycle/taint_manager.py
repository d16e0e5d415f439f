"""Evicts pods from nodes with NoExecute taints: immediately, or when their toleration expires."""

from __future__ import annotations

from transom.client.api import is_not_found
from transom.client.events import NORMAL
from transom.client.informer import Informer
from transom.client.resources import PODS
from transom.client.store import object_key, split_key
from transom.client.workqueue import WorkQueue
from transom.controllers.base import ControllerContext, run_worker
from transom.controllers.disruption_target import DisruptionMarker
from transom.controllers.nodelifecycle.taints import NO_EXECUTE, taints_of, tolerated_seconds
from transom.kit.clock import Timer
from transom.kit.named_tuple import NamedTuple
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

BY_NODE = "nodeName"
_WORKERS = 8
_TRIES = 5


class _Eviction(NamedTuple):
    since: float  # when the pod started to tolerate the taints
    timer: Timer


def _no_execute(node: Object | None) -> list[Object]:
    return (
        []
        if node is None
        else [taint for taint in taints_of(node) if taint["effect"] == NO_EXECUTE]
    )


class TaintManager:
    """`nodes` and `pods` are informers; the pods have an index `BY_NODE`."""

    def __init__(self, env: ControllerContext, nodes: Informer, pods: Informer) -> None:
        self._client = env.client
        self._clock = env.clock
        features = env.settings.features
        separate = features.enabled("SeparateTaintEvictionController")
        self._events = env.recorder("taint-eviction-controller" if separate else "taint-controller")
        self._disruption = DisruptionMarker(env)
        self._queue: WorkQueue[str] = WorkQueue(
            env.clock, name="noexec_taint_pod", metrics=env.queues
        )
        self._nodes, self._pods = nodes, pods
        self._tainted: dict[str, list[Object]] = {}
        self._evictions: dict[str, _Eviction] = {}
        self._evicted: set[str] = set()  # being deleted or deleted; not repeated until cancelled
        nodes.add_handler(add=self._node_changed, update=self._node_updated, delete=self._node_gone)
        pods.add_handler(add=self._pod_changed, update=self._pod_updated, delete=self._pod_gone)

    async def run(self) -> None:
        await run_worker(self._queue, self._delete, (self._nodes, self._pods), _WORKERS)

    # ---- changes ----

    def _node_updated(self, old: Object, new: Object) -> None:
        if _no_execute(old) != _no_execute(new):
            self._node_changed(new)

    def _node_changed(self, node: Object) -> None:
        name, taints = node["metadata"]["name"], _no_execute(node)
        if taints:
            self._tainted[name] = taints
        elif self._tainted.pop(name, None) is None:
            return
        for pod in self._pods.by_index(BY_NODE, name):
            if taints:
                self._process_pod(pod, taints)
            else:
                self._cancel(object_key(pod))

    def _node_gone(self, node: Object) -> None:
        self._tainted.pop(node["metadata"]["name"], None)

    def _pod_updated(self, old: Object, new: Object) -> None:
        before, after = old["spec"], new["spec"]
        if any(before.get(field) != after.get(field) for field in ("tolerations", "nodeName")):
            self._pod_changed(new)

    def _pod_changed(self, pod: Object) -> None:
        taints = self._tainted.get(pod["spec"].get("nodeName", ""))
        if taints:
            self._process_pod(pod, taints)

    def _pod_gone(self, pod: Object) -> None:
        self._cancel(object_key(pod))

    # ---- evictions ----

    def _process_pod(self, pod: Object, taints: list[Object]) -> None:
        key = object_key(pod)
        seconds = tolerated_seconds(taints, pod["spec"].get("tolerations") or ())
        if not seconds:
            self._cancel(key)
            if seconds is not None:
                self._evict(key)
            return
        now = self._clock.monotonic()
        since, planned = now, self._evictions.get(key)
        if planned is not None:
            since = planned.since
            if since + seconds < now + seconds:
                return  # an earlier deadline stays
            self._cancel(key)
        if key not in self._evicted:
            self._evictions[key] = _Eviction(
                since, self._clock.call_later(seconds, self._evict, key)
            )

    def _evict(self, key: str) -> None:
        self._evictions.pop(key, None)
        if key not in self._evicted:
            self._evicted.add(key)
            self._queue.add(key)

    def _cancel(self, key: str) -> None:
        self._evicted.discard(key)
        planned = self._evictions.pop(key, None)
        if planned is not None:
            planned.timer.cancel()
            self._record_event(key, f"Cancelling deletion of Pod {key}")

    async def _delete(self, key: str) -> None:
        namespace, name = split_key(key)
        self._record_event(key, f"Marking for deletion Pod {key}")
        try:
            pod = self._pods.by_key(key)
            if pod is not None:
                await self._disruption.mark(
                    pod,
                    "DeletionByTaintManager",
                    "Taint manager: deleting due to NoExecute taint",
                )
            await self._client.delete(PODS, namespace, name)
        except (ApiError, OSError) as problem:
            if is_not_found(problem):
                return
            if self._queue.failures(key) < _TRIES:
                raise
            self._evicted.discard(key)

    def _record_event(self, key: str, text: str) -> None:
        namespace, name = split_key(key)
        about = {"kind": "Pod", "name": name, "namespace": namespace}
        self._events.event(about, NORMAL, "TaintManagerEviction", text)
