"""The body of a large list, encoded piece by piece while the client reads.

The records are a snapshot that all readers share. A client that does not read costs only a position
in that snapshot and the piece in its socket's buffer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator
from itertools import accumulate, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import orjson

from transom.apiserver.core.bodies import PROTOBUF, YAML
from transom.apiserver.core.objectstore import Cached
from transom.apiserver.serving.negotiate import OutputForm
from transom.http.messages import Buffer
from transom.kit.lazy import lazy_import
from transom.machinery import codec
from transom.machinery.kinds import GVK
from transom.machinery.objects import Object
from transom.machinery.schema import SchemaTable
from transom.store.api import StoreRecord
from transom.store.recordset import RecordSet

# Few clients accept nothing but protobuf.
if TYPE_CHECKING:
    from transom.machinery import protobuf
else:
    protobuf = lazy_import("transom.machinery.protobuf")

Encode = Callable[[StoreRecord], bytes]
_value = attrgetter("value")
_PIECE = 64 * 1024
_READ_AHEAD = 64  # stored values that are joined without looking at each
_MARK = "@items@"
# a list whose size must be known first is cached up to this size, otherwise it is encoded twice
_WHOLE = 4 * 1024 * 1024


def stored_size(records: Collection[StoreRecord]) -> int:
    """The bytes of all records."""
    if isinstance(records, RecordSet):
        return records.size
    return sum(map(len, map(_value, records)))


class ListBody:
    """`encode` returns the bytes of an item, None for the stored bytes. At most `batch` items are
    encoded without yielding. `slow`: encoding one of them takes long.
    """

    __slots__ = (
        "_batch",
        "_encode",
        "_head",
        "_records",
        "_separator",
        "_tail",
        "estimate",
        "size",
        "slow",
    )

    def __init__(
        self,
        records: Collection[StoreRecord],
        head: bytes,
        tail: bytes,
        separator: bytes = b",",
        encode: Encode | None = None,
        batch: int = 4096,
        size: int | None = None,
        *,
        slow: bool = False,
    ) -> None:
        self._records = records
        self._head = head
        self._tail = tail
        self._separator = separator
        self._encode = encode
        self._batch = batch
        self.slow = slow
        stored = stored_size(records)
        self.estimate = stored if size is None else size
        self.size = size
        if encode is None:
            self.size = self.estimate = (
                len(head) + len(tail) + stored + len(separator) * max(len(records) - 1, 0)
            )

    def open(self) -> _ListReader:
        return _ListReader(
            iter(self._records), self._head, self._tail, self._separator, self._encode, self._batch
        )

    def __iter__(self) -> Iterator[Buffer]:
        reader = self.open()
        while piece := reader.read(_PIECE):
            yield piece


class _ListReader:
    __slots__ = ("_ahead", "_batch", "_encode", "_lead", "_records", "_separator", "_tail", "_view")

    def __init__(
        self,
        records: Iterator[StoreRecord],
        head: bytes,
        tail: bytes,
        separator: bytes,
        encode: Encode | None,
        batch: int,
    ) -> None:
        self._records = records
        self._lead = head
        self._tail: bytes | None = tail  # None: already sent
        self._separator = separator
        self._encode = encode
        self._batch = batch
        self._ahead: list[bytes] = []  # stored values that were taken from `records` too early
        self._view: memoryview | None = None  # the rest of an item that is larger than a piece

    def read(self, size: int) -> Buffer:
        if self._view is not None:
            return self._cut(self._view, size)
        if self._tail is None:
            return b""
        separator = self._separator
        values: list[bytes] = []
        total, left = 0, self._batch
        if self._encode is None:
            values, total = self._take_small(size, left)
            left -= len(values)
        while (value := self._next()) is not None:
            if len(value) > size:
                before = separator.join([*values, b""]) if values else b""
                before, self._lead = self._lead + before, separator
                self._view = memoryview(value)
                return before or self._cut(self._view, size)
            values.append(value)
            total += len(value)
            left -= 1
            if total >= size or left <= 0:
                piece = self._lead + separator.join(values)
                self._lead = separator
                return piece
        tail, self._tail = self._tail, None
        if values:
            return self._lead + separator.join(values) + tail
        return tail if self._lead is separator else self._lead + tail

    def _take_small(self, size: int, most: int) -> tuple[list[bytes], int]:
        """The next stored values, less than `size` bytes in total: most objects are small, and this
        costs little for each of them.
        """
        values = self._ahead
        total = 0
        taken: list[bytes] = []
        while len(taken) < most:
            if not values:
                values = list(map(_value, islice(self._records, min(_READ_AHEAD, most))))
                if not values:
                    break
            ends = list(accumulate(map(len, values), initial=total))
            count = bisect_left(ends, size) - 1
            taken += values[:count]
            values, total = values[count:], ends[count]
            if values:
                break
        self._ahead = values
        return taken, total

    def _next(self) -> bytes | None:
        if self._ahead:
            return self._ahead.pop(0)
        record = next(self._records, None)
        if record is None:
            return None
        return record.value if self._encode is None else self._encode(record)

    def _cut(self, view: memoryview, size: int) -> memoryview:
        self._view = view[size:] if len(view) > size else None
        return view[:size]


def document_frame(
    document: Object, key: str, form: OutputForm
) -> tuple[bytes, bytes, bytes, Callable[[Any], bytes]]:
    """The parts before, after and between the items of `document[key]`, and the item encoder: the
    result equals `document_response` of the whole.
    """
    marked = {**document, key: [_MARK]}
    if form.media == YAML:
        head, tail = (
            codec.to_yaml({**document, key: [{"mark": _MARK}]}).encode().split(_yaml_mark())
        )
        return head, tail, b"", lambda item: codec.to_yaml([item]).encode()
    mark = f'"{_MARK}"'.encode()
    if form.pretty:
        head, tail = codec.pretty_json(marked).split(mark)
        return (
            head,
            tail + b"\n",
            b",\n    ",
            lambda item: codec.pretty_json(item).replace(b"\n", b"\n    "),
        )
    head, tail = orjson.dumps(marked).split(mark)
    return head, tail + b"\n", b",", orjson.dumps


def _yaml_mark() -> bytes:
    return codec.to_yaml([{"mark": _MARK}]).encode()


def items_at_once(form: OutputForm) -> int:
    """The number of decoded items to encode before yielding."""
    return 4 if form.media == YAML else 32


def protobuf_list(
    records: Collection[StoreRecord],
    gvk: GVK,
    meta: Object,
    item: Callable[[StoreRecord], Object],
    types: SchemaTable,
    *,
    slow: bool,
) -> ListBody | list[bytes]:
    """A list as protobuf, which starts with its length: the items are encoded here, and again if
    they are many. Runs in a worker thread.
    """

    def encode(record: StoreRecord) -> bytes:
        return protobuf.list_item(gvk, item(record), types)

    kept: list[bytes] = []
    total = 0
    for record in records:
        entry: Cached = record.cache or Cached()
        if total > _WHOLE and entry.protobuf_size is not None and entry.protobuf_size[0] == gvk:
            total += entry.protobuf_size[1]
            continue
        encoded = encode(record)
        entry.protobuf_size = (gvk, len(encoded))
        record.cache = entry
        total += len(encoded)
        if total <= _WHOLE:
            kept.append(encoded)
        elif kept:
            kept = []
    head, tail = protobuf.list_frame(gvk, meta, total, types)
    if total <= _WHOLE:
        return [b"".join([head, *kept, tail])]
    size = len(head) + total + len(tail)
    batch = items_at_once(OutputForm(PROTOBUF))
    return ListBody(records, head, tail, b"", encode, batch, size, slow=slow)
