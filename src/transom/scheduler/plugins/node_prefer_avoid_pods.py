"""NodePreferAvoidPods: a node may say in an annotation which controllers' pods it would rather not have."""

from __future__ import annotations

import json

import numpy as np

from transom.machinery.objects import Object, controller_of
from transom.scheduler.arrays import Rows
from transom.scheduler.framework import MAX_SCORE, Cycle, Handle, Score

_KINDS = ("ReplicationController", "ReplicaSet")


class NodePreferAvoidPods:
    name = "NodePreferAvoidPods"

    def __init__(self, args: Object, handle: Handle) -> None:
        pass

    def score(self, cycle: Cycle, rows: Rows) -> Score:
        avoiders = cycle.snapshot.avoiders
        controller = controller_of(cycle.pod.pod) if avoiders else None
        if controller is None or controller.get("kind") not in _KINDS:
            return MAX_SCORE
        avoiding = [row for row, text in avoiders.items() if _avoids(text, controller)]
        return np.where(np.isin(rows, avoiding), 0, MAX_SCORE)


def _avoids(annotation: str, controller: Object) -> bool:
    try:
        entries = json.loads(annotation).get("preferAvoidPods") or ()
        signatures = [entry["podSignature"]["podController"] for entry in entries]
        return any(s.get("kind") == controller["kind"] and s.get("uid") == controller.get("uid") for s in signatures)
    except (ValueError, KeyError, TypeError, AttributeError):
        return False  # what cannot be read avoids nothing
