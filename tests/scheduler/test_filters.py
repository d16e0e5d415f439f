"""Which nodes are feasible, and the reasons for the others. The texts are those of Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from transom.machinery.releases import Release

from .conftest import SchedulerHarness
from .objects import Object, node, pod, required, spread, term

HOST, ZONE = "kubernetes.io/hostname", "zone"


def toleration(**fields: str) -> list[Object]:
    return [fields]


def affinity(*terms: list[Object]) -> Object:
    selector_terms = [{"matchExpressions": expressions} for expressions in terms]
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": selector_terms}
        }
    }


def expression(key: str, operator: str, *values: str) -> Object:
    return (
        {"key": key, "operator": operator, "values": list(values)}
        if values
        else {"key": key, "operator": operator}
    )


DB = [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]
SECOND = [{"key": "second", "effect": "NoExecute"}]

CASES: list[tuple[str, list[Object], list[Object], Object, str]] = [
    ("no nodes", [], [], pod("p"), "no nodes available to schedule pods"),
    (
        "cpu",
        [node("a", cpu="2")],
        [],
        pod("p", cpu="3"),
        "0/1 nodes are available: 1 Insufficient cpu.",
    ),
    ("just enough", [node("a", cpu="2")], [], pod("p", cpu="2"), "a"),
    (
        "both",
        [node("a", cpu="2", memory="4Gi")],
        [],
        pod("p", cpu="2500m", memory="5Gi"),
        "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory.",
    ),
    (
        "beside others",
        [node("a", cpu="2")],
        [pod("x", cpu="1500m", node_name="a")],
        pod("p", cpu="600m"),
        "0/1 nodes are available: 1 Insufficient cpu.",
    ),
    (
        "pods of an overcommitted node that ask for nothing",
        [node("a", cpu="1")],
        [pod("x", cpu="3", node_name="a")],
        pod("p"),
        "a",
    ),
    (
        "one that asks for memory is held against cpu too",
        [node("a", cpu="1")],
        [pod("x", cpu="3", node_name="a")],
        pod("p", memory="1Mi"),
        "0/1 nodes are available: 1 Insufficient cpu.",
    ),
    (
        "count",
        [node("a", pods="1")],
        [pod("x", node_name="a")],
        pod("p"),
        "0/1 nodes are available: 1 Too many pods.",
    ),
    (
        "init containers count alone",
        [node("a", cpu="2")],
        [],
        pod("p", cpu="1", initContainers=[{"name": "i", "resources": {"requests": {"cpu": "3"}}}]),
        "0/1 nodes are available: 1 Insufficient cpu.",
    ),
    (
        "overhead",
        [node("a", cpu="2")],
        [],
        pod("p", cpu="1900m", overhead={"cpu": "200m"}),
        "0/1 nodes are available: 1 Insufficient cpu.",
    ),
    (
        "extended resource",
        [node("a")],
        [],
        pod(
            "p", initContainers=[{"name": "i", "resources": {"requests": {"example.org/gpu": "1"}}}]
        ),
        "0/1 nodes are available: 1 Insufficient example.org/gpu.",
    ),
    (
        "cordoned",
        [node("a", unschedulable=True)],
        [],
        pod("p"),
        "0/1 nodes are available: 1 node(s) were unschedulable.",
    ),
    (
        "cordon tolerated",
        [node("a", unschedulable=True)],
        [],
        pod("p", tolerations=toleration(key="node.kubernetes.io/unschedulable", operator="Exists")),
        "a",
    ),
    (
        "taint",
        [node("a", taints=DB + SECOND)],
        [],
        pod("p"),
        "0/1 nodes are available: 1 node(s) had taint {dedicated: db}, that the pod didn't tolerate.",
    ),
    (
        "taint without value",
        [node("a", taints=DB + SECOND)],
        [],
        pod("p", tolerations=toleration(key="dedicated", operator="Exists")),
        "0/1 nodes are available: 1 node(s) had taint {second: }, that the pod didn't tolerate.",
    ),
    (
        "toleration of another effect",
        [node("a", taints=DB)],
        [],
        pod("p", tolerations=toleration(key="dedicated", value="db", effect="NoExecute")),
        "0/1 nodes are available: 1 node(s) had taint {dedicated: db}, that the pod didn't tolerate.",
    ),
    (
        "everything tolerated",
        [node("a", taints=DB + SECOND)],
        [],
        pod("p", tolerations=toleration(operator="Exists")),
        "a",
    ),
    (
        "soft taint",
        [node("a", taints=[{"key": "x", "effect": "PreferNoSchedule"}])],
        [],
        pod("p"),
        "a",
    ),
    (
        "selector",
        [node("a")],
        [],
        pod("p", nodeSelector={"disk": "ssd"}),
        "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity.",
    ),
    (
        "terms are alternatives",
        [node("a", labels={"zone": "7"})],
        [],
        pod(
            "p",
            affinity=affinity([expression("disk", "In", "ssd")], [expression("zone", "Gt", "5")]),
        ),
        "a",
    ),
    (
        "expressions are not",
        [node("a", labels={"zone": "7"})],
        [],
        pod("p", affinity=affinity([expression("zone", "Exists"), expression("zone", "Lt", "5")])),
        "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity.",
    ),
    (
        "not in",
        [node("a", labels={"zone": "x"}), node("b")],
        [],
        pod("p", affinity=affinity([expression("zone", "NotIn", "x", "y")])),
        "b",
    ),
    (
        "does not exist",
        [node("a", labels={"zone": "x"}), node("b")],
        [],
        pod("p", affinity=affinity([expression("zone", "DoesNotExist")])),
        "b",
    ),
    (
        "no terms match nothing",
        [node("a")],
        [],
        pod("p", affinity=affinity([])),
        "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity.",
    ),
    (
        "ports",
        [node("a")],
        [pod("x", node_name="a", ports=[{"containerPort": 80, "hostPort": 8080}])],
        pod("p", ports=[{"containerPort": 81, "hostPort": 8080}]),
        "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.",
    ),
    (
        "ports of another protocol",
        [node("a")],
        [pod("x", node_name="a", ports=[{"containerPort": 80, "hostPort": 8080}])],
        pod("p", ports=[{"containerPort": 81, "hostPort": 8080, "protocol": "UDP"}]),
        "a",
    ),
    (
        "ports of another address",
        [node("a")],
        [
            pod(
                "x",
                node_name="a",
                ports=[{"containerPort": 80, "hostPort": 8080, "hostIP": "10.0.0.1"}],
            )
        ],
        pod("p", ports=[{"containerPort": 81, "hostPort": 8080, "hostIP": "10.0.0.2"}]),
        "a",
    ),
    (
        "ports of all addresses",
        [node("a")],
        [
            pod(
                "x",
                node_name="a",
                ports=[{"containerPort": 80, "hostPort": 8080, "hostIP": "10.0.0.1"}],
            )
        ],
        pod("p", ports=[{"containerPort": 81, "hostPort": 8080}]),
        "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.",
    ),
    (
        "anti-affinity",
        [node("a")],
        [pod("x", labels={"app": "x"}, node_name="a")],
        pod("p", affinity={"podAntiAffinity": required(term({"app": "x"}, HOST))}),
        "0/1 nodes are available: 1 node(s) didn't match pod affinity/anti-affinity, "
        "1 node(s) didn't match pod anti-affinity rules.",
    ),
    (
        "anti-affinity of others",
        [node("a")],
        [pod("x", node_name="a", affinity={"podAntiAffinity": required(term({"app": "p"}, HOST))})],
        pod("p", labels={"app": "p"}),
        "0/1 nodes are available: 1 node(s) didn't match pod affinity/anti-affinity, "
        "1 node(s) didn't satisfy existing pods anti-affinity rules.",
    ),
    (
        "anti-affinity of another namespace",
        [node("a")],
        [
            pod(
                "x",
                node_name="a",
                namespace="far",
                affinity={"podAntiAffinity": required(term({"app": "p"}, HOST))},
            )
        ],
        pod("p", labels={"app": "p"}),
        "a",
    ),
    (
        "affinity",
        [node("a"), node("b")],
        [pod("x", labels={"app": "x"}, node_name="b")],
        pod("p", affinity={"podAffinity": required(term({"app": "x"}, HOST))}),
        "b",
    ),
    (
        "affinity to no pod",
        [node("a")],
        [],
        pod("p", affinity={"podAffinity": required(term({"app": "x"}, HOST))}),
        "0/1 nodes are available: 1 node(s) didn't match pod affinity rules, "
        "1 node(s) didn't match pod affinity/anti-affinity.",
    ),
    (
        "the first of its kind",
        [node("a")],
        [],
        pod("p", labels={"app": "x"}, affinity={"podAffinity": required(term({"app": "x"}, HOST))}),
        "a",
    ),
    (
        "affinity by zone",
        [
            node("a", labels={ZONE: "1"}),
            node("b", labels={ZONE: "2"}, taints=DB),
            node("c", labels={ZONE: "2"}),
        ],
        [pod("x", labels={"app": "x"}, node_name="b")],
        pod("p", affinity={"podAffinity": required(term({"app": "x"}, ZONE))}),
        "c",
    ),
    (
        "spread",
        [node("a", labels={ZONE: "1"}), node("b", labels={ZONE: "2"})],
        [pod("x", labels={"s": "1"}, node_name="a")],
        pod("p", labels={"s": "1"}, topologySpreadConstraints=[spread(1, ZONE, {"s": "1"})]),
        "b",
    ),
    (
        "uneven",
        [node("a", labels={ZONE: "1"}), node("b", labels={ZONE: "2"}, taints=DB), node("c")],
        [pod("x", labels={"s": "1"}, node_name="a")],
        pod("p", labels={"s": "1"}, topologySpreadConstraints=[spread(1, ZONE, {"s": "1"})]),
        "0/3 nodes are available: 1 node(s) didn't match pod topology spread constraints, "
        "1 node(s) didn't match pod topology spread constraints (missing required label), "
        "1 node(s) had taint {dedicated: db}, that the pod didn't tolerate.",
    ),
    (
        "nodes that the selector refuses do not count",
        [node("a", labels={ZONE: "1", "x": "1"}), node("b", labels={ZONE: "2"})],
        [pod("x", labels={"s": "1"}, node_name="a")],
        pod(
            "p",
            labels={"s": "1"},
            nodeSelector={"x": "1"},
            topologySpreadConstraints=[spread(1, ZONE, {"s": "1"})],
        ),
        "a",
    ),
    (
        "disk in use",
        [node("a")],
        [pod("x", node_name="a", volumes=[{"name": "v", "gcePersistentDisk": {"pdName": "d"}}])],
        pod("p", volumes=[{"name": "v", "gcePersistentDisk": {"pdName": "d", "readOnly": True}}]),
        "0/1 nodes are available: 1 node(s) had no available disk.",
    ),
    (
        "disk read by both",
        [node("a")],
        [
            pod(
                "x",
                node_name="a",
                volumes=[{"name": "v", "gcePersistentDisk": {"pdName": "d", "readOnly": True}}],
            )
        ],
        pod("p", volumes=[{"name": "v", "gcePersistentDisk": {"pdName": "d", "readOnly": True}}]),
        "a",
    ),
    (
        "too many disks",
        [node("a", resources={"attachable-volumes-gce-pd": "1"})],
        [pod("x", node_name="a", volumes=[{"name": "v", "gcePersistentDisk": {"pdName": "d"}}])],
        pod("p", volumes=[{"name": "v", "gcePersistentDisk": {"pdName": "e"}}]),
        "0/1 nodes are available: 1 node(s) exceed max volume count.",
    ),
    (
        "reasons are sorted with their counts",
        [
            node("a", cpu="1"),
            node("b", cpu="1", memory="1Gi"),
            node("c", unschedulable=True),
            node("w", taints=[{"key": "os", "value": "windows", "effect": "NoSchedule"}]),
        ],
        [],
        pod("p", cpu="2", memory="2Gi"),
        "0/4 nodes are available: 1 Insufficient memory, 1 node(s) had taint {os: windows}, that the pod didn't tolerate, "
        "1 node(s) were unschedulable, 2 Insufficient cpu.",
    ),
]


@pytest.mark.parametrize(
    ("nodes", "running", "wanted", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_verdicts(
    harness: SchedulerHarness,
    nodes: list[Object],
    running: list[Object],
    wanted: Object,
    expected: str,
) -> None:
    harness.nodes(*nodes)
    harness.running(*running)
    assert harness.decide(wanted) == expected


def test_pods_of_a_vanished_node_count_again_when_it_returns(harness: SchedulerHarness) -> None:
    harness.running(pod("x", cpu="3", node_name="a"))
    assert harness.decide(pod("p", cpu="2")) == "no nodes available to schedule pods"
    harness.nodes(node("a"))
    assert harness.decide(pod("p", cpu="2")) == "0/1 nodes are available: 1 Insufficient cpu."
    harness.snapshot.remove_node("a")
    harness.nodes(node("b"))
    assert harness.decide(pod("p", cpu="2")) == "b"
    harness.nodes(node("a"))
    assert harness.decide(pod("p", cpu="4")) == "b"


def test_a_node_that_changes_is_seen_anew(harness: SchedulerHarness) -> None:
    wanted = pod("p", nodeSelector={"disk": "ssd"})
    harness.nodes(node("a"), node("b", taints=DB))
    assert "2 node(s)" not in harness.decide(wanted)
    harness.nodes(node("b", labels={"disk": "ssd"}))
    assert harness.decide(wanted) == "b"
    harness.nodes(node("b", labels={"disk": "ssd"}, unschedulable=True))
    assert harness.decide(wanted) == (
        "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity, 1 node(s) were unschedulable."
    )


async def test_the_operating_system_matters_only_where_it_is_switched_on() -> None:

    windows = node("w", labels={"kubernetes.io/os": "windows"})
    plain = SchedulerHarness()
    plain.nodes(windows)
    assert plain.decide(pod("p")) == "w"  # as in Kubernetes 1.20: it lands there, and fails there
    config: dict[str, Any] = {
        "profiles": [{"plugins": {"filter": {"enabled": [{"name": "NodeOperatingSystem"}]}}}]
    }
    careful = SchedulerHarness(config)
    careful.nodes(windows)
    assert careful.decide(pod("p")) == (
        "0/1 nodes are available: 1 node(s) had another operating system than the pod is for."
    )
    assert careful.decide(pod("p", nodeSelector={"kubernetes.io/os": "windows"})) == "w"


@pytest.mark.parametrize(
    ("minor", "selector", "taint", "full"),
    [
        (
            17,
            "node(s) didn't match node selector",
            "node(s) had taints that the pod didn't tolerate",
            "Insufficient pods",
        ),
        (
            19,
            "node(s) didn't match node selector",
            "node(s) had taint {dedicated: db}, that the pod didn't tolerate",
            "Too many pods",
        ),
        (
            20,
            "node(s) didn't match Pod's node affinity",
            "node(s) had taint {dedicated: db}, that the pod didn't tolerate",
            "Too many pods",
        ),
    ],
)
def test_older_releases_have_their_reasons(
    minor: int, selector: str, taint: str, full: str
) -> None:
    harness = SchedulerHarness(release=Release(1, minor))
    labels = {"disk": "ssd"}
    harness.nodes(
        node("a"), node("b", labels=labels, taints=DB), node("c", labels=labels, pods="1")
    )
    harness.running(pod("x", node_name="c"))
    reasons = sorted(f"1 {reason}" for reason in (selector, taint, full))
    assert harness.decide(pod("p", nodeSelector=labels)) == (
        f"0/3 nodes are available: {', '.join(reasons)}."
    )
