"""The snapshot file: a header, blocks, and a trailer with a digest of everything. Written and read
as a stream.

    magic           "TRANSOM-SNAPSHOT 1\\n"
    blocks          kind (1 byte), length (4), CRC-32 of the contents (4), contents; numbers are big-endian
      H             header: JSON; the first block
      F             a file: a line of JSON (name, mode), then its contents
      R             records, one after the other
      T             trailer: JSON with the number of records, counts by bucket, the SHA-256 of everything before; the last
    end             length of the block T (4), "TEND"

A record has the checksum of a row of the store (`rows.py`, without a trail). Values may be sealed.
It knows nothing about Kubernetes or the storage engine.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from zlib import crc32

from transom.kit.files import is_special, sync_directory
from transom.store.rows import checksum

MAGIC = b"TRANSOM-SNAPSHOT 1\n"
_PREFIX = b"TRANSOM-SNAPSHOT "
_BLOCK = struct.Struct(">cII")
_RECORD = struct.Struct(">IqqBdII")
_END = struct.Struct(">I4s")
_MOST_BLOCK = 128 << 20
_MOST_REVISION = 1 << 60
_LONGEST_NAME = 200


class SnapshotDamaged(Exception):
    """The file is corrupt or incomplete."""


class SnapshotRecord(NamedTuple):
    """`value` as stored on disk: it may be sealed."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    expires: float | None

    @property
    def bucket(self) -> str:
        return self.key[: self.key.find("/")]


def pack_records(records: Iterable[SnapshotRecord]) -> bytes:
    parts: list[bytes] = []
    for record in records:
        key = record.key.encode()
        found = checksum(
            record.mod_revision,
            b"",
            record.key,
            record.create_revision,
            record.expires,
            record.value,
        )
        parts += (
            _RECORD.pack(
                len(key),
                record.create_revision,
                record.mod_revision,
                record.expires is not None,
                record.expires or 0.0,
                len(record.value),
                found,
            ),
            key,
            record.value,
        )
    return b"".join(parts)


def unpack_records(block: bytes) -> Iterator[SnapshotRecord]:
    """Raises SnapshotDamaged at the first record whose checksum does not match."""
    at = 0
    while at < len(block):
        try:
            key_size, created, modified, expires, when, size, found = _RECORD.unpack_from(block, at)
            at += _RECORD.size
            key = block[at : at + key_size].decode()
        except (struct.error, UnicodeDecodeError) as error:
            raise SnapshotDamaged(f"a record has no proper head: {error}") from error
        value = block[at + key_size : at + key_size + size]
        at += key_size + size
        record = SnapshotRecord(key, value, created, modified, when if expires else None)
        if len(value) != size or found != checksum(
            modified, b"", key, created, record.expires, value
        ):
            raise SnapshotDamaged(f"the checksum of {key} does not match")
        yield record


class SnapshotWriter:
    """Writes to a temporary name beside `path` until it is complete; `resume` continues an
    interrupted save.
    """

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        if is_special(path):
            raise FileExistsError(errno.EEXIST, "it is not a regular file", str(path))
        self._path = path
        self._partial = partial_name(path)
        descriptor = os.open(self._partial, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self._file = os.fdopen(descriptor, "r+b")
        self._digest = hashlib.sha256()
        self.records = 0
        self.counts: dict[str, int] = {}
        self._write(MAGIC)
        self._block(b"H", json.dumps(header).encode())

    @classmethod
    def resume(cls, path: Path) -> tuple[SnapshotWriter, dict[str, Any]] | None:
        """Resumes an interrupted save after its last complete block; None if there is nothing to
        resume.
        """
        partial = partial_name(path)
        if not partial.exists():
            return None
        self = cls.__new__(cls)
        self._path, self._partial = path, partial
        self._digest = hashlib.sha256()
        self.records, self.counts = 0, {}
        self._file = partial.open("r+b")
        header: dict[str, Any] | None = None
        end = 0
        try:
            if self._file.read(len(MAGIC)) != MAGIC:
                raise SnapshotDamaged("not a snapshot")
            self._digest.update(MAGIC)
            end = self._file.tell()
            while (block := _read_block(self._file)) is not None:
                kind, contents, raw = block
                if kind == b"H":
                    header = json.loads(contents)
                elif kind == b"R":
                    self._count(unpack_records(contents))
                self._digest.update(raw)
                self._digest.update(contents)
                end = self._file.tell()
        except (SnapshotDamaged, ValueError):
            pass  # the incomplete rest is written again
        if header is None:
            self._file.close()
            return None
        self._file.seek(end)
        self._file.truncate()
        return self, header

    def add_file(self, name: str, mode: int, contents: bytes) -> None:
        self._block(b"F", json.dumps({"name": name, "mode": mode}).encode() + b"\n" + contents)

    def add_records(self, block: bytes) -> int:
        """Adds a block that `pack_records` made; returns its number of records."""
        before = self.records
        self._count(unpack_records(block))
        self._block(b"R", block)
        return self.records - before

    def finish(self) -> dict[str, Any]:
        trailer = {
            "records": self.records,
            "counts": dict(sorted(self.counts.items())),
            "sha256": self._digest.hexdigest(),
        }
        contents = json.dumps(trailer).encode()
        self._block(b"T", contents)
        self._write(_END.pack(_BLOCK.size + len(contents), b"TEND"))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._partial, self._path)
        sync_directory(self._path.parent)
        return trailer

    def close(self) -> None:
        """Leaves an incomplete file for `resume`."""
        self._file.close()

    def _count(self, records: Iterator[SnapshotRecord]) -> None:
        for record in records:
            self.records += 1
            self.counts[record.bucket] = self.counts.get(record.bucket, 0) + 1

    def _block(self, kind: bytes, contents: bytes) -> None:
        self._write(_BLOCK.pack(kind, len(contents), crc32(contents)))
        self._write(contents)

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._digest.update(data)


def partial_name(path: Path) -> Path:
    return path.with_name(path.name + ".partial")


def _read_block(file: BinaryIO) -> tuple[bytes, bytes, bytes] | None:
    """Kind, contents and header of the next block; None at the end of the file."""
    head = file.read(_BLOCK.size)
    if not head:
        return None
    if len(head) < _BLOCK.size:
        raise SnapshotDamaged("the file is cut off")
    kind, size, crc = _BLOCK.unpack(head)
    if kind not in (b"H", b"F", b"R", b"T") or size > _MOST_BLOCK:
        raise SnapshotDamaged("a block has no proper head")
    contents = file.read(size)
    if len(contents) < size:
        raise SnapshotDamaged("the file is cut off")
    if crc32(contents) != crc:
        raise SnapshotDamaged("the checksum of a block does not match")
    return kind, contents, head


@dataclass
class SnapshotReader:
    """Reads a snapshot from beginning to end: iterate over it, then read the other attributes.
    Raises SnapshotDamaged.
    """

    path: Path
    header: dict[str, Any] = field(default_factory=dict)
    trailer: dict[str, Any] = field(default_factory=dict)
    files: dict[str, tuple[int, bytes]] = field(default_factory=dict)  # name -> mode, contents

    def __iter__(self) -> Iterator[SnapshotRecord]:
        digest = hashlib.sha256()
        count = 0
        with self.path.open("rb") as file:
            _check_magic(file.read(len(MAGIC)))
            digest.update(MAGIC)
            while not self.trailer:
                block = _read_block(file)
                if block is None:
                    raise SnapshotDamaged("the file is cut off")
                kind, contents, head = block
                if (kind == b"H") != (not self.header):
                    raise SnapshotDamaged("it does not begin with its header")
                if kind == b"T":
                    self.trailer = _parse_json(contents)
                    _check_end(file, _END.pack(_BLOCK.size + len(contents), b"TEND"))
                    break
                digest.update(head)
                digest.update(contents)
                if kind == b"H":
                    self.header = _parse_header(contents)
                elif kind == b"F":
                    name, mode, data = _parse_file(contents)
                    self.files[name] = (mode, data)
                else:
                    for record in unpack_records(contents):
                        count += 1
                        _check_record(record, self.header["revision"])
                        yield record
        if self.trailer.get("sha256") != digest.hexdigest() or self.trailer.get("records") != count:
            raise SnapshotDamaged("the digest does not match")


def _parse_header(contents: bytes) -> dict[str, Any]:
    header = _parse_json(contents)
    if not isinstance(header.get("cluster", ""), str):
        raise SnapshotDamaged("the name of its cluster is not a string")
    revision = header.get("revision")
    if type(revision) is not int or not 0 <= revision <= _MOST_REVISION:
        raise SnapshotDamaged("its revision is not a number")
    return header


def _parse_file(contents: bytes) -> tuple[str, int, bytes]:
    """Name, mode and contents of a file."""
    line, _, data = contents.partition(b"\n")
    about = _parse_json(line)
    name, mode = about.get("name"), about.get("mode", 0o600)
    if not isinstance(name, str) or not name.isprintable() or len(name) > _LONGEST_NAME:
        raise SnapshotDamaged("the name of a file is not valid")
    if not isinstance(mode, int):
        raise SnapshotDamaged("the mode of a file is not a number")
    return name, mode, data


def _check_record(record: SnapshotRecord, newest: int) -> None:
    if "/" not in record.key:
        raise SnapshotDamaged(f"a record has no proper key: {record.key[:100]!r}")
    if not 0 < record.create_revision <= record.mod_revision <= newest:
        raise SnapshotDamaged(f"the revision of {record.key} is not one of the snapshot")


def _parse_json(contents: bytes) -> dict[str, Any]:
    try:
        found = json.loads(contents)
    except (ValueError, RecursionError) as error:
        raise SnapshotDamaged(f"a block is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise SnapshotDamaged("a block is not a JSON object")
    return found


def _check_end(file: BinaryIO, expected: bytes) -> None:
    found = file.read(len(expected) + 1)
    if found != expected:
        cut = expected.startswith(found)
        raise SnapshotDamaged("the file is cut off" if cut else "something follows its end")


def _check_magic(found: bytes) -> None:
    if found == MAGIC:
        return
    if found.startswith(_PREFIX):
        raise SnapshotDamaged("it was written by a newer release")
    raise SnapshotDamaged("it is not a snapshot")


def read_summary(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and trailer, without the blocks between them."""
    with path.open("rb") as file:
        _check_magic(file.read(len(MAGIC)))
        first = _read_block(file)
        if first is None or first[0] != b"H":
            raise SnapshotDamaged("it does not begin with its header")
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - _END.size))
        try:
            length, mark = _END.unpack(file.read(_END.size))
        except struct.error as error:
            raise SnapshotDamaged("the file is cut off") from error
        if mark != b"TEND" or length > size:
            raise SnapshotDamaged("the file is cut off")
        file.seek(size - _END.size - length)
        last = _read_block(file)
        if last is None or last[0] != b"T":
            raise SnapshotDamaged("it does not end with its trailer")
        return _parse_json(first[1]), _parse_json(last[1])
