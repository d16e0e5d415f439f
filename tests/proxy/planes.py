"""A data plane that is a table, for tests that only listen and connect."""

from __future__ import annotations

import asyncio
import errno
import functools
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from transom.network.api import Accept, Respond


class TablePlane:
    def __init__(self) -> None:
        self.listeners: dict[tuple[str, int], Accept] = {}
        self.responders: dict[tuple[str, int], Respond] = {}
        self.sources: list[str] = []

    def listen(self, address: str, port: int, accept: Accept) -> Callable[[], None]:
        if (address, port) in self.listeners:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        self.listeners[address, port] = accept
        return lambda: self._end(self.listeners, address, port)

    def answer(self, address: str, port: int, respond: Respond) -> Callable[[], None]:
        if (address, port) in self.responders:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        self.responders[address, port] = respond
        return lambda: self._end(self.responders, address, port)

    async def connect(self, address: str, port: int, source: str = "") -> socket.socket:
        if (address, port) not in self.listeners:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        self.sources.append(source)
        near, far = socket.socketpair()
        if source:
            near.bind(f"\0transom/test/{id(near)}/{len(self.sources)}/{source}:40000")
        near.setblocking(False)
        far.setblocking(False)
        self.listeners[address, port](far)
        return near

    async def ask(
        self,
        address: str,
        port: int,
        payload: bytes,
        source: str = "",
        timeout: float = 5.0,  # noqa: ASYNC109
    ) -> bytes:
        self.sources.append(source)
        if (address, port) not in self.responders:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        answer = await self.responders[address, port](payload, source)
        if answer is None:
            raise TimeoutError
        return answer

    async def settled(self) -> None:
        return

    def _end(self, table: dict[tuple[str, int], Any], address: str, port: int) -> None:
        table.pop((address, port), None)


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine."""

    @functools.wraps(test)
    def run(*args: Any, **more: Any) -> None:
        asyncio.run(test(*args, **more))

    return run
