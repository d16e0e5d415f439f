"""What a client can do below requests: floods of requests, headers, chunks and connections."""

from __future__ import annotations

import random
import socket
import ssl
from urllib.parse import quote

import pytest
from tests.hostile.conftest import MIB, Attack, Victim

GET = b"GET /api/v1/namespaces/default HTTP/1.1\r\nHost: x\r\n"
POST = (
    b"POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: x\r\nContent-Type: "
    b"application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


def exchange(victim: Victim, *parts: bytes, expected: bytes, count: int = 1) -> None:
    """Sends all of it, and reads until that many answers with the expected status are there."""
    connection = victim.endpoint.connect(timeout=60)
    seen, tail = 0, b""
    try:
        for part in parts:
            connection.sendall(part)
        while seen < count:
            data = connection.recv(1 << 20)
            assert data, (seen, tail[-300:])
            whole = tail + data
            seen += whole.count(expected)
            tail = whole[-len(expected) + 1 :]
    except (BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
        assert expected == b"reset"
    finally:
        connection.close()


def test_pipelined_requests(victim: Victim, attack: Attack, rounds: int) -> None:
    with attack():
        for _ in range(rounds):
            # As many as fit into buffers: the server stops reading from a client that does not
            # read.
            exchange(victim, (GET + b"\r\n") * 1500, expected=b"HTTP/1.1 200 OK", count=1500)


HEADS = {
    "one line of 1 MiB": (GET + b"X: " + b"a" * MIB + b"\r\n\r\n", b"HTTP/1.1 431"),
    "1 MiB of headers": (GET + b"X-A: b\r\n" * 150_000 + b"\r\n", b"HTTP/1.1 431"),
    "thousands of short headers": (GET + b"a:b\r\n" * 11_000 + b"\r\n", b"HTTP/1.1 200"),
    "a long query": (
        b"GET /api/v1/namespaces/default?" + b"a=b&" * 15_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"HTTP/1.1 200",
    ),
    "a deep path": (b"GET " + b"/a" * 30_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 404"),
    "a long continue token": (
        b"GET /api/v1/pods?limit=1&continue=" + b"%41" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"HTTP/1.1 400",
    ),
    "many accepted types": (
        GET + b"Accept: " + b"application/json;q=0.1," * 2500 + b"*/*\r\n\r\n",
        b"HTTP/1.1 200",
    ),
    "many groups": (
        GET + b"Impersonate-User: x\r\n" + b"Impersonate-Group: g\r\n" * 2500 + b"\r\n",
        b"HTTP/1.1 403",
    ),
}


@pytest.mark.parametrize("name", HEADS)
def test_heads(victim: Victim, attack: Attack, rounds: int, name: str) -> None:
    head, expected = HEADS[name]
    with attack():
        for _ in range(rounds):
            exchange(victim, head, expected=expected)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([b"1\r\n \r\n" * 10_000] * 20 + [b"0\r\n\r\n"], b"HTTP/1.1 4"),
        ([b"1;" + b"x" * 10_000 + b"\r\n \r\n"] * 500 + [b"0\r\n\r\n"], b"HTTP/1.1 4"),
        ([b"2\r\n{}\r\n0\r\n" + b"a: b\r\n" * 200_000 + b"\r\n"], b"HTTP/1.1 4"),
    ],
    ids=["tiny chunks", "chunk extensions", "trailers"],
)
def test_bodies_that_are_mostly_framing(
    victim: Victim, attack: Attack, parts: list[bytes], expected: bytes
) -> None:
    with attack():
        exchange(victim, POST, *parts, expected=expected)


def test_connections_that_come_and_go(victim: Victim, attack: Attack, rounds: int) -> None:
    def visit(count: int) -> None:
        for _ in range(count):
            client = victim.client()
            client.ok("GET", "/api/v1/namespaces/default")
            client.close()

    visit(100)
    with attack(rss=10 * MIB + rounds * MIB):
        visit(200 * rounds)


def test_connections_without_a_handshake(victim: Victim, attack: Attack) -> None:
    with attack(rss=100 * MIB):
        idle = [
            socket.create_connection((victim.endpoint.host, victim.endpoint.port))
            for _ in range(2500)
        ]
        client = victim.client()
        client.ok("GET", "/api/v1/namespaces/default")
        client.close()
        for connection in idle:
            connection.close()


def test_watchers_with_large_and_different_selectors(
    victim: Victim, attack: Attack, rng: random.Random
) -> None:
    pods = "/api/v1/namespaces/crowd/pods"
    client = victim.client()
    version = client.ok("GET", f"{pods}?limit=1")["metadata"]["resourceVersion"]
    with attack(rss=200 * MIB):
        watchers = []
        for number in range(100):
            keys = rng.sample(range(100_000), 600)
            selector = f"w{number}!=v," + ",".join(f"k{key}!=v" for key in keys)
            watcher = victim.client()
            watcher.send(
                "GET",
                f"{pods}?watch=1&resourceVersion={version}&labelSelector={quote(selector, safe=',=!')}",
            )
            watchers.append(watcher)
        for number in range(50):
            client.ok(
                "PATCH",
                f"{pods}/pod-{number:06}",
                {"metadata": {"labels": {"changed": str(rng.random())[2:]}}},
                {"Content-Type": "application/merge-patch+json"},
            )
        for watcher in watchers:
            watcher.close()
    client.close()
