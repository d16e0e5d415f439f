"""Pods that preemption has promised a node to. Others of no higher priority must leave room for them there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from transom.scheduler.pods import PodInfo


class Nominator:
    def __init__(self, exists: Callable[[str], bool] = lambda _key: True) -> None:
        """`exists` says whether there still is a pod of this key."""
        self._exists = exists
        self._pods: dict[str, dict[str, PodInfo]] = {}  # node -> uid -> pod
        self._node: dict[str, str] = {}  # uid -> node

    def __bool__(self) -> bool:
        return bool(self._node)

    @property
    def nodes(self) -> Sequence[str]:
        return [*self._pods]

    def on(self, node: str) -> list[PodInfo]:
        return [*self._pods.get(node, {}).values()]

    def add(self, pod: PodInfo, node: str = "") -> None:
        """Promise a node; without one, that which the pod's status names."""
        self.delete(pod.uid)
        node = node or pod.nominated
        if node and self._exists(pod.key):
            self._node[pod.uid] = node
            self._pods.setdefault(node, {})[pod.uid] = pod

    def delete(self, uid: str) -> None:
        node = self._node.pop(uid, None)
        if node is not None:
            pods = self._pods[node]
            del pods[uid]
            if not pods:
                del self._pods[node]

    def update(self, old: PodInfo, new: PodInfo) -> None:
        """A promise that the status does not show yet outlives updates of the pod; one that it shows follows it."""
        kept = self._node.get(old.uid, "") if not old.nominated and not new.nominated else ""
        self.delete(old.uid)
        self.add(new, kept)
