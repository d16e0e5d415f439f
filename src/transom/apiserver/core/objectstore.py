"""Stored objects: records of the store, decoded once for all readers and encoded for writes.

Contains no API rules: `storage.py` does admission, strategies and validation.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

import orjson

from transom.apiserver.core.context import RequestContext
from transom.apiserver.core.offload import compute_in_worker, is_costly
from transom.apiserver.core.requestinfo import is_path_segment
from transom.apiserver.core.resources import Resource, ResourceRegistry
from transom.apiserver.core.sharing import share
from transom.apiserver.core.strategies import strategy_for
from transom.kit.goquote import go_quote
from transom.kit.workers import WorkRunner
from transom.machinery import errors, field_selectors
from transom.machinery.objects import Object, copy_object, encode_bounded
from transom.machinery.selectors import LabelSelector
from transom.store.api import AlsoPut, Store, StoreRecord

T = TypeVar("T")

_DECODED_KEPT = 4096  # cached decoded objects, most recently read first
_EXPIRING_KEPT = 256  # of expiring objects (events): there are many, and few readers
# Decoded objects take up to 25 times as much memory as their bytes, so few large ones are kept.
_LARGE_VALUE = 128 * 1024  # bytes of a large object
_LARGE_KEPT = 8 * 1024 * 1024  # bytes of all large objects that are kept decoded
_LOADED_AT_ONCE = 256 * 1024  # bytes that are decoded on the event loop
_WRITES_KEPT = 256  # from this number on, completed writes are removed, at each doubling
_NO_LABELS: dict[str, str] = {}  # labels of stored objects are immutable


class Cached:
    """Data derived from a record's bytes."""

    __slots__ = ("fields", "labels", "lean", "obj", "protobuf_size", "reader")

    def __init__(self, labels: dict[str, str] | None = None) -> None:
        self.obj: Object | None = None
        # Without managedFields, which are half of many objects.
        self.lean: Object | None = None
        # The resource that `obj` was decoded for: a custom object differs by version.
        self.reader: Resource | None = None
        self.labels = labels
        self.fields: dict[str, str] | None = None
        self.protobuf_size: tuple[object, int] | None = None  # in a list of one kind


class FindCore(Protocol):
    def __call__(self, plural: str, namespace: str, name: str) -> Object | None:
        """A stored object of the core group. Shared: read-only."""


class ObjectStore:
    def __init__(self, store: Store, workers: WorkRunner) -> None:
        self.store = store
        self.workers = workers
        self._decoded: deque[Cached] = deque()
        self._expiring: deque[Cached] = deque()
        self._large: deque[tuple[int, Cached]] = deque()  # with the sizes of the values
        self._large_size = 0
        self._large_lock = threading.Lock()  # threads decode large objects
        self._loading = asyncio.Lock()  # one large record at a time
        self._writes: dict[str, asyncio.Future[StoreRecord]] = {}  # pending writes by key
        self._most_writes = _WRITES_KEPT  # before completed ones are removed

    async def compute(self, ctx: RequestContext, work: Callable[[], T]) -> T:
        """The result of a pure function, computed in the worker thread if the request is large."""
        return await compute_in_worker(self.workers, ctx, work) if ctx.large else work()

    def cached(self, record: StoreRecord) -> Cached:
        entry = record.cache
        if entry is None:
            entry = record.cache = Cached()
        return entry

    def superseded(self, record: StoreRecord) -> None:
        """All watchers have a newer record, so later readers decode the bytes of this one again."""
        entry: Cached | None = record.cache
        if entry is not None:
            entry.obj = entry.lean = entry.fields = entry.labels = record.cache = None

    def decode(self, res: Resource, record: StoreRecord) -> Object:
        """The stored object as a dict in the storage version; a custom one in the version of the
        resource. Shared: read-only.
        """
        entry = self.cached(record)
        obj = entry.obj  # read once: admission of large objects calls this from the worker thread
        if obj is None or (res.custom and entry.reader is not res):
            obj = res.ops.load(record.value)
            share(res.kind.key, obj)
            self.keep_decoded(entry, res, obj, len(record.value))
        return obj

    async def decode_large(self, ctx: RequestContext, res: Resource, record: StoreRecord) -> Object:
        """Like `decode`, for a record that takes long to decode."""
        entry = self.cached(record)
        if entry.obj is None or (res.custom and entry.reader is not res):
            obj = await self.compute(ctx, partial(res.ops.load, record.value))
            share(res.kind.key, obj)
            self.keep_decoded(entry, res, obj, len(record.value))
            return obj
        return entry.obj

    async def encode_result(self, ctx: RequestContext, res: Resource, obj: Object) -> bytes:
        """The stored form of an object that is only returned to the client."""
        encode = partial(encode_value, obj, custom=res.custom)
        return await self.compute(ctx, encode) if ctx.large else encode()

    async def copied(self, ctx: RequestContext, obj: Object) -> Object:
        copy = partial(copy_object, obj)
        copied: Object = await self.compute(ctx, copy) if ctx.large else copy()
        return copied

    async def is_terminating(self, ctx: RequestContext, res: Resource, record: StoreRecord) -> bool:
        if is_costly(len(record.value), res.ops.weight):
            obj = await self.compute(ctx, partial(orjson.loads, record.value))
        else:
            obj = self.as_stored(res, record)
        return bool(obj["metadata"].get("deletionTimestamp"))

    def keep_decoded(
        self, entry: Cached, res: Resource, obj: Object, size: int, expiring: bool = False
    ) -> None:
        """Keeps the object of a value of this size until many others were decoded."""
        entry.obj = obj
        entry.lean = None
        entry.reader = res
        if size > _LARGE_VALUE:
            with self._large_lock:
                self._large.append((size, entry))
                self._large_size += size
                while len(self._large) > 1 and self._large_size > _LARGE_KEPT:
                    dropped, oldest = self._large.popleft()
                    self._large_size -= dropped
                    oldest.obj = oldest.lean = None
            return
        kept, most = (
            (self._expiring, _EXPIRING_KEPT) if expiring else (self._decoded, _DECODED_KEPT)
        )
        kept.append(entry)
        if len(kept) > most:
            oldest = kept.popleft()
            oldest.obj = oldest.lean = None

    def decode_lean(self, res: Resource, record: StoreRecord) -> Object:
        """Like `decode`, without managedFields: for readers that keep many objects and do not need
        them.
        """
        return self._lean(record, self.decode(res, record))

    def _lean(self, record: StoreRecord, obj: Object) -> Object:
        if "managedFields" not in obj["metadata"]:
            return obj
        entry = self.cached(record)
        if entry.lean is None:
            meta = dict(obj["metadata"])
            del meta["managedFields"]
            entry.lean = {**obj, "metadata": meta}
        return entry.lean

    async def decode_in_thread(
        self, res: Resource, record: StoreRecord, *, lean: bool = False
    ) -> Object:
        """Like `decode` and `decode_lean`, for clients in this process: in a thread, and once for
        all of them.
        """
        async with self._loading:
            obj = await asyncio.to_thread(self.decode, res, record)
        return self._lean(record, obj) if lean else obj

    async def served_in_thread(self, res: Resource, record: StoreRecord) -> Object:
        """Like `served_object`, in a thread."""
        async with self._loading:
            return await asyncio.to_thread(served_object, res, record)

    def labels(self, res: Resource, record: StoreRecord) -> dict[str, str]:
        entry = self.cached(record)
        if entry.labels is None:
            entry.labels = self.as_stored(res, record)["metadata"].get("labels") or {}
        return entry.labels

    def fields(self, res: Resource, record: StoreRecord) -> dict[str, str]:
        entry = self.cached(record)
        known = entry.fields
        # A changed definition may have more selectable fields than the cached ones.
        if known is None or (
            res.kind.selectable
            and not all(label in known for label in field_selectors.selectable_labels(res.kind))
        ):
            known = field_selectors.field_values(res.kind, self.as_stored(res, record))
            entry.fields = known
        return known

    def as_stored(self, res: Resource, record: StoreRecord) -> Object:
        """The object for reading its metadata, which does not depend on the version."""
        return orjson.loads(record.value) if res.custom else self.decode(res, record)

    async def readable(self, res: Resource, record: StoreRecord) -> StoreRecord:
        """The record converted to this version; waits only for a conversion webhook."""
        if res.ops.converter is None:
            return record
        return (await res.ops.converter.records([record], res.version))[0]

    def get(self, res: Resource, namespace: str, name: str) -> StoreRecord:
        record = self.store.get(res.key(namespace, name))
        if record is None:
            raise missing_error(res, name)
        return record

    def find(self, res: Resource, namespace: str, name: str) -> Object | None:
        record = self.store.get(res.key(namespace, name))
        return None if record is None else self.decode(res, record)

    def objects(self, res: Resource, namespace: str = "", limit: int = 0) -> list[Object]:
        """All records, or the first `limit` ones: of resources that administrators write. For
        others, which may be large, see `load_objects` and `to_load`.
        """
        return [
            self.decode(res, r)
            for r in self.store.list(res.key_prefix(namespace), limit=limit).records
        ]

    def to_load(
        self,
        res: Resource,
        namespace: str = "",
        limit: int = 0,
        selector: LabelSelector | None = None,
    ) -> tuple[Callable[[], list[Object]], bool]:
        """A function that returns the objects, and whether it takes long: then call it in a
        thread.
        """
        records = self.store.list(res.key_prefix(namespace), limit=limit).records
        size = sum(len(r.value) for r in records if r.cache is None or r.cache.obj is None)

        def load() -> list[Object]:
            return [
                self.decode(res, record)
                for record in records
                if selector is None or selector.matches(self.labels(res, record))
            ]

        return load, size > _LOADED_AT_ONCE

    async def load_objects(
        self,
        ctx: RequestContext,
        res: Resource,
        namespace: str = "",
        selector: LabelSelector | None = None,
    ) -> list[Object]:
        """Like `objects`, in the worker thread if they take long to decode."""
        load, is_slow = self.to_load(res, namespace, selector=selector)
        return await compute_in_worker(self.workers, ctx, load) if is_slow else load()

    def put(
        self,
        res: Resource,
        key: str,
        obj: Object,
        expected: int,
        ttl: float | None,
        lock: str = "",
        also: Sequence[AlsoPut] = (),
    ) -> asyncio.Future[StoreRecord]:
        """`lock` and `also`: see `Store.put`."""
        meta = obj["metadata"]
        body = obj
        if not res.custom:
            body = dict(obj)
            body.pop("apiVersion", None)
            body.pop("kind", None)
        cached = Cached(meta.get("labels") or _NO_LABELS)
        size = 0

        def stamp(revision: int) -> None:
            meta["resourceVersion"] = str(revision)

        def encode(revision: int) -> bytes:
            nonlocal size
            if not revision:  # etcd assigns it; the value is the whole object, as in Kubernetes
                meta.pop("resourceVersion", None)
                kind = {"kind": res.kind.kind, "apiVersion": res.stored_api_version}
                value = encode_bounded({**kind, "metadata": meta, **body})
            else:
                stamp(revision)
                # orjson's bytes keep their whole buffer, four times the content; this makes a copy
                # of the right size.
                value = encode_bounded(body)
            size = len(value)
            return value

        pending = self.store.put(
            key, encode, expected=expected, ttl=ttl, cache=cached, stamp=stamp, lock=lock, also=also
        )
        self._writes[key] = pending
        if len(self._writes) > self._most_writes:
            self._writes = {key: write for key, write in self._writes.items() if not write.done()}
            self._most_writes = max(_WRITES_KEPT, 2 * len(self._writes))
        if not res.custom:  # watchers need not decode what was just encoded
            whole = {"kind": res.kind.kind, "apiVersion": res.stored_api_version, **body}
            self.keep_decoded(cached, res, whole, size, ttl is not None)
        return pending

    async def durable(self, key: str) -> None:
        """Waits until the newest write of a key is on disk; raises an error if it fails."""
        pending = self._writes.get(key)
        if pending is not None and not pending.done():
            await asyncio.shield(pending)

    def replace_now(
        self, res: Resource, new: Object, current: StoreRecord
    ) -> asyncio.Future[StoreRecord]:
        """Writes a change by the server itself, without admission or validation. It is accepted (or
        PreconditionFailed raised) before this returns; the future is done when it is durable.
        """
        return self.put(res, current.key, new, current.mod_revision, strategy_for(res.kind).ttl)

    def replace_along(self, res: Resource, new: Object, current: StoreRecord) -> AlsoPut:
        """A change by the server itself that is written together with another object, in a store
        that follows others.
        """
        meta = {key: value for key, value in new["metadata"].items() if key != "resourceVersion"}
        kind = {"kind": res.kind.kind, "apiVersion": res.stored_api_version}

        def encode(_revision: int) -> bytes:
            return encode_bounded({**new, **kind, "metadata": meta})

        return AlsoPut(current.key, encode, current.mod_revision)


def core_finder(objects: ObjectStore, resources: ResourceRegistry) -> FindCore:
    def find_core(plural: str, namespace: str, name: str) -> Object | None:
        return objects.find(resources.require("", "v1", plural), namespace, name)

    return find_core


def missing_error(res: Resource, name: str) -> errors.ApiError:
    """The error for a missing object: the name is invalid, or not found."""
    if is_path_segment(name):
        return errors.not_found(res.gr, name)
    why = (
        f"may not be '{name}'"
        if name in (".", "..")
        else "may not contain '/'"
        if "/" in name
        else "may not contain '%'"
    )
    return errors.bad_request(f"Name parameter invalid: {go_quote(name)}: {why}")


def decode_value(res: Resource, value: bytes) -> Object:
    return res.ops.load(value)


def served_object(res: Resource, record: StoreRecord) -> Object:
    """The object of a record in the version of the resource; owned by the caller."""
    obj = decode_value(res, record.value)
    return obj if res.identity else res.ops.from_storage(obj)


def encode_value(obj: Object, *, custom: bool = False) -> bytes:
    """An object in stored form: without kind, and without apiVersion unless it is a custom one."""
    body = {k: v for k, v in obj.items() if k not in ("apiVersion", "kind")}
    return encode_bounded({"apiVersion": obj["apiVersion"], **body} if custom else body)
