"""How the kernel mode starts, and what it refuses to start with."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.proxy.objects import service
from tests.proxy.winkernel.nodes import NODE_IP, OTHER, Node, add_network, make_hns, remote_subnet

from transom.windows.builds import BUILDS

MISSING = (
    "Unable to find HNS Network specified by cbr0. Please check network name and CNI deployment"
)
OVERLAY = {"network_name": "vxlan0", "source_vip": "10.244.1.9"}


def overlay(build: int = 17763, **options: Any) -> Node:
    hns = make_hns(
        build,
        network="vxlan0",
        kind="Overlay",
        policies=[remote_subnet("10.244.2.0/24", "172.18.0.5")],
    )
    return Node(hns, **{**OVERLAY, **options})


def test_it_waits_for_the_network_and_asks_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    node = Node(make_hns(network=""))
    node.put(service(), ("10.244.2.5", OTHER))
    with caplog.at_level(logging.ERROR, "transom.proxy"):
        for _ in range(3):
            node.sync()
            assert not node.proxier.dirty
        assert caplog.messages.count(MISSING) == 1
        node.clock.advance(1)
        assert node.proxier.dirty
        node.sync()
        assert caplog.messages.count(MISSING) == 2
    add_network(node.hns)
    node.clock.advance(1)
    node.sync()
    assert len(node.balancers()) == 1


def test_1_14_gives_up_when_the_network_is_missing(caplog: pytest.LogCaptureFixture) -> None:
    node = Node(make_hns(network=""), release=(1, 14))
    with caplog.at_level(logging.ERROR, "transom.proxy"):
        node.sync()
    assert node.proxier.failed == 'unable to create proxier: Network name "cbr0" not found'
    assert "Please check environment variable KUBE_NETWORK or network-name flag" in caplog.text
    assert not node.proxier.dirty


@pytest.mark.windows("TRB-63", "TRB-68")
def test_the_network_may_come_from_the_environment() -> None:
    node = Node(network_name="", environment={"KUBE_NETWORK": "cbr0"})
    node.put(service(), ("10.244.2.5", OTHER))
    node.sync()
    assert node.balancers()
    node = Node(network_name="")
    node.sync()
    assert node.proxier.failed == (
        "unable to create proxier: Environment variable KUBE_NETWORK and network-flag not "
        "initialized"
    )


@pytest.mark.parametrize(("release", "left"), [((1, 14), 1), ((1, 15), 0), ((1, 20), 0)])
def test_all_load_balancers_of_the_host_are_removed(release: tuple[int, int], left: int) -> None:
    node = Node(release=release)
    mine = node.pod("10.244.1.7")
    mapping = {
        "Protocol": 6,
        "InternalPort": 80,
        "ExternalPort": 8000,
        "DistributionType": 0,
        "Flags": 0,
    }
    node.hns.create("loadbalancer", {"HostComputeEndpoints": [mine], "PortMappings": [mapping]})
    node.sync()
    assert len(node.hns.loadbalancers) == left


def test_nothing_is_made_before_both_lists_have_come() -> None:
    node = Node()
    node.tracker._synced.discard("endpoints")
    node.put(service(), ("10.244.2.5", OTHER))
    node.sync()
    assert not node.balancers() and node.proxier.dirty
    node.tracker.mark_synced("endpoints")
    node.sync()
    assert node.balancers() and not node.proxier.dirty


@pytest.mark.windows("WIN-SVC-007", "WIN-SVC-008", "LB-04", "LB-05", "TRB-67", "TRB-69", "LNET-09")
@pytest.mark.parametrize(
    ("make", "refusal"),
    [
        (lambda: Node(enable_dsr=True), "WinDSR feature gate not enabled"),
        (
            lambda: Node(build=17134, enable_dsr=True, gates={"WinDSR": True}),
            "platform does not support feature Direct Server Return (DSR)",
        ),
        (lambda: overlay(release=(1, 19)), "WinOverlay feature gate not enabled"),
        (lambda: overlay(gates={"WinOverlay": False}), "WinOverlay feature gate not enabled"),
        (lambda: overlay(source_vip=""), "source-vip flag not set"),
        (lambda: overlay(node_ip="172.18.0.77"), "Could not find host mac address for 172.18.0.77"),
        (lambda: overlay(node_ip=""), "Could not find host mac address for 127.0.0.1"),
    ],
    ids=[
        "DSR without gate",
        "DSR on 1803",
        "overlay in 1.19",
        "overlay gate off",
        "no source VIP",
        "no MAC",
        "no node",
    ],
)
def test_refusals(make: Any, refusal: str) -> None:
    node = make()
    node.sync()
    node.clock.advance(10)
    node.sync()
    assert node.proxier.failed == f"unable to create proxier: {refusal}"
    assert not node.hns.loadbalancers


def test_overlay_waits_ten_seconds_and_looks_again() -> None:
    node = overlay()
    node.put(service(), ("10.244.2.5", OTHER))
    node.sync()
    node.clock.advance(9)
    assert not node.proxier.dirty
    node.sync()
    assert not node.balancers()
    node.clock.advance(1)
    node.sync()
    assert node.balancers()[("10.96.0.10", 80)]["source"] == "10.244.1.9"


def test_overlay_endpoints_sources_and_providers() -> None:
    node = overlay()
    node.clock.advance(10)
    shapes = {
        "pod": ("10.96.0.1", "10.244.2.5", "10.244.1.9", "172.18.0.5"),
        "node": ("10.96.0.2", "172.18.0.5", NODE_IP, "172.18.0.5"),
        "public": ("10.96.0.3", "198.51.100.9", NODE_IP, NODE_IP),
    }
    for name, (vip, backend, _, _) in shapes.items():
        node.put(service(name, ip=vip), (backend, OTHER))
    node.sync()
    node.clock.advance(10)
    node.sync()
    remotes = node.remotes()
    for vip, backend, source, provider in shapes.values():
        assert node.balancers()[vip, 80]["source"] == source
        assert remotes[backend]["Policies"] == [
            {"Type": "ProviderAddress", "Settings": {"ProviderAddress": provider}}
        ]
        assert remotes[vip]["Policies"][0]["Settings"] == {"ProviderAddress": NODE_IP}
        assert remotes[vip]["MacAddress"].replace(":", "-").upper() == "00-15-5D-00-00-04"
    vips = [
        e
        for e in node.hns.endpoints.values()
        if e["IpConfigurations"][0]["IpAddress"] == "10.244.1.9"
    ]
    assert len(vips) == 1 and not vips[0].get("Flags")
    for name, (vip, *_) in shapes.items():
        node.tracker.remove_service(service(name, ip=vip))
        node.tracker.remove_slice({"metadata": {"namespace": "default", "name": f"{name}-1"}})
    node.sync()
    assert not node.remotes() and not node.balancers()


def test_l2bridge_never_has_a_source_vip() -> None:
    node = Node(source_vip="10.244.1.9")
    node.put(service(), ("10.244.2.5", OTHER))
    node.sync()
    assert node.balancers()[("10.96.0.10", 80)]["source"] == ""


def test_versions_of_the_api() -> None:
    assert BUILDS[17134].hns < (9, 2) <= BUILDS[17763].hns
    node = Node(build=17134)
    node.put(service(), ("10.244.2.5", OTHER))
    node.sync()
    assert node.balancers()[("10.96.0.10", 80)]["to"] == ["10.244.2.5"]
