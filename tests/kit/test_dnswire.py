from __future__ import annotations

import struct

import dns.flags
import dns.message
import dns.name
import dns.rdatatype
import dns.rrset
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.kit import dnswire as wire
from transom.kit.dnswire import DnsMessage, DnsRecord, Edns, PackedMessage

LABEL = st.binary(min_size=1, max_size=63)
NAME = st.lists(LABEL, max_size=6).map(lambda labels: wire.from_labels(labels[:3]))
HOST = st.lists(
    st.text("abcdefghijklmnopqrstuvwxyzABC0123456789-_", min_size=1, max_size=20),
    min_size=1,
    max_size=5,
)
RECORD = st.one_of(
    st.builds(lambda n, a: DnsRecord(n, wire.A, 30, a), NAME, st.binary(min_size=4, max_size=4)),
    st.builds(
        lambda n, a: DnsRecord(n, wire.AAAA, 30, a), NAME, st.binary(min_size=16, max_size=16)
    ),
    st.builds(
        lambda n, t, y: DnsRecord(n, y, 0xFFFF, t),
        NAME,
        NAME,
        st.sampled_from((wire.CNAME, wire.PTR, wire.NS)),
    ),
    st.builds(
        lambda n, t, p: DnsRecord(n, wire.SRV, 5, wire.srv_data(0, 100, p, t)),
        NAME,
        NAME,
        st.integers(0, 65535),
    ),
    st.builds(
        lambda n, t: DnsRecord(n, wire.TXT, 5, wire.txt_data(t)), NAME, st.text(max_size=300)
    ),
    st.builds(
        lambda n, t, s: DnsRecord(n, wire.SOA, 5, wire.soa_data(t, t, s, 1, 2, 3, 4)),
        NAME,
        NAME,
        st.integers(0, 2**40),
    ),
)
EDNS = st.tuples(st.integers(512, 65535), st.booleans()).map(lambda pair: Edns(*pair))
RECORDS = st.lists(RECORD, max_size=4)


@given(NAME)
def test_names_round_trip(name: bytes) -> None:
    shown = wire.name_text(name)
    assert wire.encode_name(shown) == name
    assert dns.name.from_text(shown).to_wire() == name


@given(NAME, RECORDS, RECORDS, RECORDS, st.none() | EDNS)
def test_messages_round_trip(
    requested: bytes,
    answers: list[DnsRecord],
    authority: list[DnsRecord],
    additional: list[DnsRecord],
    edns: Edns | None,
) -> None:
    packed = PackedMessage(requested, wire.AA, answers, authority, additional)
    data = packed.message(7, requested + b"\0\1\0\1", wire.RD, 65535, edns)
    read = wire.parse_dns_message(data)
    assert read.flags == wire.QR | wire.AA | wire.RD
    assert (read.id, read.edns) == (7, edns)
    assert [_folded(section) for section in (read.authority, read.additional)] == [
        _folded(authority),
        _folded(additional),
    ]
    # addresses take turns in being first
    assert sorted(_folded(read.answers)) == sorted(_folded(answers))
    dns.message.from_wire(data)


def _folded(records: object) -> list[DnsRecord]:
    """Names that the question ends in come back in its spelling."""
    return [record._replace(name=record.name.lower()) for record in records]  # type: ignore[attr-defined]


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_malformed(data: bytes) -> None:
    try:
        message = wire.parse_dns_message(data)
    except wire.MalformedDnsMessage:
        return
    assert isinstance(message, DnsMessage)
    for record in (*message.answers, *message.authority, *message.additional):
        wire.data_text(record)


@given(st.data())
def test_damaged_messages(data: st.DataObject) -> None:
    name = wire.encode_name("web.default.svc.cluster.local")
    whole = bytearray(
        PackedMessage(
            name,
            wire.AA,
            [DnsRecord(name, wire.SRV, 5, wire.srv_data(0, 1, 2, name))],
            [DnsRecord(name, wire.MX, 5, b"\0\1" + name)],
        ).message(1, name + b"\0\x21\0\1", 0, 512, Edns(1232))
    )
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    try:
        wire.parse_dns_message(cut)
    except wire.MalformedDnsMessage:
        return


@given(HOST, st.sampled_from(("A", "AAAA", "SRV", "PTR", "TXT")), st.booleans())
def test_queries_are_what_others_write(labels: list[str], type: str, edns: bool) -> None:
    text = ".".join(labels)
    ours = wire.encode_query(
        99, wire.encode_name(text), wire.TYPES[type], edns=Edns(1232) if edns else None
    )
    theirs = dns.message.make_query(
        text + ".", type, use_edns=0 if edns else False, payload=1232, id=99
    )
    assert ours == theirs.to_wire()


def test_compressed_names_of_others_are_made_whole() -> None:
    reply = dns.message.make_response(dns.message.make_query("a.example.com.", "SOA"))
    reply.answer += [
        dns.rrset.from_text("a.example.com.", 30, "IN", "CNAME", "b.example.com."),
        dns.rrset.from_text("b.example.com.", 30, "IN", "MX", "5 mail.example.com."),
        dns.rrset.from_text(
            "example.com.", 30, "IN", "SOA", "ns.example.com. host.example.com. 1 2 3 4 5"
        ),
    ]
    read = wire.parse_dns_message(reply.to_wire())
    assert [(wire.name_text(r.name), r.type, wire.data_text(r)) for r in read.answers] == [
        ("a.example.com", wire.CNAME, "b.example.com."),
        ("b.example.com", wire.MX, "5 mail.example.com."),
        ("example.com", wire.SOA, "ns.example.com. host.example.com. 1 2 3 4 5"),
    ]


@pytest.mark.parametrize("pointer", [b"\xc0\x0c", b"\xc0\x20", b"\x80\0", b"\xc0", b"\x05ab"])
def test_names_without_an_end(pointer: bytes) -> None:
    with pytest.raises(wire.MalformedDnsMessage):
        wire.parse_dns_message(b"\0\1\1\0\0\1\0\0\0\0\0\0" + pointer)


def test_long_chains_of_pointers_are_not_followed() -> None:
    data = b"\0" * 14 + b"".join(struct.pack("!H", 0xC000 | 12 + 2 * i) for i in range(200))
    assert wire.read_name(data, 12 + 2 * 100) == (b"\0", 12 + 2 * 101)
    with pytest.raises(wire.MalformedDnsMessage):
        wire.read_name(data, 12 + 2 * 200)


def test_owners_are_compressed_in_the_spelling_of_the_question() -> None:
    requested = wire.encode_name("WEB.default.SVC.cluster.local")
    records = [
        DnsRecord(wire.encode_name("web.default.svc.cluster.local"), wire.A, 30, b"\1\2\3\4")
    ]
    soa = DnsRecord(
        wire.encode_name("cluster.local"), wire.SOA, 30, wire.soa_data(b"\0", b"\0", 1, 2, 3, 4, 5)
    )
    data = PackedMessage(requested, 0, records, [soa]).message(1, requested + b"\0\1\0\1", 0, 512)
    read = wire.parse_dns_message(data)
    assert read.answers[0].name == requested
    assert len(data) == 12 + len(requested) + 4 + 16 + 2 + 10 + len(soa.data)


def test_what_does_not_fit_is_left_away() -> None:
    requested = wire.encode_name("many.default.svc.cluster.local")
    records = [DnsRecord(requested, wire.A, 30, bytes((10, 0, 0, i))) for i in range(100)]
    packed = PackedMessage(
        requested, wire.AA, records, (), [DnsRecord(requested, wire.TXT, 5, b"\1x")]
    )
    for limit, edns in ((512, None), (700, Edns(700)), (60, None)):
        read = wire.parse_dns_message(packed.message(1, requested + b"\0\1\0\1", 0, limit, edns))
        assert read.truncated
        assert len(read.answers) == (limit - 12 - len(requested) - 4 - (11 if edns else 0)) // 16
    assert not wire.parse_dns_message(
        packed.message(1, requested + b"\0\1\0\1", 0, 65535)
    ).truncated


def test_addresses_take_turns() -> None:
    requested = wire.encode_name("a.b")
    alias = DnsRecord(requested, wire.CNAME, 5, wire.encode_name("c.b"))
    records = [
        DnsRecord(wire.encode_name("c.b"), wire.A, 30, bytes((10, 0, 0, i))) for i in range(3)
    ]
    for before in ([], [alias]):
        packed = PackedMessage(requested, 0, [*before, *records])
        seen = []
        for _ in range(4):
            read = wire.parse_dns_message(
                packed.message(1, requested + b"\0\1\0\1", 0, 512)
            ).answers
            assert list(read[: len(before)]) == before
            seen.append([record.data[3] for record in read[len(before) :]])
        assert seen == [[1, 2, 0], [2, 0, 1], [0, 1, 2], [1, 2, 0]]


@pytest.mark.parametrize("text", ["a..b", "." * 3, "x" * 64, ".".join(["abcdefgh"] * 29)])
def test_no_names(text: str) -> None:
    with pytest.raises(ValueError, match="domain name"):
        wire.encode_name(text)
