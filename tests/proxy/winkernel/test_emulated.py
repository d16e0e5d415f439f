from __future__ import annotations

from typing import Any

import pytest
from tests.proxy.objects import endpoint_slice, service

from transom.kit.clock import VirtualClock
from transom.proxy.tracker import ServiceTracker
from transom.proxy.winkernel import emulated
from transom.proxy.winkernel.options import WinkernelOptions
from transom.proxy.winkernel.proxier import WinkernelProxier


def node(
    name: str, ip: str, pods: str, kernel: str = "10.0.17763.1697", system: str = "windows"
) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/os": system}},
        "spec": {"podCIDR": pods},
        "status": {
            "addresses": [{"type": "InternalIP", "address": ip}],
            "nodeInfo": {"kernelVersion": kernel},
        },
    }


WIN1 = node("win1", "172.18.0.4", "10.244.1.0/24")
LIN1 = node("lin1", "172.18.0.5", "10.244.2.0/24", "5.10.0", "linux")


@pytest.mark.parametrize(
    ("kernel", "overlay"),
    [
        ("10.0.17763.1697", False),
        ("10.0.17763.1697", True),
        ("10.0.17134.1130", False),
        ("10.0.20348.587", True),
    ],
)
def test_what_a_windows_node_would_receive(kernel: str, overlay: bool) -> None:
    mine = node("win1", "172.18.0.4", "10.244.1.0/24", kernel)
    tracker = ServiceTracker()
    tracker.put_service(service())
    tracker.put_slice(endpoint_slice(pods=[("10.244.1.5", "win1"), ("10.244.2.5", "lin1")]))
    tracker.mark_synced("services")
    tracker.mark_synced("endpoints")
    network = emulated.usual_network(overlay)
    hns = emulated.make_hns("win1", mine, [mine, LIN1], network, overlay)
    emulated.add_pods(hns, network, "win1", tracker)
    clock = VirtualClock()
    options = WinkernelOptions(
        network_name=network,
        node_ip=emulated.node_ip(mine),
        source_vip="10.244.1.9" if overlay else "",
    )
    proxier = WinkernelProxier(tracker, "win1", hns, options, clock)
    proxier.sync()
    clock.advance(10)
    proxier.sync()
    assert not proxier.failed
    shown = emulated.hns_listing(hns)
    assert [b["FrontendVIPs"] for b in shown["loadBalancers"]] == [["10.96.0.10"]]
    assert len(shown["loadBalancers"][0]["HostComputeEndpoints"]) == 2
    remotes = {e["IpConfigurations"][0]["IpAddress"]: e for e in shown["remoteEndpoints"]}
    assert set(remotes) == ({"10.244.2.5", "10.96.0.10"} if overlay else {"10.244.2.5"})
    if overlay:
        assert remotes["10.244.2.5"]["Policies"][0]["Settings"] == {"ProviderAddress": "172.18.0.5"}


def test_what_is_read_off_a_node() -> None:
    assert (
        emulated.runs_windows(WIN1)
        and not emulated.runs_windows(LIN1)
        and not emulated.runs_windows(None)
    )
    assert (
        emulated.reported_build(WIN1).number == 17763
        and emulated.reported_build(None).number == 17763
    )
    assert emulated.node_ip(None) == "" and emulated.node_ip(LIN1) == "172.18.0.5"
