"""Connections by name from a process: the loopback name is the loopback address."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, cast

from transom.runtime.sim.resolve import connect_by_name


def test_localhost_is_the_loopback_address() -> None:
    asked: list[tuple[str, int]] = []

    class Namespace:
        async def connect(self, address: str, port: int, pid: int = 0) -> socket.socket:
            asked.append((address, port))
            return cast(Any, None)

    async def unknown(name: str) -> list[str]:
        raise AssertionError(name)

    async def main() -> None:
        for host in ("localhost", "127.0.0.1", "10.1.2.3"):
            await connect_by_name(cast(Any, Namespace()), host, 80, unknown)

    asyncio.run(main())
    assert asked == [("127.0.0.1", 80), ("127.0.0.1", 80), ("10.1.2.3", 80)]
