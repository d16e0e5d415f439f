"""A Windows node's stack follows its host networking service."""

from __future__ import annotations

import pytest

from transom.machines.windows.hns import Adapter, HostNetworkService
from transom.network import winhost
from transom.network.cni.windows import setup
from transom.network.stacks import Fabric, NetworkStack
from transom.windows.builds import BUILDS

CARD = "vEthernet (Ethernet)"


@pytest.fixture
def node() -> tuple[Fabric, NetworkStack, HostNetworkService]:
    fabric = Fabric("172.20.0.0/16")
    hns = HostNetworkService(
        BUILDS[19041],
        [Adapter("Ethernet", "00-15-5D-01-02-03", "172.20.0.4/16", "172.20.0.1")],
        seed="windows-1",
    )
    stack = fabric.add("windows-1", "node", "windows")
    winhost.bind_windows_host(stack, hns)
    return fabric, stack, hns


def routes(stack: NetworkStack) -> dict[str, tuple[str, str]]:
    return {str(route.destination): (route.link, route.via) for route in stack.routes()}


def overlay(hns: HostNetworkService, *policies: str) -> str:
    subnet = {
        "IpAddressPrefix": "10.244.3.0/24",
        "Routes": [{"NextHop": "10.244.3.1", "DestinationPrefix": "0.0.0.0/0"}],
        "Policies": [{"Type": "VSID", "Settings": {"IsolationId": 4096}}],
    }
    made = hns.create(
        "network",
        {
            "Name": "vxlan0",
            "Type": "Overlay",
            "Flags": 8,
            "Ipams": [{"Type": "Static", "Subnets": [subnet]}],
            "Policies": [{"Type": kind, "Settings": {}} for kind in policies],
        },
    )
    return str(made["ID"])


@pytest.mark.windows("NET-05", "NET-11")
def test_the_first_switch_takes_the_card(
    node: tuple[Fabric, NetworkStack, HostNetworkService],
) -> None:
    fabric, stack, hns = node
    assert stack.hns is hns and stack.links["Ethernet"].mac == "00:15:5d:01:02:03"
    before = {"0.0.0.0/0": ("Ethernet", "172.20.0.1"), "172.20.0.0/16": ("Ethernet", "")}
    assert routes(stack) == before
    network = setup.make_l2bridge_network(hns, "cbr0", ["10.244.3.0/24"])
    assert set(stack.links) == {"lo", CARD, "vEthernet (cbr0_ep)"}
    assert stack.links[CARD].kind == "ethernet" and fabric.owner("172.20.0.4") is stack
    host = stack.links["vEthernet (cbr0_ep)"]
    assert host.kind == "vnic" and host.endpoint == hns.list("endpoint", Name="cbr0_ep")[0]["ID"]
    assert routes(stack) == {
        "0.0.0.0/0": (CARD, "172.20.0.1"),
        "172.20.0.0/16": (CARD, ""),
        "10.244.3.0/24": ("vEthernet (cbr0_ep)", ""),
    }
    assert winhost.management_link(stack) == CARD
    other = setup.make_l2bridge_network(hns, "cbr1", ["10.244.4.0/24"])
    hns.delete("network", network["ID"])
    # cbr1 is on the same switch
    assert CARD in stack.links and "vEthernet (cbr0_ep)" not in stack.links
    hns.delete("network", other["ID"])
    assert set(stack.links) == {"lo", "Ethernet"} and routes(stack) == before
    assert fabric.owner("172.20.0.4") is stack


@pytest.mark.windows("NET-36", "NET-37")
def test_an_internal_network_leaves_the_card_alone(
    node: tuple[Fabric, NetworkStack, HostNetworkService],
) -> None:
    _, stack, hns = node
    made = setup.make_nat_network(hns, subnet="172.28.16.0/20")
    assert set(stack.links) == {"lo", "Ethernet", "vEthernet (nat)"}
    assert stack.route("172.28.17.1").link == "vEthernet (nat)"  # type: ignore[union-attr]
    hns.delete("network", made["ID"])
    assert set(stack.links) == {"lo", "Ethernet"}


@pytest.mark.windows("NET-23")
def test_an_overlay_network_is_not_the_hosts_but_by_policy(
    node: tuple[Fabric, NetworkStack, HostNetworkService],
) -> None:
    _, stack, hns = node
    network = overlay(hns)
    assert "10.244.3.0/24" not in routes(stack)
    policy = {"Policies": [{"Type": "HostRoute", "Settings": {}}]}
    hns.modify(
        "network", network, {"ResourceType": "Policy", "RequestType": "Add", "Settings": policy}
    )
    assert routes(stack)["10.244.3.0/24"] == (CARD, "")
    hns.delete("network", network)
    assert "10.244.3.0/24" not in routes(stack)


def booted(hns: HostNetworkService) -> NetworkStack:
    """The stack of the node after a reboot."""
    hns.reboot()
    stack = Fabric().add("n1", "node", "windows")
    winhost.bind_windows_host(stack, hns)
    return stack


@pytest.mark.parametrize("lost", [False, True])
def test_reboot(node: tuple[Fabric, NetworkStack, HostNetworkService], lost: bool) -> None:
    _, _, hns = node
    setup.make_l2bridge_network(hns, "cbr0", ["10.244.3.0/24"])
    hns.faults.lose_networks_on_reboot = lost
    stack = booted(hns)
    card = "Ethernet" if lost else CARD
    assert routes(stack)["0.0.0.0/0"] == (card, "172.20.0.1")
    assert set(stack.links) == {"lo", card} | (set() if lost else {"vEthernet (cbr0_ep)"})


def test_a_network_that_does_not_persist_goes_with_its_switch(
    node: tuple[Fabric, NetworkStack, HostNetworkService],
) -> None:
    _, _, hns = node
    overlay(hns, "HostRoute")
    stack = booted(hns)
    assert set(stack.links) == {"lo", "Ethernet"}
    assert set(routes(stack)) == {"0.0.0.0/0", "172.20.0.0/16"}


def test_an_unsubscribed_listener_receives_nothing(
    node: tuple[Fabric, NetworkStack, HostNetworkService],
) -> None:
    _, _, hns = node
    other = Fabric().add("other", "node", "windows")
    end = winhost.bind_windows_host(other, hns)
    assert "Ethernet" in other.links
    end()
    setup.make_l2bridge_network(hns, "cbr0", ["10.244.3.0/24"])
    assert set(other.links) == {"lo", "Ethernet"}
    winhost.refresh_windows_host(other, hns)
    assert set(other.links) == {"lo", CARD, "vEthernet (cbr0_ep)"}


@pytest.mark.windows("NET-02", "LNET-01")
def test_the_card_of_a_sandbox(node: tuple[Fabric, NetworkStack, HostNetworkService]) -> None:
    _, _, hns = node
    network = setup.make_l2bridge_network(hns, "cbr0", ["10.244.3.0/24", "fd00:3::/64"])
    hops = (("fd00:3::2", "::/0"), ("10.244.3.2", "0.0.0.0/0"))
    routes = [{"NextHop": hop, "DestinationPrefix": prefix} for hop, prefix in hops]
    made = hns.create(
        "endpoint",
        {
            "Name": "pod",
            "HostComputeNetwork": network["ID"],
            "MacAddress": "00-15-5D-AA-BB-CC",
            "Routes": routes,
            "IpConfigurations": [{"IpAddress": "10.244.3.5"}, {"IpAddress": "fd00:3::5"}],
        },
    )
    link, gateway = winhost.sandbox_link(hns, made["ID"])
    assert (link.name, link.kind, link.mac, link.mtu) == (
        "Ethernet",
        "vnic",
        "00:15:5d:aa:bb:cc",
        1500,
    )
    assert [str(a) for a in link.addresses] == ["10.244.3.5/24", "fd00:3::5/64"]
    assert link.endpoint == made["ID"] and gateway == "10.244.3.2"
    assert winhost.windows_gateways(hns, made["ID"]) == ["10.244.3.2", "fd00:3::2"]


def test_the_card_of_a_sandbox_leaves_room_for_the_tunnel(
    node: tuple[Fabric, NetworkStack, HostNetworkService],
) -> None:
    _, _, hns = node
    made = hns.create("endpoint", {"Name": "pod", "HostComputeNetwork": overlay(hns)})
    assert winhost.sandbox_link(hns, made["ID"])[0].mtu == 1450
