"""The rules of a Windows node's virtual switch, written as firewall tables for the node's namespace. Pure.

On Windows, rules belong to the ports of the switch; here a port is a device (the node's end of a pod's pair), and rules look
at the device a packet came in by. Rules for what the node itself sends do not exist, so the node reaches no virtual address,
as on Windows. The order is the platform's: load balancing, access rules (which see the backend), OutBoundNAT.

Different from Windows: preserve-destination keeps the port and the source, but the pod sees its own address as destination.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from transom.network import nft
from transom.network.kernel import names
from transom.network.model.addresses import family, within
from transom.network.model.switch import DSR, PRESERVE, Acl, Net, OutboundNat, Port, Switch
from transom.network.nft import DROP, RETURN, Chain, Dnat, Field, Goto, Hook, Jump, Lookup, Match, Rule, Set, Snat, Table

TABLE = "transom-vfp"
BRIDGED = ("L2Bridge", "L2Tunnel", "Transparent")
"""Types of network that are part of the underlay: packets from there may enter them as they are."""
_PROTOCOLS = {6: "tcp", 17: "udp", 132: "sctp"}
_BY_NUMBER = {"1": "icmp", "6": "tcp", "17": "udp", "58": "icmp", "132": "sctp"}
_TRANSLATED = Match("l4proto", ("tcp", "udp", "sctp"))
_ESTABLISHED = Rule((nft.ACCEPT,), (Match("ct state", ("established", "related")),), "part of a connection that was let in")
_PLACE: tuple[Field, ...] = ("daddr", "l4proto", "dport")
_PORT: tuple[Field, ...] = ("l4proto", "dport")
_FIRST_BIT = 16  # of the marks that stand for a source address
_LONGEST = 86400  # seconds that a source keeps its backend: Windows has no limit


class Place(NamedTuple):
    """A port of the switch with a pod behind it."""

    port: Port
    net: Net
    device: str
    reached: bool  # by the node's own stack


@dataclass(slots=True)
class Node:
    """What the rules have to know of the node."""

    switch: Switch
    uplink: str  # the device to the underlay
    addresses: Mapping[int, str]  # the node's own by IP version
    places: Sequence[Place]
    forwarding: bool = False
    tunnels: Mapping[str, str] = field(default_factory=dict)  # network -> its VXLAN device
    closed: frozenset[str] = frozenset()  # networks whose pods may leave with the node's address alone
    logical: Sequence[str] = ()  # prefixes of pods of other nodes, by the node's routes
    networks: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.networks = sorted(net.id for net in self.switch.nets())


class _Balanced(NamedTuple):
    """The chains of one load balancer, and what leads to them."""

    balancer: Mapping[str, Any]  # that they were made of, with `mark`
    mark: int
    chains: dict[str, Chain]
    sets: dict[str, Set]
    entries: list[tuple[str, str, int]]  # address ("": each of the node's), protocol, port
    inside: Goto
    outside: Goto
    networks: frozenset[str]


class Balancers:
    """Chains of load balancers, kept as long as nothing they were made of has changed. Objects of the service are replaced
    when they change, never written to; whoever listens to it calls `touch` for an endpoint."""

    def __init__(self) -> None:
        self._known: dict[str, _Balanced] = {}
        self._devices: dict[str, str] = {}
        self._touched: set[str] = set()

    def touch(self, endpoint: str) -> None:
        self._touched.add(endpoint)

    def of(self, node: Node, version: int, marks: dict[str, int]) -> list[_Balanced]:
        found: dict[str, _Balanced] = {}
        for key, balancer in node.switch.hns.loadbalancers.items():
            if not _has_family(balancer, version):
                continue
            own = node.addresses.get(version, "")
            # A pod that comes back to itself under DSR has the node's address; the source VIP is for other nodes.
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
                    known = _balanced(name, balancer, mapping, _backends(node.switch, balancer, version), self._devices,
                                      mark, version)  # fmt: skip
                found[name] = known
        self._known = {**{name: kept for name, kept in self._known.items() if name[-1] != str(version)}, **found}
        return list(found.values())

    def begin(self, node: Node) -> None:
        """A pod that is plugged in or out changes how the connections to itself are led."""
        devices = {place.port.id: place.device for place in node.places}
        self._touched.update(key for key, _ in devices.items() ^ self._devices.items())
        self._devices = devices

    def end(self) -> None:
        self._touched.clear()


def compile_tables(node: Node, kept: Balancers, versions: Iterable[Literal[4, 6]]) -> dict[str, Table]:
    kept.begin(node)
    tables = {f"ip{'' if version == 4 else 6} {TABLE}": _table(node, kept, version) for version in versions}
    kept.end()
    return tables


def _table(node: Node, kept: Balancers, version: Literal[4, 6]) -> Table:
    marks: dict[str, int] = {}
    balanced = kept.of(node, version, marks)
    table = Table("ip" if version == 4 else "ip6", TABLE)
    _ports(table, node)
    for each in balanced:
        table.chains.update(each.chains)
        table.sets.update(each.sets)
    _load_balancing(table, node, balanced, version)
    _sources(table, node, marks, version)
    _access(table, node, marks, version)
    _leaving(table, node, version)
    return table


def _ports(table: Table, node: Node) -> None:
    """Sets of devices: what comes and goes with pods are elements of sets, which the kernel takes fastest."""
    for number, net in enumerate(node.networks):
        devices = [place.device for place in node.places if place.net.id == net]
        table.sets[f"from{number}"] = Set(("iifname",), {(device,) for device in devices})
        table.sets[f"into{number}"] = Set(("oifname",), {(device,) for device in devices})
    closed = [place.device for place in node.places if not place.reached]
    table.sets["closed"] = Set(("oifname",), {(device,) for device in (*closed, *node.tunnels.values())})


# ---- load balancing --------------------------------------------------------------------------------------------------


def _has_family(balancer: Mapping[str, Any], version: int) -> bool:
    vips = balancer.get("FrontendVIPs")
    if vips:
        return any(family(vip) == version for vip in vips)
    return bool((balancer.get("Flags") or 0) & 2) == (version == 6)


def _backends(switch: Switch, balancer: Mapping[str, Any], version: int) -> list[Port]:
    ports = (switch.port(key) for key in balancer["HostComputeEndpoints"])
    return [port for port in ports if port is not None and port.address(version)]


def _balanced(
    key: str, balancer: Mapping[str, Any], mapping: Mapping[str, Any], backends: Sequence[Port], devices: Mapping[str, str],
    mark: int, version: int,
) -> _Balanced:  # fmt: skip
    name = names.hashed("lb", key)
    protocol = _PROTOCOLS[mapping["Protocol"]]
    ported = Match("l4proto", (protocol,))
    dsr = bool((balancer.get("Flags") or 0) & DSR)
    preserve = bool((mapping.get("Flags") or 0) & PRESERVE)
    sticky = bool(mapping.get("DistributionType"))
    chains: dict[str, Chain] = {}
    sets: dict[str, Set] = {}
    choices = []
    first: list[Rule] = []
    for backend in backends:
        address = backend.address(version)
        chain = f"{name}-{address.replace(':', '.')}"
        choices.append(Goto(chain))
        rules = []
        if sticky:
            sets[f"{chain}-by"] = Set(("saddr",), dynamic=True)
            first.append(Rule((Goto(chain),), (Match("saddr", named=f"{chain}-by"),), "the backend this source had before"))
            rules.append(Rule((nft.Remember(f"{chain}-by", ("saddr",), _LONGEST),)))
        if preserve and backend.remote:
            chains[chain] = Chain([*rules, Rule((DROP,), comment="on another node, and the destination would stay")])
            continue
        to = Dnat(address, 0 if preserve else mapping["InternalPort"])
        rules += _to_itself(backend, devices.get(backend.id, ""), to, mark, ported, dsr=dsr)
        remote = not dsr and not preserve and backend.remote
        rules.append(Rule((nft.SetMark(mark), to) if remote else (to,), (ported,)))
        chains[chain] = Chain(rules)
    chosen = Rule((nft.Spread(tuple(choices)),)) if choices else Rule((DROP,), comment="no backend is left")
    chains[name] = Chain([*first, chosen])
    outside = Goto(name)
    if not dsr and not preserve:
        outside = Goto(f"{name}-out")
        chains[outside.chain] = Chain([Rule((nft.SetMark(mark),)), Rule((Goto(name),))])
    vips = [vip for vip in balancer.get("FrontendVIPs") or ("",) if not vip or family(vip) == version]
    entries = [(vip, protocol, mapping["ExternalPort"]) for vip in vips]
    return _Balanced(balancer, mark, chains, sets, entries, Goto(name), outside, frozenset(b.network for b in backends))


def _to_itself(backend: Port, device: str, to: Dnat, mark: int, ported: Match, *, dsr: bool) -> list[Rule]:
    """A pod whose connection comes back to it needs another source, which DSR gives to nobody but by a rule for that."""
    if not device or backend.remote:
        return []
    mine = (Match("iifname", (device,)), ported)
    if dsr and not any(nat.destinations and nat.concerns(to.address) for nat in backend.nats):
        return [Rule((DROP,), mine, "the pod itself, without loopbackDSR")]
    return [Rule((nft.SetMark(mark), to), mine, "the pod itself")]


def _load_balancing(table: Table, node: Node, balanced: Sequence[_Balanced], version: int) -> None:
    """One map for each network's ports, and one for what comes from the underlay."""
    before = Chain(hook=Hook("nat", "prerouting", -100))
    table.chains["prerouting"] = before
    for number, net in enumerate(node.networks):
        serving = [b for b in balanced if net in b.networks]
        _maps(table, str(number), [(entry, b.inside) for b in serving for entry in b.entries])
        before.rules.append(Rule((Goto(f"from{number}"),), (Match("iifname", named=f"from{number}"),)))
    if node.uplink:
        entries = [(entry, b.outside) for b in balanced for entry in b.entries]
        taken = {entry for entry, _ in entries}
        for entry, address, port in _mappings(node, version):
            if entry not in taken:
                chain = names.hashed("map", *map(str, entry))
                table.chains[chain] = Chain([Rule((Dnat(address, port),), (Match("l4proto", (entry[1],)),), "port mapping")])
                entries.append((entry, Goto(chain)))
        _maps(table, "-outside", entries)
        before.rules.append(Rule((Goto("from-outside"),), (Match("iifname", (node.uplink,)),)))


def _maps(table: Table, suffix: str, entries: Sequence[tuple[tuple[str, str, int], Goto]]) -> None:
    """Rules for an address come before those for each address of the node."""
    table.maps[f"places{suffix}"] = nft.VerdictMap(
        _PLACE, {(address, protocol, str(port)): to for (address, protocol, port), to in entries if address}
    )
    table.maps[f"own{suffix}"] = nft.VerdictMap(
        _PORT, {(protocol, str(port)): to for (address, protocol, port), to in entries if not address}
    )
    table.chains[f"from{suffix}"] = Chain([
        Rule((Lookup(_PLACE, f"places{suffix}"),)),
        Rule((Lookup(_PORT, f"own{suffix}"),), (Match("daddr type", ("local",)),)),
    ])  # fmt: skip


def _mappings(node: Node, version: int) -> Iterable[tuple[tuple[str, str, int], str, int]]:
    for key, endpoint in node.switch.hns.endpoints.items():
        for policy in endpoint.get("Policies") or ():
            if policy["Type"] != "PortMapping":
                continue
            port, settings = node.switch.port(key), policy["Settings"]
            address = port.address(version) if port is not None else ""
            protocol = _PROTOCOLS.get(settings["Protocol"])
            if protocol and address and settings.get("ExternalPort"):
                vip = settings.get("VIP") or ""
                if not vip or family(vip) == version:
                    yield (vip, protocol, settings["ExternalPort"]), address, settings["InternalPort"]


# ---- source addresses ------------------------------------------------------------------------------------------------


def _sources(table: Table, node: Node, marks: Mapping[str, int], version: int) -> None:
    after = Chain(hook=Hook("nat", "postrouting", 100))
    table.chains["postrouting"] = after
    for source, mark in marks.items():
        if source:
            # The mark must not stay: around the packet there may be another, with a source of its own.
            marked = Match("mark", (f"{mark:#x}/{mark:#x}",))
            after.rules.append(Rule((nft.ClearMark(mark), Snat(source)), (marked,), "load balancing without DSR"))
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
            name = names.hashed("", net_id, repr(found))
            table.sets[f"pods-{name}"] = Set(("saddr",), addresses)
            chain = _of_itself(node, net, source, version) if found is None else _outbound(node, net, found, source, version)
            table.chains[f"nat-{name}"] = Chain(chain)
            after.rules.append(Rule((Jump(f"nat-{name}"),), (Match("saddr", named=f"pods-{name}"),), "OutBoundNAT"))


def _of_itself(node: Node, net: Net, source: str, version: int) -> list[Rule]:
    """WinNAT translates all that leaves its network, OVN all that leaves its logical ones; both ICMP too."""
    inside = (*net.subnets, *(node.logical if net.type == "Transparent" else ()))
    inside = tuple(prefix for prefix in inside if family(prefix.partition("/")[0]) == version)
    return [Rule((RETURN,), (Match("daddr", _distinct(inside)),), "inside"), Rule((Snat(source),))]


def _outbound(node: Node, net: Net, nats: Sequence[OutboundNat], source: str, version: int) -> list[Rule]:
    same = Match("oifname", named=f"into{node.networks.index(net.id)}")
    rules = [Rule((RETURN,), (same,), "it does not leave the switch")]
    exceptions = tuple(dict.fromkeys(e for nat in nats for e in nat.exceptions if family(e.partition("/")[0]) == version))
    if exceptions:
        rules.append(Rule((RETURN,), (Match("daddr", _distinct(exceptions)),), "exceptions"))
    rules.append(Rule((Snat(source),), (_TRANSLATED,)))  # VFP cannot translate ICMP
    return rules


# ---- access rules ----------------------------------------------------------------------------------------------------


def _access(table: Table, node: Node, marks: Mapping[str, int], version: int) -> None:
    """They decide on the first packet of a connection; who is allowed at one port may still be blocked at the other. A packet
    with a mark is judged by the source that it will have been given when it arrives."""
    out: list[Rule] = []
    into: list[Rule] = []
    for place in node.places:
        acls = sorted((*place.net.acls, *place.port.acls), key=lambda acl: acl.priority)
        sides: tuple[tuple[bool, Field, list[Rule]], ...] = ((False, "iifname", out), (True, "oifname", into))
        for inward, field_name, rules in sides:
            chosen = [acl for acl in acls if acl.inward is inward]
            own = [rule for acl in chosen for rule in _acl(place.net, acl, version)]
            if own:
                chain = f"{'in' if inward else 'out'}-{place.device}"
                table.chains[chain] = Chain(own)
                for source, mark in marks.items() if inward else ():
                    given = [rule for acl in chosen for rule in _acl(place.net, acl, version, source)]
                    if source and given != own:
                        named = f"{chain}-{source.replace(':', '.')}"
                        table.chains[named] = Chain(given)
                        own.insert(0, Rule((Goto(named),), (Match("mark", (f"{mark:#x}/{mark:#x}",)),)))
                rules.append(Rule((Jump(chain),), (Match(field_name, (place.device,)),)))
    # Not even answers: the node has no route there.
    nowhere = Rule((DROP,), (Match("oifname", named="closed"),), "the node has no way there")
    table.chains["input"] = Chain([_ESTABLISHED, *out], Hook("filter", "input", 0))
    table.chains["output"] = Chain([nowhere, _ESTABLISHED, *into], Hook("filter", "output", 0))
    table.chains["forward"] = Chain([*_kept_in(node), _ESTABLISHED, *_ways(node), *out, *into], Hook("filter", "forward", 0))


def _acl(net: Net, acl: Acl, version: int, source: str = "") -> list[Rule]:
    """`source` is the remote address, where that is known already."""
    local: tuple[Field, Field] = ("daddr", "dport") if acl.inward else ("saddr", "sport")
    remote: tuple[Field, Field] = ("saddr", "sport") if acl.inward else ("daddr", "dport")
    matches: list[Match] = []
    for name, texts in ((local[0], acl.local), (remote[0], acl.remote)):
        if texts:
            found = tuple(a for a in _expanded(net, texts) if family(a.partition("/")[0]) == version)
            if not found or (source and texts is acl.remote and not any(within(source, text) for text in found)):
                return []
            if not source or texts is not acl.remote:
                matches.append(Match(name, _distinct(found)))
    protocols = tuple(dict.fromkeys(_BY_NUMBER.get(number, number) for number in sorted(acl.protocols)))
    ports = ((local[1], acl.local_ports), (remote[1], acl.remote_ports))
    if any(ranges for _, ranges in ports):
        protocols = tuple(p for p in protocols or ("tcp", "udp", "sctp") if p in ("tcp", "udp", "sctp"))
        if not protocols:
            return []
    if protocols:
        matches.insert(0, Match("l4proto", protocols))
    for name, ranges in ports:
        if ranges:
            matches.append(Match(name, tuple(str(low) if low == high else f"{low}-{high}" for low, high in ranges)))
    return [Rule((RETURN if acl.allow else DROP,), tuple(matches), acl.name)]


def _expanded(net: Net, texts: Iterable[str], seen: frozenset[str] = frozenset()) -> list[str]:
    """Sets of addresses, and sets of those, by their members."""
    out: list[str] = []
    for text in texts:
        named = net.sets.get(text)
        if named is None:
            out.append(text)
        elif text not in seen:
            out += _expanded(net, [part.strip() for part in named.split(",") if part.strip()], seen | {text})
    return out


def _distinct(texts: Iterable[str]) -> tuple[str, ...]:
    """Without what another one contains: the kernel takes no overlapping elements."""
    found = [ipaddress.ip_network(text, strict=False) for text in texts]
    return tuple(str(n) for n in ipaddress.collapse_addresses(found))  # type: ignore[type-var]


# ---- forwarding ------------------------------------------------------------------------------------------------------


def _kept_in(node: Node) -> list[Rule]:
    """What pods send, answers too, that a virtual machine's adapter does not let out with a MAC address that is not its own."""
    if not node.uplink or node.switch.hns.mac_spoofing:
        return []
    out = Match("oifname", (node.uplink, *node.tunnels.values()))
    pods = (Match("iifname", named=f"from{number}") for number, _ in enumerate(node.networks))
    return [Rule((DROP,), (each, out), "MAC spoofing is off") for each in pods]


def _ways(node: Node) -> list[Rule]:
    """Which ways through the node there are, by the kinds of network."""
    rules = []
    plain = Match("ct status", ("dnat",), negate=True)
    for number, net_id in enumerate(node.networks):
        net = node.switch.net(net_id)
        assert net is not None
        into = Match("oifname", named=f"into{number}")
        if net.type not in BRIDGED and node.uplink:
            card = Match("iifname", (node.uplink,))
            rules.append(Rule((DROP,), (card, into, plain), f"network {net.name} is not part of the underlay"))
        if net_id in node.tunnels:
            elsewhere = Match("oifname", named=f"into{number}", negate=True)
            rules.append(Rule((DROP,), (Match("iifname", (node.tunnels[net_id],)), elsewhere), "the network has no such port"))
    if node.uplink and not node.forwarding:
        rules.append(Rule((DROP,), (Match("iifname", (node.uplink,)), Match("oifname", (node.uplink,)), plain),
                          "the node does not forward for others"))  # fmt: skip
    return rules


def _leaving(table: Table, node: Node, version: int) -> None:
    """What may not leave by the card with a pod's address, after addresses have been translated."""
    inner = []
    for net_id in dict.fromkeys((*node.tunnels, *sorted(node.closed))):
        net = node.switch.net(net_id)
        inner += [s for s in (net.subnets if net is not None else ()) if family(s.partition("/")[0]) == version]
    if inner and node.uplink:
        matches = (Match("oifname", (node.uplink,)), Match("saddr", _distinct(inner)))
        rule = Rule((DROP,), matches, "no way out with this address")
        table.chains["leaving"] = Chain([rule], Hook("filter", "postrouting", 300))
