"""Connections by name from a process: the loopback name is the loopback address."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, cast

import pytest

from transom.kit.clock import RealClock
from transom.network.api import Dataplane
from transom.runtime.sim.resolve import connect_by_name
from transom.runtime.sim.sockets import NetworkNamespace


async def test_localhost_is_the_loopback_address() -> None:
    requested: list[tuple[str, int]] = []

    class Namespace:
        async def connect(self, address: str, port: int, pid: int = 0) -> socket.socket:
            requested.append((address, port))
            return cast(Any, None)

    async def unknown(name: str) -> list[str]:
        raise AssertionError(name)

    for host in ("localhost", "127.0.0.1", "10.1.2.3"):
        await connect_by_name(cast(Any, Namespace()), host, 80, unknown)
    assert requested == [("127.0.0.1", 80), ("127.0.0.1", 80), ("10.1.2.3", 80)]


async def test_datagrams_to_the_loopback_address_reach_the_own_programs() -> None:
    class Network:
        def answer(self, *_place: object) -> Callable[[], None]:
            return lambda: None

        async def ask(self, *_question: object) -> bytes:
            raise ConnectionRefusedError

    async def reply(payload: bytes, sender: str) -> bytes:
        return payload + b" from " + sender.encode()

    namespace = NetworkNamespace(
        cast(Dataplane, Network()), RealClock(), ("10.0.0.5",), lambda: 1.0
    )
    close = namespace.answer(53, reply)
    assert await namespace.ask("127.0.0.1", 53, b"hello") == b"hello from 127.0.0.1"
    assert namespace.listens("127.0.0.1", 53, "udp") and not namespace.listens("::1", 53, "tcp")
    close()
    assert not namespace.listens("127.0.0.1", 53, "udp")
    with pytest.raises(ConnectionRefusedError):
        await namespace.ask("127.0.0.1", 53, b"hello")
