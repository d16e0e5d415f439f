"""Clusters drawn at random, and flows in them: modes, builds, nodes, pods, services of every kind,
network policies.
"""

from __future__ import annotations

import random
from typing import Any, get_args

from tests.network.fabrics import Cluster, Mode, make_cluster
from tests.network.kernel.agreement import Flow

from transom.network.packets import Protocol
from transom.proxy.policy.agent import PolicyAgent
from transom.proxy.policy.index import PolicyIndex

NODE_PORT = 30080
INGRESS = "198.51.100."
_PROTOCOLS: tuple[Protocol, ...] = ("tcp", "udp", "icmp")


def enforce(cluster: Cluster, policies: list[dict[str, Any]]) -> None:
    """Network policies, by the agents of the nodes."""
    index = PolicyIndex()
    index.put_namespace({"metadata": {"name": "default", "labels": {}}})
    for pod in cluster.objects["pods"]:
        index.put_pod(pod)
    for policy in policies:
        index.put_policy(policy)
    agents = {name: PolicyAgent(index, name, stack) for name, stack in cluster.nodes.items()}
    cluster.fabric.before_look.append(
        lambda node: agents[node].sync() if node in agents and agents[node].dirty else None
    )


def drawn(seed: int) -> tuple[Cluster, list[dict[str, Any]]]:
    rng = random.Random(seed)
    mode: Mode = (
        rng.choice(get_args(Mode)) if rng.random() < 0.5 else rng.choice(("l2bridge", "overlay"))
    )
    cluster = make_cluster(
        mode,
        rng.randint(1, 2),
        rng.randint(1, 2),
        dsr=rng.random() < 0.5,
        build=rng.choice((17763, 19042)),
        loopback_dsr=rng.random() < 0.3,
        host_route=rng.random() < 0.7,
        flannel_routes=rng.random() < 0.85,
        seed=seed,
    )
    if rng.random() < 0.2:
        cluster.exceptions = ("10.244.0.0/16",)
    for number in range(rng.randint(3, 6)):
        cluster.pod(
            f"pod-{number}", rng.choice(list(cluster.nodes)), labels={"app": rng.choice("abc")}
        )
    pods = [pod["metadata"]["name"] for pod in cluster.objects["pods"]]
    for number in range(rng.randint(2, 4)):
        kind = rng.choice(("ClusterIP", "NodePort", "LoadBalancer"))
        more: dict[str, Any] = {}
        if kind != "ClusterIP":
            more["node_port"] = NODE_PORT + number
            more["externalTrafficPolicy"] = rng.choice(("Cluster", "Local"))
        if kind == "LoadBalancer":
            more["ingress"] = f"{INGRESS}{number + 1}"
            more["announced_by"] = cluster.ip(rng.choice(list(cluster.nodes)))
        cluster.service(
            f"service-{number}",
            f"10.96.0.{number + 10}",
            rng.sample(pods, rng.randint(0, 3)),
            kind=kind,
            protocol=rng.choice(("TCP", "TCP", "UDP")),
            **more,
        )
    policies = [_policy(rng, number) for number in range(rng.choice((0, 0, 1, 2)))]
    enforce(cluster, policies)
    for stack in cluster.nodes.values():
        if stack.hns is not None and rng.random() < 0.1:
            stack.hns.allow_mac_spoofing(False)
    return cluster, policies


def _policy(rng: random.Random, number: int) -> dict[str, Any]:
    peers = [{"podSelector": {"matchLabels": {"app": rng.choice("abc")}}}]
    if rng.random() < 0.4:
        peers.append({"ipBlock": {"cidr": "172.20.0.0/16"}})
    rule: dict[str, Any] = {}
    kind = rng.choice(("Ingress", "Egress"))
    if rng.random() < 0.8:
        rule["from" if kind == "Ingress" else "to"] = peers
    if rng.random() < 0.5:
        rule["ports"] = [{"port": rng.choice((80, 81)), "protocol": rng.choice(("TCP", "UDP"))}]
    return {
        "metadata": {"namespace": "default", "name": f"policy-{number}"},
        "spec": {
            "podSelector": {"matchLabels": {"app": rng.choice("abc")}},
            "policyTypes": [kind],
            kind.lower(): [rule] if rng.random() < 0.8 else [],
        },
    }


def flows(cluster: Cluster, seed: int, most: int = 160) -> list[Flow]:
    """Between all that there is; a sample when that is too many."""
    rng = random.Random(seed)
    places = [
        *cluster.nodes,
        "external",
        *(pod["metadata"]["name"] for pod in cluster.objects["pods"]),
    ]
    targets: list[tuple[str, int]] = [(cluster.address(place), 80) for place in places]
    for number, service in enumerate(cluster.objects["services"]):
        targets.append((service["spec"]["clusterIP"], 80))
        targets += [(cluster.ip(node), NODE_PORT + number) for node in cluster.nodes]
        if service["spec"]["type"] == "LoadBalancer":
            targets.append((f"{INGRESS}{number + 1}", 80))
    found = [
        Flow(origin, address, port, protocol)
        for origin in places
        for address, port in [*targets, ("8.8.8.8", 53)]
        for protocol in _PROTOCOLS
        if not (origin == "external" and address == "8.8.8.8")
        and not (protocol == "icmp" and port >= NODE_PORT)
    ]
    return rng.sample(found, most) if len(found) > most else found
