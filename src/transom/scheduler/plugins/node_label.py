"""NodeLabel: nodes must, or should rather, have some labels and lack others. Off unless a configuration turns it on."""

from __future__ import annotations

import numpy as np

from transom.machinery.objects import Object
from transom.scheduler.arrays import Mask, Rows
from transom.scheduler.framework import MAX_SCORE, ConfigError, Cycle, Handle, Score, Verdict, Verdicts, check_args, everywhere

_VIOLATED = Verdict(("node(s) didn't have the requested labels",), final=True)
_ARGS = ("presentLabels", "absentLabels", "presentLabelsPreference", "absentLabelsPreference")


class NodeLabel:
    name = "NodeLabel"
    static = True

    def __init__(self, args: Object, handle: Handle) -> None:
        check_args(args, _ARGS, self.name)
        self._present, self._absent, self._liked, self._disliked = (list(args.get(name) or ()) for name in _ARGS)
        for present, absent in ((self._present, self._absent), (self._liked, self._disliked)):
            for label in absent:
                if label in present:
                    raise ConfigError(
                        f'initializing plugin "{self.name}": detecting at least one label (e.g., "{label}") that exist in '
                        f"both the present([{' '.join(present)}]) and absent([{' '.join(absent)}]) label list"
                    )

    def filter(self, cycle: Cycle, rows: Rows) -> Mask | None:
        out = np.ones(len(rows), np.bool_)
        for label in self._present:
            out &= cycle.snapshot.labels.codes(label)[rows] >= 0
        for label in self._absent:
            out &= cycle.snapshot.labels.codes(label)[rows] < 0
        return out

    def verdicts(self, cycle: Cycle, rows: Rows) -> Verdicts:
        return everywhere(_VIOLATED, rows)

    def score(self, cycle: Cycle, rows: Rows) -> Score:
        asked = len(self._liked) + len(self._disliked)
        if not asked:
            return 0
        total = np.zeros(len(rows), np.int64)
        for label in self._liked:
            total += cycle.snapshot.labels.codes(label)[rows] >= 0
        for label in self._disliked:
            total += cycle.snapshot.labels.codes(label)[rows] < 0
        return total * MAX_SCORE // asked
