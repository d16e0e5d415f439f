"""bridge, portmap, bandwidth, static, loopback: what they do to stacks and firewall tables, and
what they refuse.
"""

from __future__ import annotations

from typing import Any

import pytest

from transom.network.nft import Dnat, Masquerade, SetMark

SUBNET = {"type": "host-local", "ranges": [[{"subnet": "10.1.2.0/24"}]]}


def bridge(**more: Any) -> dict[str, Any]:
    return {"type": "bridge", "isDefaultGateway": True, "ipam": SUBNET, **more}


def test_bridge_gives_a_result_as_the_real_one(node: Any) -> None:
    path = node.sandbox("c1")
    result = node.add(bridge(dns={"nameservers": ["10.96.0.10"]}))
    names = [interface["name"] for interface in result["interfaces"]]
    assert names[0] == "cni0"
    assert names[1].startswith("veth")
    assert names[2] == "eth0"
    assert [interface.get("sandbox") for interface in result["interfaces"]] == [None, None, path]
    assert result["ips"] == [
        {"version": "4", "interface": 2, "address": "10.1.2.2/24", "gateway": "10.1.2.1"}
    ]
    assert result["routes"] == [{"dst": "0.0.0.0/0", "gw": "10.1.2.1"}]
    assert result["dns"] == {"nameservers": ["10.96.0.10"]}
    previous = {**bridge(), "prevResult": result}
    assert node.call("CHECK", previous) is None
    assert node.call("DEL", bridge()) is node.call("DEL", bridge()) is None
    assert names[1] not in node.machine.stack.links
    assert "eth0" not in node.machine.fabric.stacks["n1/c1"].links
    assert (
        node.refused("CHECK", previous)
        == "host-local: Failed to find address added by container c1"
    )


def test_without_ipam_it_is_a_cable_only(node: Any) -> None:
    node.sandbox("c1")
    result = node.add({"type": "bridge"})
    assert "ips" not in result
    assert len(result["interfaces"]) == 3


def test_dual_stack(node: Any) -> None:
    node.sandbox("c1")
    node.add(
        bridge(
            ipam={
                "type": "host-local",
                "ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "fd00::/64"}]],
            }
        )
    )
    stack = node.machine.fabric.stacks["n1/c1"]
    assert stack.addresses() == ["10.1.2.2", "fd00::2"]
    assert stack.route("2001:db8::1").via == "fd00::1"
    assert [str(a) for a in node.machine.stack.links["cni0"].addresses] == [
        "10.1.2.1/24",
        "fd00::1/64",
    ]


@pytest.mark.parametrize(
    ("conf", "text"),
    [
        (bridge(vlan=4095), "invalid VLAN ID 4095 (must be between 0 and 4094)"),
        (
            bridge(vlan=5),
            'failed to create bridge "cni0": could not add "cni0": operation not supported',
        ),
        (
            bridge(hairpinMode=True, promiscMode=True),
            "cannot set hairpin mode and promiscous mode at the same time.",
        ),
        (
            bridge(bridge="eth0"),
            'failed to create bridge "eth0": "eth0" already exists but is not a bridge',
        ),
        (
            bridge(ipam={"type": "static", "addresses": []}),
            "IPAM plugin returned missing IP config",
        ),
        (bridge(ipam={"type": "dhcp"}), 'failed to find plugin "dhcp" in path [/opt/cni/bin]'),
    ],
)
def test_bridge_refuses(node: Any, conf: dict[str, Any], text: str) -> None:
    node.sandbox("c1")
    assert node.refused("ADD", conf) == text


def test_bridge_wants_a_namespace_and_its_own_address(node: Any) -> None:
    assert node.refused("ADD", bridge()) == (
        'failed to open netns "/var/run/netns/c1": failed to Statfs "/var/run/netns/c1": no '
        "such file or directory"
    )
    node.sandbox("c1")
    node.sandbox("c2")
    node.add(bridge())
    other = bridge(
        ipam={"type": "host-local", "ranges": [[{"subnet": "10.5.0.0/24"}]], "dataDir": "/data"}
    )
    assert node.refused("ADD", other, "c2") == (
        'failed to set bridge addr: "cni0" already has an IP address different from 10.5.0.1/24'
    )
    assert node.files.listdir("/data/net") == ["last_reserved_ip.0", "lock"]  # given back
    node.machine.fabric.stacks["n1/c2"].delete_link("eth0")
    node.add({**other, "forceAddress": True}, "c2")
    assert [str(a) for a in node.machine.stack.links["cni0"].addresses] == ["10.5.0.1/24"]
    assert node.refused("ADD", other, "c2") == "container veth name provided (eth0) already exists"


def test_check_finds_changes_by_hand(node: Any) -> None:
    node.sandbox("c1")
    conf = {**bridge(), "prevResult": node.add(bridge())}
    sandbox = node.machine.fabric.stacks["n1/c1"]
    assert node.refused(
        "CHECK", {**bridge(promiscMode=True), "prevResult": conf["prevResult"]}
    ) == ("Bridge interface cni0 configured Promisc Mode true doesn't match current state: false ")
    assert node.refused("CHECK", bridge()) == "Required prevResult missing"
    sandbox.delete_route("0.0.0.0/0")
    assert node.refused("CHECK", conf) == (
        "Expected Route {Dst:{IP:0.0.0.0 Mask:00000000} GW:10.1.2.1} not found in routing table"
    )
    sandbox.delete_address("eth0", "10.1.2.2/24")
    assert node.refused("CHECK", conf) == "Failed to match addr 10.1.2.2/24 on interface eth0"
    peer = sandbox.links["eth0"].peer
    assert peer is not None
    node.machine.stack.links[peer[1]].master = ""
    assert node.refused("CHECK", conf) == "CNI veth created for bridge cni0 was not found"
    sandbox.delete_link("eth0")
    assert node.refused("CHECK", conf) == "Interface name eth0 not found"


def test_masquerading_of_a_bridge(node: Any) -> None:
    node.sandbox("c1")
    conf = bridge(ipMasq=True)
    node.add(conf)
    rules = node.machine.stack.tables["ip transom-bridge-masq"].chains["postrouting"].rules
    assert [
        (rule.matches[0].value, rule.matches[1].value, rule.matches[1].negate) for rule in rules
    ] == [
        (("10.1.2.2",), ("10.1.2.0/24",), False),
        (("10.1.2.2",), ("224.0.0.0/4",), True),
    ]
    node.call("DEL", conf)
    assert node.machine.stack.tables == {}


# ---- portmap ----


def portmap(previous: Any, *mappings: dict[str, Any], **more: Any) -> dict[str, Any]:
    conf = {"type": "portmap", "runtimeConfig": {"portMappings": list(mappings)}, **more}
    return conf if previous is None else {**conf, "prevResult": previous}


WEB = {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}
PREVIOUS = {"cniVersion": "0.4.0", "ips": [{"version": "4", "address": "10.1.2.2/24"}], "dns": {}}


def test_a_host_port_leads_to_the_sandbox_and_back(node: Any) -> None:
    assert (
        node.add(
            portmap(
                PREVIOUS, WEB, {**WEB, "hostPort": 53, "protocol": "UDP", "hostIP": "172.18.0.3"}
            )
        )
        == PREVIOUS
    )
    table = node.machine.stack.tables["ip transom-hostports"]
    rules = table.chains["hostports"].rules
    assert [rule.statements[0] for rule in rules] == [
        SetMark(0x2000),
        SetMark(0x2000),
        Dnat("10.1.2.2", 80),
        SetMark(0x2000),
        SetMark(0x2000),
        Dnat("10.1.2.2", 80),
    ]
    assert [(m.field, m.value) for m in rules[0].matches] == [
        ("l4proto", ("tcp",)),
        ("dport", ("8080",)),
        ("saddr", ("10.1.2.2",)),
    ]
    assert [(m.field, m.value) for m in rules[5].matches] == [
        ("l4proto", ("udp",)),
        ("dport", ("53",)),
        ("daddr", ("172.18.0.3",)),
    ]
    assert {c.hook.point for c in table.chains.values() if c.hook} == {
        "prerouting",
        "output",
        "postrouting",
    }
    masquerade = table.chains["postrouting"].rules
    assert (masquerade[0].matches[0].value, masquerade[0].statements) == (
        ("0x2000/0x2000",),
        (Masquerade(),),
    )
    assert node.call("CHECK", portmap(PREVIOUS, WEB)) is None
    node.add(portmap(PREVIOUS, {**WEB, "hostPort": 8081}), "c2")
    node.call("DEL", portmap(None, WEB))
    assert [
        rule.comment
        for rule in node.machine.stack.tables["ip transom-hostports"].chains["hostports"].rules
    ] == ['dnat name: "net" id: "c2"'] * 3
    assert (
        node.refused("CHECK", portmap(PREVIOUS, WEB))
        == "could not check ipv4 dnat: expected rule not found"
    )
    node.call("DEL", portmap(None, WEB), "c2")
    assert node.machine.stack.tables == {}


def test_a_host_port_of_the_other_family_and_without_snat(node: Any) -> None:
    node.add(portmap(PREVIOUS, {**WEB, "hostIP": "::1"}))
    assert node.machine.stack.tables == {}
    node.add(portmap(PREVIOUS, {**WEB, "hostIP": "0.0.0.0"}, snat=False))
    (rule,) = node.machine.stack.tables["ip transom-hostports"].chains["hostports"].rules
    assert [m.field for m in rule.matches] == ["l4proto", "dport"]


@pytest.mark.parametrize(
    ("conf", "text"),
    [
        (portmap(None, WEB), "must be called as chained plugin"),
        (
            portmap(PREVIOUS, {**WEB, "hostPort": 0}),
            "failed to parse config: Invalid host port number: 0",
        ),
        (
            portmap(PREVIOUS, {**WEB, "containerPort": -1}),
            "failed to parse config: Invalid container port number: -1",
        ),
        (
            portmap(PREVIOUS, markMasqBit=32),
            "failed to parse config: MasqMarkBit must be between 0 and 31",
        ),
        (
            portmap(PREVIOUS, markMasqBit=3, externalSetMarkChain="K"),
            "failed to parse config: Cannot specify externalSetMarkChain and markMasqBit",
        ),
    ],
)
def test_portmap_refuses(node: Any, conf: dict[str, Any], text: str) -> None:
    assert node.refused("ADD", conf) == text


# ---- the others ----


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"ingressRate": 1}, "if rate is set, burst must also be set"),
        ({"egressBurst": 1}, "if burst is set, rate must also be set"),
        ({"ingressRate": -1}, "rate and burst must be a positive integer"),
        ({"ingressRate": 1, "ingressBurst": 8 << 32}, "burst cannot be more than 4GB"),
        ({"ingressRate": 1000, "ingressBurst": 1000}, "must be called as chained plugin"),
    ],
)
def test_bandwidth_refuses(node: Any, limits: dict[str, int], text: str) -> None:
    assert node.refused("ADD", {"type": "bandwidth", **limits}) == text


def test_bandwidth_shows_its_interface(node: Any) -> None:
    node.sandbox("c1")
    previous = node.add(bridge())
    conf = {"type": "bandwidth", "egressRate": 1000, "egressBurst": 1000, "prevResult": previous}
    added = node.add(conf)["interfaces"][-1]["name"]
    assert added.startswith("bwp")
    assert len(added) == 15
    node.call("DEL", conf)
    assert node.machine.memory["bandwidth"] == {}


def test_static_addresses(node: Any) -> None:
    conf = {
        "type": "static",
        "ipam": {
            "addresses": [
                {"address": "10.10.0.1/24", "gateway": "10.10.0.254"},
                {"address": "3ffe:ffff:0:01ff::1/64"},
            ],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dns": {"nameservers": ["8.8.8.8"]},
        },
    }
    result = node.add(conf)
    assert result["ips"] == [
        {"version": "4", "address": "10.10.0.1/24", "gateway": "10.10.0.254"},
        {"version": "6", "address": "3ffe:ffff:0:1ff::1/64"},
    ]
    assert result["dns"] == {"nameservers": ["8.8.8.8"]}
    by_args = node.add(
        {"type": "static", "ipam": {}}, IP="10.10.0.5/24,10.11.0.5/24", GATEWAY="10.11.0.1"
    )
    assert [ip.get("gateway") for ip in by_args["ips"]] == [None, "10.11.0.1"]
    by_runtime = node.add({**conf, "runtimeConfig": {"ips": ["10.12.0.1/16"]}})
    assert [ip["address"] for ip in by_runtime["ips"]] == ["10.12.0.1/16"]
    assert node.refused("ADD", {"type": "static"}) == "IPAM config missing 'ipam' key"
    assert node.refused(
        "ADD", {"type": "static", "ipam": {"addresses": [{"address": "10.0.0.1"}]}}
    ) == ("invalid CIDR 10.0.0.1: invalid CIDR address: 10.0.0.1")
    other = {**result, "ips": [{**result["ips"][0], "gateway": "10.10.0.9"}]}
    assert node.call("CHECK", {**conf, "prevResult": result}) is None
    assert (
        node.refused("CHECK", {**conf, "prevResult": other})
        == "static: Failed to match addr 10.10.0.1 on interface eth0"
    )


def test_loopback(node: Any) -> None:
    path = node.sandbox("c1")
    assert node.add({"type": "loopback"}) == {
        "cniVersion": "0.4.0",
        "interfaces": [{"name": "lo", "mac": "00:00:00:00:00:00", "sandbox": path}],
        "ips": [{"version": "4", "interface": 0, "address": "127.0.0.1/8"}],
        "dns": {},
    }
    assert node.add({"type": "loopback", "prevResult": PREVIOUS}) == PREVIOUS
