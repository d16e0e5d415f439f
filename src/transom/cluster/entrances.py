"""The way in from outside to addresses that services have there: of load balancers, and external ones.

Kubernetes leaves it to whoever runs the network that such addresses lead to nodes. Here the host outside, which is the nodes'
router, has a route for each: by way of a node that would serve it. What happens there is the business of the node's proxy.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence

from transom.network.stacks import Stack
from transom.proxy.tracker import Tracker


class Entrances:
    """`nodes` are the names and addresses of the nodes that run, best first."""

    def __init__(self, outside: Stack, tracker: Tracker, nodes: Callable[[], Mapping[str, Sequence[str]]]) -> None:
        self._outside = outside
        self._link = next(link.name for link in outside.links.values() if link.kind != "loopback")
        self._tracker = tracker
        self._nodes = nodes
        self._seen: object = None
        self._routes: dict[str, str] = {}  # address of a service -> address of a node

    def look(self) -> None:
        """Brings the routes up to date."""
        nodes = self._nodes()
        seen = (self._tracker.sequence, tuple(nodes.values()))
        if seen == self._seen:
            return
        self._seen = seen
        wanted = self._wanted(nodes)
        for address in self._routes.keys() - wanted.keys():
            self._outside.delete_route(_alone(address))
        for address, node in wanted.items():
            if self._routes.get(address) != node:
                self._outside.replace_route(_alone(address), self._link, node)
        self._routes = wanted

    def _wanted(self, nodes: Mapping[str, Sequence[str]]) -> dict[str, str]:
        wanted: dict[str, str] = {}
        own = {*self._outside.addresses(), *(address for held in nodes.values() for address in held)}
        for name, port in self._tracker.service_ports.items():
            addresses = (*port.ingress_ips, *port.external_ips)
            if not addresses:
                continue
            usable = nodes
            if port.external_local:
                serving = {e.node for e in self._tracker.endpoints.get(name, ()) if e.ready}
                usable = {node: held for node, held in nodes.items() if node in serving}
            for address in addresses:
                via = next((a for held in usable.values() for a in held if (":" in a) == (":" in address)), "")
                if via and address not in own:
                    wanted.setdefault(address, via)
        return wanted


def _alone(address: str) -> str:
    return f"{address}/{ipaddress.ip_address(address).max_prefixlen}"
