"""VolumeRestrictions: some cloud disks can be used by only one pod of a node, and a
ReadWriteOncePod claim by only one pod of the cluster.
"""

from __future__ import annotations

from transom.machinery.objects import Object
from transom.scheduler.arrays import Mask, Rows, np
from transom.scheduler.framework import (
    BatchFilterPlugin,
    CycleState,
    Handle,
    NodeStatuses,
    PreFilterPlugin,
    StateKey,
    Status,
    all_rows,
    unresolvable,
    unschedulable,
)
from transom.scheduler.pods import PodInfo
from transom.scheduler.snapshot import NodeInfo
from transom.scheduler.volumes import claim_names

ERR_REASON_DISK_CONFLICT = "node(s) had no available disk"
_REJECTED = unschedulable(ERR_REASON_DISK_CONFLICT)


# The claims of the pod that no other pod may use.
_EXCLUSIVE = StateKey[frozenset[str]]("PreFilterVolumeRestrictions")


class VolumeRestrictions(PreFilterPlugin, BatchFilterPlugin):
    name = "VolumeRestrictions"

    def __init__(self, args: Object, handle: Handle) -> None:
        self._snapshot = handle.snapshot
        self._volumes = handle.volumes
        rules = handle.rules
        make = unschedulable if rules.exclusive_claim_helps else unresolvable
        self._in_use = make(rules.exclusive_claim)

    def pre_filter(self, state: CycleState, pod: PodInfo) -> Status | None:
        exclusive = set()
        for volume in pod.volumes:
            if "persistentVolumeClaim" not in volume:
                continue
            name = volume["persistentVolumeClaim"].get("claimName", "")
            claim = self._volumes.claim(pod.namespace, name)
            if claim is None:
                return unresolvable(f'persistentvolumeclaim "{name}" not found')
            if "ReadWriteOncePod" in (claim["spec"].get("accessModes") or ()):
                exclusive.add(name)
        state.write(_EXCLUSIVE, frozenset(exclusive))
        return None

    def _is_claim_in_use(self, state: CycleState, pod: PodInfo) -> bool:
        exclusive = state.get(_EXCLUSIVE)
        if not exclusive:
            return False
        return any(
            user.namespace == pod.namespace
            and not exclusive.isdisjoint(claim_names(user.volumes, user.name))
            for node in self._snapshot.nodes.values()
            for user in node.claims.values()
        )

    def filter_nodes(self, state: CycleState, pod: PodInfo, rows: Rows) -> Mask | None:
        if self._is_claim_in_use(state, pod):
            return np.zeros(len(rows), np.bool_)
        disks = [v for v in pod.volumes if any(kind in v for kind in _CONFLICTS)]
        if not disks:
            return None
        return np.array(
            [not _in_use(disks, self._snapshot.at(row)) for row in rows.tolist()], np.bool_
        )

    def filter_statuses(self, state: CycleState, pod: PodInfo, rows: Rows) -> NodeStatuses:
        if self._is_claim_in_use(state, pod):
            disks = [v for v in pod.volumes if any(kind in v for kind in _CONFLICTS)]
            taken = np.array(
                [_in_use(disks, self._snapshot.at(row)) for row in rows.tolist()], np.bool_
            )
            return all_rows(_REJECTED, rows[taken]) + all_rows(self._in_use, rows[~taken])
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
