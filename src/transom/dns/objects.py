"""The objects that publish this server in the cluster: the service kube-dns and its endpoints.

They match kubeadm's, but without a selector: the control plane itself answers, not a pod.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_network
from typing import Any, Final

from transom.dns.settings import DnsSettings

NAMESPACE: Final = "kube-system"
NAME: Final = "kube-dns"
METRICS_PORT: Final = 9153
_PLACE = 10  # the index of the server's address in the service range
_PORTS: Final = (("dns", 53, "UDP"), ("dns-tcp", 53, "TCP"), ("metrics", METRICS_PORT, "TCP"))
_SKIP_MIRROR = {"endpointslice.kubernetes.io/skip-mirror": "true"}


def dns_cluster_ip(service_cidr: str) -> str:
    """The tenth address of the range: 10.96.0.10 of 10.96.0.0/16. Raises ValueError if the range is
    too small.
    """
    network = ip_network(service_cidr)
    if network.num_addresses <= _PLACE:
        raise ValueError(f"{service_cidr} has no tenth address for the name server")
    return str(network[_PLACE])


def dns_service_object(addresses: Sequence[str]) -> dict[str, Any]:
    """With one address, or one for each family."""
    spec: dict[str, Any] = {
        "type": "ClusterIP",
        "clusterIP": addresses[0],
        "clusterIPs": list(addresses),
        "ports": [{"name": n, "port": p, "protocol": t, "targetPort": p} for n, p, t in _PORTS],
    }
    if len(addresses) > 1:
        spec["ipFamilies"] = [_family(address) for address in addresses]
        spec["ipFamilyPolicy"] = "RequireDualStack"
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": NAME,
            "namespace": NAMESPACE,
            "labels": {
                "k8s-app": NAME,
                "kubernetes.io/cluster-service": "true",
                "kubernetes.io/name": "KubeDNS",
            },
            "annotations": {
                "prometheus.io/port": str(METRICS_PORT),
                "prometheus.io/scrape": "true",
            },
        },
        "spec": spec,
    }


def dns_endpoints_object(addresses: Sequence[str], node: str = "") -> dict[str, Any]:
    """The addresses of the control-plane node, where the server listens."""
    place = {"nodeName": node} if node else {}
    return {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {
            "name": NAME,
            "namespace": NAMESPACE,
            "labels": {"k8s-app": NAME, **_SKIP_MIRROR},
        },
        "subsets": [
            {"addresses": [{"ip": a, **place} for a in addresses], "ports": _slice_ports()}
        ],
    }


def dns_endpoint_slices(addresses: Sequence[str], node: str = "") -> list[dict[str, Any]]:
    """One for each family."""
    slices = []
    for family in dict.fromkeys(map(_family, addresses)):
        endpoint: dict[str, Any] = {
            "addresses": [a for a in addresses if _family(a) == family],
            "conditions": {"ready": True},
        }
        if node:
            endpoint["nodeName"] = node
        slices.append(
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": NAME if family == "IPv4" else f"{NAME}-ipv6",
                    "namespace": NAMESPACE,
                    "labels": {"kubernetes.io/service-name": NAME, "k8s-app": NAME},
                },
                "addressType": family,
                "endpoints": [endpoint],
                "ports": _slice_ports(),
            }
        )
    return slices


def dns_config_map(settings: DnsSettings) -> dict[str, Any]:
    """The server's configuration as a Corefile, for users who look for it in the usual place."""
    upstreams = " ".join(settings.upstreams)
    lines = [
        ".:53 {",
        "    errors",
        "    ready",
        f"    kubernetes {settings.domain} in-addr.arpa ip6.arpa {{",
        "       pods insecure",
        "       fallthrough in-addr.arpa ip6.arpa",
        f"       ttl {settings.ttl}",
        "    }",
        f"    prometheus :{METRICS_PORT}",
        *([f"    forward . {upstreams}"] if upstreams else []),
        f"    cache {settings.cache}",
        "    loadbalance",
        "}",
    ]
    for domain, servers in settings.stub_domains.items():
        lines += [
            f"{domain}:53 {{",
            "    errors",
            f"    cache {settings.cache}",
            f"    forward . {' '.join(servers)}",
            "}",
        ]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "coredns", "namespace": NAMESPACE},
        "data": {"Corefile": "\n".join(lines) + "\n"},
    }


def _slice_ports() -> list[dict[str, Any]]:
    return [{"name": name, "port": port, "protocol": protocol} for name, port, protocol in _PORTS]


def _family(address: str) -> str:
    return "IPv6" if ":" in address else "IPv4"
