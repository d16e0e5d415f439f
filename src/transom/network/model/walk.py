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
_TOLD = ("no-route", "no-neighbour")  # what Linux says to others; Windows' switch drops without a word


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
        if end.reason in _TOLD and end.stack is not None:
            out.facts["told"] = end.stack is origin or (end.stack.os == "linux" and _finds_back(trip, end, origin))
        return out
    there = end.stack
    assert there is not None
    if end.outcome == "delivered":
        address, port = end.socket or (end.packet.destination, end.packet.destination_port)
        out.facts["socket"] = (address, port)
        if packet.protocol != "icmp" and not listening(there, address, port, packet.protocol):
            out.outcome, out.reason = "refused", "no-listener"
            out.explanation = f"nobody listens at {address} port {port}"
    # A rule on the way that refuses answers for the destination: its answer, too, has to find back.
    return _answer(trip, out, packet, end, origin)


def _finds_back(trip: Trip, end: End, origin: Stack) -> bool:
    """Whether what a stack on the way says about a packet gets to who sent it."""
    assert end.stack is not None
    trip.hops, trip.facts, trip.left = None, {}, 64
    back = trip.send(end.stack, _turned(end.packet))
    return back.outcome == "delivered" and back.stack is origin


def _turned(packet: Packet) -> Packet:
    return Packet(packet.destination, packet.source, packet.protocol, packet.destination_port, packet.source_port)


def _answer(trip: Trip, out: Walk, packet: Packet, end: End, origin: Stack) -> Walk:
    """An answer, be it a refusal, that does not come back is as good as none."""
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
        out.explanation = f"the answer comes from {got[0]} port {got[1]}, and nobody asked there"
    elif back.outcome == "delivered":
        at = back.stack.name if back.stack is not None else ""
        out.explanation = f"the answer goes to {at}, which did not ask"
    else:
        out.explanation = f"the answer is lost: {back.explanation}"
    out.outcome, out.reason = "dropped", "reply-lost"
    out.facts["reply reason"] = back.reason or "misled"
    return out
