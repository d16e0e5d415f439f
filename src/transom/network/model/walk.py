"""`walk_packet`: the path of a packet and of its reply. Both must arrive, or there is no
connection.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from transom.network.model import linux, segment, windows
from transom.network.model.conntrack import ConntrackTables
from transom.network.model.packet_trip import (
    NetworkModels,
    NetworkState,
    PacketTrip,
    SegmentModel,
    StackModel,
    TripEnd,
)
from transom.network.packets import Hop, Packet, Walk
from transom.network.stacks import NetworkStack

Listening = Callable[[NetworkStack, str, int, str], bool]
"""Whether a socket of the stack accepts traffic to an address, port and protocol."""
_MODELS = NetworkModels(
    StackModel(linux.send_from_linux, linux.receive_on_linux),
    StackModel(windows.send_from_windows, windows.receive_on_windows),
    windows.deliver_to_host,
    SegmentModel(segment.cross_segment, segment.receive_from_segment),
)
EPHEMERAL = (32768, 60999)
_REPORTED = (
    "no-route",
    "no-neighbour",
)  # Linux answers with a rejection; the Windows switch drops silently


def always_listening(_stack: NetworkStack, _address: str, _port: int, _protocol: str) -> bool:
    return True


def stack_display_name(stack: NetworkStack) -> str:
    return {"node": "node " + stack.name, "sandbox": "pod " + stack.name, "external": "external"}[
        stack.role
    ]


def walk_packet(
    world: NetworkState,
    packet: Packet,
    origin: NetworkStack,
    *,
    listening: Listening = always_listening,
    tracks: ConntrackTables | None = None,
    rng: random.Random | None = None,
    record: bool = False,
    name: Callable[[NetworkStack], str] = stack_display_name,
) -> Walk:
    """Sends the packet from the stack. `tracks` is the connection that it belongs to; without it, a
    new one starts.
    """
    rng = world.rng if rng is None else rng
    tracks = ConntrackTables() if tracks is None else tracks
    if not packet.source_port:
        packet = replace(packet, source_port=rng.randint(*EPHEMERAL))
    hops: list[Hop] | None = [] if record else None
    trip = PacketTrip(world, _MODELS, tracks, rng, hops, name)
    end = trip.send(origin, packet)
    at = end.stack.name if end.stack is not None else ""
    out = Walk(
        end.outcome, hops or [], end.packet, at, end.reason, end.explanation, facts=trip.facts
    )
    if end.outcome == "dropped":
        if end.reason in _REPORTED and end.stack is not None:
            out.facts["icmp"] = end.stack is origin or (
                end.stack.os == "linux" and _finds_back(trip, end, origin)
            )
        return out
    there = end.stack
    assert there is not None
    if end.outcome == "delivered":
        address, port = end.socket or (end.packet.destination, end.packet.destination_port)
        out.facts["socket"] = (address, port)
        if packet.protocol != "icmp" and not listening(there, address, port, packet.protocol):
            out.outcome, out.reason = "refused", "no-listener"
            out.explanation = f"nothing listens on {address} port {port}"
    # A rejecting rule on the way answers for the destination; its reply, too, must find its way
    # back.
    return _answer(trip, out, packet, end, origin)


def _finds_back(trip: PacketTrip, end: TripEnd, origin: NetworkStack) -> bool:
    """Whether a stack's error about a packet reaches the sender."""
    assert end.stack is not None
    trip.hops, trip.facts, trip.left = None, {}, 64
    back = trip.send(end.stack, _turned(end.packet))
    return back.outcome == "delivered" and back.stack is origin


def _turned(packet: Packet) -> Packet:
    return Packet(
        packet.destination,
        packet.source,
        packet.protocol,
        packet.destination_port,
        packet.source_port,
    )


def _answer(
    trip: PacketTrip, out: Walk, packet: Packet, end: TripEnd, origin: NetworkStack
) -> Walk:
    """A reply, even a refusal, that does not arrive counts as no reply."""
    there = end.stack
    assert there is not None
    forth, trip.left = trip.hops, 64
    if forth is not None:
        trip.hops = []
    back = trip.send(there, _turned(end.packet))
    if trip.hops is not None:
        out.facts["reply"] = trip.hops
    wanted = (packet.destination, packet.destination_port)
    if back.outcome == "delivered" and back.stack is origin:
        got = (back.packet.source, back.packet.source_port)
        if got == wanted and back.packet.destination_port == packet.source_port:
            return out
        out.explanation = (
            f"the answer comes from {got[0]} port {got[1]}, which the client did not address"
        )
    elif back.outcome == "delivered":
        at = back.stack.name if back.stack is not None else ""
        out.explanation = f"the answer goes to {at}, which did not ask"
    else:
        out.explanation = f"the answer is lost: {back.explanation}"
    out.outcome, out.reason = "dropped", "reply-lost"
    out.facts["reply reason"] = back.reason or "misled"
    return out
