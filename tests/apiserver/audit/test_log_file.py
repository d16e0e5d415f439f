"""The file of the audit log: bounded, private, rotated, and without half lines."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import orjson
import pytest

from transom.apiserver.audit.log import AuditLog


class FakeEntry:
    def __init__(self, content: dict[str, Any], size: int = 100, least: int = 100) -> None:
        self._content = content
        self._least = least
        self.size = size
        self.truncated = False

    def truncate(self) -> None:
        self.truncated = True
        self.size = min(self.size, self._least)

    def line(self) -> dict[str, Any]:
        return {**self._content, **({"truncated": True} if self.truncated else {})}


def numbers_in(path: Path) -> list[int]:
    return [orjson.loads(line)["n"] for line in path.read_bytes().splitlines()]


def test_events_lose_their_bodies_before_they_are_dropped(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log")
    entries = [FakeEntry({"n": n}, size=20 << 20) for n in range(100)]
    for entry in entries:
        log.write(entry)
    assert [entry.truncated for entry in entries] == [False] * 3 + [True] * 97
    log.open()
    log.close()
    assert numbers_in(tmp_path / "audit.log") == list(range(100))
    assert log.dropped == 0


def test_events_that_are_too_many_are_dropped_and_counted(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log")
    for n in range(100):
        log.write(FakeEntry({"n": n}, size=2 << 20, least=2 << 20))
    log.open()
    log.close()
    assert numbers_in(tmp_path / "audit.log") == list(range(48))
    assert log.dropped == 52


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = AuditLog(tmp_path / "audit.log")
    write, full = os.write, False

    def limited(file: int, data: Any) -> int:
        if full and file == log._file:
            if len(data) < 20:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(file, data[: len(data) // 2])
        return write(file, data)

    monkeypatch.setattr(os, "write", limited)
    log._reopen()
    lines = [orjson.dumps({"n": n, "text": "x" * 80}) + b"\n" for n in range(3)]
    log._append(lines[:1])
    full = True
    log._append(lines[1:2])
    full = False
    log._append(lines[2:])
    assert numbers_in(tmp_path / "audit.log") == [0, 2]
    assert log.dropped == 1


def test_a_failed_rotation_writes_to_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The descriptor of the closed log may by then belong to a connection or to the store."""
    log = AuditLog(tmp_path / "audit.log", max_bytes=100)
    log._reopen()
    lines = [orjson.dumps({"n": n, "text": "x" * 80}) + b"\n" for n in range(3)]
    log._append(lines[:1])

    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", refuse)
        log._append(lines[1:2])
        with (tmp_path / "other").open("wb") as other:  # gets the descriptor that was closed
            log._append(lines[1:2])
            assert os.fstat(other.fileno()).st_size == 0
    log._append(lines[2:])
    assert numbers_in(tmp_path / "audit.log") == [2]
    assert numbers_in(tmp_path / "audit.log.1") == [0]
    assert log.dropped == 2


def test_the_file_is_private_and_rotated_by_size(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text("")
    path.chmod(0o644)
    log = AuditLog(path, max_bytes=1000, backups=2)
    log.open()
    for n in range(100):
        log.write(FakeEntry({"n": n, "text": "x" * 80}))
    log.close()
    files = sorted(tmp_path.iterdir())
    assert [f.name for f in files] == ["audit.log", "audit.log.1", "audit.log.2"]
    assert all(f.stat().st_mode & 0o777 == 0o600 and f.stat().st_size <= 1000 for f in files)
    numbers = [
        orjson.loads(line)["n"] for f in reversed(files) for line in f.read_bytes().splitlines()
    ]
    assert numbers == list(range(numbers[0], 100))


def test_a_device_or_a_pipe_is_not_rotated(tmp_path: Path) -> None:
    """--audit-log /dev/null must not rename /dev/null, or take it from others."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o622)
    mode = pipe.stat().st_mode
    reader = os.open(pipe, os.O_RDWR)  # also keeps the pipe open
    log = AuditLog(pipe, max_bytes=100)
    log.open()
    for n in range(10):
        log.write(FakeEntry({"n": n, "text": "x" * 80}))
    log.close()
    assert os.read(reader, 65536).count(b"\n") == 10
    os.close(reader)
    assert os.listdir(tmp_path) == ["pipe"] and pipe.stat().st_mode == mode


def test_an_event_that_cannot_be_written_does_not_end_the_log(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log")
    log.open()
    log.write(FakeEntry({"bad": object()}))
    log.write(FakeEntry({"good": 1}))
    log.close()
    assert (tmp_path / "audit.log").read_text() == '{"good":1}\n'
