"""Informers: a local cache of a resource that follows the newest state, and calls handlers for each
change.

An informer lists once, then watches; it resumes after a lost connection, lists again if the server
has compacted that revision, and backs off while the server is unavailable. A factory lets all parts
of a process share one informer for each resource.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from transom.client.api import (
    ADDED,
    BOOKMARK,
    DELETED,
    MODIFIED,
    ApiClient,
    ObjectList,
    WatchEvent,
    is_expired,
    is_too_large,
)
from transom.client.resources import GroupVersionResource
from transom.client.store import Index, Indexer, object_key
from transom.kit.backoff import exponential_backoff
from transom.kit.clock import Clock, Timer
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.machinery.selectors import (
    LabelSelector,
    SelectorError,
    owner_selector,
    takes_long_to_compile,
)

log = logging.getLogger("transom.client")

_WATCH_SECONDS = 300.0  # up to twice that
_SHORT_WATCH = 1.0
_BACKOFF_FIRST, _BACKOFF_LONGEST, _BACKOFF_RESET = 0.8, 30.0, 120.0
_BUSY = (429, 503)  # the server is overloaded or stopping: our resource version is still valid
_TURN = 512  # objects passed to handlers before other tasks run
_LONG = 0.02  # seconds in handlers before other tasks run


class LastKnownState(dict[str, Any]):
    """The last known state of an object whose deletion was missed; it may not be its final state."""

    __slots__ = ()


Preparation = Callable[[Object], Awaitable[None] | None]


class ResourceEventHandler:
    """The callbacks of a handler. Calls come in order, one at a time, after the store has the
    change; exceptions of a handler are only logged.
    """

    __slots__ = ("add", "delete", "timer", "update")

    def __init__(
        self,
        add: Callable[[Object], None] | None,
        update: Callable[[Object, Object], None] | None,
        delete: Callable[[Object], None] | None,
    ) -> None:
        self.add = add
        self.update = update
        self.delete = delete
        self.timer: Timer | None = None


class Informer:
    def __init__(
        self,
        client: ApiClient,
        resource: GroupVersionResource,
        clock: Clock,
        rng: random.Random,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        transform: Callable[[Object], Object] | None = None,
    ) -> None:
        """`transform` returns what to keep of each object."""
        self.resource = resource
        self._transform = transform
        self.store = Indexer()
        self._client = client
        self._clock = clock
        self._rng = rng
        self._namespace = namespace
        self._labels, self._fields = label_selector, field_selector
        # The callbacks. Calls come in order, one at a time, after the store has the change.
        self._handlers: Sequence[ResourceEventHandler] = ()
        self._add: list[Callable[[Object], None]] = []
        self._update: list[Callable[[Object, Object], None]] = []
        self._delete: list[Callable[[Object], None]] = []
        self._preparations: list[Preparation] = []
        self._synced = asyncio.Event()
        self._version = ""
        self._version_lost = False
        self._failures = 0
        self._failed_at = float("-inf")

    # ---- queries ----

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
        """Whether the store has received a complete list."""
        return self._synced.is_set()

    async def synced(self) -> None:
        await self._synced.wait()

    @property
    def resource_version(self) -> str:
        return self._version

    def add_handler(
        self,
        *,
        add: Callable[[Object], None] | None = None,
        update: Callable[[Object, Object], None] | None = None,
        delete: Callable[[Object], None] | None = None,
        resync: float = 0,
    ) -> ResourceEventHandler:
        """Calls these on every change, beginning with an `add` of each known object. `delete` may
        get a `LastKnownState`. Every `resync` seconds `update` is called for all objects, as (same,
        same). `remove_handler` takes the result.
        """
        handler = ResourceEventHandler(add, update, delete)
        self._use_handlers([*self._handlers, handler])
        if add is not None:
            for obj in self.store.list():
                self._call((add,), obj)
        if update is not None and resync > 0:
            self._schedule_resync(handler, update, resync)
        return handler

    def remove_handler(self, handler: ResourceEventHandler) -> None:
        self._use_handlers([one for one in self._handlers if one is not handler])
        if handler.timer is not None:
            handler.timer.cancel()

    def _use_handlers(self, handlers: Sequence[ResourceEventHandler]) -> None:
        """The lists are new ones: this may be called while handlers are called."""
        self._handlers = handlers
        self._add = [one.add for one in handlers if one.add is not None]
        self._update = [one.update for one in handlers if one.update is not None]
        self._delete = [one.delete for one in handlers if one.delete is not None]

    @property
    def handlers(self) -> Sequence[ResourceEventHandler]:
        return self._handlers

    def add_preparation(self, prepare: Preparation) -> None:
        """Called with each object of a list or watch before it is stored and passed to handlers;
        they wait for the result. For work that takes long with large objects, in a thread.
        """
        self._preparations.append(prepare)

    def _schedule_resync(
        self,
        handler: ResourceEventHandler,
        update: Callable[[Object, Object], None],
        seconds: float,
    ) -> None:
        def again() -> None:
            for obj in self.store.list():
                self._call((update,), obj, obj)
            self._schedule_resync(handler, update, seconds)

        handler.timer = self._clock.call_later(seconds, again)

    # ---- the loop ----

    async def run(self) -> None:
        """Keeps the store up to date until cancelled."""
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
        # The first list may come from any state; a later one must not go back in time, unless that
        # state is gone.
        wanted = "" if self._version_lost else self._version or "0"
        try:
            listing = await self._list_at(wanted)
        except ApiError as problem:
            if not (is_expired(problem) or is_too_large(problem)):
                raise
            self._version_lost = True
            listing = await self._list_at("")
        self._version_lost = False
        await self._replace(listing.items, listing.large)
        self._version = listing.resource_version
        self._synced.set()

    async def _list_at(self, version: str) -> ObjectList:
        return await self._client.list(
            self.resource,
            self._namespace,
            label_selector=self._labels,
            field_selector=self._fields,
            resource_version=version,
        )

    async def _replace(self, items: Iterable[Object], large: frozenset[int]) -> None:
        fresh = {object_key(obj): obj for obj in items}
        for obj in self.store.list():
            if object_key(obj) not in fresh:
                self.store.remove(object_key(obj))
                self._notify_delete(LastKnownState(obj))
        began = time.perf_counter()
        for count, (key, obj) in enumerate(fresh.items()):
            await self._prepare(obj)
            self._put(key, self._kept(obj))
            if count % _TURN == _TURN - 1 or count in large or time.perf_counter() - began > _LONG:
                await asyncio.sleep(0)
                began = time.perf_counter()

    async def _follow(self) -> None:
        """Watches repeatedly from the last version; returns when that version is expired."""
        while True:
            started = self._clock.monotonic()
            seen = 0
            try:
                watch = await self._client.watch(
                    self.resource,
                    self._namespace,
                    resource_version=self._version,
                    bookmarks=True,
                    lifetime=_WATCH_SECONDS * (1 + self._rng.random()),
                    label_selector=self._labels,
                    field_selector=self._fields,
                )
                try:
                    while batch := await watch.next():
                        seen += len(batch)
                        await self._apply(batch)
                finally:
                    watch.close()
            except ApiError as problem:
                if is_expired(problem):
                    log.info(
                        "%s: version %s is forgotten, listing again", self.resource, self._version
                    )
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
                # A connection that delivered something was good; reconnect immediately.
                if not seen:
                    await self._back_off()
                continue
            if not seen:
                if self._clock.monotonic() - started > _SHORT_WATCH:
                    # No bookmark for minutes: the server's state may be older than ours.
                    return
                await self._back_off()

    async def _back_off(self) -> None:
        now = self._clock.monotonic()
        if now - self._failed_at > _BACKOFF_RESET:
            self._failures = 0
        self._failed_at = now
        wait = exponential_backoff(_BACKOFF_FIRST, _BACKOFF_LONGEST, self._failures)
        self._failures += 1
        await self._clock.sleep(wait * (1 + self._rng.random()))

    # ---- changes ----

    async def _apply(self, batch: Iterable[WatchEvent]) -> None:
        began = time.perf_counter()
        for kind, obj in batch:
            if time.perf_counter() - began > _LONG:  # handlers take long with these objects
                await asyncio.sleep(0)
                began = time.perf_counter()
            if kind in (ADDED, MODIFIED):
                if self._preparations or _has_selector(obj):
                    await self._prepare(obj)
                self._put(object_key(obj), self._kept(obj))
            elif kind == DELETED:
                if self.store.remove(object_key(obj)) is not None:
                    self._notify_delete(self._kept(obj))
            elif kind != BOOKMARK:
                log.warning("%s: a watch event of the unknown type %s", self.resource, kind)
                continue
            self._version = obj["metadata"]["resourceVersion"]

    async def _prepare(self, obj: Object) -> None:
        if _takes_long_to_select(obj):
            await asyncio.to_thread(_compile_selector, obj)
        for prepare in self._preparations:
            try:
                pending = prepare(obj)
                if pending is not None:
                    await pending
            except Exception:
                log.exception("%s: a preparation failed on %s", self.resource, object_key(obj))

    def _kept(self, obj: Object) -> Object:
        return obj if self._transform is None else self._transform(obj)

    def _put(self, key: str, obj: Object) -> None:
        old = self.store.put(key, obj)
        if old is None:
            self._call(self._add, obj)
        else:
            self._call(self._update, old, obj)

    def _notify_delete(self, obj: Object) -> None:
        self._call(self._delete, obj)

    def _call(self, handlers: Iterable[Callable[..., None]], *args: Object) -> None:
        """Exceptions of a handler are only logged."""
        for handler in handlers:
            try:
                handler(*args)
            except Exception:
                log.exception("%s: a handler failed on %s", self.resource, object_key(args[-1]))


def _has_selector(obj: Object) -> bool:
    spec = obj.get("spec")  # of a custom object it may be anything
    return isinstance(spec, dict) and "selector" in spec


def _takes_long_to_select(obj: Object) -> bool:
    selector = obj["spec"]["selector"] if _has_selector(obj) else None
    return isinstance(selector, dict) and takes_long_to_compile(selector)


def _compile_selector(obj: Object) -> None:
    """Ahead of the handlers, which get it from `owner_selector`."""
    with contextlib.suppress(SelectorError):  # they report it
        owner_selector(obj)


class InformerFactory:
    """Informers by resource and selector, each created once. Request all of them, then `start`."""

    def __init__(self, client: ApiClient, clock: Clock, rng: random.Random) -> None:
        self._client = client
        self._clock = clock
        self._rng = rng
        self._informers: dict[tuple[GroupVersionResource, str, str, str], Informer] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def __call__(
        self,
        resource: GroupVersionResource,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> Informer:
        key = resource, namespace, label_selector, field_selector
        found = self._informers.get(key)
        if found is None:
            found = self._informers[key] = Informer(
                self._client,
                resource,
                self._clock,
                self._rng,
                namespace=namespace,
                label_selector=label_selector,
                field_selector=field_selector,
            )
        return found

    def start(self) -> None:
        """Starts informers that are not running; may be called again after more were requested."""
        for informer in self._informers.values():
            if id(informer) not in self._tasks:
                self._tasks[id(informer)] = asyncio.create_task(
                    informer.run(), name=f"informer {informer.resource}"
                )

    def handlers(self) -> dict[ResourceEventHandler, Informer]:
        """All handlers, with the informer of each."""
        every = self._informers.values()
        return {handler: informer for informer in every for handler in informer.handlers}

    async def synced(self) -> None:
        for informer in [*self._informers.values()]:
            await informer.synced()

    async def stop(self) -> None:
        tasks = [*self._tasks.values()]
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
