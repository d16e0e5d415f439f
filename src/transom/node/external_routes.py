"""Routes from the external host to service addresses outside the cluster's ranges: load balancer
ingress and external IPs.

Kubernetes leaves the routing of such addresses to the network. Here the external host, which is the
router of the nodes, has a route for each, through a node that serves it. That node's kube-proxy
decides what happens to the packets.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence

from transom.network.stacks import NetworkStack
from transom.proxy.tracker import ServiceTracker


class ExternalRoutes:
    """`nodes` are the names and addresses of the running nodes, best first."""

    def __init__(
        self,
        outside: NetworkStack,
        tracker: ServiceTracker,
        nodes: Callable[[], Mapping[str, Sequence[str]]],
    ) -> None:
        self._outside = outside
        self._link = next(link.name for link in outside.links.values() if link.kind != "loopback")
        self._tracker = tracker
        self._nodes = nodes
        self._seen: object = None
        self._routes: dict[str, str] = {}  # service address -> node address

    def sync(self) -> None:
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
        own = {
            *self._outside.addresses(),
            *(address for held in nodes.values() for address in held),
        }
        for name, port in self._tracker.service_ports.items():
            addresses = (*port.ingress_ips, *port.external_ips)
            if not addresses:
                continue
            usable = nodes
            if port.external_local:
                serving = {e.node for e in self._tracker.endpoints.get(name, ()) if e.ready}
                usable = {node: held for node, held in nodes.items() if node in serving}
            for address in addresses:
                via = next(
                    (a for held in usable.values() for a in held if (":" in a) == (":" in address)),
                    "",
                )
                if via and address not in own:
                    wanted.setdefault(address, via)
        return wanted


def _alone(address: str) -> str:
    return f"{address}/{ipaddress.ip_address(address).max_prefixlen}"
