"""Which feasible node is chosen: scores computed by hand from Kubernetes' formulas."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from transom.client.resources import REPLICA_SETS, SERVICES
from transom.scheduler.cycle import num_feasible_nodes_to_find
from transom.scheduler.framework import CycleState
from transom.scheduler.pods import PodInfo

from .conftest import SchedulerHarness
from .objects import Object, node, pod

MB = 1024 * 1024


def scores(harness: SchedulerHarness, wanted: Object) -> dict[str, list[int]]:
    """Score by plugin, for nodes a, b, ..."""
    profile = harness.scheduler.profiles["default-scheduler"]
    state, info = CycleState(), PodInfo(wanted)
    assert profile.run_pre_filter_plugins(state, info) is None
    rows = harness.snapshot.order
    out: dict[str, list[int]] = {}
    profile.run_pre_score_plugins(state, info, rows)
    for name, values, _ in profile.run_score_plugins(state, info, rows):
        out[name] = [values] * len(rows) if isinstance(values, int) else values.tolist()
    return out


def test_resources(harness: SchedulerHarness) -> None:
    harness.nodes(node("a", cpu="4", memory="8Gi"), node("b", cpu="4", memory="8Gi"))
    harness.running(pod("x", cpu="1", memory="4Gi", node_name="a"), pod("y", node_name="b"))
    found = scores(harness, pod("p", cpu="1", memory="1Gi"))
    # a: cpu (4000-2000)*100/4000 = 50, memory 3/8 = 37 -> 43; b has a pod that counts as 100m and 200Mi.
    assert found["NodeResourcesLeastAllocated"] == [43, (72 + 85) // 2]
    # a: |0.5 - 0.625|; b: |0.275 - 0.1494140625|
    assert found["NodeResourcesBalancedAllocation"] == [87, 87]
    assert harness.decide(pod("p", cpu="1", memory="1Gi")) == "b"


def test_a_full_node_is_not_balanced(harness: SchedulerHarness) -> None:
    harness.nodes(node("a", cpu="1", memory="1Gi"), node("b"))
    assert (
        scores(harness, pod("p", cpu="1", memory="1Mi"))["NodeResourcesBalancedAllocation"][0] == 0
    )


def test_soft_taints_and_preferred_nodes(harness: SchedulerHarness) -> None:
    soft: list[Object] = [{"key": k, "effect": "PreferNoSchedule"} for k in ("x", "y")]
    harness.nodes(
        node("a", taints=soft), node("b", taints=soft[:1]), node("c", labels={"disk": "ssd"})
    )
    terms = [
        {
            "weight": 30,
            "preference": {
                "matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]
            },
        },
        {
            "weight": 20,
            "preference": {
                "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]
            },
        },
    ]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
    found = scores(
        harness, pod("p", affinity=affinity, tolerations=[{"key": "y", "operator": "Exists"}])
    )
    assert found["TaintToleration"] == [0, 0, 100]
    assert found["NodeAffinity"] == [66, 0, 100]
    assert scores(harness, pod("p"))["TaintToleration"] == [0, 50, 100]


def test_images(harness: SchedulerHarness) -> None:
    def image(size: int) -> list[Object]:
        return [{"names": ["registry.example/app:1"], "sizeBytes": size * MB}]

    harness.nodes(node("a", images=image(500)), node("b"), node("c", images=image(500)))
    # Each node counts the nodes that had the image when it last spoke: a alone of what is three now, c one of two.
    sums = [500 * MB // 3, 0, int(500 * MB * (2 / 3))]
    expected = [100 * (max(s, 23 * MB) - 23 * MB) // (977 * MB) for s in sums]
    assert scores(harness, pod("p"))["ImageLocality"] == expected
    assert scores(harness, pod("p", image="registry.example/other"))["ImageLocality"] == [0, 0, 0]


def test_nodes_that_avoid_a_controller(harness: SchedulerHarness) -> None:
    signature = {"podSignature": {"podController": {"kind": "ReplicaSet", "uid": "u1"}}}
    notes = {
        "scheduler.alpha.kubernetes.io/preferAvoidPods": json.dumps(
            {"preferAvoidPods": [signature]}
        )
    }
    harness.nodes(node("a", annotations=notes), node("b", cpu="1", memory="1Gi"))
    wanted = pod("p", cpu="500m")
    wanted["metadata"]["ownerReferences"] = [
        {"kind": "ReplicaSet", "uid": "u1", "controller": True, "name": "rs"}
    ]
    assert scores(harness, wanted)["NodePreferAvoidPods"] == [0, 100]
    assert harness.decide(wanted) == "b"
    wanted["metadata"]["ownerReferences"][0]["uid"] = "u2"
    assert harness.decide(wanted) == "a"


def test_what_belongs_together_is_spread_by_default(harness: SchedulerHarness) -> None:
    zone = "topology.kubernetes.io/zone"
    harness.nodes(
        node("a", labels={zone: "1"}), node("b", labels={zone: "2"}), node("c", labels={zone: "2"})
    )
    harness.running(
        *(pod(f"x{i}", labels={"app": "web"}, node_name=n) for i, n in enumerate("aab"))
    )
    wanted = pod("p", labels={"app": "web"})
    assert scores(harness, wanted)["PodTopologySpread"] == [
        100,
        100,
        100,
    ]  # nothing says that they belong together
    harness.put(
        SERVICES,
        {"metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": {"app": "web"}}},
    )
    # Hosts weigh ln 5 and zones ln 4: a 2*1.609+2 + 2*1.386+4 = 11, b 1.609+2 + 1.386+4 = 8, c 0+2 + 1.386+4 = 7.
    assert scores(harness, wanted)["PodTopologySpread"] == [
        100 * 7 // 11,
        100 * 10 // 11,
        100 * 11 // 11,
    ]
    harness.put(
        REPLICA_SETS,
        {
            "metadata": {"name": "rs", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "web", "v": "2"}}},
        },
    )
    assert scores(harness, pod("p", labels={"app": "web", "v": "2"}))["PodTopologySpread"] == [
        100,
        100,
        100,
    ]


@pytest.mark.parametrize(
    ("nodes", "percentage", "expected"),
    [
        (50, 0, 50),
        (99, 10, 99),
        (100, 0, 100),
        (1000, 0, 420),
        (5000, 0, 500),
        (6000, 0, 300),
        (10000, 0, 500),
        (1000, 30, 300),
        (1000, 100, 1000),
        (1000, 5, 100),
    ],
)
def test_how_many_nodes_are_enough(nodes: int, percentage: int, expected: int) -> None:
    assert num_feasible_nodes_to_find(nodes, percentage) == expected


async def test_each_look_begins_where_the_last_one_ended() -> None:
    harness = SchedulerHarness({"percentageOfNodesToScore": 10})
    harness.nodes(*(node(f"n{i:03}") for i in range(250)))
    algorithm = harness.scheduler.algorithm
    profile = harness.scheduler.profiles["default-scheduler"]
    seen = []
    for i in range(5):
        state, info = CycleState(), PodInfo(pod(f"p{i}"))
        profile.run_pre_filter_plugins(state, info)
        start = algorithm._next_start_node_index
        rows = algorithm._find_nodes_that_pass_filters(profile, state, info)
        assert len(rows) == (algorithm._next_start_node_index - start) % 250 == 100
        seen.append([harness.snapshot.name(row) for row in rows])
    names = [f"n{i:03}" for i in range(250)]
    assert seen[0] == names[:100] and seen[1] == names[100:200]
    assert seen[2] == names[200:] + names[:50]
    # Nodes that will not do are passed over, and count as looked at.
    harness.nodes(*(node(f"n{i:03}", unschedulable=True) for i in range(0, 250, 2)))
    state, info = CycleState(), PodInfo(pod("q"))
    profile.run_pre_filter_plugins(state, info)
    start = algorithm._next_start_node_index
    rows = algorithm._find_nodes_that_pass_filters(profile, state, info)
    assert len(rows) == 100 and (algorithm._next_start_node_index - start) % 250 == 200


async def test_zones_take_turns() -> None:
    harness = SchedulerHarness()
    for i, zone in enumerate("aaabbc"):
        harness.nodes(node(f"{zone}{i}", labels={"topology.kubernetes.io/zone": zone}))
    assert [harness.snapshot.name(r) for r in harness.snapshot.order] == [
        "a0",
        "b3",
        "c5",
        "a1",
        "b4",
        "a2",
    ]


def test_ties_are_broken_by_lot_and_by_seed() -> None:
    async def choices(seed: int) -> list[str]:
        harness = SchedulerHarness(seed=seed)
        harness.nodes(*(node(f"n{i}") for i in range(4)))
        return [harness.decide(pod(f"p{i}")) for i in range(40)]

    first = asyncio.run(choices(1))
    assert set(first) == {"n0", "n1", "n2", "n3"}
    assert first == asyncio.run(choices(1)) != asyncio.run(choices(2))


def profile(**plugins: Any) -> dict[str, Any]:
    return {"profiles": [plugins]}


async def test_other_scores_by_configuration() -> None:
    most: dict[str, Any] = profile(
        plugins={
            "score": {
                "disabled": [{"name": "*"}],
                "enabled": [{"name": "NodeResourcesMostAllocated", "weight": 2}],
            }
        }
    )
    harness = SchedulerHarness(most)
    harness.nodes(node("a"), node("b"))
    harness.running(pod("x", cpu="2", node_name="b"))
    assert scores(harness, pod("p", cpu="1", memory="2Gi")) == {
        "NodeResourcesMostAllocated": [(25 + 25) // 2, (75 + 27) // 2]
    }
    assert harness.decide(pod("p", cpu="1")) == "b"
    ratio = profile(
        plugins={
            "score": {
                "disabled": [{"name": "*"}],
                "enabled": [{"name": "RequestedToCapacityRatio"}],
            }
        },
        pluginConfig=[
            {
                "name": "RequestedToCapacityRatio",
                "args": {
                    "shape": [
                        {"utilization": 0, "score": 0},
                        {"utilization": 100, "score": 10},
                    ],
                    "resources": [
                        {"name": "example.org/gpu", "weight": 3},
                        {"name": "cpu", "weight": 1},
                    ],
                },
            }
        ],
    )
    harness = SchedulerHarness(ratio)
    harness.nodes(node("a", resources={"example.org/gpu": "4"}))
    wanted = pod("p", cpu="1")
    wanted["spec"]["containers"][0]["resources"]["requests"]["example.org/gpu"] = "2"
    assert scores(harness, wanted) == {"RequestedToCapacityRatio": [44]}  # (50*3 + 25) / 4, rounded
