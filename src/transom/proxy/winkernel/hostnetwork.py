"""The host networking service as kube-proxy uses it: the seven calls that it needs, over either
version of the API.

Both versions read the same state. Version 2 writes with its own schema and supports flags; version
1 writes policy lists, which have neither direct server return nor affinity, and it inverts whether
a new endpoint is local.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from transom.kit.named_tuple import NamedTuple
from transom.machines.windows.hns import HnsError, HostNetworkService
from transom.proxy.winkernel.balancers import BalancerFlags

log = logging.getLogger("transom.proxy")

REMOTE_ENDPOINT: Final = 1  # flag of endpoints
DSR, IPV6 = 1, 2  # flags of load balancers
ILB, LOCAL_ROUTED_VIP, USE_MUX, PRESERVE_DIP = 1, 2, 4, 8  # flags of their port mappings
BY_SOURCE_ADDRESS: Final = 2  # distribution
_SCHEMA: Final = {"Major": 2, "Minor": 0}


class HnsEndpoint(NamedTuple):
    id: str
    address: str
    local: bool


class HnsNetworkInfo:
    """The properties of an HNS network that kube-proxy stores: enough to detect that it was
    replaced, and which node has which subnet.
    """

    __slots__ = ("_providers", "_subnets", "id", "name", "type")

    def __init__(self, settings: Mapping[str, Any], *, subnets: bool) -> None:
        self.id: str = settings["ID"]
        self.name: str = settings["Name"]
        self.type: str = settings.get("Type") or "NAT"  # the service omits it for NAT
        self._providers: set[str] = set()
        # prefix length, negative for IPv6 -> network -> provider
        self._subnets: dict[int, dict[int, str]] = {}
        for policy in settings.get("Policies") or () if subnets else ():
            if policy.get("Type") == "RemoteSubnetRoute":
                route = policy["Settings"]
                prefix = ipaddress.ip_network(route["DestinationPrefix"], strict=False)
                provider = route.get("ProviderAddress", "")
                key = prefix.prefixlen if prefix.version == 4 else -prefix.prefixlen - 1
                self._subnets.setdefault(key, {})[int(prefix.network_address)] = provider
                self._providers.add(provider)

    @property
    def overlay(self) -> bool:
        return self.type == "Overlay"

    def provider_of(self, address: str) -> str:
        """The node that hosts a pod's address, or whose own address it is; "" otherwise."""
        if address in self._providers:
            return address
        parsed = ipaddress.ip_address(address)
        for key in self._subnets:
            length = key if key >= 0 else -key - 1
            if (key >= 0) != (parsed.version == 4):
                continue
            shift = parsed.max_prefixlen - length
            found = self._subnets[key].get(int(parsed) >> shift << shift)
            if found is not None:
                return found
        return ""


class _Key(NamedTuple):
    """The properties that kube-proxy compares to find a reusable load balancer; its endpoints are
    not among them.
    """

    endpoints: int
    protocol: int
    internal: int
    external: int
    ilb: bool
    vip: str


class _Index:
    """Indexes the host's load balancers by their properties, updated by the service's events:
    listing them for each service would cost a million comparisons for a thousand services.
    """

    def __init__(self, hns: HostNetworkService) -> None:
        self._hns = hns
        self._ids: dict[_Key, dict[str, None]] = {}
        self._keys: dict[str, _Key] = {}
        for identifier in hns.loadbalancers:
            self._add(identifier)
        hns.listeners.append(self._changed)

    def close(self) -> None:
        if self._changed in self._hns.listeners:
            self._hns.listeners.remove(self._changed)

    def find(self, key: _Key) -> str:
        for identifier in self._ids.get(key, ()):
            if identifier in self._hns.loadbalancers:
                log.debug("Found existing Hns loadbalancer policy resource, %s", identifier)
                return identifier
        return ""

    def _changed(self, kind: str, identifier: str, what: str) -> None:
        if kind != "loadbalancer":
            return
        key = self._keys.pop(identifier, None)
        if key is not None:
            ids = self._ids[key]
            ids.pop(identifier, None)
            if not ids:
                del self._ids[key]
        if what != "deleted":
            self._add(identifier)

    def _add(self, identifier: str) -> None:
        settings = self._hns.loadbalancers[identifier]
        mappings = settings.get("PortMappings") or ()
        if not mappings:
            return
        first = mappings[0]
        vips = settings.get("FrontendVIPs") or ("",)
        key = _Key(
            len(settings.get("HostComputeEndpoints") or ()),
            first.get("Protocol", 0),
            first.get("InternalPort", 0),
            first.get("ExternalPort", 0),
            bool(first.get("Flags", 0) & ILB),
            vips[0],
        )
        self._keys[identifier] = key
        self._ids.setdefault(key, {})[identifier] = None


class HostNetwork(Protocol):
    def close(self) -> None: ...

    def network(self, name: str) -> HnsNetworkInfo:
        """Raises HnsError."""

    def endpoint(self, identifier: str) -> HnsEndpoint | None: ...

    def endpoint_at(self, address: str, network: HnsNetworkInfo) -> HnsEndpoint | None: ...

    def endpoint_named(self, name: str) -> HnsEndpoint | None: ...

    def create_endpoint(
        self, network: HnsNetworkInfo, address: str, mac: str, *, local: bool, provider: str = ""
    ) -> HnsEndpoint:
        """Raises HnsError."""

    def delete_endpoint(self, identifier: str) -> None:
        """Raises HnsError."""

    def balancer(
        self,
        endpoints: Sequence[str],
        flags: BalancerFlags,
        source_vip: str,
        vip: str,
        protocol: int,
        internal: int,
        external: int,
    ) -> str:
        """The id of an existing load balancer, or of a new one. Raises HnsError."""

    def delete_balancer(self, identifier: str) -> None: ...

    def has_balancer(self, identifier: str) -> bool: ...


class _Reader:
    """What both versions share."""

    subnets = True

    def __init__(self, hns: HostNetworkService) -> None:
        self.hns = hns
        self._index = _Index(hns)
        self._networks: dict[str, tuple[Mapping[str, Any], HnsNetworkInfo]] = {}
        hns.listeners.append(self._changed)

    def has_balancer(self, identifier: str) -> bool:
        return identifier in self.hns.loadbalancers

    def close(self) -> None:
        self._index.close()
        if self._changed in self.hns.listeners:
            self.hns.listeners.remove(self._changed)

    def _changed(self, kind: str, _identifier: str, _what: str) -> None:
        if kind == "network":
            self._networks.clear()

    def network(self, name: str) -> HnsNetworkInfo:
        known = self._networks.get(name)
        if known is not None:
            return known[1]
        found = next((n for n in self.hns.networks.values() if n.get("Name") == name), None)
        if found is None:
            problem = HnsError(0, plain=f'Network name "{name}" not found')
            log.error("%s", problem)
            raise problem
        network = HnsNetworkInfo(found, subnets=self.subnets)
        self._networks[name] = (found, network)
        return network

    def endpoint(self, identifier: str) -> HnsEndpoint | None:
        found = self.hns.endpoints.get(identifier)
        return _read(found) if found is not None else None

    def endpoint_at(self, address: str, network: HnsNetworkInfo) -> HnsEndpoint | None:
        found = self.hns.endpoint_at(network.id, address)
        return _read(found, address) if found is not None else None

    def endpoint_named(self, name: str) -> HnsEndpoint | None:
        found = (one for one in self.hns.endpoints.values() if one.get("Name") == name)
        return next(map(_read, found), None)


class HostNetworkV2(_Reader):
    def create_endpoint(
        self, network: HnsNetworkInfo, address: str, mac: str, *, local: bool, provider: str = ""
    ) -> HnsEndpoint:
        settings: dict[str, Any] = {
            "HostComputeNetwork": network.id,
            "IpConfigurations": [{"IpAddress": address}],
            "MacAddress": mac,
            "Flags": 0 if local else REMOTE_ENDPOINT,
            "SchemaVersion": _SCHEMA,
        }
        if provider and not local:
            settings["Policies"] = [
                {"Type": "ProviderAddress", "Settings": {"ProviderAddress": provider}}
            ]
        return _read(self.hns.create("endpoint", settings))

    def delete_endpoint(self, identifier: str) -> None:
        if identifier not in self.hns.endpoints:
            raise HnsError(0, plain=f'Endpoint ID "{identifier}" not found')
        self.hns.delete("endpoint", identifier)
        log.debug("Remote endpoint resource deleted id %s", identifier)

    def balancer(
        self,
        endpoints: Sequence[str],
        flags: BalancerFlags,
        source_vip: str,
        vip: str,
        protocol: int,
        internal: int,
        external: int,
    ) -> str:
        found = self._index.find(_Key(len(endpoints), protocol, internal, external, False, vip))
        if found:
            return found
        for identifier in endpoints:
            if identifier not in self.hns.endpoints:
                raise HnsError(0, plain=f'Endpoint ID "{identifier}" not found')
        mapping = {
            "Protocol": protocol,
            "InternalPort": internal,
            "ExternalPort": external,
            "DistributionType": BY_SOURCE_ADDRESS if flags.affinity else 0,
            "Flags": (LOCAL_ROUTED_VIP if flags.local_routed_vip else 0)
            | (USE_MUX if flags.use_mux else 0)
            | (PRESERVE_DIP if flags.preserve_dip else 0),
        }
        settings = {
            "HostComputeEndpoints": list(endpoints),
            "SourceVIP": source_vip,
            "FrontendVIPs": [vip] if vip else [],
            "PortMappings": [mapping],
            "Flags": (DSR if flags.dsr else 0) | (IPV6 if flags.ipv6 else 0),
            "SchemaVersion": _SCHEMA,
        }
        identifier = self.hns.create("loadbalancer", settings)["ID"]
        log.debug("Hns loadbalancer policy resource, %s", identifier)
        return str(identifier)

    def delete_balancer(self, identifier: str) -> None:
        if identifier not in self.hns.loadbalancers:
            return
        try:
            self.hns.delete("loadbalancer", identifier)
        except HnsError as problem:  # kube-proxy ignores the result of this call
            log.debug("Removing policy %s: %s", identifier, problem)


class HostNetworkV1(_Reader):
    subnets = False  # version 1 reports no remote subnets

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        answer = self.hns.call(method, path, body)
        if not answer.get("Success"):
            raise HnsError(0, plain=f"hns failed with error : {answer.get('Error', '')}")
        return answer.get("Output")

    def create_endpoint(
        self, network: HnsNetworkInfo, address: str, mac: str, *, local: bool, provider: str = ""
    ) -> HnsEndpoint:
        settings: dict[str, Any] = {
            "VirtualNetwork": network.id,
            "MacAddress": mac,
            "IPAddress": address,
        }
        if not local:
            settings["IsRemoteEndpoint"] = True
            if provider:
                settings["Policies"] = [{"Type": "PA", "PA": provider}]
        try:
            made = self._call("POST", "/endpoints/", settings)
        except HnsError as problem:
            raise (
                HnsError(0, plain=f"Local endpoint creation failed: {problem}")
                if local
                else problem
            ) from problem
        return HnsEndpoint(made["ID"], made["IPAddress"], bool(made.get("IsRemoteEndpoint")))

    def delete_endpoint(self, identifier: str) -> None:
        self._call("GET", f"/endpoints/{identifier}")
        self._call("DELETE", f"/endpoints/{identifier}")
        log.debug("Remote endpoint resource deleted id %s", identifier)

    def balancer(
        self,
        endpoints: Sequence[str],
        flags: BalancerFlags,
        source_vip: str,
        vip: str,
        protocol: int,
        internal: int,
        external: int,
    ) -> str:
        if flags.dsr:
            log.debug("DSR is not supported in V1. Using non DSR instead")
        found = self._index.find(_Key(len(endpoints), protocol, internal, external, False, vip))
        if found:
            return found
        policy: dict[str, Any] = {
            "Type": "ELB",
            "Protocol": protocol,
            "InternalPort": internal,
            "ExternalPort": external,
        }
        if vip:
            policy["VIPs"] = [vip]
        if source_vip:
            policy["SourceVIP"] = source_vip
        references = [f"/endpoints/{identifier}" for identifier in endpoints]
        made = self._call("POST", "/policylists/", {"References": references, "Policies": [policy]})
        log.debug("Hns loadbalancer policy resource, %s", made["ID"])
        return str(made["ID"])

    def delete_balancer(self, identifier: str) -> None:
        if identifier not in self.hns.loadbalancers:
            return
        try:
            self._call("DELETE", f"/policylists/{identifier}")
        except HnsError as problem:
            log.debug("Removing policy %s: %s", identifier, problem)


def open_host_network(hns: HostNetworkService) -> HostNetwork:
    return HostNetworkV2(hns) if hns.supports("V2 Api/Schema") else HostNetworkV1(hns)


def delete_all_balancers(hns: HostNetworkService) -> None:
    """Including those that kube-proxy did not create."""
    for identifier in list(hns.loadbalancers):
        answer = hns.call("DELETE", f"/policylists/{identifier}")
        if not answer.get("Success"):
            log.error("hns failed with error : %s", answer.get("Error", ""))


def _read(settings: Mapping[str, Any], address: str = "") -> HnsEndpoint:
    if not address:
        configured = settings.get("IpConfigurations") or ()
        address = configured[0]["IpAddress"] if configured else ""
    return HnsEndpoint(
        settings["ID"], address, not int(settings.get("Flags") or 0) & REMOTE_ENDPOINT
    )
