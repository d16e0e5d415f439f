"""NodePreferAvoidPods: an annotation of a node lists controllers whose pods should avoid it."""

from __future__ import annotations

import json

from transom.machinery.objects import Object, controller_of
from transom.scheduler.arrays import Rows, np
from transom.scheduler.framework import MAX_NODE_SCORE, BatchScorePlugin, CycleState, Handle, Score
from transom.scheduler.pods import PodInfo

_KINDS = ("ReplicationController", "ReplicaSet")


class NodePreferAvoidPods(BatchScorePlugin):
    name = "NodePreferAvoidPods"

    def __init__(self, args: Object, handle: Handle) -> None:
        self._snapshot = handle.snapshot

    def score_nodes(self, state: CycleState, pod: PodInfo, rows: Rows) -> Score:
        avoiders = self._snapshot.avoiders
        controller = controller_of(pod.pod) if avoiders else None
        if controller is None or controller.get("kind") not in _KINDS:
            return MAX_NODE_SCORE
        avoiding = [row for row, text in avoiders.items() if _avoids(text, controller)]
        return np.where(np.isin(rows, avoiding), 0, MAX_NODE_SCORE)


def _avoids(annotation: str, controller: Object) -> bool:
    try:
        entries = json.loads(annotation).get("preferAvoidPods") or ()
        signatures = [entry["podSignature"]["podController"] for entry in entries]
        return any(
            s.get("kind") == controller["kind"] and s.get("uid") == controller.get("uid")
            for s in signatures
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return False  # an invalid annotation has no effect
