"""The difference between the content of a namespace and its plan, as messages to the kernel in a
valid order.

Pure: it only updates `NamespaceContent` to the expected state; every step has an undo function for
the case that the kernel rejects it. Devices already exist, with their indexes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field

from transom.kit.lazy_dataclass import dataclass
from transom.network import nft
from transom.network.kernel import netlink
from transom.network.kernel.namespaces import NetworkNamespaceHandle
from transom.network.kernel.netlink import NetlinkMessage
from transom.network.kernel.plan import PlannedDevice, PlannedRoute, StackPlan

Undo = Callable[[], object]
Step = tuple[NetlinkMessage, Undo]


@dataclass(slots=True)
class NamespaceContent:
    """The current content of a namespace."""

    namespace: NetworkNamespaceHandle
    numbers: Iterator[int]  # allocates device indexes, shared by all namespaces
    indexes: dict[str, int] = field(default_factory=lambda: {"lo": 1})
    devices: dict[str, PlannedDevice] = field(default_factory=dict)
    fresh: set[str] = field(default_factory=set)  # created but not yet set up
    addresses: set[tuple[str, str]] = field(default_factory=set)
    routes: dict[str, PlannedRoute] = field(default_factory=dict)
    special: dict[str, str] = field(default_factory=dict)
    neighbours: dict[tuple[str, str], str] = field(default_factory=dict)
    forwarding: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict)
    sysctls: dict[str, str] = field(default_factory=dict)
    tables: dict[str, nft.NftTable] = field(default_factory=dict)

    def lost_device(self, name: str) -> None:
        """The kernel has removed everything that depended on the device."""
        self.devices.pop(name, None)
        self.indexes.pop(name, None)
        self.fresh.discard(name)
        self.addresses = {a for a in self.addresses if a[0] != name}
        self.routes = {d: way for d, way in self.routes.items() if way.device != name}
        self.neighbours = {k: mac for k, mac in self.neighbours.items() if k[0] != name}
        self.forwarding = {k: to for k, to in self.forwarding.items() if k[0] != name}
        self.sysctls = {
            path: value for path, value in self.sysctls.items() if f"/{name}/" not in path
        }


def undo_nothing() -> None:
    """Nothing to undo."""


def take_index(made: NamespaceContent, name: str, device: PlannedDevice) -> int:
    """A unique index for a new device, across all namespaces: the kernel propagates the link state
    immediately if the peer has a different index, and otherwise takes up to a second.
    """
    index = made.indexes[name] = next(made.numbers)
    made.devices[name] = device._replace(master="", hairpin=False)
    made.fresh.add(name)
    return index


def arrange_devices(made: NamespaceContent, plan: StackPlan) -> list[Step]:
    parts = (_settings, _addresses, _special, _routes, _neighbours)
    return [step for part in parts for step in part(made, plan)]


def _settings(made: NamespaceContent, plan: StackPlan) -> list[Step]:
    steps: list[Step] = []
    for name, device in plan.devices.items():
        before = made.devices.get(name)
        if before is None or (before == device and name not in made.fresh):
            continue
        index = made.indexes[name]
        if (before.mac, before.mtu) != (device.mac, device.mtu):
            steps.append((netlink.set_link(index, name, device.mac, device.mtu), undo_nothing))
        master = device.master
        if master and master not in made.indexes:
            master = ""  # its bridge comes later
        if before.master != master:
            steps.append(
                (
                    netlink.set_link_master(index, name, made.indexes[master] if master else 0),
                    undo_nothing,
                )
            )
        if master and (before.master, before.hairpin) != (master, device.hairpin):
            steps.append(
                (netlink.set_bridge_port(index, name, hairpin=device.hairpin), undo_nothing)
            )
        if name in made.fresh or before.up != device.up:
            switch = netlink.set_link_up if device.up else netlink.set_link_down
            steps.append((switch(index, name), undo_nothing))
            made.fresh.discard(name)
            if not device.up:  # the kernel removes its routes
                made.routes = {d: way for d, way in made.routes.items() if way.device != name}
        made.devices[name] = device._replace(master=master)
    return steps


def _addresses(made: NamespaceContent, plan: StackPlan) -> list[Step]:
    steps: list[Step] = []
    for entry in made.addresses - plan.addresses:
        made.addresses.discard(entry)
        steps.append((netlink.delete_address(made.indexes[entry[0]], entry[1]), undo_nothing))
        bare = entry[1].partition("/")[0]
        # the kernel removes those too
        made.routes = {d: way for d, way in made.routes.items() if way.source != bare}
    for entry in sorted(plan.addresses - made.addresses):
        index = made.indexes.get(entry[0])
        if index is not None:
            made.addresses.add(entry)
            steps.append(
                (
                    netlink.add_address(index, entry[1]),
                    lambda entry=entry: made.addresses.discard(entry),  # type: ignore[misc]
                )
            )
    return steps


def _special(made: NamespaceContent, plan: StackPlan) -> list[Step]:
    if made.special == plan.special:
        return []
    before, made.special = made.special, dict(plan.special)
    gone = [
        (netlink.special_route(d, kind, add=False), undo_nothing)
        for d, kind in before.items()
        if plan.special.get(d) != kind
    ]
    come = [
        (netlink.special_route(d, kind, add=True), undo_nothing)
        for d, kind in plan.special.items()
        if before.get(d) != kind
    ]
    return [*gone, *come]


def _routes(made: NamespaceContent, plan: StackPlan) -> list[Step]:
    if made.routes == plan.routes:
        return []
    steps: list[Step] = []
    for destination, way in list(made.routes.items()):
        if destination not in plan.routes:
            del made.routes[destination]
            steps.append((_route(netlink.delete_route, made, destination, way), undo_nothing))
    changed = [
        (d, way)
        for d, way in plan.routes.items()
        if made.routes.get(d) != way and way.device in made.indexes
    ]
    # a gateway must be reachable before routes can use it
    for destination, way in sorted(changed, key=lambda item: bool(item[1].via)):
        made.routes[destination] = way
        steps.append(
            (
                _route(netlink.replace_route, made, destination, way),
                lambda d=destination: made.routes.pop(d, None),  # type: ignore[misc]
            )
        )
    return steps


def _route(
    message: Callable[..., NetlinkMessage],
    made: NamespaceContent,
    destination: str,
    way: PlannedRoute,
) -> NetlinkMessage:
    return message(destination, made.indexes[way.device], way.via, way.source, onlink=way.onlink)


def _neighbours(made: NamespaceContent, plan: StackPlan) -> list[Step]:
    steps: list[Step] = []
    if made.neighbours != plan.neighbours:
        for key in made.neighbours.keys() - plan.neighbours.keys():
            del made.neighbours[key]
            steps.append((netlink.delete_neighbour(made.indexes[key[0]], key[1]), undo_nothing))
        for key, mac in plan.neighbours.items():
            if made.neighbours.get(key) != mac and key[0] in made.indexes:
                made.neighbours[key] = mac
                steps.append(
                    (
                        netlink.replace_neighbour(made.indexes[key[0]], key[1], mac),
                        lambda k=key: made.neighbours.pop(k, None),  # type: ignore[misc]
                    )
                )
    if made.forwarding != plan.forwarding:
        for key in made.forwarding.keys() - plan.forwarding.keys():
            remote, vni = made.forwarding.pop(key)
            steps.append(
                (netlink.delete_forwarding(made.indexes[key[0]], key[1], remote, vni), undo_nothing)
            )
        for key, to in plan.forwarding.items():
            if made.forwarding.get(key) != to and key[0] in made.indexes:
                made.forwarding[key] = to
                steps.append(
                    (
                        netlink.replace_forwarding(made.indexes[key[0]], key[1], *to),
                        lambda k=key: made.forwarding.pop(k, None),  # type: ignore[misc]
                    )
                )
    return steps
