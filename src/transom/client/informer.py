"""Informers: a local copy of a resource that is always on its way to the newest state, and calls for each change.

An informer lists once, then watches; it goes on from where it was after a cut connection, lists again when the server
has forgotten that point, and waits longer and longer while the server is away. A factory lets everybody in a process
share one informer for each resource.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from transom.client.api import ADDED, BOOKMARK, DELETED, MODIFIED, Client, Listing, WatchEvent, is_expired, is_too_large
from transom.client.resources import GroupVersionResource
from transom.client.store import Index, Store, key_of
from transom.kit.clock import Clock, Timer
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.machinery.selectors import LabelSelector

log = logging.getLogger("transom.client")

_WATCH_SECONDS = 300.0  # to twice that
_SHORT_WATCH = 1.0
_BACKOFF_FIRST, _BACKOFF_LONGEST, _BACKOFF_RESET = 0.8, 30.0, 120.0
_BUSY = (429, 503)  # the server has too much to do, or stops: what it knows of us is still good
_TURN = 512  # objects handed to handlers before others get the loop


class LastKnownState(dict[str, Any]):
    """An object whose deletion was missed: the last state that was seen of it, which may not be its last."""

    __slots__ = ()


class Handler:
    """Who is called. Calls come in order, one at a time, after the store has the change; an exception of a handler is
    logged and nothing else."""

    __slots__ = ("add", "delete", "timer", "update")

    def __init__(
        self, add: Callable[[Object], None] | None, update: Callable[[Object, Object], None] | None,
        delete: Callable[[Object], None] | None,
    ) -> None:
        self.add = add
        self.update = update
        self.delete = delete
        self.timer: Timer | None = None


class Informer:
    def __init__(
        self, client: Client, resource: GroupVersionResource, clock: Clock, rng: random.Random, *, namespace: str = "",
        label_selector: str = "", field_selector: str = "",
    ) -> None:
        self.resource = resource
        self.store = Store()
        self._client = client
        self._clock = clock
        self._rng = rng
        self._namespace = namespace
        self._labels, self._fields = label_selector, field_selector
        self._handlers: list[Handler] = []
        self._synced = asyncio.Event()
        self._version = ""
        self._version_lost = False
        self._failures = 0
        self._failed_at = float("-inf")

    # ---- what users see ------------------------------------------------------------------------------------------

    def get(self, namespace: str, name: str) -> Object | None:
        return self.store.get(namespace, name)

    def by_key(self, key: str) -> Object | None:
        return self.store.by_key(key)

    def list(self, namespace: str = "", selector: LabelSelector | None = None) -> list[Object]:
        return self.store.list(namespace, selector)

    def by_index(self, index: str, value: str) -> Sequence[Object]:
        return self.store.by_index(index, value)

    def add_index(self, name: str, values: Index) -> None:
        self.store.add_index(name, values)

    @property
    def has_synced(self) -> bool:
        """The store has had a whole list."""
        return self._synced.is_set()

    async def synced(self) -> None:
        await self._synced.wait()

    @property
    def resource_version(self) -> str:
        return self._version

    def add_handler(
        self, *, add: Callable[[Object], None] | None = None, update: Callable[[Object, Object], None] | None = None,
        delete: Callable[[Object], None] | None = None, resync: float = 0,
    ) -> None:
        """Call these on every change, beginning with an `add` of each object known already. `delete` may get a
        `LastKnownState`. Every `resync` seconds `update` is called for all objects, as (same, same)."""
        handler = Handler(add, update, delete)
        self._handlers.append(handler)
        for obj in self.store.list():
            self._call(handler.add, obj)
        if resync > 0:
            self._schedule_resync(handler, resync)

    def _schedule_resync(self, handler: Handler, seconds: float) -> None:
        def again() -> None:
            for obj in self.store.list():
                self._call(handler.update, obj, obj)
            self._schedule_resync(handler, seconds)

        handler.timer = self._clock.call_later(seconds, again)

    # ---- the loop ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the store up to date until cancelled."""
        try:
            while True:
                listed = self._clock.monotonic()
                try:
                    await self._list()
                    await self._follow()
                    if self._clock.monotonic() - listed > _SHORT_WATCH:
                        continue
                except ApiError as problem:
                    log.info("%s: list and watch failed: %s", self.resource, problem)
                except OSError as problem:
                    log.info("%s: the API server is away: %s", self.resource, problem)
                await self._back_off()
        finally:
            for handler in self._handlers:
                if handler.timer is not None:
                    handler.timer.cancel()

    async def _list(self) -> None:
        # The first list may come from any state; a later one must not go back in time, unless that state is gone.
        wanted = "" if self._version_lost else self._version or "0"
        try:
            listing = await self._list_at(wanted)
        except ApiError as problem:
            if not (is_expired(problem) or is_too_large(problem)):
                raise
            self._version_lost = True
            listing = await self._list_at("")
        self._version_lost = False
        await self._replace(listing.items)
        self._version = listing.resource_version
        self._synced.set()

    async def _list_at(self, version: str) -> Listing:
        return await self._client.list(
            self.resource, self._namespace, label_selector=self._labels, field_selector=self._fields,
            resource_version=version,
        )

    async def _replace(self, items: Iterable[Object]) -> None:
        fresh = {key_of(obj): obj for obj in items}
        for obj in self.store.list():
            if key_of(obj) not in fresh:
                self.store.remove(key_of(obj))
                self._tell_delete(LastKnownState(obj))
        for count, (key, obj) in enumerate(fresh.items(), 1):
            self._put(key, obj)
            if count % _TURN == 0:
                await asyncio.sleep(0)

    async def _follow(self) -> None:
        """Watch again and again from the last version; returns when that is not known any more."""
        while True:
            started = self._clock.monotonic()
            seen = 0
            try:
                watch = await self._client.watch(
                    self.resource, self._namespace, resource_version=self._version, bookmarks=True,
                    lifetime=_WATCH_SECONDS * (1 + self._rng.random()), label_selector=self._labels,
                    field_selector=self._fields,
                )
                try:
                    while batch := await watch.next():
                        seen += len(batch)
                        self._apply(batch)
                finally:
                    watch.close()
            except ApiError as problem:
                if is_expired(problem):
                    log.info("%s: version %s is forgotten, listing again", self.resource, self._version)
                    self._version_lost = True
                    return
                if problem.code not in _BUSY:
                    self._version_lost = is_too_large(problem)
                    raise
                log.info("%s: the API server is busy: %s", self.resource, problem)
                await self._back_off()
                continue
            except OSError as problem:
                log.info("%s: watch lost: %s", self.resource, problem)
                # A connection that carried something was good; the next one is tried at once.
                if not seen:
                    await self._back_off()
                continue
            if not seen:
                if self._clock.monotonic() - started > _SHORT_WATCH:
                    # Not even a bookmark in minutes: perhaps the server's state is older than ours.
                    return
                await self._back_off()

    async def _back_off(self) -> None:
        now = self._clock.monotonic()
        if now - self._failed_at > _BACKOFF_RESET:
            self._failures = 0
        self._failed_at = now
        wait = min(_BACKOFF_FIRST * 2.0 ** min(self._failures, 16), _BACKOFF_LONGEST)
        self._failures += 1
        await self._clock.sleep(wait * (1 + self._rng.random()))

    # ---- changes -------------------------------------------------------------------------------------------------

    def _apply(self, batch: Iterable[WatchEvent]) -> None:
        for kind, obj in batch:
            if kind in (ADDED, MODIFIED):
                self._put(key_of(obj), obj)
            elif kind == DELETED:
                if self.store.remove(key_of(obj)) is not None:
                    self._tell_delete(obj)
            elif kind != BOOKMARK:
                log.warning("%s: a watch event of the unknown type %s", self.resource, kind)
                continue
            self._version = obj["metadata"]["resourceVersion"]

    def _put(self, key: str, obj: Object) -> None:
        old = self.store.put(key, obj)
        if old is None:
            for handler in self._handlers:
                if handler.add is not None:
                    self._call(handler.add, obj)
        else:
            for handler in self._handlers:
                if handler.update is not None:
                    self._call(handler.update, old, obj)

    def _tell_delete(self, obj: Object) -> None:
        for handler in self._handlers:
            self._call(handler.delete, obj)

    def _call(self, function: Callable[..., None] | None, *args: Object) -> None:
        if function is None:
            return
        try:
            function(*args)
        except Exception:
            log.exception("%s: a handler failed on %s", self.resource, key_of(args[-1]))


class InformerFactory:
    """Informers by resource and selector, each made once. Ask for all of them, then `start`."""

    def __init__(self, client: Client, clock: Clock, rng: random.Random) -> None:
        self._client = client
        self._clock = clock
        self._rng = rng
        self._informers: dict[tuple[GroupVersionResource, str, str, str], Informer] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def __call__(
        self, resource: GroupVersionResource, *, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> Informer:
        key = resource, namespace, label_selector, field_selector
        found = self._informers.get(key)
        if found is None:
            found = self._informers[key] = Informer(
                self._client, resource, self._clock, self._rng, namespace=namespace, label_selector=label_selector,
                field_selector=field_selector,
            )
        return found

    def start(self) -> None:
        """Run what is not running yet; may be called again after more informers were asked for."""
        for informer in self._informers.values():
            if id(informer) not in self._tasks:
                self._tasks[id(informer)] = asyncio.create_task(informer.run(), name=f"informer {informer.resource}")

    async def synced(self) -> None:
        for informer in [*self._informers.values()]:
            await informer.synced()

    async def stop(self) -> None:
        tasks = [*self._tasks.values()]
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
