from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.proxy.userspace import dnsnames as dns


def query(name: str, kind: int = dns.A, *, extra: bool = False) -> bytes:
    record = (dns._Record((), struct.pack("!HHI", 41, 4096, 0), b""),) if extra else ()
    labels = tuple(part.encode() for part in name.split(".") if part)
    return dns.pack_raw_dns(
        dns.RawDnsMessage(7, 0x0100, (dns.RawDnsQuestion(labels, kind, dns.IN),), ((), (), record))
    )


# An answer as servers write them: names are pointers into the question.
ANSWER = (
    struct.pack("!6H", 7, 0x8180, 1, 2, 0, 0)
    + b"\x03web\x07default\x03svc\x07cluster\x05local\x00"
    + struct.pack("!HH", 1, 1)
    + b"\xc0\x0c"
    + struct.pack("!HHIH", 5, 1, 30, 6)
    + b"\x03www\xc0\x10"
    + b"\xc0\x0c"
    + struct.pack("!HHIH", 1, 1, 30, 4)
    + bytes((10, 96, 0, 10))
)


def test_suffixes_of_a_lone_question() -> None:
    message = dns.parse_raw_dns(query("web"))
    assert dns.wants_suffix(message)
    requested = dns.parse_raw_dns(dns.with_suffix(message, "svc.cluster.local"))
    assert (
        requested.questions[0].labels == (b"web", b"svc", b"cluster", b"local")
        and requested.id == 7
    )
    assert dns.with_suffix(message, "") == query("web")


@pytest.mark.parametrize("packet", [query("web", 15), query("web", extra=True)], ids=["MX", "EDNS"])
def test_other_questions_are_left_alone(packet: bytes) -> None:
    assert not dns.wants_suffix(dns.parse_raw_dns(packet))


def test_the_answer_gets_the_question_back() -> None:
    question = dns.parse_raw_dns(query("web")).questions[0]
    answer = dns.parse_raw_dns(
        dns.pack_raw_dns(dns.with_question(dns.parse_raw_dns(ANSWER), question))
    )
    assert answer.questions == (question,)
    first, second = answer.sections[0]
    assert (
        first.labels == (b"web",)
        and first.data == b"\x03www\x07default\x03svc\x07cluster\x05local\x00"
    )
    assert second.labels == (
        b"web",
        b"default",
        b"svc",
        b"cluster",
        b"local",
    )  # only the first one is renamed
    assert second.data == bytes((10, 96, 0, 10))


@given(st.binary(max_size=80))
def test_anything_is_a_message_or_is_refused(packet: bytes) -> None:
    try:
        message = dns.parse_raw_dns(packet)
    except dns.BadDnsMessage:
        return
    assert dns.parse_raw_dns(dns.pack_raw_dns(message)) == message


def test_an_answer_is_not_a_query() -> None:
    with pytest.raises(dns.BadDnsMessage, match="should be a query"):
        dns.wants_suffix(dns.parse_raw_dns(ANSWER))
