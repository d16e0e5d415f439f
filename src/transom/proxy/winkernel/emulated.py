"""An emulated Windows node: what kube-proxy would configure in its host networking service,
computed from API objects alone.

For `transom proxy`, which does not run on Windows. The node's build, addresses and neighbours come
from Node objects; the HNS endpoints of its pods, which a network plugin would create, come from the
services' endpoints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from transom.machines.windows.hns import Adapter, HostNetworkService
from transom.proxy.tracker import ServiceTracker
from transom.windows import builds

_NETWORKS: Final = {False: "cbr0", True: "vxlan0"}
_MAC: Final = "00-15-5D-00-00-01"
_PODS: Final = "10.244.0.0/24"
_VNI: Final = 4096


def usual_network(overlay: bool) -> str:
    return _NETWORKS[overlay]


def node_ip(node: Mapping[str, Any] | None) -> str:
    """Like kube-proxy: the internal address, otherwise the external one."""
    addresses = ((node or {}).get("status") or {}).get("addresses") or ()
    for kind in ("InternalIP", "ExternalIP"):
        for each in addresses:
            if each.get("type") == kind:
                return str(each["address"])
    return ""


def runs_windows(node: Mapping[str, Any] | None) -> bool:
    metadata = (node or {}).get("metadata") or {}
    return (metadata.get("labels") or {}).get("kubernetes.io/os") == "windows"


def reported_build(node: Mapping[str, Any] | None) -> builds.WindowsBuild:
    info = ((node or {}).get("status") or {}).get("nodeInfo") or {}
    kernel = str(info.get("kernelVersion", "")).split(" ")[0]
    return builds.build_by_name(kernel) or builds.DEFAULT


def make_hns(
    name: str,
    node: Mapping[str, Any] | None,
    others: Iterable[Mapping[str, Any]],
    network: str,
    overlay: bool,
) -> HostNetworkService:
    """Creates the service with the network that kube-proxy looks up."""
    address = node_ip(node) or "127.0.0.1"
    hns = HostNetworkService(
        reported_build(node), [Adapter("Ethernet", _MAC, f"{address}/16")], seed=name
    )
    pods = ((node or {}).get("spec") or {}).get("podCIDR") or _PODS
    gateway = pods.partition("/")[0].rpartition(".")[0] + ".1"
    if not hns.supports("V2 Api/Schema"):
        subnet = {"AddressPrefix": pods, "GatewayAddress": gateway}
        hns.call("POST", "/networks/", {"Name": network, "Type": "L2Bridge", "Subnets": [subnet]})
        return hns
    subnet = {
        "IpAddressPrefix": pods,
        "Routes": [{"NextHop": gateway, "DestinationPrefix": "0.0.0.0/0"}],
    }
    policies: list[dict[str, Any]] = []
    if overlay:
        subnet["Policies"] = [{"Type": "VSID", "Settings": {"IsolationId": _VNI}}]
        policies = [_route(other) for other in others if _is_neighbour(other, name)]
    ipams = [{"Type": "Static", "Subnets": [subnet]}]
    kind = "Overlay" if overlay else "L2Bridge"
    hns.create("network", {"Name": network, "Type": kind, "Policies": policies, "Ipams": ipams})
    return hns


def _is_neighbour(node: Mapping[str, Any], name: str) -> bool:
    return (
        node["metadata"]["name"] != name
        and bool((node.get("spec") or {}).get("podCIDR"))
        and bool(node_ip(node))
    )


def _route(node: Mapping[str, Any]) -> dict[str, Any]:
    settings = {
        "DestinationPrefix": node["spec"]["podCIDR"],
        "IsolationId": _VNI,
        "ProviderAddress": node_ip(node),
        "DistributedRouterMacAddress": _MAC,
    }
    return {"Type": "RemoteSubnetRoute", "Settings": settings}


def add_pods(hns: HostNetworkService, network: str, name: str, tracker: ServiceTracker) -> None:
    """Adds the endpoints that the node's plugin would have created."""
    identifier = next(key for key, each in hns.networks.items() if each.get("Name") == network)
    for endpoints in tracker.endpoints.values():
        for each in endpoints:
            if not each.is_local(name) or hns.endpoint_at(identifier, each.address) is not None:
                continue
            if hns.supports("V2 Api/Schema"):
                hns.create(
                    "endpoint",
                    {
                        "HostComputeNetwork": identifier,
                        "IpConfigurations": [{"IpAddress": each.address}],
                    },
                )
            else:
                hns.call(
                    "POST", "/endpoints/", {"VirtualNetwork": identifier, "IPAddress": each.address}
                )


def hns_listing(hns: HostNetworkService) -> dict[str, list[dict[str, Any]]]:
    """The objects that the proxy has created, as `hnsdiag` lists them."""
    return {
        "loadBalancers": [dict(each) for each in hns.loadbalancers.values()],
        "remoteEndpoints": [
            dict(each) for each in hns.endpoints.values() if int(each.get("Flags") or 0) & 1
        ],
    }
