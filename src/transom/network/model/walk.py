"""`walk`: the way of a packet there, and of the answer back. Both must arrive, or there is no connection."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from transom.network.model.conntrack import Tracks
from transom.network.model.trip import End, Trip, World
from transom.network.packets import Hop, Packet, Walk
from transom.network.stacks import Stack

Listening = Callable[[Stack, str, int, str], bool]
"""Whether somebody in the stack takes what comes to an address and port by a protocol."""
EPHEMERAL = (32768, 60999)


def everybody(_stack: Stack, _address: str, _port: int, _protocol: str) -> bool:
    return True


def named(stack: Stack) -> str:
    return {"node": "node " + stack.name, "sandbox": "pod " + stack.name, "external": "external"}[stack.role]


def walk(
    world: World, packet: Packet, origin: Stack, *, listening: Listening = everybody, tracks: Tracks | None = None,
    rng: random.Random | None = None, record: bool = False, name: Callable[[Stack], str] = named,
) -> Walk:  # fmt: skip
    """Sends the packet from the stack. `tracks` is the connection that it belongs to; without, it is a new one."""
    rng = world.rng if rng is None else rng
    tracks = Tracks() if tracks is None else tracks
    if not packet.source_port:
        packet = replace(packet, source_port=rng.randint(*EPHEMERAL))
    hops: list[Hop] | None = [] if record else None
    trip = Trip(world, tracks, rng, hops, name)
    end = trip.send(origin, packet)
    at = end.stack.name if end.stack is not None else ""
    out = Walk(end.outcome, hops or [], end.packet, at, end.reason, end.explanation, facts=trip.facts)
    if end.outcome == "dropped":
        return out
    there = end.stack
    assert there is not None
    if end.outcome == "delivered":
        address, port = end.socket or (end.packet.destination, end.packet.destination_port)
        out.facts["socket"] = (address, port)
        if packet.protocol != "icmp" and not listening(there, address, port, packet.protocol):
            out.outcome, out.reason = "refused", "no-listener"
            out.explanation = f"nobody listens at {address} port {port}"
    if end.outcome == "refused":
        return out  # by a rule on the way, which answers for the destination: the answer goes back as one that is known
    return _answer(trip, out, packet, end, origin)


def _answer(trip: Trip, out: Walk, packet: Packet, end: End, origin: Stack) -> Walk:
    """An answer, be it a refusal, that does not come back is as good as none."""
    arrived, there = end.packet, end.stack
    assert there is not None
    forth, trip.left = trip.hops, 64
    if forth is not None:
        trip.hops = []
    answer = Packet(arrived.destination, arrived.source, arrived.protocol, arrived.destination_port, arrived.source_port)
    back = trip.send(there, answer)
    if trip.hops is not None:
        out.facts["reply"] = trip.hops
    wanted = (packet.destination, packet.destination_port)
    if back.outcome == "delivered" and back.stack is origin:
        got = (back.packet.source, back.packet.source_port)
        if got == wanted and back.packet.destination_port == packet.source_port:
            return out
        out.explanation = f"the answer comes from {got[0]} port {got[1]}, and nobody asked there"
    elif back.outcome == "delivered":
        at = back.stack.name if back.stack is not None else ""
        out.explanation = f"the answer goes to {at}, which did not ask"
    else:
        out.explanation = f"the answer is lost: {back.explanation}"
    out.outcome, out.reason = "dropped", "reply-lost"
    out.facts["reply reason"] = back.reason or "misled"
    return out
