"""Common parts of the plugins that limit the number of volumes a node can have attached."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable
from typing import Generic, TypeVar

from transom.machinery.objects import Object
from transom.scheduler.arrays import Mask, Rows, np
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

ERR_REASON_MAX_VOLUME_COUNT_EXCEEDED = "node(s) exceed max volume count"
_REJECTED = unschedulable(ERR_REASON_MAX_VOLUME_COUNT_EXCEEDED)

Attached = TypeVar("Attached", bound=Collection[str])


class VolumeLimits(BatchFilterPlugin, Generic[Attached]):
    """`Attached` is how a plugin keeps the volumes that count."""

    def __init__(self, args: Object, handle: Handle) -> None:
        self._snapshot = handle.snapshot
        self._volumes = handle.volumes

    def filter_nodes(self, state: CycleState, pod: PodInfo, rows: Rows) -> Mask | None:
        if not pod.pod["spec"].get("volumes"):
            return None
        new = self._attached(pod.volumes, pod.namespace, pod.name)
        if not new:
            return None
        return np.array(
            [self._has_room(self._snapshot.at(row), new) for row in rows.tolist()], np.bool_
        )

    def filter_statuses(self, state: CycleState, pod: PodInfo, rows: Rows) -> NodeStatuses:
        return all_rows(_REJECTED, rows)

    @abstractmethod
    def _attached(self, pod_volumes: Iterable[Object], namespace: str, pod_name: str) -> Attached:
        """The volumes of a pod that count."""

    @abstractmethod
    def _has_room(self, node: NodeInfo, new: Attached) -> bool:
        """Whether the node can have these volumes attached too."""
