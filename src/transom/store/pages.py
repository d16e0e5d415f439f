"""Reads rows out of a damaged SQLite file, page by page, without SQLite.

SQLite stops at the first invalid page. This reader continues: each row has its own checksum
(`rows.py`), so every row that can still be parsed can be verified. It implements the file format,
https://www.sqlite.org/fileformat2.html, as far as our tables need it, and does not trust any number
that it reads.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_TABLE_LEAF, _TABLE_INTERIOR, _INDEX_LEAF = 0x0D, 0x05, 0x0A
_MOST_PAYLOAD = 128 << 20
_WAL_HEADER, _FRAME_HEADER = 32, 24

Fields = tuple[object, ...]


class PageCell(NamedTuple):
    rowid: int
    fields: Fields | None  # None: it cannot be parsed
    raw: bytes


class LeafPage(NamedTuple):
    page: int
    cells: list[PageCell]


class WalFrame(NamedTuple):
    """A page in the write-ahead log. `commits`: it is the last one of a transaction."""

    page: int
    offset: int
    commits: bool
    salts: bytes


class PageFile:
    """The pages of a database, each in its newest version: from the write-ahead log, otherwise from
    the file.
    """

    def __init__(self, main: bytes, log: bytes, page_size: int) -> None:
        """`main` is the database file, `log` its write-ahead log."""
        self._main = main
        self._log = log
        self.page_size = page_size
        self.frames: list[WalFrame] = []
        self._newest: dict[int, int] = {}
        self._read_log()

    def _read_log(self) -> None:
        step = _FRAME_HEADER + self.page_size
        for offset in range(_WAL_HEADER, len(self._log) - step + 1, step):
            number, truncate = struct.unpack_from(">II", self._log, offset)
            if 0 < number < 1 << 31:
                salts = self._log[offset + 8 : offset + 16]
                self.frames.append(WalFrame(number, offset + _FRAME_HEADER, truncate != 0, salts))
        # Frames of earlier cycles, after those of the last one, have other salts.
        salts = self._log[16:24]
        if self.frames and all(frame.salts != salts for frame in self.frames):
            salts = self.frames[0].salts  # the head of the log is damaged
        for frame in self.frames:
            if frame.salts == salts:
                self._newest[frame.page] = frame.offset

    @property
    def count(self) -> int:
        return max([-(-len(self._main) // self.page_size), *self._newest], default=0)

    def page(self, number: int) -> bytes:
        """Empty if there is none."""
        offset = self._newest.get(number)
        if offset is not None:
            return self._log[offset : offset + self.page_size]
        start = (number - 1) * self.page_size
        found = self._main[start : start + self.page_size]
        return found.ljust(self.page_size, b"\0") if found else b""

    def image(self, offset: int) -> bytes:
        return self._log[offset : offset + self.page_size]

    # Trees

    def walk(self, root: int) -> tuple[list[int], set[int], list[str]]:
        """The leaves of a table from left to right, all pages of the tree, and its problems."""
        leaves: list[int] = []
        seen: set[int] = set()
        problems: list[str] = []
        waiting = [root]
        while waiting:
            number = waiting.pop()
            if number in seen or not 0 < number <= self.count:
                problems.append(f"page {number} is referred to more than once or does not exist")
                continue
            seen.add(number)
            page = self.page(number)
            start = 100 if number == 1 else 0
            kind = page[start] if len(page) > start else 0
            if kind in (_TABLE_LEAF, _INDEX_LEAF):
                leaves.append(number)
            elif kind == _TABLE_INTERIOR:
                waiting += reversed(list(_children(page, start)))
            else:
                problems.append(f"page {number} is not part of a table")
        return leaves, seen, problems

    def free_pages(self) -> tuple[set[int], bool]:
        """The pages on the free list, and whether that list is plausible."""
        head = self.page(1)
        if len(head) < 100:
            return set(), False
        trunk, expected = struct.unpack_from(">II", head, 32)
        found: set[int] = set()
        while trunk:
            page = self.page(trunk)
            if trunk in found or not page:
                return found, False
            found.add(trunk)
            trunk, count = struct.unpack_from(">II", page)
            if count > self.page_size // 4 - 2:
                return found, False
            found.update(struct.unpack_from(f">{count}I", page, 8))
        return found, len(found) == expected

    def leaf(self, number: int) -> LeafPage:
        return LeafPage(number, list(self.cells(self.page(number), 100 if number == 1 else 0)))

    def cells(self, page: bytes, start: int = 0) -> Iterator[PageCell]:
        """The cells of a leaf, of a table or of an index."""
        if len(page) < start + 8 or page[start] not in (_TABLE_LEAF, _INDEX_LEAF):
            return
        is_table = page[start] == _TABLE_LEAF
        count = min(
            int.from_bytes(page[start + 3 : start + 5], "big"), (len(page) - start - 8) // 2
        )
        for (pointer,) in struct.iter_unpack(">H", page[start + 8 : start + 8 + 2 * count]):
            try:
                yield self._cell(page, pointer, is_table)
            except (IndexError, struct.error, ValueError):
                yield PageCell(0, None, page[pointer : pointer + 256])

    def _cell(self, page: bytes, at: int, is_table: bool) -> PageCell:
        begin = at
        size, at = _varint(page, at)
        rowid = 0
        if is_table:
            rowid, at = _varint(page, at)
            rowid -= (rowid >> 63) << 64
        usable = self.page_size
        most = usable - 35 if is_table else (usable - 12) * 64 // 255 - 23
        least = (usable - 12) * 32 // 255 - 23
        if size > _MOST_PAYLOAD:
            raise ValueError("longer than any row")
        if size <= most:
            payload = page[at : at + size]
            end = at + size
        else:
            local = least + (size - least) % (usable - 4)
            local = local if local <= most else least
            end = at + local + 4
            payload = page[at : at + local] + self._overflow(
                int.from_bytes(page[end - 4 : end], "big"), size - local
            )
        try:
            fields = _record(payload)
        except (IndexError, struct.error, ValueError):
            fields = None
        return PageCell(rowid, fields, payload if size > most else page[begin:end])

    def _overflow(self, number: int, size: int) -> bytes:
        parts: list[bytes] = []
        seen: set[int] = set()
        while size > 0 and number and number not in seen:
            seen.add(number)
            page = self.page(number)
            if not page:
                break
            parts.append(page[4 : 4 + min(size, self.page_size - 4)])
            size -= self.page_size - 4
            number = int.from_bytes(page[:4], "big")
        return b"".join(parts)

    def overflow_pages(self, page: bytes) -> set[int]:
        """The overflow pages of the cells of a table leaf."""
        found: set[int] = set()
        if len(page) < 8 or page[0] != _TABLE_LEAF:
            return found
        count = min(int.from_bytes(page[3:5], "big"), (len(page) - 8) // 2)
        for (pointer,) in struct.iter_unpack(">H", page[8 : 8 + 2 * count]):
            try:
                size, at = _varint(page, pointer)
                _, at = _varint(page, at)
            except IndexError:
                continue
            if size <= self.page_size - 35 or size > _MOST_PAYLOAD:
                continue
            least = (self.page_size - 12) * 32 // 255 - 23
            local = least + (size - least) % (self.page_size - 4)
            local = local if local <= self.page_size - 35 else least
            number = int.from_bytes(page[at + local : at + local + 4], "big")
            while number and number not in found and (more := self.page(number)):
                found.add(number)
                number = int.from_bytes(more[:4], "big")
        return found

    def roots(self) -> dict[str, int]:
        """The root page of each table, from the schema."""
        found: dict[str, int] = {}
        leaves, _, _ = self.walk(1)
        for number in leaves:
            for cell in self.leaf(number).cells:
                fields = cell.fields or ()
                if len(fields) >= 4 and fields[0] == "table" and isinstance(fields[3], int):
                    found[str(fields[1])] = fields[3]
        return found


def read_tolerantly(path: Path, piece: int) -> bytes:
    """The contents of a file, with zeros for unreadable parts."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return b""
    parts: list[bytes] = []
    with file:
        for start in range(0, os.fstat(file.fileno()).st_size, piece):
            try:
                parts.append(os.pread(file.fileno(), piece, start))
            except OSError:
                parts.append(bytes(piece))
    return b"".join(parts)


def _children(page: bytes, start: int) -> Iterator[int]:
    count = min(int.from_bytes(page[start + 3 : start + 5], "big"), (len(page) - start - 12) // 2)
    for (pointer,) in struct.iter_unpack(">H", page[start + 12 : start + 12 + 2 * count]):
        yield int.from_bytes(page[pointer : pointer + 4], "big")
    yield int.from_bytes(page[start + 8 : start + 12], "big")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for step in range(9):
        byte = data[at + step]
        if step == 8:
            return value << 8 | byte, at + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + step + 1
    raise ValueError("never reached")


_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}


def _record(payload: bytes) -> Fields:
    end, at = _varint(payload, 0)
    if end > len(payload):
        raise ValueError("its head is longer than itself")
    kinds: list[int] = []
    while at < end:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    return tuple(_fields(payload, end, kinds))


def _fields(payload: bytes, at: int, kinds: list[int]) -> Iterator[object]:
    for kind in kinds:
        if kind == 0:
            yield None
        elif kind in _INTEGERS:
            size = _INTEGERS[kind]
            if at + size > len(payload):
                raise ValueError("it is cut off")
            yield int.from_bytes(payload[at : at + size], "big", signed=True)
            at += size
        elif kind == 7:
            yield struct.unpack_from(">d", payload, at)[0]
            at += 8
        elif kind in (8, 9):
            yield kind - 8
        elif kind >= 12:
            size = (kind - 12) // 2
            if at + size > len(payload):
                raise ValueError("it is cut off")
            data = payload[at : at + size]
            yield data if kind % 2 == 0 else data.decode()
            at += size
        else:
            raise ValueError(f"unknown type {kind}")
