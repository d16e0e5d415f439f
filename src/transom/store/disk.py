"""The file behind the SQLite store: how it is locked, created, checked and read. Blocking; for the store's own thread.

One append-only table, one row for each change, with the revision as its key. A row with a NULL value is a deletion.
Rows that nobody can ask for any more are removed by compaction, oldest first; `compacted` says how far that
may have got, so that the counter never goes back even if the newest rows were deletions that are gone. Values of some
buckets may be sealed (`sealing.py`).
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from transom.kit.files import sync_directory
from transom.store.api import StoreError
from transom.store.mvcc import Row, State
from transom.store.sealing import Sealing

FORMAT = 1
_APPLICATION = 0x5452534D  # "TRSM"
# Two objects of common size fit in one page, so that a group commit writes few of them.
_PAGE_SIZE = 8192
_WAL_LIMIT = 32 << 20
# Up to this many rows go into one statement: the interpreter lock is given up and taken again once for all of them.
ROWS_AT_ONCE = 64
_DELETES_AT_ONCE = 128

_INSERTS = [
    "INSERT INTO log (revision, key, value, create_revision, expires) VALUES " + ", ".join(["(?, ?, ?, ?, ?)"] * n)
    for n in range(ROWS_AT_ONCE + 1)
]
_DELETE = f"DELETE FROM log WHERE revision IN ({', '.join('?' * _DELETES_AT_ONCE)})"


def lock(path: Path) -> int:
    """Make this process the only one that uses the file, until the descriptor is closed or the process is gone.

    The lock lies on a file of its own: closing any descriptor of the database file would drop SQLite's own locks.
    """
    name = path.with_name(path.name + ".lock")
    try:
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StoreError(f"cannot open {name}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.read(descriptor, 20).decode("ascii", "replace").strip()
        os.close(descriptor)
        raise StoreError(f"{path} is in use by another server (process {holder or 'unknown'})") from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def connect(path: Path) -> sqlite3.Connection:
    """Open the file, which is created if need be. The caller holds the lock."""
    try:
        _create(path)
        connection = sqlite3.connect(path, timeout=1.0, isolation_level=None, cached_statements=ROWS_AT_ONCE + 32)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"cannot open {path}: {error}") from error
    try:
        _prepare(connection, path)
    except sqlite3.Error as error:
        connection.close()
        raise StoreError(f"cannot use {path}: {error}") from error
    except StoreError:
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


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute(f"PRAGMA page_size = {_PAGE_SIZE}")
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    application, version = _pragma(connection, "application_id"), _pragma(connection, "user_version")
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if (application, version, tables) != (0, 0, 0):
        if application != _APPLICATION:
            raise StoreError(f"{path} is not the data of a Transom server")
        if version > FORMAT:
            raise StoreError(f"{path} has format {version}, written by a newer release; this one reads up to {FORMAT}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT}")
    if not tables:
        connection.executescript(
            f"""
            BEGIN;
            PRAGMA application_id = {_APPLICATION};
            PRAGMA user_version = {FORMAT};
            CREATE TABLE log (
                revision INTEGER PRIMARY KEY, key TEXT NOT NULL, value BLOB,
                create_revision INTEGER NOT NULL, expires REAL
            );
            CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
            INSERT INTO meta VALUES ('compacted', 0);
            COMMIT;
            """
        )


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def load(connection: sqlite3.Connection, state: State, path: Path, sealing: Sealing) -> list[int]:
    """Fill the state. Returns the revisions whose values would be written in another form today."""
    stale: list[int] = []
    try:
        (compacted,) = connection.execute("SELECT value FROM meta WHERE name = 'compacted'").fetchone()
        rows = connection.execute("SELECT revision, key, value, create_revision, expires FROM log ORDER BY revision")
        with closing(rows):
            rows.arraysize = 256
            state.load(_opened(rows, sealing, stale), compacted)
    except (sqlite3.Error, TypeError) as error:
        raise StoreError(f"{path} is damaged: {error}") from error
    except StoreError as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
    return stale


def _opened(rows: Iterable[Row], sealing: Sealing, stale: list[int]) -> Iterator[Row]:
    active = sealing.active
    for row in rows:
        value = row[2]
        if value is not None:
            if active and sealing.is_stale(row[1], value):
                stale.append(row[0])
            if value[:1] == b"\x00":  # only then it is anything but itself
                row = (row[0], row[1], sealing.from_disk(row[1], value), row[3], row[4])
        yield row


def reseal(connection: sqlite3.Connection, stale: Sequence[int], sealing: Sealing, path: Path) -> None:
    """Bring these values into the form they would be written in today, and leave no trace of the old one in the file.
    Readers see no change."""
    if not sealing.active:
        return
    try:
        connection.execute("PRAGMA secure_delete = ON")
        if stale:
            connection.execute("BEGIN")
            for revision in stale:
                key, value = connection.execute("SELECT key, value FROM log WHERE revision = ?", (revision,)).fetchone()
                fresh = sealing.to_disk(key, sealing.from_disk(key, value))
                connection.execute("UPDATE log SET value = ? WHERE revision = ?", (fresh, revision))
            connection.execute("INSERT OR REPLACE INTO meta VALUES ('wipe', 1)")
            connection.execute("COMMIT")
        # Free pages and the write-ahead log may still hold what was deleted or replaced earlier; a crash in between
        # must not make us forget that.
        if connection.execute("SELECT 1 FROM meta WHERE name = 'wipe'").fetchone() is not None:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            connection.execute("DELETE FROM meta WHERE name = 'wipe'")
    except sqlite3.Error as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise StoreError(f"the values of {path} could not be sealed: {error}") from error


def commit(connection: sqlite3.Connection, rows: Sequence[Row], garbage: Sequence[int], compacted: int) -> None:
    """Make rows durable and remove others, all or nothing."""
    if not garbage and len(rows) <= ROWS_AT_ONCE:
        # One statement is its own transaction.
        connection.execute(_INSERTS[len(rows)], [field for row in rows for field in row])
        return
    try:
        connection.execute("BEGIN")
        for start in range(0, len(rows), ROWS_AT_ONCE):
            group = rows[start : start + ROWS_AT_ONCE]
            connection.execute(_INSERTS[len(group)], [field for row in group for field in row])
        for start in range(0, len(garbage), _DELETES_AT_ONCE):
            part = garbage[start : start + _DELETES_AT_ONCE]
            connection.execute(_DELETE, [*part, *[0] * (_DELETES_AT_ONCE - len(part))])
        if garbage:
            connection.execute("UPDATE meta SET value = ? WHERE name = 'compacted'", (compacted,))
        connection.execute("COMMIT")
    except BaseException:
        # A full disk makes SQLite roll back by itself.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def wal_size(path: Path) -> int:
    """What a server that did not close its file left in the write-ahead log; nothing, after a clean end."""
    try:
        return os.stat(f"{path}-wal").st_size
    except FileNotFoundError:
        return 0


def checkpoint(connection: sqlite3.Connection) -> None:
    """Bring the write-ahead log into the database file, so that the log starts again at its beginning."""
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
