"""What a standalone proxier needs: informers that feed a tracker, and a runner that syncs soon
after a change.

Clusters with a model network do not need the runner: their proxiers sync when the state of their
node is read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from transom.client.informer import Informer, InformerFactory
from transom.client.resources import NODES, GroupVersionResource, builtin_resource
from transom.kit.clock import Clock
from transom.machinery.objects import Object
from transom.proxy.tracker import SKIPPED_LABELS, PortName, ServiceTracker

log = logging.getLogger("transom.proxy")

USER_AGENT: Final = "kube-proxy"
SERVICES: Final = builtin_resource("/Service")
ENDPOINTS: Final = builtin_resource("/Endpoints")
SLICES: Final = builtin_resource("discovery.k8s.io/EndpointSlice")
SELECTOR: Final = ",".join(f"!{label}" for label in SKIPPED_LABELS)
"""The label selector of kube-proxy's requests; the tracker applies the same filter to objects from
shared informers.
"""

_BURST: Final = 2


def feed_proxier(
    tracker: ServiceTracker,
    informers: InformerFactory,
    *,
    label_selector: str = "",
    slices: GroupVersionResource = SLICES,
) -> Callable[[], Awaitable[None]]:
    """Connects a tracker to informers that are not started yet. The result waits for both lists and
    updates the tracker.
    """
    services = informers(SERVICES, label_selector=label_selector)
    resource = slices if tracker.source == "slices" else ENDPOINTS
    others = informers(resource, label_selector=label_selector)
    _watch_into(services, tracker.put_service, tracker.remove_service)
    if tracker.source == "slices":
        _watch_into(others, tracker.put_slice, tracker.remove_slice)
        _watch_into(informers(NODES), tracker.put_node, tracker.remove_node)
    else:
        _watch_into(others, tracker.put_endpoints, tracker.remove_endpoints)

    async def synced() -> None:
        await services.synced()
        tracker.mark_synced("services")
        await others.synced()
        tracker.mark_synced("endpoints")

    return synced


def _watch_into(
    informer: Informer, put: Callable[[Object], bool], remove: Callable[[Object], bool]
) -> None:
    def add(item: Object) -> None:
        put(item)

    def update(_old: Object, item: Object) -> None:
        put(item)

    def delete(item: Object) -> None:
        remove(item)

    informer.add_handler(add=add, update=update, delete=delete)


class SyncRunner:
    """Calls `sync` after changes: immediately, with a burst of two, then at most once per minimum
    interval; without changes, once per maximum interval.
    """

    def __init__(
        self,
        sync: Callable[[], Awaitable[None] | None],
        clock: Clock,
        *,
        shortest: float,
        longest: float,
        due: Callable[[], float] | None = None,
    ) -> None:
        self._sync = sync
        self._clock = clock
        self._shortest = shortest
        self._longest = longest
        self._due = due  # returns the clock time of an earlier sync, if one is needed
        self._wanted = asyncio.Event()
        self._tokens = float(_BURST)
        self._filled = clock.monotonic()

    def changed(self, _names: tuple[PortName, ...] = ()) -> None:
        """Can be used as a listener of a tracker."""
        self._wanted.set()

    async def loop(self) -> None:
        """Runs until cancelled."""
        while True:
            self._wanted.clear()
            began = self._clock.monotonic()
            answer = self._sync()
            if answer is not None:
                await answer
            await self._until_wanted(began + self._longest)
            await self._wait_for_token()

    async def _until_wanted(self, at: float) -> None:
        if self._due is not None:
            at = min(at, max(self._due(), self._clock.monotonic() + self._shortest))
        timer = self._clock.call_later(max(at - self._clock.monotonic(), 0.0), self._wanted.set)
        try:
            await self._wanted.wait()
        finally:
            timer.cancel()

    async def _wait_for_token(self) -> None:
        if self._shortest <= 0:
            return
        now = self._clock.monotonic()
        self._tokens = min(self._tokens + (now - self._filled) / self._shortest, float(_BURST))
        self._filled = now
        if self._tokens < 1:
            await self._clock.sleep((1 - self._tokens) * self._shortest)
            self._tokens, self._filled = 1.0, self._clock.monotonic()
        self._tokens -= 1
