"""The messages of etcd's API (etcdserverpb) that the store uses, in protobuf.

Knows only bytes and field numbers; etcd's documentation (`rpc.proto`, `kv.proto`) has the names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class EtcdKeyValue(NamedTuple):
    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int


class EtcdRange(NamedTuple):
    revision: int
    kvs: Sequence[EtcdKeyValue]
    more: bool
    total: int  # also those after this page


class EtcdTxn(NamedTuple):
    """`found` are the key-values of the range requests of the branch that ran, `deleted` the number
    of keys that its deletions removed.
    """

    revision: int
    succeeded: bool
    found: Sequence[EtcdKeyValue]
    deleted: int


class EtcdWatchEvent(NamedTuple):
    deleted: bool
    kv: EtcdKeyValue


class EtcdWatchBatch(NamedTuple):
    revision: int
    created: bool
    canceled: bool
    compact_revision: int
    reason: str
    events: Sequence[EtcdWatchEvent]


class MalformedMessage(Exception):
    pass


# ---- writing ----


def _number(field: int, value: int) -> bytes:
    """Empty for 0, the default. Negative numbers are not used."""
    return _varint(field << 3) + _varint(value) if value else b""


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | _BYTES) + _varint(len(value)) + value if value else b""


def _message(field: int, value: bytes) -> bytes:
    """Unlike a default value, an empty message is sent."""
    return _varint(field << 3 | _BYTES) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    if value < 128:
        return bytes((value,))
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def prefix_end(prefix: bytes) -> bytes:
    """The end of the range of all keys with this prefix."""
    return prefix[:-1] + bytes((prefix[-1] + 1,))


def range_request(
    key: bytes,
    end: bytes = b"",
    *,
    limit: int = 0,
    revision: int = 0,
    count_only: bool = False,
) -> bytes:
    return (
        _bytes(1, key)
        + _bytes(2, end)
        + _number(3, limit)
        + _number(4, revision)
        + _number(9, count_only)
    )


def put_request(key: bytes, value: bytes, lease: int = 0) -> bytes:
    return _bytes(1, key) + _bytes(2, value) + _number(3, lease)


def delete_request(key: bytes, end: bytes = b"") -> bytes:
    return _bytes(1, key) + _bytes(2, end)


def compare_mod_revision(key: bytes, revision: int) -> bytes:
    # The revision is one of a oneof: 0 must be written too.
    return _number(2, 2) + _bytes(3, key) + _varint(6 << 3) + _varint(revision)


def compare_version(key: bytes, version: int) -> bytes:
    return _bytes(3, key) + _varint(4 << 3) + _varint(version)


def op_range(request: bytes) -> bytes:
    return _message(1, request)


def op_put(request: bytes) -> bytes:
    return _message(2, request)


def op_delete(request: bytes) -> bytes:
    return _message(3, request)


def txn_request(
    compare: Iterable[bytes], success: Iterable[bytes], failure: Iterable[bytes] = ()
) -> bytes:
    return b"".join(
        [
            *(_message(1, one) for one in compare),
            *(_message(2, one) for one in success),
            *(_message(3, one) for one in failure),
        ]
    )


def compaction_request(revision: int) -> bytes:
    return _number(1, revision)


def lease_grant_request(seconds: int) -> bytes:
    return _number(1, seconds)


def authenticate_request(name: str, password: str) -> bytes:
    return _bytes(1, name.encode()) + _bytes(2, password.encode())


def watch_create_request(key: bytes, end: bytes, start: int) -> bytes:
    # with progress notifications
    return _message(1, _bytes(1, key) + _bytes(2, end) + _number(3, start) + _number(4, 1))


def watch_progress_request() -> bytes:
    return _message(3, b"")


# ---- reading ----


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    try:
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value, at
            shift += 7
    except IndexError:
        raise MalformedMessage("unexpected end of a number") from None


def _numbers_and_parts(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Field number, number (of a varint), bytes (of anything with a length)."""
    at, end = 0, len(data)
    while at < end:
        tag = data[at]
        at += 1
        if tag > 127:
            tag, at = _read_varint(data, at - 1)
        kind = tag & 7
        if kind == _BYTES:
            size = data[at] if at < end else 0
            at += 1
            if size > 127:
                size, at = _read_varint(data, at - 1)
            if at + size > end:
                raise MalformedMessage("unexpected end of a message")
            yield tag >> 3, 0, data[at : at + size]
            at += size
        elif kind == _VARINT:
            value, at = _read_varint(data, at)
            yield tag >> 3, value, b""
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            raise MalformedMessage(f"unknown wire type {kind}")


def _key_value(data: bytes) -> EtcdKeyValue:
    key = value = b""
    numbers = [0] * 7
    for field, number, part in _numbers_and_parts(data):
        if field == 1:
            key = part
        elif field == 5:
            value = part
        elif field < 7:
            numbers[field] = number
    return EtcdKeyValue(key, value, numbers[2], numbers[3], numbers[4], numbers[6])


def _header_revision(data: bytes) -> int:
    return next((number for field, number, _ in _numbers_and_parts(data) if field == 3), 0)


def read_range(data: bytes) -> EtcdRange:
    revision = total = 0
    more = False
    kvs: list[EtcdKeyValue] = []
    for field, number, part in _numbers_and_parts(data):
        if field == 2:
            kvs.append(_key_value(part))
        elif field == 1:
            revision = _header_revision(part)
        elif field == 3:
            more = bool(number)
        elif field == 4:
            total = number
    return EtcdRange(revision, kvs, more, total)


def read_txn(data: bytes) -> EtcdTxn:
    revision = deleted = 0
    succeeded = False
    found: list[EtcdKeyValue] = []
    for field, number, part in _numbers_and_parts(data):
        if field == 1:
            revision = _header_revision(part)
        elif field == 2:
            succeeded = bool(number)
        elif field == 3:
            for kind, _, response in _numbers_and_parts(part):
                if kind == 1:
                    found += read_range(response).kvs
                elif kind == 3:
                    deleted += sum(n for f, n, _ in _numbers_and_parts(response) if f == 2)
    return EtcdTxn(revision, succeeded, found, deleted)


def read_watch(data: bytes) -> EtcdWatchBatch:
    revision = compacted = 0
    created = canceled = False
    reason = ""
    events: list[EtcdWatchEvent] = []
    for field, number, part in _numbers_and_parts(data):
        if field == 11:
            deleted, kv = False, b""
            for inner, kind, body in _numbers_and_parts(part):
                if inner == 1:
                    deleted = kind == 1
                elif inner == 2:
                    kv = body
            events.append(EtcdWatchEvent(deleted, _key_value(kv)))
        elif field == 1:
            revision = _header_revision(part)
        elif field == 3:
            created = bool(number)
        elif field == 4:
            canceled = bool(number)
        elif field == 5:
            compacted = number
        elif field == 6:
            reason = part.decode("utf-8", "replace")
    return EtcdWatchBatch(revision, created, canceled, compacted, reason, events)


def read_lease(data: bytes) -> int:
    return next((number for field, number, _ in _numbers_and_parts(data) if field == 2), 0)


def read_text_field(data: bytes) -> str:
    """Field 2 of the answers to Authenticate (the token) and Status (the version)."""
    return next((part.decode() for field, _, part in _numbers_and_parts(data) if field == 2), "")
