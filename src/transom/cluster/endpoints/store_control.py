"""The endpoints of the API server below /transom/store: the state of the cluster's data, and its
snapshots.

They are authorized like any other non-resource path, so only the cluster's admin may use them.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from typing import TYPE_CHECKING, Any

import orjson

from transom.cluster.config import ClusterConfig
from transom.http.messages import Answer, HttpRequest, HttpResponse
from transom.kit.lazy import lazy_import
from transom.node.settings import name_option
from transom.store.api import Store, StoreRecord, StoreSnapshot
from transom.store.sealing import Sealing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from transom.cluster.data import cluster_records
    from transom.store import snapshot_file
    from transom.store.snapshot_file import SnapshotRecord
else:
    cluster_records = lazy_import("transom.cluster.data.cluster_records")
    snapshot_file = lazy_import("transom.store.snapshot_file")

ROOT = "/transom/store"
_BLOCK_RECORDS = 256
_KEPT_SECONDS = 600.0  # how long an interrupted save can be resumed
_MOST_KEPT = 4


class _Kept:
    def __init__(self, snapshot: StoreSnapshot, now: float) -> None:
        self.snapshot = snapshot
        self.used = now


class StoreControl:
    """`loop_lag` returns the lag of the event loop."""

    def __init__(
        self, config: ClusterConfig, store: Store, sealing: Sealing, loop_lag: Callable[[], float]
    ) -> None:
        self._config = config
        self._store = store
        self._sealing = sealing
        self._kept: dict[str, _Kept] = {}
        self._loop_lag = loop_lag

    async def __call__(self, request: HttpRequest) -> Answer:
        parts = request.path.removeprefix(ROOT).strip("/").split("/")
        match request.method, parts:
            case "GET", [""]:
                return _json(200, self.describe())
            case "DELETE", ["quarantine"]:
                self._store.clear_quarantine()
                return _json(200, {})
            case "POST", ["snapshots"]:
                return _json(201, self._begin())
            case "GET", ["snapshots", name, start] if start.isdigit():
                return await self._block(name, int(start))
            case "DELETE", ["snapshots", name]:
                self._kept.pop(name, None)
                return _json(200, {})
        return _json(404, {"message": f"there is no {request.method} {request.path}", "hint": ""})

    def describe(self) -> dict[str, Any]:
        health = self._store.health()
        space = os.statvfs(self._config.state)
        return {
            "nameOption": name_option(self._config.name),
            "revision": self._store.revision,
            "problem": health.problem or health.damage,
            "lastCommit": health.last_commit or None,
            "freeBytes": space.f_bavail * space.f_frsize,
            "readOnly": bool(space.f_flag & os.ST_RDONLY),
            "loopLagSeconds": round(self._loop_lag(), 3),
            "quarantined": [one._asdict() for one in self._store.quarantined()],
        }

    def _begin(self) -> dict[str, Any]:
        now = time.monotonic()
        self._kept = {
            name: kept for name, kept in self._kept.items() if now - kept.used < _KEPT_SECONDS
        }
        while len(self._kept) >= _MOST_KEPT:
            del self._kept[min(self._kept, key=lambda name: self._kept[name].used)]
        found, name = self._store.snapshot(), secrets.token_hex(8)
        if self._store.follows:
            found = cluster_records.portable_snapshot(found, time.time())
        self._kept[name] = _Kept(found, now)
        return {"id": name, "revision": found.revision, "records": found.count}

    async def _block(self, name: str, start: int) -> Answer:
        kept = self._kept.get(name)
        if kept is None:
            return _json(
                404,
                {
                    "message": f"there is no snapshot {name}; it may be too old",
                    "hint": "begin a new one",
                },
            )
        kept.used = time.monotonic()
        records = kept.snapshot.records(start, _BLOCK_RECORDS)
        body = await asyncio.get_running_loop().run_in_executor(None, self._packed, records)
        return HttpResponse(200, [(b"Content-Type", b"application/octet-stream")], body)

    def _packed(self, records: Sequence[StoreRecord]) -> bytes:
        return snapshot_file.pack_records(sealed(record, self._sealing) for record in records)


def sealed(record: StoreRecord, sealing: Sealing) -> SnapshotRecord:
    """The record as stored: data that is encrypted on disk is also encrypted in a snapshot."""
    value = sealing.to_disk(record.key, record.value)
    return snapshot_file.SnapshotRecord(
        record.key, value, record.create_revision, record.mod_revision, record.expires
    )


def _json(status: int, value: Any) -> HttpResponse:
    return HttpResponse(
        status, [(b"Content-Type", b"application/json")], orjson.dumps(value) + b"\n"
    )
