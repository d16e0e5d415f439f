"""Decisions of the Windows firewall about connections of a machine."""

from __future__ import annotations

import ipaddress
from dataclasses import replace

import pytest

from transom.machines.windows.firewall import (
    FirewallConnection,
    FirewallRule,
    LocalNetwork,
    WindowsFirewall,
    add_missing_rule,
    delete_rule,
    firewall_rules,
    node_firewall_keys,
    parse_addresses,
    parse_port_ranges,
    put_rule,
    reset_firewall,
    set_profile,
)
from transom.machines.windows.registry import WindowsRegistry

OWN, OTHER = "172.20.0.4", "172.20.0.3"
KUBELET = FirewallConnection(True, "tcp", OWN, 10250, OTHER, 40000)
WEB = KUBELET._replace(local_port=8080)
OUT = FirewallConnection(False, "tcp", OWN, 50000, OTHER, 6443)
OPEN = FirewallRule("open", "open", protocol="TCP", local_port="8000-8099")


class Machine:
    def __init__(self) -> None:
        self.registry = WindowsRegistry(node_firewall_keys())
        self.programs: dict[int, str] = {}
        network = LocalNetwork([ipaddress.ip_network("172.20.0.0/16")], ["172.20.0.1"])
        self.firewall = WindowsFirewall(
            self.registry, lambda _protocol, port: self.programs.get(port, ""), lambda: network
        )

    def allows(self, connection: FirewallConnection) -> bool:
        return self.firewall.decide(connection).allowed

    def put(self, rule: FirewallRule) -> None:
        put_rule(self.registry, rule)


def test_a_node_accepts_only_what_its_set_up_opens() -> None:
    machine = Machine()
    assert machine.allows(KUBELET)
    assert machine.allows(FirewallConnection(True, "icmp", OWN, 0, OTHER, 0))
    assert machine.allows(FirewallConnection(True, "icmp", "fd00::4", 0, "fd00::3", 0))
    assert not machine.allows(WEB)
    assert "no inbound rule" in machine.firewall.decide(WEB).explanation
    assert machine.allows(OUT) and not machine.firewall.filters_outbound()


def test_a_program_has_rules_of_its_own() -> None:
    machine = Machine()
    machine.programs[10256] = r"C:\K\kube-proxy.exe"
    assert machine.allows(KUBELET._replace(local_port=10256))
    assert not machine.allows(KUBELET._replace(local_port=10257))


def test_blocking_wins_over_allowing() -> None:
    machine = Machine()
    machine.put(OPEN)
    assert machine.allows(WEB)
    machine.put(FirewallRule("no", "no web", allow=False, protocol="TCP", local_port="8080"))
    assert not machine.allows(WEB) and machine.allows(WEB._replace(local_port=8081))
    assert 'the rule "no web"' in machine.firewall.decide(WEB).explanation
    machine.put(FirewallRule("no", "no web", enabled=False, allow=False))
    assert machine.allows(WEB)


@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        ({}, True),
        ({"enabled": False}, False),
        ({"inbound": False}, False),
        ({"protocol": "UDP"}, False),
        ({"protocol": "Any", "local_port": "Any"}, True),
        ({"local_port": "80,8080"}, True),
        ({"local_port": "80"}, False),
        ({"remote_port": "40000"}, True),
        ({"remote_port": "1-1024"}, False),
        ({"remote_address": "172.20.0.0/24"}, True),
        ({"remote_address": "172.20.0.0/255.255.255.0"}, True),
        ({"remote_address": "10.0.0.1,172.20.0.1-172.20.0.9"}, True),
        ({"remote_address": "10.0.0.1"}, False),
        ({"remote_address": "LocalSubnet"}, True),
        ({"remote_address": "DefaultGateway"}, False),
        ({"local_address": OWN}, True),
        ({"local_address": "10.0.0.1"}, False),
        ({"profiles": ("Public",)}, True),
        ({"profiles": ("Domain", "Private")}, False),
        ({"program": r"%SystemRoot%\System32\web.exe"}, True),
        ({"program": r"C:\other.exe"}, False),
    ],
)
def test_every_property_of_a_rule_has_to_match(change: dict[str, str], allowed: bool) -> None:
    machine = Machine()
    machine.programs[8080] = r"C:\Windows\System32\web.exe"
    machine.put(replace(OPEN, **change))  # type: ignore[arg-type]
    assert machine.allows(WEB) == allowed
    assert replace(OPEN, **change) in firewall_rules(machine.registry)  # type: ignore[arg-type]


def test_rules_of_icmp_can_name_types() -> None:
    machine = Machine()
    ping = FirewallConnection(True, "icmp", OWN, 0, OTHER, 0)
    machine.put(FirewallRule("p", "p", allow=False, protocol="ICMPv4", icmp_type="3:*"))
    assert machine.allows(ping)
    machine.put(FirewallRule("p", "p", allow=False, protocol="ICMPv4", icmp_type="8:*"))
    assert not machine.allows(ping)


def test_profiles_have_default_actions() -> None:
    machine = Machine()
    set_profile(machine.registry, "Domain", "EnableFirewall", 0)
    assert not machine.allows(WEB), "the active profile is Public"
    set_profile(machine.registry, "Public", "DefaultInboundAction", 0)
    assert machine.allows(WEB)
    set_profile(machine.registry, "Public", "DefaultOutboundAction", 1)
    assert not machine.allows(OUT) and machine.firewall.filters_outbound()
    machine.put(FirewallRule("out", "out", inbound=False, protocol="TCP", remote_port="6443"))
    assert machine.allows(OUT)
    set_profile(machine.registry, "Public", "DoNotAllowExceptions", 1)
    assert not machine.allows(KUBELET)
    set_profile(machine.registry, "Public", "EnableFirewall", 0)
    assert machine.allows(WEB) and machine.allows(KUBELET)


def test_the_registry_is_the_only_state() -> None:
    machine = Machine()
    rule = next(rule for rule in firewall_rules(machine.registry) if "10250" in rule.local_port)
    delete_rule(machine.registry, rule)
    assert not machine.allows(KUBELET)
    saved = machine.registry.save()
    add_missing_rule(machine.registry, rule)
    assert machine.allows(KUBELET)
    machine.registry.restore(saved)
    assert not machine.allows(KUBELET)
    machine.put(OPEN)
    reset_firewall(machine.registry)
    assert not machine.allows(WEB)
    assert machine.allows(KUBELET._replace(local_port=5985))


def test_values_of_rules() -> None:
    assert parse_port_ranges("any") == () and parse_port_ranges("80, 90-91") == ((80, 80), (90, 91))
    assert parse_port_ranges("RPC-EPMap") == ((135, 135),)
    assert [parse_port_ranges(text) for text in ("x", "80-", "9-1", "70000", "")] == [None] * 5
    assert [parse_addresses(text) for text in ("x", "10.0.0.9-10.0.0.1", "1.2.3.4/40")] == [
        None
    ] * 3
