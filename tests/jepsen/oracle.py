"""The order of changes as etcd itself has it.

The watches of API servers do not show every change: after a compaction while a server was cut off, it
has no history, and clients list again. The test therefore watches etcd too, and compacts it no
further than it has seen.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import orjson
from tests.jepsen.history import Change, WatchLog

from transom.kit.rpc import RpcError
from transom.store.etcd import wire
from transom.store.etcd.client import EtcdClient

_ROOT = b"/registry/"
_RETRY_SECONDS = 0.1
_WAIT_SECONDS = 60.0

DescribeObject = Callable[[Mapping[str, Any]], tuple[str, str, tuple[str, ...]]]
"""Value, uid and grants of an object; no value: it is not part of the history."""


class EtcdOracle:
    """`folders`: the resource by the folder of its objects, with the namespace."""

    def __init__(
        self, client: EtcdClient, folders: Mapping[str, str], describe: DescribeObject
    ) -> None:
        self._client = client
        self._folders = {folder.encode(): resource for folder, resource in folders.items()}
        self._describe = describe
        self._current: dict[bytes, Change] = {}
        self.log = WatchLog("etcd", 0)
        self._reached = asyncio.Event()

    @property
    def revision(self) -> int:
        """Everything up to this one is in the log."""
        return self.log.until

    async def start(self) -> None:
        """Call it before the first change."""
        found = await self._client.range(wire.range_request(_ROOT, count_only=True))
        self.log.since = self.log.until = found.revision

    async def run(self) -> None:
        while True:
            with contextlib.suppress(RpcError, OSError):
                await self._follow()
            await asyncio.sleep(_RETRY_SECONDS)

    async def wait_for(self, revision: int) -> None:
        async with asyncio.timeout(_WAIT_SECONDS):
            while self.revision < revision:
                self._reached.clear()
                await self._reached.wait()

    async def _follow(self) -> None:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_end(_problem: RpcError) -> None:
            if not ended.done():
                ended.set_result(None)

        def on_batch(batch: wire.EtcdWatchBatch) -> None:
            if ended.done():
                return
            if batch.canceled:
                assert not batch.compact_revision, "compacted further than the test has seen"
                ended.set_result(None)
            for event in batch.events:
                self._take(event)
            if batch.events:
                self.log.until = batch.events[-1].kv.mod_revision
                self._reached.set()

        request = wire.watch_create_request(_ROOT, wire.prefix_end(_ROOT), self.revision + 1)
        stream = await self._client.watch(request, on_batch, on_end)
        try:
            await ended
        finally:
            stream.cancel()

    def _take(self, event: wire.EtcdWatchEvent) -> None:
        kv = event.kv
        folder, _, name = kv.key.rpartition(b"/")
        resource = self._folders.get(folder)
        if resource is None or kv.mod_revision <= self.revision:
            return
        key = f"{resource}/{name.decode()}"
        before = self._current.pop(kv.key, None)
        if event.deleted:
            if before is not None:
                change = Change(
                    kv.mod_revision, key, "DELETED", before.value, before.uid, before.grants
                )
                self.log.changes.append(change)
            return
        value, uid, grants = self._describe(orjson.loads(kv.value))
        if value:
            kind = "ADDED" if kv.create_revision == kv.mod_revision else "MODIFIED"
            change = Change(kv.mod_revision, key, kind, value, uid, grants)
            self._current[kv.key] = change
            self.log.changes.append(change)
