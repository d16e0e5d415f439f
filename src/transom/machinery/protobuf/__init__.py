"""Kubernetes' protobuf: the binary form in which many clients write objects and some want to read them.

`unwrap` opens the envelope (four magic bytes and a message with kind and content), `decode` reads the content as a
type, `encode` writes an object with its envelope, `watch_frame` an event of a watch. Pure: what is decoded still has to
be normalised, what is encoded is expected to be. Loaded when the first client speaks it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from transom.machinery import schema
from transom.machinery.kinds import GVK
from transom.machinery.protobuf import leaves, messages
from transom.machinery.protobuf.reader import read, reader_of
from transom.machinery.protobuf.wire import BYTES, Malformed, delimited
from transom.machinery.protobuf.writer import write, writer_of
from transom.machinery.schema import Type

__all__ = ["MAGIC", "Envelope", "Malformed", "decode", "encodable", "encode", "unwrap", "watch_frame"]

MAGIC = b"k8s\x00"
_TOO_DEEP = "exceeded max depth"
_UNKNOWN = {1: (BYTES, "TypeMeta"), 2: (BYTES, "Raw"), 3: (BYTES, "ContentEncoding"), 4: (BYTES, "ContentType")}
_TYPE_META = {1: (BYTES, "APIVersion"), 2: (BYTES, "Kind")}


class Envelope(NamedTuple):
    api_version: str
    kind: str
    start: int  # of the content, in the bytes that were unwrapped
    end: int


def unwrap(data: bytes) -> Envelope:
    """What kind the bytes say they are of, and where the content is. Raises Malformed."""
    if not data:
        raise Malformed("empty data")
    if not data.startswith(MAGIC):
        prefix = " ".join(str(byte) for byte in MAGIC)
        raise Malformed(f"provided data does not appear to be a protobuf message, expected prefix [{prefix}]")
    if len(data) == len(MAGIC):
        raise Malformed("empty body")
    outer = leaves.fields("Unknown", _UNKNOWN, data, len(MAGIC), len(data))
    api_version = kind = ""
    for at, end in outer.get(1, ()):
        inner = leaves.fields("TypeMeta", _TYPE_META, data, at, end)
        if 1 in inner:
            api_version = leaves.text(data, *inner[1][-1])
        if 2 in inner:
            kind = leaves.text(data, *inner[2][-1])
    start, end = outer[2][-1] if 2 in outer else (0, 0)
    return Envelope(api_version, kind, start, end)


def decode(of: Type, data: bytes, start: int, end: int) -> dict[str, Any]:
    """The content as a dict of the JSON form, without kind and apiVersion. Raises Malformed."""
    try:
        return read(reader_of(of.id), data, start, end, {})
    except RecursionError:
        raise Malformed(_TOO_DEEP) from None


def encodable(gvk: GVK) -> bool:
    """Whether the kind has a protobuf form: custom kinds and tables have none."""
    return _message(gvk) is not None


def encode(obj: dict[str, Any], gvk: GVK) -> bytes:
    """An object, a list of objects or a Status, with its envelope. LookupError when the kind has no such form."""
    name = _message(gvk)
    if name is None:
        raise LookupError(f"{gvk.kind} has no protobuf form")
    type_meta = delimited(b"\x0a", gvk.api_version.encode()) + delimited(b"\x12", gvk.kind.encode())
    content = delimited(b"\x12", write(writer_of(name), obj))
    return b"%b%b%b\x1a\x00\x22\x00" % (MAGIC, delimited(b"\x0a", type_meta), content)


def watch_frame(kind: str, wrapped: bytes) -> bytes:
    """An event about an object that `encode` wrote, with its length in front."""
    event = delimited(b"\x0a", kind.encode()) + delimited(b"\x12", delimited(b"\x0a", wrapped))
    return len(event).to_bytes(4, "big") + event


def _message(gvk: GVK) -> str | None:
    package = gvk.group.partition(".")[0] or "core"
    name = f"{package}/{gvk.version}.{gvk.kind}"
    if messages.known(name):
        return name
    of = schema.lookup(gvk)
    return of.id if of is not None and messages.known(of.id) else None
