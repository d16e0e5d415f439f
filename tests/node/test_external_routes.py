"""Where addresses of services lead from outside."""

from __future__ import annotations

from typing import Any

from transom.network.stacks import Fabric, NetworkLink
from transom.node.external_routes import ExternalRoutes
from transom.proxy.tracker import ServiceTracker


def service(
    name: str, *external: str, ingress: str = "", policy: str = "Cluster"
) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "clusterIP": "10.96.0.9",
            "type": "LoadBalancer",
            "externalIPs": list(external),
            "externalTrafficPolicy": policy,
            "ports": [{"port": 80, "targetPort": 80, "protocol": "TCP"}],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": ingress}] if ingress else []}},
    }


def endpoints(name: str, node: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"{name}-1",
            "namespace": "default",
            "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": "IPv4",
        "ports": [{"port": 80, "protocol": "TCP"}],
        "endpoints": [
            {"addresses": ["10.244.9.9"], "conditions": {"ready": True}, "nodeName": node}
        ],
    }


def test_a_node_that_serves_is_the_way() -> None:
    outside = Fabric().add("external", "external", "linux")
    outside.add_link(NetworkLink("eth0", "ethernet"))
    outside.add_address("eth0", "203.0.113.10/32")
    outside.add_address("eth0", "2001:db8::10/128")
    tracker, nodes = ServiceTracker(), {"a": ("172.20.0.2",), "b": ("172.20.0.3", "fd00:20::3")}
    routes = ExternalRoutes(outside, tracker, lambda: nodes)

    def ways() -> dict[str, str]:
        routes.sync()
        return {
            str(route.destination.network_address): route.via
            for route in outside.routes()
            if route.via
        }

    tracker.put_service(
        service("any", "198.51.100.1", "203.0.113.10", "172.20.0.3", ingress="198.18.0.1")
    )
    tracker.put_service(service("local", "198.51.100.2", policy="Local"))
    assert ways() == {
        "198.51.100.1": "172.20.0.2",
        "198.18.0.1": "172.20.0.2",
    }  # hosts keep what is theirs
    tracker.put_service(
        service("six", ingress="2001:2::1")
        | {"spec": {**service("six")["spec"], "clusterIP": "fd00::1"}}
    )
    assert ways().pop("2001:2::1") == "fd00:20::3", (
        "the first node that has an address of that family"
    )
    tracker.remove_service(service("six"))
    tracker.put_slice(endpoints("local", "b"))
    assert ways()["198.51.100.2"] == "172.20.0.3"
    tracker.put_slice(endpoints("local", "a"))
    assert ways()["198.51.100.2"] == "172.20.0.2"
    del nodes["a"]
    assert ways() == {"198.51.100.1": "172.20.0.3", "198.18.0.1": "172.20.0.3"}
    tracker.remove_service(service("any"))
    assert ways() == {}
