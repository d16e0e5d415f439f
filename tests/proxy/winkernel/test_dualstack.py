from __future__ import annotations

import pytest
from tests.proxy.objects import endpoint_slice, service
from tests.proxy.winkernel.nodes import OTHER, add_network, make_hns

from transom.kit.clock import VirtualClock
from transom.proxy.tracker import ServiceTracker
from transom.proxy.winkernel.dualstack import DualStackProxier, node_ips
from transom.proxy.winkernel.options import WinkernelOptions


def tracker() -> ServiceTracker:
    made = ServiceTracker()
    made.mark_synced("services")
    made.mark_synced("endpoints")
    made.put_service(service(clusterIPs=["10.96.0.10", "fd00:96::10"], ipFamilies=["IPv4", "IPv6"]))
    made.put_slice(endpoint_slice(pods=[("10.244.2.5", OTHER)]))
    made.put_slice(endpoint_slice(pods=[("fd00:2::5", OTHER)], suffix="6", kind="IPv6"))
    return made


@pytest.mark.windows("LB-10", "LB-11")
@pytest.mark.parametrize(
    ("build", "vips"), [(20348, ["10.96.0.10", "fd00:96::10"]), (17763, ["10.96.0.10"])]
)
def test_both_families_where_the_platform_has_them(build: int, vips: list[str]) -> None:
    hns = make_hns(build)
    proxier = DualStackProxier(
        tracker(), "win1", hns, WinkernelOptions(network_name="cbr0"), VirtualClock()
    )
    assert proxier.dirty
    proxier.sync()
    assert sorted(b["FrontendVIPs"][0] for b in hns.loadbalancers.values()) == vips
    assert not proxier.dirty and not proxier.failed


def test_both_start_before_either_makes_anything() -> None:
    """The start takes all load balancers of the host away, and the two start one after the
    other.
    """
    hns, clock = make_hns(20348, network=""), VirtualClock()
    proxier = DualStackProxier(tracker(), "win1", hns, WinkernelOptions(network_name="cbr0"), clock)
    proxier.sync()
    add_network(hns)
    for _ in range(3):
        clock.advance(1)
        proxier.sync()
    assert len(hns.loadbalancers) == 2


def test_what_it_says_when_it_fails() -> None:
    proxier = DualStackProxier(
        tracker(),
        "win1",
        make_hns(20348),
        WinkernelOptions(cluster_cidr="10.244.0.0/16"),
        VirtualClock(),
        bind_address="::",
    )
    proxier.sync()
    assert proxier.failed == (
        "unable to create proxier: unable to create ipv4 proxier: Environment variable "
        "KUBE_NETWORK and network-flag not "
        "initialized, hostname: win1, clusterCIDR : 10.244.0.0/16, nodeIP:0.0.0.0"
    )
    assert not proxier.dirty
    assert node_ips("172.18.0.4") == ("172.18.0.4", "::")
