"""The kubelet's periodic work in one place: evictions, log rotation, garbage collection.

There is one timer, and only while the node has a sandbox or container or is under pressure: an
empty node costs nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

from transom.client.events import WARNING
from transom.kit.clock import Timer
from transom.kubelet import container_gc, eviction, image_gc, logrotate
from transom.kubelet.base import KubeletContext
from transom.kubelet.container_gc import ContainerGC
from transom.kubelet.eviction import EvictionManager
from transom.kubelet.image_gc import ImageGC
from transom.kubelet.logrotate import LogRotator
from transom.kubelet.refs import node_ref
from transom.kubelet.stats.metrics import KubeletMetrics
from transom.runtime.api import Container, RuntimeEvent, RuntimeFailure

log = logging.getLogger("transom.kubelet")

_ROUND = eviction.manager.PERIOD
assert logrotate.PERIOD == _ROUND


class Housekeeping:
    __slots__ = (
        "_containers",
        "_env",
        "_evictions",
        "_images",
        "_metrics",
        "_next_containers",
        "_next_images",
        "_relisted",
        "_rotator",
        "_task",
        "_timer",
    )

    def __init__(
        self,
        env: KubeletContext,
        evictions: EvictionManager,
        containers: ContainerGC,
        images: ImageGC,
        metrics: KubeletMetrics,
    ) -> None:
        self._env = env
        self._evictions = evictions
        self._containers = containers
        self._images = images
        self._metrics = metrics
        self._rotator = LogRotator(env)
        self._relisted: float | None = None  # when
        self._timer: Timer | None = None
        self._task: asyncio.Task[None] | None = None
        self._next_containers = self._next_images = 0.0

    async def run(self) -> None:
        """Runs until cancelled."""
        unsubscribe = self._env.runtime.subscribe(self._on_event)
        try:
            if self._busy():
                self._arm(first=True)
            await asyncio.get_running_loop().create_future()
        finally:
            unsubscribe()
            if self._timer is not None:
                self._timer.cancel()
            if self._task is not None:
                self._task.cancel()

    def _on_event(self, event: RuntimeEvent) -> None:
        if self._timer is None and self._task is None and event.kind in ("sandbox", "started"):
            self._arm(first=True)

    def _busy(self) -> bool:
        runtime = self._env.runtime
        return self._evictions.pressed or bool(runtime.sandboxes()) or bool(runtime.containers())

    def _relist(self) -> bool:
        """Lists all sandboxes and containers, and reports it as the kubelet's PLEG does; whether there
        are any. Changes of their state are events of the runtime and do not wait for this.
        """
        began, now = time.perf_counter(), self._env.clock.monotonic()
        busy = self._busy()
        self._metrics.observe("kubelet_pleg_relist_duration_seconds", time.perf_counter() - began)
        if self._relisted is not None:
            self._metrics.observe("kubelet_pleg_relist_interval_seconds", now - self._relisted)
        self._relisted = now if busy else None
        return busy

    def _arm(self, *, first: bool = False) -> None:
        # Spread the rounds of nodes that get their pods at the same time.
        seconds = _ROUND * (self._env.rng.random() if first else 1.0)
        if first:
            now = self._env.clock.monotonic()
            self._next_containers = now + container_gc.PERIOD
            self._next_images = now + image_gc.PERIOD if self._images.enabled else float("inf")
            self._images.detect()
        self._timer = self._env.clock.call_later(seconds, self._round)

    def _round(self) -> None:
        self._timer = None
        now = self._env.clock.monotonic()
        busy = self._relist()
        long = self._rotator.due() if self._rotator.enabled else []
        # Most rounds find nothing and then need no task.
        if (
            self._evictions.observe()
            or long
            or now >= min(self._next_containers, self._next_images)
            or not busy
        ):
            self._task = asyncio.get_running_loop().create_task(self._work(now, long))
        else:
            self._arm()

    async def _work(self, now: float, long_logs: Sequence[Container]) -> None:
        try:
            await self._rotator.rotate(long_logs)
            while evicted := await self._evictions.act():
                await self._evictions.wait_for_cleanup(evicted)
                self._evictions.observe()
            last = not self._busy()
            if last or now >= self._next_containers:
                self._next_containers = now + container_gc.PERIOD
                await self._collect_containers()
            if now >= self._next_images:
                self._next_images = now + image_gc.PERIOD
                await self._images.collect()
        except Exception:
            log.exception("housekeeping of %s", self._env.config.node_name)
        self._task = None
        if self._busy():
            self._arm()

    async def _collect_containers(self) -> None:
        try:
            await self._containers.collect()
        except (OSError, RuntimeFailure) as problem:
            self._env.events.event(
                node_ref(self._env.config.node_name), WARNING, "ContainerGCFailed", str(problem)
            )
