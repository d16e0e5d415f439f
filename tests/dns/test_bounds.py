"""What clients and other name servers can make the DNS server keep is bounded."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket

import pytest

from transom.dns import cache, forward, server, transport
from transom.dns.cache import DnsCache
from transom.dns.forward import Forwarder
from transom.dns.outcome import DnsOutcome, make_dns_request
from transom.dns.server import DnsServer
from transom.dns.settings import DnsServerAddress, DnsSettings
from transom.dns.transport import DnsConnections
from transom.dns.zone import DnsZone
from transom.kit import dnswire as wire
from transom.kit.clock import VirtualClock
from transom.kit.dnswire import DnsRecord


class Silent:
    """Servers that never answer."""

    async def datagram(self, server: DnsServerAddress, payload: bytes) -> bytes:
        await asyncio.Event().wait()
        return b""

    stream = datagram


async def test_connections_are_bounded_and_idle_ones_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MAX_CONNECTIONS", 3)

    clock = VirtualClock()
    connections = DnsConnections(lambda *_: None, clock)
    near = []
    for _ in range(5):
        ours, theirs = socket.socketpair()
        near.append(ours)
        connections.accept(theirs, "10.0.0.1")
    await asyncio.sleep(0)
    for ours in near[3:]:
        ours.settimeout(1)
        assert ours.recv(1) == b""
    near[0].sendall(b"\0")  # half of a length
    await asyncio.sleep(0)
    clock.advance(transport.IDLE + 1)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not connections._tasks
    for ours in near:
        ours.close()


async def test_a_client_that_does_not_read_is_disconnected() -> None:
    clock = VirtualClock()
    connections = DnsConnections(lambda *_: b"x" * 60_000, clock)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    connections.accept(theirs, "10.0.0.1")
    for _ in range(50):
        with contextlib.suppress(BlockingIOError):
            ours.send(b"\0\1x" * 100)
        await asyncio.sleep(0)
    assert connections._tasks
    clock.advance(transport.IDLE + 1)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not connections._tasks
    ours.close()


async def test_questions_to_other_servers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward, "MAX_ASKED", 5)

    forwarder = Forwarder(Silent(), VirtualClock(), random.Random(1))
    servers = [DnsServerAddress("192.0.2.1", 53)]
    tasks = [
        asyncio.create_task(
            forwarder.ask(servers, make_dns_request(wire.encode_name(f"a{n}.x"), wire.A, False))
        )
        for n in range(20)
    ]
    for _ in range(5):
        await asyncio.sleep(0)
    done = [task.result() for task in tasks if task.done()]
    assert [outcome.rcode for outcome in done] == [wire.SERVFAIL] * 15
    assert len(forwarder._requested) == 5
    for task in tasks:
        task.cancel()
    await forwarder.close()


def test_large_answers_of_other_servers_are_kept_up_to_a_size() -> None:
    kept = DnsCache(VirtualClock(), 300)
    for number in range(200):
        name = wire.encode_name(f"n{number}.example")
        answers = [DnsRecord(name, wire.A, 60, bytes(4)) for _ in range(2000)]
        kept.put(make_dns_request(name, wire.A, False), DnsOutcome(wire.NOERROR, answers))
    assert kept._bytes <= cache.MAX_BYTES
    assert 10 < len(kept) < 60
    assert kept.get(make_dns_request(wire.encode_name("n199.example"), wire.A, False)) is not None
    for _ in range(200):  # what is replaced or gone counts no longer
        kept.put(
            make_dns_request(wire.encode_name("same.example"), wire.A, False),
            DnsOutcome(wire.NXDOMAIN),
        )
    assert kept._bytes == sum(entry.size for entry in kept._entries.values())


def test_random_names_are_kept_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "KEPT_BYTES", 20_000)
    dns = DnsServer(DnsZone(), DnsSettings(), VirtualClock(), random.Random(1))
    for number in range(2000):
        name = wire.encode_name(f"n{number}.default.svc.cluster.local")
        assert dns.take(wire.encode_query(number, name, wire.A)) is not None
        total = sum(len(key) + len(packed.body) for key, packed in dns._packed.items())
        assert total <= 20_000
    assert dns.kept
