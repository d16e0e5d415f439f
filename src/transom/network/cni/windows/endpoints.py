"""Endpoints as the reference plugins create, share and remove them, and the results that they
print.

An endpoint is named after the sandbox and the network. With version 1 it is attached to containers:
the sandbox's call creates it, the calls for the other containers of the pod (CNI_NETNS
`container:SANDBOX`) find it, and every call may be repeated, because kubelets with docker read a
pod's address with ADD. With version 2 it joins the sandbox's namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from transom.kit.ip_addresses import is_ip_address
from transom.machines.windows.hns import HnsError
from transom.network.cni.plugin import CniCall, Result
from transom.network.cni.windows import shim
from transom.network.cni.windows.netconf import Release
from transom.network.cni.windows.shim import HcsshimFailed, annotate_errors

if TYPE_CHECKING:
    from transom.machines.windows.hns import HostNetworkService

Maker = Callable[[], dict[str, Any]]


def endpoint_sandbox_id(container_id: str, netns: str) -> str:
    if netns and netns != shim.PAUSE:
        _, colon, sandbox = netns.partition(":")
        if colon:
            return sandbox
    return container_id


def endpoint_name(call: CniCall, network: str) -> str:
    return f"{endpoint_sandbox_id(call.container_id, call.netns)}_{network}"


# ---- version 1 ----


def provision_endpoint(
    hns: HostNetworkService,
    name: str,
    network_id: str,
    call: CniCall,
    make: Maker,
    release: Release,
) -> dict[str, Any]:
    """The endpoint of this name on a network, created if needed, and attached to the call's
    container.
    """
    newer = release == "1.0"
    endpoint = shim.v1_endpoint(hns, name)
    if endpoint is None and call.netns != shim.PAUSE:
        # 1.0 annotates the error, up to 0.9.1 the lookup is repeated: the resulting text is the
        # same.
        raise HcsshimFailed(f"failed to find HNSEndpoint {name}: Endpoint {name} not found")
    if endpoint is not None and not shim.same_id(endpoint["VirtualNetwork"], network_id):
        stale = (
            f"failed to delete corrupted HNSEndpoint {name}"
            if newer
            else "failed to delete the stale HNSEndpoint"
        )
        with annotate_errors(stale):
            shim.v1(hns, "DELETE", f"/endpoints/{endpoint['ID']}")
        endpoint = None
    made = endpoint is None
    if endpoint is None:
        with annotate_errors("failed to make a new HNSEndpoint"):
            wanted = make()
        with annotate_errors("failed to create the new HNSEndpoint"):
            endpoint = shim.v1_create(hns, wanted)
    try:
        shim.hot_attach(hns, call.container_id, endpoint["ID"])
    except HcsshimFailed as error:
        if made:
            deprovision_endpoint(hns, name, call)
        if newer:
            words = (
                f"failed to attach container {call.container_id} to HNSEndpoint {endpoint['ID']}"
            )
            raise HcsshimFailed(f"{words}: {error}") from error
        raise
    return endpoint


def deprovision_endpoint(hns: HostNetworkService, name: str, call: CniCall) -> None:
    if not call.netns:
        return
    endpoint = shim.find_by_name(hns.endpoints, name)
    if endpoint is None:
        return
    # A failure here would block the deletion of the pod; the plugins ignore it.
    _quietly(lambda: hns.hot_detach(endpoint["ID"], call.container_id))
    if call.netns == shim.PAUSE:
        _quietly(lambda: hns.call("DELETE", f"/endpoints/{endpoint['ID']}"))


def _quietly(action: Callable[[], Any]) -> bool:
    try:
        action()
    except HnsError:
        return False
    return True


def endpoint_result(network: Mapping[str, Any], endpoint: Mapping[str, Any]) -> Result:
    """From version 1 objects. DNS lists are split strings there: an empty one contains an empty
    string.
    """
    address = endpoint.get("IPAddress", "")
    if not is_ip_address(address):
        raise HcsshimFailed(
            f"IPAddress of HNSEndpoint {endpoint['Name']} isn't a valid ipv4 or ipv6 Address"
        )
    prefix = network["Subnets"][0]["AddressPrefix"]
    dns = {
        "nameservers": endpoint.get("DNSServerList", "").split(","),
        "search": endpoint.get("DNSSuffix", "").split(","),
    }
    return shaped_endpoint(endpoint, address, prefix, endpoint.get("GatewayAddress", ""), dns)


# ---- version 2 ----


def hcn_settings(
    name: str, network_id: str, address: str, gateway: str, dns: Mapping[str, Any], *, newer: bool
) -> Result:
    """A new endpoint. Without an address HNS assigns one. The default route is IPv6 unless
    the gateway is an IPv4 address, as in the plugin.
    """
    prefix = "0.0.0.0/0" if gateway and ":" not in gateway else "::/0"
    known = {"Search": dns["search"], "ServerList": dns["nameservers"]}
    if newer:
        known |= {"Domain": dns["domain"], "Options": dns["options"]}
    return {
        "Name": name,
        "HostComputeNetwork": network_id,
        "Dns": {k: v for k, v in known.items() if v},
        "Routes": [{"NextHop": gateway, "DestinationPrefix": prefix}] if gateway else [],
        "IpConfigurations": [{"IpAddress": address}] if address else [],
        "SchemaVersion": {"Major": 2, "Minor": 0},
    }


def add_hcn(
    hns: HostNetworkService,
    name: str,
    network_id: str,
    call: CniCall,
    make: Maker,
    release: Release,
) -> dict[str, Any]:
    if release == "1.0":
        return _add_hcn_newer(hns, name, network_id, call, make)
    with annotate_errors("failed to make a new HNSEndpoint"):
        wanted = make()
    with annotate_errors("failed to create the new HNSEndpoint"):
        endpoint = shim.v2_create(hns, "endpoint", wanted)
    try:
        shim.join_namespace(hns, call.netns, endpoint["ID"])
    except HcsshimFailed as error:
        with annotate_errors("failed to Remove Endpoint after AddNamespaceEndpoint failure"):
            remove_hcn(hns, name, release)
        # The successful removal hides the failure: the plugin continues without an endpoint.
        shim.crash_plugin(error)
    return dict(hns.query("endpoint", endpoint["ID"]))


def _add_hcn_newer(
    hns: HostNetworkService, name: str, network_id: str, call: CniCall, make: Maker
) -> dict[str, Any]:
    endpoint = shim.find_by_name(hns.endpoints, name)
    if endpoint is not None and not shim.same_id(endpoint["HostComputeNetwork"], network_id):
        with annotate_errors(f"failed to delete corrupted HostComputeEndpoint {name}"):
            shim.v2_delete(hns, "endpoint", endpoint["ID"])
        endpoint = None
    made = endpoint is None
    if endpoint is None:
        with annotate_errors("failed to make a new HostComputeEndpoint"):
            wanted = make()
        with annotate_errors("failed to create the new HostComputeEndpoint"):
            endpoint = shim.v2_create(hns, "endpoint", wanted)
    try:
        with annotate_errors(
            f"failed to add HostComputeEndpoint {name} to HostComputeNamespace {call.netns}"
        ):
            shim.join_namespace(hns, call.netns, endpoint["ID"])
    except HcsshimFailed:
        if made:
            remove_hcn(hns, name, "1.0")
        raise
    return dict(hns.query("endpoint", endpoint["ID"]))


def remove_hcn(hns: HostNetworkService, name: str, release: Release) -> None:
    endpoint = shim.find_by_name(hns.endpoints, name)
    if endpoint is None:
        return
    try:
        shim.v2_delete(hns, "endpoint", endpoint["ID"])
    except HcsshimFailed as error:
        if release == "1.0":
            raise HcsshimFailed(f"failed to remove HostComputeEndpoint {name}: {error}") from error
        raise HcsshimFailed(f"[win-cni] Failed to delete endpoint {name}, err:{error}") from error


def hcn_result(network: Mapping[str, Any], endpoint: Mapping[str, Any]) -> Result:
    address = endpoint["IpConfigurations"][0]["IpAddress"]
    if not is_ip_address(address):
        raise HcsshimFailed(
            "[win-cni] The IPAddress of hnsEndpoint isn't a valid ipv4 or ipv6 Address."
        )
    known = endpoint.get("Dns") or {}
    names = (
        ("nameservers", "ServerList"),
        ("search", "Search"),
        ("domain", "Domain"),
        ("options", "Options"),
    )
    dns = {ours: known[theirs] for ours, theirs in names if known.get(theirs)}
    routes = endpoint.get("Routes") or [{}]
    return shaped_endpoint(
        endpoint,
        address,
        shim.subnet_of(network)["IpAddressPrefix"],
        routes[0].get("NextHop", ""),
        dns,
    )


# ---- both versions ----


def shaped_endpoint(
    endpoint: Mapping[str, Any], address: str, prefix: str, gateway: str, dns: dict[str, Any]
) -> Result:
    """An endpoint's address with the mask of the network's subnet."""
    ip = {
        "version": "6" if ":" in address else "4",
        "address": f"{address}/{prefix.rpartition('/')[2]}",
    }
    if gateway:
        ip["gateway"] = gateway
    return {
        "interfaces": [{"name": endpoint["Name"], "mac": endpoint.get("MacAddress", "")}],
        "ips": [ip],
        "dns": dns,
    }
