"""The audit log: one JSON line for each event, written by a thread of its own, rotated by size, readable by its owner only.

The loop hands over what it has; decoding, redacting and encoding happen in the thread. If the disk does not keep up, the
newest events are dropped and counted rather than the API stopped.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path

import orjson

log = logging.getLogger("transom.audit")

_MAX_BYTES = 100 << 20
_BACKUPS = 10
_PENDING_BYTES = 64 << 20

Line = Callable[[], dict[str, object]]


class AuditLog:
    def __init__(self, path: Path, *, max_bytes: int = _MAX_BYTES, backups: int = _BACKUPS) -> None:
        self.path = path
        self.dropped = 0
        self._max_bytes = max_bytes
        self._backups = backups
        self._lines: queue.SimpleQueue[tuple[Line, int] | None] = queue.SimpleQueue()
        self._pending = 0
        self._lock = threading.Lock()
        self._file = -1
        self._size = 0
        self._thread: threading.Thread | None = None
        self._failing = False

    def open(self) -> None:
        """Raises OSError when the file cannot be written."""
        self._reopen()
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def write(self, line: Line, size: int) -> None:
        """`line` is called in the thread; `size` is about what it keeps in memory until then."""
        with self._lock:
            if self._pending > _PENDING_BYTES:
                self.dropped += 1
                if self.dropped % 1000 == 1:
                    log.error("the audit log does not keep up: %d events dropped so far", self.dropped)
                return
            self._pending += size
        self._lines.put((line, size))

    def close(self) -> None:
        """Returns when everything is written."""
        if self._thread is not None:
            self._lines.put(None)
            self._thread.join()
            self._thread = None

    # In the thread

    def _run(self) -> None:
        while True:
            item = self._lines.get()
            batch: list[bytes] = []
            released = 0
            while item is not None:
                line, size = item
                released += size
                try:
                    batch.append(orjson.dumps(line(), option=orjson.OPT_APPEND_NEWLINE))
                except Exception:  # one event that cannot be shown must not end the record of all others
                    log.exception("an audit event could not be written")
                if len(batch) >= 256 or self._lines.empty():
                    break
                item = self._lines.get()
            if batch:
                self._append(batch)
            with self._lock:
                self._pending -= released
            if item is None:
                os.close(self._file)
                return

    def _append(self, batch: list[bytes]) -> None:
        try:
            for line in batch:
                if self._size and self._size + len(line) > self._max_bytes:
                    self._rotate()
                rest = memoryview(line)
                while rest:
                    rest = rest[os.write(self._file, rest) :]
                self._size += len(line)
            self._failing = False
        except OSError as error:
            self.dropped += len(batch)
            if not self._failing:
                self._failing = True
                log.error("the audit log %s cannot be written: %s", self.path, error)

    def _rotate(self) -> None:
        os.close(self._file)
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
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.fchmod(self._file, 0o600)
        self._size = os.fstat(self._file).st_size
