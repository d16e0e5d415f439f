"""Kubernetes' protobuf: the binary encoding that many clients use to write objects, and some to
read them.

`unwrap_envelope` opens the envelope (four magic bytes and a message with kind and content),
`decode_protobuf` reads the content as a type, `encode_protobuf` writes an object with its envelope,
`watch_frame` an event of a watch. Pure: decoded objects still have to be normalised, objects to
encode must be. Loaded with the first client that uses it.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from transom.machinery.kinds import GVK
from transom.machinery.protobuf import leaves, messages
from transom.machinery.protobuf.reader import read_message, reader_of
from transom.machinery.protobuf.wire import BYTES, MalformedProtobuf, delimited, varint
from transom.machinery.protobuf.writer import write_message, writer_of
from transom.machinery.schema import BASE, SchemaTable, SchemaType

__all__ = [
    "MAGIC",
    "Envelope",
    "MalformedProtobuf",
    "decode_protobuf",
    "encode_protobuf",
    "is_protobuf_encodable",
    "list_frame",
    "list_item",
    "unwrap_envelope",
    "watch_frame",
]

MAGIC = b"k8s\x00"
_TOO_DEEP = "exceeded max depth"
_UNKNOWN = {
    1: (BYTES, "TypeMeta"),
    2: (BYTES, "Raw"),
    3: (BYTES, "ContentEncoding"),
    4: (BYTES, "ContentType"),
}
_TYPE_META = {1: (BYTES, "APIVersion"), 2: (BYTES, "Kind")}


class Envelope(NamedTuple):
    api_version: str
    kind: str
    start: int  # of the content, in the bytes that were unwrapped
    end: int


def unwrap_envelope(data: bytes) -> Envelope:
    """The kind in the bytes, and where the content is. Raises MalformedProtobuf."""
    if not data:
        raise MalformedProtobuf("empty data")
    if not data.startswith(MAGIC):
        prefix = " ".join(str(byte) for byte in MAGIC)
        raise MalformedProtobuf(
            f"provided data does not appear to be a protobuf message, expected prefix [{prefix}]"
        )
    if len(data) == len(MAGIC):
        raise MalformedProtobuf("empty body")
    outer = leaves.read_fields("Unknown", _UNKNOWN, data, len(MAGIC), len(data))
    api_version = kind = ""
    for at, end in outer.get(1, ()):
        inner = leaves.read_fields("TypeMeta", _TYPE_META, data, at, end)
        if 1 in inner:
            api_version = leaves.read_text(data, *inner[1][-1])
        if 2 in inner:
            kind = leaves.read_text(data, *inner[2][-1])
    start, end = outer[2][-1] if 2 in outer else (0, 0)
    return Envelope(api_version, kind, start, end)


def decode_protobuf(of: SchemaType, data: bytes, start: int, end: int) -> dict[str, Any]:
    """The content as a dict of the JSON form, without kind and apiVersion. Raises
    MalformedProtobuf.
    """
    try:
        return read_message(reader_of(of.id, of.table), data, start, end, {})
    except RecursionError:
        raise MalformedProtobuf(_TOO_DEEP) from None


def is_protobuf_encodable(gvk: GVK, table: SchemaTable = BASE) -> bool:
    """Whether the kind has a protobuf form: custom kinds and tables do not."""
    return _message(gvk, table) is not None


def encode_protobuf(obj: dict[str, Any], gvk: GVK, table: SchemaTable = BASE) -> bytes:
    """An object, a list of objects or a Status, with its envelope. LookupError if the kind has no
    protobuf form.
    """
    name = _message(gvk, table)
    if name is None:
        raise LookupError(f"{gvk.kind} has no protobuf form")
    type_meta = delimited(b"\x0a", gvk.api_version.encode()) + delimited(b"\x12", gvk.kind.encode())
    content = delimited(b"\x12", write_message(writer_of(name, table), obj))
    return b"%b%b%b\x1a\x00\x22\x00" % (MAGIC, delimited(b"\x0a", type_meta), content)


def list_frame(
    gvk: GVK, metadata: dict[str, Any], items_size: int, table: SchemaTable = BASE
) -> tuple[bytes, bytes]:
    """The bytes that `encode_protobuf` puts before and after the items of a list, which `list_item`
    writes one by one.
    """
    name = _message(gvk, table)
    if name is None:
        raise LookupError(f"{gvk.kind} has no protobuf form")
    type_meta = delimited(b"\x0a", gvk.api_version.encode()) + delimited(b"\x12", gvk.kind.encode())
    start = write_message(writer_of(name, table), {"metadata": metadata, "items": []})
    content = b"\x12" + varint(len(start) + items_size) + start
    return b"%b%b%b" % (MAGIC, delimited(b"\x0a", type_meta), content), b"\x1a\x00\x22\x00"


def list_item(gvk: GVK, obj: dict[str, Any], table: SchemaTable = BASE) -> bytes:
    """An item of a list of the kind."""
    name = _message(gvk, table)
    assert name is not None
    return write_message(writer_of(name, table), {"items": [obj]})[len(_empty_list(name, table)) :]


@cache
def _empty_list(name: str, table: SchemaTable) -> bytes:
    return write_message(writer_of(name, table), {"items": []})


def watch_frame(kind: str, wrapped: bytes) -> bytes:
    """An event with an object that `encode_protobuf` wrote, prefixed with its length."""
    event = delimited(b"\x0a", kind.encode()) + delimited(b"\x12", delimited(b"\x0a", wrapped))
    return len(event).to_bytes(4, "big") + event


def _message(gvk: GVK, table: SchemaTable) -> str | None:
    package = gvk.group.partition(".")[0] or "core"
    name = f"{package}/{gvk.version}.{gvk.kind}"
    if messages.is_known_message(name, table):
        return name
    of = table.lookup(gvk)
    return of.id if of is not None and messages.is_known_message(of.id, table) else None
