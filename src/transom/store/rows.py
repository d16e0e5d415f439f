"""The integrity data of the SQLite store: the checksum of a row, the trail of the rows before it,
and the ledger of all rows.

- The checksum covers everything in the row, so a flipped bit, a torn write or a value that moved to
  another key is detected.
- The trail names the rows written just before, by revision and a hash of their key. If a page is
  lost, the rows after it still show which keys it held, so that an older version of such a key is
  not mistaken for the newest.
- The ledger counts the rows of the file and adds up their checksums, so that a missing row is
  detected.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from zlib import crc32

from transom.kit.named_tuple import NamedTuple

_HEAD = struct.Struct("<qqdBHI")
_STEP = struct.Struct("<HI")
# Most rows name a few others; some name many, in case more than one page is lost.
_TRAIL_BYTES, _LONG_TRAIL_BYTES, _LEDGER_TRAIL_BYTES = (
    steps * _STEP.size for steps in (8, 32, 256)
)
_FAR = 0xFFFF
_LEDGER = struct.Struct("<BQQQQ")
_LEDGER_VERSION = 1
_MASK = (1 << 64) - 1


class StoredRow(NamedTuple):
    """One row of the table `log`, in the order of its columns. `value` None is a deletion."""

    revision: int
    checksum: int
    trail: bytes
    key: str
    create_revision: int
    expires: float | None
    value: bytes | None


def checksum(
    revision: int,
    trail: bytes,
    key: str,
    create_revision: int,
    expires: float | None,
    value: bytes | None,
) -> int:
    # Runs for every row at every start.
    name = key.encode()
    flags = (value is None) | (expires is None) << 1
    crc = crc32(
        _HEAD.pack(revision, create_revision, expires or 0.0, flags, len(trail), len(name))
        + trail
        + name
    )
    return crc if value is None else crc32(value, crc)


def is_intact(row: Sequence[object]) -> bool:
    """Whether the row is unchanged since it was written. Damage may have changed the type of any
    field.
    """
    revision, found, trail, key, create_revision, expires, value = row
    try:
        return found == checksum(revision, trail, key, create_revision, expires, value)  # type: ignore[arg-type]
    except (TypeError, AttributeError, struct.error, UnicodeEncodeError):
        return False


class Ledger(NamedTuple):
    """The contents of the file up to and including `revision`: the number of rows, and `total`, the
    sum of their checksums.
    """

    compacted: int = 0
    revision: int = 1
    rows: int = 0
    total: int = 0
    trail: bytes = b""

    def pack(self) -> bytes:
        body = (
            _LEDGER.pack(_LEDGER_VERSION, self.compacted, self.revision, self.rows, self.total)
            + self.trail
        )
        return body + crc32(body).to_bytes(4, "little")

    @classmethod
    def unpack(cls, stored: object) -> Ledger | None:
        """Returns None if it is damaged."""
        if not isinstance(stored, bytes) or len(stored) < _LEDGER.size + 4:
            return None
        body = stored[:-4]
        if crc32(body) != int.from_bytes(stored[-4:], "little") or body[0] != _LEDGER_VERSION:
            return None
        _, compacted, revision, rows, total = _LEDGER.unpack_from(body)
        return cls(compacted, revision, rows, total, body[_LEDGER.size :])

    def without(self, rows: int, total: int, compacted: int) -> Ledger:
        return Ledger(
            compacted, self.revision, self.rows - rows, (self.total - total) & _MASK, self.trail
        )


class LedgerWriter:
    """Seals the rows of one transaction; `ledger` is the ledger after its commit."""

    def __init__(self, ledger: Ledger) -> None:
        self._compacted = ledger.compacted
        self._revision = ledger.revision
        self._rows = ledger.rows
        self._total = ledger.total
        self._trail = ledger.trail

    def add(
        self,
        revision: int,
        key: str,
        create_revision: int,
        expires: float | None,
        value: bytes | None,
    ) -> StoredRow:
        distance = revision - self._revision
        # The newest step is 0; its distance is known when the next row comes.
        trail = (
            distance.to_bytes(2, "little") + self._trail[2:]
            if self._trail and distance < _FAR
            else b""
        )
        sealed = trail[
            : _TRAIL_BYTES
            if revision & 7
            else _LONG_TRAIL_BYTES
            if revision & 63
            else _LEDGER_TRAIL_BYTES
        ]
        found = checksum(revision, sealed, key, create_revision, expires, value)
        self._count(revision, found, key, trail)
        return StoredRow(revision, found, sealed, key, create_revision, expires, value)

    def take(self, row: StoredRow) -> None:
        """Counts a row that is already sealed."""
        self._count(row.revision, row.checksum, row.key, row.trail)

    def _count(self, revision: int, found: int, key: str, trail: bytes) -> None:
        self._trail = (_STEP.pack(0, crc32(key.encode())) + trail)[:_LEDGER_TRAIL_BYTES]
        self._revision = revision
        self._rows += 1
        self._total += found

    @property
    def ledger(self) -> Ledger:
        return Ledger(self._compacted, self._revision, self._rows, self._total & _MASK, self._trail)


def written_before(revision: int, trail: bytes) -> Iterator[tuple[int, int]]:
    """The rows that a trail names: revision and key hash, newest first. The trail of a ledger
    begins with its own newest row.
    """
    for distance, key in _STEP.iter_unpack(trail[: len(trail) // _STEP.size * _STEP.size]):
        revision -= distance
        yield revision, key


def key_hash(key: str) -> int:
    return crc32(key.encode())
