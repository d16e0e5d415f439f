"""Address ranges of one family and of both: defaults, rejected values, and the ranges of each node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from transom.cluster.config import ClusterConfig
from transom.cluster.options import (
    IPV6_SERVICE_CIDR,
    add_ipv6_ranges,
    enable_dual_stack,
    parse_feature_gates,
)
from transom.kit.user_errors import UserError
from transom.node import spec as nodes
from transom.node.network_checks import check_network
from transom.node.network_settings import NetworkSettings
from transom.node.settings import cidr_of_family, split_cidrs
from transom.node.spec import NodeSpec

DUAL = ClusterConfig(network=NetworkSettings(dual_stack=True))
BOTH = "10.1.0.0/16,fd00:1::/56"
GATE = "IPv6DualStack=true"


def settled(config: ClusterConfig, *, large: bool = False) -> ClusterConfig:
    return add_ipv6_ranges(enable_dual_stack(config), large=large)


def test_one_family_stays_as_it_is() -> None:
    assert settled(ClusterConfig()) == ClusterConfig()
    gate = ClusterConfig(feature_gates=(GATE,))
    assert settled(gate) == gate  # services may name families; there is one all the same


def test_both_families_get_defaults() -> None:
    found = settled(DUAL)
    assert found.feature_gates == (GATE,)
    assert (found.pod_cidr, found.service_cidr) == (
        "10.244.0.0/16,fd00:10:244::/56",
        "10.96.0.0/16,fd00:10:96::/112",
    )
    assert cidr_of_family(found.node_cidr, 6) and cidr_of_family(found.load_balancer_cidr, 6)
    assert settled(found, large=True) == found, "a restart keeps it"
    assert cidr_of_family(settled(DUAL, large=True).pod_cidr, 6).endswith("/48")
    printed = settled(replace(DUAL, pod_cidr=BOTH, feature_gates=(GATE,)))
    assert (printed.pod_cidr, printed.feature_gates) == (BOTH, (GATE,))


def test_the_gate_and_ranges_of_both_say_it_too() -> None:
    found = settled(ClusterConfig(pod_cidr=BOTH, feature_gates=(GATE,)))
    assert found.network.dual_stack and split_cidrs(found.service_cidr)[1] == IPV6_SERVICE_CIDR


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"pod_cidr": BOTH}, "ranges of both IP families need dual stack"),
        (
            {"network": DUAL.network, "feature_gates": ("IPv6DualStack=false",)},
            "which is turned off",
        ),
        ({"network": DUAL.network, "release": "1.15"}, "1.15 has no dual stack"),
        (
            {"network": DUAL.network, "pod_cidr": "fd00:1::/56,10.1.0.0/16"},
            "IPv4 range must come first",
        ),
        ({"network": DUAL.network, "pod_cidr": "10.1.0.0/16,10.2.0.0/16"}, "one of each IP family"),
        ({"network": DUAL.network, "pod_cidr": "10.1.0.0/16,fd00:1::/40"}, "too large"),
        ({"pod_cidr": "10.1.0.0/25"}, "too small"),
        ({"service_cidr": "10.1.0.0/16,fd00::/100"}, "the mask must be >= 108"),
        ({"service_cidr": "10.1.0.1/16"}, "has host bits set"),
        ({"service_cidr": "here"}, "serviceCIDR"),
        ({"service_cidr": ""}, "serviceCIDR"),
        ({"service_cidr": "10.1.0.0/32"}, "serviceCIDR: 10.1.0.0/32 is too small"),
        ({"service_cidr": "10.1.0.0/29"}, "too small"),
        ({"service_cidr": "10.1.0.0/16,fd00::/127"}, "too small"),
        ({"node_cidr": "here"}, "node_cidr"),
        ({"load_balancer_cidr": "198.18.0.0/16,198.19.0.0/16"}, "load_balancer_cidr"),
    ],
)
def test_what_does_not_go_together(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        settled(replace(ClusterConfig(), **changes))


@pytest.mark.windows("DS-02", "DS-03", "IP6-01", "WIN-NET-013", "WIN-NET-015", "WIN-NET-016")
def test_which_nodes_have_both() -> None:
    config = settled(DUAL)
    wanted = [
        NodeSpec("l"),
        NodeSpec("old", os="windows"),
        NodeSpec("new", os="windows", build=19041),
        NodeSpec("docker", os="windows", build=20348, runtime="docker"),
    ]
    found = nodes.complete_specs(config, wanted)
    assert [nodes.node_has_ipv6(config, node) for node in found] == [True, False, True, True]
    assert [node.runtime for node in found] == ["containerd", "docker", "containerd", "docker"]
    assert [nodes.node_has_ipv6(ClusterConfig(), node) for node in found] == [False] * 4
    warnings = check_network(config, parse_feature_gates(config.feature_gates), found)
    assert [text.partition(":")[0] for text in warnings] == [
        "old",
        "docker",
    ] and "(WIN-NET-015)" in warnings[0]
    overlay = replace(config, network=replace(config.network, mode="overlay"))
    with pytest.raises(UserError, match="WIN-NET-013"):
        check_network(overlay, parse_feature_gates(overlay.feature_gates), found)
    # Linux can
    assert check_network(overlay, parse_feature_gates(overlay.feature_gates), found[:1]) == []
    alone = ClusterConfig(pod_cidr="fd00:1::/56", service_cidr="fd00:2::/112")
    with pytest.raises(UserError, match="WIN-NET-016"):
        check_network(alone, parse_feature_gates(alone.feature_gates), found)
    with pytest.raises(UserError, match="IPv6 alone"):
        check_network(alone, parse_feature_gates(alone.feature_gates), found[:1])
