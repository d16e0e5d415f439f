"""The file behind the SQLite store: how it is locked, created, checked and read. Blocking; for the
store's own thread.

One append-only table, one row for each change, with the revision as its key. A row with a NULL
value is a deletion. Compaction removes rows that no client can request any more, oldest first.
Every row has a checksum, and the ledger in `meta` holds the number of rows (`rows.py`) and the
compaction progress, so that the counter never decreases, even if the newest rows were deletions
that have been compacted. Values of some buckets may be sealed (`sealing.py`).
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sqlite3
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from transom.kit.files import sync_directory
from transom.kit.named_tuple import NamedTuple
from transom.store.api import KeyQuarantined, OutOfSpace, ReadOnlyDisk, StoreError
from transom.store.mvcc import MvccState, Row
from transom.store.rows import Ledger, LedgerWriter, StoredRow, checksum
from transom.store.sealing import Sealing

if TYPE_CHECKING:
    from transom.store.recover import QuarantineRow

FORMAT = 2
_APPLICATION = 0x5452534D  # "TRSM"
# Two objects of common size fit in one page, so that a group commit writes few of them.
PAGE_SIZE = 8192
_WAL_LIMIT = 32 << 20
# Up to this many rows go into one statement: the interpreter lock is released and acquired only
# once for all of them.
ROWS_AT_ONCE = 64
_DELETES_AT_ONCE = 128
_INITIALIZED = b"initialized"
# In the lock file: the process and whether there has been data, then the newest acknowledged revision
# and its CRC-32.
_NOTE_BYTES = 64
_ACKNOWLEDGED = struct.Struct(">QI")

_COLUMNS = "revision, checksum, trail, key, create_revision, expires, value"
_INSERTS = [
    f"INSERT INTO log ({_COLUMNS}) VALUES " + ", ".join(["(?, ?, ?, ?, ?, ?, ?)"] * n)
    for n in range(ROWS_AT_ONCE + 1)
]
_SELECT = f"SELECT {_COLUMNS} FROM log"
_DELETE = (
    f"DELETE FROM log WHERE revision IN ({', '.join('?' * _DELETES_AT_ONCE)}) RETURNING checksum"
)
_SCHEMA = f"""
    BEGIN;
    PRAGMA application_id = {_APPLICATION};
    PRAGMA user_version = {FORMAT};
    CREATE TABLE log (
        revision INTEGER PRIMARY KEY, checksum INTEGER NOT NULL, trail BLOB NOT NULL, key TEXT NOT NULL,
        create_revision INTEGER NOT NULL, expires REAL, value BLOB
    );
    CREATE TABLE meta (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
    CREATE TABLE quarantine (
        id INTEGER PRIMARY KEY, key TEXT NOT NULL, revision INTEGER NOT NULL, reason TEXT NOT NULL,
        found REAL NOT NULL, raw BLOB NOT NULL
    );
    INSERT INTO meta VALUES ('ledger', x'{Ledger().pack().hex()}');
    COMMIT;
    """
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NOT_WRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)


class DamagedDatabase(Exception):
    """The file is corrupt; `recover.py` may still recover some of it."""


class FormatOne(NamedTuple):
    """The file is of the first format, without checksums."""

    rows: list[Row]
    compacted: int


def lock_database(path: Path) -> int:
    """Locks the file for this process, until the descriptor is closed or the process exits.

    The lock is on a separate file: closing any descriptor of the database file would drop SQLite's
    own locks.
    """
    name = path.with_name(path.name + ".lock")
    try:
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise disk_failure(f"cannot open {name}", error, path) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.read(descriptor, 20).decode("ascii", "replace").split("\n")[0].strip()
        os.close(descriptor)
        raise StoreError(
            f"{path} is in use by another server (process {holder or 'unknown'})"
        ) from error
    try:
        _note_holder(descriptor, initialized=is_initialized(descriptor))
    except OSError as error:
        os.close(descriptor)
        raise disk_failure(f"cannot write {name}", error, path) from error
    return descriptor


def is_initialized(lock_descriptor: int) -> bool:
    """Whether there has been data: a missing or empty file must then not be treated as new."""
    return _INITIALIZED in os.pread(lock_descriptor, 64, 0)


def mark_initialized(lock_descriptor: int) -> None:
    _note_holder(lock_descriptor, initialized=True)


def _note_holder(descriptor: int, *, initialized: bool) -> None:
    text = f"{os.getpid()}\n".encode() + (_INITIALIZED + b"\n" if initialized else b"")
    note = text.ljust(_NOTE_BYTES, b"\n")
    if os.pread(descriptor, _NOTE_BYTES, 0) != note:
        os.pwrite(descriptor, note, 0)


def note_acknowledged(lock_descriptor: int, revision: int) -> None:
    """After a commit. Not synced: it survives the end of the process, and after a power loss it may
    be older than the data, never newer.
    """
    number = revision.to_bytes(8, "big")
    os.pwrite(lock_descriptor, _ACKNOWLEDGED.pack(revision, crc32(number)), _NOTE_BYTES)


def acknowledged_revision(lock_descriptor: int) -> int:
    """The newest revision that the data must have; 0 if it is not known."""
    note = os.pread(lock_descriptor, _ACKNOWLEDGED.size, _NOTE_BYTES)
    if len(note) < _ACKNOWLEDGED.size:
        return 0
    revision, found = _ACKNOWLEDGED.unpack(note)
    return revision if crc32(revision.to_bytes(8, "big")) == found else 0


def forget_acknowledged(path: Path) -> None:
    """Other data takes the place of the file. The caller keeps servers from using it."""
    name = path.with_name(path.name + ".lock")
    if name.exists() and name.stat().st_size > _NOTE_BYTES:
        os.truncate(name, _NOTE_BYTES)


def disk_failure(what: str, error: Exception, path: Path) -> StoreError:
    """An error of SQLite or the operating system as a StoreError."""
    number = error.errno if isinstance(error, OSError) else None
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    detail = os.strerror(number) if number else str(error)
    if (
        number in _NO_ROOM
        or code == sqlite3.SQLITE_FULL
        or (code == sqlite3.SQLITE_IOERR and _is_full(path))
    ):
        return OutOfSpace(f"{what}: {detail}")
    if (
        number in _NOT_WRITABLE
        or code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)
        or (code == sqlite3.SQLITE_CANTOPEN and not os.access(path.parent, os.W_OK))
    ):
        return ReadOnlyDisk(f"{what}: {detail}")
    return StoreError(f"{what}: {detail}")


def _is_full(path: Path) -> bool:
    try:
        return os.statvfs(path.parent).f_bavail == 0
    except OSError:
        return False


def is_damage_error(error: Exception) -> bool:
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    return code in (
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_ERROR,
        sqlite3.SQLITE_FORMAT,
        sqlite3.SQLITE_SCHEMA,
        sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_TOOBIG,
    )


def open_database(path: Path, *, is_new: bool) -> sqlite3.Connection:
    """Opens the file, creating it if it is new. The caller holds the lock. Raises
    DamagedDatabase.
    """
    try:
        if is_new:
            _create(path)
        elif not path.exists():
            raise DamagedDatabase("the file is missing")
        elif not _has_header(path):
            raise DamagedDatabase("the header of the file is not one of ours")
        connection = sqlite3.connect(
            path, timeout=1.0, isolation_level=None, cached_statements=ROWS_AT_ONCE + 32
        )
    except (OSError, sqlite3.Error) as error:
        raise disk_failure(f"cannot open {path}", error, path) from error
    try:
        _prepare(connection, path, is_new=is_new)
    except sqlite3.Error as error:
        connection.close()
        if is_damage_error(error):
            raise DamagedDatabase(str(error)) from error
        raise disk_failure(f"cannot use {path}", error, path) from error
    except (StoreError, DamagedDatabase):
        connection.close()
        raise
    return connection


def _create(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    os.close(descriptor)
    sync_directory(path.parent)


def _has_header(path: Path) -> bool:
    """Whether the fixed part of the header is right. The write-ahead log may have newer versions of
    the other parts.
    """
    with path.open("rb") as file:
        head = file.read(100)
    return (
        head[:16] == b"SQLite format 3\0"
        and head[16:18] == PAGE_SIZE.to_bytes(2, "big")
        and head[18:20] in (b"\1\1", b"\2\2")
        and head[20:24] == bytes((0, 64, 32, 32))
        and head[56:60] < bytes((0, 0, 0, 2))
    )


def _prepare(connection: sqlite3.Connection, path: Path, *, is_new: bool) -> None:
    connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    application, version = (
        _pragma(connection, "application_id"),
        _pragma(connection, "user_version"),
    )
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if (application, version, tables) == (0, 0, 0):
        if not is_new:
            raise DamagedDatabase("the file is empty")
    else:
        _check_format(connection, path, application, version)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT}")
    if not tables:
        connection.executescript(_SCHEMA)


def _check_format(
    connection: sqlite3.Connection, path: Path, application: int, version: int
) -> None:
    if application != _APPLICATION:
        raise DamagedDatabase(_UNKNOWN_HEADER)
    if version > FORMAT:
        raise StoreError(
            f"{path} has format {version}, written by a newer release; this one reads up to "
            f"{FORMAT}"
        )
    columns = {row[1] for row in connection.execute("PRAGMA table_info(log)")}
    if ("checksum" in columns) != (version == FORMAT):
        raise DamagedDatabase(f"the header has format {version}, but the content does not")


_UNKNOWN_HEADER = "the header is not that of a Transom server's data"


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def keep_log(path: Path) -> Path:
    """Links the write-ahead log to a second name, where it stays unchanged: SQLite removes its own
    when it closes the file, with everything after the first damaged frame.
    """
    log, kept = path.with_name(path.name + "-wal"), path.with_name(path.name + "-wal.kept")
    try:
        if log.exists():
            kept.unlink(missing_ok=True)
            try:
                os.link(log, kept)
            except OSError:  # not every file system has links
                shutil.copyfile(log, kept)
    except OSError as error:
        raise disk_failure(f"cannot write {kept}", error, path) from error
    return kept


def version_of(connection: sqlite3.Connection) -> int:
    return _pragma(connection, "user_version")


def read_ledger(connection: sqlite3.Connection) -> Ledger | None:
    found = connection.execute("SELECT value FROM meta WHERE name = 'ledger'").fetchone()
    return None if found is None else Ledger.unpack(found[0])


def write_ledger(connection: sqlite3.Connection, ledger: Ledger) -> None:
    connection.execute("UPDATE meta SET value = ? WHERE name = 'ledger'", (ledger.pack(),))


def load_rows(
    connection: sqlite3.Connection, state: MvccState, path: Path, sealing: Sealing
) -> tuple[Ledger, list[int]]:
    """Fills the state with rows that are all intact. Returns the ledger as of the newest row, and
    the revisions whose values would be stored in another form today. Raises DamagedDatabase.
    """
    stale: list[int] = []
    try:
        ledger = read_ledger(connection)
        if ledger is None:
            raise DamagedDatabase("the record of how many rows there are is damaged")
        audit = _Audit(ledger)
        with closing(connection.execute(f"{_SELECT} ORDER BY revision")) as rows:
            rows.arraysize = 256
            state.load(audit.verified(rows, sealing, stale), ledger.compacted)
        return audit.finish(), stale
    except sqlite3.Error as error:
        if is_damage_error(error):
            raise DamagedDatabase(str(error)) from error
        raise disk_failure(f"{path} cannot be read", error, path) from error
    except StoreError as error:
        raise StoreError(f"{path} cannot be read: {error}") from error


class _Audit:
    """Compares the rows with the ledger while they are loaded."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._beyond: list[StoredRow] = []  # written since the ledger was
        self._count = self._total = 0

    def verified(
        self,
        rows: Iterable[tuple[int, int, bytes, str, int, float | None, bytes | None]],
        sealing: Sealing,
        stale: list[int],
    ) -> Iterator[Row]:
        at, active = self._ledger.revision, sealing.active
        count = total = last = 0
        for row in rows:
            revision, found, trail, key, create_revision, expires, value = row
            if revision <= last:  # pages have changed places
                raise DamagedDatabase(f"revision {revision} comes after revision {last}")
            last = revision
            try:
                if found != checksum(revision, trail, key, create_revision, expires, value):
                    raise DamagedDatabase(f"the checksum of revision {revision} does not match")
            except (TypeError, AttributeError, ValueError, struct.error) as error:
                raise DamagedDatabase(
                    f"revision {revision} does not have the form of a row"
                ) from error
            if revision <= at:
                count += 1
                total += found
            else:
                self._beyond.append(StoredRow(*row))
            if value is not None:
                if active and sealing.is_stale(key, value):
                    stale.append(revision)
                if value[:1] == b"\x00":  # only then it is anything but itself
                    value = sealing.from_disk(key, value)
            yield (revision, key, value, create_revision, expires)
        self._count, self._total = count, total

    def finish(self) -> Ledger:
        ledger = self._ledger
        if (self._count, self._total & 0xFFFFFFFFFFFFFFFF) != (ledger.rows, ledger.total):
            raise DamagedDatabase(
                f"there are {self._count} rows, where there should be {ledger.rows}"
            )
        writer = LedgerWriter(ledger)
        for row in self._beyond:
            writer.take(row)
        return writer.ledger


def load_first_format(connection: sqlite3.Connection, path: Path) -> FormatOne:
    try:
        (compacted,) = connection.execute(
            "SELECT value FROM meta WHERE name = 'compacted'"
        ).fetchone()
        rows = connection.execute(
            "SELECT revision, key, value, create_revision, expires FROM log ORDER BY revision"
        ).fetchall()
    except (sqlite3.Error, TypeError) as error:
        raise StoreError(f"{path} is damaged: {error}") from error
    return FormatOne(rows, compacted)


def database_structure_problem(connection: sqlite3.Connection) -> str:
    """A problem in the page structure of the file that would make later writes destructive; empty
    if there is none.
    """
    found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    return "" if found == "ok" else found


def reseal_rows(
    connection: sqlite3.Connection,
    stale: Sequence[int],
    sealing: Sealing,
    path: Path,
    ledger: Ledger,
) -> Ledger:
    """Rewrites these values in the form in which they would be stored today, and leaves no trace of
    the old one in the file. Readers see no change.
    """
    if not sealing.active:
        return ledger
    try:
        connection.execute("PRAGMA secure_delete = ON")
        if stale:
            connection.execute("BEGIN")
            for revision in stale:
                row = StoredRow(
                    *connection.execute(f"{_SELECT} WHERE revision = ?", (revision,)).fetchone()
                )
                assert row.value is not None
                fresh = sealing.to_disk(row.key, sealing.from_disk(row.key, row.value))
                ledger = replace_row(connection, ledger, row._replace(value=fresh))
            write_ledger(connection, ledger)
            connection.execute("INSERT OR REPLACE INTO meta VALUES ('wipe', 1)")
            connection.execute("COMMIT")
        # Free pages and the write-ahead log may still hold deleted or replaced values; a crash in
        # between must not lose this step.
        if connection.execute("SELECT 1 FROM meta WHERE name = 'wipe'").fetchone() is not None:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            connection.execute("DELETE FROM meta WHERE name = 'wipe'")
    except sqlite3.Error as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise disk_failure(f"the values of {path} could not be sealed", error, path) from error
    return ledger


def replace_row(connection: sqlite3.Connection, ledger: Ledger, row: StoredRow) -> Ledger:
    """Rewrites a row that differs from the one on disk; returns the updated ledger, which the
    caller writes.
    """
    found = checksum(row.revision, row.trail, row.key, row.create_revision, row.expires, row.value)
    connection.execute(
        f"INSERT OR REPLACE INTO log ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
        row._replace(checksum=found),
    )
    return ledger.without(0, row.checksum - found, ledger.compacted)


def recount_rows(connection: sqlite3.Connection, ledger: Ledger) -> Ledger:
    rows, total = connection.execute(
        "SELECT count(*), coalesce(sum(checksum), 0) FROM log"
    ).fetchone()
    return Ledger(ledger.compacted, ledger.revision, rows, total, ledger.trail)


def commit_rows(
    connection: sqlite3.Connection,
    rows: Sequence[StoredRow],
    garbage: Sequence[int],
    ledger: Ledger,
    quarantine: Sequence[QuarantineRow] = (),
) -> Ledger:
    """Writes rows and removes others in one transaction. `ledger` covers the rows before the
    removal; returns the ledger without the removed ones.
    """
    if not garbage and not quarantine and len(rows) <= ROWS_AT_ONCE:
        # A single statement is its own transaction.
        connection.execute(_INSERTS[len(rows)], [field for row in rows for field in row])
        return ledger
    try:
        connection.execute("BEGIN")
        for start in range(0, len(rows), ROWS_AT_ONCE):
            group = rows[start : start + ROWS_AT_ONCE]
            connection.execute(_INSERTS[len(group)], [field for row in group for field in row])
        for start in range(0, len(garbage), _DELETES_AT_ONCE):
            part = garbage[start : start + _DELETES_AT_ONCE]
            removed = connection.execute(
                _DELETE, [*part, *[0] * (_DELETES_AT_ONCE - len(part))]
            ).fetchall()
            ledger = ledger.without(
                len(removed), sum(found for (found,) in removed), ledger.compacted
            )
        add_quarantine(connection, quarantine)
        write_ledger(connection, ledger)
        connection.execute("COMMIT")
    except BaseException:
        # A full disk makes SQLite roll back by itself.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return ledger


# Quarantine


def add_quarantine(connection: sqlite3.Connection, rows: Iterable[QuarantineRow]) -> None:
    connection.executemany(
        "INSERT INTO quarantine (key, revision, reason, found, raw) VALUES (?, ?, ?, ?, ?)",
        [(*row.about, row.raw) for row in rows],
    )


def read_quarantine(connection: sqlite3.Connection) -> list[KeyQuarantined]:
    rows = connection.execute("SELECT key, revision, reason, found FROM quarantine ORDER BY id")
    return [KeyQuarantined(*row) for row in rows]


def clear_quarantine(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM quarantine")


# Background verification


def scan_rows(connection: sqlite3.Connection, after: int, limit: int) -> list[StoredRow]:
    """Rows as they are on disk, intact or not."""
    rows = connection.execute(
        f"{_SELECT} WHERE revision > ? ORDER BY revision LIMIT ?", (after, limit)
    )
    return [StoredRow(*row) for row in rows]


def stored_rows(connection: sqlite3.Connection) -> list[StoredRow]:
    return [StoredRow(*row) for row in connection.execute(f"{_SELECT} ORDER BY revision")]


def forget_pages(connection: sqlite3.Connection) -> None:
    """Drops cached pages, so that the next read comes from the file."""
    connection.execute("PRAGMA shrink_memory").fetchall()


# Replacing the file


def write_new(
    path: Path, rows: Iterable[StoredRow], ledger: Ledger, quarantine: Iterable[QuarantineRow]
) -> None:
    """Writes a complete file beside `path`, which `swap_database` puts in its place. Only
    `compacted` and `revision` of `ledger` are used.
    """
    fresh = path.with_name(path.name + ".writing")
    for name in (fresh, Path(f"{fresh}-wal"), Path(f"{fresh}-journal")):
        name.unlink(missing_ok=True)
    try:
        with closing(open_database(fresh, is_new=True)) as connection:
            writer = LedgerWriter(Ledger(ledger.compacted))
            connection.execute("BEGIN")
            group: list[StoredRow] = []
            for row in rows:
                writer.take(row)
                group.append(row)
                if len(group) == ROWS_AT_ONCE:
                    connection.execute(
                        _INSERTS[ROWS_AT_ONCE], [field for each in group for field in each]
                    )
                    group.clear()
            if group:
                connection.execute(
                    _INSERTS[len(group)], [field for each in group for field in each]
                )
            add_quarantine(connection, quarantine)
            written = writer.ledger
            if written.revision < ledger.revision:  # the trail counts from the newest row
                written = Ledger(ledger.compacted, ledger.revision, written.rows, written.total)
            write_ledger(connection, written)
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise disk_failure(f"cannot write {fresh}", error, path) from error
    with fresh.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(fresh, path.with_name(path.name + ".complete"))
    sync_directory(path.parent)


def swap_database(path: Path, kept: Path) -> None:
    """Replaces `path` with the file that `write_new` left; the old contents are kept as `kept`. If
    this is interrupted, `finish_database_swap` completes it.
    """
    complete = path.with_name(path.name + ".complete")
    for suffix in ("", "-wal"):
        old = Path(f"{path}{suffix}")
        if old.exists():
            os.replace(old, f"{kept}{suffix}")
    os.replace(complete, path)
    sync_directory(path.parent)


def finish_database_swap(path: Path) -> None:
    """Completes an interrupted swap: a complete new file means that the swap was decided."""
    try:
        if path.with_name(path.name + ".complete").exists():
            swap_database(path, set_database_aside(path, "replaced"))
    except OSError as error:
        raise disk_failure(f"cannot replace {path}", error, path) from error


def set_database_aside(path: Path, why: str) -> Path:
    """An unused name for a file that is kept."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    for number in range(1000):
        name = path.with_name(f"{path.name}.{why}-{stamp}" + (f"-{number}" if number else ""))
        if not name.exists() and not Path(f"{name}-wal").exists():
            return name
    raise StoreError(f"there are too many files like {name}; remove some")


def wal_size(path: Path) -> int:
    """The size of the write-ahead log that a crashed server left; 0 after a clean shutdown."""
    try:
        return os.stat(f"{path}-wal").st_size
    except FileNotFoundError:
        return 0


def checkpoint_database(connection: sqlite3.Connection) -> None:
    """Writes the write-ahead log into the database file, so that the log restarts at its beginning."""
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
