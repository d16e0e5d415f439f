"""Questions of DNS and their suffixes: containers on Windows once could not have search lists, so the proxy has one for them.

Only what that takes: the one question of a message is exchanged, and put back in the answer. Pure.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

SUFFIXES: Final = ("", "default.svc.cluster.local", "svc.cluster.local", "cluster.local")
"""The namespace is always this one, whatever the client's is."""

A, AAAA, IN = 1, 28, 1
_HEADER: Final = struct.Struct("!6H")
_RESPONSE: Final = 0x8000
_LONGEST: Final = 255
# Names in the data of records, which may be abbreviated: how many bytes come before them, and how many names there are.
_NAMES: Final = {2: (0, 1), 5: (0, 1), 6: (0, 2), 12: (0, 1), 15: (2, 1), 33: (6, 1)}


class BadMessage(Exception):
    pass


class Question(NamedTuple):
    labels: tuple[bytes, ...]
    type: int
    cls: int


class _Record(NamedTuple):
    labels: tuple[bytes, ...]
    head: bytes  # type, class and time to live
    data: bytes  # without abbreviations


class Message(NamedTuple):
    id: int
    flags: int
    questions: tuple[Question, ...]
    sections: tuple[tuple[_Record, ...], ...]

    @property
    def response(self) -> bool:
        return bool(self.flags & _RESPONSE)

    @property
    def code(self) -> int:
        return self.flags & 0xF


def parse(packet: bytes) -> Message:
    try:
        identifier, flags, questions, *counts = _HEADER.unpack_from(packet)
        at = _HEADER.size
        asked = []
        for _ in range(questions):
            labels, at = _name(packet, at)
            kind, cls = struct.unpack_from("!HH", packet, at)
            asked.append(Question(labels, kind, cls))
            at += 4
        sections = []
        for count in counts:
            records = []
            for _ in range(count):
                record, at = _record(packet, at)
                records.append(record)
            sections.append(tuple(records))
    except (struct.error, IndexError) as problem:
        raise BadMessage("dns: overflow unpacking") from problem
    return Message(identifier, flags, tuple(asked), tuple(sections))


def pack(message: Message) -> bytes:
    out = [_HEADER.pack(message.id, message.flags, len(message.questions), *(len(s) for s in message.sections))]
    for question in message.questions:
        out += [_packed(question.labels), struct.pack("!HH", question.type, question.cls)]
    for section in message.sections:
        for record in section:
            out += [_packed(record.labels), record.head, struct.pack("!H", len(record.data)), record.data]
    return b"".join(out)


def wants_suffix(query: Message) -> bool:
    """Only a lone question for an address; whoever says more, of EDNS for instance, is left alone."""
    if query.response:
        raise BadMessage("DNS packet should be a query message")
    if len(query.questions) != 1 or any(query.sections):
        return False
    question = query.questions[0]
    return question.type in (A, AAAA) and question.cls == IN


def with_suffix(query: Message, suffix: str) -> bytes:
    question = query.questions[0]
    labels = (*question.labels, *(part.encode() for part in suffix.split(".") if part))
    return pack(query._replace(questions=(question._replace(labels=labels),)))


def with_question(answer: Message, question: Question) -> Message:
    """The question as it was asked; the first answer is renamed with it, and only that one."""
    if not answer.questions or answer.questions[0].labels == question.labels:
        return answer
    first, *others = answer.sections
    if first:
        first = (first[0]._replace(labels=question.labels), *first[1:])
    asked = answer.questions[0]._replace(labels=question.labels)
    return answer._replace(questions=(asked,), sections=(first, *others))


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
                raise BadMessage("dns: bad compression pointer")
            at = target
            continue
        at += 1
        if length == 0:
            return tuple(labels), end if end >= 0 else at
        size += length + 1
        if length > 63 or size > _LONGEST or at + length > len(packet):
            raise BadMessage("dns: bad label")
        labels.append(packet[at : at + length])
        at += length


def _record(packet: bytes, at: int) -> tuple[_Record, int]:
    labels, at = _name(packet, at)
    head = packet[at : at + 8]
    (size,) = struct.unpack_from("!H", packet, at + 8)
    at += 10
    end = at + size
    if end > len(packet):
        raise BadMessage("dns: overflow unpacking")
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
