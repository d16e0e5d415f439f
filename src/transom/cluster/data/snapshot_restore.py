"""Restores a snapshot as the same cluster or as another. Nothing is replaced before its replacement
is complete and on disk.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transom.cluster import config as configs
from transom.cluster import daemon, protection
from transom.cluster.config import ClusterConfig
from transom.cluster.data.snapshot_check import (
    CheckedSnapshot,
    check_snapshot,
    damaged_snapshot,
    snapshot_keys,
)
from transom.cluster.data.snapshot_records import with_distinct_revisions, without_tokens
from transom.cluster.data.snapshot_settings import machine_settings, nodes_of_snapshot
from transom.cluster.data.snapshot_sources import (
    StoppedData,
)
from transom.cluster.data.snapshots import (
    CONFIGURATION_FILES,
    ENCRYPTION_KEYS,
    ReportProgress,
    default_snapshot_file,
    key_fingerprint,
    make_private_folder,
    write_snapshot,
)
from transom.kit.files import sync_directory, write_atomic
from transom.kit.lazy import lazy_import
from transom.kit.user_errors import UserError
from transom.node.settings import clusters_dir
from transom.store.api import StoreError, StoreRecord, StoreSnapshot
from transom.store.rows import Ledger, LedgerWriter, StoredRow
from transom.store.sealing import Sealing
from transom.store.snapshot_file import (
    SnapshotDamaged,
    SnapshotRecord,
)

if TYPE_CHECKING:
    from transom.cluster.data import etcd_data
    from transom.store import disk
else:
    etcd_data = lazy_import("transom.cluster.data.etcd_data")
    disk = lazy_import("transom.store.disk")

# As etcd's documentation advises for a restore: more than a cluster writes between a snapshot and
# its restore.
REVISION_BUMP = 1_000_000_000


def restore_snapshot(
    path: Path,
    name: str,
    *,
    key_file: Path | None,
    replace_existing: bool,
    bump: int,
    report_progress: ReportProgress,
    trust_settings: bool = False,
) -> dict[str, Any]:
    """Restores the snapshot as the cluster `name`. An existing cluster keeps its configuration, and
    its keys unless the snapshot contains keys; its old data is kept beside the new. The cluster
    must be stopped. A new cluster gets settings that reach this machine only with
    `trust_settings`.
    """
    found = check_snapshot(path, key_file, report_progress, keep=True)
    name = name or str(found.reader.header.get("cluster", ""))
    existing = configs.load_config(configs.check_cluster_name(name))
    if existing is None:
        config = _configuration(found, name, key_file, clusters_dir() / name)
        given = config if key_file is None else dataclasses.replace(config, encryption_key_file="")
        _check_settings(found, given, trust_settings=trust_settings)
        return _restore_new(found, config, key_file, bump, report_progress)
    if not replace_existing:
        raise UserError(
            f"cluster {name!r} exists",
            "replace its data with --replace, or choose another name with --name",
        )
    restore = _restore_to_etcd if existing.store else _restore_over
    lock = daemon.ClusterLock(existing)
    try:
        return restore(found, existing, key_file, bump, report_progress)
    finally:
        lock.release()


def _restore_new(
    found: CheckedSnapshot,
    config: ClusterConfig,
    key_file: Path | None,
    bump: int,
    report_progress: ReportProgress,
) -> dict[str, Any]:
    """Builds everything in a temporary folder and then renames it to the cluster's folder."""
    name, final = config.name, config.state
    work = clusters_dir() / f".{name}.restoring"
    shutil.rmtree(work, ignore_errors=True)
    if final.exists():
        raise UserError(
            f"{final} exists and is not a cluster",
            "move it away, or choose another name with --name",
        )
    work.mkdir(mode=0o700, parents=True)
    files = found.reader.files
    _write_keys(found, work)
    for other in CONFIGURATION_FILES[1:]:
        if other in files:
            write_atomic(work / other, files[other][1], 0o600)
    write_atomic(
        work / "cluster.json",
        json.dumps(dataclasses.asdict(config), indent=2).encode() + b"\n",
        0o600,
    )
    report = _write_data(
        found,
        work / "store.db",
        key_file,
        has_same_keys="pki/sa.key" in files,
        bump=bump,
        report_progress=report_progress,
    )
    os.replace(work / "store.db.complete", work / "store.db")
    sync_directory(work)
    os.replace(work, final)
    sync_directory(final.parent)
    return report | {"cluster": name, "kept": None}


def _configuration(
    found: CheckedSnapshot, name: str, key_file: Path | None, state: Path
) -> ClusterConfig:
    try:
        raw = json.loads(found.reader.files["cluster.json"][1])
        config = configs.config_from_document(raw, found.reader.path)
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(
            f"the snapshot has no usable configuration: {error}",
            "restore it into an existing cluster",
        ) from error
    keys = (
        str(key_file)
        if key_file is not None
        else str(state / ENCRYPTION_KEYS)
        if ENCRYPTION_KEYS in found.reader.files
        else ""
    )
    if config.encrypt and not keys and not config.encryption_key_file:
        raise UserError(
            "the snapshot is of an encrypted cluster",
            "pass its keys with --encryption-key-file FILE",
        )
    return dataclasses.replace(
        config,
        name=name,
        home="",
        port=0,
        store="",  # the data of the snapshot is a file, and the etcd may still be in use
        servers=0,
        server_ports=(),
        etcd_ports=(),
        advertise_address="",
        kubeconfig="",
        encryption_key_file=keys or config.encryption_key_file,
    )


def _check_settings(found: CheckedSnapshot, config: ClusterConfig, *, trust_settings: bool) -> None:
    """The values of a file that another user may have written: they must be possible, and trusted
    if they reach this machine.
    """
    path = found.reader.path
    _, document = found.reader.files.get("nodes.json", (0, b"[]"))
    reaching = machine_settings(config, nodes_of_snapshot(config, document, path))
    if reaching and not trust_settings:
        raise UserError(
            f"settings of the snapshot reach this machine: {'; '.join(reaching[:5])}"
            + (f"; and {len(reaching) - 5} more" if len(reaching) > 5 else ""),
            "if you trust the file, use --trust-settings; for its objects only, restore it with "
            "--replace into a new cluster",
        )


def _write_keys(found: CheckedSnapshot, state: Path) -> None:
    for name, (mode, contents) in found.reader.files.items():
        if name.startswith("pki/") and "/" not in name[4:] and name[4:] not in ("", "..", "."):
            (state / "pki").mkdir(mode=0o700, exist_ok=True)
            readable = 0o600 if name.endswith(".key") else 0o644
            write_atomic(state / "pki" / name[4:], contents, mode & readable)
        elif name == ENCRYPTION_KEYS:
            write_atomic(state / ENCRYPTION_KEYS, contents, 0o600)


def _restore_over(
    found: CheckedSnapshot,
    config: ClusterConfig,
    key_file: Path | None,
    bump: int,
    report_progress: ReportProgress,
) -> dict[str, Any]:
    has_keys = "pki/sa.key" in found.reader.files
    same = has_keys or found.reader.header.get("serviceAccountKey") == key_fingerprint(
        config.pki / "sa.pub"
    )
    report = _write_data(
        found,
        config.database,
        key_file or _key_file(config),
        has_same_keys=same,
        bump=bump,
        report_progress=report_progress,
    )
    kept = disk.set_database_aside(config.database, "before-restore")
    if has_keys:
        _replace_keys(found, config, kept.name.replace("store.db", "pki", 1))
    disk.swap_database(config.database, kept)
    disk.forget_acknowledged(config.database)
    return report | {"cluster": config.name, "kept": str(kept) if kept.exists() else None}


def _replace_keys(found: CheckedSnapshot, config: ClusterConfig, aside: str) -> None:
    """The former keys are kept in the folder `aside`."""
    work = config.state / ".restoring"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(mode=0o700)
    _write_keys(found, work)
    if config.pki.exists():
        os.replace(config.pki, config.state / aside)
    os.replace(work / "pki", config.pki)
    if (work / ENCRYPTION_KEYS).exists():
        os.replace(work / ENCRYPTION_KEYS, config.state / ENCRYPTION_KEYS)
        configs.save_config(
            dataclasses.replace(config, encryption_key_file=str(config.state / ENCRYPTION_KEYS))
        )
    shutil.rmtree(work)


def _restore_to_etcd(
    found: CheckedSnapshot,
    config: ClusterConfig,
    key_file: Path | None,
    bump: int,
    report_progress: ReportProgress,
) -> dict[str, Any]:
    """etcd assigns the revisions, and they go on: `bump` is not needed. The former objects are saved
    as a snapshot first.
    """
    if "pki/sa.key" in found.reader.files:
        raise UserError(
            "the snapshot contains keys, which the API servers on this etcd share",
            "restore it as another cluster with --name, or save one without --with-keys",
        )
    same = found.reader.header.get("serviceAccountKey") == key_fingerprint(config.pki / "sa.pub")
    records, tokens = _readable_records(found, key_file or _key_file(config), has_same_keys=same)
    sealing = protection.sealing(config)
    kept = default_snapshot_file(config.name, "before-restore")

    def keep(snapshot: StoreSnapshot) -> None:
        make_private_folder(kept.parent)
        source = StoppedData(snapshot, sealing)
        write_snapshot(config, source, kept, with_keys=False, report_progress=report_progress)
        report_progress(f"writing {len(records)} objects to etcd ...")

    try:
        revision = asyncio.run(etcd_data.replace_records(config, sealing, records, keep))
    except StoreError as problem:
        raise UserError(
            f"cannot restore to etcd: {problem}", "run the same command again to continue"
        ) from problem
    return {
        "records": len(records),
        "counts": found.reader.trailer["counts"],
        "revision": revision,
        "tokensReissued": tokens,
        "cluster": config.name,
        "kept": str(kept),
    }


def _readable_records(
    found: CheckedSnapshot, key_file: Path | None, *, has_same_keys: bool
) -> tuple[list[StoreRecord], int]:
    """The records without encryption, and how many tokens were left out."""
    sealing = _sealing_of(found, key_file)
    records, tokens = found.records, 0
    if not has_same_keys:
        records, tokens = without_tokens(records, sealing)
    plain = [
        StoreRecord(
            one.key,
            sealing.from_disk(one.key, one.value),
            one.create_revision,
            one.mod_revision,
            one.expires,
        )
        for one in records
    ]
    return plain, tokens


def _sealing_of(found: CheckedSnapshot, key_file: Path | None) -> Sealing:
    ring = snapshot_keys(found.reader, key_file)
    if found.unread and ring is None:
        raise UserError(
            f"{found.unread} records of the snapshot are encrypted, and there is no key",
            "pass its keys with --encryption-key-file FILE",
        )
    return Sealing(ring)


def _key_file(config: ClusterConfig) -> Path | None:
    return Path(config.encryption_key_file) if config.encryption_key_file else None


def _write_data(
    found: CheckedSnapshot,
    database: Path,
    key_file: Path | None,
    *,
    has_same_keys: bool,
    bump: int,
    report_progress: ReportProgress,
) -> dict[str, Any]:
    """Writes a complete store beside `database`. Its revision is higher than any that a client may
    have seen, and everything before counts as compacted, so clients with older resourceVersions
    must list again.
    """
    sealing = _sealing_of(found, key_file)
    revision = max(int(found.reader.header["revision"]), _revision_of(database)) + bump
    tokens = 0
    records = found.records
    for key, count in Counter(record.key for record in records).items():
        if count > 1:
            raise damaged_snapshot(found.reader.path, SnapshotDamaged(f"{key} is there twice"))
    records, moved = with_distinct_revisions(records, revision - bump, sealing)
    revision += moved
    if not has_same_keys:
        records, tokens = without_tokens(records, sealing)
    if len(records) > 20_000:
        report_progress(f"writing {len(records)} records ...")
    try:
        disk.write_new(database, _rows(records), Ledger(revision, revision), ())
    except (StoreError, disk.DamagedDatabase) as error:
        raise UserError(f"cannot write {database}: {error}") from error
    return {
        "records": len(records),
        "counts": found.reader.trailer["counts"],
        "revision": revision,
        "tokensReissued": tokens,
    }


def _rows(records: Iterable[SnapshotRecord]) -> Iterator[StoredRow]:
    writer = LedgerWriter(Ledger())
    for record in records:
        yield writer.add(
            record.mod_revision, record.key, record.create_revision, record.expires, record.value
        )


def _revision_of(database: Path) -> int:
    """The revision of the replaced data, if it is readable."""
    if not database.exists():
        return 0
    try:
        connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
        try:
            row = connection.execute("SELECT value FROM meta WHERE name = 'ledger'").fetchone()
            newest = connection.execute("SELECT max(revision) FROM log").fetchone()[0] or 0
        finally:
            connection.close()
    except sqlite3.Error:
        return 0
    ledger = Ledger.unpack(row[0]) if row is not None else None
    return max(int(newest), ledger.revision if ledger is not None else 0)
