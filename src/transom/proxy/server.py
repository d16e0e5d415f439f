"""What makes a proxier run by itself: informers that feed a tracker, and a runner that syncs soon after a change.

In a cluster whose network is a model nobody needs the runner: proxiers there are synced when somebody looks at their node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from transom.client.informer import Informer, InformerFactory
from transom.client.resources import GroupVersionResource, builtin
from transom.kit.clock import Clock
from transom.machinery.objects import Object
from transom.proxy.tracker import SKIPPED_LABELS, PortName, Tracker

log = logging.getLogger("transom.proxy")

USER_AGENT: Final = "kube-proxy"
SERVICES: Final = builtin("/Service")
ENDPOINTS: Final = builtin("/Endpoints")
SLICES: Final = builtin("discovery.k8s.io/EndpointSlice")
SELECTOR: Final = ",".join(f"!{label}" for label in SKIPPED_LABELS)
"""What kube-proxy asks the API server for; the tracker leaves the same things out of what others asked for."""

_BURST: Final = 2


def feed(
    tracker: Tracker, informers: InformerFactory, *, label_selector: str = "", slices: GroupVersionResource = SLICES
) -> Callable[[], Awaitable[None]]:
    """Ties a tracker to informers that are not started yet. The answer waits for both lists and tells the tracker."""
    services = informers(SERVICES, label_selector=label_selector)
    resource = slices if tracker.source == "slices" else ENDPOINTS
    others = informers(resource, label_selector=label_selector)
    _tie(services, tracker.put_service, tracker.remove_service)
    if tracker.source == "slices":
        _tie(others, tracker.put_slice, tracker.remove_slice)
    else:
        _tie(others, tracker.put_endpoints, tracker.remove_endpoints)

    async def synced() -> None:
        await services.synced()
        tracker.mark_synced("services")
        await others.synced()
        tracker.mark_synced("endpoints")

    return synced


def _tie(informer: Informer, put: Callable[[Object], bool], remove: Callable[[Object], bool]) -> None:
    def add(item: Object) -> None:
        put(item)

    def update(_old: Object, item: Object) -> None:
        put(item)

    def delete(item: Object) -> None:
        remove(item)

    informer.add_handler(add=add, update=update, delete=delete)


class SyncRunner:
    """Calls `sync` after changes: at once, but twice in a row at most, then once in each shortest interval; and without
    any change once in each longest interval."""

    def __init__(
        self, sync: Callable[[], Awaitable[None] | None], clock: Clock, *, shortest: float, longest: float,
        due: Callable[[], float] | None = None,
    ) -> None:  # fmt: skip
        self._sync = sync
        self._clock = clock
        self._shortest = shortest
        self._longest = longest
        self._due = due  # when something wants to be synced earlier than that, by the clock
        self._wanted = asyncio.Event()
        self._tokens = float(_BURST)
        self._filled = clock.monotonic()

    def changed(self, _names: tuple[PortName, ...] = ()) -> None:
        """Good as a listener of a tracker."""
        self._wanted.set()

    async def loop(self) -> None:
        """Until cancelled."""
        while True:
            self._wanted.clear()
            begun = self._clock.monotonic()
            answer = self._sync()
            if answer is not None:
                await answer
            await self._until_wanted(begun + self._longest)
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
