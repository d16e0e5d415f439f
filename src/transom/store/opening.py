"""Opens the file of the SQLite store: checks it, upgrades older formats, recovers damaged files.

Nothing here changes a file in place. A new file is written beside it and replaces it when complete;
the old one is kept.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from transom.kit.lazy import lazy_import
from transom.kit.named_tuple import NamedTuple
from transom.store import disk
from transom.store.api import DamagedStore, KeyQuarantined, StoreError
from transom.store.disk import DamagedDatabase, FormatOne
from transom.store.mvcc import MvccState, Row
from transom.store.rows import Ledger, LedgerWriter, StoredRow, key_hash, written_before
from transom.store.sealing import Sealing

if TYPE_CHECKING:
    from transom.store import recover
    from transom.store.recover import QuarantineRow
else:
    recover = lazy_import("transom.store.recover")

_log = logging.getLogger(__name__)

# After damage the counter continues from here. Writes that were lost with the newest rows had lower
# revisions, so no revision is used twice; everything up to it counts as compacted, so that clients
# list again.
REVISION_BUMP = 1_000_000

CheckValue = Callable[[str, int, bytes], str]
"""Returns the error of the value of a key and revision, or ""."""

BeforeUpgrade = Callable[[Sequence[Row], int, int], None]
"""Receives the rows of a file of an older format, values as on disk, its revision and its
format, before the file is changed.
"""


class OpenedDatabase(NamedTuple):
    connection: sqlite3.Connection
    ledger: Ledger
    quarantined: list[KeyQuarantined]
    found_now: list[KeyQuarantined]  # those of them that this start found


def open_store_file(
    path: Path,
    lock: int,
    state: MvccState,
    sealing: Sealing,
    check: CheckValue | None,
    before_upgrade: BeforeUpgrade | None,
) -> OpenedDatabase:
    """The caller holds the lock. Raises StoreError when the file cannot be used."""
    disk.finish_database_swap(path)
    found: list[KeyQuarantined] = []
    log = disk.keep_log(path)
    acknowledged = disk.acknowledged_revision(lock)
    try:
        connection = disk.open_database(
            path, is_new=not disk.is_initialized(lock) and _is_fresh(path)
        )
        if disk.version_of(connection) == 1:
            connection, found = _upgrade(path, connection, check, before_upgrade)
        ledger, stale = _load(connection, state, path, sealing, log, acknowledged)
    except DamagedDatabase as damage:
        state.reset()
        found = _recover(path, log, damage, acknowledged)
        try:
            connection = disk.open_database(path, is_new=False)
            ledger, stale = disk.load_rows(connection, state, path, sealing)
        except DamagedDatabase as again:
            raise DamagedStore(
                f"{path} was recovered and is damaged again ({again}): the disk fails"
            ) from again
    try:
        ledger = disk.reseal_rows(connection, stale, sealing, path, ledger)
        quarantined = disk.read_quarantine(connection)
        disk.mark_initialized(lock)
        log.unlink(missing_ok=True)
    except BaseException:
        connection.close()
        raise
    return OpenedDatabase(connection, ledger, quarantined, found)


def check_structure(
    path: Path, connection: sqlite3.Connection, ledger: Ledger
) -> sqlite3.Connection:
    """After a start that found every row intact: other invalid pages (such as the free list) would
    make later writes destroy rows. Rewrites the file in that case; readers notice nothing.
    """
    try:
        problem = disk.database_structure_problem(connection)
    except sqlite3.Error as error:
        problem = str(error)
    if not problem:
        return connection
    rows = disk.stored_rows(connection)
    connection.close()
    kept = disk.set_database_aside(path, "damaged")
    _log.error(
        (
            "%s is damaged: %s; all rows are intact and were written to a new file; the damaged "
            "file is kept as %s"
        ),
        path,
        problem,
        kept,
    )
    _replace(path, kept, rows, ledger, ())
    return disk.open_database(path, is_new=False)


def _is_fresh(path: Path) -> bool:
    """Whether nothing was ever stored here. The first start may have been interrupted early."""
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
            # Opening a pipe would wait for its other end.
            raise StoreError(f"cannot open {path}: it is not a regular file")
        return found.st_size <= 2 * disk.PAGE_SIZE
    except FileNotFoundError:
        return True
    except OSError as error:
        raise disk.disk_failure(f"cannot open {path}", error, path) from error


def _load(
    connection: sqlite3.Connection,
    state: MvccState,
    path: Path,
    sealing: Sealing,
    log: Path,
    acknowledged: int,
) -> tuple[Ledger, list[int]]:
    try:
        ledger, stale = disk.load_rows(connection, state, path, sealing)
        if log.exists():
            ledger, rows = _append_tail(connection, path, log, ledger)
            if rows:
                state.reset()
                ledger, stale = disk.load_rows(connection, state, path, sealing)
        newest = max(ledger.revision, ledger.compacted)
        if newest < acknowledged:
            raise DamagedDatabase(_missing_writes(newest, acknowledged))
    except BaseException:
        connection.close()
        raise
    return ledger, stale


def _missing_writes(newest: int, acknowledged: int) -> str:
    return (
        f"the writes of revisions {newest + 1} to {acknowledged} were acknowledged and are missing"
    )


def _append_tail(
    connection: sqlite3.Connection, path: Path, log: Path, ledger: Ledger
) -> tuple[Ledger, int]:
    """Appends complete transactions that the last server was writing when it ended."""
    tail = recover.read_log_tail(log, disk.PAGE_SIZE, max(ledger.revision, ledger.compacted))
    if tail.is_damaged:
        raise DamagedDatabase("the write-ahead log is damaged")
    writer = LedgerWriter(ledger)
    rows: list[StoredRow] = []
    last = next(written_before(ledger.revision, ledger.trail), None)
    for row in tail.rows:
        if next(written_before(row.revision, row.trail), None) != last:
            break
        writer.take(row)
        rows.append(row)
        last = (row.revision, key_hash(row.key))
    if rows:
        _log.info(
            "%s: completed %d writes that were in progress when the last server ended",
            path,
            len(rows),
        )
        try:
            return disk.commit_rows(connection, rows, (), writer.ledger), len(rows)
        except sqlite3.Error as error:
            raise disk.disk_failure(f"cannot write {path}", error, path) from error
    return ledger, 0


def _recover(
    path: Path, log: Path, damage: DamagedDatabase, acknowledged: int
) -> list[KeyQuarantined]:
    """Writes the readable rows to a new file, which replaces the damaged one."""
    try:
        found = recover.salvage_rows(path, log, disk.PAGE_SIZE, time.time())
    except OSError as error:
        raise disk.disk_failure(
            f"{path} is damaged ({damage}) and cannot be read", error, path
        ) from error
    ledger = found.ledger
    if not found.rows and (ledger is None or ledger.rows):
        raise DamagedStore(
            f"{path} is damaged or not the data of a Transom server ({damage}); nothing in "
            "it can be recovered"
        )
    newest = max(
        [row.revision for row in found.rows]
        + ([ledger.revision, ledger.compacted] if ledger is not None else [])
    )
    quarantine = list(found.quarantine)
    if newest < acknowledged:
        reason = _missing_writes(newest, acknowledged)
        about = KeyQuarantined("", acknowledged, reason, time.time())
        quarantine.append(recover.QuarantineRow(about, b""))
    revision = max(newest, acknowledged) + REVISION_BUMP
    kept = disk.set_database_aside(path, "damaged")
    _log.error(
        (
            "%s is damaged: %s; %d rows were recovered, %d are in quarantine; the damaged file "
            "is kept as %s"
        ),
        path,
        damage,
        len(found.rows),
        len(quarantine),
        kept,
    )
    if log.exists():
        os.replace(log, path.with_name(path.name + "-wal"))  # it is kept with the rest
    _replace(path, kept, found.rows, Ledger(revision, revision), [*found.earlier, *quarantine])
    return [row.about for row in quarantine]


def _upgrade(
    path: Path,
    connection: sqlite3.Connection,
    check: CheckValue | None,
    before: BeforeUpgrade | None,
) -> tuple[sqlite3.Connection, list[KeyQuarantined]]:
    try:
        old = disk.load_first_format(connection, path)
    finally:
        connection.close()
    revision = max([old.compacted, 1, *(row[0] for row in old.rows[-1:])])
    if before is not None:
        before(old.rows, revision, 1)
    quarantine: list[QuarantineRow] = []
    rows = list(_first_format_rows(old, check, quarantine))
    ledger = Ledger(revision + 1, revision + 1) if quarantine else Ledger(old.compacted, revision)
    kept = disk.set_database_aside(path, "format-1")
    _replace(path, kept, rows, ledger, quarantine)
    _log.info(
        "%s was upgraded from format 1 to format %d; the old file is kept as %s",
        path,
        disk.FORMAT,
        kept,
    )
    return disk.open_database(path, is_new=False), [row.about for row in quarantine]


def _first_format_rows(
    old: FormatOne, check: CheckValue | None, quarantine: list[QuarantineRow]
) -> Iterator[StoredRow]:
    """Without checksums only invalid values can be detected. Their keys are left out."""
    rejected: set[str] = set()
    if check is not None:
        newest = {row[1]: row for row in old.rows}
        for revision, key, value, _, _ in newest.values():
            if value is not None and not value.startswith(b"\x00"):
                problem = check(key, revision, value)
                if problem:
                    rejected.add(key)
                    quarantine.append(
                        recover.QuarantineRow(
                            KeyQuarantined(key, revision, problem, time.time()), value
                        )
                    )
    writer = LedgerWriter(Ledger(old.compacted))
    for revision, key, value, create_revision, expires in old.rows:
        if key not in rejected:
            yield writer.add(revision, key, create_revision, expires, value)


def _replace(
    path: Path,
    kept: Path,
    rows: Sequence[StoredRow],
    ledger: Ledger,
    quarantine: Sequence[QuarantineRow],
) -> None:
    try:
        disk.write_new(path, rows, ledger, quarantine)
        disk.swap_database(path, kept)
    except OSError as error:
        raise disk.disk_failure(f"cannot write a new {path}", error, path) from error
    except DamagedDatabase as damage:
        raise StoreError(f"cannot write a new {path}: {damage}") from damage
