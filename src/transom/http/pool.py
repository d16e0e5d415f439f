"""Connections to peers, kept and used again."""

from __future__ import annotations

import asyncio

from transom.http.outgoing import CallError, Connect, Head, Outgoing, Target, dial

_IDLE_KEPT = 25  # connections to one place
_IDLE_SECONDS = 90.0


class Pool:
    """`connect` opens sockets, where plain TCP does not lead there."""

    def __init__(self, connect: Connect | None = None) -> None:
        self._connect = connect
        self._idle: dict[Target, list[Outgoing]] = {}
        self._targets: dict[Outgoing, Target] = {}  # of all that are open

    async def begin(
        self, target: Target, request: bytes, *, repeatable: bool = True, bodiless: bool = False
    ) -> tuple[Outgoing, Head]:
        """Send a request; the connection and the head of the answer. CallError when there is none.

        A kept connection may have died meanwhile, so only what may be sent twice goes over one.
        """
        kept = self._take(target) if repeatable else None
        if kept is not None:
            try:
                return kept, await kept.send(request, bodiless=bodiless)
            except CallError:
                kept.abort()  # a new one gets its chance
        connection = await self.open(target)
        return connection, await connection.send(request, bodiless=bodiless)

    async def open(self, target: Target) -> Outgoing:
        """A new connection; CallError when there is no way."""
        connection = await dial(target, self._connect)
        self._targets[connection] = target
        connection.on_lost = self._forget
        return connection

    def give_back(self, connection: Outgoing) -> None:
        """The answer is read; the connection may serve another request."""
        target = self._targets.get(connection)
        if target is not None and connection.usable:
            idle = self._idle.setdefault(target, [])
            if len(idle) < _IDLE_KEPT:
                connection.idle_since = asyncio.get_running_loop().time()
                idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        for connection in list(self._targets):
            connection.close()

    def _take(self, target: Target) -> Outgoing | None:
        idle = self._idle.get(target)
        now = asyncio.get_running_loop().time()
        while idle:
            connection = idle.pop()
            if connection.usable and now - connection.idle_since < _IDLE_SECONDS:
                return connection
            connection.close()
        return None

    def _forget(self, connection: Outgoing) -> None:
        target = self._targets.pop(connection, None)
        idle = self._idle.get(target) if target is not None else None
        if target is None or idle is None:
            return
        if connection in idle:
            idle.remove(connection)
        if not idle:
            del self._idle[target]
