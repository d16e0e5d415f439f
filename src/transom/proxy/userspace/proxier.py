"""The user space mode of kube-proxy on one Windows node.

Every service address is added to an interface of the node, and the proxy itself listens on it; node
ports listen on all addresses of the node. It reads only Endpoints. When one port of a service is
removed, it removes the address even if another port still uses it, like kube-proxy 1.20.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from transom.kit.clock import Clock
from transom.network.api import Dataplane
from transom.network.stacks import NetworkStack
from transom.proxy.tracker import PortName, ServiceName, ServicePort, ServiceTracker
from transom.proxy.userspace.roundrobin import RoundRobin
from transom.proxy.userspace.sockets import Proxying

log = logging.getLogger("transom.proxy")

INTERFACE: Final = "vEthernet (HNS Internal NIC)"
INTERFACE_VARIABLE: Final = "INTERFACE_TO_ADD_SERVICE_IP"
LOCALHOSTS: Final = ("127.0.0.1", "::1")


class ProxyOnLocalhost(Exception):
    """kube-proxy does not start."""


class _Portal(NamedTuple):
    name: PortName
    address: str  # "" for node ports: every address of the node

    def __str__(self) -> str:
        return f"{self.name}:{self.address}"


class _Open(NamedTuple):
    port: int
    protocol: str
    affinity: str
    close: Callable[[], None]


class UserspaceProxier:
    """`dataplane` is the network as seen from this node: the service addresses it listens on are
    local to this node.
    """

    def __init__(
        self,
        tracker: ServiceTracker,
        node_name: str,
        stack: NetworkStack,
        dataplane: Dataplane,
        clock: Clock,
        *,
        rng: random.Random,
        node_ip: str,
        bind_address: str = "0.0.0.0",
        environment: Mapping[str, str] | None = None,
        sync_period: float = 30.0,
        udp_timeout: float = 0.25,
        suffixes: Sequence[str] = (),
    ) -> None:
        if bind_address in LOCALHOSTS:
            raise ProxyOnLocalhost("unable to create proxier: cannot proxy on localhost")
        self.node_name = node_name
        self.failed = ""
        self._tracker = tracker
        self._stack = stack
        self._dataplane = dataplane
        self._clock = clock
        self._sync_period = sync_period
        self._interface = (environment or {}).get(INTERFACE_VARIABLE) or INTERFACE
        self._balancer = RoundRobin(clock, rng)
        self._proxying = Proxying(dataplane, self._balancer, clock, node_ip, udp_timeout, suffixes)
        self._node_addresses = tuple(stack.addresses()) or (node_ip,)
        self._cursor = -1
        self._periodic = 0.0
        self._services: dict[ServiceName, Mapping[PortName, ServicePort]] = {}
        self._with_endpoints: set[PortName] = set()
        self._open: dict[_Portal, _Open] = {}
        log.debug("Setting proxy IP to %s", node_ip)

    @property
    def dirty(self) -> bool:
        return self._tracker.sequence != self._cursor or self._clock.monotonic() >= self._periodic

    @property
    def due(self) -> float:
        return self._periodic

    def sync(self) -> None:
        """Applies changes; combines kube-proxy's event handling and its periodic removal of expired
        clients.
        """
        self._periodic = self._clock.monotonic() + self._sync_period
        changed, self._cursor = self._tracker.changed_since(self._cursor)
        if changed is None:
            changed = tuple(
                {*self._tracker.service_ports, *self._tracker.endpoints, *self._with_endpoints}
            )
            names = dict.fromkeys((*(n.service for n in changed), *self._services))
        else:
            names = dict.fromkeys(name.service for name in changed)
        for service in names:
            self._take_service(service)
        for name in changed:
            self._take_endpoints(name)
        self._balancer.forget_stale()

    def close(self) -> None:
        for portal in list(self._open):
            self._stop(portal)
        self._proxying.tasks.cancel()

    # ---- services ----

    def _take_service(self, service: ServiceName) -> None:
        now = dict(self._tracker.ports_of(service))
        before = self._services.get(service, {})
        if now == before:
            return
        wanted: dict[_Portal, tuple[int, ServicePort]] = {}
        for name, port in now.items():
            for address, number in _places(port).items():
                wanted[_Portal(name, address)] = (number, port)
        for portal, (number, port) in wanted.items():
            running = self._open.get(portal)
            if running is not None:
                if running[:3] == (number, port.protocol, port.affinity):
                    continue
                log.debug('Something changed for service "%s": stopping it', portal)
                self._stop(portal)
            self._start(portal, number, port)
        for name, port in now.items():
            self._balancer.put_service(name, port.affinity, port.affinity_seconds)
        for name, port in before.items():
            for address in _places(port):
                if _Portal(name, address) not in wanted:
                    log.debug('Stopping service "%s"', _Portal(name, address))
                    self._stop(_Portal(name, address))
            if name not in now:
                self._balancer.remove_service(name)
        if now:
            self._services[service] = now
        else:
            self._services.pop(service, None)

    def _take_endpoints(self, name: PortName) -> None:
        endpoints = [
            (e.address, e.port) for e in self._tracker.endpoints.get(name, ()) if not e.ipv6
        ]
        if endpoints:
            self._with_endpoints.add(name)
            self._balancer.put_endpoints(name, endpoints)
        elif name in self._with_endpoints:
            self._with_endpoints.discard(name)
            self._balancer.remove_endpoints(name)

    # ---- listeners ----

    def _start(self, portal: _Portal, number: int, port: ServicePort) -> None:
        place = f"{portal.address}:{number}/{port.protocol}"
        log.debug('Adding new service "%s" at %s', portal, place)
        try:
            if portal.address:
                self._add_address(portal.address)
            close = self._listen(portal, number, port.protocol)
        except OSError as problem:
            log.error('Failed to start proxy for "%s": %s', portal, problem.strerror or problem)
            return
        self._open[portal] = _Open(number, port.protocol, port.affinity, close)
        log.info('Proxying for service "%s" at %s', portal, place)

    def _listen(self, portal: _Portal, number: int, protocol: str) -> Callable[[], None]:
        addresses = (portal.address,) if portal.address else self._node_addresses
        closers: list[Callable[[], None]] = []
        try:
            for address in addresses:
                if protocol == "TCP":
                    closers.append(
                        self._dataplane.listen(address, number, self._proxying.accept(portal.name))
                    )
                elif protocol == "UDP":
                    closers.append(
                        self._dataplane.answer(address, number, self._proxying.respond(portal.name))
                    )
                else:
                    raise OSError(f"{protocol} is not supported for user space proxy")
        except OSError:
            for close in closers:
                close()
            raise

        def end() -> None:
            for close in closers:
                close()

        return end

    def _stop(self, portal: _Portal) -> None:
        running = self._open.pop(portal, None)
        if running is None:
            log.error('Service "%s" is being removed but doesn\'t exist', portal)
            return
        running.close()
        if portal.address and self._interface in self._stack.links:
            self._stack.delete_address(self._interface, _host(portal.address))

    def _add_address(self, address: str) -> None:
        """`netsh interface ipv4 add address name=... address=...`; without the interface this fails
        silently, and the address cannot be listened on.
        """
        if self._interface not in self._stack.links:
            raise OSError(
                f"listen tcp {address}: bind: The requested address is not valid in its context."
            )
        self._stack.add_address(self._interface, _host(address))


def _places(port: ServicePort) -> dict[str, int]:
    """The listening addresses of a port; IPv6 addresses are skipped, because netsh is called for
    IPv4 only.
    """
    found = {port.cluster_ip(): port.port} if port.cluster_ip() else {}
    for address in (*port.external_ips, *port.ingress_ips):
        if ":" not in address:
            found[address] = port.port
    if port.node_port:
        found[""] = port.node_port
    return found


def _host(address: str) -> str:
    return f"{address}/32"
