"""Updates the snapshot, the cache and the queue when objects of the cluster change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from transom.client.informer import Informer, InformerFactory
from transom.client.resources import (
    CSI_NODES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    SERVICES,
    STORAGE_CLASSES,
)
from transom.client.store import object_key
from transom.machinery.objects import Object
from transom.scheduler.cache import SchedulerCache
from transom.scheduler.labels import parsed_required_terms, preferred_terms
from transom.scheduler.pods import PodInfo, is_large_spec
from transom.scheduler.queue import UNKNOWN_EVENT, SchedulingQueue
from transom.scheduler.resource_claims import ResourceClaimCache
from transom.scheduler.runtime import Framework
from transom.scheduler.snapshot import Snapshot
from transom.scheduler.volumes import WAIT_FOR_FIRST_CONSUMER


class EventHandlers:
    def __init__(
        self,
        snapshot: Snapshot,
        cache: SchedulerCache,
        queue: SchedulingQueue,
        profiles: Mapping[str, Framework],
        claims: ResourceClaimCache | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._cache = cache
        self._queue = queue
        self._profiles = profiles
        self._claims = claims
        self._prepared: PodInfo | None = None

    def register(self, pods: Informer, informers: InformerFactory) -> None:
        pods.add_preparation(self.prepare_pod)
        pods.add_handler(add=self.pod_added, update=self.pod_updated, delete=self.pod_deleted)
        informers(NODES).add_handler(
            add=self.node_added, update=self.node_updated, delete=self.node_deleted
        )

        def move_with_volumes(event: str) -> Callable[..., None]:
            return lambda *_objects: self._queue.move_if(lambda pod: bool(pod.volumes), event)

        for resource, kind in (
            (CSI_NODES, "CSINode"),
            (PERSISTENT_VOLUMES, "Pv"),
            (PERSISTENT_VOLUME_CLAIMS, "Pvc"),
        ):
            informers(resource).add_handler(
                add=move_with_volumes(f"{kind}Add"), update=move_with_volumes(f"{kind}Update")
            )
        if not self._queue.uses_hints:
            self._handle(informers(SERVICES), "Service", lambda _pod: True)
        informers(STORAGE_CLASSES).add_handler(add=self.storage_class_added)
        if self._claims is not None:
            for informer, kind in (
                (self._claims.claims, "ResourceClaim"),
                (self._claims.slices, "ResourceSlice"),
                (self._claims.classes, "DeviceClass"),
            ):
                self._handle(informer, f"resource.k8s.io/{kind}", _may_use_devices)
            if self._claims.rules is not None:
                self._handle(
                    self._claims.rules, "resource.k8s.io/DeviceTaintRule", _may_use_devices
                )

    def _handle(self, informer: Informer, kind: str, concerns: Callable[[PodInfo], bool]) -> None:
        """Retries the pods that an added, changed or deleted object may help."""

        def move(event: str) -> Callable[..., None]:
            return lambda *_objects: self._queue.move_if(concerns, event)

        informer.add_handler(
            add=move(f"{kind}Add"), update=move(f"{kind}Update"), delete=move(f"{kind}Delete")
        )

    # ---- pods ----

    def prepare_pod(self, pod: Object) -> Awaitable[None] | None:
        """Parses a large specification in a thread: the handlers find its shape in the cache."""
        self._prepared = None
        return self._prepare(pod) if is_large_spec(pod["spec"]) else None

    async def _prepare(self, pod: Object) -> None:
        self._prepared = await asyncio.to_thread(_parse, pod)

    def pod_added(self, pod: Object) -> None:
        if pod["spec"].get("nodeName"):
            self._queue.assigned_pod_added(self._cache.set_pod(pod), "AssignedPodAdd")
        elif self._is_responsible_for(pod):
            self._queue.add(PodInfo(pod))

    def pod_updated(self, old: Object, new: Object) -> None:
        if old["metadata"].get("uid") != new["metadata"].get("uid"):
            self.pod_deleted(old)
            self.pod_added(new)
            return
        if new["spec"].get("nodeName"):
            if not old["spec"].get("nodeName") and self._is_responsible_for(old):
                self._queue.delete(object_key(old), old["metadata"]["uid"])
            self._queue.assigned_pod_added(self._cache.set_pod(new), "AssignedPodUpdate")
        elif self._is_responsible_for(new) and not _same_resource_version(old, new):
            pod = PodInfo(new)
            if not self._skip_pod_update(pod):
                self._queue.update(PodInfo(old), pod)

    def pod_deleted(self, pod: Object) -> None:
        if pod["spec"].get("nodeName"):
            self._cache.remove_pod(pod["metadata"]["uid"])
            self._queue.move_all_to_active_or_backoff("AssignedPodDelete")
        elif self._is_responsible_for(pod):
            self._queue.delete(object_key(pod), pod["metadata"]["uid"])
            self._profiles[pod["spec"]["schedulerName"]].reject_waiting_pod(pod["metadata"]["uid"])
        # A pod may be deleted after it was assumed and before it is bound.
        if self._cache.is_assumed_pod(pod["metadata"]["uid"]):
            self._cache.remove_pod(pod["metadata"]["uid"])
            self._queue.move_all_to_active_or_backoff("AssignedPodDelete")

    def _is_responsible_for(self, pod: Object) -> bool:
        return pod["spec"].get("schedulerName", "") in self._profiles

    def _skip_pod_update(self, pod: PodInfo) -> bool:
        """Whether the pod is assumed already and the update cannot change where it is scheduled."""
        if not self._cache.is_assumed_pod(pod.uid):
            return False
        assumed = self._cache.get_pod(pod.uid)
        return assumed is not None and _relevant_parts(assumed.pod) == _relevant_parts(pod.pod)

    # ---- nodes and storage ----

    def node_added(self, node: Object) -> None:
        self._snapshot.set_node(node)
        self._queue.move_all_to_active_or_backoff("NodeAdd")

    def node_updated(self, old: Object, new: Object) -> None:
        self._snapshot.set_node(new)
        idle = not self._queue.unschedulable and not self._queue.uses_hints
        event = _node_change(old, new)
        if idle or event:
            self._queue.move_all_to_active_or_backoff(event or UNKNOWN_EVENT)

    def node_deleted(self, node: Object) -> None:
        self._snapshot.remove_node(node["metadata"]["name"])

    def storage_class_added(self, storage_class: Object) -> None:
        if storage_class.get("volumeBindingMode") == WAIT_FOR_FIRST_CONSUMER:
            self._queue.move_if(lambda pod: bool(pod.volumes), "StorageClassAdd")


def _parse(pod: Object) -> PodInfo:
    info = PodInfo(pod)
    parsed_required_terms(info.shape)
    preferred_terms(info.shape)
    return info


def _may_use_devices(pod: PodInfo) -> bool:
    """Whether the pod has claims, or requests resources that devices may provide."""
    return bool(pod.pod["spec"].get("resourceClaims") or pod.shape.requests.scalars)


def _same_resource_version(old: Object, new: Object) -> bool:
    return bool(old["metadata"].get("resourceVersion") == new["metadata"].get("resourceVersion"))


def _relevant_parts(pod: Object) -> tuple[Object, Object, Object]:
    dropped = ("resourceVersion", "annotations", "managedFields", "finalizers")
    meta = {k: v for k, v in pod["metadata"].items() if k not in dropped}
    spec = {k: v for k, v in pod["spec"].items() if k != "nodeName"}
    written = ("conditions", "nominatedNodeName", "extendedResourceClaimStatus")
    status = {k: v for k, v in (pod.get("status") or {}).items() if k not in written}
    return meta, spec, status


def _node_change(old: Object, new: Object) -> str:
    """The change of a node that can make unschedulable pods fit on it, "" if there is none."""
    spec_before, spec = old.get("spec") or {}, new.get("spec") or {}
    status_before, status = old.get("status") or {}, new.get("status") or {}
    if spec_before.get("unschedulable") and not spec.get("unschedulable"):
        return "NodeSpecUnschedulableChange"
    if status_before.get("allocatable") != status.get("allocatable"):
        return "NodeAllocatableChange"
    if old["metadata"].get("labels") != new["metadata"].get("labels"):
        return "NodeLabelChange"
    if spec_before.get("taints") != spec.get("taints"):
        return "NodeTaintChange"
    return "NodeConditionChange" if _conditions(status_before) != _conditions(status) else ""


def _conditions(status: Object) -> dict[str, str]:
    return {c.get("type", ""): c.get("status", "") for c in status.get("conditions") or ()}
