"""Addresses are read as the standard library reads them, only faster; routes follow addresses."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from transom.network.stacks import (
    Fabric,
    NetworkLink,
    NetworkStack,
    read_address,
    read_interface,
)

OCTETS = st.lists(
    st.sampled_from(["0", "00", "01", "7", "10", "255", "256", "", " 1", "a", "٣"]),
    min_size=3,
    max_size=5,
)
LENGTHS = st.sampled_from(
    ["", "/", "/0", "/8", "/08", "/24", "/32", "/33", "/-1", "/255.255.0.0", "/٣", "/8/8", "/ 8"]
)


def outcome(read: Callable[[str], Any], text: str) -> Any:
    try:
        found = read(text)
    except ValueError:
        return ValueError
    return type(found), str(found), found, getattr(found, "network", None)


@given(st.one_of(OCTETS.map(".".join), st.ip_addresses().map(str)), LENGTHS)
@example("10.0.0.1\x00", "/8")
@example("::ffff:10.0.0.1", "/24")
def test_addresses_are_those_of_the_standard_library(address: str, length: str) -> None:
    assert outcome(read_address, address + length) == outcome(
        ipaddress.ip_address, address + length
    )
    assert outcome(read_interface, address + length) == outcome(
        ipaddress.ip_interface, address + length
    )


@pytest.mark.parametrize("text", ["10.244.3.7/24", "10.244.3.7/32", "0.0.0.0/0"])
def test_interfaces_compare_with_those_of_the_standard_library(text: str) -> None:
    mine, theirs = read_interface(text), ipaddress.ip_interface(text)
    assert mine == theirs and hash(mine) == hash(theirs)
    assert (
        mine.network == theirs.network and mine.netmask == theirs.netmask and mine.ip == theirs.ip
    )


def test_a_route_of_an_address_is_used_after_other_routes_were() -> None:
    stack = Fabric().add("node", "node", "linux")
    stack.add_link(NetworkLink("eth0", "veth"))
    stack.add_address("eth0", "172.20.0.3/16")
    stack.replace_route("0.0.0.0/0", "eth0", "172.20.0.1")
    assert _link_to(stack, "10.244.1.2") == "eth0"
    stack.add_link(NetworkLink("cni0", "bridge"))
    stack.add_address("cni0", "10.244.1.1/24")
    assert _link_to(stack, "10.244.1.2") == "cni0"
    stack.set_link_state("cni0", up=False)
    assert _link_to(stack, "10.244.1.2") == "eth0"
    stack.set_link_state("cni0", up=True)
    assert _link_to(stack, "10.244.1.2") == "cni0"
    stack.delete_address("cni0", "10.244.1.1/24")
    assert _link_to(stack, "10.244.1.2") == "eth0"


def test_a_stack_has_the_addresses_that_it_lists() -> None:
    stack = Fabric().add("node", "node", "linux")
    stack.add_link(NetworkLink("eth0", "veth"))
    stack.add_address("eth0", "172.20.0.3/16")
    stack.add_address("eth0", "fd00::3/64")
    # ::ac14:3 has the number of 172.20.0.3.
    others = ["127.0.0.1", "172.20.0.4", "172.20.0.0", "::ac14:3", "fd00::"]
    assert stack.addresses() == ["172.20.0.3", "fd00::3"]
    assert all(stack.has_address(address) for address in stack.addresses())
    assert not any(stack.has_address(address) for address in others)
    stack.delete_address("eth0", "fd00::3/64")
    assert not stack.has_address("fd00::3")


def test_what_a_node_reaches_follows_every_change_of_its_network() -> None:
    stack = Fabric().add("node", "node", "linux")
    stack.add_link(NetworkLink("eth0", "veth"))
    reaches: list[bool] = []

    def look() -> None:
        reaches.append(stack.reaches("172.20.0.1"))
        assert stack.reaches("172.20.0.1") is reaches[-1]

    look()
    stack.add_address("eth0", "172.20.0.3/16")
    look()
    assert not stack.reaches("10.0.0.1")
    stack.replace_route("0.0.0.0/0", "eth0", "172.20.0.1")
    assert stack.reaches("10.0.0.1")
    stack.delete_route("0.0.0.0/0")
    assert not stack.reaches("10.0.0.1")
    stack.set_link_state("eth0", up=False)
    look()
    stack.set_link_state("eth0", up=True)
    look()
    stack.delete_address("eth0", "172.20.0.3/16")
    look()
    stack.add_address("eth0", "172.20.0.1/32")
    look()
    stack.delete_link("eth0")
    look()
    assert reaches == [False, True, False, True, False, True, False]


def _link_to(stack: NetworkStack, address: str) -> str:
    route = stack.route(address)
    assert route is not None
    return route.link
