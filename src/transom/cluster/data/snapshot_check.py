"""Reads a whole snapshot and checks it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from transom.cluster import config as configs
from transom.cluster.data.snapshots import (
    ENCRYPTION_KEYS,
    ReportProgress,
    SnapshotProgress,
    snapshot_summary,
)
from transom.kit import keyring
from transom.kit.keyring import KeyFileError, KeyRing
from transom.kit.lazy import lazy_import
from transom.kit.user_errors import UserError
from transom.store.api import StoreError
from transom.store.sealing import Sealing
from transom.store.snapshot_file import (
    SnapshotDamaged,
    SnapshotReader,
    SnapshotRecord,
)

if TYPE_CHECKING:
    from transom.apiserver.core import integrity
else:
    integrity = lazy_import("transom.apiserver.core.integrity")

EXIT_DAMAGED = 3


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
                sealing = Sealing(snapshot_keys(reader, key_file))
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


def snapshot_keys(reader: SnapshotReader, key_file: Path | None) -> KeyRing | None:
    """The given keys, otherwise those in the snapshot, otherwise those of the cluster it was taken
    from.
    """
    try:
        if key_file is not None:
            return keyring.load_key_file(key_file)
        if ENCRYPTION_KEYS in reader.files:
            return keyring.parse_key_file(reader.files[ENCRYPTION_KEYS][1])
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
