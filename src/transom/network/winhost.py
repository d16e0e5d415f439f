"""Keeps a Windows node's own network stack in sync with its host networking service: adapters
become links, and are removed with them.

The first external switch takes over the network card: `Ethernet` becomes `vEthernet (Ethernet)`,
with its addresses and routes. Endpoints attached to the host are links of their own (`vEthernet
(cbr0_ep)`), as are internal networks. This module creates no networks or endpoints; the data planes
handle packets.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from transom.network.stacks import Interface, NetworkLink, NetworkStack

if TYPE_CHECKING:
    from transom.machines.windows.hns import Adapter, HostNetworkService

SANDBOX_LINK: Final = "Ethernet"
_MTU: Final = 1500
_OVERHEAD: Final = {"Overlay": 50, "Transparent": 100}  # of VXLAN, of GENEVE
_DEFAULTS: Final = ("0.0.0.0/0", "::/0")


def bind_windows_host(stack: NetworkStack, hns: HostNetworkService) -> Callable[[], None]:
    """Adds the service's adapters to the stack from now on; returns a function that stops it."""
    stack.hns = hns

    def changed(kind: str, key: str, change: str) -> None:
        if kind == "adapter":
            _adapter_changed(stack, hns, key)
        elif kind == "network":
            _host_routes(stack, hns)

    refresh_windows_host(stack, hns)
    hns.listeners.append(changed)
    return lambda: hns.listeners.remove(changed)


def refresh_windows_host(stack: NetworkStack, hns: HostNetworkService) -> None:
    for name in [
        link.name
        for link in stack.links.values()
        if link.kind != "loopback" and link.name not in hns.adapters
    ]:
        _adapter_changed(stack, hns, name)
    for name in hns.adapters:
        _adapter_changed(stack, hns, name)
    _host_routes(stack, hns)


def management_link(stack: NetworkStack) -> str:
    """The link with the node's own address, whatever its current name is."""
    return next((link.name for link in stack.links.values() if link.kind == "ethernet"), "")


# ---- links ----


def _adapter_changed(stack: NetworkStack, hns: HostNetworkService, name: str) -> None:
    adapter = hns.adapters.get(name)
    if adapter is None:
        _adapter_gone(stack, hns, name)
    elif name in stack.links or adapter.compartment != 1:
        return
    elif adapter.kind == "management":
        if adapter.below in stack.links:
            stack.rename_link(adapter.below, name)
        else:
            _plug(stack, adapter)
    elif adapter.kind == "physical":
        # otherwise it is under the switch, and the management adapter has its address
        if not adapter.switch:
            _plug(stack, adapter)
    else:
        kind: Any = "vnic" if adapter.kind == "endpoint" else "bridge"
        stack.add_link(
            NetworkLink(name, kind, mac=_mac(adapter.mac), mtu=_MTU, endpoint=adapter.endpoint)
        )
        for address in _host_addresses(hns, adapter):
            stack.add_address(name, address)


def _adapter_gone(stack: NetworkStack, hns: HostNetworkService, name: str) -> None:
    link = stack.links.get(name)
    if link is None:
        return
    below = name.removeprefix("vEthernet (").removesuffix(")")
    if link.kind == "ethernet" and below in hns.adapters and below not in stack.links:
        stack.rename_link(name, below)  # the switch releases the card
    else:
        stack.delete_link(name)


def _plug(stack: NetworkStack, adapter: Adapter) -> None:
    stack.add_link(NetworkLink(adapter.name, "ethernet", mac=_mac(adapter.mac), mtu=_MTU))
    if adapter.address:
        stack.add_address(adapter.name, adapter.address)
    if adapter.gateway:
        stack.replace_route(_DEFAULTS[":" in adapter.gateway], adapter.name, adapter.gateway)


def _host_addresses(hns: HostNetworkService, adapter: Adapter) -> list[str]:
    endpoint = hns.endpoints.get(adapter.endpoint)
    if endpoint is None:
        return [adapter.address] if adapter.address else []
    return [str(address) for address in _addresses(hns, endpoint)]


def _host_routes(stack: NetworkStack, hns: HostNetworkService) -> None:
    """An overlay network is not on the host, except its own pods if the network has the policy
    HostRoute.
    """
    link = management_link(stack)
    wanted = {
        subnet["IpAddressPrefix"]
        for network in hns.networks.values()
        if network.get("Type") == "Overlay"
        and any(policy["Type"] == "HostRoute" for policy in network.get("Policies", ()))
        for ipam in network.get("Ipams", ())
        for subnet in ipam.get("Subnets", ())
    }
    for route in stack.routes():
        prefix = str(route.destination)
        if route.onlink and route.link == link and prefix not in wanted:
            stack.delete_route(prefix)
    for prefix in wanted if link else ():
        stack.replace_route(prefix, link, onlink=True)


# ---- sandboxes ----


def sandbox_link(hns: HostNetworkService, endpoint_id: str) -> tuple[NetworkLink, str]:
    """What a sandbox gets from an endpoint: its network card, and its default gateway ("" for
    none).
    """
    endpoint = hns.endpoints[endpoint_id.upper()]
    network = hns.networks[endpoint["HostComputeNetwork"]]
    link = NetworkLink(
        SANDBOX_LINK,
        "vnic",
        mac=_mac(endpoint.get("MacAddress", "")),
        mtu=_mtu(endpoint, network),
        addresses=_addresses(hns, endpoint),
        endpoint=endpoint["ID"],
    )
    found = windows_gateways(hns, endpoint_id)
    return link, found[0] if found else ""


def windows_gateways(hns: HostNetworkService, endpoint_id: str) -> list[str]:
    """The next hops of an endpoint's default routes, IPv4 first; one for each family."""
    endpoint = hns.endpoints[endpoint_id.upper()]
    routes = [
        r
        for r in endpoint.get("Routes", ())
        if r.get("DestinationPrefix") in _DEFAULTS and r.get("NextHop")
    ]
    return [
        r["NextHop"] for r in sorted(routes, key=lambda r: _DEFAULTS.index(r["DestinationPrefix"]))
    ]


def _addresses(hns: HostNetworkService, endpoint: Mapping[str, Any]) -> list[Interface]:
    subnets = [
        ipaddress.ip_network(subnet["IpAddressPrefix"])
        for ipam in hns.networks[endpoint["HostComputeNetwork"]].get("Ipams", ())
        for subnet in ipam.get("Subnets", ())
    ]
    found = []
    for config in endpoint.get("IpConfigurations", ()):
        address = ipaddress.ip_address(config["IpAddress"])
        bits = config.get("PrefixLength") or next(
            (s.prefixlen for s in subnets if address in s), address.max_prefixlen
        )
        found.append(ipaddress.ip_interface(f"{address}/{bits}"))
    return found


def _mtu(endpoint: Mapping[str, Any], network: Mapping[str, Any]) -> int:
    for policy in endpoint.get("Policies", ()):
        if policy["Type"] == "EncapOverhead":
            return _MTU - int(policy["Settings"]["Overhead"])
    return _MTU - _OVERHEAD.get(network.get("Type", "NAT"), 0)


def _mac(text: str) -> str:
    """In the format of stacks: Windows separates by hyphens."""
    return text.replace("-", ":").lower()
