"""The kernel mode of kube-proxy on one Windows node: services become load balancers of the host
networking service.

`sync` updates the node's load balancers and remote endpoints from the tracker and touches only
services that changed or failed before. It never blocks and depends on no API server, data plane or
other node. A change of a service or its endpoints removes all load balancers of the service before
they are recreated, like in kube-proxy.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Iterable, Mapping
from typing import Final, Protocol, TypeVar

from transom.kit.clock import Clock
from transom.machinery.releases.kube_proxy import winkernel_behaviour
from transom.machines.windows.hns import HnsError, HostNetworkService
from transom.proxy.tracker import PortName, ProxyEndpoint, ServiceName, ServicePort, ServiceTracker
from transom.proxy.winkernel.balancers import PROTOCOLS, BalancerFlags, wanted_balancers
from transom.proxy.winkernel.failures import BalancerFailures
from transom.proxy.winkernel.hostnetwork import HnsEndpoint, HnsNetworkInfo, open_host_network
from transom.proxy.winkernel.options import WinkernelOptions
from transom.proxy.winkernel.startup import ProxierError, ProxierStartup, StartedProxier

_COUNT: Final = 1 << 16  # reference counts have 16 bits and wrap around
_PREFIX: Final = "02-11"
_T = TypeVar("_T")


class ServiceHealthServer(Protocol):
    """Serves the health checks of services on the node."""

    def sync(self, ports: Mapping[ServiceName, int], local: Mapping[ServiceName, int]) -> None: ...


class SyncObserver(Protocol):
    """Is notified of each sync: /healthz and the metrics."""

    def queued(self) -> None: ...

    def synced(self, seconds: float, *, complete: bool) -> None: ...


class _Count:
    """The reference count of a remote endpoint."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def up(self) -> None:
        self.value = (self.value + 1) % _COUNT

    def down(self) -> None:
        self.value = (self.value - 1) % _COUNT


class _Backend:
    """One endpoint of one port of a service."""

    __slots__ = ("address", "count", "hns_id", "local", "port")

    def __init__(self, address: str, port: int, local: bool, hns_id: str = "") -> None:
        self.address = address
        self.port = port
        self.local = local
        self.hns_id = hns_id
        self.count: _Count | None = _Count()


class _Service:
    """One service port and what was created for it."""

    __slots__ = ("address", "applied", "balancers", "port", "remote", "target_port")

    def __init__(self, port: ServicePort, address: str) -> None:
        self.port = port
        self.address = address
        self.target_port = port.target_port if isinstance(port.target_port, int) else 0
        self.balancers: dict[tuple[str, str], str] = {}  # slot and VIP -> id
        self.remote: _Backend | None = (
            None  # the remote endpoint for the address itself, on overlay networks
        )
        self.applied = False


class WinkernelProxier:
    def __init__(
        self,
        tracker: ServiceTracker,
        node_name: str,
        hns: HostNetworkService,
        options: WinkernelOptions,
        clock: Clock,
        *,
        health: ServiceHealthServer | None = None,
        observer: SyncObserver | None = None,
        log: logging.Logger | None = None,
    ) -> None:
        """`node_name` is the node name that the proxy uses: --hostname-override if set."""
        self.node_name = node_name
        self.failed = ""  # why it did not start
        self._tracker = tracker
        self._options = options
        self._clock = clock
        self._health = health
        self._observer = observer
        self._log = log or logging.getLogger("transom.proxy")
        self._behaviour = winkernel_behaviour(options.release)
        self._host = open_host_network(hns)
        self._dsr_supported = hns.supports("Direct Server Return (DSR)")
        self._affinity_supported = hns.supports("Session Affinity")
        self._starting: ProxierStartup | None = ProxierStartup(
            self._host, hns, options, self._behaviour, clock, self._log
        )
        self._node: StartedProxier
        self._network: HnsNetworkInfo
        self._cursor = -1
        self._periodic = 0.0
        self._objects: dict[ServiceName, Mapping[PortName, ServicePort]] = {}
        self._endpoint_objects: dict[ServiceName, Mapping[PortName, tuple[ProxyEndpoint, ...]]] = {}
        self._services: dict[PortName, _Service] = {}
        self._backends: dict[PortName, list[_Backend]] = {}
        self._pending: dict[PortName, None] = {}
        self._counts: dict[str, _Count] = {}
        self._failures = BalancerFailures(ipv6=options.ipv6)

    # ---- scheduling ----

    @property
    def dirty(self) -> bool:
        """Whether a sync would do something: there are changes, or the next regular sync is due."""
        if self.failed:
            return False
        if self._starting is not None:
            return self._clock.monotonic() >= self._starting.due
        return self._tracker.sequence != self._cursor or self._clock.monotonic() >= self._periodic

    @property
    def due(self) -> float:
        """The clock time from which it is dirty even without changes."""
        return self._starting.due if self._starting is not None else self._periodic

    def close(self) -> None:
        """The process ends; its load balancers stay."""
        self._host.close()

    def failures(self) -> list[BalancerFailures]:
        """What the metrics of its release count."""
        return [self._failures] if self._behaviour.counts_failures else []

    def lost_services(self) -> list[str]:
        """NAMESPACE/NAME of services whose load balancers were deleted by others. kube-proxy does
        not notice: it creates them again when the service changes, or when it starts.
        """
        exists = self._host.has_balancer
        return list(
            dict.fromkeys(
                f"{name.namespace}/{name.name}"
                for name, service in self._services.items()
                if not all(map(exists, service.balancers.values()))
            )
        )

    # ---- sync ----

    def sync(self) -> None:
        """kube-proxy's syncProxyRules; the first calls perform the startup."""
        if not self.start():
            return
        began = self._clock.monotonic()
        self._periodic = began + self._options.sync_period
        complete = self._sync()
        if self._observer is not None:
            self._observer.synced(self._clock.monotonic() - began, complete=complete)

    def start(self) -> bool:
        """One step of the startup; returns whether it has completed successfully. If two proxiers
        share a node, both must have started before either creates anything: the startup deletes all
        load balancers.
        """
        if self._starting is None:
            return not self.failed
        try:
            started = self._starting.step()
            if started is None:
                return False
            self._node, self._network = started, started.network
            if started.network.overlay and not self._behaviour.source_vip_each_sync:
                self._ensure_source_vip()
        except ProxierError as problem:
            self.failed = f"unable to create proxier: {problem}"
        except HnsError as problem:
            self.failed = (
                f"unable to create proxier: Source Vip endpoint creation failed: {problem}"
            )
        self._starting = None
        if self.failed:
            self._log.error("%s", self.failed)
        return not self.failed

    def _sync(self) -> bool:
        if not self._tracker.initialized:
            self._log.debug(
                "Not syncing hns until Services and Endpoints have been received from master"
            )
            self._periodic = self._clock.monotonic()
            return False
        if not self._network_is_same():
            return False
        self._take_changes()
        if self._network.overlay and self._behaviour.source_vip_each_sync:
            try:
                self._ensure_source_vip()
            except HnsError as problem:
                self._log.error("Source Vip endpoint creation failed: %s", problem)
                return False
        for name in list(self._pending):
            self._apply(name, self._services[name])
        if self._health is not None:
            ports = self._tracker.health_checks
            self._health.sync(
                ports, {s: self._tracker.local_addresses(s, self.node_name) for s in ports}
            )
        return True

    def _network_is_same(self) -> bool:
        name = self._network.name
        try:
            now = self._host.network(name)
        except HnsError:
            now = None
        if now is not None and now.id == self._network.id:
            self._network = now
            return True
        if not self._behaviour.rereads_network:
            return True
        self._log.info(
            (
                "The HNS network %s is not present or has changed since the last sync. Please "
                "check the CNI deployment"
            ),
            name,
        )
        for service in list(self._services):
            self._clean(service)
        if now is not None:
            self._network = now
        return False

    def _ensure_source_vip(self) -> None:
        node = self._node
        if self._host.endpoint_at(node.source_vip, self._network) is None:
            self._host.create_endpoint(
                self._network, node.source_vip, node.host_mac, local=True, provider=node.node_ip
            )

    # ---- changes ----

    def _take_changes(self) -> None:
        changed, self._cursor = self._tracker.changed_since(self._cursor)
        names: Iterable[ServiceName]
        if changed is None:
            tracked = {
                *self._tracker.service_ports,
                *self._tracker.endpoints,
                *self._services,
                *self._backends,
            }
            names = sorted({name.service for name in tracked})
        else:
            names = dict.fromkeys(name.service for name in changed)
        for name in names:
            self._take_service(name)
        for name in names:
            self._take_endpoints(name)

    def _take_service(self, service: ServiceName) -> None:
        ipv6 = self._options.ipv6
        now = {
            n: port for n, port in self._tracker.ports_of(service).items() if port.cluster_ip(ipv6)
        }
        before = self._objects.get(service, {})
        if before == now:
            return
        for name in dict.fromkeys((*now, *before)):
            if name in self._services:
                self._clean(name)
        for name in before:
            if name not in now:
                del self._services[name]
                self._pending.pop(name, None)
        for name, port in now.items():
            self._services[name] = _Service(port, port.cluster_ip(ipv6))
            self._pending[name] = None
        _keep(self._objects, service, now)

    def _take_endpoints(self, service: ServiceName) -> None:
        ipv6 = self._options.ipv6
        found = self._tracker.endpoints_of(service)
        now: dict[PortName, tuple[ProxyEndpoint, ...]] = {}
        for name, endpoints in found.items():
            usable = tuple(e for e in endpoints if e.ipv6 == ipv6)
            if usable:
                now[name] = usable
        before = self._endpoint_objects.get(service, {})
        if before == now or (self._tracker.source == "endpoints" and self._look_alike(before, now)):
            return
        for name in dict.fromkeys((*before, *now)):
            self._clean(name)
        for name in before:
            self._backends.pop(name, None)
        for name, endpoints in now.items():
            self._backends[name] = [
                _Backend(e.address, e.port, e.is_local(self.node_name)) for e in endpoints
            ]
        _keep(self._endpoint_objects, service, now)

    def _look_alike(
        self,
        before: Mapping[PortName, tuple[ProxyEndpoint, ...]],
        now: Mapping[PortName, tuple[ProxyEndpoint, ...]],
    ) -> bool:
        """Compares only what is read from Endpoints; a different node name of a remote pod is not a
        change.
        """
        return before.keys() == now.keys() and all(
            [(e.address, e.port, e.is_local(self.node_name)) for e in before[name]]
            == [(e.address, e.port, e.is_local(self.node_name)) for e in now[name]]
            for name in now
        )

    # ---- removal ----

    def _clean(self, name: PortName) -> None:
        """Removes all load balancers of a port, and its references to remote endpoints."""
        service = self._services.get(name)
        if service is not None:
            for identifier in service.balancers.values():
                self._host.delete_balancer(identifier)
            service.balancers.clear()
        for backend in self._backends.get(name, ()):
            self._release(backend)
        if service is not None:
            if service.remote is not None:
                self._release(service.remote)
            service.applied = False
            self._pending[name] = None

    def _release(self, backend: _Backend) -> None:
        """A local endpoint is never deleted: the plugin created it. Before 1.19, "local" was
        determined from the Endpoints, and each backend had its own reference.
        """
        if backend.count is None or (backend.local and self._behaviour.counts_shared):
            return
        backend.count.down()
        if backend.count.value == 0 and not backend.local:
            try:
                self._host.delete_endpoint(backend.hns_id)
            except HnsError as problem:
                self._log.error("Endpoint deletion failed for %s: %s", backend.address, problem)
            else:
                self._counts.pop(backend.hns_id, None)
                backend.hns_id = ""
        if self._behaviour.counts_shared:
            backend.count = None

    # ---- creation ----

    def _apply(self, name: PortName, service: _Service) -> None:
        if self._network.overlay and not self._ensure_vip(service):
            return
        everywhere: list[str] = []
        here: list[str] = []
        from_node = False
        for backend in self._backends.get(name, ()):
            if not service.target_port or self._behaviour.port_of_last:
                service.target_port = backend.port  # one port for all of them
            found = self._find(backend)
            created = found is None
            if found is None:
                found = self._create_remote(backend)
                if found is None:
                    continue
            if self._network.overlay and not backend.local:
                from_node |= self._from_node(backend.address, created)
            everywhere.append(found.id)
            if found.local:
                here.append(found.id)
            if not self._behaviour.counts_shared:
                assert backend.count is not None
                backend.count.up()
            elif not found.local:
                backend.count = self._counts.setdefault(found.id, _Count())
                backend.count.up()
            backend.hns_id = found.id
        if service.balancers:
            self._log.warning(
                "Load Balancer already exists %s -- Debug ", next(iter(service.balancers.values()))
            )
        if not everywhere:
            self._log.error(
                "Endpoint information not available for service %s. Not applying any policy", name
            )
            return
        source_vip = self._node.node_ip if from_node else self._node.source_vip
        if self._balance(service, everywhere, here, source_vip):
            service.applied = True
            del self._pending[name]
            self._log.debug("+++Policy Successfully applied for service +++, %s", name)

    def _balance(
        self, service: _Service, everywhere: list[str], here: list[str], source_vip: str
    ) -> bool:
        port = service.port
        if (
            self._behaviour.affinity
            and port.affinity == "ClientIP"
            and not self._affinity_supported
        ):
            self._log.warning("Session Affinity is not supported on this version of Windows.")
        protocol = PROTOCOLS.get(port.protocol, 0)
        for one in wanted_balancers(
            port,
            self._behaviour,
            dsr=self._options.enable_dsr,
            dsr_supported=self._dsr_supported,
            ipv6=self._options.ipv6,
        ):
            endpoints = here if one.local_only else everywhere
            if not endpoints and self._behaviour.skips_empty:
                self._log.debug(
                    "Skipped creating Hns LoadBalancer for %s resources, %s", one.slot, one.vip
                )
                continue
            try:
                identifier = self._host.balancer(
                    endpoints,
                    one.flags,
                    source_vip,
                    one.vip,
                    protocol,
                    service.target_port,
                    one.external_port,
                )
            except HnsError as problem:
                self._log.error("Policy creation failed: %s", problem)
                self._failures.creation_failed(one.slot, problem)
                if one.slot in ("cluster", "node port"):
                    return False
                continue  # these are not retried: the service counts as synced
            service.balancers[one.slot, one.vip] = identifier
            self._log.debug(
                "Hns LoadBalancer resource created for %s resources %s, Id [%s]",
                one.slot,
                one.vip,
                identifier,
            )
        if self._options.forward_health_checks and everywhere:
            self._forward_health_checks(service, source_vip)
        return True

    def _forward_health_checks(self, service: _Service, source_vip: str) -> None:
        """The address of a load balancer answers on the port of its health check: from the node."""
        root = self._host.endpoint_named(self._options.root_endpoint)
        if root is None:
            return
        port = service.port
        number = port.health_check_node_port or self._options.healthz_port
        for one in wanted_balancers(
            port,
            self._behaviour,
            dsr=False,
            dsr_supported=self._dsr_supported,
            ipv6=self._options.ipv6,
        ):
            if one.slot != "ingress":
                continue
            direct = one.flags.preserve_dip
            flags = BalancerFlags(use_mux=direct, preserve_dip=direct)
            protocol = PROTOCOLS.get(port.protocol, 0)
            try:
                identifier = self._host.balancer(
                    [root.id], flags, source_vip, one.vip, protocol, number, number
                )
            except HnsError as problem:
                self._log.error("Healthcheck loadbalancer policy creation failed: %s", problem)
                self._failures.creation_failed("health check", problem)
                continue
            service.balancers["health check", one.vip] = identifier

    def _ensure_vip(self, service: _Service) -> bool:
        """On overlay networks a service address is a remote endpoint at this node."""
        if self._host.endpoint_at(service.address, self._network) is not None:
            return True
        try:
            made = self._host.create_endpoint(
                self._network,
                service.address,
                self._node.host_mac,
                local=False,
                provider=self._node.node_ip,
            )
        except HnsError as problem:
            self._log.error("Remote endpoint creation failed for service VIP: %s", problem)
            return False
        service.remote = _Backend(made.address, 0, made.local, made.id)
        if self._behaviour.counts_shared:
            service.remote.count = self._counts.setdefault(made.id, _Count())
        assert service.remote.count is not None
        service.remote.count.up()
        return True

    def _find(self, backend: _Backend) -> HnsEndpoint | None:
        """Finds it by its id if known; otherwise by its address, which finds the node's own pods
        and endpoints of a previous kube-proxy.
        """
        found = self._host.endpoint(backend.hns_id) if backend.hns_id else None
        return found or self._host.endpoint_at(backend.address, self._network)

    def _create_remote(self, backend: _Backend) -> HnsEndpoint | None:
        network = self._network
        if backend.local:
            self._log.error(
                (
                    "Local endpoint not found for %s: err: Endpoint %s not found on network %s "
                    "on network %s"
                ),
                backend.address,
                backend.address,
                network.name,
                network.name,
            )
            return None
        provider = ""
        if network.overlay:
            provider = network.provider_of(backend.address)
            if not provider:
                self._log.info(
                    "Could not find provider address for %s. Assuming it is a public IP",
                    backend.address,
                )
                provider = self._node.node_ip
        try:
            return self._host.create_endpoint(
                network,
                backend.address,
                endpoint_mac(backend.address),
                local=False,
                provider=provider,
            )
        except HnsError as problem:
            self._log.error("Remote endpoint creation failed: %s", problem)
            return None

    def _from_node(self, address: str, created: bool) -> bool:
        """Whether traffic to this backend must have the node's address as source: the backend is a
        node or external.
        """
        if not created and not self._behaviour.classifies_known:
            return False
        provider = self._network.provider_of(address)
        return not provider or (self._behaviour.node_address_source and provider == address)


def endpoint_mac(address: str) -> str:
    """A MAC address derived from an IP address; it never appears on the wire."""
    try:
        packed = ipaddress.ip_address(address).packed
    except ValueError:
        return "02-11-22-33-44-55"
    last = packed if len(packed) == 4 else packed[:-5:-1]
    return _PREFIX + "".join(f"-{byte:02x}" for byte in last)


def _keep(
    where: dict[ServiceName, Mapping[PortName, _T]],
    service: ServiceName,
    value: Mapping[PortName, _T],
) -> None:
    if value:
        where[service] = value
    else:
        where.pop(service, None)
