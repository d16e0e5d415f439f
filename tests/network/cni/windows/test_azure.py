"""azure-vnet in both modes with azure-vnet-ipam: networks from the platform's list of addresses,
state files, reboots.
"""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from tests.network.cni.windows.conftest import ADDRESS, MakeNode, Node

from transom.network import winhost
from transom.network.cni.windows import azure, azure_ipam

POD = {"K8S_POD_NAMESPACE": "default", "K8S_POD_NAME": "web-0"}
LIST = azure.azure_conflist(
    "bridge",
    dns="10.0.0.10",
    exceptions=["172.20.0.0/16", "10.0.0.0/16"],
    service_cidr="10.0.0.0/16",
)
CONF: dict[str, Any] = {**LIST["plugins"][0], "name": LIST["name"]}
SECONDARY = [f"172.20.1.{i}" for i in (1, 2, 3)]


@pytest.fixture
def node(make_node: MakeNode) -> Node:
    made = make_node()
    files = made.host.files
    files.mkdir(r"C:\k\wireserver")
    files.write(
        azure_ipam.ANSWER,
        azure_ipam.wire_server_answer("00-15-5D-01-02-03", "172.20.0.0/16", ADDRESS, SECONDARY),
    )
    return made


@pytest.mark.parametrize(
    ("mode", "kind"), [("bridge", "L2Bridge"), ("tunnel", "L2Tunnel"), ("", "L2Tunnel")]
)
@pytest.mark.windows("NET-16", "NET-18", "SUP-NET-010", "IPAM-03", "SUP-NET-032")
def test_the_first_pod_makes_the_network(node: Node, mode: str, kind: str) -> None:
    result = node.add({**CONF, "mode": mode}, "0123456789abcdef", **POD)
    assert result == {
        "interfaces": [{"name": "eth0"}],
        "ips": [{"version": "4", "address": "172.20.1.1/16", "gateway": "172.20.0.1"}],
        "routes": [{"dst": "0.0.0.0/0", "gw": "172.20.0.1"}],
        "dns": {"nameservers": ["168.63.129.16"]},
    }
    (network,) = node.hns.list("network", Name="azure")
    assert network["Type"] == kind
    endpoint = node.endpoint("01234567-eth0")
    assert endpoint["IpConfigurations"] == [{"IpAddress": "172.20.1.1", "PrefixLength": 16}]
    assert endpoint["Dns"] == {
        "ServerList": ["10.0.0.10", "168.63.129.16"],
        "Search": ["default.svc.cluster.local"],
    }
    assert [p["Type"] for p in endpoint["Policies"]] == ["OutBoundNAT", "SDNRoute", *["ACL"] * 3]
    assert "vEthernet (Ethernet)" in node.machine.stack.links
    again = node.add({**CONF, "mode": mode}, "web", "container:0123456789abcdef", **POD)
    assert again["ips"] == result["ips"] and node.hns.containers(endpoint["ID"]) == (
        "0123456789abcdef",
        "web",
    )
    node.add({**CONF, "mode": mode}, "sandbox2", **POD)
    assert len(node.hns.networks) == 1


def test_with_namespaces_version_2_is_used(node: Node) -> None:
    inside = str(node.hns.create("namespace", {})["ID"])
    runtime = {
        "portMappings": [{"hostPort": 80, "containerPort": 8080, "protocol": "tcp"}],
        "dns": {"servers": ["9.9.9.9"]},
    }
    node.add({**CONF, "runtimeConfig": runtime}, "sandbox1", inside, **POD)
    endpoint = node.endpoint("sandbox1-eth0")
    assert endpoint["HostComputeNamespace"] == inside
    assert endpoint["Policies"] == [
        {"Type": "OutBoundNAT", "Settings": {"Exceptions": ["172.20.0.0/16", "10.0.0.0/16"]}},
        {"Type": "SDNRoute", "Settings": {"DestinationPrefix": "10.0.0.0/16", "NeedEncap": True}},
        {
            "Type": "ACL",
            "Settings": {
                "Protocols": "6",
                "Action": "Block",
                "Direction": "Out",
                "RemoteAddresses": "168.63.129.16/32",
                "RemotePorts": "80",
                "Priority": 200,
                "RuleType": "Switch",
            },
        },
        *(
            {"Type": "ACL", "Settings": {"Action": "Allow", "Direction": way, "Priority": 65500}}
            for way in ("In", "Out")
        ),
        {
            "Type": "PortMapping",
            "Settings": {"InternalPort": 8080, "ExternalPort": 80, "Protocol": 6},
        },
    ]
    node.delete(CONF, "sandbox1", inside, **POD)
    node.delete(CONF, "sandbox1", inside, **POD)
    assert not node.hns.list("endpoint", Name="sandbox1-eth0")


def state(node: Node) -> dict[str, Any]:
    pools = orjson.loads(node.host.files.read(azure_ipam.STATE))["IPAM"]["AddressSpaces"]["local"][
        "Pools"
    ]
    return {text: record["ID"] for text, record in pools["172.20.0.0/16"]["Addresses"].items()}


def test_addresses_are_given_back_and_run_out(node: Node) -> None:
    for i in (1, 2, 3):
        node.add(CONF, f"sandbox{i}", **POD)
    error = node.refused(CONF, "sandbox4", **POD)
    assert error.code == 100
    assert str(error) == (
        "Failed to allocate pool: Failed to delegate: Failed to allocate address: No "
        "available addresses"
    )
    node.delete(CONF, "sandbox2", **POD)
    assert state(node) == {"172.20.1.1": "sandbox1", "172.20.1.2": "", "172.20.1.3": "sandbox3"}
    assert node.add(CONF, "sandbox4", **POD)["ips"][0]["address"] == "172.20.1.2/16"


def test_the_platforms_list_changes(node: Node) -> None:
    node.add(CONF, "sandbox1", **POD)
    answer = azure_ipam.wire_server_answer(
        "00155D010203", "172.20.0.0/16", ADDRESS, ["172.20.1.2", "172.20.1.9"]
    )
    node.host.files.write(azure_ipam.ANSWER, answer)
    node.add(CONF, "sandbox2", **POD)
    assert state(node) == {"172.20.1.1": "sandbox1", "172.20.1.2": "sandbox2", "172.20.1.9": ""}
    node.delete(CONF, "sandbox1", **POD)  # which the platform has taken away in the meantime
    assert state(node) == {"172.20.1.2": "sandbox2", "172.20.1.9": ""}


@pytest.mark.parametrize("lost", [False, True])
def test_a_reboot_voids_what_was_given(node: Node, lost: bool) -> None:
    node.add(CONF, "sandbox1", **POD)
    node.clock.advance(60)
    node.host.reboot()
    node.hns.faults.lose_networks_on_reboot = lost
    node.hns.reboot()
    winhost.refresh_windows_host(node.machine.stack, node.hns)
    assert node.add(CONF, "sandbox2", **POD)["ips"][0]["address"] == "172.20.1.1/16"
    assert state(node)["172.20.1.1"] == "sandbox2"
    assert len(node.hns.networks) == 1


def test_azure_stack_has_a_file(node: Node) -> None:
    cards = [
        {
            "MacAddress": "00155D010203",
            "IsPrimary": True,
            "IPSubnets": [
                {
                    "Prefix": "172.20.0.0/16",
                    "IPAddresses": [
                        {"Address": "172.20.0.4", "IsPrimary": True},
                        {"Address": "172.20.7.7"},
                    ],
                },
            ],
        }
    ]
    node.host.files.write(azure_ipam.AZURE_STACK, orjson.dumps({"Interfaces": cards}))
    conf = {**CONF, "ipam": {"type": "azure-vnet-ipam", "environment": "mas"}}
    assert node.add(conf, **POD)["ips"][0]["address"] == "172.20.7.7/16"


@pytest.mark.parametrize(
    ("change", "args", "text"),
    [
        ({}, {}, "Pod Namespace not specified in CNI Args"),
        ({}, {"K8S_POD_NAMESPACE": "default"}, "Pod Name not specified in CNI Args"),
        ({"mode": "transparent"}, POD, "Failed to create network: Network mode is invalid"),
        (
            {"dns": {"Nameservers": ["1.1.1.1"]}},
            POD,
            "Failed to getDNSSettings: Wrong DNS configuration: *",
        ),
        (
            {"ipam": {"type": "azure-vnet-ipam", "environment": "elsewhere"}},
            POD,
            (
                "Failed to allocate pool: Failed to delegate: Failed to parse network "
                "configuration: Invalid configuration"
            ),
        ),
        (
            {"ipam": {"type": "azure-vnet-ipam", "subnet": "10.1.0.0/16"}},
            POD,
            "Failed to allocate pool: Failed to delegate: "
            "Failed to allocate address: Pool id 10.1.0.0/16 not found :Invalid address pool",
        ),
        (
            {"master": "Ethernet 9"},
            POD,
            "Failed to allocate pool: Failed to delegate: Failed to allocate pool: "
            "No available address pools",
        ),
        (
            {"AdditionalArgs": [{"Name": "EndpointPolicy", "Value": {"Type": "QOS"}}]},
            POD,
            "Failed to create endpoint: hns failed with error : The provided policy "
            "configuration is invalid or missing "
            "parameters. ",
        ),
    ],
)
def test_texts(node: Node, change: dict[str, Any], args: dict[str, str], text: str) -> None:
    error = str(node.refused({**CONF, **change}, **args))
    assert error.startswith(text[:-1]) if text.endswith("*") else error == text
    if args == POD:
        # nothing was kept of it
        assert node.add(CONF, "sandbox9", **POD)["ips"][0]["address"] == "172.20.1.1/16"


def test_a_platform_that_does_not_answer(make_node: MakeNode) -> None:
    error = make_node().refused(CONF, **POD)
    assert str(error) == (
        "Failed to allocate pool: Failed to delegate: Failed to allocate pool: Invalid "
        "address space"
    )


@pytest.mark.windows("IPAM-03")
def test_its_ipam_is_for_azure_alone(node: Node) -> None:
    conf = {
        "name": "azure",
        "type": "win-bridge",
        "ipam": {"type": "azure-vnet-ipam"},
        "ApiVersion": 2,
    }
    node.add(CONF, **POD)
    assert "azure-vnet-ipam serves azure-vnet only, not win-bridge" in str(
        node.refused(conf, "sandbox2")
    )
