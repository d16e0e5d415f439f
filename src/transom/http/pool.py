"""A pool of reusable connections to peers."""

from __future__ import annotations

import asyncio

from transom.http.outgoing import (
    CallError,
    CallTarget,
    Connect,
    OutgoingConnection,
    ResponseHead,
    dial_target,
)

_IDLE_KEPT = 25  # connections to one target
_IDLE_SECONDS = 90.0


class ConnectionPool:
    """`connect` opens sockets where plain TCP cannot."""

    def __init__(self, connect: Connect | None = None) -> None:
        self._connect = connect
        self._idle: dict[CallTarget, list[OutgoingConnection]] = {}
        self._targets: dict[OutgoingConnection, CallTarget] = {}  # all open ones

    async def begin(
        self, target: CallTarget, request: bytes, *, repeatable: bool = True, bodiless: bool = False
    ) -> tuple[OutgoingConnection, ResponseHead]:
        """Sends a request; returns the connection and the head of the response. CallError on
        failure.

        An idle connection may have died, so only requests that can be repeated use one.
        """
        kept = self._take(target) if repeatable else None
        if kept is not None:
            try:
                return kept, await kept.send(request, bodiless=bodiless)
            except CallError:
                kept.abort()  # retry on a new one
        connection = await self.open(target)
        return connection, await connection.send(request, bodiless=bodiless)

    async def open(self, target: CallTarget) -> OutgoingConnection:
        """Opens a new connection; CallError on failure."""
        connection = await dial_target(target, self._connect)
        self._targets[connection] = target
        connection.on_lost = self._forget
        return connection

    def give_back(self, connection: OutgoingConnection) -> None:
        """The response is read; the connection may serve another request."""
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

    def _take(self, target: CallTarget) -> OutgoingConnection | None:
        idle = self._idle.get(target)
        now = asyncio.get_running_loop().time()
        while idle:
            connection = idle.pop()
            if connection.usable and now - connection.idle_since < _IDLE_SECONDS:
                return connection
            connection.close()
        return None

    def _forget(self, connection: OutgoingConnection) -> None:
        target = self._targets.pop(connection, None)
        idle = self._idle.get(target) if target is not None else None
        if target is None or idle is None:
            return
        if connection in idle:
            idle.remove(connection)
        if not idle:
            del self._idle[target]
