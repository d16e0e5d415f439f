"""NodeResourcesFit: a node must have what the pod requests, beside what the pods on it have requested."""

from __future__ import annotations

from typing import cast

import numpy as np

from transom.machinery.objects import Object
from transom.machinery.resourcenames import is_extended
from transom.machinery.validation.names import is_qualified_name
from transom.scheduler.arrays import Ints, Mask, Rows, Some
from transom.scheduler.framework import ConfigError, Cycle, Handle, Verdict, Verdicts, check_args
from transom.scheduler.resources import Requests
from transom.scheduler.snapshot import Snapshot

_IGNORING = -1  # in place of a count: something was requested, though it is ignored


class NodeResourcesFit:
    name = "NodeResourcesFit"

    def __init__(self, args: Object, handle: Handle) -> None:
        check_args(args, ("ignoredResources", "ignoredResourceGroups"), self.name)
        self._ignored = frozenset(args.get("ignoredResources") or ())
        self._ignored_groups = frozenset(args.get("ignoredResourceGroups") or ())
        for where, entries in (("ignoredResources", self._ignored), ("ignoredResourceGroups", self._ignored_groups)):
            for i, entry in enumerate(sorted(entries)):
                problems = is_qualified_name(entry)
                if where == "ignoredResourceGroups" and "/" in entry:
                    problems = ["resource group name can't contain '/'", *problems]
                if problems:
                    raise ConfigError(f'initializing plugin "{self.name}": {where}[{i}]: Invalid value: "{entry}": '
                                      + "; ".join(problems))

    def pre_filter(self, cycle: Cycle) -> Verdict | None:
        return None

    def filter(self, cycle: Cycle, rows: Rows) -> Mask | None:
        snapshot, asked = cycle.snapshot, self._asked(cycle)
        fits = snapshot.usage.get((self.name, asked), lambda some: self._fits(snapshot, asked, some), slices=True)
        return cast(Mask, fits)[rows]

    def _asked(self, cycle: Cycle) -> Requests:
        """What the pod requests, without what is to be ignored."""
        asked = cycle.pod.shape.requests
        if not asked.scalars or not (self._ignored or self._ignored_groups):
            return asked
        return asked._replace(scalars=tuple((n, v) for n, v in asked.scalars if not self._ignores(n)), pods=_IGNORING)

    def _ignores(self, name: str) -> bool:
        return is_extended(name) and (name in self._ignored or name.split("/")[0] in self._ignored_groups)

    def _fits(self, snapshot: Snapshot, asked: Requests, rows: Some) -> Mask:
        fits: Mask = snapshot.used_pods[rows] < snapshot.alloc_pods[rows]
        for _, used, has, wanted in _compared(snapshot, asked):
            fits &= used[rows] + wanted <= has[rows]
        return fits

    def filter_row(self, cycle: Cycle, row: int) -> bool:
        snapshot = cycle.snapshot
        if snapshot.used_pods[row] >= snapshot.alloc_pods[row]:
            return False
        return all(used[row] + wanted <= has[row] for _, used, has, wanted in _compared(snapshot, self._asked(cycle)))

    def verdicts(self, cycle: Cycle, rows: Rows) -> Verdicts:
        snapshot = cycle.snapshot
        missing = [("Too many pods", snapshot.used_pods[rows] >= snapshot.alloc_pods[rows])]
        for name, used, has, wanted in _compared(snapshot, self._asked(cycle)):
            missing.append((f"Insufficient {name}", used[rows] + wanted > has[rows]))
        # Nodes that lack the same things have the same pattern of bits.
        patterns = np.zeros(len(rows), np.int64)
        for bit, (_, lacks) in enumerate(missing):
            patterns |= lacks.astype(np.int64) << bit
        out: Verdicts = []
        for pattern in np.unique(patterns).tolist():
            reasons = tuple(reason for bit, (reason, _) in enumerate(missing) if pattern >> bit & 1)
            out.append((Verdict(reasons), rows[patterns == pattern]))
        return out


def _compared(snapshot: Snapshot, asked: Requests) -> list[tuple[str, Ints, Ints, int]]:
    """What has to be compared: name, used, allocatable, wanted. A pod that requests nothing is not held against a node
    that is overcommitted already; one that requests anything is, in every resource that all nodes have."""
    if asked.nothing and asked.pods != _IGNORING:
        return []
    out = [
        ("cpu", snapshot.used_cpu, snapshot.alloc_cpu, asked.cpu),
        ("memory", snapshot.used_memory, snapshot.alloc_memory, asked.memory),
        ("ephemeral-storage", snapshot.used_ephemeral, snapshot.alloc_ephemeral, asked.ephemeral),
    ]
    for name, wanted in asked.scalars:
        has, used = snapshot.scalar(name)
        out.append((name, used, has, wanted))
    return out
