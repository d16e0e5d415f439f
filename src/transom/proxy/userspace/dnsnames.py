"""DNS search suffixes in queries: early Windows containers could not have search lists, so the
proxy applies one for them.

Implements only what that needs: it replaces the single question of a message, and restores it in
the answer. Pure.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

SUFFIXES: Final = ("", "default.svc.cluster.local", "svc.cluster.local", "cluster.local")
"""Always this namespace, regardless of the client's."""

A, AAAA, IN = 1, 28, 1
_HEADER: Final = struct.Struct("!6H")
_RESPONSE: Final = 0x8000
_LONGEST: Final = 255
# Names in the data of records, which may be compressed: the number of bytes before them, and the
# number of names.
_NAMES: Final = {2: (0, 1), 5: (0, 1), 6: (0, 2), 12: (0, 1), 15: (2, 1), 33: (6, 1)}


class BadDnsMessage(Exception):
    pass


class RawDnsQuestion(NamedTuple):
    labels: tuple[bytes, ...]
    type: int
    cls: int


class _Record(NamedTuple):
    labels: tuple[bytes, ...]
    head: bytes  # type, class and time to live
    data: bytes  # without compression


class RawDnsMessage(NamedTuple):
    id: int
    flags: int
    questions: tuple[RawDnsQuestion, ...]
    sections: tuple[tuple[_Record, ...], ...]

    @property
    def response(self) -> bool:
        return bool(self.flags & _RESPONSE)

    @property
    def code(self) -> int:
        return self.flags & 0xF


def parse_raw_dns(packet: bytes) -> RawDnsMessage:
    try:
        identifier, flags, questions, *counts = _HEADER.unpack_from(packet)
        at = _HEADER.size
        requested = []
        for _ in range(questions):
            labels, at = _name(packet, at)
            kind, cls = struct.unpack_from("!HH", packet, at)
            requested.append(RawDnsQuestion(labels, kind, cls))
            at += 4
        sections = []
        for count in counts:
            records = []
            for _ in range(count):
                record, at = _record(packet, at)
                records.append(record)
            sections.append(tuple(records))
    except (struct.error, IndexError) as problem:
        raise BadDnsMessage("dns: overflow unpacking") from problem
    return RawDnsMessage(identifier, flags, tuple(requested), tuple(sections))


def pack_raw_dns(message: RawDnsMessage) -> bytes:
    out = [
        _HEADER.pack(
            message.id, message.flags, len(message.questions), *(len(s) for s in message.sections)
        )
    ]
    for question in message.questions:
        out += [_packed(question.labels), struct.pack("!HH", question.type, question.cls)]
    for section in message.sections:
        for record in section:
            out += [
                _packed(record.labels),
                record.head,
                struct.pack("!H", len(record.data)),
                record.data,
            ]
    return b"".join(out)


def wants_suffix(query: RawDnsMessage) -> bool:
    """Only for a single address question; queries with more, for example EDNS, are left
    unchanged.
    """
    if query.response:
        raise BadDnsMessage("DNS packet should be a query message")
    if len(query.questions) != 1 or any(query.sections):
        return False
    question = query.questions[0]
    return question.type in (A, AAAA) and question.cls == IN


def with_suffix(query: RawDnsMessage, suffix: str) -> bytes:
    question = query.questions[0]
    labels = (*question.labels, *(part.encode() for part in suffix.split(".") if part))
    return pack_raw_dns(query._replace(questions=(question._replace(labels=labels),)))


def with_question(answer: RawDnsMessage, question: RawDnsQuestion) -> RawDnsMessage:
    """Restores the original question; only the first answer is renamed with it."""
    if not answer.questions or answer.questions[0].labels == question.labels:
        return answer
    first, *others = answer.sections
    if first:
        first = (first[0]._replace(labels=question.labels), *first[1:])
    requested = answer.questions[0]._replace(labels=question.labels)
    return answer._replace(questions=(requested,), sections=(first, *others))


def _name(packet: bytes, at: int) -> tuple[tuple[bytes, ...], int]:
    labels: list[bytes] = []
    end, size = -1, 0
    while True:
        length = packet[at]
        if length & 0xC0 == 0xC0:
            if end < 0:
                end = at + 2
            target = (length & 0x3F) << 8 | packet[at + 1]
            if target >= at:
                raise BadDnsMessage("dns: bad compression pointer")
            at = target
            continue
        at += 1
        if length == 0:
            return tuple(labels), end if end >= 0 else at
        size += length + 1
        if length > 63 or size > _LONGEST or at + length > len(packet):
            raise BadDnsMessage("dns: bad label")
        labels.append(packet[at : at + length])
        at += length


def _record(packet: bytes, at: int) -> tuple[_Record, int]:
    labels, at = _name(packet, at)
    head = packet[at : at + 8]
    (size,) = struct.unpack_from("!H", packet, at + 8)
    at += 10
    end = at + size
    if end > len(packet):
        raise BadDnsMessage("dns: overflow unpacking")
    (kind,) = struct.unpack_from("!H", head)
    before, names = _NAMES.get(kind, (0, 0))
    if not names:
        return _Record(labels, head, packet[at:end]), end
    data = [packet[at : at + before]]
    at += before
    for _ in range(names):
        name, at = _name(packet, at)
        data.append(_packed(name))
    data.append(packet[at:end])
    return _Record(labels, head, b"".join(data)), end


def _packed(labels: tuple[bytes, ...]) -> bytes:
    return b"".join(bytes((len(label),)) + label for label in labels) + b"\0"
