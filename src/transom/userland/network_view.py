"""The network of one Windows system (a machine, or one container) as its commands show and change
it.

It reads the network stack and the host networking service each time and keeps no state.
"""

from __future__ import annotations

import ipaddress
import uuid
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Literal, Protocol

from transom.kit.lazy_dataclass import dataclass
from transom.machines.windows.registry import Hive, WindowsRegistry
from transom.machines.windows.system import interface_key, name_servers
from transom.network.api import DnsConfig
from transom.network.stacks import (
    Interface,
    LinkKind,
    Network,
    NetworkLink,
    NetworkRoute,
    NetworkStack,
    read_interface,
    stable_mac,
)

if TYPE_CHECKING:
    from transom.machines.windows.hns import (
        Adapter,
        HostNetworkService,
    )  # needs packages that Wine's stand-ins do not have

LOOPBACK_NAME: Final = "Loopback Pseudo-Interface 1"
LOOPBACK_INDEX: Final = 1
LOOPBACK_METRIC: Final = 75
METRIC: Final = 15  # Windows' metric for an interface of 10 Gbit/s
ROUTE_METRIC: Final = 256
_FIRST_CONTAINER_INDEX: Final = 20
_HOPS: Final = 30
_DESCRIPTIONS: Final = {
    "physical": "Microsoft Hyper-V Network Adapter",
    "endpoint": "Hyper-V Virtual Ethernet Container Adapter",
    "management": "Hyper-V Virtual Ethernet Adapter",
}
_VIRTUAL: Final = "Hyper-V Virtual Ethernet Adapter"
_BROADCAST: Final = ipaddress.ip_network("255.255.255.255/32")
_MULTICAST: Final = ipaddress.ip_network("224.0.0.0/4")
_DEFAULTS: Final = (ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0"))


class Stacks(Protocol):
    """The network stacks of one node: the machine's own for "", else that of a sandbox."""

    def stack(self, sandbox: str) -> NetworkStack | None: ...
    def owner(self, address: str) -> NetworkStack | None:
        """The stack that has an address, anywhere in the cluster."""


@dataclass(frozen=True, slots=True)
class NetworkInterface:
    name: str
    index: int
    mac: str  # with hyphens
    description: str
    addresses: tuple[Interface, ...]
    gateways: tuple[str, ...] = ()
    mtu: int = 1500
    physical: bool = False
    under_switch: bool = False  # a virtual switch uses it: it has no addresses of its own
    endpoint: str = ""
    status: str = "Up"  # Disabled, Disconnected

    @property
    def ipv4(self) -> list[Interface]:
        return [address for address in self.addresses if address.version == 4]

    @property
    def ipv6(self) -> list[Interface]:
        return [address for address in self.addresses if address.version == 6]

    @property
    def guid(self) -> str:
        """An adapter of a container has the GUID of its endpoint."""
        own = self.endpoint or str(uuid.uuid5(uuid.NAMESPACE_OID, self.name + self.mac))
        return own.upper()

    @property
    def link_local(self) -> str:
        """Its link-local address, derived from the hardware address by EUI-64, without the zone."""
        octets = [int(part, 16) for part in self.mac.split("-")] if self.mac else [0] * 6
        eui = [octets[0] ^ 2, *octets[1:3], 0xFF, 0xFE, *octets[3:]]
        return str(ipaddress.IPv6Address(0xFE80 << 112 | int.from_bytes(bytes(eui), "big")))


@dataclass(frozen=True, slots=True)
class RouteRow:
    destination: Network
    next_hop: str  # "" for on-link
    interface: str
    index: int
    address: str  # of the interface
    metric: int  # of the route alone
    interface_metric: int


@dataclass(frozen=True, slots=True)
class Neighbour:
    address: str
    mac: str
    index: int
    interface: str
    state: str  # "Reachable", "Permanent"


class NetworkView:
    def __init__(
        self,
        stack: NetworkStack,
        hns: HostNetworkService | None,
        dns: DnsConfig,
        owner: Callable[[str], NetworkStack | None],
        *,
        machine: bool,
        registry: WindowsRegistry | None = None,
    ) -> None:
        """`dns` is the network's setting; `registry` has the administrators' overrides."""
        self.stack = stack
        self.hns = hns
        self.dns = dns
        self._registry = registry
        self._owner = owner
        self._machine = machine

    def interfaces(self) -> list[NetworkInterface]:
        """The interfaces that Windows lists, without the loopback interface."""
        found = [
            self._interface(link) for link in self.stack.links.values() if link.kind != "loopback"
        ]
        if self._machine and self.hns is not None:
            known = {interface.name for interface in found}
            found += [
                NetworkInterface(
                    a.name,
                    a.index,
                    a.mac,
                    adapter_description(a),
                    (),
                    physical=True,
                    under_switch=True,
                    status="Disabled" if a.disabled else "Up",
                )
                for a in self.hns.adapters.values()
                if a.compartment == 1 and a.name not in known
            ]
        return sorted(found, key=lambda interface: interface.index)

    def _interface(self, link: NetworkLink) -> NetworkInterface:
        adapter = (
            self.hns.adapters.get(link.name) if self.hns is not None and self._machine else None
        )
        name, index, description = link.name, 0, _DESCRIPTIONS["endpoint"]
        if adapter is not None:
            index, description = adapter.index, adapter_description(adapter)
        elif self._machine:
            index, description = 60 + zlib.crc32(link.name.encode()) % 40, _VIRTUAL
        else:
            name = f"vEthernet ({self._endpoint_name(link)})"
            index = _FIRST_CONTAINER_INDEX + zlib.crc32((link.endpoint or link.mac).encode()) % 60
        gateways = tuple(
            r.via
            for r in self.stack.routes()
            if r.link == link.name and r.via and r.destination in _DEFAULTS
        )
        mac = link.mac.replace(":", "-").upper()
        physical = adapter is not None and adapter.kind == "physical"
        return NetworkInterface(
            name,
            index,
            mac,
            description,
            tuple(link.addresses),
            gateways,
            link.mtu,
            physical,
            endpoint=link.endpoint,
            status=_status(link, adapter),
        )

    def _endpoint_name(self, link: NetworkLink) -> str:
        """Windows names a container's adapter after its endpoint, whose name begins with the
        sandbox's id.
        """
        endpoint = (
            self.hns.endpoints.get(link.endpoint)
            if self.hns is not None and link.endpoint
            else None
        )
        return str(endpoint["Name"]) if endpoint is not None else link.name

    def find(self, wanted: str) -> NetworkInterface | None:
        """Finds an interface by name, index or address."""
        for interface in self.interfaces():
            if wanted.lower() == interface.name.lower() or wanted == str(interface.index):
                return interface
            if any(wanted == str(address.ip) for address in interface.addresses):
                return interface
        return None

    def link_of(self, interface: NetworkInterface) -> str:
        """The name of the link in the stack."""
        index = interface.index
        return next(
            (
                link.name
                for link in self.stack.links.values()
                if link.kind != "loopback" and self._interface(link).index == index
            ),
            "",
        )

    # ---- name servers ----

    def given_servers(self, interface: NetworkInterface) -> tuple[str, ...]:
        """The name servers that the network gives an interface: on a machine the one with the
        default gateway.
        """
        if self._machine and not interface.gateways:
            return ()
        return tuple(self.dns.servers)

    def dns_servers(self, interface: NetworkInterface) -> tuple[str, ...]:
        """The name servers of an interface, IPv4 before IPv6."""
        given = self.given_servers(interface)
        if self._registry is None:
            return given
        found: list[str] = []
        for version in (4, 6):
            own = name_servers(self._registry, interface.guid, version)
            found += own or [s for s in given if (":" in s) == (version == 6)]
        return tuple(found)

    def resolver_dns(self) -> DnsConfig:
        """What the resolver uses: the name servers of all interfaces."""
        servers = [s for i in self.interfaces() for s in self.dns_servers(i)]
        return DnsConfig(tuple(dict.fromkeys(servers)), self.dns.searches, self.dns.options)

    def registry_keys(self) -> Hive:
        """What the registry shows of each interface."""
        suffix = next(iter(self.dns.searches), "")
        return {
            interface_key(interface.guid): {
                "EnableDHCP": 0,
                "IPAddress": tuple(str(address.ip) for address in interface.ipv4),
                "SubnetMask": tuple(str(address.netmask) for address in interface.ipv4),
                "DefaultGateway": tuple(g for g in interface.gateways if ":" not in g),
                "NameServer": ",".join(s for s in self.given_servers(interface) if ":" not in s),
                "DhcpNameServer": "",
                "Domain": suffix if not interface.under_switch else "",
            }
            for interface in self.interfaces()
        }

    # ---- routes ----

    def routes(self) -> list[RouteRow]:
        """All routes, with those that Windows creates for each address; the loopback interface
        comes first.
        """
        loopback = [
            RouteRow(
                ipaddress.ip_network(text),
                "",
                LOOPBACK_NAME,
                LOOPBACK_INDEX,
                "127.0.0.1",
                ROUTE_METRIC,
                LOOPBACK_METRIC,
            )
            for text in (
                "127.0.0.0/8",
                "127.0.0.1/32",
                "127.255.255.255/32",
                "::1/128",
                str(_MULTICAST),
                str(_BROADCAST),
            )
        ]
        rows = []
        for link in self.stack.links.values():
            if link.kind == "loopback" or not link.up:
                continue
            interface = self._interface(link)
            first = str(interface.ipv4[0].ip) if interface.ipv4 else ""
            for address in link.addresses:
                own = str(address.ip)
                networks: Iterable[Network] = (ipaddress.ip_network(own),)
                if address.version == 4:
                    last = ipaddress.ip_network(address.network.broadcast_address)
                    networks = (
                        *networks,
                        *((last,) if last not in networks else ()),
                        _MULTICAST,
                        _BROADCAST,
                    )
                rows += [
                    self._row(network, "", interface, own, ROUTE_METRIC) for network in networks
                ]
            for route in self.stack.routes():
                if route.link == link.name:
                    rows.append(
                        self._row(
                            route.destination, route.via, interface, first, self._metric(route)
                        )
                    )
        return sorted({*loopback, *rows}, key=_order)

    @staticmethod
    def _row(
        network: Network, via: str, interface: NetworkInterface, address: str, metric: int
    ) -> RouteRow:
        return RouteRow(network, via, interface.name, interface.index, address, metric, METRIC)

    @staticmethod
    def _metric(route: NetworkRoute) -> int:
        return ROUTE_METRIC

    def add_route(self, destination: str, via: str, interface: str = "") -> bool:
        """False if the gateway is not on a link of this system."""
        link = interface
        if not link:
            gateway = ipaddress.ip_address(via)
            link = next(
                (
                    link.name
                    for link in self.stack.links.values()
                    if link.kind != "loopback"
                    and any(gateway in address.network for address in link.addresses)
                ),
                "",
            )
        if not link:
            return False
        own = {
            str(address.ip) for known in self.stack.links.values() for address in known.addresses
        }
        self.stack.replace_route(
            destination, link, "" if via in own or via in ("0.0.0.0", "::") else via
        )
        return True

    # ---- neighbours ----

    def neighbours(self) -> list[Neighbour]:
        """Static neighbours, and the next hops of routes that answer."""
        found: dict[str, Neighbour] = {}
        for address, (mac, link) in self.stack.neighbours.items():
            if link in self.stack.links:
                interface = self._interface(self.stack.links[link])
                found[address] = Neighbour(
                    address, mac.replace(":", "-"), interface.index, interface.name, "Permanent"
                )
        for route in self.stack.routes():
            if not route.via or route.via in found or route.link not in self.stack.links:
                continue
            mac = self._mac_of(route.via)
            if mac:
                interface = self._interface(self.stack.links[route.link])
                found[route.via] = Neighbour(
                    route.via, mac, interface.index, interface.name, "Reachable"
                )
        return list(found.values())

    def _mac_of(self, address: str) -> str:
        owner = self._owner(address)
        for link in owner.links.values() if owner is not None else ():
            if any(str(one.ip) == address for one in link.addresses):
                return link.mac.replace(":", "-")
        return ""

    # ---- the path of a packet ----

    def hops(self, address: str) -> list[str]:
        """The routers on the way to an address, by the routes of each stack. The address itself is
        not included.
        """
        hops: list[str] = []
        if ipaddress.ip_address(address).is_loopback or address in self.stack.addresses():
            return hops
        stack: NetworkStack | None = self.stack
        while stack is not None and len(hops) < _HOPS:
            route = stack.route(address)
            if route is None or not route.via or route.via == address:
                break
            stack = self._owner(route.via)
            if stack is None or address in stack.addresses():
                break
            if route.via in hops:
                break
            hops.append(route.via)
        return hops


def _order(row: RouteRow) -> tuple[int, int, int, int]:
    network = row.destination
    return network.version, int(network.network_address), network.prefixlen, row.index


def _status(link: NetworkLink, adapter: Adapter | None) -> str:
    if link.up:
        return "Up"
    return "Disconnected" if adapter is not None and not adapter.disabled else "Disabled"


def adapter_description(adapter: Adapter) -> str:
    return _DESCRIPTIONS.get(adapter.kind, _VIRTUAL)


def endpoint_dns(
    hns: HostNetworkService, stack: NetworkStack | None, given: DnsConfig
) -> DnsConfig:
    """The name servers and suffixes of a container's endpoint; those of its pod where the endpoint
    has none.
    """
    for link in stack.links.values() if stack is not None else ():
        endpoint = hns.endpoints.get(link.endpoint) if link.endpoint else None
        dns = endpoint.get("Dns") if endpoint is not None else None
        if dns:
            domain = [part for part in str(dns.get("Domain") or "").split(",") if part]
            searches = tuple(dns.get("Search") or domain)
            return DnsConfig(tuple(dns.get("ServerList") or ()), searches, given.options)
    return given


def without_stack(
    name: str,
    addresses: Sequence[str],
    gateway: str = "",
    length: int = 24,
    os: Literal["linux", "windows"] = "windows",
) -> NetworkStack:
    """A stack derived from a container's addresses, for a container without a network stack here."""
    stack = NetworkStack(name, "sandbox", os, name, lambda *_: None)
    link = "Ethernet" if os == "windows" else "eth0"
    if addresses:
        kind: LinkKind = "vnic" if os == "windows" else "veth"
        stack.add_link(NetworkLink(link, kind, mac=stable_mac(name)))
    for address in addresses:
        bits = 64 if ":" in address else length
        stack.add_address(link, f"{address}/{bits}")
        if ":" not in address:
            first = gateway or str(read_interface(f"{address}/{bits}").network[1])
            stack.replace_route("0.0.0.0/0", link, first)
    return stack
