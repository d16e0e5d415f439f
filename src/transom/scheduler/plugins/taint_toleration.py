"""TaintToleration: no pods on nodes with taints they do not tolerate, and rather not on those with soft ones.

Nodes with the same taints share a number; a pod is held against each set of taints once, not against each node.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from transom.machinery.objects import Object
from transom.scheduler.arrays import Ints, Mask, Rows
from transom.scheduler.framework import Cycle, Handle, Score, Verdict, Verdicts, scaled
from transom.scheduler.snapshot import Taint

_HARD = ("NoSchedule", "NoExecute")
_SOFT = "PreferNoSchedule"


def tolerates(toleration: Object, taint: Taint) -> bool:
    key, value, effect = taint
    if toleration.get("effect") and toleration["effect"] != effect:
        return False
    if toleration.get("key") and toleration["key"] != key:
        return False
    operator = toleration.get("operator") or "Equal"
    return operator == "Exists" or (operator == "Equal" and toleration.get("value", "") == value)


def tolerated(taint: Taint, tolerations: Sequence[Object]) -> bool:
    return any(tolerates(toleration, taint) for toleration in tolerations)


def first_untolerated(taints: Sequence[Taint], tolerations: Sequence[Object]) -> Taint | None:
    """The first hard taint that is not tolerated."""
    return next((t for t in taints if t[2] in _HARD and not tolerated(t, tolerations)), None)


class TaintToleration:
    name = "TaintToleration"
    static = True

    def __init__(self, args: Object, handle: Handle) -> None:
        pass

    def filter(self, cycle: Cycle, rows: Rows) -> Mask | None:
        sets = cycle.snapshot.taint_sets
        if len(sets) == 1:
            return None
        tolerations = cycle.pod.shape.tolerations
        free = np.array([first_untolerated(taints, tolerations) is None for taints in sets], np.bool_)
        return free[cycle.snapshot.taints[rows]]

    def verdicts(self, cycle: Cycle, rows: Rows) -> Verdicts:
        codes = cycle.snapshot.taints[rows]
        out: Verdicts = []
        for code in np.unique(codes):
            taint = first_untolerated(cycle.snapshot.taint_sets[code], cycle.pod.shape.tolerations)
            assert taint is not None
            reason = f"node(s) had taint {{{taint[0]}: {taint[1]}}}, that the pod didn't tolerate"
            out.append((Verdict((reason,), final=True), rows[codes == code]))
        return out

    def pre_score(self, cycle: Cycle, rows: Rows) -> None:
        soft = [t for t in cycle.pod.shape.tolerations if not t.get("effect") or t["effect"] == _SOFT]
        cycle.state[self.name] = soft

    def score(self, cycle: Cycle, rows: Rows) -> Score:
        """How many soft taints the pod does not tolerate."""
        sets = cycle.snapshot.taint_sets
        if not any(t[2] == _SOFT for taints in sets for t in taints):
            return 0
        tolerations = cycle.state[self.name]
        counts: Ints = np.array(
            [sum(t[2] == _SOFT and not tolerated(t, tolerations) for t in taints) for taints in sets], np.int64
        )
        return counts[cycle.snapshot.taints[rows]] if counts.any() else 0

    def normalize(self, cycle: Cycle, rows: Rows, scores: Score) -> Score:
        return scaled(scores, reverse=True)
