"""NodeResourcesFit: the requests of the pod must fit beside those of the pods on the node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from transom.machinery.objects import Object
from transom.machinery.resourcenames import is_extended_resource_name
from transom.machinery.validation.names import is_qualified_name
from transom.scheduler.arrays import Ints, Mask, Rows, Some, np
from transom.scheduler.errors import SchedulerConfigError
from transom.scheduler.framework import (
    BatchFilterPlugin,
    CycleState,
    Handle,
    NodeStatuses,
    PreFilterPlugin,
    Status,
    check_args,
    unresolvable,
    unschedulable,
)
from transom.scheduler.pods import PodInfo
from transom.scheduler.resources import ResourceRequests
from transom.scheduler.snapshot import Snapshot

ERR_REASON_INSUFFICIENT = "Insufficient"
_MOST_REASONS = 60  # of one pod, each a bit of a pattern
_Compared = tuple[str, Ints, Ints, int]
_IGNORING = -1  # instead of a count: the pod requests ignored resources


class NodeResourcesFit(PreFilterPlugin, BatchFilterPlugin):
    name = "NodeResourcesFit"

    def __init__(self, args: Object, handle: Handle) -> None:
        check_args(args, ("ignoredResources", "ignoredResourceGroups"), self.name)
        self._snapshot = handle.snapshot
        self._rules = handle.rules
        self._claims = (
            handle.claims
            if handle.uses_claims and handle.features.enabled("DRAExtendedResource")
            else None
        )
        self._ignored = frozenset(args.get("ignoredResources") or ())
        self._ignored_groups = frozenset(args.get("ignoredResourceGroups") or ())
        for where, entries in (
            ("ignoredResources", self._ignored),
            ("ignoredResourceGroups", self._ignored_groups),
        ):
            for i, entry in enumerate(sorted(entries)):
                problems = is_qualified_name(entry)
                if where == "ignoredResourceGroups" and "/" in entry:
                    problems = ["resource group name can't contain '/'", *problems]
                if problems:
                    raise SchedulerConfigError(
                        f'initializing plugin "{self.name}": {where}[{i}]: Invalid value: "{entry}": '
                        + "; ".join(problems)
                    )

    def pre_filter(self, state: CycleState, pod: PodInfo) -> Status | None:
        return None

    def filter_nodes(self, state: CycleState, pod: PodInfo, rows: Rows) -> Mask | None:
        snapshot, requested = self._snapshot, self._requested(pod)
        if self._delegated(requested):  # depends on DeviceClasses, so it is not cached
            return self._fits(snapshot, requested, rows)
        fits = snapshot.usage.get(
            (self.name, requested), lambda some: self._fits(snapshot, requested, some), slices=True
        )
        return cast(Mask, fits)[rows]

    def _requested(self, pod: PodInfo) -> ResourceRequests:
        """The requests of the pod without ignored resources."""
        requested = pod.shape.requests
        if not requested.scalars or not (self._ignored or self._ignored_groups):
            return requested
        return requested._replace(
            scalars=tuple((n, v) for n, v in requested.scalars if not self._ignores(n)),
            pods=_IGNORING,
        )

    def _ignores(self, name: str) -> bool:
        return is_extended_resource_name(name) and (
            name in self._ignored or name.split("/")[0] in self._ignored_groups
        )

    def _fits(self, snapshot: Snapshot, requested: ResourceRequests, rows: Some) -> Mask:
        fits: Mask = snapshot.used_pods[rows] < snapshot.alloc_pods[rows]
        delegated = self._delegated(requested)
        for name, used, has, wanted in self._compared(requested):
            if not fits.any():
                break
            enough = used[rows] + wanted <= has[rows]
            fits &= enough | (has[rows] == 0) if name in delegated else enough
        return fits

    def _delegated(self, requested: ResourceRequests) -> frozenset[str]:
        """Resources that DeviceClasses provide on nodes that do not have them."""
        if self._claims is None or not requested.scalars:
            return frozenset()
        return frozenset(self._claims.classes_of_resources(name for name, _ in requested.scalars))

    def filter_node(self, state: CycleState, pod: PodInfo, row: int) -> bool:
        snapshot = self._snapshot
        if snapshot.used_pods[row] >= snapshot.alloc_pods[row]:
            return False
        requested = self._requested(pod)
        delegated = self._delegated(requested)
        return all(
            used[row] + wanted <= has[row] or (name in delegated and not has[row])
            for name, used, has, wanted in self._compared(requested)
        )

    def filter_statuses(self, state: CycleState, pod: PodInfo, rows: Rows) -> NodeStatuses:
        snapshot = self._snapshot
        missing = [
            (self._rules.too_many_pods, snapshot.used_pods[rows] >= snapshot.alloc_pods[rows])
        ]
        too_large = np.zeros(len(rows), np.int64)
        requested = self._requested(pod)
        delegated = self._delegated(requested)
        for name, used, has, wanted in self._compared(requested):
            lacks = used[rows] + wanted > has[rows]
            if name in delegated:
                lacks &= has[rows] > 0
            if not lacks.any():
                continue
            missing.append((f"{ERR_REASON_INSUFFICIENT} {name}", lacks))
            if self._rules.too_large_is_unresolvable:
                too_large |= lacks & (wanted > has[rows])
            if len(missing) == _MOST_REASONS:
                break
        missing.append(("", too_large.astype(np.bool_)))
        # Nodes that lack the same resources have the same bit pattern.
        patterns = np.zeros(len(rows), np.int64)
        for bit, (_, lacks) in enumerate(missing):
            patterns |= lacks.astype(np.int64) << bit
        out: NodeStatuses = []
        for pattern in np.unique(patterns).tolist():
            reasons = tuple(
                reason for bit, (reason, _) in enumerate(missing) if reason and pattern >> bit & 1
            )
            status = unresolvable if pattern >> (len(missing) - 1) & 1 else unschedulable
            out.append((status(*reasons), rows[patterns == pattern]))
        return out

    def _compared(self, requested: ResourceRequests) -> Iterator[_Compared]:
        found = _compared_resources(self._snapshot, requested)
        if self._rules.compares_requested_only:
            return (row for row in found if row[3])
        return found


def _compared_resources(snapshot: Snapshot, requested: ResourceRequests) -> Iterator[_Compared]:
    """The resources to compare: name, used, allocatable, wanted. A pod without requests fits on an
    overcommitted node; a pod with any request must fit in all basic resources.
    """
    if requested.nothing and requested.pods != _IGNORING:
        return
    yield "cpu", snapshot.used_cpu, snapshot.alloc_cpu, requested.cpu
    yield "memory", snapshot.used_memory, snapshot.alloc_memory, requested.memory
    yield (
        "ephemeral-storage",
        snapshot.used_ephemeral,
        snapshot.alloc_ephemeral,
        requested.ephemeral,
    )
    for name, wanted in requested.scalars:
        has, used = snapshot.scalar_amounts(name)
        yield name, used, has, wanted
