"""Services and their endpoints, as all proxiers of the process read them.

One tracker serves all nodes: informers feed it object by object, and the cost of a change is
proportional to the affected service. Proxiers read the two maps and keep a cursor into the journal
of changes; they determine which endpoints are local (`ProxyEndpoint.is_local`), because the tracker
does not depend on a node, nor on rules, kernels or the host networking service.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from operator import attrgetter
from typing import Any, Literal

from transom.kit.lazy_dataclass import dataclass
from transom.kit.named_tuple import NamedTuple

log = logging.getLogger("transom.proxy")

SERVICE_NAME = "kubernetes.io/service-name"
SKIPPED_LABELS = ("service.kubernetes.io/service-proxy-name", "service.kubernetes.io/headless")
READ_ANNOTATIONS = (
    "preserve-destination",
    "service.kubernetes.io/topology-mode",
    "service.kubernetes.io/topology-aware-hints",
)
"""The annotations that a proxier reads; changes of others are ignored."""

DEFAULT_AFFINITY_SECONDS = 10800
_HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
_SUPPORTED_ADDRESSES = ("IPv4", "IPv6")
_TOMBSTONES = 10_000
MOST_PORTS = 2_000  # of one service; proxiers of all nodes program each
MOST_ENDPOINTS = 20_000  # of all ports of one service; the same for its external addresses

Source = Literal["slices", "endpoints"]
ServiceName = tuple[str, str]
"""Namespace and name."""


class PortName(NamedTuple):
    """One port of a service: the unit that proxiers create rules for."""

    namespace: str
    name: str
    port_name: str = ""
    protocol: str = "TCP"

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" + (f":{self.port_name}" if self.port_name else "")

    @property
    def service(self) -> ServiceName:
        return self.namespace, self.name


class ProxyEndpoint(NamedTuple):
    address: str
    port: int
    node: str = ""
    ready: bool = True
    serving: bool = True
    terminating: bool = False
    # further nodes that claim the same address, because slices may overlap
    other_nodes: tuple[str, ...] = ()
    zone_hints: tuple[str, ...] = ()  # zones and nodes that should use it
    node_hints: tuple[str, ...] = ()

    def __str__(self) -> str:
        return (
            f"[{self.address}]:{self.port}"
            if ":" in self.address
            else f"{self.address}:{self.port}"
        )

    @property
    def ipv6(self) -> bool:
        return ":" in self.address

    def is_local(self, node: str) -> bool:
        return node != "" and (self.node == node or node in self.other_nodes)


@dataclass(frozen=True, slots=True)
class ServicePort:
    cluster_ips: tuple[str, ...]  # one or two, in the order of ipFamilies
    port: int
    protocol: str = "TCP"
    target_port: int | str = 0
    node_port: int = 0
    external_ips: tuple[str, ...] = ()
    ingress_ips: tuple[str, ...] = ()
    external_local: bool = False  # externalTrafficPolicy
    internal_local: bool = False  # internalTrafficPolicy
    affinity: str = "None"
    affinity_seconds: int = 0
    source_ranges: tuple[str, ...] = ()
    health_check_node_port: int = 0
    type: str = "ClusterIP"
    annotations: Mapping[str, str] = field(default_factory=dict)

    def cluster_ip(self, ipv6: bool = False) -> str:
        """The cluster IP of a family, or ""."""
        for address in self.cluster_ips:
            if (":" in address) == ipv6:
                return address
        return ""


def has_hints(endpoints: Iterable[ProxyEndpoint]) -> bool:
    return any(endpoint.zone_hints or endpoint.node_hints for endpoint in endpoints)


def endpoints_for_node(
    endpoints: tuple[ProxyEndpoint, ...], node: str, zone: str
) -> tuple[ProxyEndpoint, ...]:
    """The ready endpoints that a node should use: those hinted for it, else those hinted for its
    zone. Hints count only if all endpoints have them and one is for this node or zone.
    """
    for place, hints_of in (
        (node, attrgetter("node_hints")),
        (zone, attrgetter("zone_hints")),
    ):
        if endpoints and all(map(hints_of, endpoints)):
            found = tuple(e for e in endpoints if place in hints_of(e))
            if found:
                return found
    return endpoints


def endpoint_node(endpoint: Mapping[str, Any]) -> str:
    """The node of an endpoint in a slice: a field since 1.21, before that a topology label with
    either version's name.
    """
    topology = endpoint.get("deprecatedTopology") or endpoint.get("topology") or {}
    return str(endpoint.get("nodeName") or topology.get(_HOSTNAME, ""))


def addresses_of_family(addresses: tuple[str, ...], ipv6: bool) -> tuple[str, ...]:
    """The addresses or CIDRs of the proxier's family."""
    return tuple(a for a in addresses if (":" in a) == ipv6)


class _Slice(NamedTuple):
    ports: tuple[tuple[str, str, int], ...]  # name, protocol, number; by number
    # address, node, ready, serving, terminating, hints for zones and nodes; by address
    endpoints: tuple[tuple[str, str, bool, bool, bool, tuple[str, ...], tuple[str, ...]], ...]


class ServiceTracker:
    """`source` is the kind that endpoints are read from; events of the other kind are ignored."""

    def __init__(self, source: Source = "slices", *, terminating: bool = False) -> None:
        self.source = source
        # whether terminating endpoints that still serve are tracked, with ready=False
        self.terminating = terminating
        self.service_ports: dict[PortName, ServicePort] = {}
        self.endpoints: dict[PortName, tuple[ProxyEndpoint, ...]] = {}
        self.health_checks: dict[ServiceName, int] = {}
        self.listeners: list[Callable[[tuple[PortName, ...]], None]] = []
        self.sequence = 0
        self.service_changes = 0
        self.endpoint_changes = 0
        self._of_service: dict[ServiceName, dict[PortName, ServicePort]] = {}
        self._of_endpoints: dict[ServiceName, dict[PortName, tuple[ProxyEndpoint, ...]]] = {}
        self._slices: dict[ServiceName, dict[str, _Slice]] = {}
        self._slice_service: dict[tuple[str, str], ServiceName] = {}
        self._journal: dict[PortName, int] = {}  # the latest change of each, oldest first
        self._floor = 0
        self._synced: set[str] = set()
        self._zones: dict[str, str] = {}  # of nodes

    # ---- queries of proxiers ----

    @property
    def initialized(self) -> bool:
        """Services and endpoints have been listed; syncing earlier would remove working rules."""
        return len(self._synced) == 2

    def mark_synced(self, kind: Literal["services", "endpoints"]) -> None:
        """The first list of a kind is complete; slices count as endpoints."""
        self._synced.add(kind)
        self._notify(())

    def changed_since(self, cursor: int) -> tuple[tuple[PortName, ...] | None, int]:
        """The changes after a cursor, and the next cursor; None if the journal no longer reaches
        back that far, so everything may have changed.
        """
        if cursor < self._floor:
            return None, self.sequence
        changed: list[PortName] = []
        for name in reversed(self._journal):
            if self._journal[name] <= cursor:
                break
            changed.append(name)
        changed.reverse()
        return tuple(changed), self.sequence

    def ports_of(self, service: ServiceName) -> Mapping[PortName, ServicePort]:
        return self._of_service.get(service, {})

    def endpoints_of(self, service: ServiceName) -> Mapping[PortName, tuple[ProxyEndpoint, ...]]:
        return self._of_endpoints.get(service, {})

    def local_addresses(self, service: ServiceName, node: str, *, ipv6: bool | None = None) -> int:
        """The number of a service's addresses on a node, for its health check."""
        found = {
            endpoint.address
            for endpoints in self.endpoints_of(service).values()
            for endpoint in endpoints
            if endpoint.is_local(node)
            and endpoint.ready
            and (ipv6 is None or endpoint.ipv6 == ipv6)
        }
        return len(found)

    # ---- nodes ----

    def put_node(self, node: Mapping[str, Any]) -> bool:
        """The zone of a node decides which hinted endpoints its proxier uses."""
        metadata = node["metadata"]
        return self._set_zone(metadata["name"], (metadata.get("labels") or {}).get(ZONE) or "")

    def remove_node(self, node: Mapping[str, Any]) -> bool:
        return self._set_zone(node["metadata"]["name"], "")

    def zone_of(self, node: str) -> str:
        return self._zones.get(node, "")

    def _set_zone(self, name: str, zone: str) -> bool:
        if self._zones.get(name, "") == zone:
            return False
        self._zones[name] = zone
        hinted = tuple(name for name, found in self.endpoints.items() if has_hints(found))
        if hinted:
            self._record(dict.fromkeys(hinted))
        return bool(hinted)

    # ---- services ----

    def put_service(self, service: Mapping[str, Any]) -> bool:
        """Returns whether anything that a proxier reads has changed."""
        name = _name_of(service)
        known = next(iter(self._of_service.get(name, {}).values()), None)
        return self._set_service(name, _ports_of(service, known))

    def copy_service(self, service: Mapping[str, Any], other: ServiceTracker) -> bool:
        """Like `put_service`, with the ports of a tracker that already has the service."""
        name = _name_of(service)
        return self._set_service(name, dict(other.ports_of(name)))

    def remove_service(self, service: Mapping[str, Any]) -> bool:
        return self._set_service(_name_of(service), {})

    def _set_service(self, name: ServiceName, now: dict[PortName, ServicePort]) -> bool:
        before = self._of_service.get(name, {})
        self.service_changes += 1
        if before == now:
            return False
        for gone in before.keys() - now.keys():
            del self.service_ports[gone]
        self.service_ports.update(now)
        if now:
            self._of_service[name] = now
        else:
            del self._of_service[name]
        check = next(
            (port.health_check_node_port for port in now.values() if port.health_check_node_port), 0
        )
        if check:
            self.health_checks[name] = check
        else:
            self.health_checks.pop(name, None)
        log.debug("Service %s/%s updated: %d ports", *name, len(now))
        self._record({**before, **now})
        return True

    # ---- endpoints ----

    def put_slice(self, endpoint_slice: Mapping[str, Any]) -> bool:
        if self.source != "slices":
            return False
        if endpoint_slice.get("addressType") not in _SUPPORTED_ADDRESSES:
            log.debug(
                "EndpointSlice address type not supported by kube-proxy: %s",
                endpoint_slice.get("addressType"),
            )
            return False
        metadata = endpoint_slice["metadata"]
        labels = metadata.get("labels") or {}
        if _skipped(labels):
            return self.remove_slice(endpoint_slice)
        key = (metadata.get("namespace", ""), metadata.get("name", ""))
        service = (key[0], labels.get(SERVICE_NAME, ""))
        if not service[1]:
            log.warning(
                "Error getting endpoint slice cache keys: No %s label set on endpoint slice: %s",
                SERVICE_NAME,
                key[1],
            )
            return self.remove_slice(endpoint_slice)
        self.endpoint_changes += 1
        moved = False
        if self._slice_service.get(key, service) != service:
            moved = self.remove_slice(endpoint_slice)
        taken = self._read_slice(endpoint_slice)
        slices = self._slices.setdefault(service, {})
        if slices.get(key[1]) == taken:
            return moved
        slices[key[1]] = taken
        self._slice_service[key] = service
        return self._set_endpoints(service, _merge(service, slices)) or moved

    def remove_slice(self, endpoint_slice: Mapping[str, Any]) -> bool:
        key = _name_of(endpoint_slice)
        service = self._slice_service.pop(key, None)
        if service is None:
            return False
        self.endpoint_changes += 1
        slices = self._slices[service]
        del slices[key[1]]
        if not slices:
            del self._slices[service]
        return self._set_endpoints(service, _merge(service, slices))

    def put_endpoints(self, endpoints: Mapping[str, Any]) -> bool:
        if self.source != "endpoints":
            return False
        if _skipped(endpoints["metadata"].get("labels") or {}):
            return self.remove_endpoints(endpoints)
        self.endpoint_changes += 1
        service = _name_of(endpoints)
        return self._set_endpoints(service, _of_subsets(service, endpoints.get("subsets") or ()))

    def remove_endpoints(self, endpoints: Mapping[str, Any]) -> bool:
        if self.source != "endpoints":
            return False
        self.endpoint_changes += 1
        return self._set_endpoints(_name_of(endpoints), {})

    def _read_slice(self, endpoint_slice: Mapping[str, Any]) -> _Slice:
        ports = []
        for port in (endpoint_slice.get("ports") or ())[:MOST_PORTS]:
            number = port.get("port")
            if not number:
                log.warning("ignoring invalid endpoint port %s", port.get("name", ""))
                continue
            ports.append((port.get("name") or "", port.get("protocol") or "TCP", number))
        endpoints = []
        for endpoint in endpoint_slice.get("endpoints") or ():
            conditions = endpoint.get("conditions") or {}
            ready = conditions.get("ready") is not False
            serving = conditions.get("serving", ready) is True
            terminating = conditions.get("terminating") is True
            if not ready and not (self.terminating and serving and terminating):
                continue
            addresses = endpoint.get("addresses")
            if not addresses:
                log.warning("ignoring invalid endpoint with empty addresses")
                continue
            hints = endpoint.get("hints") or {}
            zones = tuple(hint["name"] for hint in hints.get("forZones") or ())
            nodes = tuple(hint["name"] for hint in hints.get("forNodes") or ())
            node = endpoint_node(endpoint)
            endpoints.append((addresses[0], node, ready, serving, terminating, zones, nodes))
        ports.sort(key=lambda port: port[2])
        endpoints.sort()
        return _Slice(tuple(ports), tuple(endpoints))

    def _set_endpoints(
        self, service: ServiceName, now: dict[PortName, tuple[ProxyEndpoint, ...]]
    ) -> bool:
        before = self._of_endpoints.get(service, {})
        if before == now:
            return False
        for gone in before.keys() - now.keys():
            del self.endpoints[gone]
        self.endpoints.update(now)
        if now:
            self._of_endpoints[service] = now
        else:
            del self._of_endpoints[service]
        for name, endpoints in now.items():
            log.debug("Service port %s updated: %d endpoints", name, len(endpoints))
        self._record({**before, **now})
        return True

    # ---- the journal ----

    def _record(self, names: Mapping[PortName, object]) -> None:
        """Records all ports of the object, not only the changed ones: a proxier rebuilds the rules
        of the whole object.
        """
        self.sequence += 1
        for name in names:
            self._journal.pop(name, None)
            self._journal[name] = self.sequence
        if len(self._journal) > len(self.service_ports) + len(self.endpoints) + _TOMBSTONES:
            self._forget()
        self._notify(tuple(names))

    def _forget(self) -> None:
        """Drops removed objects from the journal; readers that are behind start over."""
        gone = [n for n in self._journal if n not in self.service_ports and n not in self.endpoints]
        for name in gone[: -_TOMBSTONES // 2]:
            self._floor = max(self._floor, self._journal.pop(name))

    def _notify(self, names: tuple[PortName, ...]) -> None:
        for listener in self.listeners:
            listener(names)


def _name_of(item: Mapping[str, Any]) -> ServiceName:
    metadata = item["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _skipped(labels: Mapping[str, str]) -> bool:
    return any(label in labels for label in SKIPPED_LABELS)


def _ports_of(
    service: Mapping[str, Any], known: ServicePort | None = None
) -> dict[PortName, ServicePort]:
    """`known` is a port that the service had before: equal lists of addresses are reused."""
    metadata, spec = service["metadata"], service.get("spec") or {}
    kind, cluster_ip = spec.get("type") or "ClusterIP", spec.get("clusterIP") or ""
    if (
        cluster_ip in ("", "None")
        or kind == "ExternalName"
        or _skipped(metadata.get("labels") or {})
    ):
        return {}
    namespace, name = metadata.get("namespace", ""), metadata["name"]
    local = spec.get("externalTrafficPolicy") == "Local"
    affinity = spec.get("sessionAffinity") or "None"
    seconds = 0
    if affinity == "ClientIP":
        settings = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
        seconds = settings.get("timeoutSeconds") or DEFAULT_AFFINITY_SECONDS
    check = 0
    if kind == "LoadBalancer" and local:
        check = spec.get("healthCheckNodePort") or 0
        if not check:
            log.error("Service %s/%s has no healthcheck nodeport", namespace, name)
    annotations = metadata.get("annotations") or {}
    status = (service.get("status") or {}).get("loadBalancer") or {}
    entries = spec.get("ports") or ()
    if len(entries) > MOST_PORTS:
        log.warning("Service %s/%s: only the first %d ports are used", namespace, name, MOST_PORTS)
        entries = entries[:MOST_PORTS]
    most = MOST_ENDPOINTS // (len(entries) or 1)  # addresses that each port is programmed for
    external_ips = tuple(spec.get("externalIPs") or ())[:most]
    ingress_ips = tuple(i["ip"] for i in status.get("ingress") or () if i.get("ip"))[:most]
    source_ranges = tuple(r.strip() for r in spec.get("loadBalancerSourceRanges") or ())[:most]
    if known is not None:  # then ports are compared by identity
        external_ips = known.external_ips if known.external_ips == external_ips else external_ips
        ingress_ips = known.ingress_ips if known.ingress_ips == ingress_ips else ingress_ips
        source_ranges = (
            known.source_ranges if known.source_ranges == source_ranges else source_ranges
        )
    shared: dict[str, Any] = {
        "cluster_ips": tuple(spec.get("clusterIPs") or (cluster_ip,)),
        "external_ips": external_ips,
        "ingress_ips": ingress_ips,
        "external_local": local and kind in ("LoadBalancer", "NodePort"),
        "internal_local": spec.get("internalTrafficPolicy") == "Local",
        "affinity": affinity,
        "affinity_seconds": seconds,
        "source_ranges": source_ranges,
        "health_check_node_port": check,
        "type": kind,
        "annotations": {key: annotations[key] for key in READ_ANNOTATIONS if key in annotations},
    }
    ports = {}
    for port in entries:
        protocol = port.get("protocol") or "TCP"
        ports[PortName(namespace, name, port.get("name") or "", protocol)] = ServicePort(
            port=port["port"],
            protocol=protocol,
            target_port=port.get("targetPort") or port["port"],
            node_port=port.get("nodePort") or 0,
            **shared,
        )
    return ports


def _merge(
    service: ServiceName, slices: Mapping[str, _Slice]
) -> dict[PortName, tuple[ProxyEndpoint, ...]]:
    """The endpoints of all slices of a service; an address in two slices counts once."""
    by_port: dict[PortName, dict[str, ProxyEndpoint]] = {}
    left = MOST_ENDPOINTS
    for name in sorted(slices):
        ports, endpoints = slices[name]
        for port_name, protocol, number in ports:
            left -= len(endpoints) or 1
            if left < 0:
                _warn_of_endpoints(service)
                break
            found = by_port.setdefault(PortName(*service, port_name, protocol), {})
            for address, node, ready, serving, terminating, zones, nodes in endpoints:
                known = found.get(address)
                if known is None:
                    found[address] = ProxyEndpoint(
                        address, number, node, ready, serving, terminating, (), zones, nodes
                    )
                elif node and not known.is_local(node):
                    found[address] = known._replace(other_nodes=(*known.other_nodes, node))
    return {
        name: tuple(sorted(found.values(), key=str)) for name, found in by_port.items() if found
    }


def _warn_of_endpoints(service: ServiceName) -> None:
    log.warning("Service %s/%s: only %d endpoints are used", *service, MOST_ENDPOINTS)


def _of_subsets(service: ServiceName, subsets: Any) -> dict[PortName, tuple[ProxyEndpoint, ...]]:
    """Endpoints are used as they are: in order, and twice if listed twice."""
    found: dict[PortName, list[ProxyEndpoint]] = {}
    left = MOST_ENDPOINTS
    for subset in subsets:
        for port in subset.get("ports") or ():
            left -= len(subset.get("addresses") or ()) or 1
            if left < 0:
                _warn_of_endpoints(service)
                return {name: tuple(endpoints) for name, endpoints in found.items()}
            number = port.get("port")
            if not number:
                log.warning("ignoring invalid endpoint port %s", port.get("name", ""))
                continue
            name = PortName(*service, port.get("name") or "", port.get("protocol") or "TCP")
            for address in subset.get("addresses") or ():
                if not address.get("ip"):
                    log.warning(
                        "ignoring invalid endpoint port %s with empty host", port.get("name", "")
                    )
                    continue
                found.setdefault(name, []).append(
                    ProxyEndpoint(address["ip"], number, address.get("nodeName") or "")
                )
    return {name: tuple(endpoints) for name, endpoints in found.items()}
