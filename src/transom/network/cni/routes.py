"""Routes to the pods of other nodes if no agent of a network solution adds them, like a cloud's
route table.

Needed with win-bridge, azure-vnet and ovn-kubernetes, whose plugins know only their own node.
"""

from __future__ import annotations

from transom.network import winhost
from transom.network.cni.leases import SubnetLease, SubnetLeases
from transom.network.stacks import NetworkStack


class RouteAgent:
    """Lazy, like flanneld: `SubnetLeases.look` brings its node up to date."""

    def __init__(self, node: str, stack: NetworkStack, leases: SubnetLeases) -> None:
        self._node = node
        self._stack = stack
        self._leases = leases
        self._known: dict[str, SubnetLease] = {}
        self._at = -1
        leases.agents[node] = self

    def stop(self) -> None:
        if self._leases.agents.get(self._node) is self:
            del self._leases.agents[self._node]

    def sync(self) -> None:
        if self._at == len(self._leases.steps):
            return
        self._at = len(self._leases.steps)
        wanted = {
            node: lease
            for node, lease in self._leases.by_node.items()
            if node != self._node and lease.subnet
        }
        link = winhost.management_link(self._stack)
        six = (
            any(address.version == 6 for address in self._stack.links[link].addresses)
            if link
            else False
        )
        for node, lease in self._known.items():
            if wanted.get(node) != lease:
                for subnet in filter(None, (lease.subnet, lease.subnet6)):
                    self._stack.delete_route(subnet)
        for node, lease in wanted.items():
            if self._known.get(node) != lease:
                self._stack.replace_route(lease.subnet, link, lease.public_ip)
                if lease.subnet6 and six:
                    self._stack.replace_route(lease.subnet6, link, lease.public_ip6)
        self._known = wanted
