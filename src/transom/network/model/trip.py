"""One packet under way: what it has met, how it may end, and where stacks of either kind hand it on.

`World` is what outlives a packet: the fabric, what firewalls have remembered, tables and switches arranged for reading.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from transom.network.model.addresses import is_loopback
from transom.network.model.conntrack import Tracks
from transom.network.model.nft_eval import Dynamic, Firewall
from transom.network.model.switch import Switch
from transom.network.packets import Hop, Outcome, Packet
from transom.network.stacks import Fabric, Link, Stack

if TYPE_CHECKING:
    pass

_LONGEST = 64  # hops through stacks: the packet's time to live


class End(NamedTuple):
    outcome: Outcome
    stack: Stack | None
    packet: Packet
    reason: str = ""
    explanation: str = ""
    socket: tuple[str, int] | None = None  # who is to take it, where that is not the packet's destination


class World:
    def __init__(self, fabric: Fabric, now: Callable[[], float], rng: random.Random) -> None:
        self.fabric = fabric
        self.rng = rng
        self.dynamic = Dynamic(now)
        self._firewalls: dict[str, Firewall] = {}
        self._switches: dict[str, Switch] = {}
        fabric.listeners.append(self._changed)

    def close(self) -> None:
        self.fabric.listeners.remove(self._changed)
        for switch in self._switches.values():
            switch.close()
        self._switches.clear()

    def firewall(self, stack: Stack) -> Firewall:
        found = self._firewalls.get(stack.name)
        if found is None:
            found = self._firewalls[stack.name] = Firewall(stack.tables)
        return found

    def switch(self, node: Stack) -> Switch | None:
        """The virtual switch of a Windows node."""
        if node.hns is None:
            return None
        found = self._switches.get(node.name)
        if found is None or found.hns is not node.hns:
            if found is not None:
                found.close()
            found = self._switches[node.name] = Switch(node.hns)
        return found

    def is_local(self, stack: Stack, address: str) -> bool:
        return stack in self.fabric.owners(address) or is_loopback(address)

    def _changed(self, stack: Stack, what: str, _name: str) -> None:
        if what == "table":
            self._firewalls.pop(stack.name, None)
        elif what == "gone":
            self._firewalls.pop(stack.name, None)
            self.dynamic.forget(stack.name)
            gone = self._switches.pop(stack.name, None)
            if gone is not None:
                gone.close()


@dataclass(slots=True)
class Trip:
    world: World
    tracks: Tracks
    rng: random.Random
    hops: list[Hop] | None = None  # None: nobody will read them
    name: Callable[[Stack], str] = lambda stack: stack.name
    facts: dict[str, Any] = field(default_factory=dict)
    looked: set[str] = field(default_factory=set)
    left: int = _LONGEST

    @property
    def fabric(self) -> Fabric:
        return self.world.fabric

    def enter(self, stack: Stack) -> bool:
        """Before a stack's state is read; False when the packet has been under way for too long."""
        self.left -= 1
        if stack.node not in self.looked:
            self.looked.add(stack.node)
            self.world.fabric.look(stack.node)
        return self.left > 0

    def hop(self, stack: Stack, device: str, what: str, packet: Packet) -> None:
        if self.hops is not None:
            self.hops.append(Hop(self.name(stack), device, what, packet))

    def drop(self, stack: Stack, device: str, packet: Packet, reason: str, explanation: str) -> End:
        self.hop(stack, device, "dropped: " + explanation, packet)
        return End("dropped", stack, packet, reason, explanation)

    def node_of(self, stack: Stack) -> Stack | None:
        return self.world.fabric.stacks.get(stack.node)

    # ---- hand-over between stacks ---------------------------------------------------------------------------------

    def send(self, stack: Stack, packet: Packet) -> End:
        """What a program in the stack sends."""
        from transom.network.model import linux, windows

        return (windows if stack.os == "windows" else linux).send(self, stack, packet)

    def receive(self, stack: Stack, packet: Packet, link: Link) -> End:
        """What comes in by a link of the stack."""
        from transom.network.model import linux, segment, windows

        if stack.role == "external":
            return segment.receive(self, stack, packet, link)
        return (windows if stack.os == "windows" else linux).receive(self, stack, packet, link)

    def underlay(self, sender: Stack, packet: Packet, next_hop: str) -> End:
        from transom.network.model import segment

        return segment.cross(self, sender, packet, next_hop)


