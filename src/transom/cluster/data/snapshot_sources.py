"""Where the records of a snapshot come from: a running cluster, or the data of a stopped one."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from transom.cluster import protection
from transom.cluster.config import ClusterConfig
from transom.kit.lazy import lazy_import
from transom.kit.user_errors import UserError
from transom.store.api import StoreError, StoreSnapshot
from transom.store.sealing import Sealing
from transom.store.snapshot_file import pack_records

if TYPE_CHECKING:
    from transom.cluster import probe as probes
    from transom.cluster.data import cluster_records, etcd_data
    from transom.cluster.endpoints import store_control
    from transom.store import sqlite
else:
    cluster_records = lazy_import("transom.cluster.data.cluster_records")
    etcd_data = lazy_import("transom.cluster.data.etcd_data")
    probes = lazy_import("transom.cluster.probe")
    sqlite = lazy_import("transom.store.sqlite")
    store_control = lazy_import("transom.cluster.endpoints.store_control")

BLOCK_RECORDS = 256


class SnapshotSource(Protocol):
    """Where the records of a snapshot come from."""

    def begin(self) -> dict[str, Any]:
        """id, revision, records"""

    def block(self, name: str, start: int) -> bytes | None:
        """Packed records from index `start`; None when the source no longer has the snapshot."""

    def end(self, name: str) -> None: ...


class RunningClusterSource:
    def __init__(self, config: ClusterConfig) -> None:
        self._root = store_control.ROOT
        self._unreachable = probes.ClusterUnreachable
        self._config = config
        try:
            self._probe = probes.ClusterProbe(config, timeout=30.0)
        except probes.ClusterUnreachable as error:
            raise UserError(str(error)) from error

    def begin(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._request("POST", f"{self._root}/snapshots", (201,)))
        return found

    def block(self, name: str, start: int) -> bytes | None:
        return self._request("GET", f"{self._root}/snapshots/{name}/{start}", (200, 404)) or None

    def end(self, name: str) -> None:
        self._request("DELETE", f"{self._root}/snapshots/{name}", (200, 404))

    def _request(self, method: str, path: str, expected: Sequence[int]) -> bytes:
        for attempt in range(5):
            try:
                status, body = self._probe.request(method, path)
                break
            except self._unreachable as error:
                if attempt == 4:
                    raise UserError(
                        f"cluster {self._config.name!r} does not respond: {error}",
                        "run the same command again to continue",
                    ) from error
                time.sleep(0.5 * (attempt + 1))
        if status not in expected:
            raise UserError(
                f"cluster {self._config.name!r} answered {status}: "
                f"{body[:200].decode(errors='replace')}"
            )
        return b"" if status == 404 else body


class StoppedData:
    """The data of a stopped cluster, values as they are sealed."""

    def __init__(self, snapshot: StoreSnapshot, sealing: Sealing) -> None:
        self._snapshot = snapshot
        self._sealing = sealing

    def begin(self) -> dict[str, Any]:
        return {"id": "", "revision": self._snapshot.revision, "records": self._snapshot.count}

    def block(self, name: str, start: int) -> bytes | None:
        return pack_records(
            store_control.sealed(record, self._sealing)
            for record in self._snapshot.records(start, BLOCK_RECORDS)
        )

    def end(self, name: str) -> None:
        """Nothing to release."""


def read_stopped_cluster(config: ClusterConfig) -> StoppedData:
    """The caller holds the cluster's lock."""
    sealing = protection.sealing(config)
    read = _read_etcd if config.store else _read_file
    try:
        return StoppedData(asyncio.run(read(config, sealing)), sealing)
    except StoreError as error:
        raise UserError(f"cannot read the data of cluster {config.name!r}: {error}") from error


async def _read_file(config: ClusterConfig, sealing: Sealing) -> StoreSnapshot:
    store = sqlite.SqliteStore(config.database, sealing=sealing)
    await store.start()
    found = store.snapshot()
    await store.close()
    return found


async def _read_etcd(config: ClusterConfig, sealing: Sealing) -> StoreSnapshot:
    async with etcd_data.etcd_of_stopped_cluster(config, sealing) as store:
        return cluster_records.portable_snapshot(store.snapshot(), time.time())
