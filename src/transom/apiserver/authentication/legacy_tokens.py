"""Tracks the use of service account tokens in Secrets (LegacyServiceAccountTokenTracking): the
Secret is labelled with the date of its last use, and a ConfigMap says since when.

Authentication only records a use; a task writes the label, once a day for each Secret.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime

from transom.apiserver.core.loopback import Loopback
from transom.kit.clock import Clock
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object, with_metadata
from transom.machinery.releases.features import FeatureSet
from transom.machinery.serviceaccounts import LAST_USED, TRACKED_SINCE, TRACKING_CONFIG_MAP

log = logging.getLogger("transom.apiserver")

GATE = "LegacyServiceAccountTokenTracking"
_DAY = 86_400.0


class LegacyTokenTracker:
    def __init__(self, clock: Clock, features: FeatureSet) -> None:
        self.enabled = features.enabled(GATE)
        self._clock = clock
        self._used: dict[tuple[str, str], str] = {}  # namespace and name -> uid
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def record(self, secret: Object) -> None:
        """The token of the Secret is used now."""
        meta = secret["metadata"]
        last = (meta.get("labels") or {}).get(LAST_USED)
        if last not in (self._date(), self._date(_DAY)):
            self._used[meta["namespace"], meta["name"]] = meta["uid"]
            self._wake.set()

    def _date(self, later: float = 0.0) -> str:
        return datetime.fromtimestamp(self._clock.time() + later, UTC).strftime("%Y-%m-%d")

    async def start(self, loopback: Loopback) -> None:
        if not self.enabled:
            return
        namespace, name = TRACKING_CONFIG_MAP
        config_map = {"metadata": {"name": name}, "data": {TRACKED_SINCE: self._date()}}
        await loopback.ensure("", "v1", "configmaps", namespace, config_map)
        self._task = asyncio.create_task(self._run(loopback), name="legacy token tracking")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self, loopback: Loopback) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            used, self._used = self._used, {}
            for (namespace, name), uid in used.items():
                try:
                    await self._label(loopback, namespace, name, uid)
                except ApiError as problem:
                    log.warning("cannot label the secret %s/%s: %s", namespace, name, problem)

    async def _label(self, loopback: Loopback, namespace: str, name: str, uid: str) -> None:
        res = loopback.resources.require("", "v1", "secrets")
        found = loopback.storage.find(res, namespace, name)
        if found is None or found["metadata"]["uid"] != uid:
            return

        def transform(old: Object | None) -> Object:
            assert old is not None
            labels = {**(old["metadata"].get("labels") or {}), LAST_USED: self._date()}
            return with_metadata(old, labels=labels)

        await loopback.storage.update(
            loopback.context(), res, namespace, name, transform, reread=True
        )
