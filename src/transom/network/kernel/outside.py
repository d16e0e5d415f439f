"""The plan of the external host: it is the nodes' router and stands for the whole Internet, so it
has all public addresses.

A client that connects to one gets an answer, even if that is a refusal. Incoming connections reach
machines, not pods, even if pods have addresses of the machines' network.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache

from transom.network.kernel.plan import FORWARDING, StackPlan, linux_stack_plan
from transom.network.nft import DROP, NftChain, NftHook, NftMatch, NftRule, NftSet, NftTable
from transom.network.stacks import Fabric, Network, NetworkStack

TABLE = "transom-outside"
_NOT_PUBLIC = {
    4: (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/3",
    ),
    6: ("2001::/23", "2001:db8::/32", "2002::/16"),
}
_PUBLIC = {4: "0.0.0.0/0", 6: "2000::/3"}


def plan_outside(stack: NetworkStack, fabric: Fabric, bridged: Iterable[str]) -> StackPlan:
    """`bridged` are the pod addresses in the underlay."""
    wanted = linux_stack_plan(stack, fabric)
    wanted.sysctls.update(dict.fromkeys(FORWARDING, "1"))
    for version in (4, 6):
        wanted.special.update(dict.fromkeys(_public(version), "local"))
    for route in stack.routes():  # routed elsewhere, like the address of a load balancer
        if route.via and route.destination.prefixlen and route.destination.is_global:
            wanted.special[str(route.destination)] = "throw"
    pods = sorted(bridged)
    if pods:
        wanted.tables[f"ip {TABLE}"] = _closed(pods, fabric.underlay)
    return wanted


def _closed(pods: Iterable[str], underlay: str) -> NftTable:
    matches = (NftMatch("daddr", named="pods"), NftMatch("saddr", (underlay,), negate=True))
    strange = NftRule((DROP,), matches, "no pod is on the Internet")
    chains = {
        point: NftChain([strange], NftHook("filter", point, 0)) for point in ("output", "forward")
    }
    return NftTable("ip", TABLE, chains, {"pods": NftSet(("daddr",), {(pod,) for pod in pods})})


@lru_cache(maxsize=2)
def _public(version: int) -> tuple[str, ...]:
    left: list[Network] = [ipaddress.ip_network(_PUBLIC[version])]
    for text in _NOT_PUBLIC[version]:
        hole = ipaddress.ip_network(text)
        left = [
            part
            for network in left
            for part in (network.address_exclude(hole) if hole.subnet_of(network) else (network,))  # type: ignore[arg-type]
        ]
    return tuple(str(network) for network in left)
