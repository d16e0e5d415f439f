"""The virtual switch of a Windows node, as its host networking service has configured it: ports
with their rules, networks.

HNS objects are read on demand; an unchanged object is not read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from transom.kit.lazy_dataclass import dataclass
from transom.network.model.addresses import address_family, is_within
from transom.network.packets import Packet

if TYPE_CHECKING:
    from transom.machines.windows.hns import HostNetworkService

PROTOCOLS = {"tcp": 6, "udp": 17, "sctp": 132}
_NUMBERS = {**{name: str(number) for name, number in PROTOCOLS.items()}, "icmp": "1"}
_REMOTE_ENDPOINT = 1
_UNSTATED = 65500  # the priority of a rule without one
DSR = 1
PRESERVE = 8


@dataclass(frozen=True, slots=True)
class SwitchAcl:
    inward: bool
    allow: bool
    priority: int
    protocols: frozenset[str]  # numbers as texts; empty: all
    local: tuple[str, ...]  # addresses, prefixes, names of address sets; empty: all
    remote: tuple[str, ...]
    local_ports: tuple[tuple[int, int], ...]
    remote_ports: tuple[tuple[int, int], ...]
    name: str


@dataclass(frozen=True, slots=True)
class OutboundNat:
    virtual: str
    exceptions: tuple[str, ...]
    destinations: tuple[str, ...]

    def concerns(self, destination: str) -> bool:
        if self.destinations:
            return any(is_within(destination, text) for text in self.destinations)
        return not any(is_within(destination, text) for text in self.exceptions)


@dataclass(frozen=True, slots=True)
class RemoteSubnet:
    prefix: str
    vni: int
    provider: str
    mac: str


@dataclass(frozen=True, slots=True)
class SwitchPort:
    id: str
    name: str
    network: str
    addresses: tuple[str, ...]
    mac: str
    remote: bool
    acls: tuple[SwitchAcl, ...]
    nats: tuple[OutboundNat, ...]
    provider: str  # where a remote endpoint of an overlay is

    def address(self, version: int) -> str:
        return next(
            (address for address in self.addresses if address_family(address) == version), ""
        )


@dataclass(frozen=True, slots=True)
class SwitchNetwork:
    id: str
    name: str
    type: str
    subnets: tuple[str, ...]
    vni: int
    port: int
    remotes: tuple[RemoteSubnet, ...]
    router_mac: str
    host_route: bool
    sets: Mapping[str, str]
    acls: tuple[SwitchAcl, ...]

    def contains(self, address: str) -> bool:
        return any(is_within(address, prefix) for prefix in self.subnets)


@dataclass(frozen=True, slots=True)
class SwitchBalancer:
    id: str
    endpoints: tuple[str, ...]
    source_vip: str
    dsr: bool
    external: int
    internal: int
    preserve: bool
    by_source: int  # 0: per connection, 1: by source and protocol, 2: by source


class VirtualSwitch:
    def __init__(self, hns: HostNetworkService) -> None:
        self.hns = hns
        self._ports: dict[str, tuple[Mapping[str, Any], SwitchPort]] = {}
        self._nets: dict[str, tuple[Mapping[str, Any], SwitchNetwork]] = {}
        hns.listeners.append(self._changed)

    def close(self) -> None:
        if self._changed in self.hns.listeners:
            self.hns.listeners.remove(self._changed)

    def _changed(self, kind: str, key: str, _what: str) -> None:
        if kind == "endpoint":
            self._ports.pop(key, None)
        elif kind == "network":
            self._nets.pop(key, None)

    def port(self, key: str) -> SwitchPort | None:
        found = self.hns.endpoints.get(key.upper())
        if found is None:
            return None
        known = self._ports.get(key)
        if known is None or known[0] is not found:
            known = self._ports[key] = (found, _port(found))
        return known[1]

    def net(self, key: str) -> SwitchNetwork | None:
        found = self.hns.networks.get(key.upper())
        if found is None:
            return None
        known = self._nets.get(key)
        if known is None or known[0] is not found:
            known = self._nets[key] = (found, _net(found))
        return known[1]

    def nets(self) -> Iterable[SwitchNetwork]:
        for key in self.hns.networks:
            found = self.net(key)
            if found is not None:
                yield found

    def at(self, net: SwitchNetwork, address: str) -> SwitchPort | None:
        """The port of a network with the address, including remote ones."""
        found = self.hns.endpoint_at(net.id, address)
        return self.port(found["ID"]) if found is not None else None

    def anywhere(self, address: str) -> tuple[SwitchNetwork, SwitchPort] | None:
        """A local port with the address, in any network."""
        for net in self.nets():
            port = self.at(net, address)
            if port is not None and not port.remote:
                return net, port
        return None

    def balancer(self, packet: Packet, host: bool) -> SwitchBalancer | None:
        """The rule for a packet. `host`: its destination is an address of the host, where rules
        without addresses apply.
        """
        number = PROTOCOLS.get(packet.protocol)
        if number is None:
            return None
        six = ":" in packet.destination
        found = self.hns.loadbalancer_at(
            packet.destination, packet.destination_port, number, ipv6=six
        )
        if found is None and host:
            found = self.hns.loadbalancer_at("", packet.destination_port, number, ipv6=six)
        return _balancer(found, number, packet.destination_port) if found is not None else None

    def mapping(self, packet: Packet) -> tuple[SwitchPort, int] | None:
        """The switch port that a host port is mapped to, and the port number there."""
        number = PROTOCOLS.get(packet.protocol)
        found = (
            self.hns.mapping_at(packet.destination, packet.destination_port, number)
            if number is not None
            else None
        )
        port = self.port(found["ID"]) if found is not None else None
        if found is None or port is None:
            return None
        for policy in found.get("Policies", ()):
            settings = policy.get("Settings") or {}
            if (policy["Type"], settings.get("Protocol"), settings.get("ExternalPort")) == (
                "PortMapping",
                number,
                packet.destination_port,
            ):
                return port, int(settings["InternalPort"])
        return None

    def is_host(self, port: SwitchPort) -> bool:
        return self.hns.attachment(port.id)[0] == "host"

    def decide(
        self, net: SwitchNetwork, port: SwitchPort, packet: Packet, *, inward: bool
    ) -> SwitchAcl | None:
        """The rule that decides on the first packet of a connection; None: no rule does, and it
        passes.
        """
        local, remote = (
            (packet.destination, packet.source) if inward else (packet.source, packet.destination)
        )
        local_port, remote_port = packet.source_port, packet.destination_port
        if inward:
            local_port, remote_port = remote_port, local_port
        number = _NUMBERS[packet.protocol]
        for acl in (
            sorted((*net.acls, *port.acls), key=lambda a: a.priority) if net.acls else port.acls
        ):
            if (
                acl.inward is inward
                and (not acl.protocols or number in acl.protocols)
                and _among(net, local, acl.local)
                and _among(net, remote, acl.remote)
                and (not (acl.local_ports or acl.remote_ports) or packet.protocol != "icmp")
                and _ported(local_port, acl.local_ports)
                and _ported(remote_port, acl.remote_ports)
            ):
                return acl
        return None


def _among(net: SwitchNetwork, address: str, texts: tuple[str, ...]) -> bool:
    if not texts:
        return True
    for text in texts:
        named = net.sets.get(text)
        if named is not None:
            # Nested sets are named in the same way.
            if (
                _among(
                    net, address, tuple(part for part in named.split(",") if part and part != text)
                )
                and named
            ):
                return True
        elif is_within(address, text):
            return True
    return False


def _ported(port: int, ranges: tuple[tuple[int, int], ...]) -> bool:
    return not ranges or any(low <= port <= high for low, high in ranges)


def _port(found: Mapping[str, Any]) -> SwitchPort:
    policies = found.get("Policies") or ()
    settings = [(policy["Type"], policy.get("Settings") or {}) for policy in policies]
    return SwitchPort(
        id=found["ID"],
        name=found.get("Name", ""),
        network=found["HostComputeNetwork"],
        addresses=tuple(c["IpAddress"] for c in found.get("IpConfigurations") or ()),
        mac=found.get("MacAddress", ""),
        remote=bool((found.get("Flags") or 0) & _REMOTE_ENDPOINT),
        acls=_acls(s for kind, s in settings if kind == "ACL"),
        nats=tuple(
            OutboundNat(
                s.get("VirtualIP") or "",
                tuple(s.get("Exceptions") or ()),
                tuple(s.get("Destinations") or ()),
            )
            for kind, s in settings
            if kind == "OutBoundNAT"
        ),
        provider=next(
            (s.get("ProviderAddress", "") for kind, s in settings if kind == "ProviderAddress"), ""
        ),
    )


def _net(found: Mapping[str, Any]) -> SwitchNetwork:
    subnets = [s for ipam in found.get("Ipams") or () for s in ipam.get("Subnets") or ()]
    policies = [(p["Type"], p.get("Settings") or {}) for p in found.get("Policies") or ()]
    isolation = [
        p.get("Settings") or {}
        for s in subnets
        for p in s.get("Policies") or ()
        if p["Type"] == "VSID"
    ]
    isolation += [s for kind, s in policies if kind == "VSID"]
    return SwitchNetwork(
        id=found["ID"],
        name=found.get("Name", ""),
        type=found.get("Type") or "NAT",
        subnets=tuple(s["IpAddressPrefix"] for s in subnets if s.get("IpAddressPrefix")),
        vni=int(isolation[0].get("IsolationId", 0)) if isolation else 0,
        port=next((int(s["Port"]) for kind, s in policies if kind == "VxlanPort"), 4789),
        remotes=tuple(
            RemoteSubnet(
                s["DestinationPrefix"],
                int(s["IsolationId"]),
                s["ProviderAddress"],
                s["DistributedRouterMacAddress"],
            )
            for kind, s in policies
            if kind == "RemoteSubnetRoute"
        ),
        router_mac=next(
            (s.get("Address", "") for kind, s in policies if kind == "DrMacAddress"), ""
        ),
        host_route=any(kind == "HostRoute" for kind, _ in policies),
        sets={s["Id"]: s.get("Values") or "" for kind, s in policies if kind == "SetPolicy"},
        acls=_acls(s for kind, s in policies if kind == "NetworkACL"),
    )


def _acls(found: Iterable[Mapping[str, Any]]) -> tuple[SwitchAcl, ...]:
    rules = [
        SwitchAcl(
            inward=s["Direction"] == "In",
            allow=s["Action"] != "Block",
            priority=s.get("Priority") or _UNSTATED,
            protocols=frozenset(_parts(s.get("Protocols"))) - {"256"},
            local=_parts(s.get("LocalAddresses")),
            remote=_parts(s.get("RemoteAddresses")),
            local_ports=_ranges(s.get("LocalPorts")),
            remote_ports=_ranges(s.get("RemotePorts")),
            name=s.get("Id") or s.get("Name") or "",
        )
        for s in found
    ]
    return tuple(sorted(rules, key=lambda rule: rule.priority))


def _parts(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def _ranges(text: str | None) -> tuple[tuple[int, int], ...]:
    return tuple(
        (int(low), int(high or low))
        for low, _, high in (part.partition("-") for part in _parts(text))
    )


def _balancer(found: Mapping[str, Any], number: int, port: int) -> SwitchBalancer:
    mapping = next(
        m for m in found["PortMappings"] if m["Protocol"] == number and m["ExternalPort"] == port
    )
    flags = mapping.get("Flags") or 0
    return SwitchBalancer(
        id=found["ID"],
        endpoints=tuple(found["HostComputeEndpoints"]),
        source_vip=found.get("SourceVIP") or "",
        dsr=bool((found.get("Flags") or 0) & DSR),
        external=mapping["ExternalPort"],
        internal=mapping["InternalPort"],
        preserve=bool(flags & PRESERVE),
        by_source=mapping.get("DistributionType") or 0,
    )
