"""kube-proxy of a Linux node: keeps the tables `ip transom-proxy` and `ip6 transom-proxy` of its stack.

Lazy: `dirty` says whether the tracker knows more than the tables, `sync` brings them up to date and costs as much as the ports
of services that changed. Tables are changed in place; chains are replaced, never edited, so that a copy of the maps of a
table is a copy of the table. It knows no kernel: whoever listens to the stack puts the tables in force.
"""

from __future__ import annotations

import ipaddress
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from transom.network.nft import (
    ACCEPT,
    DROP,
    Chain,
    ClearMark,
    Field,
    Goto,
    Hook,
    Jump,
    Lookup,
    Masquerade,
    Match,
    Reject,
    Rule,
    Set,
    Table,
    Verdict,
    VerdictMap,
)
from transom.network.stacks import Stack
from transom.proxy.nftables import names
from transom.proxy.nftables.rules import Key, Part, Place
from transom.proxy.nftables.shared import shared_parts
from transom.proxy.nftables.stale import Known, StaleFlow, stale_flows
from transom.proxy.tracker import PortName, Tracker, of_family

Family = Literal["ip", "ip6"]
_SERVICE: tuple[Field, ...] = ("daddr", "l4proto", "dport")
_NODE_PORT: tuple[Field, ...] = ("l4proto", "dport")
_EVERY_ADDRESS = ("0.0.0.0/0", "::/0")
_REMEMBERED_FLOWS = 4096
_NOTHING = Part()


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of kube-proxy, with its defaults."""

    cluster_cidrs: tuple[str, ...] = ()
    masquerade_all: bool = False
    masquerade_bit: int = 14
    node_port_addresses: tuple[str, ...] = ()  # ranges; none: every address of the node
    node_ips: tuple[str, ...] = ()  # none: the addresses that the stack has


class NftablesProxier:
    def __init__(self, tracker: Tracker, node_name: str, stack: Stack, options: Options | None = None) -> None:
        self.tracker = tracker
        self.node_name = node_name
        self.stack = stack
        self.options = options or Options()
        self.stale_udp: deque[StaleFlow] = deque(maxlen=_REMEMBERED_FLOWS)
        """What the connection tracker should forget; whoever has one takes it from here after a sync."""
        self._parts = shared_parts(tracker)
        self._cursor = -1
        self._addresses: tuple[str, ...] = ()
        self._families: dict[Family, _FamilyTable] = {}
        self._known: dict[PortName, Known] = {}

    @property
    def dirty(self) -> bool:
        if not self.tracker.initialized:
            return False
        return self._cursor != self.tracker.sequence or self._addresses != self._own_addresses()

    def sync(self) -> bool:
        """Whether any table changed."""
        if not self.dirty:
            return False
        addresses = self._own_addresses()
        changed, cursor = self.tracker.changed_since(self._cursor) if self._cursor >= 0 else (None, self.tracker.sequence)
        if changed is None or addresses != self._addresses:
            # Everything, and what is gone by now.
            changed = tuple(dict.fromkeys((*self.tracker.service_ports, *self._known)))
        self._addresses, self._cursor = addresses, cursor
        touched: set[Family] = set()
        touched.update(self._prepare("ip"))
        for name in changed:
            touched.update(self._renew(name))
        for family in sorted(touched):
            self.stack.set_table(self._families[family].table)
        return bool(touched)

    def remove(self) -> None:
        """Takes the tables away, as `kube-proxy --cleanup` does."""
        for family in self._families:
            self.stack.delete_table(f"{family} {names.TABLE}")
        self._families.clear()
        self._known.clear()
        self._cursor = -1

    # ---- one port of a service -----------------------------------------------------------------------------------

    def _renew(self, name: PortName) -> Iterable[Family]:
        service = self.tracker.service_ports.get(name)
        endpoints = self.tracker.endpoints.get(name, ()) if service is not None else ()
        before = self._known.get(name, (None, ()))
        if service is None:
            self._known.pop(name, None)
            self._parts.forget(name)
        else:
            self._known[name] = (service, endpoints)
        if service is not None and service.cluster_ip(ipv6=True):
            yield from self._prepare("ip6")
        for family, state in self._families.items():
            part = self._parts.part(name, service, endpoints, state.place) if service is not None else _NOTHING
            if state.replace(name, part):
                yield family
            self.stale_udp.extend(stale_flows(before, (service, endpoints), family == "ip6"))

    # ---- the node ------------------------------------------------------------------------------------------------

    def _prepare(self, family: Family) -> Iterable[Family]:
        """The table of a family is there, and knows the node's addresses."""
        place = self._place(family == "ip6")
        node_port_ips = self._node_port_ips(family == "ip6")
        state = self._families.get(family)
        if state is None:
            state = self._families[family] = _FamilyTable(family, place, node_port_ips)
            return (family,)
        state.place = place
        return (family,) if state.set_node_port_ips(node_port_ips) else ()

    def _place(self, ipv6: bool) -> Place:
        options = self.options
        return Place(
            self.node_name,
            ipv6,
            1 << options.masquerade_bit,
            of_family(options.node_ips or self._addresses, ipv6),
            of_family(options.cluster_cidrs, ipv6),
            options.masquerade_all,
        )

    def _own_addresses(self) -> tuple[str, ...]:
        """Only looked at where they matter: bridges come and go without a change of the rules."""
        if not self.options.node_port_addresses and self.options.node_ips:
            return ()
        found = (str(a.ip) for link in self.stack.links.values() for a in link.addresses)
        return tuple(found)

    def _node_port_ips(self, ipv6: bool) -> tuple[str, ...] | None:
        """None: all."""
        ranges = of_family(self.options.node_port_addresses, ipv6)
        if not self.options.node_port_addresses or any(r in _EVERY_ADDRESS for r in ranges):
            return None
        networks = [ipaddress.ip_network(r, strict=False) for r in ranges]
        return tuple(a for a in of_family(self._addresses, ipv6) if any(ipaddress.ip_address(a) in n for n in networks))


class _FamilyTable:
    """The table of one family, and who wants what in it."""

    def __init__(self, family: Family, place: Place, node_port_ips: tuple[str, ...] | None) -> None:
        self.place = place
        self.table = _skeleton(family, place.mark, node_port_ips)
        self._parts: dict[PortName, Part] = {}
        # Two services may claim one external address and port; then one of them has it, always the same one.
        self._claims: dict[tuple[str, Key], dict[PortName, Goto | Verdict]] = {}

    def replace(self, name: PortName, part: Part) -> bool:
        before = self._parts.get(name)
        if before is None:
            if not (part.elements or part.members):
                return False
            before = _NOTHING
        elif before is part or before == part:
            return False
        table = self.table
        for chain in before.chains.keys() - part.chains.keys():
            del table.chains[chain]
        for chain, content in part.chains.items():
            if before.chains.get(chain) != content:
                table.chains[chain] = content
        for affinity in before.affinities - part.affinities:
            del table.sets[affinity]
        for affinity in part.affinities - before.affinities:
            table.sets[affinity] = Set(("saddr",), dynamic=True)
        for claim in before.elements.keys() - part.elements.keys():
            self._release(name, claim)
        for claim, verdict in part.elements.items():
            self._claims.setdefault(claim, {})[name] = verdict
            self._grant(claim)
        for claim in before.members - part.members:
            self._release(name, claim)
        for claim in part.members:
            self._claims.setdefault(claim, {})[name] = ACCEPT
            table.sets[claim[0]].elements.add(claim[1])
        if part.elements or part.members:
            self._parts[name] = part
        else:
            del self._parts[name]
        return True

    def set_node_port_ips(self, addresses: tuple[str, ...] | None) -> bool:
        found = self.table.sets.get(names.NODE_PORT_IPS)
        wanted: set[Key] = {(a,) for a in addresses or ()}
        if found is None or found.elements == wanted:
            return False
        found.elements = wanted
        return True

    def _release(self, name: PortName, claim: tuple[str, Key]) -> None:
        claims = self._claims[claim]
        del claims[name]
        if claims:
            if claim[0] in self.table.maps:
                self._grant(claim)
            return
        del self._claims[claim]
        where, key = claim
        if where in self.table.maps:
            del self.table.maps[where].elements[key]
        else:
            self.table.sets[where].elements.discard(key)

    def _grant(self, claim: tuple[str, Key]) -> None:
        claims = self._claims[claim]
        self.table.maps[claim[0]].elements[claim[1]] = claims[min(claims)]


def _skeleton(family: Family, mark: int, node_port_ips: tuple[str, ...] | None) -> Table:
    """The table without services."""
    new = Match("ct state", ("new",))
    local = Match("daddr type", ("local",))
    marked = (f"{mark:#x}/{mark:#x}",)
    node_ports = local if node_port_ips is None else Match("daddr", named=names.NODE_PORT_IPS)
    chains = {
        "nat-prerouting": Chain([Rule((Jump(names.SERVICES),))], Hook("nat", "prerouting", -100)),
        "nat-output": Chain([Rule((Jump(names.SERVICES),))], Hook("nat", "output", -100)),
        "nat-postrouting": Chain([Rule((Jump(names.MASQUERADING),))], Hook("nat", "postrouting", 100)),
        "filter-input": Chain(
            [
                Rule(
                    (ACCEPT,),
                    (Match("l4proto", ("tcp",)), Match("dport", named=names.HEALTH_CHECK_PORTS)),
                    "health checks of services",
                ),
                Rule((Jump(names.EXTERNAL_CHECK),), (new,)),
            ],
            Hook("filter", "input", 0),
        ),
        "filter-forward": Chain(
            [
                Rule((DROP,), (Match("ct state", ("invalid",)),), "would make the client reset its connection"),
                Rule((ACCEPT,), (Match("mark", marked),), "led to a service"),
                Rule((ACCEPT,), (Match("ct state", ("established", "related")),)),
                Rule((Jump(names.CLUSTER_CHECK),), (new,)),
                Rule((Jump(names.EXTERNAL_CHECK),), (new,)),
            ],
            Hook("filter", "forward", 0),
        ),
        "filter-output": Chain([Rule((Jump(names.CLUSTER_CHECK),), (new,))], Hook("filter", "output", 0)),
        names.SERVICES: Chain(
            [
                Rule((Lookup(_SERVICE, names.SERVICE_IPS),)),
                Rule((Lookup(_NODE_PORT, names.SERVICE_NODE_PORTS),), (node_ports,)),
            ]
        ),
        names.MASQUERADING: Chain([Rule((ClearMark(mark), Masquerade()), (Match("mark", marked),))]),
        names.CLUSTER_CHECK: Chain([Rule((Lookup(_SERVICE, names.NO_ENDPOINTS_CLUSTER),))]),
        names.EXTERNAL_CHECK: Chain(
            [
                Rule((Lookup(_SERVICE, names.NO_ENDPOINTS_EXTERNAL),)),
                Rule((Lookup(_NODE_PORT, names.NO_ENDPOINTS_NODE_PORTS),), (local,)),
            ]
        ),
        names.REJECT: Chain([Rule((Reject(),))]),
    }
    sets = {names.HEALTH_CHECK_PORTS: Set(("dport",))}
    if node_port_ips is not None:
        sets[names.NODE_PORT_IPS] = Set(("daddr",), {(a,) for a in node_port_ips})
    maps = {
        names.SERVICE_IPS: VerdictMap(_SERVICE),
        names.SERVICE_NODE_PORTS: VerdictMap(_NODE_PORT),
        names.NO_ENDPOINTS_CLUSTER: VerdictMap(_SERVICE),
        names.NO_ENDPOINTS_EXTERNAL: VerdictMap(_SERVICE),
        names.NO_ENDPOINTS_NODE_PORTS: VerdictMap(_NODE_PORT),
    }
    return Table(family, names.TABLE, chains, sets, maps)
