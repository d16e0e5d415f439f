"""Network policies in a kernel, together with the service proxy, tested with real sockets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.proxy.nftables.lab import QUIET, Lab, needs_root
from tests.proxy.nftables.objects import endpoint_slice, proxier, service, synced_tracker
from tests.proxy.policy.objects import labels, pod, policy

from transom.network.nft import NftTable
from transom.network.nft_text import nft_difference, nft_snapshot
from transom.proxy.policy.agent import PolicyAgent
from transom.proxy.policy.index import PolicyIndex

pytestmark = needs_root

WEB, DB, OTHER = "10.244.1.5", "10.244.1.6", "10.244.1.7"
VIP, BALANCER = "10.96.0.10", "198.51.100.8"


class Guarded:
    def __init__(self) -> None:
        self.lab = Lab()
        self.index = PolicyIndex()
        tracker = synced_tracker()
        tracker.put_service(service(type="LoadBalancer", nodePort=30080, ingress=(BALANCER,)))
        tracker.put_slice(endpoint_slice("web", (WEB, "linux-1")))
        proxy = proxier(tracker)
        proxy.sync()
        self._stack = proxy.stack
        self._agent = PolicyAgent(self.index, "linux-1", self._stack)
        self._applied: dict[str, NftTable] = {}
        for name, address in (("web", WEB), ("db", DB), ("other", OTHER)):
            self.lab.pod(name, address)
            self.index.put_pod(pod(name, address, {"app": name}, ports=(("http", 8080, "TCP"),)))

    def enforce(self, *policies: dict[str, Any]) -> None:
        for item in policies:
            self.index.put_policy(item)
        self.apply()

    def apply(self) -> None:
        self._agent.sync()
        for key in {**self._applied, **self._stack.tables}:
            table = self._stack.tables.get(key)
            self.lab.load(nft_difference(self._applied.pop(key, None), table))
            if table is not None:
                self._applied[key] = nft_snapshot(table)

    def asks(self, who: str, address: str = WEB, port: int = 8080, *, udp: bool = False) -> str:
        namespace = self.lab.pods.get(who) or getattr(self.lab, who)
        answer = namespace.ask(
            address, port, udp=namespace.datagrams() if udp else None, timeout=QUIET
        )
        return str(answer).split()[0]


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    made = Guarded()
    yield made
    made.lab.close()


def test_which_pods_can_connect(guarded: Guarded) -> None:
    guarded.apply()
    assert [guarded.asks(who) for who in ("db", "other", "node")] == ["web"] * 3
    only_db = policy(
        selector=labels(app="web"), ingress=[{"from": [{"podSelector": labels(app="db")}]}]
    )
    guarded.enforce(only_db)
    assert guarded.asks("db") == "web"
    assert guarded.asks("db", udp=True) == "web"
    assert guarded.asks("other") == "silence"
    assert guarded.asks("other", udp=True) == "silence"
    assert guarded.asks("node") == "web", "the node reaches its pods: probes must work"
    assert guarded.asks("web", OTHER) == "other", (
        "answers come back, the policy does not cover the other direction"
    )
    assert guarded.asks("db", VIP, 80) == "web", "a service's address is the pod's by then"
    assert guarded.asks("other", VIP, 80) == "silence"
    assert guarded.asks("web", VIP, 80) == "web", "a pod reaches itself through its service"
    assert guarded.asks("outside", Lab.NODE_IP, 30080) == "silence", (
        "an external client is not a pod"
    )
    guarded.index.put_pod(pod("other", OTHER, {"app": "db"}))
    guarded.apply()
    assert guarded.asks("other") == "web", "labels are looked at as they are now"
    guarded.index.remove_policy(only_db)
    guarded.apply()
    assert guarded.asks("outside", Lab.NODE_IP, 30080) == "web"


def test_ports_blocks_and_both_directions(guarded: Guarded) -> None:
    guarded.enforce(
        policy(
            "named",
            labels(app="web"),
            ingress=[{"from": [{"podSelector": {}}], "ports": [{"port": "http"}]}],
        ),
        policy(
            "block",
            labels(app="web"),
            ingress=[{"from": [{"ipBlock": {"cidr": "203.0.113.0/24"}}]}],
        ),
        policy(
            "out",
            labels(app="other"),
            policyTypes=["Egress"],
            egress=[{"to": [{"podSelector": labels(app="db")}]}],
        ),
    )
    assert guarded.asks("db") == "web"
    assert guarded.asks("db", udp=True) == "silence", "the name is of a TCP port"
    assert guarded.asks("other") == "silence", "may enter but not leave"
    assert guarded.asks("other", DB) == "db"
    assert guarded.asks("outside", BALANCER, 80) == "web"
    holed = {"ipBlock": {"cidr": "203.0.113.0/24", "except": ["203.0.113.8/29"]}}
    guarded.enforce(policy("block", labels(app="web"), ingress=[{"from": [holed]}]))
    assert guarded.asks("outside", BALANCER, 80) == "silence"
