"""Joins a session on one wire with a session on another: the API server relays between kubectl and
a kubelet.

Only events and calls of the two models; which wires are joined does not matter. Back-pressure is
the caller's: while a session's `queued`, or the buffer of its socket, is large, it stops reading
from the other one.
"""

from __future__ import annotations

from transom.kit.streaming import remotecommand
from transom.kit.streaming.remotecommand import RemoteCommand


def relay_command(
    events: list[remotecommand.Event], source: RemoteCommand, target: RemoteCommand
) -> None:
    """Replays an event of `source` on `target`."""
    for event in events:
        match event:
            case remotecommand.CommandData(stream, data):
                target.write(stream, data)
                source.acknowledge(stream, len(data))
            case remotecommand.CommandStreamEnded(stream):
                target.end(stream)
            case remotecommand.CommandResized(width, height):
                target.resize(width, height)
            case remotecommand.CommandFinished(status):
                target.finish(status)
            case remotecommand.CommandClosed(error):
                target.close(error)
