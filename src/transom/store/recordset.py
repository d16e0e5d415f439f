"""Immutable snapshots of a bucket that share most of their memory.

A snapshot is a sequence of chunks, each a tuple of some hundred records in the order of their keys.
The next snapshot replaces only the chunks with changed records. Thousands of readers of slightly
different states of a large bucket then keep a few kilobytes each instead of a list of all records.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import count

from transom.store.record import StoreRecord

_CHUNK = 256
_PARTS = 64  # prefixes that are split once for all readers
_serials = count(1)


class RecordChunk:
    """`size` is the total size of all values in bytes."""

    __slots__ = ("first", "records", "size")

    def __init__(self, records: tuple[StoreRecord, ...]) -> None:
        self.first = records[0].key
        self.records = records
        self.size = sum([len(record.value) for record in records])


class RecordSet:
    """The records of a prefix at a revision. Sets of one prefix with equal `serial` have the same
    records.
    """

    __slots__ = ("_length", "chunks", "revision", "serial", "size")

    def __init__(self, chunks: tuple[RecordChunk, ...], revision: int, serial: int) -> None:
        self.chunks = chunks
        self.revision = revision
        self.serial = serial
        self.size = sum([chunk.size for chunk in chunks])
        self._length = sum([len(chunk.records) for chunk in chunks])

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[StoreRecord]:
        for chunk in self.chunks:
            yield from chunk.records

    def __contains__(self, record: object) -> bool:
        return any(record in chunk.records for chunk in self.chunks)


class RecordSets:
    """The newest snapshot of a bucket, from which the next one is made."""

    __slots__ = ("_chunks", "_firsts", "_parts", "_serial", "built", "revision")

    def __init__(self) -> None:
        self.drop()

    def drop(self) -> None:
        """Drops the snapshot; the next one is built from scratch."""
        self.built = False
        self.revision = 0
        self._chunks: list[RecordChunk] = []
        self._firsts: list[str] = []
        self._parts: dict[str, tuple[RecordChunk, ...]] = {}
        self._serial = 0

    def advance(
        self,
        revision: int,
        changed: Mapping[str, StoreRecord | None],
        keys: Sequence[str],
        records: Mapping[str, StoreRecord],
    ) -> None:
        """Advances to the state of `revision`: `changed` since the last one, or all `records` in
        the order of `keys`.
        """
        self.revision = revision
        if self.built and not changed:
            return
        self._parts = {}
        self._serial = next(_serials)
        if (
            not self._chunks
            or len(changed) > len(self._chunks)
            or len(self._chunks) > 8 + 4 * len(keys) // _CHUNK
        ):
            self._chunks = _chunked([records[key] for key in keys])
        else:
            self._replace(changed)
        self._firsts = [chunk.first for chunk in self._chunks]
        self.built = True

    def _replace(self, changed: Mapping[str, StoreRecord | None]) -> None:
        by_chunk: dict[int, dict[str, StoreRecord | None]] = {}
        for key, record in changed.items():
            by_chunk.setdefault(max(bisect_right(self._firsts, key) - 1, 0), {})[key] = record
        for at in sorted(by_chunk, reverse=True):
            merged: dict[str, StoreRecord | None] = {
                record.key: record for record in self._chunks[at].records
            }
            merged.update(by_chunk[at])
            kept = [record for _, record in sorted(merged.items()) if record is not None]
            self._chunks[at : at + 1] = _chunked(kept)

    def part(self, bucket: str, prefix: str) -> RecordSet:
        chunks = self._parts.get(prefix)
        if chunks is None:
            chunks = tuple(self._chunks) if prefix == bucket else tuple(self._span(prefix))
            if len(self._parts) >= _PARTS:
                self._parts.clear()
            self._parts[prefix] = chunks
        return RecordSet(chunks, self.revision, self._serial)

    def _span(self, prefix: str) -> Iterator[RecordChunk]:
        """The chunks with this prefix, with the first and last one cut."""
        first = max(bisect_right(self._firsts, prefix) - 1, 0)
        for chunk in self._chunks[first:]:
            if chunk.first > prefix and not chunk.first.startswith(prefix):
                return
            if chunk.first.startswith(prefix) and chunk.records[-1].key.startswith(prefix):
                yield chunk
            else:
                inside = tuple(
                    [record for record in chunk.records if record.key.startswith(prefix)]
                )
                if inside:
                    yield RecordChunk(inside)


def _chunked(records: Sequence[StoreRecord]) -> list[RecordChunk]:
    if not records:
        return []
    if len(records) <= 2 * _CHUNK:
        return [RecordChunk(tuple(records))]
    return [RecordChunk(tuple(records[at : at + _CHUNK])) for at in range(0, len(records), _CHUNK)]
