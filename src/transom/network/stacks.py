"""The contents of a cluster's network stacks: links, addresses, routes, neighbours, firewall
tables.

A stack is a network namespace: a node's own, a sandbox's, or that of the external host. Plugins and
agents write it with calls named after netlink's; both data planes read it: the model computes a
packet's path from it, the kernel data plane applies it to namespaces. It makes no decisions itself.
On Windows nodes the host networking service has the rest (`NetworkStack.hns`).
"""

from __future__ import annotations

import hashlib
import ipaddress
import socket
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from transom.kit.lazy_dataclass import dataclass
from transom.network import nft

if TYPE_CHECKING:
    from transom.machines.windows.firewall import WindowsFirewall
    from transom.machines.windows.hns import HostNetworkService
    from transom.network.ovn.database import OvnDatabase

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Interface = ipaddress.IPv4Interface | ipaddress.IPv6Interface
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
LinkKind = Literal["loopback", "ethernet", "bridge", "veth", "vxlan", "geneve", "vnic"]
Role = Literal["node", "sandbox", "external"]
Change = Callable[["NetworkStack", str, str], None]
"""The stack, the kind of change ("link", "address", "route", "neighbour", "table", "sysctl",
"gone"), and its name.
"""


def read_address(text: str) -> Address:
    """Like `ipaddress.ip_address`, but ten times faster for most addresses."""
    try:
        packed = socket.inet_pton(socket.AF_INET, text)
    except OSError:
        return ipaddress.ip_address(text)
    return ipaddress.IPv4Address(int.from_bytes(packed, "big"))


def read_interface(text: str) -> Interface:
    """Like `ipaddress.ip_interface`, but three times faster for the usual form: `10.244.3.7/24`."""
    address, _, length = text.partition("/")
    if length.isascii() and length.isdigit() and int(length) <= 32:
        try:
            packed = socket.inet_pton(socket.AF_INET, address)
        except OSError:
            return ipaddress.ip_interface(text)
        return ipaddress.IPv4Interface((int.from_bytes(packed, "big"), int(length)))
    return ipaddress.ip_interface(text)


# The same few (gateways, ranges, the address of the current pod) are parsed repeatedly.
_interface = lru_cache(512)(read_interface)
_network = lru_cache(512)(ipaddress.ip_network)
_address = lru_cache(512)(read_address)
_LOOPBACK = ipaddress.ip_interface("127.0.0.1/8")


@dataclass(slots=True)
class NetworkLink:
    name: str
    kind: LinkKind
    mac: str = ""
    mtu: int = 1500
    addresses: list[Interface] = field(default_factory=list)
    master: str = ""  # the bridge that it is attached to
    peer: tuple[str, str] | None = None  # stack and link at the other end of a veth
    hairpin: bool = False  # a bridge port that may send back what it received
    vni: int = 0
    port: int = 0  # of VXLAN
    local: str = ""  # the outer source address of VXLAN
    fdb: dict[str, str] = field(default_factory=dict)  # mac -> outer destination
    logical: bool = False  # of a vnic: the node's own port on its logical switch of OVN
    endpoint: str = ""  # of a vnic: its HNS endpoint, upper case GUID
    up: bool = True  # an administrator may have taken it down
    index: int = 0  # in its stack, from 1


@dataclass(frozen=True, slots=True)
class NetworkRoute:
    destination: Network
    link: str
    via: str = ""
    onlink: bool = False
    source: str = ""


class NetworkStack:
    __slots__ = (
        "_by_prefix_length",
        "_change",
        "_last_index",
        "_reached",
        "_routes",
        "firewall",
        "forwarding",
        "hns",
        "links",
        "name",
        "neighbours",
        "node",
        "os",
        "ovn",
        "role",
        "sandbox",
        "tables",
    )

    def __init__(
        self,
        name: str,
        role: Role,
        os: Literal["linux", "windows"],
        node: str,
        change: Change,
        *,
        hns: HostNetworkService | None = None,
        sandbox: str = "",
    ) -> None:
        self.name = name  # unique in the fabric: the node's name, "NODE/SANDBOX", "external"
        self.role = role
        self.os = os
        self.node = node
        self.hns = hns
        self.ovn: OvnDatabase | None = None  # of a node that is a chassis of OVN
        self.sandbox = sandbox
        self.firewall: WindowsFirewall | None = None  # of a Windows node
        self.forwarding = False
        self.links: dict[str, NetworkLink] = {
            "lo": NetworkLink("lo", "loopback", addresses=[_LOOPBACK], index=1)
        }
        self._last_index = 1
        self._routes: dict[Network, NetworkRoute] = {}
        self._by_prefix_length: list[tuple[int, int, dict[int, NetworkRoute]]] | None = (
            None  # routes by prefix length, the longest first
        )
        self.neighbours: dict[str, tuple[str, str]] = {}  # address -> mac, link
        self.tables: dict[str, nft.NftTable] = {}
        self._change = change
        self._reached: tuple[str, bool] | None = None  # the last answer of `reaches`

    def _changed(self, what: str, name: str) -> None:
        self._reached = None
        self._change(self, what, name)

    # ---- links ----

    def add_link(self, link: NetworkLink) -> NetworkLink:
        if link.name in self.links:
            raise FileExistsError(f"link {link.name} exists in {self.name}")
        self._last_index += 1
        link.index = self._last_index
        self.links[link.name] = link
        self._changed("link", link.name)
        return link

    def changed_link(self, name: str) -> None:
        """A field of a link (master, fdb, hairpin, mtu) was changed."""
        self._changed("link", name)

    def delete_link(self, name: str) -> None:
        if self.links.pop(name, None) is None:
            return
        for destination in [d for d, route in self._routes.items() if route.link == name]:
            del self._routes[destination]
        self._by_prefix_length = None
        for address in [a for a, (_, link) in self.neighbours.items() if link == name]:
            del self.neighbours[address]
        self._changed("link", name)

    def set_link_state(self, name: str, *, up: bool) -> None:
        """Down: its routes and neighbours are removed. Up: the routes of its addresses come back,
        the others do not.
        """
        link = self.links[name]
        if link.up == up:
            return
        link.up = up
        if up:
            for interface in link.addresses:
                self._add_prefix(link.name, interface)
        else:
            for destination in [d for d, route in self._routes.items() if route.link == name]:
                del self._routes[destination]
            for address in [a for a, (_, at) in self.neighbours.items() if at == name]:
                del self.neighbours[address]
        self._by_prefix_length = None
        self._changed("link", name)

    def _add_prefix(self, link: str, interface: Interface) -> None:
        network = interface.network
        if network.prefixlen < network.max_prefixlen and network not in self._routes:
            self._routes[network] = NetworkRoute(network, link, source=_plain(interface))
            self._by_prefix_length = None

    def rename_link(self, old: str, new: str) -> None:
        link = self.links.pop(old)
        link.name = new
        self.links[new] = link
        self._routes = {
            d: replace(r, link=new) if r.link == old else r for d, r in self._routes.items()
        }
        self._by_prefix_length = None
        self._changed("link", old)
        self._changed("link", new)

    def add_address(self, link: str, address: str) -> None:
        """Adds it with its prefix, which becomes a route."""
        interface = _interface(address)
        if interface in self.links[link].addresses:
            return
        self.links[link].addresses.append(interface)
        if self.links[link].up:
            self._add_prefix(link, interface)
        self._changed("address", link)

    def delete_address(self, link: str, address: str) -> None:
        interface = _interface(address)
        if interface in self.links[link].addresses:
            self.links[link].addresses.remove(interface)
            found = self._routes.get(interface.network)
            if found is not None and found.link == link and not found.via:
                del self._routes[interface.network]
                self._by_prefix_length = None
            self._changed("address", link)

    def addresses(self) -> list[str]:
        """Without those of the loopback link."""
        return [
            _plain(a)
            for link in self.links.values()
            if link.addresses and link.kind != "loopback"
            for a in link.addresses
        ]

    def has_address(self, address: str) -> bool:
        """Whether `addresses` contains it."""
        wanted = _address(address)
        version, number = wanted.version, int(wanted)
        for link in self.links.values():
            if link.kind != "loopback":
                for held in link.addresses:
                    if int(held) == number and held.version == version:
                        return True
        return False

    # ---- routes and neighbours ----

    def replace_route(
        self, destination: str, link: str, via: str = "", *, onlink: bool = False, source: str = ""
    ) -> None:
        network = _network(destination)
        route = NetworkRoute(network, link, via, onlink, source)
        if self._routes.get(network) != route:
            self._routes[network] = route
            self._by_prefix_length = None
            self._changed("route", destination)

    def has_route(self, destination: str) -> bool:
        return _network(destination) in self._routes

    def delete_route(self, destination: str) -> None:
        if self._routes.pop(_network(destination), None) is not None:
            self._by_prefix_length = None
            self._changed("route", destination)

    def routes(self) -> list[NetworkRoute]:
        return list(self._routes.values())

    def route(self, destination: str) -> NetworkRoute | None:
        """The route with the longest matching prefix."""
        if self._by_prefix_length is None:
            self._by_prefix_length = _by_prefix_length(self._routes)
        address = _address(destination)
        version, number = address.version, int(address)
        for family, shift, routes in self._by_prefix_length:
            if family == version:
                found = routes.get(number >> shift)
                if found is not None:
                    return found
        return None

    def reaches(self, address: str) -> bool:
        """Whether packets to an address leave the machine, or stay on it. Programs ask before each
        request to the API server.
        """
        if self._reached is None or self._reached[0] != address:
            route = self.route(address)
            link = self.links.get(route.link) if route is not None else None
            leaves = link is not None and link.up
            self._reached = (address, leaves or self.has_address(address))
        return self._reached[1]

    def replace_neighbour(self, address: str, mac: str, link: str) -> None:
        self.neighbours[address] = (mac, link)
        self._changed("neighbour", address)

    def delete_neighbour(self, address: str) -> None:
        if self.neighbours.pop(address, None) is not None:
            self._changed("neighbour", address)

    # ---- other settings ----

    def ovn_changed(self) -> None:
        """OVN's databases have changed."""
        self._changed("route", "")

    def set_forwarding(self, on: bool) -> None:
        if self.forwarding != on:
            self.forwarding = on
            self._changed("sysctl", "ip_forward")

    def set_table(self, table: nft.NftTable) -> None:
        """Applies a firewall table, replacing the one of the same name and family."""
        key = f"{table.family} {table.name}"
        self.tables[key] = table
        self._changed("table", key)

    def delete_table(self, key: str) -> None:
        if self.tables.pop(key, None) is not None:
            self._changed("table", key)


def _by_prefix_length(
    routes: dict[Network, NetworkRoute],
) -> list[tuple[int, int, dict[int, NetworkRoute]]]:
    """Version, the shift of an address, and the routes by the shifted address."""
    by_prefix: dict[tuple[int, int], dict[int, NetworkRoute]] = {}
    for network, route in routes.items():
        shift = network.max_prefixlen - network.prefixlen
        by_prefix.setdefault((network.version, shift), {})[
            int(network.network_address) >> shift
        ] = route
    return [(version, shift, by_prefix[version, shift]) for version, shift in sorted(by_prefix)]


class Fabric:
    """All stacks of one cluster, by name and by address; the underlay joins nodes and the external
    host in one segment.
    """

    def __init__(self, underlay: str = "", underlay6: str = "") -> None:
        self.underlay = underlay  # the nodes' range of addresses
        self.underlay6 = underlay6  # and that of the other family, which has no pod addresses
        self.stacks: dict[str, NetworkStack] = {}
        # address -> stacks that have it; two when one has leaked
        self._owners: dict[str, list[NetworkStack]] = {}
        self._held: dict[str, list[str]] = {}
        self.listeners: list[Change] = []
        # called with a node's name before its state is read
        self.before_look: list[Callable[[str], None]] = []

    def add(
        self, name: str, role: Role, os: Literal["linux", "windows"], **more: Any
    ) -> NetworkStack:
        node = more.pop("node", name)
        if name in self.stacks:
            raise FileExistsError(f"there is a stack {name} already")
        stack = self.stacks[name] = NetworkStack(name, role, os, node, self._changed, **more)
        return stack

    def remove(self, name: str) -> None:
        """Removes it with all its links, and the peers of those."""
        stack = self.stacks.pop(name, None)
        if stack is None:
            return
        for link in stack.links.values():
            if link.peer is not None and link.peer[0] in self.stacks:
                self.stacks[link.peer[0]].delete_link(link.peer[1])
        for address in self._held.pop(name, ()):
            self._drop(address, stack)
        for listener in self.listeners:
            listener(stack, "gone", name)

    def owner(self, address: str) -> NetworkStack | None:
        """The stack that has an address; the most recent one if several do."""
        found = self._owners.get(address)
        return found[-1] if found else None

    def owners(self, address: str) -> Sequence[NetworkStack]:
        """All stacks that have it, the most recent one last."""
        return self._owners.get(address, ())

    def refresh_node(self, node: str) -> None:
        for prepare in self.before_look:
            prepare(node)

    def veth(
        self,
        stack: NetworkStack,
        name: str,
        other: NetworkStack,
        other_name: str,
        *,
        mtu: int = 1500,
    ) -> tuple[NetworkLink, NetworkLink]:
        mine = stack.add_link(
            NetworkLink(
                name,
                "veth",
                mac=stable_mac(stack.name, name),
                mtu=mtu,
                peer=(other.name, other_name),
            )
        )
        theirs = other.add_link(
            NetworkLink(
                other_name,
                "veth",
                mac=stable_mac(other.name, other_name),
                mtu=mtu,
                peer=(stack.name, name),
            )
        )
        return mine, theirs

    def _changed(self, stack: NetworkStack, what: str, name: str) -> None:
        if what in ("link", "address") and stack.name in self.stacks:
            link = stack.links.get(name)
            # The peer of a pod's veth, the most frequent change of all, has no address.
            if what == "address" or link is None or link.addresses:
                self._index(stack)
        for listener in self.listeners:
            listener(stack, what, name)

    def _index(self, stack: NetworkStack) -> None:
        now = stack.addresses()
        before = self._held.get(stack.name, [])
        if now == before:
            return
        for address in before:
            if address not in now:
                self._drop(address, stack)
        for address in now:
            if address not in before:
                self._owners.setdefault(address, []).append(stack)
        self._held[stack.name] = now

    def _drop(self, address: str, stack: NetworkStack) -> None:
        owners = self._owners.get(address, [])
        if stack in owners:
            owners.remove(stack)
        if not owners:
            self._owners.pop(address, None)


def _plain(interface: Interface) -> str:
    """Its address; `str(interface.ip)` would create one more object."""
    return str(interface).partition("/")[0]


def stable_mac(*parts: str) -> str:
    """A locally administered address that is constant for a link."""
    digest = hashlib.blake2b("/".join(parts).encode(), digest_size=5).digest()
    return "0a:" + ":".join(f"{byte:02x}" for byte in digest)
