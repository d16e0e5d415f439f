"""The audit log: one JSON line for each event, written by its own thread, rotated by size, readable
only by its owner.

The event loop passes events to the thread, which redacts and encodes them. If the disk is too slow,
events first lose the bodies of requests and responses, as Kubernetes truncates large events. Only
if there are still too many events are the newest dropped and counted.
"""

from __future__ import annotations

import logging
import os
import queue
import stat
import threading
from pathlib import Path
from typing import Protocol

import orjson

from transom.kit.escaping import escape_json

log = logging.getLogger("transom.audit")

_MAX_BYTES = 100 << 20
_BACKUPS = 10
_PENDING_BYTES = 64 << 20  # bytes of pending events; beyond it they are truncated
_PENDING_TRUNCATED = 32 << 20  # additional bytes for truncated events; beyond it they are dropped
_BATCH_LINES = 256
_BATCH_BYTES = 1 << 20
_ESCAPED_AT_ONCE = 1 << 18  # characters escaped while the interpreter lock is held


class AuditLogEntry(Protocol):
    """One pending event."""

    size: int  # its approximate size in memory in bytes

    def truncate(self) -> None:
        """Drops the bodies of the request and the response."""

    def line(self) -> dict[str, object]:
        """The event as JSON. Called in the log's thread."""


class AuditLog:
    def __init__(self, path: Path, *, max_bytes: int = _MAX_BYTES, backups: int = _BACKUPS) -> None:
        self.path = path
        self.dropped = 0
        self._max_bytes = max_bytes
        self._backups = backups
        self._lines: queue.SimpleQueue[AuditLogEntry | None] = queue.SimpleQueue()
        self._pending = 0
        self._lock = threading.Lock()
        self._file = -1
        self._size = 0
        self._rotates = True
        self._thread: threading.Thread | None = None
        self._failing = False

    def open(self) -> None:
        """Raises OSError when the file cannot be written."""
        self._reopen()
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def write(self, entry: AuditLogEntry) -> None:
        if self._pending + entry.size > _PENDING_BYTES:
            entry.truncate()
        with self._lock:
            if self._pending + entry.size > _PENDING_BYTES + _PENDING_TRUNCATED:
                self.dropped += 1
                if self.dropped % 1000 == 1:
                    log.error(
                        "the audit log does not keep up: %d events dropped so far", self.dropped
                    )
                return
            self._pending += entry.size
        self._lines.put(entry)

    def close(self) -> None:
        """Returns when everything is written."""
        if self._thread is not None:
            self._lines.put(None)
            self._thread.join()
            self._thread = None

    # Runs in the thread

    def _run(self) -> None:
        while True:
            entry = self._lines.get()
            batch: list[bytes] = []
            released = written = 0
            while entry is not None:
                released += entry.size
                try:
                    batch.append(_encoded(entry.line()))
                    written += len(batch[-1])
                except Exception:  # an event that cannot be encoded must not stop the log
                    log.exception("an audit event could not be written")
                if len(batch) >= _BATCH_LINES or written >= _BATCH_BYTES or self._lines.empty():
                    break
                entry = self._lines.get()
            if batch:
                self._append(batch)
            with self._lock:
                self._pending -= released
            if entry is None:
                self._close_file()
                return

    def _append(self, batch: list[bytes]) -> None:
        for number, line in enumerate(batch):
            try:
                if self._rotates and self._size and self._size + len(line) > self._max_bytes:
                    self._rotate()
                if self._file < 0:
                    self._reopen()
                self._write_line(line)
                self._failing = False
            except OSError as error:
                self.dropped += len(batch) - number
                if not self._failing:
                    self._failing = True
                    log.error("the audit log %s cannot be written: %s", self.path, error)
                return

    def _write_line(self, line: bytes) -> None:
        """Writes the whole line or nothing: a full disk must not leave a partial line before the
        next one.
        """
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            if len(rest) < len(line):
                os.ftruncate(self._file, self._size)
            raise
        self._size += len(line)

    def _close_file(self) -> None:
        if self._file >= 0:
            file, self._file = self._file, -1
            os.close(file)

    def _rotate(self) -> None:
        self._close_file()
        for number in range(self._backups - 1, 0, -1):
            older = self.path.with_name(f"{self.path.name}.{number}")
            if older.exists():
                older.replace(self.path.with_name(f"{self.path.name}.{number + 1}"))
        if self._backups:
            self.path.replace(self.path.with_name(f"{self.path.name}.1"))
        else:
            self.path.unlink()
        self._reopen()

    def _reopen(self) -> None:
        self._file = os.open(
            self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        found = os.fstat(self._file)
        self._rotates = stat.S_ISREG(found.st_mode)  # not /dev/null
        if self._rotates:
            os.fchmod(self._file, 0o600)
        self._size = found.st_size


def _encoded(event: dict[str, object]) -> bytes:
    """One line, whatever paths, names and headers the client sent."""
    text = orjson.dumps(event).decode()
    if len(text) <= _ESCAPED_AT_ONCE:
        return escape_json(text).encode() + b"\n"
    pieces = range(0, len(text), _ESCAPED_AT_ONCE)
    escaped = (escape_json(text[at : at + _ESCAPED_AT_ONCE]).encode() for at in pieces)
    return b"".join((*escaped, b"\n"))
