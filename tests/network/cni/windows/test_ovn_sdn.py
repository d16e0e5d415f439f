"""ovn-kubernetes on a transparent network; nat and sdnbridge, which make what they need
themselves.
"""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from tests.network.cni.windows.conftest import LOCAL, SUBNET, MakeNode, Node

from transom.machines.windows.hns import Adapter
from transom.network.cni.windows import ovn, setup

POD = {"K8S_POD_NAMESPACE": "default", "K8S_POD_NAME": "web-0"}
OVN: dict[str, Any] = {**ovn.ovn_conflist()["plugins"][0], "name": "ovn-kubernetes"}


def namespace(node: Node) -> str:
    return str(node.hns.create("namespace", {})["ID"])


@pytest.mark.windows("NET-27", "NET-31", "NET-33", "SUP-NET-014", "SUP-NET-015")
def test_a_pod_of_ovn_needs_no_ipam(make_node: MakeNode) -> None:
    node = make_node()
    network = setup.make_transparent_network(node.hns, "ovn", SUBNET)
    assert network["Type"] == "Transparent"
    assert {
        "Type": "VSwitchExtension",
        "Settings": {"ExtensionID": ovn.EXTENSION, "Enable": True},
    } in network["Policies"]
    result = node.add(OVN, **POD)
    assert result == {
        "interfaces": [],
        "ips": [
            {"version": "4", "interface": 1, "address": "10.244.3.3/24", "gateway": "10.244.3.1"}
        ],
        "dns": {},
    }
    assert node.endpoint("default_web-0")["MacAddress"] == "0a-58-0a-f4-03-03"
    assert node.add(OVN, "web", "container:sandbox1", **POD) == result
    inside, second = namespace(node), {**POD, "K8S_POD_NAME": "web-1"}
    other = node.add(OVN, "sandbox2", inside.lower(), **second)
    assert (
        other["ips"][0]["address"] == "10.244.3.4/24"
        and node.add(OVN, "sandbox2", inside, **second) == other
    )
    assert node.hns.attachment(node.endpoint("default_web-1")["ID"]) == ("namespace", inside)
    node.delete(OVN, **POD)
    node.delete(OVN, **POD)
    assert not node.hns.list("endpoint", Name="default_web-0")
    assert node.calls == []


def annotated(network: dict[str, Any]) -> dict[str, Any]:
    text = orjson.dumps({"default": network}).decode()
    return {**OVN, "runtimeConfig": {ovn.CAPABILITY: {ovn.ANNOTATION: text}}}


def test_the_controller_says_which_address(make_node: MakeNode) -> None:
    node = make_node()
    setup.make_transparent_network(node.hns, "ovn", SUBNET)
    given = {
        "ip_addresses": ["10.244.3.77/24"],
        "mac_address": "0a:58:0a:f4:03:4d",
        "gateway_ips": ["10.244.3.1"],
    }
    assert node.add(annotated(given), **POD)["ips"][0]["address"] == "10.244.3.77/24"
    assert node.endpoint("default_web-0")["MacAddress"] == "0a-58-0a-f4-03-4d"


BOTH = {"ip_addresses": ["10.244.3.77/24", "fd00::5/64"], "gateway_ips": ["10.244.3.1"]}
ELSEWHERE = {"ip_addresses": ["10.9.9.9/24"], "gateway_ips": ["10.9.9.1"]}


@pytest.mark.parametrize(
    ("conf", "args", "text"),
    [
        (OVN, {}, "[/]: required CNI variable missing"),
        (
            annotated(BOTH),
            POD,
            (
                "[default/web-0]: failed to configure pod interface: dual-stack is not supported "
                "in Windows"
            ),
        ),
        (
            annotated(ELSEWHERE),
            POD,
            "[default/web-0]: failed to configure pod interface: could not find any suitable "
            "network "
            "to attach the container",
        ),
        (
            OVN,
            POD,
            "[default/web-0]: failed to configure pod interface: found more than one network "
            "suitable for containers, "
            "please specify win-hnsnetwork-id in config",
        ),
    ],
)
def test_texts(make_node: MakeNode, conf: dict[str, Any], args: dict[str, str], text: str) -> None:
    node = make_node()
    setup.make_transparent_network(node.hns, "ovn", SUBNET)
    setup.make_transparent_network(node.hns, "other", "10.244.8.0/24")
    assert str(node.refused(conf, **args)) == text


# ---- nat and sdnbridge ----

NAT: dict[str, Any] = {"name": "nat", "type": "nat", "ipam": {"subnet": "192.168.100.0/24"}}


@pytest.mark.windows("NET-37", "NET-39", "SUP-NET-016")
def test_nat_makes_an_internal_network_and_the_service_gives_addresses(make_node: MakeNode) -> None:
    node = make_node()
    conf = {
        **NAT,
        "runtimeConfig": {
            "portMappings": [{"hostPort": 80, "containerPort": 8080, "protocol": "tcp"}]
        },
        "dns": {"search": ["svc.cluster.local"]},
    }
    result = node.add(conf, netns=namespace(node), **POD)
    (network,) = node.hns.networks.values()
    assert (
        "Type" not in network
        and "vEthernet (nat)" in node.machine.stack.links
        and "Ethernet" in node.machine.stack.links
    )
    endpoint = node.endpoint("sandbox1_nat")
    assert result["ips"] == [
        {
            "version": "4",
            "interface": 0,
            "address": f"{endpoint['IpConfigurations'][0]['IpAddress']}/24",
            "gateway": "192.168.100.1",
        }
    ]
    (mapping,) = endpoint["Policies"]
    assert mapping == {
        "Type": "PortMapping",
        "Settings": {"ExternalPort": 80, "InternalPort": 8080, "Protocol": 6},
    }
    assert endpoint["Dns"]["Search"] == ["default.svc.cluster.local"]
    assert node.add(conf, netns=namespace(node), **POD) == result
    node.delete(conf)
    assert not node.hns.endpoints


SIX = {"subnet": "fd00:3::/64", "rangeStart": "fd00:3::5", "gateway": "fd00:3::2"}
DUAL: dict[str, Any] = {
    "name": "cbr0",
    "type": "sdnbridge",
    "optionalFlags": {"enableDualStack": True, "forceBridgeGateway": True},
    "ipam": {**LOCAL, "ranges": [*LOCAL["ranges"], [SIX]]},
}


@pytest.mark.windows("DS-01", "IP6-02")
def test_sdnbridge_gives_addresses_of_both_families(make_node: MakeNode) -> None:
    node = make_node(19041)
    setup.make_l2bridge_network(node.hns, "cbr0", [SUBNET, "fd00:3::/64"])
    result = node.add(DUAL, netns=namespace(node))
    assert [(ip["address"], ip["gateway"]) for ip in result["ips"]] == [
        ("10.244.3.5/24", "10.244.3.2"),
        ("fd00:3::5/64", "fd00:3::2"),
    ]
    link = node.machine.stack.links["vEthernet (cbr0_ep)"]
    assert [str(a) for a in link.addresses] == ["10.244.3.2/24", "fd00:3::2/64"]


@pytest.mark.parametrize(
    ("conf", "netns", "text"),
    [
        (NAT, "", "cannot create endpoint without a namespace"),
        (DUAL, "x", 'Network name "cbr0" not found'),
        ({**DUAL, "name": "nat"}, "x", "Dual stack specified with non l2bridge network"),
        (
            {
                **NAT,
                "runtimeConfig": {
                    "portMappings": [{"hostPort": 1, "containerPort": 1, "protocol": "?"}]
                },
            },
            "x",
            (
                "failed during GetEndpointInfo from netconf: invalid protocol supplied to port "
                "mapping policy"
            ),
        ),
        (NAT, "x", "error adding endpoint to namespace invalid namespace ID : endpoint {id}"),
    ],
)
def test_texts_of_the_three(
    make_node: MakeNode, conf: dict[str, Any], netns: str, text: str
) -> None:
    node = make_node()
    setup.make_nat_network(node.hns)
    error = str(node.refused(conf, netns=netns))
    left = next(iter(node.hns.endpoints), "")
    assert error == text.replace("{id}", left)


def test_networks_of_one_card_are_of_one_type(make_node: MakeNode) -> None:
    """Two cards may have switches of two types, and setting up again changes nothing."""
    node = make_node()
    node.hns.set_adapters([Adapter("Ethernet 2", "00-15-5D-01-02-04", "10.1.0.4/24", "10.1.0.1")])
    first = setup.make_l2bridge_network(node.hns, "cbr0", [SUBNET], "Ethernet")
    setup.make_transparent_network(node.hns, "ovn", "10.244.8.0/24", "Ethernet 2")
    assert setup.make_l2bridge_network(node.hns, "cbr0", [SUBNET], "Ethernet")["ID"] == first["ID"]
    assert {"vEthernet (Ethernet)", "vEthernet (Ethernet 2)"} <= set(node.machine.stack.links)
