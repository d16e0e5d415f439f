"""The objects that a stopped cluster keeps in etcd: read, written and compared, for migrations and
snapshots.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import orjson

from transom.apiserver.core.registry_layout import RegistryLayout
from transom.cluster.config import ClusterConfig
from transom.cluster.data.cluster_records import all_records, custom_kinds, portable_snapshot
from transom.cluster.data.etcd_store import make_etcd_store
from transom.cluster.ha import layout
from transom.cluster.ha.members import MEMBER_STOP_SECONDS, make_members
from transom.kit.user_errors import UserError
from transom.machinery.releases import parse_release
from transom.store.api import PreconditionFailed, StoreRecord, StoreSnapshot, StoreUnavailable
from transom.store.etcd.client import parse_etcd_address
from transom.store.etcd.store import EtcdStore
from transom.store.sealing import Sealing

_AT_ONCE = 64
_START_SECONDS = 60.0


@contextlib.asynccontextmanager
async def etcd_of_stopped_cluster(
    config: ClusterConfig, sealing: Sealing
) -> AsyncIterator[EtcdStore]:
    """The store of the cluster. If it has an etcd of its own, that runs meanwhile."""
    if config.etcd_ports:
        layout.ensure_etcd_pki(config)
    members = make_members(config)
    try:
        for member in members:
            await member.start()
        store = await _start_store(config, sealing, _START_SECONDS if members else 0.0)
        try:
            yield store
        finally:
            await store.close()
    finally:
        await asyncio.gather(*(member.stop(MEMBER_STOP_SECONDS) for member in members))


async def _start_store(config: ClusterConfig, sealing: Sealing, seconds: float) -> EtcdStore:
    """Members that have just started elect their leader first."""
    deadline = time.monotonic() + seconds
    while True:
        store = make_etcd_store(parse_etcd_address(config.store), sealing, config.release)
        try:
            await store.start()
            return store
        except StoreUnavailable:
            if time.monotonic() > deadline:
                raise


def read_records(store: EtcdStore) -> list[StoreRecord]:
    """All objects; raises UserError if a value cannot be read."""
    corrupt = [one.key for one in store.quarantined()]
    if corrupt:
        raise UserError(f"{len(corrupt)} values of etcd cannot be read: {', '.join(corrupt[:5])}")
    return list(all_records(portable_snapshot(store.snapshot(), time.time())))


async def write_records(
    store: EtcdStore,
    release: str,
    records: Sequence[StoreRecord],
    current: Mapping[str, StoreRecord],
) -> None:
    """Writes the records in the order of their revisions; `current` are those that may be replaced.
    Those with the same content stay as they are.
    """
    kinds, registry = custom_kinds(records), RegistryLayout(parse_release(release))
    now = time.time()

    async def write(record: StoreRecord) -> None:
        before = current.get(record.key)
        if before is not None and content_of(before, False) == content_of(record, False):
            return
        value = registry.registry_value(record.key, record.value, kinds)
        ttl = None if record.expires is None else max(1.0, record.expires - now)
        expected = 0 if before is None else before.mod_revision
        await store.put(record.key, lambda _revision: value, expected=expected, ttl=ttl)

    ordered = sorted(records, key=lambda record: record.mod_revision)
    try:
        for start in range(0, len(ordered), _AT_ONCE):
            await asyncio.gather(*(write(record) for record in ordered[start : start + _AT_ONCE]))
    except PreconditionFailed as problem:
        raise UserError("another process writes to this prefix of etcd") from problem
    except ValueError as problem:
        raise UserError(f"an object cannot be written: {problem}") from problem


async def replace_records(
    config: ClusterConfig,
    sealing: Sealing,
    records: Sequence[StoreRecord],
    keep: Callable[[StoreSnapshot], None],
) -> int:
    """Makes these the objects of the cluster, and returns the revision. Revisions go on, so that
    clients see an ordinary change. `keep` receives the objects that are replaced.
    """
    async with etcd_of_stopped_cluster(config, sealing) as store:
        before = portable_snapshot(store.snapshot(), time.time())
        keep(before)
        current = {record.key: record for record in all_records(before)}
        wanted = {record.key for record in records}
        gone = [record for key, record in current.items() if key not in wanted]
        for start in range(0, len(gone), _AT_ONCE):
            chunk = gone[start : start + _AT_ONCE]
            await asyncio.gather(
                *(store.delete(one.key, expected=one.mod_revision) for one in chunk)
            )
        await write_records(store, config.release, records, current)
        await store.sync()
        verify_records(records, read_records(store), same_revisions=False)
        return store.revision


def verify_records(
    before: Sequence[StoreRecord], after: Sequence[StoreRecord], *, same_revisions: bool
) -> dict[str, int]:
    """Compares every object; returns how many there are of each resource. Events may expire
    meanwhile.
    """
    found = {record.key: record for record in after}
    for record in before:
        other = found.pop(record.key, None)
        if other is None:
            if record.expires is None:
                raise UserError(f"{record.key} is missing in the new store")
            continue
        if content_of(record, same_revisions) != content_of(other, same_revisions):
            raise UserError(f"{record.key} is not the same in the new store")
    if found:
        raise UserError(f"{next(iter(found))} is in the new store, and was not in the old one")
    return dict(sorted(Counter(record.key.partition("/")[0] for record in after).items()))


def content_of(record: StoreRecord, with_revision: bool) -> Any:
    obj = orjson.loads(record.value)
    obj.pop("kind", None)
    if not with_revision:
        obj["metadata"].pop("resourceVersion", None)
        return obj
    return obj, record.mod_revision, record.create_revision
