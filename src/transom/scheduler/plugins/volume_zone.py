"""VolumeZone: volumes that say which zone they are in are reached from there only."""

from __future__ import annotations

import numpy as np

from transom.machinery.objects import Object
from transom.scheduler.arrays import Mask, Rows
from transom.scheduler.framework import Cycle, Handle, Verdict, Verdicts
from transom.scheduler.volumes import WAIT, claim_names, class_of, volumes
from transom.scheduler.zones import OLD_REGION, OLD_ZONE, REGION, ZONE

_ELSEWHERE = Verdict(("node(s) had no available volume zone",), final=True)
_LABELS = (OLD_ZONE, OLD_REGION, ZONE, REGION)
_SEPARATOR = "__"


class VolumeZone:
    name = "VolumeZone"

    def __init__(self, args: Object, handle: Handle) -> None:
        self._volumes = volumes(handle)

    def filter(self, cycle: Cycle, rows: Rows) -> Mask | None:
        if not cycle.pod.pod["spec"].get("volumes"):
            return None
        if not any(True for _ in claim_names(cycle.pod.volumes)):
            return None
        return np.array([self._verdict(cycle, row) is None for row in rows.tolist()], np.bool_)

    def verdicts(self, cycle: Cycle, rows: Rows) -> Verdicts:
        groups: dict[Verdict, list[int]] = {}
        for row in rows.tolist():
            verdict = self._verdict(cycle, row)
            assert verdict is not None
            groups.setdefault(verdict, []).append(row)
        return [(verdict, np.array(some, np.intp)) for verdict, some in groups.items()]

    def _verdict(self, cycle: Cycle, row: int) -> Verdict | None:
        labels = cycle.snapshot.at(row).labels
        zones = {key: labels[key] for key in _LABELS if key in labels}
        if not zones:
            return None
        for name in claim_names(cycle.pod.volumes):
            claim = self._volumes.claim(cycle.pod.namespace, name)
            if claim is None:
                return Verdict((f'persistentvolumeclaim "{name}" not found',), final=True)
            bound = claim["spec"].get("volumeName", "")
            if not bound:
                verdict = self._unbound(claim)
                if verdict is not None:
                    return verdict
                continue
            volume = self._volumes.volume(bound)
            if volume is None:
                return Verdict((f'persistentvolume "{bound}" not found',), final=True)
            for key, value in (volume["metadata"].get("labels") or {}).items():
                places = [place.strip() for place in value.split(_SEPARATOR)] if key in _LABELS else []
                if places and "" not in places and zones.get(key, "") not in places:
                    return _ELSEWHERE
        return None

    def _unbound(self, claim: Object) -> Verdict | None:
        name = class_of(claim)
        if not name:
            return Verdict(("PersistentVolumeClaim had no pv name and storageClass name",), final=True)
        found = self._volumes.storage_class(name)
        if found is None:
            return Verdict((f'storageclass.storage.k8s.io "{name}" not found',), final=True)
        if found.get("volumeBindingMode") == WAIT:
            return None
        return Verdict(("PersistentVolume had no name",), final=True)
