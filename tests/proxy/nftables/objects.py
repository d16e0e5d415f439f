"""Services and slices for tests of the Linux proxy."""

from __future__ import annotations

from typing import Any

from transom.network.stacks import Fabric, NetworkLink, NetworkStack
from transom.proxy.nftables.proxier import NftablesOptions, NftablesProxier
from transom.proxy.tracker import ServiceTracker

NODE, NODE_IP = "linux-1", "172.18.0.2"
CLIENT = "203.0.113.10"
PODS = "10.244.0.0/16"


def service(
    name: str = "web", cluster_ip: str = "10.96.0.10", *, port: int = 80, **spec: Any
) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "port": port,
        "protocol": spec.pop("protocol", "TCP"),
        "targetPort": 8080,
    }
    if "nodePort" in spec:
        entry["nodePort"] = spec.pop("nodePort")
    ingress = spec.pop("ingress", ())
    return {
        "metadata": {"namespace": "default", "name": name},
        "spec": {"clusterIP": cluster_ip, "clusterIPs": [cluster_ip], "ports": [entry], **spec},
        "status": {"loadBalancer": {"ingress": [{"ip": ip} for ip in ingress]}},
    }


def endpoint_slice(
    name: str = "web", *places: tuple[str, str], protocol: str = "TCP", port: int = 8080
) -> dict[str, Any]:
    """`places`: address and node."""
    return {
        "metadata": {
            "namespace": "default",
            "name": f"{name}-1",
            "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": "IPv6" if places and ":" in places[0][0] else "IPv4",
        "ports": [{"name": "", "protocol": protocol, "port": port}],
        "endpoints": [
            {"addresses": [ip], "nodeName": node, "conditions": {"ready": True}}
            for ip, node in places
        ],
    }


def synced_tracker() -> ServiceTracker:
    tracker = ServiceTracker()
    tracker.mark_synced("services")
    tracker.mark_synced("endpoints")
    return tracker


def node_stack() -> NetworkStack:
    stack = Fabric().add(NODE, "node", "linux")
    stack.add_link(NetworkLink("eth0", "ethernet"))
    stack.add_address("eth0", f"{NODE_IP}/16")
    stack.add_link(NetworkLink("cni0", "bridge"))
    stack.add_address("cni0", "10.244.1.1/24")
    return stack


def proxier(tracker: ServiceTracker, **options: Any) -> NftablesProxier:
    given = {"cluster_cidrs": (PODS,), "node_ips": (NODE_IP,), **options}
    return NftablesProxier(tracker, NODE, node_stack(), NftablesOptions(**given))
