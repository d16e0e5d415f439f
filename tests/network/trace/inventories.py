"""The cluster inventory that a trace reads, from the objects of a small cluster built by hand."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.network.fabrics import OUTSIDE, Cluster

from transom.network.api import DnsConfig
from transom.network.model.walk import Listening
from transom.network.stacks import NetworkStack
from transom.network.trace.inventory import Inventory, NameLookup
from transom.network.trace.report import TraceReport
from transom.network.trace.run import run_trace
from transom.windows.records import NodeTarget

DOMAIN = "cluster.local"
DNS = DnsConfig(("10.96.0.10",), (f"default.svc.{DOMAIN}", f"svc.{DOMAIN}", DOMAIN), ("ndots:5",))


def nodes_serve_kubelets(stack: NetworkStack, _address: str, port: int, _protocol: str) -> bool:
    return stack.role != "node" or port == 10250


def inventory(
    cluster: Cluster, *, listening: Listening = nodes_serve_kubelets, proxy_problem: str = ""
) -> Inventory:
    objects = cluster.objects
    if not any(s["metadata"]["name"] == "kube-dns" for s in objects["services"]):
        cluster.service(
            "kube-dns", "10.96.0.10", _dns_pods(cluster), port=53, target=53, protocol="UDP"
        )

    def named(kind: str, namespace: str, name: str) -> Any:
        return next(
            (
                o
                for o in objects[kind]
                if o["metadata"]["name"] == name and o["metadata"].get("namespace", "") == namespace
            ),
            None,
        )

    async def lookup(name: str) -> NameLookup:
        if name == "www.example.com":
            return NameLookup((OUTSIDE,))
        labels = name.removesuffix("." + DOMAIN).split(".")
        if name.endswith("." + DOMAIN):
            if labels[2:] == ["svc"]:
                found = named("services", labels[1], labels[0])
                if found is not None and found["spec"]["clusterIP"] != "None":
                    return NameLookup(
                        tuple(sorted(found["spec"]["clusterIPs"], key=lambda ip: ":" in ip))
                    )
                backends = [
                    a
                    for s in slices(labels[1], labels[0])
                    for e in s["endpoints"]
                    for a in e["addresses"]
                ]
                return NameLookup(tuple(backends)) if found is not None else NameLookup()
            if labels[2:] == ["pod"]:
                return NameLookup((labels[0].replace("-", "."),))
        return NameLookup()

    async def node_lookup(_node: str, name: str) -> list[str]:
        return {"localhost": ["127.0.0.1"], "www.example.com": ["2001:db8::1", OUTSIDE]}.get(
            name, []
        )

    def slices(namespace: str, name: str) -> list[Any]:
        return [
            s
            for s in objects["slices"]
            if s["metadata"]["labels"]["kubernetes.io/service-name"] == name
        ]

    mode: Any = cluster.mode
    return Inventory(
        pod=lambda namespace, name: named("pods", namespace, name),
        service=lambda namespace, name: named("services", namespace, name),
        node=lambda name: named("nodes", "", name),
        pods=lambda: objects["pods"],
        services=lambda: objects["services"],
        nodes=lambda: objects["nodes"],
        slices=slices,
        policies=lambda namespace: [
            p for p in objects["policies"] if p["metadata"]["namespace"] == namespace
        ],
        pod_of=lambda stack: ("default", stack.sandbox),
        dns_of=lambda _pod: DNS,
        lookup=lookup,
        node_lookup=node_lookup,
        listening=listening,
        proxy_problem=lambda _node: proxy_problem,
        target=lambda _node: NodeTarget(
            build=cluster.build, network=mode, features=frozenset({"dsr"} if cluster.dsr else ())
        ),
        outside_name="www.example.com",
    )


def _dns_pods(cluster: Cluster) -> list[str]:
    if not any(p["metadata"]["name"] == "coredns" for p in cluster.objects["pods"]):
        cluster.pod("coredns", "linux-1", port=53)
    return ["coredns"]


def traced(
    cluster: Cluster, origin: str, target: str, protocol: Any = "tcp", **more: Any
) -> TraceReport:
    return asyncio.run(
        run_trace(cluster.world, inventory(cluster, **more), origin, target, protocol)
    )
