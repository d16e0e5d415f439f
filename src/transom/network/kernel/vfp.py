"""The rules of a Windows node's virtual switch, as firewall tables for the node's namespace. Pure.

On Windows, rules belong to the ports of the switch; here a port is a device (the node's end of a
pod's veth pair), and rules match a packet's input device. There are no rules for packets that the
node itself sends, so the node cannot reach virtual addresses, as on Windows. The order is the
platform's: load balancing, ACLs (which see the backend), OutBoundNAT.

Difference to Windows: preserve-destination keeps the port and the source, but the pod sees its own
address as destination.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, NamedTuple

from transom.kit.lazy_dataclass import dataclass
from transom.network import nft
from transom.network.kernel import names, ovn
from transom.network.model.addresses import address_family, is_within
from transom.network.model.switch import (
    DSR,
    PRESERVE,
    OutboundNat,
    SwitchAcl,
    SwitchNetwork,
    SwitchPort,
    VirtualSwitch,
)
from transom.network.nft import (
    DROP,
    RETURN,
    Dnat,
    Field,
    Goto,
    Jump,
    NftChain,
    NftHook,
    NftLookup,
    NftMatch,
    NftRule,
    NftSet,
    NftTable,
    Snat,
)
from transom.network.ovn.database import OvnDatabase

TABLE = "transom-vfp"
BRIDGED = ("L2Bridge", "L2Tunnel", "Transparent")
"""Network types that are part of the underlay: packets from there enter them unchanged."""
_PROTOCOLS = {6: "tcp", 17: "udp", 132: "sctp"}
_BY_NUMBER = {"1": "icmp", "6": "tcp", "17": "udp", "58": "icmp", "132": "sctp"}
_TRANSLATED = NftMatch("l4proto", ("tcp", "udp", "sctp"))
_ESTABLISHED = NftRule(
    (nft.ACCEPT,),
    (NftMatch("ct state", ("established", "related")),),
    "part of a connection that was let in",
)
_PLACE: tuple[Field, ...] = ("daddr", "l4proto", "dport")
_PORT: tuple[Field, ...] = ("l4proto", "dport")
_FIRST_BIT = 16  # the first bit of marks that select a source address
_LONGEST = 86400  # seconds of session affinity: Windows has no limit


class PodSwitchPort(NamedTuple):
    """A switch port with a pod."""

    port: SwitchPort
    net: SwitchNetwork
    device: str
    reached: bool  # whether the node's own stack reaches it


@dataclass(slots=True)
class VfpNode:
    """The properties of the node that the rules need."""

    switch: VirtualSwitch
    uplink: str  # the device to the underlay
    addresses: Mapping[int, str]  # the node's own addresses by IP version
    places: Sequence[PodSwitchPort]
    forwarding: bool = False
    tunnels: Mapping[str, str] = field(default_factory=dict)  # network -> its VXLAN device
    # networks whose pods may leave only with the node's address
    closed: frozenset[str] = frozenset()
    logical: Sequence[str] = ()  # pod CIDRs of other nodes, from the node's routes
    ovn: OvnDatabase | None = None
    networks: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.networks = sorted(net.id for net in self.switch.nets())


class _Balanced(NamedTuple):
    """The chains of one load balancer, and the map entries that jump to them."""

    balancer: Mapping[str, Any]  # the inputs that they were built from, with `mark`
    mark: int
    chains: dict[str, NftChain]
    sets: dict[str, NftSet]
    entries: list[tuple[str, str, int]]  # address ("": each of the node's), protocol, port
    inside: Goto
    outside: Goto
    networks: frozenset[str]


class VfpBalancers:
    """Chains of load balancers, cached as long as their inputs are unchanged. HNS objects are
    replaced when they change, never modified; a listener calls `touch` for an endpoint.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Balanced] = {}
        self._devices: dict[str, str] = {}
        self._touched: set[str] = set()

    def touch(self, endpoint: str) -> None:
        self._touched.add(endpoint)

    def of(self, node: VfpNode, version: int, marks: dict[str, int]) -> list[_Balanced]:
        found: dict[str, _Balanced] = {}
        for key, balancer in node.switch.hns.loadbalancers.items():
            if not _has_family(balancer, version):
                continue
            own = node.addresses.get(version, "")
            # A pod that reaches itself under DSR gets the node's address; the source VIP is for
            # other nodes.
            source = own if (balancer.get("Flags") or 0) & DSR else balancer.get("SourceVIP") or own
            mark = marks.setdefault(source, 1 << (_FIRST_BIT + len(marks)))
            for number, mapping in enumerate(balancer["PortMappings"]):
                name = f"{key} {number} {version}"
                known = self._known.get(name)
                if (
                    known is None
                    or known.balancer is not balancer
                    or known.mark != mark
                    or not self._touched.isdisjoint(balancer["HostComputeEndpoints"])
                ):
                    known = _balanced(
                        name,
                        balancer,
                        mapping,
                        _backends(node.switch, balancer, version),
                        self._devices,
                        mark,
                        version,
                    )
                found[name] = known
        self._known = {
            **{name: kept for name, kept in self._known.items() if name[-1] != str(version)},
            **found,
        }
        return list(found.values())

    def begin(self, node: VfpNode) -> None:
        """An added or removed pod changes how connections to itself are forwarded."""
        devices = {place.port.id: place.device for place in node.places}
        self._touched.update(key for key, _ in devices.items() ^ self._devices.items())
        self._devices = devices

    def end(self) -> None:
        self._touched.clear()


def compile_tables(
    node: VfpNode, kept: VfpBalancers, versions: Iterable[Literal[4, 6]]
) -> dict[str, NftTable]:
    kept.begin(node)
    tables = {
        f"ip{'' if version == 4 else 6} {TABLE}": _table(node, kept, version)
        for version in versions
    }
    kept.end()
    return tables


def _table(node: VfpNode, kept: VfpBalancers, version: Literal[4, 6]) -> NftTable:
    marks: dict[str, int] = {}
    if node.ovn is not None and version == 4:
        return _table_of_ovn(node, node.ovn)
    balanced = kept.of(node, version, marks)
    table = NftTable("ip" if version == 4 else "ip6", TABLE)
    _ports(table, node)
    for each in balanced:
        table.chains.update(each.chains)
        table.sets.update(each.sets)
    _load_balancing(table, node, balanced, version)
    _sources(table, node, marks, version)
    _access(table, node, marks, version)
    _leaving(table, node, version)
    return table


def _table_of_ovn(node: VfpNode, database: OvnDatabase) -> NftTable:
    """Open vSwitch forwards: of the VFP rules only ACLs apply."""
    table = NftTable("ip", TABLE)
    mark = 1 << _FIRST_BIT
    marks = {node.addresses.get(4, ""): mark}
    _ports(table, node)
    _sources(table, node, marks, 4)
    _access(table, node, marks, 4)
    _leaving(table, node, 4)
    number = next(
        (n for n, key in enumerate(node.networks) if _type(node, key) == "Transparent"), 0
    )
    if node.networks:
        ovn.add_load_balancers(table, database, f"from{number}", node.uplink, mark)
    return table


def _type(node: VfpNode, key: str) -> str:
    net = node.switch.net(key)
    return net.type if net is not None else ""


def _ports(table: NftTable, node: VfpNode) -> None:
    """Sets of devices: adding and removing pods changes set elements, which is the fastest update
    for the kernel.
    """
    for number, net in enumerate(node.networks):
        devices = [place.device for place in node.places if place.net.id == net]
        table.sets[f"from{number}"] = NftSet(("iifname",), {(device,) for device in devices})
        table.sets[f"into{number}"] = NftSet(("oifname",), {(device,) for device in devices})
    closed = [place.device for place in node.places if not place.reached]
    table.sets["closed"] = NftSet(
        ("oifname",), {(device,) for device in (*closed, *node.tunnels.values())}
    )


# ---- load balancing ----


def _has_family(balancer: Mapping[str, Any], version: int) -> bool:
    vips = balancer.get("FrontendVIPs")
    if vips:
        return any(address_family(vip) == version for vip in vips)
    return bool((balancer.get("Flags") or 0) & 2) == (version == 6)


def _backends(switch: VirtualSwitch, balancer: Mapping[str, Any], version: int) -> list[SwitchPort]:
    ports = (switch.port(key) for key in balancer["HostComputeEndpoints"])
    return [port for port in ports if port is not None and port.address(version)]


def _balanced(
    key: str,
    balancer: Mapping[str, Any],
    mapping: Mapping[str, Any],
    backends: Sequence[SwitchPort],
    devices: Mapping[str, str],
    mark: int,
    version: int,
) -> _Balanced:
    name = names.hashed_name("lb", key)
    protocol = _PROTOCOLS[mapping["Protocol"]]
    ported = NftMatch("l4proto", (protocol,))
    dsr = bool((balancer.get("Flags") or 0) & DSR)
    preserve = bool((mapping.get("Flags") or 0) & PRESERVE)
    sticky = bool(mapping.get("DistributionType"))
    chains: dict[str, NftChain] = {}
    sets: dict[str, NftSet] = {}
    choices = []
    first: list[NftRule] = []
    for backend in backends:
        address = backend.address(version)
        chain = f"{name}-{address.replace(':', '.')}"
        choices.append(Goto(chain))
        rules = []
        if sticky:
            sets[f"{chain}-by"] = NftSet(("saddr",), dynamic=True)
            first.append(
                NftRule(
                    (Goto(chain),),
                    (NftMatch("saddr", named=f"{chain}-by"),),
                    "the backend this source had before",
                )
            )
            rules.append(NftRule((nft.Remember(f"{chain}-by", ("saddr",), _LONGEST),)))
        if preserve and backend.remote:
            chains[chain] = NftChain(
                [
                    *rules,
                    NftRule((DROP,), comment="on another node, and the destination would stay"),
                ]
            )
            continue
        to = Dnat(address, 0 if preserve else mapping["InternalPort"])
        rules += _to_itself(backend, devices.get(backend.id, ""), to, mark, ported, dsr=dsr)
        remote = not dsr and not preserve and backend.remote
        rules.append(NftRule((nft.SetMark(mark), to) if remote else (to,), (ported,)))
        chains[chain] = NftChain(rules)
    chosen = (
        NftRule((nft.Spread(tuple(choices)),))
        if choices
        else NftRule((DROP,), comment="no backend is left")
    )
    chains[name] = NftChain([*first, chosen])
    outside = Goto(name)
    if not dsr and not preserve:
        outside = Goto(f"{name}-out")
        chains[outside.chain] = NftChain([NftRule((nft.SetMark(mark),)), NftRule((Goto(name),))])
    vips = [
        vip
        for vip in balancer.get("FrontendVIPs") or ("",)
        if not vip or address_family(vip) == version
    ]
    entries = [(vip, protocol, mapping["ExternalPort"]) for vip in vips]
    return _Balanced(
        balancer,
        mark,
        chains,
        sets,
        entries,
        Goto(name),
        outside,
        frozenset(b.network for b in backends),
    )


def _to_itself(
    backend: SwitchPort, device: str, to: Dnat, mark: int, ported: NftMatch, *, dsr: bool
) -> list[NftRule]:
    """A pod whose connection comes back to it needs a different source, for which DSR needs an
    explicit rule.
    """
    if not device or backend.remote:
        return []
    mine = (NftMatch("iifname", (device,)), ported)
    if dsr and not any(nat.destinations and nat.concerns(to.address) for nat in backend.nats):
        return [NftRule((DROP,), mine, "the pod itself, without loopbackDSR")]
    return [NftRule((nft.SetMark(mark), to), mine, "the pod itself")]


def _load_balancing(
    table: NftTable, node: VfpNode, balanced: Sequence[_Balanced], version: int
) -> None:
    """One map for the ports of each network, and one for packets from the underlay."""
    before = NftChain(hook=NftHook("nat", "prerouting", -100))
    table.chains["prerouting"] = before
    for number, net in enumerate(node.networks):
        serving = [b for b in balanced if net in b.networks]
        _maps(table, str(number), [(entry, b.inside) for b in serving for entry in b.entries])
        before.rules.append(
            NftRule((Goto(f"from{number}"),), (NftMatch("iifname", named=f"from{number}"),))
        )
    if node.uplink:
        entries = [(entry, b.outside) for b in balanced for entry in b.entries]
        taken = {entry for entry, _ in entries}
        for entry, address, port in _mappings(node, version):
            if entry not in taken:
                chain = names.hashed_name("map", *map(str, entry))
                table.chains[chain] = NftChain(
                    [
                        NftRule(
                            (Dnat(address, port),),
                            (NftMatch("l4proto", (entry[1],)),),
                            "port mapping",
                        )
                    ]
                )
                entries.append((entry, Goto(chain)))
        _maps(table, "-outside", entries)
        before.rules.append(
            NftRule((Goto("from-outside"),), (NftMatch("iifname", (node.uplink,)),))
        )


def _maps(
    table: NftTable, suffix: str, entries: Sequence[tuple[tuple[str, str, int], Goto]]
) -> None:
    """Rules for a specific address come before those for all node addresses."""
    table.maps[f"places{suffix}"] = nft.VerdictMap(
        _PLACE,
        {
            (address, protocol, str(port)): to
            for (address, protocol, port), to in entries
            if address
        },
    )
    table.maps[f"own{suffix}"] = nft.VerdictMap(
        _PORT,
        {(protocol, str(port)): to for (address, protocol, port), to in entries if not address},
    )
    table.chains[f"from{suffix}"] = NftChain(
        [
            NftRule((NftLookup(_PLACE, f"places{suffix}"),)),
            NftRule((NftLookup(_PORT, f"own{suffix}"),), (NftMatch("daddr type", ("local",)),)),
        ]
    )


def _mappings(node: VfpNode, version: int) -> Iterable[tuple[tuple[str, str, int], str, int]]:
    for key, endpoint in node.switch.hns.endpoints.items():
        for policy in endpoint.get("Policies") or ():
            if policy["Type"] != "PortMapping":
                continue
            port, settings = node.switch.port(key), policy["Settings"]
            address = port.address(version) if port is not None else ""
            protocol = _PROTOCOLS.get(settings["Protocol"])
            if protocol and address and settings.get("ExternalPort"):
                vip = settings.get("VIP") or ""
                if not vip or address_family(vip) == version:
                    yield (
                        (vip, protocol, settings["ExternalPort"]),
                        address,
                        settings["InternalPort"],
                    )


# ---- source addresses ----


def _sources(table: NftTable, node: VfpNode, marks: Mapping[str, int], version: int) -> None:
    after = NftChain(hook=NftHook("nat", "postrouting", 100))
    table.chains["postrouting"] = after
    for source, mark in marks.items():
        if source:
            # The mark must be cleared: an encapsulating packet may get its own, with another
            # source.
            marked = NftMatch("mark", (f"{mark:#x}/{mark:#x}",))
            after.rules.append(
                NftRule(
                    (nft.ClearMark(mark), Snat(source)), (marked,), "load balancing without DSR"
                )
            )
    groups: dict[tuple[str, tuple[OutboundNat, ...] | None], set[tuple[str, ...]]] = {}
    for place in node.places:
        nats = tuple(nat for nat in place.port.nats if not nat.destinations)
        of_itself = place.net.type in ("NAT", "Transparent") and not nats
        address = place.port.address(version)
        if address and (nats or of_itself):
            groups.setdefault((place.net.id, None if of_itself else nats), set()).add((address,))
    for (net_id, found), addresses in sorted(groups.items(), key=lambda item: repr(item[0])):
        own = node.addresses.get(version, "")
        source = (found[0].virtual if found else "") or own
        net = node.switch.net(net_id)
        if source and net is not None:
            name = names.hashed_name("", net_id, repr(found))
            table.sets[f"pods-{name}"] = NftSet(("saddr",), addresses)
            chain = (
                _of_itself(node, net, source, version)
                if found is None
                else _outbound(node, net, found, source, version)
            )
            table.chains[f"nat-{name}"] = NftChain(chain)
            after.rules.append(
                NftRule(
                    (Jump(f"nat-{name}"),),
                    (NftMatch("saddr", named=f"pods-{name}"),),
                    "OutBoundNAT",
                )
            )


def _of_itself(node: VfpNode, net: SwitchNetwork, source: str, version: int) -> list[NftRule]:
    """WinNAT translates all packets that leave its network, OVN all that leave its logical
    networks, including ICMP.
    """
    inside = (*net.subnets, *(node.logical if net.type == "Transparent" else ()))
    inside = tuple(
        prefix for prefix in inside if address_family(prefix.partition("/")[0]) == version
    )
    return [
        NftRule((RETURN,), (NftMatch("daddr", _distinct(inside)),), "inside"),
        NftRule((Snat(source),)),
    ]


def _outbound(
    node: VfpNode, net: SwitchNetwork, nats: Sequence[OutboundNat], source: str, version: int
) -> list[NftRule]:
    same = NftMatch("oifname", named=f"into{node.networks.index(net.id)}")
    rules = [NftRule((RETURN,), (same,), "it does not leave the switch")]
    exceptions = tuple(
        dict.fromkeys(
            e
            for nat in nats
            for e in nat.exceptions
            if address_family(e.partition("/")[0]) == version
        )
    )
    if exceptions:
        rules.append(NftRule((RETURN,), (NftMatch("daddr", _distinct(exceptions)),), "exceptions"))
    rules.append(NftRule((Snat(source),), (_TRANSLATED,)))  # VFP cannot translate ICMP
    return rules


# ---- ACLs ----


def _access(table: NftTable, node: VfpNode, marks: Mapping[str, int], version: int) -> None:
    """ACLs decide on the first packet of a connection; a packet allowed at one port may still be
    blocked at the other. A marked packet is matched with the source that it will have on arrival.
    """
    out: list[NftRule] = []
    into: list[NftRule] = []
    for place in node.places:
        acls = sorted((*place.net.acls, *place.port.acls), key=lambda acl: acl.priority)
        sides: tuple[tuple[bool, Field, list[NftRule]], ...] = (
            (False, "iifname", out),
            (True, "oifname", into),
        )
        for inward, field_name, rules in sides:
            chosen = [acl for acl in acls if acl.inward is inward]
            own = [rule for acl in chosen for rule in _acl(place.net, acl, version)]
            if own:
                chain = f"{'in' if inward else 'out'}-{place.device}"
                table.chains[chain] = NftChain(own)
                for source, mark in marks.items() if inward else ():
                    given = [
                        rule for acl in chosen for rule in _acl(place.net, acl, version, source)
                    ]
                    if source and given != own:
                        named = f"{chain}-{source.replace(':', '.')}"
                        table.chains[named] = NftChain(given)
                        own.insert(
                            0,
                            NftRule((Goto(named),), (NftMatch("mark", (f"{mark:#x}/{mark:#x}",)),)),
                        )
                rules.append(NftRule((Jump(chain),), (NftMatch(field_name, (place.device,)),)))
    # Not even replies: the node has no route there.
    nowhere = NftRule((DROP,), (NftMatch("oifname", named="closed"),), "the node has no way there")
    table.chains["input"] = NftChain([_ESTABLISHED, *out], NftHook("filter", "input", 0))
    table.chains["output"] = NftChain(
        [nowhere, _ESTABLISHED, *into], NftHook("filter", "output", 0)
    )
    table.chains["forward"] = NftChain(
        [*_kept_in(node), _ESTABLISHED, *_routing_rules(node), *out, *into],
        NftHook("filter", "forward", 0),
    )


def _acl(net: SwitchNetwork, acl: SwitchAcl, version: int, source: str = "") -> list[NftRule]:
    """`source` is the remote address, if already known."""
    local: tuple[Field, Field] = ("daddr", "dport") if acl.inward else ("saddr", "sport")
    remote: tuple[Field, Field] = ("saddr", "sport") if acl.inward else ("daddr", "dport")
    matches: list[NftMatch] = []
    for name, texts in ((local[0], acl.local), (remote[0], acl.remote)):
        if texts:
            found = tuple(
                a for a in _expanded(net, texts) if address_family(a.partition("/")[0]) == version
            )
            if not found or (
                source
                and texts is acl.remote
                and not any(is_within(source, text) for text in found)
            ):
                return []
            if not source or texts is not acl.remote:
                matches.append(NftMatch(name, _distinct(found)))
    protocols = tuple(
        dict.fromkeys(_BY_NUMBER.get(number, number) for number in sorted(acl.protocols))
    )
    ports = ((local[1], acl.local_ports), (remote[1], acl.remote_ports))
    if any(ranges for _, ranges in ports):
        protocols = tuple(
            p for p in protocols or ("tcp", "udp", "sctp") if p in ("tcp", "udp", "sctp")
        )
        if not protocols:
            return []
    if protocols:
        matches.insert(0, NftMatch("l4proto", protocols))
    for name, ranges in ports:
        if ranges:
            matches.append(
                NftMatch(
                    name,
                    tuple(str(low) if low == high else f"{low}-{high}" for low, high in ranges),
                )
            )
    return [NftRule((RETURN if acl.allow else DROP,), tuple(matches), acl.name)]


def _expanded(
    net: SwitchNetwork, texts: Iterable[str], seen: frozenset[str] = frozenset()
) -> list[str]:
    """Resolves address sets, which may be nested, to their members."""
    out: list[str] = []
    for text in texts:
        named = net.sets.get(text)
        if named is None:
            out.append(text)
        elif text not in seen:
            out += _expanded(
                net, [part.strip() for part in named.split(",") if part.strip()], seen | {text}
            )
    return out


def _distinct(texts: Iterable[str]) -> tuple[str, ...]:
    """Removes prefixes contained in others: the kernel rejects overlapping elements."""
    found = [ipaddress.ip_network(text, strict=False) for text in texts]
    return tuple(str(n) for n in ipaddress.collapse_addresses(found))  # type: ignore[type-var]


# ---- forwarding ----


def _kept_in(node: VfpNode) -> list[NftRule]:
    """Packets of pods, including replies, that a virtual machine's adapter drops because of a
    foreign MAC address.
    """
    if not node.uplink or node.switch.hns.mac_spoofing:
        return []
    out = NftMatch("oifname", (node.uplink, *node.tunnels.values()))
    pods = (NftMatch("iifname", named=f"from{number}") for number, _ in enumerate(node.networks))
    return [NftRule((DROP,), (each, out), "MAC spoofing is off") for each in pods]


def _routing_rules(node: VfpNode) -> list[NftRule]:
    """The allowed paths through the node, by network type."""
    rules = []
    plain = NftMatch("ct status", ("dnat",), negate=True)
    for number, net_id in enumerate(node.networks):
        net = node.switch.net(net_id)
        assert net is not None
        into = NftMatch("oifname", named=f"into{number}")
        if net.type not in BRIDGED and node.uplink:
            card = NftMatch("iifname", (node.uplink,))
            rules.append(
                NftRule(
                    (DROP,), (card, into, plain), f"network {net.name} is not part of the underlay"
                )
            )
        if net_id in node.tunnels:
            elsewhere = NftMatch("oifname", named=f"into{number}", negate=True)
            rules.append(
                NftRule(
                    (DROP,),
                    (NftMatch("iifname", (node.tunnels[net_id],)), elsewhere),
                    "the network has no such port",
                )
            )
    if node.uplink and not node.forwarding:
        rules.append(
            NftRule(
                (DROP,),
                (NftMatch("iifname", (node.uplink,)), NftMatch("oifname", (node.uplink,)), plain),
                "the node does not forward for others",
            )
        )
    return rules


def _leaving(table: NftTable, node: VfpNode, version: int) -> None:
    """What must not leave through the network card with a pod's address, after translation."""
    inner = []
    for net_id in dict.fromkeys((*node.tunnels, *sorted(node.closed))):
        net = node.switch.net(net_id)
        inner += [
            s
            for s in (net.subnets if net is not None else ())
            if address_family(s.partition("/")[0]) == version
        ]
    if inner and node.uplink:
        matches = (NftMatch("oifname", (node.uplink,)), NftMatch("saddr", _distinct(inner)))
        rule = NftRule((DROP,), matches, "no way out with this address")
        table.chains["leaving"] = NftChain([rule], NftHook("filter", "postrouting", 300))
