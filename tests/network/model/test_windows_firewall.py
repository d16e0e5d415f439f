"""Packets that reach the own stack of a Windows node, or leave it, pass its firewall."""

from __future__ import annotations

import pytest
from tests.network.fabrics import Cluster, Mode, make_cluster, story

from transom.machines.windows.firewall import (
    OVERLAY_RULE,
    FirewallRule,
    WindowsFirewall,
    add_missing_rule,
    node_firewall_keys,
    put_rule,
    set_profile,
)
from transom.machines.windows.registry import WindowsRegistry
from transom.network.model import fast
from transom.network.packets import Packet

NODE_PORT = 30080


@pytest.fixture
def registry() -> WindowsRegistry:
    return WindowsRegistry(node_firewall_keys())


def firewalled(registry: WindowsRegistry, mode: Mode = "l2bridge") -> Cluster:
    cluster = make_cluster(mode)
    for name, node in (("l1", "linux-1"), ("w1", "windows-1"), ("w3", "windows-2")):
        cluster.pod(name, node)
    cluster.nodes["windows-1"].firewall = WindowsFirewall(registry)
    return cluster


def test_a_closed_port_of_a_node_times_out(registry: WindowsRegistry) -> None:
    cluster = firewalled(registry)
    for origin in ("linux-1", "l1", "w3", "w1", "external"):
        opened = cluster.walk(origin, "windows-1", port=10250)
        assert opened.outcome == "delivered", story(opened)
        closed = cluster.walk(origin, "windows-1", port=8080)
        assert (closed.outcome, closed.reason) == ("dropped", "firewall"), story(closed)
    own = cluster.walk("windows-1", "windows-1", port=8080)
    assert own.outcome == "delivered", "connections inside the machine are not filtered"


def test_pods_do_not_depend_on_the_firewall_of_their_node(registry: WindowsRegistry) -> None:
    cluster = firewalled(registry)
    set_profile(registry, "Public", "DoNotAllowExceptions", 1)
    for origin in ("linux-1", "l1", "w3", "windows-1"):
        found = cluster.walk(origin, "w1")
        assert found.outcome == "delivered", story(found)
    found = cluster.walk("w1", "external")
    assert found.outcome == "delivered", story(found)


def test_replies_to_the_nodes_own_connections_come_back(registry: WindowsRegistry) -> None:
    cluster = firewalled(registry)
    for target in ("linux-1", "l1", "w1", "w3", "external"):
        found = cluster.walk("windows-1", target, port=81)
        assert found.outcome == "delivered", story(found)


def test_outbound_connections_can_be_blocked(registry: WindowsRegistry) -> None:
    cluster = firewalled(registry)
    node = cluster.nodes["windows-1"]
    packet = Packet(cluster.ip("windows-1"), cluster.address("w1"), "tcp", 40000, 80)
    before = fast.walk_nearby(cluster.world, node, packet, lambda *_: True)
    assert before is not None and before.outcome == "delivered"
    rule = FirewallRule("out", "out", inbound=False, allow=False, protocol="TCP", remote_port="80")
    put_rule(registry, rule)
    assert fast.walk_nearby(cluster.world, node, packet, lambda *_: True) is None
    for target in ("linux-1", "w1"):
        found = cluster.walk("windows-1", target, port=80)
        assert (found.outcome, found.reason) == ("dropped", "firewall"), story(found)
        assert cluster.walk("windows-1", target, port=81).outcome == "delivered"
    assert cluster.walk("linux-1", "windows-1", port=10250).outcome == "delivered"


def test_tunnels_need_an_open_port(registry: WindowsRegistry) -> None:
    cluster = firewalled(registry, "overlay")
    found = cluster.walk("l1", "w1")
    assert (found.outcome, found.reason) == ("dropped", "firewall"), story(found)
    add_missing_rule(registry, OVERLAY_RULE)
    found = cluster.walk("l1", "w1")
    assert found.outcome == "delivered", story(found)
