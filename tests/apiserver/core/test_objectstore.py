"""Stored objects: when a write counts as durable, and how many are kept decoded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.inline_workers import InlineWorkers

from transom.apiserver.core.objectstore import ObjectStore
from transom.apiserver.core.resources import ResourceRegistry
from transom.kit.clock import VirtualClock
from transom.store.api import StoreError, StoreRecord
from transom.store.memory import MemoryStore

RES = ResourceRegistry().require("", "v1", "configmaps")
KEY = RES.key("default", "a")


async def test_durable_waits_for_the_newest_write_of_the_key() -> None:
    objects = ObjectStore(MemoryStore(VirtualClock()), InlineWorkers())
    await objects.store.start()
    obj = {"metadata": {"name": "a", "namespace": "default"}}
    pending = objects.put(RES, KEY, obj, 0, None)
    assert not pending.done() and objects.store.get(KEY) is None
    await objects.durable(KEY)
    assert pending.done() and objects.store.get(KEY) is not None
    await objects.durable(RES.key("default", "unknown"))  # nothing to wait for


async def test_durable_raises_when_the_write_fails() -> None:
    objects = ObjectStore(MemoryStore(VirtualClock()), InlineWorkers())
    failing: asyncio.Future[StoreRecord] = asyncio.get_running_loop().create_future()
    objects._writes[KEY] = failing
    waiting = asyncio.ensure_future(objects.durable(KEY))
    await asyncio.sleep(0)
    failing.set_exception(StoreError("the disk is full"))
    with pytest.raises(StoreError):
        await waiting


async def test_writes_that_are_done_are_forgotten() -> None:
    objects = ObjectStore(MemoryStore(VirtualClock()), InlineWorkers())
    await objects.store.start()
    for number in range(1000):
        name = f"n{number}"
        obj = {"metadata": {"name": name, "namespace": "default"}}
        await objects.put(RES, RES.key("default", name), obj, 0, None)
    assert len(objects._writes) <= 257


class CountedWrite(asyncio.Future[StoreRecord]):
    requested = 0

    def done(self) -> bool:
        CountedWrite.requested += 1
        return super().done()


class SlowDisk(MemoryStore):
    """No write is durable."""

    def put(self, *_arguments: Any, **_more: Any) -> asyncio.Future[StoreRecord]:
        return CountedWrite()


async def test_many_pending_writes_are_not_looked_at_for_each_write() -> None:
    """A thousand nodes write their status while the disk is busy with the first ones."""
    objects = ObjectStore(SlowDisk(VirtualClock()), InlineWorkers())
    CountedWrite.requested = 0
    for number in range(5000):
        obj = {"metadata": {"name": f"n{number}", "namespace": "default"}}
        objects.put(RES, RES.key("default", f"n{number}"), obj, 0, None)
    assert CountedWrite.requested < 4 * 5000


async def test_few_large_objects_are_kept_decoded() -> None:
    """A decoded object may take 25 times as much memory as its bytes."""
    objects = ObjectStore(MemoryStore(VirtualClock()), InlineWorkers())
    await objects.store.start()
    names = [f"large-{number}" for number in range(20)]
    for name in names:
        obj = {"metadata": {"name": name, "namespace": "default"}, "data": {"k": "v" * 1_000_000}}
        await objects.put(RES, RES.key("default", name), obj, 0, None)

    def decoded() -> list[str]:
        records = [objects.get(RES, "default", name) for name in names]
        pairs = zip(names, records, strict=True)
        return [name for name, r in pairs if r.cache is not None and r.cache.obj is not None]

    assert decoded() == names[-8:]  # 8 MiB of bytes
    for name in names[:10]:
        assert objects.decode(RES, objects.get(RES, "default", name))["metadata"]["name"] == name
    assert decoded() == names[2:10]
