"""VolumeRestrictions: some cloud disks can be used by only one pod of a node."""

from __future__ import annotations

import numpy as np

from transom.machinery.objects import Object
from transom.scheduler.arrays import Mask, Rows
from transom.scheduler.framework import (
    BatchFilterPlugin,
    CycleState,
    Handle,
    NodeStatuses,
    all_rows,
    unschedulable,
)
from transom.scheduler.pods import PodInfo
from transom.scheduler.snapshot import NodeInfo

ERR_REASON_DISK_CONFLICT = "node(s) had no available disk"
_REJECTED = unschedulable(ERR_REASON_DISK_CONFLICT)


class VolumeRestrictions(BatchFilterPlugin):
    name = "VolumeRestrictions"

    def __init__(self, args: Object, handle: Handle) -> None:
        self._snapshot = handle.snapshot

    def filter_nodes(self, state: CycleState, pod: PodInfo, rows: Rows) -> Mask | None:
        disks = [v for v in pod.volumes if any(kind in v for kind in _CONFLICTS)]
        if not disks:
            return None
        return np.array(
            [not _in_use(disks, self._snapshot.at(row)) for row in rows.tolist()], np.bool_
        )

    def filter_statuses(self, state: CycleState, pod: PodInfo, rows: Rows) -> NodeStatuses:
        return all_rows(_REJECTED, rows)


def _in_use(disks: list[Object], node: NodeInfo) -> bool:
    return any(
        is_volume_conflict(disk, other)
        for pod in node.disks.values()
        for other in pod.volumes
        for disk in disks
    )


def _both_read(a: Object, b: Object) -> bool:
    return bool(a.get("readOnly") and b.get("readOnly"))


def _same_gce(a: Object, b: Object) -> bool:
    return a.get("pdName") == b.get("pdName") and not _both_read(a, b)


def _same_ebs(a: Object, b: Object) -> bool:
    return a.get("volumeID") == b.get("volumeID")


def _same_iscsi(a: Object, b: Object) -> bool:
    return a.get("iqn") == b.get("iqn") and not _both_read(a, b)


def _same_rbd(a: Object, b: Object) -> bool:
    monitors = set(a.get("monitors") or ()) & set(b.get("monitors") or ())
    same = a.get("pool") == b.get("pool") and a.get("image") == b.get("image")
    return bool(monitors) and same and not _both_read(a, b)


_CONFLICTS = {
    "gcePersistentDisk": _same_gce,
    "awsElasticBlockStore": _same_ebs,
    "iscsi": _same_iscsi,
    "rbd": _same_rbd,
}


def is_volume_conflict(a: Object, b: Object) -> bool:
    return any(
        kind in a and kind in b and same(a[kind], b[kind]) for kind, same in _CONFLICTS.items()
    )
