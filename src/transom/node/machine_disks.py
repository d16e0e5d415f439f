"""The disks of simulated machines, stored in one database of the cluster, so that they outlive the
process.

Each machine is one row that is replaced as a whole: a killed process leaves the last saved state of
each machine, never a partial one. Changed machines are saved together every few seconds, like an
operating system's write-back, and when the cluster stops. Large file contents have rows of their
own, so that they are written once.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from transom.kit.named_tuple import NamedTuple
from transom.machines.saving import DamagedState, Document, SavedContents, pack_state, unpack_state
from transom.store.api import StoreError
from transom.store.sealing import NOTHING, Sealing

log = logging.getLogger("transom.node")

WRITE_BACK_SECONDS: Final = 10.0
_BUSY: Final = 20.0  # saving takes at most 5 % of the time
_LARGE: Final = 256 << 10
_KEY: Final = "secrets/machine-disks/"  # encrypted if Secrets are: Windows nodes have them on disk
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS machine (name TEXT PRIMARY KEY, state BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS content (name TEXT, digest TEXT, data BLOB NOT NULL, PRIMARY KEY (name, digest)) WITHOUT ROWID;
"""


class MachineState(NamedTuple):
    """The saved state of one machine."""

    name: str
    document: Document
    contents: SavedContents


class MachineDisks:
    """Thread-safe. The database is created by the first save."""

    def __init__(self, path: Path, sealing: Sealing = NOTHING, *, inline: bool = False) -> None:
        """`inline`: uses no thread, for tests on virtual time."""
        self._inline = inline
        self._path = path
        self._sealing = sealing
        self._database: sqlite3.Connection | None = None
        self._lock = threading.RLock()
        self.pause = WRITE_BACK_SECONDS

    def load(self, name: str) -> MachineState | None:
        """None for a machine that was never saved, or whose state cannot be read."""
        with self._lock:
            return self._load(name)

    def _load(self, name: str) -> MachineState | None:
        database = self._open(create=False)
        if database is None:
            return None
        try:
            row = database.execute("SELECT state FROM machine WHERE name = ?", (name,)).fetchone()
            if row is None:
                return None
            document, contents = unpack_state(self._sealing.from_disk(_KEY + name, row[0]))
            large = {}
            for digest, data in database.execute(
                "SELECT digest, data FROM content WHERE name = ?", (name,)
            ):
                large[digest] = self._sealing.from_disk(f"{_KEY}{name}/{digest}", data)
            for number, digest in document["large"]:
                contents.items[number] = large[digest]
            return MachineState(name, document["machine"], contents)
        except (
            sqlite3.Error,
            StoreError,
            DamagedState,
            KeyError,
            IndexError,
            TypeError,
        ) as problem:
            log.error(
                "the disk of machine %s cannot be read, it starts with an empty one: %s",
                name,
                problem,
            )
            return None

    async def save_in_thread(self, states: Sequence[MachineState]) -> None:
        if self._inline:
            self.save(states)
        else:
            await asyncio.to_thread(self.save, states)

    def save(self, states: Sequence[MachineState]) -> None:
        """Saves all of them or none, durably. Raises OSError."""
        began = time.monotonic()
        with self._lock:
            try:
                database = self._open(create=True)
                assert database is not None, "it is made"
                with database:
                    for state in states:
                        self._put(database, state)
            except sqlite3.Error as problem:
                raise OSError(f"{self._path}: {problem}") from problem
        self.pause = max(WRITE_BACK_SECONDS, (time.monotonic() - began) * _BUSY)

    def _put(self, database: sqlite3.Connection, state: MachineState) -> None:
        name, document, contents = state
        contents.complete()  # the rows of its files, which are created in this thread
        known = {
            row[0] for row in database.execute("SELECT digest FROM content WHERE name = ?", (name,))
        }
        large: list[tuple[int, str]] = []
        small = list(contents.items)
        for number, data in enumerate(contents.items):
            if len(data) < _LARGE:
                continue
            digest = hashlib.blake2b(data, digest_size=20).hexdigest()
            large.append((number, digest))
            small[number] = b""
            if digest not in known:
                row = (name, digest, self._sealing.to_disk(f"{_KEY}{name}/{digest}", data))
                database.execute("INSERT OR REPLACE INTO content VALUES (?, ?, ?)", row)
        for digest in known.difference(digest for _, digest in large):
            database.execute("DELETE FROM content WHERE name = ? AND digest = ?", (name, digest))
        packed = pack_state({"machine": document, "large": large}, SavedContents(small))
        database.execute(
            "INSERT OR REPLACE INTO machine VALUES (?, ?)",
            (name, self._sealing.to_disk(_KEY + name, packed)),
        )

    def forget(self, gone: Callable[[str], bool]) -> None:
        """Deletes machines that the cluster no longer has."""
        with self._lock:
            database = self._open(create=False)
            if database is None:
                return
            try:
                with database:
                    rows = [
                        row for row in database.execute("SELECT name FROM machine") if gone(row[0])
                    ]
                    database.executemany("DELETE FROM machine WHERE name = ?", rows)
                    database.executemany("DELETE FROM content WHERE name = ?", rows)
            except sqlite3.Error as problem:
                log.error("the disks of machines that are gone cannot be removed: %s", problem)

    def close(self) -> None:
        with self._lock:
            if self._database is not None:
                self._database.close()
                self._database = None

    def _open(self, *, create: bool) -> sqlite3.Connection | None:
        """None if it does not exist. Raises sqlite3.Error only when it must be created."""
        if self._database is None and (create or self._path.exists()):
            try:
                self._database = self._connect()
            except sqlite3.OperationalError as problem:  # no space, no permission ...
                if create:
                    raise
                log.error("the disks of machines cannot be read: %s: %s", self._path, problem)
            except sqlite3.DatabaseError as problem:
                damaged = self._path.with_name(self._path.name + ".damaged")
                log.error(
                    "%s is damaged (%s); it is kept as %s, and machines start with empty disks",
                    self._path,
                    problem,
                    damaged.name,
                )
                self._path.rename(damaged)
                for suffix in ("-wal", "-shm"):
                    self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
                self._database = self._connect() if create else None
        return self._database

    def _connect(self) -> sqlite3.Connection:
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
        database = sqlite3.connect(self._path, check_same_thread=False, isolation_level="IMMEDIATE")
        try:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = FULL")
            database.executescript(_SCHEMA)
        except sqlite3.Error:
            database.close()
            raise
        return database
