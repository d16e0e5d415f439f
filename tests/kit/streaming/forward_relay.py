"""Joins two port-forward sessions, whatever their wires: how a server between a client and a node
could stand. It drives both ends of every wire in the tests; the API server itself hands
port-forward bytes on as they are.
"""

from __future__ import annotations

from collections.abc import Callable

from transom.kit.streaming.portforward import (
    Event,
    ForwardClosed,
    ForwardConnected,
    ForwardData,
    ForwardDisconnected,
    ForwardEnded,
    ForwardFailed,
    PortForward,
)


class PortForwardRelay:
    """Passes on between a client's session (`near`) and one towards the server (`far`).

    `open` makes a connection on the far session (`SpdyClient.open`, or a lookup in the ports of a
    `WebSocketClient`).
    """

    def __init__(
        self, near: PortForward, far: PortForward, open: Callable[[int], int | None]
    ) -> None:
        self.near = near
        self.far = far
        self._open = open
        self._to_far: dict[int, int] = {}
        self._to_near: dict[int, int] = {}

    def from_near(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, ForwardConnected):
                other = self._open(event.port)
                if other is None:
                    self.near.fail(
                        event.connection,
                        f"error forwarding port {event.port}: the node takes no more connections",
                    )
                    self.near.disconnect(event.connection)
                else:
                    self._to_far[event.connection] = other
                    self._to_near[other] = event.connection
            else:
                self._pass_on(event, self.near, self.far, self._to_far)

    def from_far(self, events: list[Event]) -> None:
        for event in events:
            self._pass_on(event, self.far, self.near, self._to_near)

    def _pass_on(
        self, event: Event, source: PortForward, target: PortForward, names: dict[int, int]
    ) -> None:
        if isinstance(event, ForwardClosed):
            target.close()
            return
        other = names.get(event.connection)
        if other is None:
            return
        match event:
            case ForwardData(connection, data):
                target.write(other, data)
                source.acknowledge(connection, len(data))
            case ForwardEnded():
                target.end(other)
            case ForwardFailed(_, message):
                target.fail(other, message)
            case ForwardDisconnected(connection):
                target.disconnect(other)
                self._to_far.pop(connection if source is self.near else other, None)
                self._to_near.pop(other if source is self.near else connection, None)
