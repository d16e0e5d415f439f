"""Joins a session on one wire with a session on another: how the API server stands between kubectl and a kubelet.

Only events and calls of the two models; which wires are joined does not matter. Back-pressure is the caller's: while a
session's `queued`, or the buffer of its socket, is large, it stops reading from the other one.
"""

from __future__ import annotations

from transom.kit.streaming import remotecommand
from transom.kit.streaming.remotecommand import RemoteCommand


def relay_command(events: list[remotecommand.Event], source: RemoteCommand, target: RemoteCommand) -> None:
    """Does on `target` what happened on `source`."""
    for event in events:
        match event:
            case remotecommand.Data(stream, data):
                target.write(stream, data)
                source.acknowledge(stream, len(data))
            case remotecommand.Ended(stream):
                target.end(stream)
            case remotecommand.Resized(width, height):
                target.resize(width, height)
            case remotecommand.Finished(status):
                target.finish(status)
            case remotecommand.Closed(error):
                target.close(error)
