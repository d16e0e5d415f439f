"""Messages of a protocol as bytes and back, from a table of names and numbers: no compiler, no
generated code.

A message is a dict with the protocol's own names. Unset fields are omitted, as in the JSON of the
same messages, so that one reader handles both. Fields that are not in the table are skipped, both
ways.

A line of the table is `Message: field NUMBER TYPE, ...`. The type is string by default,
int (signed; enumerations too), uint, bool, bytes, map (strings to strings) or another message; `*`
means repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final, NamedTuple

from transom.machinery.protobuf import wire

Message = dict[str, Any]

_STRING, _INT, _UINT, _BOOL, _BYTES, _MAP = "string", "int", "uint", "bool", "bytes", "map"
_NUMBERS: Final[Mapping[str, Callable[[int], Any]]] = {_INT: wire.as_int64, _UINT: int, _BOOL: bool}
_KEY, _VALUE = b"\x0a", b"\x12"


class _Field(NamedTuple):
    name: str
    number: int
    kind: str
    repeated: bool
    tag: bytes


def _field(text: str) -> _Field:
    name, number, *kinds = text.split()
    kind = kinds[0] if kinds else _STRING
    repeated, kind = kind.endswith("*"), kind.rstrip("*") or _STRING
    # repeated numbers are packed
    form = wire.VARINT if kind in _NUMBERS and not repeated else wire.BYTES
    return _Field(name, int(number), kind, repeated, wire.varint(int(number) << 3 | form))


class MessageTable:
    """`text` returns the table when it is first needed."""

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text

    @cached_property
    def messages(self) -> dict[str, tuple[_Field, ...]]:
        lines = (
            line.partition(":")
            for line in self._text().splitlines()
            if line and not line.startswith("#")
        )
        return {
            name: tuple(_field(part) for part in rest.split(",") if part.strip())
            for name, _, rest in lines
        }

    @cached_property
    def _numbers(self) -> dict[str, dict[int, _Field]]:
        return {
            name: {field.number: field for field in fields}
            for name, fields in self.messages.items()
        }

    # ---- to bytes ----

    def encode(self, message: str, value: Mapping[str, Any]) -> bytes:
        """`message` is its name in the table."""
        out: list[bytes] = []
        for field in self.messages[message]:
            given = value.get(field.name)
            if given is not None:
                self._encode_field(field, given, out)
        return b"".join(out)

    def _encode_field(self, field: _Field, value: Any, out: list[bytes]) -> None:
        tag, kind = field.tag, field.kind
        if kind == _MAP:
            for key, text in value.items():
                entry = wire.delimited(_KEY, key.encode()) + wire.delimited(_VALUE, text.encode())
                out.append(wire.delimited(tag, entry))
        elif kind in _NUMBERS:
            if field.repeated:
                if value:
                    out.append(wire.delimited(tag, b"".join(map(wire.varint, value))))
            elif value:
                out.append(tag + wire.varint(int(value)))
        else:
            for one in value if field.repeated else (value,):
                content = self._content(kind, one)
                # An empty text is omitted, unless it is repeated; an empty message is present.
                if content or field.repeated or kind not in (_STRING, _BYTES):
                    out.append(wire.delimited(tag, content))

    def _content(self, kind: str, value: Any) -> bytes:
        if kind == _STRING:
            return value.encode()
        return value if kind == _BYTES else self.encode(kind, value)

    # ---- from bytes ----

    def decode(self, message: str, data: bytes) -> Message:
        """Raises `wire.MalformedProtobuf`."""
        return self._decode(message, data, 0, len(data))

    def _decode(self, message: str, data: bytes, at: int, end: int) -> Message:
        fields = self._numbers[message]
        out: Message = {}
        while at < end:
            start = at
            tag, at = wire.read_varint(data, at, end)
            field = fields.get(tag >> 3)
            form = tag & 7
            if field is not None and form == wire.BYTES:
                start, at = wire.read_length(data, at, end)
                self._decode_content(field, data, start, at, out)
            elif field is not None and form == wire.VARINT and field.kind in _NUMBERS:
                number, at = wire.read_varint(data, at, end)
                value = _NUMBERS[field.kind](number)
                if field.repeated:
                    out.setdefault(field.name, []).append(value)
                else:
                    out[field.name] = value
            else:
                at = wire.skip_field(data, start, end)
        return out

    def _decode_content(
        self, field: _Field, data: bytes, start: int, end: int, out: Message
    ) -> None:
        kind, name = field.kind, field.name
        if kind == _MAP:
            key, text = _entry(data, start, end)
            out.setdefault(name, {})[key] = text
        elif kind in _NUMBERS:
            while start < end:
                number, start = wire.read_varint(data, start, end)
                out.setdefault(name, []).append(_NUMBERS[kind](number))
        else:
            value: Any
            if kind == _STRING:
                value = data[start:end].decode(errors="replace")
            elif kind == _BYTES:
                value = data[start:end]
            else:
                value = self._decode(kind, data, start, end)
            if field.repeated:
                out.setdefault(name, []).append(value)
            else:
                out[name] = value


def _entry(data: bytes, at: int, end: int) -> tuple[str, str]:
    found = {1: "", 2: ""}
    while at < end:
        start = at
        tag, at = wire.read_varint(data, at, end)
        if tag & 7 == wire.BYTES and tag >> 3 in found:
            start, at = wire.read_length(data, at, end)
            found[tag >> 3] = data[start:at].decode(errors="replace")
        else:
            at = wire.skip_field(data, start, end)
    return found[1], found[2]
