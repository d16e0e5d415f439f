"""What happens in the cluster, and whom in the queue it may help."""

from __future__ import annotations

from collections.abc import Callable

from transom.client.informer import Informer, InformerFactory
from transom.client.resources import (
    CSI_NODES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    SERVICES,
    STORAGE_CLASSES,
)
from transom.client.store import key_of
from transom.machinery.objects import Object
from transom.scheduler.cache import PodCache
from transom.scheduler.pods import PodInfo
from transom.scheduler.queue import SchedulingQueue
from transom.scheduler.snapshot import Snapshot
from transom.scheduler.volumes import WAIT


class Handlers:
    """`ours` says whether a scheduler name is one of ours."""

    def __init__(
        self, snapshot: Snapshot, cache: PodCache, queue: SchedulingQueue, ours: Callable[[str], bool]
    ) -> None:
        self._snapshot = snapshot
        self._cache = cache
        self._queue = queue
        self._ours = ours

    def register(self, pods: Informer, informers: InformerFactory) -> None:
        pods.add_handler(add=self.pod_added, update=self.pod_updated, delete=self.pod_deleted)
        informers(NODES).add_handler(add=self.node_added, update=self.node_updated, delete=self.node_deleted)

        def anything(*_objects: Object) -> None:
            self._queue.move_all()

        informers(CSI_NODES).add_handler(add=anything, update=anything)
        informers(PERSISTENT_VOLUMES).add_handler(add=anything, update=anything)
        informers(PERSISTENT_VOLUME_CLAIMS).add_handler(add=anything, update=anything)
        informers(SERVICES).add_handler(add=anything, update=anything, delete=anything)
        informers(STORAGE_CLASSES).add_handler(add=self.storage_class_added)

    # ---- pods ----------------------------------------------------------------------------------------------------

    def pod_added(self, pod: Object) -> None:
        if pod["spec"].get("nodeName"):
            self._queue.assigned(self._cache.set(pod))
        elif self._is_ours(pod):
            self._queue.add(PodInfo(pod))

    def pod_updated(self, old: Object, new: Object) -> None:
        if old["metadata"].get("uid") != new["metadata"].get("uid"):
            self.pod_deleted(old)
            self.pod_added(new)
            return
        if new["spec"].get("nodeName"):
            if not old["spec"].get("nodeName") and self._is_ours(old):
                self._queue.delete(key_of(old), old["metadata"]["uid"])
            self._queue.assigned(self._cache.set(new))
        elif self._is_ours(new) and old["metadata"].get("resourceVersion") != new["metadata"].get("resourceVersion"):
            info = PodInfo(new)
            if not self._only_ours_changed(info):
                self._queue.update(PodInfo(old), info)

    def pod_deleted(self, pod: Object) -> None:
        if pod["spec"].get("nodeName"):
            self._cache.delete(pod["metadata"]["uid"])
            self._queue.move_all()
        elif self._is_ours(pod):
            self._queue.delete(key_of(pod), pod["metadata"]["uid"])
        # A pod may end between decision and binding; then it is gone from its node too.
        if self._cache.is_assumed(pod["metadata"]["uid"]):
            self._cache.delete(pod["metadata"]["uid"])
            self._queue.move_all()

    def _is_ours(self, pod: Object) -> bool:
        return self._ours(pod["spec"].get("schedulerName", ""))

    def _only_ours_changed(self, info: PodInfo) -> bool:
        """A pod that has been decided on, changed in nothing that would have led to another decision."""
        if not self._cache.is_assumed(info.uid):
            return False
        known = self._cache.get(info.uid)
        return known is not None and _decided(known.pod) == _decided(info.pod)

    # ---- nodes and storage ---------------------------------------------------------------------------------------

    def node_added(self, node: Object) -> None:
        self._snapshot.set_node(node)
        self._queue.move_all()

    def node_updated(self, old: Object, new: Object) -> None:
        self._snapshot.set_node(new)
        if not self._queue.unschedulable or _may_help(old, new):
            self._queue.move_all()

    def node_deleted(self, node: Object) -> None:
        self._snapshot.remove_node(node["metadata"]["name"])

    def storage_class_added(self, storage_class: Object) -> None:
        if storage_class.get("volumeBindingMode") == WAIT:
            self._queue.move_all()


def _decided(pod: Object) -> tuple[Object, Object, Object]:
    dropped = ("resourceVersion", "annotations", "managedFields", "finalizers")
    meta = {k: v for k, v in pod["metadata"].items() if k not in dropped}
    spec = {k: v for k, v in pod["spec"].items() if k != "nodeName"}
    status = {k: v for k, v in (pod.get("status") or {}).items() if k != "conditions"}
    return meta, spec, status


def _may_help(old: Object, new: Object) -> bool:
    """Whether a change of a node can make pods fit there."""
    spec_before, spec = old.get("spec") or {}, new.get("spec") or {}
    status_before, status = old.get("status") or {}, new.get("status") or {}
    if spec_before.get("unschedulable") and not spec.get("unschedulable"):
        return True
    return (
        status_before.get("allocatable") != status.get("allocatable")
        or old["metadata"].get("labels") != new["metadata"].get("labels")
        or spec_before.get("taints") != spec.get("taints")
        or _conditions(status_before) != _conditions(status)
    )


def _conditions(status: Object) -> dict[str, str]:
    return {c.get("type", ""): c.get("status", "") for c in status.get("conditions") or ()}
