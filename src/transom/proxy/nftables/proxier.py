"""kube-proxy of a Linux node: maintains the tables `ip transom-proxy` and `ip6 transom-proxy` of
its stack.

Lazy: `dirty` is whether the tracker is ahead of the tables, and `sync` updates them at a cost
proportional to the changed service ports. Tables change in place; chains are replaced, never
edited, so copying the maps of a table copies the table. It does not touch the kernel: the listener
of the stack applies the tables.
"""

from __future__ import annotations

import ipaddress
from collections import deque
from collections.abc import Iterable
from typing import Literal

from transom.kit.lazy_dataclass import dataclass
from transom.network.nft import (
    ACCEPT,
    DROP,
    ClearMark,
    Field,
    Goto,
    Jump,
    Masquerade,
    NftChain,
    NftHook,
    NftLookup,
    NftMatch,
    NftRule,
    NftSet,
    NftTable,
    NftVerdict,
    Reject,
    VerdictMap,
)
from transom.network.stacks import NetworkStack
from transom.proxy.nftables import names
from transom.proxy.nftables.rules import Key, RuleContext, ServicePortRules
from transom.proxy.nftables.shared import shared_service_rules
from transom.proxy.nftables.stale import Known, StaleFlow, stale_flows
from transom.proxy.tracker import PortName, ServiceTracker, addresses_of_family

Family = Literal["ip", "ip6"]
_SERVICE: tuple[Field, ...] = ("daddr", "l4proto", "dport")
_NODE_PORT: tuple[Field, ...] = ("l4proto", "dport")
_EVERY_ADDRESS = ("0.0.0.0/0", "::/0")
_REMEMBERED_FLOWS = 4096
_NOTHING = ServicePortRules()


@dataclass(frozen=True, slots=True)
class NftablesOptions:
    """Settings of kube-proxy, with its defaults."""

    cluster_cidrs: tuple[str, ...] = ()
    masquerade_all: bool = False
    masquerade_bit: int = 14
    node_port_addresses: tuple[str, ...] = ()  # CIDRs; empty: every address of the node
    node_ips: tuple[str, ...] = ()  # empty: the addresses of the stack


class NftablesProxier:
    def __init__(
        self,
        tracker: ServiceTracker,
        node_name: str,
        stack: NetworkStack,
        options: NftablesOptions | None = None,
    ) -> None:
        self.tracker = tracker
        self.node_name = node_name
        self.stack = stack
        self.options = options or NftablesOptions()
        self.stale_udp: deque[StaleFlow] = deque(maxlen=_REMEMBERED_FLOWS)
        """Connection tracking entries to delete; the caller consumes them after a sync."""
        self._shared_rules = shared_service_rules(tracker)
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
        """Returns whether any table changed."""
        if not self.dirty:
            return False
        addresses = self._own_addresses()
        changed, cursor = (
            self.tracker.changed_since(self._cursor)
            if self._cursor >= 0
            else (None, self.tracker.sequence)
        )
        if changed is None or addresses != self._addresses:
            # All current ports, and those that no longer exist.
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
        """Removes the tables, like `kube-proxy --cleanup`."""
        for family in self._families:
            self.stack.delete_table(f"{family} {names.TABLE}")
        self._families.clear()
        self._known.clear()
        self._cursor = -1

    # ---- one port of a service ----

    def _renew(self, name: PortName) -> Iterable[Family]:
        service = self.tracker.service_ports.get(name)
        endpoints = self.tracker.endpoints.get(name, ()) if service is not None else ()
        before = self._known.get(name, (None, ()))
        if service is None:
            self._known.pop(name, None)
            self._shared_rules.forget(name)
        else:
            self._known[name] = (service, endpoints)
        if service is not None and service.cluster_ip(ipv6=True):
            yield from self._prepare("ip6")
        for family, state in self._families.items():
            part = (
                self._shared_rules.rules_of(name, service, endpoints, state.place)
                if service is not None
                else _NOTHING
            )
            if state.replace(name, part):
                yield family
            self.stale_udp.extend(stale_flows(before, (service, endpoints), family == "ip6"))

    # ---- the node ----

    def _prepare(self, family: Family) -> Iterable[Family]:
        """Ensures that the table of a family exists and has the node's addresses."""
        place = self._place(family == "ip6")
        node_port_ips = self._node_port_ips(family == "ip6")
        state = self._families.get(family)
        if state is None:
            state = self._families[family] = _FamilyTable(family, place, node_port_ips)
            return (family,)
        state.place = place
        return (family,) if state.set_node_port_ips(node_port_ips) else ()

    def _place(self, ipv6: bool) -> RuleContext:
        options = self.options
        return RuleContext(
            self.node_name,
            ipv6,
            1 << options.masquerade_bit,
            addresses_of_family(options.node_ips or self._addresses, ipv6),
            addresses_of_family(options.cluster_cidrs, ipv6),
            options.masquerade_all,
            self.tracker.zone_of(self.node_name),
        )

    def _own_addresses(self) -> tuple[str, ...]:
        """Read only if the rules depend on them: bridges come and go without affecting the
        rules.
        """
        if not self.options.node_port_addresses and self.options.node_ips:
            return ()
        found = (str(a.ip) for link in self.stack.links.values() for a in link.addresses)
        return tuple(found)

    def _node_port_ips(self, ipv6: bool) -> tuple[str, ...] | None:
        """None: all addresses."""
        ranges = addresses_of_family(self.options.node_port_addresses, ipv6)
        if not self.options.node_port_addresses or any(r in _EVERY_ADDRESS for r in ranges):
            return None
        networks = [ipaddress.ip_network(r, strict=False) for r in ranges]
        return tuple(
            a
            for a in addresses_of_family(self._addresses, ipv6)
            if any(ipaddress.ip_address(a) in n for n in networks)
        )


class _FamilyTable:
    """The table of one family, and the service ports that claim its elements."""

    def __init__(
        self, family: Family, place: RuleContext, node_port_ips: tuple[str, ...] | None
    ) -> None:
        self.place = place
        self.table = _skeleton(family, place.mark, node_port_ips)
        self._shared_rules: dict[PortName, ServicePortRules] = {}
        # Two services may claim the same external address and port; then always the same one wins.
        self._claims: dict[tuple[str, Key], dict[PortName, Goto | NftVerdict]] = {}

    def replace(self, name: PortName, part: ServicePortRules) -> bool:
        before = self._shared_rules.get(name)
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
            table.sets[affinity] = NftSet(("saddr",), dynamic=True)
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
            self._shared_rules[name] = part
        else:
            del self._shared_rules[name]
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


def _skeleton(family: Family, mark: int, node_port_ips: tuple[str, ...] | None) -> NftTable:
    """The table without services."""
    new = NftMatch("ct state", ("new",))
    local = NftMatch("daddr type", ("local",))
    marked = (f"{mark:#x}/{mark:#x}",)
    node_ports = local if node_port_ips is None else NftMatch("daddr", named=names.NODE_PORT_IPS)
    chains = {
        "nat-prerouting": NftChain(
            [NftRule((Jump(names.SERVICES),))], NftHook("nat", "prerouting", -100)
        ),
        "nat-output": NftChain([NftRule((Jump(names.SERVICES),))], NftHook("nat", "output", -100)),
        "nat-postrouting": NftChain(
            [NftRule((Jump(names.MASQUERADING),))], NftHook("nat", "postrouting", 100)
        ),
        "filter-input": NftChain(
            [
                NftRule(
                    (ACCEPT,),
                    (
                        NftMatch("l4proto", ("tcp",)),
                        NftMatch("dport", named=names.HEALTH_CHECK_PORTS),
                    ),
                    "health checks of services",
                ),
                NftRule((Jump(names.EXTERNAL_CHECK),), (new,)),
            ],
            NftHook("filter", "input", 0),
        ),
        "filter-forward": NftChain(
            [
                NftRule(
                    (DROP,),
                    (NftMatch("ct state", ("invalid",)),),
                    "would make the client reset its connection",
                ),
                NftRule((ACCEPT,), (NftMatch("mark", marked),), "led to a service"),
                NftRule((ACCEPT,), (NftMatch("ct state", ("established", "related")),)),
                NftRule((Jump(names.CLUSTER_CHECK),), (new,)),
                NftRule((Jump(names.EXTERNAL_CHECK),), (new,)),
            ],
            NftHook("filter", "forward", 0),
        ),
        "filter-output": NftChain(
            [NftRule((Jump(names.CLUSTER_CHECK),), (new,))], NftHook("filter", "output", 0)
        ),
        names.SERVICES: NftChain(
            [
                NftRule((NftLookup(_SERVICE, names.SERVICE_IPS),)),
                NftRule((NftLookup(_NODE_PORT, names.SERVICE_NODE_PORTS),), (node_ports,)),
            ]
        ),
        names.MASQUERADING: NftChain(
            [NftRule((ClearMark(mark), Masquerade()), (NftMatch("mark", marked),))]
        ),
        names.CLUSTER_CHECK: NftChain(
            [NftRule((NftLookup(_SERVICE, names.NO_ENDPOINTS_CLUSTER),))]
        ),
        names.EXTERNAL_CHECK: NftChain(
            [
                NftRule((NftLookup(_SERVICE, names.NO_ENDPOINTS_EXTERNAL),)),
                NftRule((NftLookup(_NODE_PORT, names.NO_ENDPOINTS_NODE_PORTS),), (local,)),
            ]
        ),
        names.REJECT: NftChain([NftRule((Reject(),))]),
    }
    sets = {names.HEALTH_CHECK_PORTS: NftSet(("dport",))}
    if node_port_ips is not None:
        sets[names.NODE_PORT_IPS] = NftSet(("daddr",), {(a,) for a in node_port_ips})
    maps = {
        names.SERVICE_IPS: VerdictMap(_SERVICE),
        names.SERVICE_NODE_PORTS: VerdictMap(_NODE_PORT),
        names.NO_ENDPOINTS_CLUSTER: VerdictMap(_SERVICE),
        names.NO_ENDPOINTS_EXTERNAL: VerdictMap(_SERVICE),
        names.NO_ENDPOINTS_NODE_PORTS: VerdictMap(_NODE_PORT),
    }
    return NftTable(family, names.TABLE, chains, sets, maps)
