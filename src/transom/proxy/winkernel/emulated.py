"""A Windows node that is not there: what kube-proxy would tell its host networking service, worked out from objects alone.

For `transom proxy`, which has no Windows to run on. The node's build, addresses and neighbours come from Node objects; its
pods' endpoints, which a network plugin makes, from the services' own endpoints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from transom.hosts.windows.hns import Adapter, Hns
from transom.proxy.tracker import Tracker
from transom.windows import builds

_NETWORKS: Final = {False: "cbr0", True: "vxlan0"}
_MAC: Final = "00-15-5D-00-00-01"
_PODS: Final = "10.244.0.0/24"
_VNI: Final = 4096


def usual_network(overlay: bool) -> str:
    return _NETWORKS[overlay]


def node_ip(node: Mapping[str, Any] | None) -> str:
    """As kube-proxy picks it: the internal address, else the external one."""
    addresses = ((node or {}).get("status") or {}).get("addresses") or ()
    for kind in ("InternalIP", "ExternalIP"):
        for each in addresses:
            if each.get("type") == kind:
                return str(each["address"])
    return ""


def is_windows(node: Mapping[str, Any] | None) -> bool:
    metadata = (node or {}).get("metadata") or {}
    return (metadata.get("labels") or {}).get("kubernetes.io/os") == "windows"


def build_of(node: Mapping[str, Any] | None) -> builds.Build:
    info = ((node or {}).get("status") or {}).get("nodeInfo") or {}
    kernel = str(info.get("kernelVersion", "")).split(" ")[0]
    return builds.by_name(kernel) or builds.DEFAULT


def make_hns(
    name: str, node: Mapping[str, Any] | None, others: Iterable[Mapping[str, Any]], network: str, overlay: bool
) -> Hns:
    """With the network that kube-proxy will look for."""
    address = node_ip(node) or "127.0.0.1"
    hns = Hns(build_of(node), [Adapter("Ethernet", _MAC, f"{address}/16")], seed=name)
    pods = ((node or {}).get("spec") or {}).get("podCIDR") or _PODS
    gateway = pods.partition("/")[0].rpartition(".")[0] + ".1"
    if not hns.supports("V2 Api/Schema"):
        subnet = {"AddressPrefix": pods, "GatewayAddress": gateway}
        hns.call("POST", "/networks/", {"Name": network, "Type": "L2Bridge", "Subnets": [subnet]})
        return hns
    subnet = {"IpAddressPrefix": pods, "Routes": [{"NextHop": gateway, "DestinationPrefix": "0.0.0.0/0"}]}
    policies: list[dict[str, Any]] = []
    if overlay:
        subnet["Policies"] = [{"Type": "VSID", "Settings": {"IsolationId": _VNI}}]
        policies = [_route(other) for other in others if _is_neighbour(other, name)]
    ipams = [{"Type": "Static", "Subnets": [subnet]}]
    kind = "Overlay" if overlay else "L2Bridge"
    hns.create("network", {"Name": network, "Type": kind, "Policies": policies, "Ipams": ipams})
    return hns


def _is_neighbour(node: Mapping[str, Any], name: str) -> bool:
    return node["metadata"]["name"] != name and bool((node.get("spec") or {}).get("podCIDR")) and bool(node_ip(node))


def _route(node: Mapping[str, Any]) -> dict[str, Any]:
    settings = {
        "DestinationPrefix": node["spec"]["podCIDR"], "IsolationId": _VNI, "ProviderAddress": node_ip(node),
        "DistributedRouterMacAddress": _MAC,
    }  # fmt: skip
    return {"Type": "RemoteSubnetRoute", "Settings": settings}


def add_pods(hns: Hns, network: str, name: str, tracker: Tracker) -> None:
    """The endpoints that the node's plugin would have made by now."""
    identifier = next(key for key, each in hns.networks.items() if each.get("Name") == network)
    for endpoints in tracker.endpoints.values():
        for each in endpoints:
            if not each.is_local(name) or hns.endpoint_at(identifier, each.address) is not None:
                continue
            if hns.supports("V2 Api/Schema"):
                hns.create("endpoint", {"HostComputeNetwork": identifier, "IpConfigurations": [{"IpAddress": each.address}]})
            else:
                hns.call("POST", "/endpoints/", {"VirtualNetwork": identifier, "IPAddress": each.address})


def shown(hns: Hns) -> dict[str, list[dict[str, Any]]]:
    """What the proxy has made, as `hnsdiag` would list it."""
    return {
        "loadBalancers": [dict(each) for each in hns.loadbalancers.values()],
        "remoteEndpoints": [dict(each) for each in hns.endpoints.values() if int(each.get("Flags") or 0) & 1],
    }
