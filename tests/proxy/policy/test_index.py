"""The incremental index gives the result of the definition, and notifies every node that is
affected.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.proxy.policy.objects import labels, namespace, pod, policy

from transom.proxy.policy.index import PolicyIndex
from transom.proxy.policy.rules import compile_policy, pod_isolation, policy_pod_of


def _random_policy(rng: random.Random) -> dict[str, Any]:
    def selector() -> dict[str, Any]:
        return rng.choice(
            (
                {},
                labels(app=rng.choice("xy")),
                {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
            )
        )

    def peer() -> dict[str, Any]:
        return rng.choice(
            (
                {"podSelector": selector()},
                {"namespaceSelector": selector()},
                {"podSelector": selector(), "namespaceSelector": selector()},
                {"ipBlock": {"cidr": "192.0.2.0/24"}},
            )
        )

    def rules(name: str) -> list[dict[str, Any]]:
        return [
            {
                name: [peer() for _ in range(rng.randint(0, 2))],
                "ports": rng.choice(([], [{"port": "http"}], [{"port": 80}])),
            }
            for _ in range(rng.randint(0, 2))
        ]

    types = rng.choice((["Ingress"], ["Egress"], ["Ingress", "Egress"]))
    return policy(
        rng.choice("pqr"),
        selector(),
        inside=rng.choice("ab"),
        policyTypes=types,
        ingress=rules("from"),
        egress=rules("to"),
    )


def _random_pod(rng: random.Random) -> dict[str, Any]:
    name = rng.choice("klmno")
    ports = rng.choice(((), (("http", rng.choice((80, 81)), "TCP"),)))
    phase = rng.choice(("Running", "Running", "Running", "Failed"))
    marks = rng.choice(({}, {"app": "x"}, {"app": "y"}))
    number = rng.randint(1, 9)
    return pod(
        name,
        f"10.0.0.{number}",
        marks,
        namespace=rng.choice("ab"),
        node=rng.choice("nm"),
        ports=ports,
        phase=phase,
    )


@pytest.mark.parametrize("seed", range(40))
def test_after_every_event_the_index_agrees_with_the_definition(seed: int) -> None:
    rng = random.Random(seed)
    index = PolicyIndex()
    pods: dict[tuple[str, str], dict[str, Any]] = {}
    policies: dict[tuple[str, str], dict[str, Any]] = {}
    namespaces: dict[str, dict[str, str]] = {}
    before: dict[str, Any] = {}
    for _ in range(60):
        versions = {node: index.version(node) for node in "nm"}
        match rng.randrange(6):
            case 0 | 1:
                item = _random_pod(rng)
                pods[item["metadata"]["namespace"], item["metadata"]["name"]] = item
                index.put_pod(item)
            case 2 if pods:
                index.remove_pod(pods.pop(rng.choice(sorted(pods))))
            case 3:
                item = _random_policy(rng)
                policies[item["metadata"]["namespace"], item["metadata"]["name"]] = item
                index.put_policy(item)
            case 4 if policies:
                index.remove_policy(policies.pop(rng.choice(sorted(policies))))
            case _:
                name, marks = rng.choice("ab"), rng.choice(({}, {"app": "x"}, {"app": "y"}))
                namespaces[name] = marks
                index.put_namespace(namespace(name, **marks))
        seen = [p for p in map(policy_pod_of, pods.values()) if p is not None]
        compiled = [compile_policy(p) for p in policies.values()]
        now: dict[str, Any] = {"n": {}, "m": {}}
        for one in seen:
            expected = pod_isolation(one, compiled, seen, namespaces)
            assert index.isolation(one.key) == expected
            if expected.ingress is not None or expected.egress is not None:
                now[one.node][one.key] = (one.addresses, expected)
        for node in "nm":
            assert {p.key for p in index.pods_on(node)} == {p.key for p in seen if p.node == node}
            if before and before[node] != now[node]:
                assert index.version(node) != versions[node], (
                    "a change that the node would not look at"
                )
        before = now


def test_only_nodes_with_selected_pods_are_notified() -> None:
    index = PolicyIndex()
    recorded: list[frozenset[str]] = []
    index.listeners.append(recorded.append)
    for n in range(20):
        index.put_pod(
            pod(f"p-{n}", f"10.0.0.{n + 1}", {"app": "x" if n < 2 else "y"}, node=f"node-{n}")
        )
    assert recorded == []
    index.put_policy(
        policy(selector=labels(app="x"), ingress=[{"from": [{"podSelector": labels(app="z")}]}])
    )
    assert recorded == [{"node-0", "node-1"}]
    index.put_pod(pod("p-9", "10.0.0.10", {"app": "y", "other": "1"}, node="node-9"))
    assert len(recorded) == 1, "a label that no selector uses"
    index.put_pod(pod("p-9", "10.0.0.10", {"app": "z"}, node="node-9"))
    assert recorded[1:] == [{"node-0", "node-1"}]
    index.put_policy(policy(selector={"matchExpressions": [{"key": "a", "operator": "?"}]}))
    assert index.isolation(("a", "p-0")).ingress is None, (
        "a policy that cannot be read is not enforced"
    )


def test_ten_thousand_pods_and_a_hundred_policies() -> None:
    index = PolicyIndex()
    for n in range(100):
        index.put_policy(
            policy(
                f"p-{n}",
                labels(app=f"app-{n}"),
                inside=f"ns-{n}",
                ingress=[{"from": [{"podSelector": {}}]}],
            )
        )
    for n in range(10_000):
        address = f"10.0.{n >> 8}.{n & 255}"
        index.put_pod(
            pod(
                f"p-{n}",
                address,
                {"app": f"app-{n % 100}"},
                namespace=f"ns-{n % 100}",
                node=f"n-{n % 1000}",
            )
        )
    assert len(index.isolation(("ns-7", "p-7")).ingress[0].peers) == 100  # type: ignore[arg-type, index]


def test_a_pod_is_isolated_before_its_status_has_an_address() -> None:
    index = PolicyIndex()
    index.put_policy(policy("deny", {}, inside="a", policyTypes=["Egress"]))
    pending = pod("k", "", {"app": "x"}, namespace="a", node="n")
    pending["metadata"]["uid"] = "1"
    index.put_pod(pending)
    assert index.pods_on("n") == []
    before = index.version("n")
    index.place_pod(("a", "k"), "1", ["10.0.0.7"])
    assert [one.addresses for one in index.pods_on("n")] == [("10.0.0.7",)]
    assert index.version("n") > before and index.isolation(("a", "k")).egress == ()
    index.put_pod(pending)  # whatever else changes before the status does
    assert [one.addresses for one in index.pods_on("n")] == [("10.0.0.7",)]
    for address in ("10.0.0.7", "10.0.0.8"):  # the status is up to date, and later it alone counts
        running = pod("k", address, {"app": "x"}, namespace="a", node="n")
        running["metadata"]["uid"] = "1"
        index.put_pod(running)
        assert [one.addresses for one in index.pods_on("n")] == [(address,)]
    other = pod("k", "", {"app": "x"}, namespace="a", node="n")
    other["metadata"]["uid"] = "2"
    index.place_pod(("a", "k"), "1", ["10.0.0.9"])
    index.put_pod(other)  # another pod of this name
    assert index.pods_on("n") == []


def _hostile_policies(index: PolicyIndex, make_peer: Callable[[int], dict[str, Any]]) -> None:
    for number in range(20):
        rules = [{"from": [make_peer(number * 5000 + peer) for peer in range(5000)]}]
        index.put_policy(policy(f"p-{number}", {}, ingress=rules))


@pytest.mark.parametrize(
    "make_peer",
    [
        lambda n: {"podSelector": labels(number=str(n))},
        lambda n: {"podSelector": labels(app="x", number=str(n))},
        lambda n: {"podSelector": {"matchExpressions": [{"key": f"k{n}", "operator": "Exists"}]}},
        lambda n: {"namespaceSelector": {}, "podSelector": labels(app="x", number=str(n))},
    ],
)
def test_an_event_of_a_pod_does_not_cost_more_with_a_hundred_thousand_peers(
    make_peer: Callable[[int], dict[str, Any]],
) -> None:
    index = PolicyIndex()
    _hostile_policies(index, make_peer)
    index.put_pod(pod("first", "10.0.0.1", {"app": "x"}))
    began = time.thread_time()
    for number in range(50):
        index.put_pod(pod(f"p-{number}", f"10.0.1.{number}", {"app": "x", "number": str(number)}))
    assert (time.thread_time() - began) / 50 < 0.01


def test_an_event_that_concerns_many_rules_looks_at_the_pods_of_a_policy_once() -> None:
    index = PolicyIndex()
    for number in range(2000):
        index.put_pod(
            pod(
                f"p-{number}",
                f"10.0.{number >> 8}.{number & 255}",
                {"app": "x"},
                node=f"n-{number % 10}",
            )
        )
    index.put_policy(policy(ingress=[{"from": [{"podSelector": {}}]} for _ in range(3000)]))
    began = time.thread_time()
    index.put_pod(pod("new", "10.1.0.1", {"app": "y"}))
    assert time.thread_time() - began < 0.05


def test_rules_select_cluster_dns_by_the_labels_of_its_pods() -> None:
    index = PolicyIndex()
    index.put_server("kube-system", "kube-dns", {"k8s-app": "kube-dns"}, ("172.20.0.2",))
    index.put_namespace(namespace("kube-system"))
    index.put_pod(pod("k", "10.0.0.1"))
    peer = {"namespaceSelector": {}, "podSelector": labels(**{"k8s-app": "kube-dns"})}
    index.put_policy(
        policy(policyTypes=["Egress"], egress=[{"to": [peer], "ports": [{"port": 53}]}])
    )
    [allowed] = index.isolation(("a", "k")).egress or ()
    assert allowed.peers == {"172.20.0.2"}
