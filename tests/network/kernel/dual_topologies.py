"""Clusters with both families, drawn at random, and flows in them."""

from __future__ import annotations

import random

from tests.network.dual import UNDERLAY6, DualCluster
from tests.network.kernel.agreement import Flow
from tests.network.kernel.topologies import enforce

from transom.network.packets import Protocol


def drawn(seed: int) -> DualCluster:
    rng = random.Random(seed)
    cluster = DualCluster(
        "l2bridge",
        dsr=rng.random() < 0.5,
        build=rng.choice((19041, 20348)),
        loopback_dsr=rng.random() < 0.3,
        seed=seed,
    )
    for name in ("linux-1", *(["linux-2"] if rng.random() < 0.5 else [])):
        cluster.linux(name)
    for number in range(rng.randint(1, 2)):
        cluster.windows(f"windows-{number + 1}")
    for number in range(rng.randint(3, 5)):
        cluster.pod(
            f"pod-{number}", rng.choice(list(cluster.nodes)), labels={"app": rng.choice("ab")}
        )
    pods = [pod["metadata"]["name"] for pod in cluster.objects["pods"]]
    for number in range(3):
        families = rng.choice((["IPv4"], ["IPv6"], ["IPv6"], ["IPv4", "IPv6"], ["IPv6", "IPv4"]))
        both = [
            f"fd00:96::{number + 16:x}" if family == "IPv6" else f"10.96.0.{number + 16}"
            for family in families
        ]
        cluster.service(
            f"service-{number}",
            both[0],
            rng.sample(pods, rng.randint(0, 3)),
            kind="NodePort",
            node_port=30080 + number,
            protocol=rng.choice(("TCP", "UDP")),
            clusterIPs=both,
            ipFamilies=families,
            externalTrafficPolicy=rng.choice(("Cluster", "Local")),
        )
    peers = [{"podSelector": {"matchLabels": {"app": "a"}}}, {"ipBlock": {"cidr": UNDERLAY6}}]
    enforce(
        cluster,
        [
            {
                "metadata": {"namespace": "default", "name": "some"},
                "spec": {
                    "podSelector": {"matchLabels": {"app": "b"}},
                    "policyTypes": ["Ingress"],
                    "ingress": [{"from": peers}],
                },
            }
        ]
        if rng.random() < 0.5
        else [],
    )
    return cluster


def flows(cluster: DualCluster, seed: int, most: int = 140) -> list[Flow]:
    """Of IPv6, and some of IPv4 beside."""
    rng = random.Random(seed)
    places = [
        *cluster.nodes,
        "external",
        *(pod["metadata"]["name"] for pod in cluster.objects["pods"]),
    ]
    targets = [(cluster.source(place, "::"), 80) for place in places] + [("2606:4700::1111", 53)]
    for service in cluster.objects["services"]:
        spec = service["spec"]
        targets += [(ip, 80) for ip in spec["clusterIPs"]]
        number = spec["ports"][0]["nodePort"]
        targets += [
            (ip, number) for node in cluster.nodes for ip in (cluster.ip(node), cluster.ip6(node))
        ]
    protocols: tuple[Protocol, ...] = ("tcp", "udp", "icmp")
    found = [
        Flow(origin, address, port, protocol)
        for origin in places
        for address, port in targets
        for protocol in protocols
        if not (origin == "external" and address.startswith("2606"))
        and not (protocol == "icmp" and port >= 30080)
    ]
    return rng.sample(found, most) if len(found) > most else found
