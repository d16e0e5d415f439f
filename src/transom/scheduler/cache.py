"""The pods on nodes: those that the API shows there, and those that are assumed to run there.

A pod is assumed as soon as its node is selected, until the API shows it on its node. If that does
not happen within two minutes of the binding, it expires.
"""

from __future__ import annotations

import logging

from transom.kit.clock import Clock
from transom.machinery.objects import Object
from transom.scheduler.errors import SchedulingError
from transom.scheduler.pods import PodInfo
from transom.scheduler.snapshot import Snapshot

log = logging.getLogger("transom.scheduler")

ASSUMED_SECONDS = 120.0


class SchedulerCache:
    def __init__(self, snapshot: Snapshot, clock: Clock) -> None:
        self._snapshot = snapshot
        self._clock = clock
        self._pods: dict[str, PodInfo] = {}
        # UID -> when it expires; None until the binding is written.
        self._assumed: dict[str, float | None] = {}

    def assume_pod(self, info: PodInfo, node: str) -> None:
        if info.uid in self._pods:
            raise SchedulingError(f"pod {info.uid} is in the cache, so can't be assumed")
        self._pods[info.uid] = info
        self._assumed[info.uid] = None
        self._snapshot.add_pod(info, node)

    def finish_binding(self, info: PodInfo) -> None:
        """The binding was written: the assumed pod expires if the API does not show it."""
        if info.uid in self._assumed:
            self._assumed[info.uid] = self._clock.monotonic() + ASSUMED_SECONDS

    def forget_pod(self, info: PodInfo) -> None:
        """The pod was not bound."""
        if info.uid in self._assumed:
            self._remove(self._pods[info.uid])

    @property
    def pod_count(self) -> int:
        return len(self._pods)

    @property
    def assumed_count(self) -> int:
        return len(self._assumed)

    def is_assumed_pod(self, uid: str) -> bool:
        return uid in self._assumed

    def get_pod(self, uid: str) -> PodInfo | None:
        return self._pods.get(uid)

    def cleanup_assumed_pods(self) -> None:
        now = self._clock.monotonic()
        for uid, end in [*self._assumed.items()]:
            if end is not None and now > end:
                log.warning("pod %s expired", self._pods[uid].key)
                self._remove(self._pods[uid])

    # ---- pods and nodes of the API ----

    def set_pod(self, pod: Object) -> PodInfo:
        """Add or update a pod that has a node."""
        info = PodInfo(pod)
        node = info.node_name
        known = self._pods.get(info.uid)
        if known is None:
            self._snapshot.add_pod(info, node)
        elif self._snapshot.name(known.row) != node:
            log.warning(
                "pod %s was assumed to be on %s but runs on %s",
                info.key,
                self._snapshot.name(known.row),
                node,
            )
            self._snapshot.remove_pod(known)
            self._snapshot.add_pod(info, node)
        else:
            self._snapshot.replace_pod(known, info)
        self._assumed.pop(info.uid, None)
        self._pods[info.uid] = info
        return info

    def remove_pod(self, uid: str) -> None:
        known = self._pods.get(uid)
        if known is not None:
            self._remove(known)

    def _remove(self, info: PodInfo) -> None:
        self._snapshot.remove_pod(info)
        self._assumed.pop(info.uid, None)
        del self._pods[info.uid]
