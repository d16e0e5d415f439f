"""Messages that no client should send, answers that do not fit, and questions for other servers."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from typing import Any

import dns.asyncquery
import dns.edns
import dns.message
import dns.query
import dns.rdatatype
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.dns.zones import ask, server, service, shown, slice_of, zone

from transom.dns.attach import DnsAttachment
from transom.dns.server import DnsServer
from transom.dns.settings import DnsServerAddress, DnsSettings, check_dns_settings
from transom.dns.transport import (
    DnsConnections,
    DnsDatagrams,
    HostExchange,
    TcpListener,
)
from transom.kit import dnswire as wire
from transom.kit.clock import RealClock, VirtualClock

C = "testns.svc.cluster.local."
QUESTION = wire.encode_name(f"svc1.{C}") + b"\0\1\0\1"


def head(flags: int = wire.RD, *counts: int) -> bytes:
    return struct.pack("!6H", 4711, flags, *(counts or (1, 0, 0, 0)))


@pytest.mark.parametrize(
    ("query", "rcode"),
    [
        (head() + QUESTION[:-1], wire.FORMERR),
        (head() + b"\xc0\x0c\0\1\0\1", wire.FORMERR),
        (head() + b"\x50" * 90, wire.FORMERR),
        (head(wire.RD, 0, 0, 0, 0), wire.FORMERR),
        (head(wire.RD, 2, 0, 0, 0) + QUESTION * 2, wire.FORMERR),
        (head(wire.RD, 1, 2, 0, 0) + QUESTION, wire.FORMERR),
        (head(wire.RD, 1, 0, 0, 1) + QUESTION, wire.FORMERR),
        (head(wire.RD, 1, 0, 0, 2) + QUESTION + wire.encode_opt(wire.Edns(512)) * 2, wire.FORMERR),
        (head(0x2800) + QUESTION, wire.NOTIMP),  # an update
        (head() + QUESTION[:-1] + b"\3", wire.REFUSED),  # class CHAOS
        (head() + QUESTION[:-4] + b"\0\xfc\0\1", wire.REFUSED),  # a transfer of the zone
    ],
)
def test_what_is_refused(query: bytes, rcode: int) -> None:
    on = server()
    ask(on, f"svc1.{C}")  # it knows the answer to the question itself
    answer = asyncio.run(on.respond(query))
    assert answer is not None
    read = wire.parse_dns_message(answer)
    assert (read.id, read.rcode, len(read.answers), bool(read.flags & wire.QR)) == (
        4711,
        rcode,
        0,
        True,
    )


@pytest.mark.parametrize("query", [b"", b"short", head(wire.QR | wire.RD) + QUESTION])
def test_what_is_not_answered(query: bytes) -> None:
    assert asyncio.run(server().respond(query)) is None


FUZZED = server()


@given(st.binary(max_size=120) | st.binary(max_size=80).map(lambda tail: head() + tail))
def test_any_bytes_are_answered_or_not_but_never_fail(query: bytes) -> None:
    answer = asyncio.run(FUZZED.respond(query))
    if answer is not None:
        assert answer[:2] == query[:2] and answer[2] & 0x80
        wire.parse_dns_message(answer)


@given(st.data())
def test_damaged_queries(data: st.DataObject) -> None:
    query = bytearray(head(wire.RD, 1, 0, 0, 1) + QUESTION + wire.encode_opt(wire.Edns(1232)))
    for _ in range(data.draw(st.integers(1, 3))):
        query[data.draw(st.integers(2, len(query) - 1))] = data.draw(st.integers(0, 255))
    answer = asyncio.run(FUZZED.respond(bytes(query)))
    assert answer is None or wire.parse_dns_message(answer).id == 4711


def test_edns() -> None:
    on = server()
    for _ in range(2):
        read = ask(on, f"svc1.{C}", use_edns=0, payload=1400)
        assert (read.edns, read.payload, read.ednsflags) == (0, 1400, 0)
    assert ask(on, f"svc1.{C}").edns == -1
    assert ask(on, f"svc1.{C}", want_dnssec=True).ednsflags == 0x8000
    cookie = dns.edns.GenericOption(10, b"12345678")
    kept = ask(on, f"svc1.{C}", options=[cookie, dns.edns.GenericOption(8, b"\0\1\0\0")]).options
    assert [(int(option.otype), option.to_wire()) for option in kept] == [(10, b"12345678")]
    bad = ask(on, f"svc1.{C}", use_edns=1)
    assert (bad.rcode(), bad.answer) == (16, [])


def test_what_does_not_fit_is_truncated_over_udp_alone() -> None:
    made = zone()
    made.put_service(service("many", "None"))
    made.put_slice(slice_of("many", *(f"172.1.0.{i}" for i in range(1, 101))))
    on = server(made)
    for _ in range(2):
        small = ask(on, f"many.{C}")
        assert (small.flags & wire.TC, len(small.answer)) == (wire.TC, 29)
        larger = ask(on, f"many.{C}", use_edns=0, payload=1232)
        assert (larger.flags & wire.TC, len(larger.answer)) == (wire.TC, 73)
        whole = ask(on, f"many.{C}", transport="tcp")
        assert (whole.flags & wire.TC, len(whole.answer)) == (0, 100)


def test_addresses_take_turns() -> None:
    on = server()
    firsts = {str(ask(on, f"hdls1.{C}").answer[0][0]) for _ in range(4)}
    assert firsts == {f"172.0.0.{i}" for i in (2, 3, 4, 5)}


# ---- other servers ----


class Others:
    """Name servers elsewhere: answers by server and name."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.requested: list[tuple[str, str, str]] = []

    def _reply(self, server: DnsServerAddress, payload: bytes, transport: str) -> bytes:
        query = dns.message.from_wire(payload)
        question = query.question[0]
        self.requested.append((server.address, question.name.to_text(), transport))
        answer = self.answers.get(server.address)
        if answer is None:
            raise ConnectionRefusedError
        reply = dns.message.make_response(query)
        answer(reply, question, transport)
        return reply.to_wire(max_size=65535)

    async def datagram(self, server: DnsServerAddress, payload: bytes) -> bytes:
        if self.answers.get(server.address) == "silent":
            await asyncio.get_running_loop().create_future()
        return self._reply(server, payload, "udp")

    async def stream(self, server: DnsServerAddress, payload: bytes) -> bytes:
        return self._reply(server, payload, "tcp")


def addresses(*values: str, ttl: int = 300, alias: str = "") -> Any:
    def answer(reply: Any, question: Any, _transport: str) -> None:
        name = question.name.to_text()
        if alias:
            reply.answer.append(dns.rrset.from_text(name, ttl, "IN", "CNAME", alias))
        if question.rdtype == dns.rdatatype.A:
            reply.answer.append(dns.rrset.from_text(alias or name, ttl, "IN", "A", *values))

    return answer


def nothing(reply: Any, question: Any, _transport: str) -> None:
    reply.set_rcode(3)
    reply.authority.append(
        dns.rrset.from_text("test.", 900, "IN", "SOA", "ns.test. h.test. 1 2 3 4 20")
    )


def failure(reply: Any, question: Any, _transport: str) -> None:
    reply.set_rcode(2)


def truncated(reply: Any, question: Any, transport: str) -> None:
    if transport == "udp":
        reply.flags |= dns.flags.TC
    else:
        addresses("192.0.2.7")(reply, question, transport)


def forwarding(others: Others, clock: VirtualClock | None = None, **settings: Any) -> DnsServer:
    return DnsServer(
        zone(), DnsSettings(**settings), clock or VirtualClock(), random.Random(1), others
    )


ONE, TWO = {"192.0.2.1": addresses("192.0.2.80")}, "192.0.2.2"


def test_other_names_are_asked_for_upstream_and_kept_for_a_while() -> None:
    others, clock = Others(**ONE), VirtualClock()
    on = forwarding(others, clock, upstreams=("192.0.2.1",))
    assert shown(ask(on, "www.example.test."))[:2] == (
        "NOERROR",
        ["www.example.test. 30 IN A 192.0.2.80"],
    )
    clock.advance(10)
    assert shown(ask(on, "WWW.example.test."))[1] == ["WWW.example.test. 20 IN A 192.0.2.80"]
    assert others.requested == [("192.0.2.1", "www.example.test.", "udp")]
    clock.advance(21)
    assert shown(ask(on, "www.example.test."))[0] == "NOERROR"
    assert len(others.requested) == 2


def test_no_upstream_no_other_names() -> None:
    assert shown(ask(server(), "www.example.test."))[:2] == ("NXDOMAIN", [])


def test_denials_are_kept_as_long_as_they_say() -> None:
    others, clock = Others(**{"192.0.2.1": nothing}), VirtualClock()
    on = forwarding(others, clock, upstreams=("192.0.2.1",))
    for wait in (0, 19, 2):
        clock.advance(wait)
        assert shown(ask(on, "www.example.test."))[0] == "NXDOMAIN"
    assert len(others.requested) == 2


def test_the_next_upstream_is_asked_when_one_fails() -> None:
    others = Others(**{"192.0.2.1": failure, TWO: addresses("192.0.2.81")})
    on = forwarding(others, upstreams=("192.0.2.9", "192.0.2.1", TWO))
    assert shown(ask(on, "www.example.test."))[1] == ["www.example.test. 30 IN A 192.0.2.81"]
    assert [address for address, _, _ in others.requested] == ["192.0.2.9", "192.0.2.1", TWO]


async def test_no_answer() -> None:
    clock = VirtualClock()
    others = Others(**{"192.0.2.1": "silent"})
    on = DnsServer(zone(), DnsSettings(upstreams=("192.0.2.1",)), clock, random.Random(1), others)
    query = dns.message.make_query("www.example.test.", "A").to_wire()
    both = asyncio.gather(on.respond(query), on.respond(query))
    await clock.run_for(5.0)
    for answer in await both:
        assert answer is not None and wire.parse_dns_message(answer).rcode == wire.SERVFAIL
    await on.close()


def test_truncated_answers_are_asked_for_again_over_a_connection() -> None:
    others = Others(**{"192.0.2.1": truncated})
    assert (
        shown(ask(forwarding(others, upstreams=("192.0.2.1",)), "www.example.test."))[0]
        == "NOERROR"
    )
    assert [transport for _, _, transport in others.requested] == ["udp", "tcp"]


def test_stub_domains() -> None:
    others = Others(**ONE, **{TWO: addresses("192.0.2.90")})
    stubs = {"corp.example": (TWO,), "deep.cluster.local": (TWO,), "local": (TWO,)}
    on = forwarding(others, upstreams=("192.0.2.1",), stub_domains=stubs)
    for name, address in (
        ("db.corp.example.", "192.0.2.90"),
        ("corp.example.", "192.0.2.90"),
        ("notcorp.example.", "192.0.2.80"),
        ("a.deep.cluster.local.", "192.0.2.90"),
        ("printer.local.", "192.0.2.90"),
        (f"svc1.{C}", "10.0.0.1"),
    ):
        assert shown(ask(on, name))[1][0].split()[-1] == address, name


def test_addresses_of_others_are_asked_for_upstream() -> None:
    others = Others(**ONE)
    on = forwarding(others, upstreams=("192.0.2.1",))
    assert shown(ask(on, "1.0.0.10.in-addr.arpa.", "PTR"))[1] == [
        f"1.0.0.10.in-addr.arpa. 5 IN PTR svc1.{C}"
    ]
    ask(on, "9.9.9.9.in-addr.arpa.", "PTR")
    assert others.requested == [("192.0.2.1", "9.9.9.9.in-addr.arpa.", "udp")]


def test_external_names_are_followed() -> None:
    others = Others(**{"192.0.2.1": addresses("192.0.2.80", alias="real.interwebs.test.")})
    on = forwarding(others, upstreams=("192.0.2.1",))
    assert [str(rrset) for rrset in ask(on, f"external.{C}").answer] == [
        f"external.{C} 5 IN CNAME ext.interwebs.test.",
        "ext.interwebs.test. 30 IN CNAME real.interwebs.test.",
        "real.interwebs.test. 30 IN A 192.0.2.80",
    ]
    named = forwarding(Others(), hosts={"ext.interwebs.test": ("203.0.113.10", "2001:db8::10")})
    assert [str(rrset) for rrset in ask(named, f"external.{C}", "AAAA").answer] == [
        f"external.{C} 5 IN CNAME ext.interwebs.test.",
        "ext.interwebs.test. 3600 IN AAAA 2001:db8::10",
    ]
    assert shown(ask(named, "ext.interwebs.test.", "TXT"))[:2] == ("NOERROR", [])


async def test_a_question_that_comes_back_does_not_go_round() -> None:
    clock = VirtualClock()
    made: list[DnsServer] = []

    class Mirror:
        requested = 0

        async def datagram(self, _server: DnsServerAddress, payload: bytes) -> bytes:
            self.requested += 1
            answer = await made[0].respond(payload)
            assert answer is not None
            return answer

        stream = datagram

    mirror = Mirror()
    made.append(
        DnsServer(zone(), DnsSettings(upstreams=("192.0.2.1",)), clock, random.Random(1), mirror)
    )
    coming = asyncio.ensure_future(
        made[0].respond(dns.message.make_query("x.test.", "A").to_wire())
    )
    await clock.run_for(6.0)
    answer = await coming
    assert answer is not None and wire.parse_dns_message(answer).rcode == wire.SERVFAIL
    assert mirror.requested <= 3
    await made[0].close()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (DnsSettings(upstreams=("dns.example",)), "is not the address of a name server"),
        (DnsSettings(upstreams=("1.1.1.1:0",)), "does not end in a port"),
        (DnsSettings(stub_domains={".": ("1.1.1.1",)}), "the root cannot be"),
        (DnsSettings(upstreams=("10.96.0.10",)), "questions to it would never end"),
        (DnsSettings(hosts={"a": ("b",)}), "is not an address for a"),
        (DnsSettings(domain="a..b"), "a label of a domain name"),
    ],
)
def test_settings_that_cannot_work(settings: DnsSettings, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        check_dns_settings(settings, [DnsServerAddress("10.96.0.10")])
    check_dns_settings(
        DnsSettings(upstreams=("[fd00::1]:5353", "1.1.1.1:53"), stub_domains={"a.b": ("1.1.1.1",)})
    )


# ---- sockets ----


async def test_on_a_real_socket() -> None:
    on = DnsServer(zone(), DnsSettings(), RealClock(), random.Random(1))
    connections = DnsConnections(on.take, RealClock())
    datagrams = DnsDatagrams(on.take, "127.0.0.1", 0)
    listener = TcpListener(connections, "127.0.0.1", datagrams.port)
    try:
        query = dns.message.make_query(f"svc1.{C}", "A")
        for way in (dns.asyncquery.udp, dns.asyncquery.tcp):
            read = await way(query, "127.0.0.1", port=datagrams.port, timeout=5)
            assert [str(rrset) for rrset in read.answer] == [f"svc1.{C} 5 IN A 10.0.0.1"]
        for exchange in (HostExchange().datagram, HostExchange().stream):
            answer = await exchange(DnsServerAddress("127.0.0.1", datagrams.port), query.to_wire())
            assert dns.message.from_wire(answer).answer
    finally:
        await listener.close()
        await datagrams.close()
        await connections.close()


async def test_connections_carry_many_questions_and_end_when_idle() -> None:
    clock = VirtualClock()
    near, far = socket.socketpair()
    near.setblocking(False)
    connections = DnsConnections(server().take, clock)
    connections.accept(far, "10.244.1.2")
    loop = asyncio.get_running_loop()
    query = dns.message.make_query(f"svc1.{C}", "A").to_wire()
    framed = len(query).to_bytes(2) + query
    await loop.sock_sendall(near, framed * 2 + framed[:5])
    data = b""
    while len(data) < 2 * (2 + len(query) + 16):
        data += await loop.sock_recv(near, 4096)
    await clock.run_for(11.0)
    assert await loop.sock_recv(near, 4096) == b""
    await connections.close()
    near.close()


async def test_at_an_address_of_the_cluster() -> None:
    class Plane:
        def __init__(self) -> None:
            self.answering: dict[tuple[str, int], Any] = {}
            self.listening: dict[tuple[str, int], Any] = {}

        def answer(self, address: str, port: int, respond: Any) -> Any:
            self.answering[address, port] = respond
            return lambda: self.answering.pop((address, port))

        def listen(self, address: str, port: int, accept: Any) -> Any:
            if port == 9153 and address == "172.20.0.3":
                raise OSError(98, "Address already in use")
            self.listening[address, port] = accept
            return lambda: self.listening.pop((address, port))

    plane = Plane()
    attached = DnsAttachment(server(), plane, ["172.20.0.2"], VirtualClock())  # type: ignore[arg-type]
    answer = await plane.answering["172.20.0.2", 53](head() + QUESTION, "10.244.1.2")
    assert wire.parse_dns_message(answer).answers[0].data == b"\x0a\0\0\1"
    assert sorted(plane.listening) == [("172.20.0.2", 53), ("172.20.0.2", 9153)]
    await attached.close()
    with pytest.raises(OSError, match="in use"):
        DnsAttachment(server(), plane, ["172.20.0.2", "172.20.0.3"], VirtualClock())  # type: ignore[arg-type]
    assert (plane.answering, plane.listening) == ({}, {})
