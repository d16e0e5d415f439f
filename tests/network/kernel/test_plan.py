"""Stacks as plans, and the difference between two plans as messages. Needs no privileges: nothing
is sent.
"""

from __future__ import annotations

import itertools

import pytest
from tests.network.fabrics import make_cluster

from transom.network.kernel import arrange, names, netlink
from transom.network.kernel.arrange import NamespaceContent
from transom.network.kernel.namespaces import NetworkNamespaceHandle
from transom.network.kernel.plan import PlannedDevice, PlannedRoute, StackPlan, linux_stack_plan
from transom.network.stacks import Fabric, NetworkLink


@pytest.mark.parametrize(
    ("link", "device"),
    [
        ("eth0", "eth0"),
        ("Ethernet", "Ethernet"),
        ("vEthernet (Ethernet)", "Ethernet"),
        ("vEthernet (cbr0_ep)", "cbr0_ep"),
    ],
)
def test_names_of_devices(link: str, device: str) -> None:
    assert names.kernel_device_name(link) == device


def test_names_that_linux_does_not_take_become_others() -> None:
    found = [
        names.kernel_device_name(link)
        for link in ("Ethernet 2", "Ethernet 3", "vEthernet (a very long name)", "..")
    ]
    assert len(set(found)) == 4
    assert all(len(name) < 16 and " " not in name and name != ".." for name in found)


def test_pods_reach_their_neighbours_through_the_node() -> None:
    """So that services and policies hold between pods of one bridge."""
    cluster = make_cluster("l2bridge", 1, 1)
    cluster.pod("linux", "linux-1")
    cluster.pod("windows", "windows-1")
    plan = linux_stack_plan(cluster.stack("linux"), cluster.fabric)
    assert plan.routes["10.244.1.0/24"] == PlannedRoute("eth0", "10.244.1.1", "10.244.1.10")
    assert plan.routes["10.244.1.1/32"] == PlannedRoute("eth0")
    plan = linux_stack_plan(cluster.stack("windows"), cluster.fabric)
    link = cluster.stack("windows").links["Ethernet"]
    assert plan.routes["10.244.2.0/24"].via == "10.244.2.2"
    assert plan.neighbours == {("Ethernet", "10.244.2.2"): names.port_mac(link.endpoint)}
    assert plan.devices["Ethernet"].peer == ("windows-1", names.switch_port_name(link.endpoint))


def test_pods_whose_gateway_is_elsewhere_are_bridged() -> None:
    fabric = Fabric("172.20.0.0/16")
    node = fabric.add("n", "node", "linux")
    node.add_link(NetworkLink("azure0", "bridge"))
    node.add_link(NetworkLink("eth0", "ethernet", master="azure0"))
    pod = fabric.add("n/p", "sandbox", "linux", node="n", sandbox="p")
    fabric.veth(node, "veth1", pod, "eth0")
    pod.add_address("eth0", "172.20.0.9/16")
    pod.replace_route("0.0.0.0/0", "eth0", "172.20.0.1")
    assert linux_stack_plan(pod, fabric).routes["172.20.0.0/16"].via == ""
    plan = linux_stack_plan(node, fabric)
    assert plan.sysctls["net/bridge/bridge-nf-call-iptables"] == "1"
    assert plan.devices["eth0"].master == "azure0"


def made(plan: StackPlan) -> NamespaceContent:
    found = NamespaceContent(NetworkNamespaceHandle(-1), itertools.count(10))
    for name, device in plan.devices.items():
        arrange.take_index(found, name, device)
    arrange.arrange_devices(found, plan)
    return found


def texts(steps: list[arrange.Step]) -> list[str]:
    return [message.text for message, _ in steps]


def full() -> StackPlan:
    return StackPlan(
        devices={
            "br0": PlannedDevice("bridge"),
            "v0": PlannedDevice("veth", master="br0", peer=("other", "v1")),
        },
        addresses={("br0", "10.0.0.1/24")},
        routes={
            "0.0.0.0/0": PlannedRoute("br0", "10.0.0.9"),
            "10.0.0.0/24": PlannedRoute("br0", source="10.0.0.1"),
        },
        neighbours={("br0", "10.0.0.7"): "0a:00:00:00:00:01"},
    )


def test_what_is_there_needs_nothing() -> None:
    assert arrange.arrange_devices(made(full()), full()) == []


def test_a_gateway_comes_after_the_way_to_it() -> None:
    found = NamespaceContent(NetworkNamespaceHandle(-1), itertools.count(10))
    for name, device in full().devices.items():
        arrange.take_index(found, name, device)
    printed = texts(arrange.arrange_devices(found, full()))
    assert printed.index("route 10.0.0.0/24 via - dev 10") < printed.index(
        "route 0.0.0.0/0 via 10.0.0.9 dev 10"
    )
    assert printed.index("set link v0 master 10") < printed.index("set link v0 up")
    assert printed.index("set link br0 up") < printed.index("address 10.0.0.1/24 of 10")


def test_a_changed_address_takes_its_routes_along() -> None:
    """The kernel drops routes with a source that goes away."""
    found, plan = made(full()), full()
    plan.addresses = {("br0", "10.0.0.2/24")}
    plan.routes["10.0.0.0/24"] = PlannedRoute("br0", source="10.0.0.2")
    assert "route 10.0.0.0/24 via - dev 10" in texts(arrange.arrange_devices(found, plan))


def test_what_is_refused_is_wanted_again() -> None:
    found, plan = made(full()), full()
    plan.routes["10.1.0.0/16"] = PlannedRoute("br0", "10.0.0.8")
    (step,) = arrange.arrange_devices(found, plan)
    step[1]()
    assert texts(arrange.arrange_devices(found, plan)) == [step[0].text]


def test_a_lost_device_takes_everything_along() -> None:
    found = made(full())
    found.lost_device("br0")
    assert (found.addresses, found.routes, found.neighbours) == (set(), {}, {})


def test_messages_are_padded_to_words() -> None:
    for message in (
        netlink.set_link_up(2, "x"),
        netlink.add_bridge(2, "odd", "", 1500),
        netlink.replace_route("10.0.0.0/8", 2),
    ):
        assert len(message.body) % 4 == 0
