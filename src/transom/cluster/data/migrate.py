"""Moves the objects of a stopped cluster between its file and an etcd, and verifies the result.

Objects keep everything but their resourceVersion: etcd assigns revisions itself, so those are new
there. From etcd to a file, revisions stay.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from transom.apiserver.core.integrity import check_value
from transom.cluster import config as configs
from transom.cluster import daemon, protection
from transom.cluster.config import ClusterConfig
from transom.cluster.data.cluster_records import all_records, portable_snapshot
from transom.cluster.data.etcd_data import read_etcd, verify_records, write_records
from transom.cluster.data.etcd_store import make_etcd_store
from transom.kit.user_errors import EXIT_USAGE, UserError
from transom.node.settings import name_option
from transom.store import disk
from transom.store.api import StoreError, StoreRecord
from transom.store.etcd.client import EtcdAddressError, parse_etcd_address
from transom.store.rows import Ledger, LedgerWriter, StoredRow
from transom.store.sealing import Sealing
from transom.store.sqlite import SqliteStore

SQLITE = "sqlite"

ReportProgress = Callable[[str], None]


def migrate_cluster(
    config: ClusterConfig, target: str, report_progress: ReportProgress
) -> dict[str, Any]:
    """Returns the number of objects by resource, and their newest revision in the new store. The old
    data stays where it was, until the new one is verified and after.
    """
    _check(config, target)
    try:
        lock = daemon.ClusterLock(config)
    except UserError as running:
        raise UserError(
            f"cluster {config.name!r} is running",
            f"stop it first: transom down{name_option(config.name)}",
        ) from running
    try:
        sealing = protection.sealing(config)
        if target == SQLITE:
            return asyncio.run(_to_sqlite(config, sealing, report_progress))
        return asyncio.run(_to_etcd(config, target, sealing, report_progress))
    except StoreError as problem:
        raise UserError(
            f"cannot migrate cluster {config.name!r}: {problem}",
            "the cluster still uses its former store",
        ) from problem
    finally:
        lock.release()


def _check(config: ClusterConfig, target: str) -> None:
    if config.servers:
        raise UserError(
            f"the API servers of cluster {config.name!r} have an etcd of their own",
            "save a snapshot, restore it as another cluster, and migrate that one",
        )
    if target != SQLITE:
        try:
            parse_etcd_address(target)
        except EtcdAddressError as problem:
            raise UserError(
                f"--to: {problem}",
                "use etcd://HOST:PORT[,HOST:PORT...][/PREFIX], or sqlite",
                EXIT_USAGE,
            ) from problem
    if target == (config.store or SQLITE):
        raise UserError(f"cluster {config.name!r} already keeps its objects there")
    if config.store and target != SQLITE:
        raise UserError(
            f"cluster {config.name!r} keeps its objects in another etcd",
            "migrate it to sqlite first",
        )
    if not config.store and not config.database.exists():
        raise UserError(f"cluster {config.name!r} has no data yet")


# ---- to etcd ----


async def _to_etcd(
    config: ClusterConfig, target: str, sealing: Sealing, report_progress: ReportProgress
) -> dict[str, Any]:
    records = await _read_file(config, sealing)
    report_progress(f"writing {len(records)} objects to etcd ...")
    store = make_etcd_store(parse_etcd_address(target), sealing)
    await store.start()
    try:
        if portable_snapshot(store.snapshot(), 0.0).count:
            raise UserError(
                "there are objects at this prefix of etcd already",
                "choose another prefix: etcd://HOST:PORT/PREFIX",
            )
        await write_records(store, records, {})
    finally:
        await store.close()
    report_progress("verifying ...")
    found = await read_etcd(target, sealing)
    revision = max((record.mod_revision for record in found), default=0)
    counts = verify_records(records, found, same_revisions=False)
    kept = disk.set_database_aside(config.database, "before-migration")
    configs.save_config(replace(config, store=target))
    for suffix in ("", "-wal"):
        with contextlib.suppress(FileNotFoundError):
            os.replace(f"{config.database}{suffix}", f"{kept}{suffix}")
    disk.forget_acknowledged(config.database)
    return {"store": target, "objects": counts, "revision": revision, "kept": str(kept)}


async def _read_file(config: ClusterConfig, sealing: Sealing) -> list[StoreRecord]:
    store = SqliteStore(config.database, sealing=sealing, check=check_value)
    await store.start()
    try:
        if store.quarantined():
            raise UserError(
                f"{len(store.quarantined())} corrupt records are in quarantine",
                f"see transom doctor{name_option(config.name)}, then clear the quarantine",
            )
        return list(all_records(store.snapshot()))
    finally:
        await store.close()


# ---- to a file ----


async def _to_sqlite(
    config: ClusterConfig, sealing: Sealing, report_progress: ReportProgress
) -> dict[str, Any]:
    store = make_etcd_store(parse_etcd_address(config.store), sealing)
    await store.start()
    revision = store.revision
    await store.close()
    records = await read_etcd(config.store, sealing)
    revision = max(revision, *(record.mod_revision for record in records))
    report_progress(f"writing {len(records)} objects to {config.database} ...")
    try:
        disk.write_new(config.database, _rows(records, sealing), Ledger(revision, revision), ())
    except disk.DamagedDatabase as problem:
        raise UserError(f"cannot write {config.database}: {problem}") from problem
    disk.swap_database(
        config.database, disk.set_database_aside(config.database, "before-migration")
    )
    disk.forget_acknowledged(config.database)
    report_progress("verifying ...")
    counts = verify_records(records, await _read_file(config, sealing), same_revisions=True)
    kept = config.store
    configs.save_config(replace(config, store="", advertise_address=""))
    return {"store": SQLITE, "objects": counts, "revision": revision, "kept": kept}


def _rows(records: Sequence[StoreRecord], sealing: Sealing) -> Iterator[StoredRow]:
    writer = LedgerWriter(Ledger())
    for record in sorted(records, key=lambda record: record.mod_revision):
        yield writer.add(
            record.mod_revision,
            record.key,
            record.create_revision,
            record.expires,
            sealing.to_disk(record.key, record.value),
        )
