"""Moves the objects of a stopped cluster between its file, an etcd, and an etcd of its own, and
verifies the result.

Objects keep everything but their resourceVersion: etcd assigns revisions itself, so those are new
there, and higher than all before, so that clients with an older one list again. From etcd to a file,
revisions stay, but for objects that share theirs with another one.
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
from transom.cluster.data.cluster_records import (
    all_records,
    distinct_revisions,
    portable_snapshot,
    value_at_revision,
)
from transom.cluster.data.etcd_data import (
    etcd_of_stopped_cluster,
    read_records,
    verify_records,
    write_records,
)
from transom.cluster.ha import layout
from transom.kit.lazy_dataclass import dataclass
from transom.kit.user_errors import EXIT_USAGE, UserError
from transom.node.settings import name_option
from transom.node.spec import add_control_planes
from transom.store import disk
from transom.store.api import StoreError, StoreRecord
from transom.store.etcd.client import (
    EtcdAddress,
    EtcdAddressError,
    EtcdClient,
    address_without_password,
    parse_etcd_address,
)
from transom.store.etcd.revisions import advance_revision
from transom.store.rows import Ledger, LedgerWriter, StoredRow
from transom.store.sealing import Sealing
from transom.store.sqlite import SqliteStore

SQLITE = "sqlite"
OWN_ETCD = ""  # members that the cluster starts itself
_KEPT = "before-migration"

ReportProgress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Contents:
    records: list[StoreRecord]
    revision: int


def migrate_cluster(
    config: ClusterConfig,
    target: str,
    report_progress: ReportProgress,
    servers: int | None = None,
) -> dict[str, Any]:
    """`target` is an address of etcd, SQLITE or OWN_ETCD; `servers` is the new number of API servers.
    Returns the number of objects by resource, and their newest revision in the new store. The old
    data stays where it was, until the new one is verified and after.
    """
    moved = _target_config(config, target, servers)
    try:
        lock = daemon.ClusterLock(config)
    except UserError as running:
        raise UserError(
            f"cluster {config.name!r} is running",
            f"stop it first: transom down{name_option(config.name)}",
        ) from running
    try:
        return asyncio.run(_migrate(config, moved, report_progress))
    except StoreError as problem:
        raise UserError(
            f"cannot migrate cluster {config.name!r}: {problem}",
            "the cluster still uses its former store",
        ) from problem
    finally:
        lock.release()


def _target_config(config: ClusterConfig, target: str, servers: int | None) -> ClusterConfig:
    """The configuration of the cluster with its new store; raises UserError."""
    wanted = config.servers if servers is None else servers
    if target == SQLITE:
        if servers is not None and servers > 1:
            raise UserError(
                "several API servers cannot share a file", "leave out --to sqlite", EXIT_USAGE
            )
        wanted = 0
    elif target == OWN_ETCD:
        if wanted < 2:
            raise UserError(
                "one API server has no etcd of its own",
                "use --to sqlite, or --to etcd://HOST:PORT",
                EXIT_USAGE,
            )
    else:
        try:
            parse_etcd_address(target)
        except EtcdAddressError as problem:
            raise UserError(
                f"--to: {problem}",
                "use etcd://HOST:PORT[,HOST:PORT...][/PREFIX], or sqlite",
                EXIT_USAGE,
            ) from problem
    if target == _place(config):
        raise UserError(
            f"cluster {config.name!r} already keeps its objects there",
            "change the number of its servers with transom up --servers" if config.store else "",
        )
    if not config.store and not config.database.exists():
        raise UserError(f"cluster {config.name!r} has no data yet")
    moved = replace(
        config,
        store="" if target == SQLITE else target,
        servers=0 if wanted == 1 else wanted,
        server_ports=(),
        etcd_ports=(),
        advertise_address=config.advertise_address if target != SQLITE else "",
    )
    return layout.choose_layout(moved) if moved.servers else moved


def _place(config: ClusterConfig) -> str:
    return OWN_ETCD if config.etcd_ports else config.store or SQLITE


async def _migrate(
    config: ClusterConfig, moved: ClusterConfig, report_progress: ReportProgress
) -> dict[str, Any]:
    sealing = protection.sealing(config)
    before = await _read(config, sealing)
    where = "etcd" if moved.store else str(moved.database)
    report_progress(f"writing {len(before.records)} objects to {where} ...")
    if moved.store:
        await _write_etcd(moved, sealing, before)
    else:
        before = _for_file(before)
        _write_file(moved, sealing, before)
    report_progress("verifying ...")
    after = await _read(moved, sealing)
    counts = verify_records(before.records, after.records, same_revisions=not moved.store)
    kept = _switch(config, moved)
    revision = max((record.mod_revision for record in after.records), default=0)
    return {
        "store": address_without_password(moved.store) or SQLITE,
        "servers": max(1, moved.servers),
        "objects": counts,
        "revision": revision,
        "kept": kept,
    }


def _switch(config: ClusterConfig, moved: ClusterConfig) -> str:
    """Makes the new store the one of the cluster; returns where the old data is."""
    nodes = configs.load_nodes(config)
    if nodes is not None and moved.servers:
        configs.save_nodes(config, add_control_planes(config, nodes, moved.servers))
    configs.save_config(moved)
    if not config.store:
        kept = disk.set_database_aside(config.database, _KEPT)
        for suffix in ("", "-wal"):
            with contextlib.suppress(FileNotFoundError):
                os.replace(f"{config.database}{suffix}", f"{kept}{suffix}")
        disk.forget_acknowledged(config.database)
        return str(kept)
    if config.etcd_ports and not moved.etcd_ports:
        return _set_etcd_aside(config)
    return address_without_password(config.store)


# ---- etcd ----


async def _read(config: ClusterConfig, sealing: Sealing) -> _Contents:
    if not config.store:
        return await _read_file(config, sealing)
    async with etcd_of_stopped_cluster(config, sealing) as store:
        records = read_records(store)
        return _Contents(records, store.revision)


async def _write_etcd(config: ClusterConfig, sealing: Sealing, contents: _Contents) -> None:
    if config.etcd_ports:
        _set_etcd_aside(config)
    address = parse_etcd_address(config.store)
    async with etcd_of_stopped_cluster(config, sealing) as store:
        if portable_snapshot(store.snapshot(), 0.0).count:
            raise UserError(
                "there are objects at this prefix of etcd already",
                "choose another prefix: etcd://HOST:PORT/PREFIX; or, if an interrupted migration left "
                f"them, delete them: etcdctl del --prefix {address.prefix}/",
            )
        await _advance(address, contents.revision)
        await write_records(store, config.release, contents.records, {})


async def _advance(address: EtcdAddress, revision: int) -> None:
    client = EtcdClient(address)
    try:
        await advance_revision(client, address.prefix, revision)
    finally:
        await client.close()


def _set_etcd_aside(config: ClusterConfig) -> str:
    """The data of members that the cluster does not use any more."""
    folder = layout.etcd_folder(config, 1).parent
    kept = disk.set_database_aside(folder, _KEPT)
    with contextlib.suppress(FileNotFoundError):
        os.replace(folder, kept)
    return str(kept)


# ---- the file ----


async def _read_file(config: ClusterConfig, sealing: Sealing) -> _Contents:
    store = SqliteStore(config.database, sealing=sealing, check=check_value)
    await store.start()
    try:
        if store.quarantined():
            raise UserError(
                f"{len(store.quarantined())} corrupt records are in quarantine",
                f"see transom doctor{name_option(config.name)}, then clear the quarantine",
            )
        return _Contents(list(all_records(store.snapshot())), store.revision)
    finally:
        await store.close()


def _for_file(contents: _Contents) -> _Contents:
    """With a revision of its own for each object."""
    moved = distinct_revisions(contents.records, contents.revision)
    records = [
        StoreRecord(
            record.key,
            value_at_revision(record.value, moved[record.key]),
            record.create_revision,
            moved[record.key],
            record.expires,
        )
        if record.key in moved
        else record
        for record in contents.records
    ]
    return _Contents(records, contents.revision + len(moved))


def _write_file(config: ClusterConfig, sealing: Sealing, contents: _Contents) -> None:
    ledger = Ledger(contents.revision, contents.revision)
    try:
        disk.write_new(config.database, _rows(contents.records, sealing), ledger, ())
    except disk.DamagedDatabase as problem:
        raise UserError(f"cannot write {config.database}: {problem}") from problem
    disk.swap_database(config.database, disk.set_database_aside(config.database, _KEPT))
    disk.forget_acknowledged(config.database)


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
