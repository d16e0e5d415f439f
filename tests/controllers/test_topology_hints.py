"""Hints of endpoints: shared out to zones by their CPU, or kept close by trafficDistribution."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from transom.controllers.endpointslice import topology
from transom.controllers.endpointslice.common import ZONE, SliceChanges
from transom.controllers.endpointslice.topology import TopologyCache, cpu_ratios
from transom.controllers.service_pods import endpoint_rules
from transom.machinery.objects import Object
from transom.machinery.releases import Release
from transom.machinery.releases.features import FeatureSet

KEY, IPV4 = "default/s", "IPv4"


def node(
    zone: str, cpu: str = "4", *, ready: bool = True, labels: dict[str, str] | None = None
) -> Object:
    zoned = {ZONE: zone} if zone else {}
    return {
        "metadata": {"name": zone, "labels": zoned | (labels or {})},
        "status": {
            "allocatable": {"cpu": cpu},
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def piece(name: str, *zones: str, **more: Any) -> Object:
    endpoints = [
        {"addresses": [f"10.0.0.{i}"], "conditions": {"ready": True}, "zone": zone, **more}
        for i, zone in enumerate(zones)
    ]
    return {"metadata": {"name": name}, "addressType": IPV4, "endpoints": endpoints}


def hinted(changes: SliceChanges) -> Counter[str]:
    return Counter(
        hint["name"]
        for each in (*changes.create, *changes.update)
        for endpoint in each["endpoints"]
        for hint in (endpoint.get("hints") or {}).get("forZones") or ()
    )


def test_zones_have_a_share_by_cpu_of_their_ready_workers() -> None:
    nodes = [
        node("a", "6"),
        node("b", "2"),
        node("c", ready=False),
        node("", labels={"node-role.kubernetes.io/control-plane": ""}),
    ]
    assert cpu_ratios(nodes) == {"a": 0.75, "b": 0.25}
    assert cpu_ratios(nodes[:1]) is None, "one zone"
    assert cpu_ratios([*nodes, node("")]) is None, "a node without a zone"
    assert cpu_ratios([*nodes, node("d", "0")]) is None, "a node without CPU"


def test_endpoints_are_given_from_zones_with_too_many_to_zones_with_too_few() -> None:
    cache = TopologyCache(lambda: [node("a"), node("b")])
    changes = SliceChanges(create=[piece("x", *"aaaaab")])
    event = cache.add_hints(KEY, IPV4, changes, [])
    assert event == (
        "Normal",
        "TopologyAwareHintsEnabled",
        "Topology Aware Hints has been enabled, addressType: IPv4",
    )
    assert hinted(changes) == {"a": 3, "b": 3}
    again = SliceChanges()
    assert cache.add_hints(KEY, IPV4, again, changes.create) is None
    assert again == SliceChanges(), "right hints stay"


@pytest.mark.parametrize(
    ("nodes", "zones", "message"),
    [
        (
            [node("a")],
            "aa",
            "Insufficient Node information: allocatable CPU or zone not specified on one or more "
            "nodes",
        ),
        ([node("a"), node("b")], "a", "Insufficient number of endpoints (1 endpoints, 2 zones)"),
        (
            [node("a", "10"), node("b", "1"), node("c", "1")],
            "abc",
            "Unable to allocate minimum required endpoints to each zone without exceeding overload "
            "threshold (3 endpoints, 3 zones)",
        ),
        (
            [node("a"), node("b")],
            ["a", ""],
            "One or more endpoints do not have a zone specified",
        ),
    ],
)
def test_hints_that_cannot_be_shared_out_are_removed(
    nodes: list[Object], zones: Any, message: str
) -> None:
    cache = TopologyCache(lambda: nodes)
    old = piece("x", *zones, hints={"forZones": [{"name": "a"}]})
    changes = SliceChanges()
    event = cache.add_hints(KEY, IPV4, changes, [old])
    expected = f"{message}, addressType: IPv4"
    assert event == ("Warning", "TopologyAwareHintsDisabled", expected)
    assert [each["metadata"]["name"] for each in changes.update] == ["x"]
    assert hinted(changes) == {}
    assert "hints" in old["endpoints"][0], "objects of the informer are not changed"


def test_services_with_too_few_endpoints_in_a_zone_are_looked_at_again() -> None:
    nodes = [node("a"), node("b")]
    cache = TopologyCache(lambda: nodes)
    cache.add_hints(KEY, IPV4, SliceChanges(create=[piece("x", *"aabb")]), [])
    assert cache.overloaded_services() == []
    nodes.append(node("c"))
    cache.nodes_changed()
    assert cache.overloaded_services() == [KEY]
    event = cache.remove_hints(KEY, IPV4)
    assert event is not None and event.reason == "TopologyAwareHintsDisabled"
    assert cache.remove_hints(KEY, IPV4) is None


@pytest.mark.parametrize(
    ("minor", "annotation", "value", "wanted"),
    [
        (23, "topology-aware-hints", "Auto", False),
        (24, "topology-aware-hints", "Auto", True),
        (24, "topology-mode", "Auto", False),
        (27, "topology-mode", "Auto", True),
        (36, "topology-mode", "auto", True),
        (36, "topology-mode", "Disabled", False),
    ],
)
def test_the_annotation_of_the_release(
    minor: int, annotation: str, value: str, wanted: bool
) -> None:
    rules = endpoint_rules(FeatureSet(Release(1, minor)))
    service = {"metadata": {"annotations": {f"service.kubernetes.io/{annotation}": value}}}
    assert topology.is_topology_aware(service, rules) is wanted


@pytest.mark.parametrize(
    ("minor", "value", "hints"),
    [
        (30, "PreferClose", None),
        (31, "PreferClose", {"forZones": [{"name": "a"}]}),
        (33, "PreferSameZone", None),
        (36, "PreferSameZone", {"forZones": [{"name": "a"}]}),
        (36, "PreferSameNode", {"forZones": [{"name": "a"}], "forNodes": [{"name": "n"}]}),
    ],
)
def test_the_traffic_distribution_of_the_release(
    minor: int, value: str, hints: Object | None
) -> None:
    rules = endpoint_rules(FeatureSet(Release(1, minor)))
    service = {"metadata": {}, "spec": {"trafficDistribution": value}}
    wanted = topology.traffic_distribution(service, rules)
    changes = SliceChanges()
    old = piece("x", "a", nodeName="n")
    if wanted is not None:
        topology.set_hints(changes, [old], lambda e: topology.close_hints(wanted, e))
    found = changes.update[0]["endpoints"][0]["hints"] if changes.update else None
    assert found == hints
