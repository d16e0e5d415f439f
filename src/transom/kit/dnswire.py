"""DNS messages as bytes (RFC 1035, EDNS0 of RFC 6891) without any I/O.

Names are kept in wire form, `b"\\x03web\\x07default\\0"`, with their original case; comparisons use
`.lower()`, which is safe because the length of a label never looks like a letter. Nothing here
knows what a name means.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from transom.kit.named_tuple import NamedTuple

A, NS, CNAME, SOA, PTR, MX, TXT, AAAA, SRV, OPT = 1, 2, 5, 6, 12, 15, 16, 28, 33, 41
IXFR, AXFR, ANY = 251, 252, 255
IN, CLASS_ANY = 1, 255
TYPES: Final = {
    "A": A,
    "NS": NS,
    "CNAME": CNAME,
    "SOA": SOA,
    "PTR": PTR,
    "MX": MX,
    "TXT": TXT,
    "AAAA": AAAA,
    "SRV": SRV,
    "OPT": OPT,
    "NAPTR": 35,
    "DNAME": 39,
    "HTTPS": 65,
    "IXFR": IXFR,
    "AXFR": AXFR,
    "ANY": ANY,
    "CAA": 257,
}
TYPE_NAMES: Final = {number: name for name, number in TYPES.items()}

NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED, BADVERS = 0, 1, 2, 3, 4, 5, 16
RCODES: Final = {
    0: "NOERROR",
    1: "FORMERR",
    2: "SERVFAIL",
    3: "NXDOMAIN",
    4: "NOTIMP",
    5: "REFUSED",
    16: "BADVERS",
}

QR, AA, TC, RD, RA, AD, CD = 0x8000, 0x0400, 0x0200, 0x0100, 0x0080, 0x0020, 0x0010
OPCODE: Final = 0x7800

HEADER_SIZE: Final = 12
MAX_UDP: Final = 512  # without EDNS
_MAX_NAME = 255
_MAX_LABEL = 63
_MAX_JUMPS = 127  # a name cannot have more labels; limits the cost of messages full of pointers
_MAX_STEPS = 64 * 1024  # labels and pointers in all names of one message together
_HEADER = struct.Struct("!6H")
_RECORD = struct.Struct("!HHIH")
# Where record data holds names that a sender may have compressed: bytes before them, how many, in
# that order.
_NAMES_IN_DATA: Final = {
    NS: (0, 1),
    CNAME: (0, 1),
    PTR: (0, 1),
    SOA: (0, 2),
    MX: (2, 1),
    SRV: (6, 1),
    3: (0, 1),
    4: (0, 1),
    7: (0, 1),
    8: (0, 1),
    9: (0, 1),
    14: (0, 2),
    17: (0, 2),
    18: (2, 1),
    21: (2, 1),
    36: (2, 1),
    39: (0, 1),
}


class MalformedDnsMessage(ValueError):
    """The bytes are not a DNS message."""


class DnsQuestion(NamedTuple):
    name: bytes
    type: int
    klass: int = IN


class DnsRecord(NamedTuple):
    name: bytes
    type: int
    ttl: int
    data: bytes  # its names are uncompressed
    klass: int = IN


class Edns(NamedTuple):
    size: int
    do: bool = False
    version: int = 0
    options: bytes = b""
    extended: int = 0  # the upper eight bits of the response's code


class DnsMessage(NamedTuple):
    id: int
    flags: int
    question: DnsQuestion | None = None
    answers: Sequence[DnsRecord] = ()
    authority: Sequence[DnsRecord] = ()
    additional: Sequence[DnsRecord] = ()
    edns: Edns | None = None

    @property
    def rcode(self) -> int:
        return self.flags & 0xF | (self.edns.extended << 4 if self.edns else 0)

    @property
    def truncated(self) -> bool:
        return bool(self.flags & TC)


# ---- names ----


@lru_cache(maxsize=16384)
def encode_name(text: str) -> bytes:
    """The wire form of `web.default` (with or without a dot at the end). Raises ValueError if it is
    not a valid name.
    """
    if text in ("", "."):
        return b"\0"
    return from_labels(_split(text))


def _split(text: str) -> list[bytes]:
    raw = text.encode("latin-1", "replace") if text.isascii() or "\\" in text else _ascii(text)
    if b"\\" not in raw:
        return raw.removesuffix(b".").split(b".")
    labels = [bytearray()]
    position = 0
    while position < len(raw):
        byte = raw[position]
        position += 1
        if byte == 0x2E:
            labels.append(bytearray())
        elif byte == 0x5C:
            digits = raw[position : position + 3]
            if len(digits) == 3 and digits.isdigit() and int(digits) < 256:
                labels[-1].append(int(digits))
                position += 3
            else:
                labels[-1] += raw[position : position + 1]
                position += 1
        else:
            labels[-1].append(byte)
    if len(labels) > 1 and not labels[-1]:
        labels.pop()
    return [bytes(label) for label in labels]


def _ascii(text: str) -> bytes:
    try:
        return text.encode("idna")
    except UnicodeError as problem:
        raise ValueError(f"{text!r} is not a domain name") from problem


def from_labels(labels: Iterable[bytes]) -> bytes:
    pieces: list[bytes] = []
    for label in labels:
        if not 0 < len(label) <= _MAX_LABEL:
            raise ValueError(
                f"a label of a domain name has 1 to {_MAX_LABEL} bytes, not {len(label)}"
            )
        pieces += (bytes((len(label),)), label)
    pieces.append(b"\0")
    wire = b"".join(pieces)
    if len(wire) > _MAX_NAME:
        raise ValueError(f"a domain name has at most {_MAX_NAME} bytes, not {len(wire)}")
    return wire


def name_labels(wire: bytes) -> list[bytes]:
    found = []
    position = 0
    while length := wire[position]:
        position += 1
        found.append(wire[position : position + length])
        position += length
    return found


@lru_cache(maxsize=16384)
def name_text(wire: bytes) -> str:
    """`web.default`, without a dot at the end; `.` for the root."""
    return ".".join(map(_label_text, name_labels(wire))) or "."


def _label_text(label: bytes) -> str:
    if label.isalnum():
        return label.decode("ascii")
    return "".join(
        "\\" + chr(byte)
        if byte in b'."\\;@$()'
        else chr(byte)
        if 0x21 <= byte <= 0x7E
        else f"\\{byte:03d}"
        for byte in label
    )


class NameReader:
    """Reads the names of one message. Counts the steps of all names together, because many records
    may point to the same long name.
    """

    __slots__ = ("_data", "_steps")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._steps = _MAX_STEPS

    def read(self, position: int) -> tuple[bytes, int]:
        found, end, steps = _read_name(self._data, position)
        self._steps -= steps
        if self._steps < 0:
            raise MalformedDnsMessage("too many labels and pointers")
        return found, end


def read_name(data: bytes, position: int) -> tuple[bytes, int]:
    """The uncompressed name, and where it ends."""
    return _read_name(data, position)[:2]


def _read_name(data: bytes, position: int) -> tuple[bytes, int, int]:
    """The name, where it ends, and the number of steps. Pointers only point backwards, so this
    terminates.
    """
    pieces: list[bytes] = []
    end = -1
    size = 1
    limit = position
    jumps = 0
    while True:
        if position >= len(data):
            raise MalformedDnsMessage("a name continues past the end")
        length = data[position]
        if length == 0:
            break
        if length < 64:
            position += 1
            size += length + 1
            if position + length > len(data) or size > _MAX_NAME:
                raise MalformedDnsMessage("a name is too long")
            pieces.append(data[position - 1 : position + length])
            position += length
        elif length >= 0xC0 and position + 1 < len(data):
            target = (length & 0x3F) << 8 | data[position + 1]
            jumps += 1
            if target >= limit or jumps > _MAX_JUMPS:
                raise MalformedDnsMessage("a pointer does not lead back, or too many do")
            if end < 0:
                end = position + 2
            position = limit = target
        else:
            raise MalformedDnsMessage("a label of an unknown kind")
    pieces.append(b"\0")
    return b"".join(pieces), end if end >= 0 else position + 1, len(pieces) + jumps


# ---- reading ----


def parse_dns_message(data: bytes) -> DnsMessage:
    """Raises MalformedDnsMessage."""
    if len(data) < HEADER_SIZE:
        raise MalformedDnsMessage("too short for a header")
    id, flags, questions, *counts = _HEADER.unpack_from(data)
    names = NameReader(data)
    position = HEADER_SIZE
    question = None
    if questions > 1:
        raise MalformedDnsMessage("more than one question")
    if questions:
        requested, position = names.read(position)
        if position + 4 > len(data):
            raise MalformedDnsMessage("a question continues past the end")
        question = DnsQuestion(requested, *struct.unpack_from("!2H", data, position))
        position += 4
    sections: list[list[DnsRecord]] = []
    edns = None
    for count in counts:
        records: list[DnsRecord] = []
        for _ in range(count):
            record, position = _read_record(names, data, position)
            if record.type == OPT:
                if edns is not None or len(sections) < 2 or record.name != b"\0":
                    raise MalformedDnsMessage("a misplaced OPT record")
                edns = Edns(
                    record.klass,
                    bool(record.ttl & 0x8000),
                    record.ttl >> 16 & 0xFF,
                    record.data,
                    record.ttl >> 24,
                )
            else:
                records.append(record)
        sections.append(records)
    answers, authority, additional = sections
    return DnsMessage(id, flags, question, answers, authority, additional, edns)


def _read_record(names: NameReader, data: bytes, position: int) -> tuple[DnsRecord, int]:
    owner, position = names.read(position)
    end = position + 10
    if end > len(data):
        raise MalformedDnsMessage("a record continues past the end")
    type, klass, ttl, size = _RECORD.unpack_from(data, position)
    start, end = end, end + size
    if end > len(data):
        raise MalformedDnsMessage("a record continues past the end")
    content = data[start:end]
    layout = _NAMES_IN_DATA.get(type)
    if layout is not None and content:
        content = _whole_data(names, data, start, end, *layout)
    return DnsRecord(owner, type, ttl, content, klass), end


def _whole_data(
    names: NameReader, data: bytes, start: int, end: int, before: int, count: int
) -> bytes:
    position = start + before
    pieces = [data[start:position]]
    for _ in range(count):
        found, position = names.read(position)
        pieces.append(found)
    if position > end:
        raise MalformedDnsMessage("a name continues past its record")
    pieces.append(data[position:end])
    return b"".join(pieces)


# ---- writing ----


def encode_query(
    id: int, requested: bytes, type: int, *, recursion: bool = True, edns: Edns | None = None
) -> bytes:
    head = _HEADER.pack(id, RD if recursion else 0, 1, 0, 0, 1 if edns else 0)
    return head + requested + struct.pack("!2H", type, IN) + (encode_opt(edns) if edns else b"")


def encode_opt(edns: Edns) -> bytes:
    ttl = edns.extended << 24 | edns.version << 16 | (0x8000 if edns.do else 0)
    return b"\0" + _RECORD.pack(OPT, edns.size, ttl, len(edns.options)) + edns.options


def encode_error(data: bytes, rcode: int) -> bytes:
    """A response with only a header, for a query that could not be parsed."""
    id, flags = struct.unpack_from("!2H", data)
    return _HEADER.pack(id, QR | flags & (OPCODE | RD | CD) | rcode & 0xF, 0, 0, 0, 0)


class PackedMessage:
    """A response without the parts that differ between clients: id, question (for its case), EDNS.
    Suffixes of the question are encoded as pointers into it, so the same bytes follow every
    spelling of it.
    """

    __slots__ = ("body", "counts", "ends", "flags", "heads", "rotates", "stride", "turn")

    def __init__(
        self,
        requested: bytes,
        flags: int,
        answers: Sequence[DnsRecord] = (),
        authority: Sequence[DnsRecord] = (),
        additional: Sequence[DnsRecord] = (),
    ) -> None:
        pointers = _pointers(requested)
        body = bytearray()
        ends = []
        for section in (answers, authority, additional):
            for record in section:
                body += _owner(record.name, pointers)
                body += _RECORD.pack(record.type, record.klass, record.ttl, len(record.data))
                body += record.data
                ends.append(len(body))
        self.body = bytes(body)
        self.ends = ends
        self.flags = flags | QR
        self.counts = (len(answers), len(authority), len(additional))
        # With and without recursion desired, each with and without EDNS.
        self.heads = tuple(
            struct.pack("!5H", self.flags | rd, 1, *self.counts[:2], self.counts[2] + edns)
            for edns in (0, 1)
            for rd in (0, RD)
        )
        self.stride, self.rotates = _rotation(answers, ends)
        self.turn = 0

    def rotated(self) -> bytes:
        """The body, with the addresses rotated since the last call."""
        if not self.stride:
            return self.body
        body, begin, end = self.body, *self.rotates
        self.turn = (self.turn + self.stride) % (end - begin)
        turn = begin + self.turn
        return body[:begin] + body[turn:end] + body[begin:turn] + body[end:]

    def message(
        self, id: int, question: bytes, flags: int, limit: int, edns: Edns | None = None
    ) -> bytes:
        """`question` with its type and class, `flags` of the query, `limit` in bytes. Drops records
        that do not fit and marks the response as truncated.
        """
        tail = encode_opt(edns) if edns else b""
        body, counts = self.rotated(), self.counts
        reply = self.flags | flags & (RD | CD)
        room = limit - HEADER_SIZE - len(question) - len(tail)
        if len(body) > room:
            fitting = sum(end <= room for end in self.ends)
            body = body[: self.ends[fitting - 1]] if fitting else b""
            counts = _cut(counts, fitting)
            reply |= TC
        head = _HEADER.pack(id, reply, 1, counts[0], counts[1], counts[2] + bool(tail))
        return head + question + body + tail


def _cut(counts: tuple[int, int, int], left: int) -> tuple[int, int, int]:
    answers = min(counts[0], left)
    authority = min(counts[1], left - answers)
    return answers, authority, left - answers - authority


def _rotation(answers: Sequence[DnsRecord], ends: Sequence[int]) -> tuple[int, tuple[int, int]]:
    """The positions of several addresses of one name, all of the same size, which can be rotated."""
    first = next((i for i, record in enumerate(answers) if record.type in (A, AAAA)), -1)
    addresses = [
        r for r in answers[first:] if (r.type, r.name) == (answers[first].type, answers[first].name)
    ]
    if first < 0 or len(addresses) < 2 or len(addresses) != len(answers) - first:
        return 0, (0, 0)
    begin = ends[first - 1] if first else 0
    return ends[first] - begin, (begin, ends[len(answers) - 1])


def _pointers(requested: bytes) -> dict[bytes, bytes]:
    """Maps every suffix of the question except the root to a pointer to it."""
    folded = requested.lower()
    position = 0
    found = {}
    while length := folded[position]:
        found[folded[position:]] = struct.pack("!H", 0xC000 | HEADER_SIZE + position)
        position += length + 1
    return found


def _owner(owner: bytes, pointers: dict[bytes, bytes]) -> bytes:
    position = 0
    while length := owner[position]:
        pointer = pointers.get(owner[position:].lower())
        if pointer is not None:
            return owner[:position] + pointer
        position += length + 1
    return owner


# ---- the data of records ----


@lru_cache(maxsize=65536)
def address_data(value: str) -> bytes:
    """The data of an A or AAAA record."""
    return ip_address(value).packed


def srv_data(priority: int, weight: int, port: int, target: bytes) -> bytes:
    return struct.pack("!3H", priority, weight, port) + target


def txt_data(*strings: str) -> bytes:
    pieces = []
    for string in strings:
        raw = string.encode()
        pieces += [raw[i : i + 255] for i in range(0, len(raw), 255)] or [b""]
    return b"".join(bytes((len(piece),)) + piece for piece in pieces)


def soa_data(
    primary: bytes, mailbox: bytes, serial: int, refresh: int, retry: int, expire: int, minimum: int
) -> bytes:
    return (
        primary + mailbox + struct.pack("!5I", serial & 0xFFFFFFFF, refresh, retry, expire, minimum)
    )


def reverse_name(value: IPv4Address | IPv6Address | str) -> bytes:
    """The name under in-addr.arpa or ip6.arpa."""
    return encode_name(ip_address(value).reverse_pointer)


def data_text(record: DnsRecord) -> str:
    """Record data as zone files and `dig` show it."""
    try:
        return _known_text(record.type, record.data)
    except (IndexError, MalformedDnsMessage, struct.error):
        return _unknown_text(record.data)


def _known_text(type: int, data: bytes) -> str:
    match type:
        case 1 | 28 if len(data) in (4, 16):
            return str(ip_address(data))
        case 2 | 5 | 12 | 39:
            return _absolute(data)
        case 15:
            return f"{int.from_bytes(data[:2])} {_absolute(data[2:])}"
        case 33:
            return f"{' '.join(map(str, struct.unpack_from('!3H', data)))} {_absolute(data[6:])}"
        case 6:
            primary, position = read_name(data, 0)
            mailbox, position = read_name(data, position)
            numbers = " ".join(map(str, struct.unpack_from("!5I", data, position)))
            return f"{_absolute(primary)} {_absolute(mailbox)} {numbers}"
        case 16:
            return " ".join(f'"{_quoted(piece)}"' for piece in txt_strings(data))
    return _unknown_text(data)


def _unknown_text(data: bytes) -> str:
    return f"\\# {len(data)} {data.hex().upper()}"


def _quoted(piece: bytes) -> str:
    return "".join(
        "\\" + chr(b) if b in b'"\\' else chr(b) if 0x20 <= b <= 0x7E else f"\\{b:03d}"
        for b in piece
    )


def txt_strings(data: bytes) -> list[bytes]:
    """The strings of a TXT record."""
    found = []
    position = 0
    while position < len(data):
        length = data[position]
        found.append(data[position + 1 : position + 1 + length])
        position += length + 1
    return found


def _absolute(wire: bytes) -> str:
    shown = name_text(wire)
    return shown if shown == "." else shown + "."
