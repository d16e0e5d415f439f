"""Reads untrusted tar archives in one pass: ustar, GNU and PAX, with sparse files and extended
attributes.

Everything is bounded: names, extended headers, numbers. Malformed input raises ImageError; nothing
is guessed. It knows nothing of layers and writes no files.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Final, Literal

from transom.kit.lazy_dataclass import dataclass
from transom.runtime.images.model import ImageError

_BLOCK: Final = 512
_LONGEST_HEADER: Final = 1 << 20  # of extended headers and long names
_MOST_HOLES: Final = 1 << 16
_LONGEST_FILE: Final = 1 << 50
_XATTR: Final = "SCHILY.xattr."

Kind = Literal["file", "hardlink", "symlink", "char", "block", "dir", "fifo"]
_KINDS: Final[Mapping[bytes, Kind]] = {
    b"0": "file",
    b"\0": "file",
    b"7": "file",
    b"1": "hardlink",
    b"2": "symlink",
    b"3": "char",
    b"4": "block",
    b"5": "dir",
    b"6": "fifo",
    b"S": "file",
}


@dataclass(slots=True)
class TarEntry:
    """A member. `sparse` has the data segments of a sparse file: offset and size."""

    name: bytes
    kind: Kind
    size: int
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    mtime_ns: int = 0
    link: bytes = b""
    device: tuple[int, int] = (0, 0)
    xattrs: dict[str, bytes] = field(default_factory=dict)
    records: dict[str, bytes] = field(default_factory=dict)  # PAX ones
    sparse: list[tuple[int, int]] | None = None
    stored: int = 0  # bytes in the archive


class TarStream:
    """Iterate over the entries; `data` returns the bytes of the current one. At the end, `rest`
    must be consumed.
    """

    def __init__(self, source: Iterable[bytes]) -> None:
        self._source = iter(source)
        self._buffer = bytearray()
        self._left = 0  # of the current entry
        self._padding = 0
        self._globals: dict[str, bytes] = {}

    # ---- bytes ----

    def _fill(self, size: int) -> bool:
        while len(self._buffer) < size:
            piece = next(self._source, None)
            if piece is None:
                return False
            self._buffer += piece
        return True

    def _take(self, size: int) -> bytes:
        if not self._fill(size):
            raise ImageError("unexpected EOF")
        found = bytes(self._buffer[:size])
        del self._buffer[:size]
        return found

    def _skip(self, size: int) -> None:
        while size:
            if not self._buffer and not self._fill(1):
                raise ImageError("unexpected EOF")
            step = min(size, len(self._buffer))
            del self._buffer[:step]
            size -= step

    def data(self) -> Iterator[bytes]:
        """The archived bytes of the current entry: of a sparse file only the data segments."""
        while self._left:
            if not self._buffer and not self._fill(1):
                raise ImageError("unexpected EOF")
            piece = bytes(self._buffer[: self._left])
            del self._buffer[: len(piece)]
            self._left -= len(piece)
            yield piece

    def rest(self) -> None:
        """Reads to the end of the stream, for a caller that counts or hashes it."""
        self._buffer.clear()
        for _ in self._source:
            pass

    # ---- entries ----

    def __iter__(self) -> Iterator[TarEntry]:
        while (entry := self._next()) is not None:
            yield entry

    def _next(self) -> TarEntry | None:
        self._skip(self._left + self._padding)
        self._left = self._padding = 0
        records: dict[str, bytes] = {}
        name = link = None
        while True:
            if not self._fill(1):
                return None  # without the two empty blocks at the end, as some writers do
            block = self._take(_BLOCK)
            if not any(block):
                return None
            _check(block)
            kind, size = block[156:157], _number(block[124:136])
            if kind in (b"x", b"X", b"g", b"L", b"K"):
                content = self._extra(size)
                match kind:
                    case b"x" | b"X":
                        records.update(_pax(content))
                    case b"g":
                        self._globals.update(_pax(content))
                    case b"L":
                        name = content.rstrip(b"\0")
                    case b"K":
                        link = content.rstrip(b"\0")
                continue
            return self._entry(block, kind, size, name, link, {**self._globals, **records})

    def _extra(self, size: int) -> bytes:
        if size > _LONGEST_HEADER:
            raise ImageError("archive/tar: extended header is too long")
        content = self._take(size)
        self._skip(-size % _BLOCK)
        return content

    def _entry(
        self,
        block: bytes,
        kind: bytes,
        size: int,
        name: bytes | None,
        link: bytes | None,
        records: dict[str, bytes],
    ) -> TarEntry:
        known = _KINDS.get(kind)
        if known is None:
            raise ImageError(f"unhandled tar header type {kind[0]}")
        size = _decimal(records, "size", size)
        path = name if name is not None else _text(block[0:100])
        ustar = block[257:263] == b"ustar\0"
        if ustar and name is None and block[345]:
            path = _text(block[345:500]) + b"/" + path
        path = records.get("path", path)
        if kind == b"\0" and path.endswith(b"/"):  # from before there was a type for directories
            known = "dir"
        target = records.get("linkpath", link if link is not None else _text(block[157:257]))
        entry = TarEntry(
            path,
            known,
            size if known == "file" else 0,
            _number(block[100:108]) & 0o7777,
            _decimal(records, "uid", _number(block[108:116])),
            _decimal(records, "gid", _number(block[116:124])),
            _time(records, _number(block[136:148], signed=True)),
            target,
            (_number(block[329:337]), _number(block[337:345]))
            if known in ("char", "block")
            else (0, 0),
            {key[len(_XATTR) :]: value for key, value in records.items() if key.startswith(_XATTR)},
            records,
            stored=size,
        )
        if b"\0" in path or b"\0" in target:
            raise ImageError("archive/tar: a name has a NUL in it")
        if size < 0 or size > _LONGEST_FILE:
            raise ImageError("archive/tar: invalid size in header")
        if known == "file":  # no data follows anything else, regardless of the size in its header
            self._left, self._padding = size, -size % _BLOCK
            self._sparse(entry, block, kind)
        return entry

    # ---- sparse files ----

    def _sparse(self, entry: TarEntry, block: bytes, kind: bytes) -> None:
        records = entry.records
        if kind == b"S":
            entry.size = _number(block[483:495])
            entry.sparse = self._old_sparse(block)
        elif records.get("GNU.sparse.major") == b"1":
            entry.size = _decimal(records, "GNU.sparse.realsize", entry.size)
            entry.name = records.get("GNU.sparse.name", entry.name)
            entry.sparse = self._sparse_1()
        elif "GNU.sparse.map" in records or "GNU.sparse.size" in records:
            entry.size = _decimal(records, "GNU.sparse.size", entry.size)
            entry.name = records.get("GNU.sparse.name", entry.name)
            numbers = [
                _digits(text) for text in records.get("GNU.sparse.map", b"").split(b",") if text
            ]
            entry.sparse = list(zip(numbers[::2], numbers[1::2], strict=False))
        if entry.sparse is not None:
            _check_sparse(entry.sparse, entry.size, self._left)

    def _old_sparse(self, block: bytes) -> list[tuple[int, int]]:
        found = _sparse_segments(block[386:482])
        more = block[482]
        while more:
            block = self._take(_BLOCK)
            found += _sparse_segments(block[:504])
            more = block[504]
            if len(found) > _MOST_HOLES:
                raise ImageError("archive/tar: too many holes in a sparse file")
        return found

    def _sparse_1(self) -> list[tuple[int, int]]:
        """The map precedes the data, in decimal lines, padded to a block."""
        used, text = 0, b""

        def line() -> int:
            nonlocal used, text
            while b"\n" not in text:
                if self._left < used + _BLOCK or used > _LONGEST_HEADER:
                    raise ImageError("archive/tar: invalid sparse map")
                text += self._take(_BLOCK)
                used += _BLOCK
            number, _, text = text.partition(b"\n")
            return _digits(number)

        count = line()
        if count > _MOST_HOLES:
            raise ImageError("archive/tar: too many holes in a sparse file")
        found = [(line(), line()) for _ in range(count)]
        self._left -= used
        return found


def _check(block: bytes) -> None:
    checksum = _number(block[148:156])
    unsigned = sum(block) - sum(block[148:156]) + 8 * 32
    if checksum != unsigned:
        signed = unsigned - 256 * sum(
            byte > 127 for i, byte in enumerate(block) if not 148 <= i < 156
        )
        if checksum != signed:  # some old writers summed signed bytes
            raise ImageError("archive/tar: invalid tar header")


def _number(raw: bytes, *, signed: bool = False) -> int:
    """Octal, or base 256 where the first bit is set."""
    if raw[0] & 0x80:
        value = int.from_bytes(bytes([raw[0] & 0x7F]) + raw[1:], "big")
        if raw[0] & 0x40:
            value -= 1 << (8 * len(raw) - 1)
        if value < 0 and not signed:
            raise ImageError("archive/tar: invalid tar header")
        return value
    text = raw.partition(b"\0")[0].strip(b" ")
    try:
        return int(text, 8) if text else 0
    except ValueError as problem:
        raise ImageError("archive/tar: invalid tar header") from problem


def _text(raw: bytes) -> bytes:
    return raw.partition(b"\0")[0]


def _digits(text: bytes) -> int:
    if not text.isdigit() or len(text) > 19:
        raise ImageError("archive/tar: invalid tar header")
    return int(text)


def _decimal(records: Mapping[str, bytes], key: str, otherwise: int) -> int:
    return _digits(records[key]) if key in records else otherwise


def _time(records: Mapping[str, bytes], otherwise: int) -> int:
    if "mtime" not in records:
        return otherwise * 10**9
    try:
        whole, _, fraction = records["mtime"].decode("ascii").partition(".")
        digits = int((fraction[:9] or "0").ljust(9, "0"))
        return int(whole or "0") * 10**9 + int(
            math.copysign(digits, -1 if whole.startswith("-") else 1)
        )
    except ValueError as problem:
        raise ImageError("archive/tar: invalid tar header") from problem


def _pax(content: bytes) -> dict[str, bytes]:
    """A sequence of `LENGTH KEY=VALUE\\n`. An empty value deletes an earlier one."""
    found: dict[str, bytes] = {}
    holes: list[bytes] = []
    at = 0
    while at < len(content):
        space = content.find(b" ", at, at + 12)
        if space < 0:
            raise ImageError("archive/tar: invalid tar header")
        end = at + _digits(content[at:space])
        equals = content.find(b"=", space, end)
        if equals < 0 or end > len(content) or content[end - 1 : end] != b"\n":
            raise ImageError("archive/tar: invalid tar header")
        key, value = (
            content[space + 1 : equals].decode("utf-8", "surrogateescape"),
            content[equals + 1 : end - 1],
        )
        if key in ("GNU.sparse.offset", "GNU.sparse.numbytes"):  # given many times, in pairs
            holes.append(value)
        else:
            found[key] = value
        at = end
    if holes:
        found["GNU.sparse.map"] = b",".join(holes)
    return {key: value for key, value in found.items() if value or key.startswith(_XATTR)}


def _sparse_segments(raw: bytes) -> list[tuple[int, int]]:
    found = []
    for at in range(0, len(raw) - 23, 24):
        if not raw[at]:
            break
        found.append((_number(raw[at : at + 12]), _number(raw[at + 12 : at + 24])))
    return found


def _check_sparse(segments: list[tuple[int, int]], size: int, stored: int) -> None:
    at = 0
    for offset, length in segments:
        if offset < at or offset + length > size:
            raise ImageError("archive/tar: invalid sparse map")
        at = offset + length
    if size > _LONGEST_FILE or sum(length for _, length in segments) != stored:
        raise ImageError("archive/tar: invalid sparse map")
