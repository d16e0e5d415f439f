"""Services as OVN load balancers: the work of ovnkube's master for all nodes, instead of a
kube-proxy on each.

This version of OVN supports neither session affinity nor external traffic policies: every entry has
all ready endpoints, and a hash of addresses and ports selects one for each connection. An entry
without endpoints rejects connections.
"""

from __future__ import annotations

from transom.network.ovn.database import OvnDatabase, OvnVip
from transom.proxy.tracker import PortName, ServiceTracker


class OvnServices:
    """Updates the load balancers when a node's state is read, like a kube-proxy's rules."""

    def __init__(self, tracker: ServiceTracker, database: OvnDatabase) -> None:
        self._tracker = tracker
        self._database = database
        self._cursor = -1
        # the entries of each service
        self._made: dict[PortName, tuple[tuple[str, str, int], ...]] = {}
        self._node_ports: dict[PortName, tuple[str, int]] = {}

    @property
    def dirty(self) -> bool:
        return self._tracker.initialized and self._cursor != self._tracker.sequence

    def sync(self) -> None:
        if not self.dirty:
            return
        names, self._cursor = self._tracker.changed_since(self._cursor)
        for name in [*self._made, *self._tracker.service_ports] if names is None else names:
            self._drop(name)
            self._put(name)
        self._database.changed()

    def _drop(self, name: PortName) -> None:
        for entry in self._made.pop(name, ()):
            self._database.cluster_vips.pop(entry, None)
            self._database.external_vips.pop(entry, None)
        node_port = self._node_ports.pop(name, None)
        if node_port is not None:
            self._database.node_ports.pop(node_port, None)

    def _put(self, name: PortName) -> None:
        port = self._tracker.service_ports.get(name)
        if port is None:
            return
        protocol = port.protocol.lower()
        backends = tuple(
            (endpoint.address, endpoint.port)
            for endpoint in self._tracker.endpoints.get(name, ())
            if endpoint.ready and not endpoint.ipv6
        )
        vip = OvnVip(str(name), backends)
        inside = [(protocol, ip, port.port) for ip in port.cluster_ips if ":" not in ip]
        outside = [
            (protocol, ip, port.port)
            for ip in (*port.external_ips, *port.ingress_ips)
            if ":" not in ip
        ]
        self._database.cluster_vips.update(dict.fromkeys((*inside, *outside), vip))
        self._database.external_vips.update(dict.fromkeys(outside, vip))
        self._made[name] = (*inside, *outside)
        if port.node_port:
            self._node_ports[name] = protocol, port.node_port
            self._database.node_ports[protocol, port.node_port] = vip
