"""Deletes pods that no other component deletes: on missing nodes, deleted before they were
scheduled, or too many terminated ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from operator import itemgetter

from transom.client.api import is_not_found
from transom.client.resources import NODES, PODS
from transom.controllers.base import ControllerContext
from transom.controllers.disruption_target import DisruptionMarker
from transom.controllers.pods import is_node_ready
from transom.kit.named_tuple import NamedTuple
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

log = logging.getLogger("transom.controllers")

_PERIOD = 20.0
# A missing node may just not have reached the informer yet.
_QUARANTINE = 40.0
_LIVE = ("Pending", "Running", "Unknown")
_TURN = 2000  # pods that are looked at before other tasks run
_Age = tuple[str, str, int]


_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


def is_out_of_service(node: Object) -> bool:
    return any(
        taint["key"] == _OUT_OF_SERVICE for taint in (node.get("spec") or {}).get("taints") or ()
    )


class _Found(NamedTuple):
    ended: list[tuple[_Age, Object]]
    by_node: dict[str, list[Object]]
    unscheduled: list[Object]  # deleted before they were scheduled


class PodCollector:
    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        self._clock = env.clock
        self._threshold = env.settings.terminated_pods
        self._disruption = DisruptionMarker(env)
        self._out_of_service = env.settings.features.enabled("NodeOutOfServiceVolumeDetach")
        self._missing: dict[str, float] = {}  # node -> when it was first found missing
        self._pods = env.informers(PODS)
        self._nodes = env.informers(NODES)

    async def run(self) -> None:
        await self._pods.synced()
        await self._nodes.synced()
        while True:
            try:
                await self.collect()
            except (ApiError, OSError) as problem:
                log.info("podgc: %s", problem)
            await self._clock.sleep(_PERIOD)

    async def collect(self) -> None:
        found = await self._classify()
        await self._delete_all(self._too_many(found.ended))
        lost = await self._lost_nodes(found.by_node)
        await self._delete_all(
            (pod for name in lost for pod in found.by_node[name]),
            ("DeletionByPodGC", "PodGC: node no longer exists"),
        )
        await self._delete_all(found.unscheduled, ("", ""))
        if self._out_of_service:
            await self._delete_all(self._on_dead_nodes(found.by_node), ("", ""))

    def _on_dead_nodes(self, by_node: dict[str, list[Object]]) -> list[Object]:
        """Terminating pods of nodes that are not ready and tainted as out of service."""
        out = []
        for name, pods in by_node.items():
            node = self._nodes.get("", name)
            if node is not None and not is_node_ready(node) and is_out_of_service(node):
                out += [pod for pod in pods if "deletionTimestamp" in pod["metadata"]]
        return out

    async def _classify(self) -> _Found:
        """One pass over all pods, yielding to other tasks."""
        found = _Found([], {}, [])
        for number, pod in enumerate(self._pods.list(), 1):
            meta, node = pod["metadata"], pod["spec"].get("nodeName")
            if node:
                found.by_node.setdefault(node, []).append(pod)
            elif "deletionTimestamp" in meta:
                found.unscheduled.append(pod)
            if (pod.get("status") or {}).get("phase", "") not in _LIVE:
                age = (meta["creationTimestamp"], meta["name"], number)
                found.ended.append((age, pod))
            if number % _TURN == 0:
                await asyncio.sleep(0)
        return found

    def _too_many(self, ended: list[tuple[_Age, Object]]) -> list[Object]:
        """The oldest terminated pods beyond the threshold."""
        excess = len(ended) - self._threshold
        if self._threshold <= 0 or excess <= 0:
            return []
        ended.sort(key=itemgetter(0))
        return [pod for _, pod in ended[:excess]]

    async def _lost_nodes(self, named: Iterable[str]) -> set[str]:
        """Nodes of pods that have been missing for the quarantine period."""
        now = self._clock.monotonic()
        away = {name for name in named if self._nodes.get("", name) is None}
        self._missing = {name: self._missing.get(name, now) for name in away}
        lost = set()
        for name, since in self._missing.items():
            if now - since >= _QUARANTINE and await self._is_gone(name):
                lost.add(name)
        return lost

    async def _is_gone(self, node: str) -> bool:
        try:
            await self._client.get(NODES, "", node)
        except ApiError as problem:
            if is_not_found(problem):
                return True
            raise
        return False

    async def _delete_all(self, pods: Iterable[Object], why: tuple[str, str] | None = None) -> None:
        """`why`: reason and message of the pods' disruption; pods that have not ended fail."""
        for pod in [*pods]:
            meta = pod["metadata"]
            log.info("podgc: deleting pod %s/%s", meta["namespace"], meta["name"])
            try:
                if why is not None:
                    ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
                    if not ended:
                        await self._disruption.mark(pod, *why, phase="Failed")
                await self._client.delete(
                    PODS, meta["namespace"], meta["name"], grace=0, uid=meta["uid"]
                )
            except ApiError as problem:
                if not is_not_found(problem):
                    log.info("podgc: %s/%s: %s", meta["namespace"], meta["name"], problem)
