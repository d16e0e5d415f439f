"""Recreates the service `kubernetes` and the system namespaces when they are deleted.

Kubernetes' API server looks for them every ten seconds and every minute; here a deletion starts the
wait for the next of these times.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from transom.apiserver.bootstrap import (
    SYSTEM_NAMESPACES,
    ensure_api_service,
    ensure_system_namespaces,
)
from transom.apiserver.core.loopback import Loopback
from transom.kit.background_task import BackgroundTask
from transom.kit.clock import Clock
from transom.machinery.errors import ApiError
from transom.store.api import Store, StoreError, StoreEvent, Subscription

log = logging.getLogger("transom.apiserver")

SERVICE_SECONDS = 10.0
NAMESPACE_SECONDS = 60.0


class ObjectRecreation:
    """Calls `ensure` at the next multiple of an interval after one of the objects was deleted."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        keys: Sequence[str],
        interval: float,
        ensure: Callable[[], Awaitable[None]],
    ) -> None:
        self._store = store
        self._clock = clock
        self._keys = keys
        self._interval = interval
        self._ensure = ensure
        self._started = clock.monotonic()
        self._watches: list[Subscription] = []
        self._deleted = asyncio.Event()
        self._task = BackgroundTask("object-recreation")

    def start(self) -> None:
        self._watches = [
            self._store.watch(key, self._store.revision, self._changed) for key in self._keys
        ]
        self._task.start(self._run())

    async def stop(self) -> None:
        for watch in self._watches:
            watch.cancel()
        await self._task.stop()

    def _changed(self, events: Sequence[StoreEvent]) -> None:
        if any(event.record is None for event in events):
            self._deleted.set()

    async def _run(self) -> None:
        while True:
            await self._deleted.wait()
            passed = self._clock.monotonic() - self._started
            await self._clock.sleep(self._interval - passed % self._interval)
            self._deleted.clear()
            try:
                await self._ensure()
            except (ApiError, StoreError) as problem:
                log.warning("cannot recreate a system object: %s", problem)
                self._deleted.set()


def system_objects(
    loopback: Loopback, service_cidr: str, port: int
) -> tuple[ObjectRecreation, ObjectRecreation]:
    store, clock, resources = loopback.storage.store, loopback.clock, loopback.resources
    service = resources.require("", "v1", "services").key("default", "kubernetes")
    namespaces = resources.require("", "v1", "namespaces")
    return (
        ObjectRecreation(
            store,
            clock,
            [service],
            SERVICE_SECONDS,
            lambda: ensure_api_service(loopback, service_cidr, port),
        ),
        ObjectRecreation(
            store,
            clock,
            [namespaces.key("", name) for name in SYSTEM_NAMESPACES],
            NAMESPACE_SECONDS,
            lambda: ensure_system_namespaces(loopback),
        ),
    )
