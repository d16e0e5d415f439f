"""Protobuf's wire format: varints, lengths, and Kubernetes' messages for malformed data.

Handles bytes only, neither messages nor objects.
"""

from __future__ import annotations

VARINT, FIXED64, BYTES, START_GROUP, END_GROUP, FIXED32 = range(6)

EOF = "unexpected EOF"
OVERFLOW = "proto: integer overflow"
NEGATIVE_LENGTH = "proto: negative length found during unmarshaling"
UNEXPECTED_END_OF_GROUP = "proto: unexpected end of group"
_INT64 = 1 << 63

SMALL = tuple(bytes((n,)) for n in range(128))


class MalformedProtobuf(ValueError):
    """The bytes are not a valid message; `str()` is Kubernetes' message."""


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The unsigned integer that starts here, and where it ends."""
    value = shift = 0
    while True:
        if shift >= 64:
            raise MalformedProtobuf(OVERFLOW)
        if at >= end:
            raise MalformedProtobuf(EOF)
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7


def read_length(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Start and end of the length-delimited content whose length is here."""
    size, at = read_varint(data, at, end)
    if size >= _INT64:
        raise MalformedProtobuf(NEGATIVE_LENGTH)
    if at + size > end:
        raise MalformedProtobuf(EOF)
    return at, at + size


def skip_field(data: bytes, at: int, end: int) -> int:
    """The end of the field whose tag starts here."""
    depth = 0
    while True:
        tag, at = read_varint(data, at, end)
        kind = tag & 7
        if kind == VARINT:
            _, at = read_varint(data, at, end)
        elif kind == FIXED64:
            at += 8
        elif kind == BYTES:
            _, at = read_length(data, at, end)
        elif kind == START_GROUP:
            depth += 1
        elif kind == END_GROUP:
            if not depth:
                raise MalformedProtobuf(UNEXPECTED_END_OF_GROUP)
            depth -= 1
        elif kind == FIXED32:
            at += 4
        else:
            raise MalformedProtobuf(f"proto: illegal wireType {kind}")
        if at > end:
            raise MalformedProtobuf(EOF)
        if not depth:
            return at


def as_int32(value: int) -> int:
    """The low half of a varint as Go's int32."""
    value &= 0xFFFF_FFFF
    return value - (1 << 32) if value >> 31 else value


def as_int64(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def varint(value: int) -> bytes:
    """An integer on the wire; a negative one takes ten bytes."""
    if 0 <= value < 128:
        return SMALL[value]
    value &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def delimited(tag: bytes, content: bytes) -> bytes:
    size = len(content)
    return b"%b%b%b" % (tag, SMALL[size] if size < 128 else varint(size), content)
