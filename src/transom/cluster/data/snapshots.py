"""Snapshots of a cluster: save one (running or stopped), verify it, and restore it as the same
cluster or as another.

A snapshot contains the objects at one revision, the cluster's configuration and, on request, its
keys. Nothing is replaced before its replacement is complete and on disk.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import os
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from transom import __version__
from transom.cluster import config as configs
from transom.cluster import daemon, protection
from transom.cluster.config import ClusterConfig
from transom.cluster.data.snapshot_records import with_distinct_revisions, without_tokens
from transom.cluster.data.snapshot_sources import (
    BLOCK_RECORDS,
    RunningCluster,
    SnapshotSource,
    StoppedData,
    read_stopped_cluster,
)
from transom.kit import keyring
from transom.kit.files import sync_directory, write_atomic
from transom.kit.keyring import KeyFileError, KeyRing
from transom.kit.lazy import lazy_import
from transom.kit.user_errors import UserError
from transom.node.settings import clusters_dir, name_option
from transom.store.api import StoreError, StoreRecord, StoreSnapshot
from transom.store.mvcc import Row
from transom.store.rows import Ledger, LedgerWriter, StoredRow
from transom.store.sealing import Sealing
from transom.store.snapshot_file import (
    SnapshotDamaged,
    SnapshotReader,
    SnapshotRecord,
    SnapshotWriter,
    pack_records,
    read_summary,
)

if TYPE_CHECKING:
    from transom.apiserver.core import integrity
    from transom.cluster.data import etcd_data
    from transom.store import disk
    from transom.store.etcd import client as etcd_client
else:
    integrity = lazy_import("transom.apiserver.core.integrity")
    etcd_data = lazy_import("transom.cluster.data.etcd_data")
    disk = lazy_import("transom.store.disk")
    etcd_client = lazy_import("transom.store.etcd.client")

SUFFIX = ".snapshot"
EXIT_DAMAGED = 3
# As etcd's documentation advises for a restore: more than a cluster writes between a snapshot and
# its restore.
REVISION_BUMP = 1_000_000_000
_CONFIGURATION = ("cluster.json", "nodes.json", "scheduler.yaml")
_KEYS = "encryption.keys"

_SHOWN = ("cluster", "release", "transom", "created", "revision", "encrypted", "withKeys")

ReportProgress = Callable[[str], None]


def snapshots_folder() -> Path:
    """The folder for snapshots; separate from the clusters, so that snapshots survive their
    deletion.
    """
    return clusters_dir() / "snapshots"


def default_snapshot_file(name: str, why: str = "") -> Path:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return snapshots_folder() / f"{name}-{why + '-' if why else ''}{stamp}{SUFFIX}"


class SnapshotProgress:
    """Reports progress about once a second, starting after one second."""

    def __init__(self, report_progress: ReportProgress, what: str, total: int) -> None:
        self._report = report_progress
        self._what = what
        self._total = total
        self._next = time.monotonic() + 1.0

    def at(self, count: int) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + 1.0
            of = f" of {self._total}" if self._total else ""
            self._report(f"{self._what} {count}{of} records ...")


# ---- saving
# --------------------------------------------------------------------------------------------------


def save_snapshot(
    config: ClusterConfig, target: Path, *, with_keys: bool, report_progress: ReportProgress
) -> dict[str, Any]:
    """Writes a snapshot of the cluster to `target`; returns its description."""
    if target.is_dir():
        target = target / default_snapshot_file(config.name).name
    _make_folder(target.parent)
    if daemon.running_pid(config) is not None:
        return _save(
            config,
            RunningCluster(config),
            target,
            with_keys=with_keys,
            report_progress=report_progress,
        )
    if not config.store and not config.database.exists():
        hint = f"start it with: transom up{name_option(config.name)}"
        raise UserError(f"cluster {config.name!r} has no data yet", hint)
    lock = daemon.ClusterLock(config)
    try:
        return _save(
            config,
            read_stopped_cluster(config),
            target,
            with_keys=with_keys,
            report_progress=report_progress,
        )
    finally:
        lock.release()


def _make_folder(path: Path) -> None:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def _save(
    config: ClusterConfig,
    source: SnapshotSource,
    target: Path,
    *,
    with_keys: bool,
    report_progress: ReportProgress,
) -> dict[str, Any]:
    resumed = _resume(source, target, with_keys=with_keys)
    if resumed is not None:
        writer, header, block = resumed
        report_progress(
            f"continuing an interrupted snapshot after {writer.records} of "
            f"{header['records']} records"
        )
        writer.add_records(block)
    else:
        began = source.begin()
        header = _header(config, with_keys=with_keys) | began
        writer = SnapshotWriter(target, header)
        for name, mode, contents in _files(config, with_keys=with_keys):
            writer.add_file(name, mode, contents)
    progress = SnapshotProgress(report_progress, "saved", header["records"])
    try:
        while writer.records < header["records"]:
            block_or_gone = source.block(header["id"], writer.records)
            if not block_or_gone:
                raise UserError(
                    "the cluster was restarted while the snapshot was saved",
                    "run the same command again",
                )
            writer.add_records(block_or_gone)
            progress.at(writer.records)
        trailer = writer.finish()
    except BaseException:
        writer.close()
        raise
    source.end(header["id"])
    return snapshot_summary(target, header, trailer)


def _resume(
    source: SnapshotSource, target: Path, *, with_keys: bool
) -> tuple[SnapshotWriter, dict[str, Any], bytes] | None:
    """Resumes an interrupted save if the cluster still has its revision."""
    found = SnapshotWriter.resume(target)
    if found is None:
        return None
    writer, header = found
    if (
        header.get("id")
        and header.get("withKeys") == with_keys
        and writer.records < header.get("records", 0)
    ):
        block = source.block(str(header["id"]), writer.records)
        if block:
            return writer, header, block
    writer.close()
    return None


def _header(config: ClusterConfig, *, with_keys: bool) -> dict[str, Any]:
    return {
        "cluster": config.name,
        "release": config.release,
        "transom": __version__,
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "encrypted": config.encrypt,
        "withKeys": with_keys,
        "serviceAccountKey": _fingerprint(config.pki / "sa.pub"),
    }


def _fingerprint(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return ""


def _files(config: ClusterConfig, *, with_keys: bool) -> Iterator[tuple[str, int, bytes]]:
    for name in _CONFIGURATION:
        path = config.state / name
        if path.exists():
            yield name, 0o600, _without_store_password(path.read_bytes())
    if with_keys:
        for path in sorted(config.pki.iterdir()):
            if path.is_file() and not path.name.startswith("."):
                yield f"pki/{path.name}", path.stat().st_mode & 0o777, path.read_bytes()
        if config.encryption_key_file:
            yield _KEYS, 0o600, Path(config.encryption_key_file).read_bytes()


def _without_store_password(contents: bytes) -> bytes:
    """A snapshot has no credentials of the etcd, which a restore does not need."""
    if b'"store": "etcd' not in contents:
        return contents
    document = json.loads(contents)
    document["store"] = etcd_client.address_without_password(document["store"])
    return json.dumps(document, indent=2).encode() + b"\n"


def snapshot_summary(path: Path, header: dict[str, Any], trailer: dict[str, Any]) -> dict[str, Any]:
    return {
        "file": str(path),
        "bytes": path.stat().st_size,
        **{name: header.get(name) for name in _SHOWN},
        "records": trailer.get("records"),
        "counts": trailer.get("counts"),
        "sha256": trailer.get("sha256"),
    }


def before_upgrade(config: ClusterConfig) -> Callable[[Sequence[Row], int, int], None]:
    """Saves a snapshot before the store upgrades a file of an older format."""

    def write(rows: Sequence[Row], revision: int, version: int) -> None:
        newest: dict[str, Row] = {row[1]: row for row in rows}
        live = [
            SnapshotRecord(key, value, created, at, expires)
            for at, key, value, created, expires in newest.values()
            if value is not None
        ]
        target = default_snapshot_file(config.name, f"before-upgrade-of-format-{version}")
        try:
            _make_folder(target.parent)
            header = _header(config, with_keys=False) | {
                "id": "",
                "revision": revision,
                "records": len(live),
            }
            writer = SnapshotWriter(target, header)
            for name, mode, contents in _files(config, with_keys=False):
                writer.add_file(name, mode, contents)
            for start in range(0, len(live), BLOCK_RECORDS):
                writer.add_records(pack_records(live[start : start + BLOCK_RECORDS]))
            writer.finish()
        except OSError as error:
            raise StoreError(
                f"cannot write the snapshot {target} before the upgrade: {error.strerror}"
            ) from error

    return write


# ---- reading
# --------------------------------------------------------------------------------------------------


def list_snapshots() -> list[dict[str, Any]]:
    """The snapshots of this user, oldest first. An unreadable one has a `problem`."""
    out: list[dict[str, Any]] = []
    for path in sorted(snapshots_folder().glob(f"*{SUFFIX}")):
        try:
            out.append(snapshot_summary(path, *read_summary(path)))
        except (SnapshotDamaged, OSError) as problem:
            out.append({"file": str(path), "bytes": path.stat().st_size, "problem": str(problem)})
    return sorted(out, key=lambda row: (row.get("created") or "", row["file"]))


class CheckedSnapshot(NamedTuple):
    reader: SnapshotReader
    records: list[SnapshotRecord]
    problems: list[str]
    unread: int  # encrypted records without a key


def damaged_snapshot(path: Path, problem: Exception) -> UserError:
    return UserError(
        f"{path} is damaged: {problem}", "use another snapshot: transom snapshot list", EXIT_DAMAGED
    )


def check_snapshot(
    path: Path, key_file: Path | None, report_progress: ReportProgress, *, keep: bool
) -> CheckedSnapshot:
    """Reads a whole snapshot and checks digests, checksums, and that every object decodes."""
    reader = SnapshotReader(path)
    records: list[SnapshotRecord] = []
    problems: list[str] = []
    unread = 0
    sealing: Sealing | None = None
    progress = SnapshotProgress(report_progress, "verified", 0)
    try:
        for count, record in enumerate(reader, 1):
            if sealing is None:
                sealing = Sealing(_ring(reader, key_file))
            progress.at(count)
            if keep:
                records.append(record)
            try:
                value = sealing.from_disk(record.key, record.value)
            except StoreError as error:
                if sealing.active:
                    problems.append(str(error))
                unread += 1
                continue
            problem = integrity.check_value(record.key, record.mod_revision, value)
            if problem:
                problems.append(f"{record.key}: {problem}")
    except SnapshotDamaged as damage:
        raise damaged_snapshot(path, damage) from damage
    return CheckedSnapshot(reader, records, problems, unread)


def _ring(reader: SnapshotReader, key_file: Path | None) -> KeyRing | None:
    """The given keys, otherwise those in the snapshot, otherwise those of the cluster it was taken
    from.
    """
    try:
        if key_file is not None:
            return keyring.load_key_file(key_file)
        if _KEYS in reader.files:
            return keyring.parse_key_file(reader.files[_KEYS][1])
        config = configs.load_config(str(reader.header.get("cluster", "")))
        if (
            config is not None
            and config.encryption_key_file
            and Path(config.encryption_key_file).exists()
        ):
            return keyring.load_key_file(Path(config.encryption_key_file))
    except KeyFileError as error:
        raise UserError(str(error), error.hint) from error
    return None


def verify_snapshot(
    path: Path, key_file: Path | None, report_progress: ReportProgress
) -> dict[str, Any]:
    found = check_snapshot(path, key_file, report_progress, keep=False)
    if found.problems:
        more = f" and {len(found.problems) - 1} more" if len(found.problems) > 1 else ""
        raise UserError(
            f"{path} holds objects that do not decode: {found.problems[0]}{more}",
            "a restore moves them to quarantine",
            EXIT_DAMAGED,
        )
    return snapshot_summary(path, found.reader.header, found.reader.trailer) | {
        "encryptedNotDecoded": found.unread
    }


# ---- restoring
# --------------------------------------------------------------------------------------------------


def restore_snapshot(
    path: Path,
    name: str,
    *,
    key_file: Path | None,
    replace_existing: bool,
    bump: int,
    report_progress: ReportProgress,
) -> dict[str, Any]:
    """Restores the snapshot as the cluster `name`. An existing cluster keeps its configuration, and
    its keys unless the snapshot contains keys; its old data is kept beside the new. The cluster
    must be stopped.
    """
    found = check_snapshot(path, key_file, report_progress, keep=True)
    name = name or str(found.reader.header.get("cluster", ""))
    existing = configs.load_config(configs.check_cluster_name(name))
    if existing is None:
        return _restore_new(found, name, key_file, bump, report_progress)
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
    name: str,
    key_file: Path | None,
    bump: int,
    report_progress: ReportProgress,
) -> dict[str, Any]:
    """Builds everything in a temporary folder and then renames it to the cluster's folder."""
    final = clusters_dir() / name
    work = clusters_dir() / f".{name}.restoring"
    shutil.rmtree(work, ignore_errors=True)
    if final.exists():
        raise UserError(
            f"{final} exists and is not a cluster",
            "move it away, or choose another name with --name",
        )
    work.mkdir(mode=0o700, parents=True)
    files = found.reader.files
    config = _configuration(found, name, key_file, final)
    _write_keys(found, work)
    for other in _CONFIGURATION[1:]:
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
        else str(state / _KEYS)
        if _KEYS in found.reader.files
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


def _write_keys(found: CheckedSnapshot, state: Path) -> None:
    for name, (mode, contents) in found.reader.files.items():
        if name.startswith("pki/") and "/" not in name[4:] and name[4:] not in ("", "..", "."):
            (state / "pki").mkdir(mode=0o700, exist_ok=True)
            write_atomic(state / "pki" / name[4:], contents, mode & 0o777)
        elif name == _KEYS:
            write_atomic(state / _KEYS, contents, 0o600)


def _restore_over(
    found: CheckedSnapshot,
    config: ClusterConfig,
    key_file: Path | None,
    bump: int,
    report_progress: ReportProgress,
) -> dict[str, Any]:
    has_keys = "pki/sa.key" in found.reader.files
    same = has_keys or found.reader.header.get("serviceAccountKey") == _fingerprint(
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
    if (work / _KEYS).exists():
        os.replace(work / _KEYS, config.state / _KEYS)
        configs.save_config(
            dataclasses.replace(config, encryption_key_file=str(config.state / _KEYS))
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
    same = found.reader.header.get("serviceAccountKey") == _fingerprint(config.pki / "sa.pub")
    records, tokens = _readable_records(found, key_file or _key_file(config), has_same_keys=same)
    sealing = protection.sealing(config)
    kept = default_snapshot_file(config.name, "before-restore")

    def keep(snapshot: StoreSnapshot) -> None:
        _make_folder(kept.parent)
        source = StoppedData(snapshot, sealing)
        _save(config, source, kept, with_keys=False, report_progress=report_progress)
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
    ring = _ring(found.reader, key_file)
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
