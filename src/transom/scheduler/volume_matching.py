"""Finds volumes for claims with delayed binding: the smallest suitable volume, for all nodes at
once.
"""

from __future__ import annotations

from transom.client.store import object_key
from transom.machinery import quantity, selectors
from transom.machinery.objects import Object
from transom.scheduler.arrays import Mask, Rows, np
from transom.scheduler.errors import SchedulingError
from transom.scheduler.labels import any_term, node_terms
from transom.scheduler.snapshot import Snapshot
from transom.scheduler.volumes import (
    SELECTED_NODE,
    VolumeCache,
    is_volume_bound_to_claim,
    requested_storage,
    storage_class_name,
)

_NO_PROVISIONER = ("", "kubernetes.io/no-provisioner")


def nodes_of_volume(volume: Object, snapshot: Snapshot, rows: Rows) -> Mask:
    """The nodes with access to a volume. As in Kubernetes, fields in its node affinity are ignored."""
    required = (volume["spec"].get("nodeAffinity") or {}).get("required")
    if required is None:
        return np.ones(len(rows), np.bool_)
    out = np.zeros(len(rows), np.bool_)
    for term in required.get("nodeSelectorTerms") or ():
        if term.get("matchExpressions"):
            out |= any_term(
                node_terms([{"matchExpressions": term["matchExpressions"]}]), snapshot.labels, rows
            )
        elif term.get("matchFields"):
            return np.ones(len(rows), np.bool_)
    return out


class MatchedVolumes:
    """For each row, whether all claims have a volume there, and which."""

    def __init__(self, rows: int) -> None:
        self.satisfied: Mask = np.ones(rows, np.bool_)
        self._picks: list[tuple[Object, list[Object | None]]] = []

    def add(self, claim: Object, picks: list[Object | None]) -> None:
        self._picks.append((claim, picks))

    def chosen(self, at: int) -> list[tuple[Object, Object | None]]:
        """The claims and their volumes at a position; None: a volume is to be provisioned."""
        return [(claim, picks[at]) for claim, picks in self._picks]


class VolumeMatcher:
    def __init__(self, volumes: VolumeCache, snapshot: Snapshot) -> None:
        self._volumes = volumes
        self._snapshot = snapshot

    def find(self, claims: list[Object], rows: Rows) -> MatchedVolumes:
        found = MatchedVolumes(len(rows))
        taken: dict[str, Mask] = {}
        for claim in sorted(claims, key=requested_storage):
            selected = (claim["metadata"].get("annotations") or {}).get(SELECTED_NODE)
            picks: list[Object | None] = [None] * len(rows)
            open_ = np.ones(len(rows), np.bool_)
            if selected is not None:
                info = self._snapshot.nodes.get(selected)
                found.satisfied &= rows == (info.row if info is not None else -1)
            else:
                self._pick(claim, rows, picks, open_, taken)
            found.add(claim, picks)
            if open_.any():
                found.satisfied &= ~open_ | self._provisionable(claim, rows)
        return found

    def _pick(
        self,
        claim: Object,
        rows: Rows,
        picks: list[Object | None],
        open_: Mask,
        taken: dict[str, Mask],
    ) -> None:
        """Choose volumes; `open_` marks the rows without one."""
        for volume in self._candidates(claim):
            if not open_.any():
                return
            name = object_key(volume)
            here = open_ & nodes_of_volume(volume, self._snapshot, rows)
            if name in taken:
                here &= ~taken[name]
            if not here.any():
                continue
            taken[name] = taken.get(name, np.zeros(len(rows), np.bool_)) | here
            for at in np.flatnonzero(here).tolist():
                picks[at] = volume
            open_ &= ~here

    def _candidates(self, claim: Object) -> list[Object]:
        """Suitable volumes, smallest first; only the volume that is bound to the claim, if there is
        one.
        """
        wanted, size = claim["spec"], requested_storage(claim)
        selector = selectors.owner_selector(claim) if wanted.get("selector") is not None else None
        out: list[tuple[quantity.Quantity, Object]] = []
        for volume in sorted(self._volumes.volumes.all(), key=object_key):
            spec = volume["spec"]
            kept = is_volume_bound_to_claim(volume, claim)
            capacity = quantity.parse_quantity((spec.get("capacity") or {}).get("storage", "0"))
            if (
                (spec.get("claimRef") is not None and not kept)
                or storage_class_name(volume) != storage_class_name(claim)
                or capacity < size
                or (spec.get("volumeMode") or "Filesystem")
                != (wanted.get("volumeMode") or "Filesystem")
                or volume["metadata"].get("deletionTimestamp")
            ):
                continue
            if kept:
                return [volume]
            if (volume.get("status") or {}).get("phase") != "Available":
                continue
            if selector is not None and not selector.matches(
                volume["metadata"].get("labels") or {}
            ):
                continue
            if not set(wanted.get("accessModes") or ()) <= set(spec.get("accessModes") or ()):
                continue
            out.append((capacity, volume))
        return [volume for _, volume in sorted(out, key=lambda pair: pair[0])]

    def _provisionable(self, claim: Object, rows: Rows) -> Mask:
        """The rows where a volume for the claim can be provisioned."""
        name = storage_class_name(claim)
        if not name:
            raise SchedulingError(f'no class for claim "{object_key(claim)}"')
        storage_class = self._volumes.storage_class(name)
        if storage_class is None:
            raise SchedulingError(f'failed to find storage class "{name}"')
        if storage_class.get("provisioner", "") in _NO_PROVISIONER:
            return np.zeros(len(rows), np.bool_)
        topologies = storage_class.get("allowedTopologies") or ()
        if not topologies:
            return np.ones(len(rows), np.bool_)
        out = np.zeros(len(rows), np.bool_)
        for term in topologies:
            expressions = [{**e, "operator": "In"} for e in term.get("matchLabelExpressions") or ()]
            out |= any_term(
                node_terms([{"matchExpressions": expressions}]), self._snapshot.labels, rows
            )
        return out
