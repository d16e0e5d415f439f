"""Deletes pods that no other component deletes: on missing nodes, deleted before they were
scheduled, or too many terminated ones.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from transom.client.api import is_not_found
from transom.client.resources import NODES, PODS
from transom.controllers.base import ControllerContext
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

log = logging.getLogger("transom.controllers")

_PERIOD = 20.0
# A missing node may just not have reached the informer yet.
_QUARANTINE = 40.0
_LIVE = ("Pending", "Running", "Unknown")


class PodCollector:
    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        self._clock = env.clock
        self._threshold = env.settings.terminated_pods
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
        pods = self._pods.list()
        await self._delete_all(self._too_many(pods))
        lost = await self._lost_nodes(pods)
        await self._delete_all(pod for pod in pods if pod["spec"].get("nodeName") in lost)
        await self._delete_all(
            pod
            for pod in pods
            if "deletionTimestamp" in pod["metadata"] and not pod["spec"].get("nodeName")
        )

    def _too_many(self, pods: Iterable[Object]) -> list[Object]:
        """The oldest terminated pods beyond the threshold."""
        if self._threshold <= 0:
            return []
        ended = [pod for pod in pods if (pod.get("status") or {}).get("phase", "") not in _LIVE]
        excess = len(ended) - self._threshold
        if excess <= 0:
            return []
        ended.sort(key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))
        return ended[:excess]

    async def _lost_nodes(self, pods: Iterable[Object]) -> set[str]:
        """Nodes of pods that have been missing for the quarantine period."""
        now = self._clock.monotonic()
        named = {pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")}
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

    async def _delete_all(self, pods: Iterable[Object]) -> None:
        for pod in [*pods]:
            meta = pod["metadata"]
            log.info("podgc: deleting pod %s/%s", meta["namespace"], meta["name"])
            try:
                await self._client.delete(
                    PODS, meta["namespace"], meta["name"], grace=0, uid=meta["uid"]
                )
            except ApiError as problem:
                if not is_not_found(problem):
                    log.info("podgc: %s/%s: %s", meta["namespace"], meta["name"], problem)
