"""Pods that are nominated to run on a node after preemption. Pods of no higher priority must leave
room for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from transom.scheduler.pods import PodInfo


class PodNominator:
    def __init__(self, exists: Callable[[str], bool] = lambda _key: True) -> None:
        """`exists` reports whether the pod with this key still exists."""
        self._exists = exists
        self._pods: dict[str, dict[str, PodInfo]] = {}  # node -> uid -> pod
        self._node: dict[str, str] = {}  # uid -> node

    def __bool__(self) -> bool:
        return bool(self._node)

    @property
    def nodes(self) -> Sequence[str]:
        return [*self._pods]

    def nominated_pods_for_node(self, node: str) -> list[PodInfo]:
        return [*self._pods.get(node, {}).values()]

    def add_nominated_pod(self, pod: PodInfo, node: str = "") -> None:
        """Without a node, the pod is nominated for the node in its status."""
        self.delete_nominated_pod(pod.uid)
        node = node or pod.nominated
        if node and self._exists(pod.key):
            self._node[pod.uid] = node
            self._pods.setdefault(node, {})[pod.uid] = pod

    def delete_nominated_pod(self, uid: str) -> None:
        node = self._node.pop(uid, None)
        if node is not None:
            pods = self._pods[node]
            del pods[uid]
            if not pods:
                del self._pods[node]

    def update_nominated_pod(self, old: PodInfo, new: PodInfo) -> None:
        """A nomination that is not in the status yet outlives updates of the pod; otherwise the
        status decides.
        """
        kept = self._node.get(old.uid, "") if not old.nominated and not new.nominated else ""
        self.delete_nominated_pod(old.uid)
        self.add_nominated_pod(new, kept)
