"""One packet in transit: what it has passed, how it may end, and where stacks of either kind hand
it over.

`NetworkState` outlives a packet: the fabric, the state of firewalls, and indexed tables and
switches.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import field
from typing import Any

from transom.kit.lazy_dataclass import dataclass
from transom.kit.named_tuple import NamedTuple
from transom.network.model.addresses import is_loopback
from transom.network.model.conntrack import ConntrackTables
from transom.network.model.nft_eval import DynamicSets, Firewall
from transom.network.model.switch import VirtualSwitch
from transom.network.packets import Hop, Outcome, Packet
from transom.network.stacks import Fabric, NetworkLink, NetworkStack

_LONGEST = 64  # maximum hops through stacks: the packet's time to live


class TripEnd(NamedTuple):
    outcome: Outcome
    stack: NetworkStack | None
    packet: Packet
    reason: str = ""
    explanation: str = ""
    socket: tuple[str, int] | None = None  # the receiver, if it is not the packet's destination


class NetworkState:
    def __init__(self, fabric: Fabric, now: Callable[[], float], rng: random.Random) -> None:
        self.fabric = fabric
        self.rng = rng
        self.dynamic = DynamicSets(now)
        self._firewalls: dict[str, Firewall] = {}
        self._switches: dict[str, VirtualSwitch] = {}
        fabric.listeners.append(self._changed)

    def close(self) -> None:
        self.fabric.listeners.remove(self._changed)
        for switch in self._switches.values():
            switch.close()
        self._switches.clear()

    def firewall(self, stack: NetworkStack) -> Firewall:
        found = self._firewalls.get(stack.name)
        if found is None:
            found = self._firewalls[stack.name] = Firewall(stack.tables)
        return found

    def switch(self, node: NetworkStack) -> VirtualSwitch | None:
        """The virtual switch of a Windows node."""
        if node.hns is None:
            return None
        found = self._switches.get(node.name)
        if found is None or found.hns is not node.hns:
            if found is not None:
                found.close()
            found = self._switches[node.name] = VirtualSwitch(node.hns)
        return found

    def is_local(self, stack: NetworkStack, address: str) -> bool:
        return stack in self.fabric.owners(address) or is_loopback(address)

    def _changed(self, stack: NetworkStack, what: str, _name: str) -> None:
        if what == "table":
            self._firewalls.pop(stack.name, None)
        elif what == "gone":
            self._firewalls.pop(stack.name, None)
            self.dynamic.forget(stack.name)
            gone = self._switches.pop(stack.name, None)
            if gone is not None:
                gone.close()


_Send = Callable[["PacketTrip", NetworkStack, Packet], TripEnd]
_Receive = Callable[["PacketTrip", NetworkStack, Packet, NetworkLink], TripEnd]


class StackModel(NamedTuple):
    """How packets pass the stacks of one operating system."""

    send: _Send
    receive: _Receive


class SegmentModel(NamedTuple):
    """The underlay and the outside of the cluster."""

    cross: Callable[[PacketTrip, NetworkStack, Packet, str], TripEnd]
    receive: _Receive


class NetworkModels(NamedTuple):
    """The models that a packet passes. They hand it to each other through its trip."""

    linux: StackModel
    windows: StackModel
    to_windows_host: _Send
    segment: SegmentModel


@dataclass(slots=True)
class PacketTrip:
    world: NetworkState
    models: NetworkModels
    tracks: ConntrackTables
    rng: random.Random
    hops: list[Hop] | None = None  # None: they are not needed
    name: Callable[[NetworkStack], str] = lambda stack: stack.name
    facts: dict[str, Any] = field(default_factory=dict)
    looked: set[str] = field(default_factory=set)
    left: int = _LONGEST

    @property
    def fabric(self) -> Fabric:
        return self.world.fabric

    def enter(self, stack: NetworkStack) -> bool:
        """Called before a stack's state is read; False if the packet's time to live is exceeded."""
        self.left -= 1
        if stack.node not in self.looked:
            self.looked.add(stack.node)
            self.world.fabric.refresh_node(stack.node)
        return self.left > 0

    def hop(self, stack: NetworkStack, device: str, what: str, packet: Packet) -> None:
        if self.hops is not None:
            self.hops.append(Hop(self.name(stack), device, what, packet))

    def drop(
        self, stack: NetworkStack, device: str, packet: Packet, reason: str, explanation: str
    ) -> TripEnd:
        self.hop(stack, device, "dropped: " + explanation, packet)
        return TripEnd("dropped", stack, packet, reason, explanation)

    def node_of(self, stack: NetworkStack) -> NetworkStack | None:
        return self.world.fabric.stacks.get(stack.node)

    # ---- hand-over between stacks ----

    def send(self, stack: NetworkStack, packet: Packet) -> TripEnd:
        """A packet from a program in the stack."""
        return self._model(stack).send(self, stack, packet)

    def receive(self, stack: NetworkStack, packet: Packet, link: NetworkLink) -> TripEnd:
        """A packet that arrives on a link of the stack."""
        if stack.role == "external":
            return self.models.segment.receive(self, stack, packet, link)
        return self._model(stack).receive(self, stack, packet, link)

    def to_windows_host(self, node: NetworkStack, packet: Packet) -> TripEnd:
        """A packet that the switch of a Windows node passes to the node's own stack."""
        return self.models.to_windows_host(self, node, packet)

    def deliver(
        self, stack: NetworkStack, packet: Packet, socket: tuple[str, int] | None = None
    ) -> TripEnd:
        self.hop(stack, "socket", "arrived", packet)
        return TripEnd("delivered", stack, packet, socket=socket)

    def underlay(self, sender: NetworkStack, packet: Packet, next_hop: str) -> TripEnd:
        return self.models.segment.cross(self, sender, packet, next_hop)

    def _model(self, stack: NetworkStack) -> StackModel:
        return self.models.windows if stack.os == "windows" else self.models.linux
