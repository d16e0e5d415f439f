"""Snapshots of a cluster: where they are, and how one is saved while the cluster runs or not.

A snapshot contains the objects at one revision, the cluster's configuration and, on request, its
keys.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transom import __version__
from transom.cluster import daemon
from transom.cluster.config import ClusterConfig
from transom.cluster.data.snapshot_sources import (
    BLOCK_RECORDS,
    RunningClusterSource,
    SnapshotSource,
    read_stopped_cluster,
)
from transom.kit.lazy import lazy_import
from transom.kit.user_errors import UserError
from transom.node.settings import clusters_dir, name_option
from transom.store.api import StoreError
from transom.store.mvcc import Row
from transom.store.snapshot_file import (
    SnapshotDamaged,
    SnapshotRecord,
    SnapshotWriter,
    pack_records,
    read_summary,
)

if TYPE_CHECKING:
    from transom.store.etcd import client as etcd_client
else:
    etcd_client = lazy_import("transom.store.etcd.client")

SUFFIX = ".snapshot"
CONFIGURATION_FILES = ("cluster.json", "nodes.json", "scheduler.yaml")
ENCRYPTION_KEYS = "encryption.keys"

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


def save_snapshot(
    config: ClusterConfig, target: Path, *, with_keys: bool, report_progress: ReportProgress
) -> dict[str, Any]:
    """Writes a snapshot of the cluster to `target`; returns its description."""
    if target.is_dir():
        target = target / default_snapshot_file(config.name).name
    make_private_folder(target.parent)
    if daemon.running_pid(config) is not None:
        return write_snapshot(
            config,
            RunningClusterSource(config),
            target,
            with_keys=with_keys,
            report_progress=report_progress,
        )
    if not config.store and not config.database.exists():
        hint = f"start it with: transom up{name_option(config.name)}"
        raise UserError(f"cluster {config.name!r} has no data yet", hint)
    lock = daemon.ClusterLock(config)
    try:
        return write_snapshot(
            config,
            read_stopped_cluster(config),
            target,
            with_keys=with_keys,
            report_progress=report_progress,
        )
    finally:
        lock.release()


def make_private_folder(path: Path) -> None:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def write_snapshot(
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
        "serviceAccountKey": key_fingerprint(config.pki / "sa.pub"),
    }


def key_fingerprint(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return ""


def _files(config: ClusterConfig, *, with_keys: bool) -> Iterator[tuple[str, int, bytes]]:
    for name in CONFIGURATION_FILES:
        path = config.state / name
        if path.exists():
            yield name, 0o600, _without_store_password(path.read_bytes())
    if with_keys:
        for path in sorted(config.pki.iterdir()):
            if path.is_file() and not path.name.startswith("."):
                yield f"pki/{path.name}", path.stat().st_mode & 0o777, path.read_bytes()
        if config.encryption_key_file:
            yield ENCRYPTION_KEYS, 0o600, Path(config.encryption_key_file).read_bytes()


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
            make_private_folder(target.parent)
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


def list_snapshots() -> list[dict[str, Any]]:
    """The snapshots of this user, oldest first. An unreadable one has a `problem`."""
    out: list[dict[str, Any]] = []
    for path in sorted(snapshots_folder().glob(f"*{SUFFIX}")):
        try:
            out.append(snapshot_summary(path, *read_summary(path)))
        except (SnapshotDamaged, OSError) as problem:
            out.append({"file": str(path), "bytes": path.stat().st_size, "problem": str(problem)})
    return sorted(out, key=lambda row: (row.get("created") or "", row["file"]))
