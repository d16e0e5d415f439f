"""VolumeZone: volumes with zone labels can be used only in their zone."""

from __future__ import annotations

from transom.machinery.objects import Object
from transom.scheduler.arrays import Mask, Rows, np
from transom.scheduler.framework import (
    BatchFilterPlugin,
    CycleState,
    Handle,
    NodeStatuses,
    Status,
    group_by_status,
    unresolvable,
)
from transom.scheduler.pods import PodInfo
from transom.scheduler.volumes import WAIT_FOR_FIRST_CONSUMER, claim_names, storage_class_name
from transom.scheduler.zones import OLD_REGION, OLD_ZONE, REGION, ZONE

ERR_REASON_CONFLICT = "node(s) had no available volume zone"
_CONFLICT = unresolvable(ERR_REASON_CONFLICT)
_LABELS = (OLD_ZONE, OLD_REGION, ZONE, REGION)
_SEPARATOR = "__"


class VolumeZone(BatchFilterPlugin):
    name = "VolumeZone"

    def __init__(self, args: Object, handle: Handle) -> None:
        self._snapshot = handle.snapshot
        self._volumes = handle.volumes

    def filter_nodes(self, state: CycleState, pod: PodInfo, rows: Rows) -> Mask | None:
        if not pod.pod["spec"].get("volumes"):
            return None
        if not any(True for _ in claim_names(pod.volumes, pod.name)):
            return None
        return np.array([self._status(pod, row) is None for row in rows.tolist()], np.bool_)

    def filter_statuses(self, state: CycleState, pod: PodInfo, rows: Rows) -> NodeStatuses:
        statuses = ((row, self._status(pod, row)) for row in rows.tolist())
        return group_by_status((row, status) for row, status in statuses if status is not None)

    def _status(self, pod: PodInfo, row: int) -> Status | None:
        labels = self._snapshot.at(row).labels
        zones = {key: labels[key] for key in _LABELS if key in labels}
        if not zones:
            return None
        for name in claim_names(pod.volumes, pod.name):
            claim = self._volumes.claim(pod.namespace, name)
            if claim is None:
                return unresolvable(f'persistentvolumeclaim "{name}" not found')
            bound = claim["spec"].get("volumeName", "")
            if not bound:
                status = self._unbound_status(claim)
                if status is not None:
                    return status
                continue
            volume = self._volumes.volume(bound)
            if volume is None:
                return unresolvable(f'persistentvolume "{bound}" not found')
            for key, value in (volume["metadata"].get("labels") or {}).items():
                places = (
                    [place.strip() for place in value.split(_SEPARATOR)] if key in _LABELS else []
                )
                if places and "" not in places and zones.get(key, "") not in places:
                    return _CONFLICT
        return None

    def _unbound_status(self, claim: Object) -> Status | None:
        name = storage_class_name(claim)
        if not name:
            return unresolvable("PersistentVolumeClaim had no pv name and storageClass name")
        found = self._volumes.storage_class(name)
        if found is None:
            return unresolvable(f'storageclass.storage.k8s.io "{name}" not found')
        if found.get("volumeBindingMode") == WAIT_FOR_FIRST_CONSUMER:
            return None
        return unresolvable("PersistentVolume had no name")
