"""win-overlay on networks as flanneld's VXLAN backend makes them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.network.cni.windows.conftest import ADDRESS, LOCAL, SUBNET, MakeNode, Node, overlay

from transom.network.cni.plugin import CniCall, CniNode, Result
from transom.network.cni.windows import setup

CONF: dict[str, Any] = {"name": "vxlan0", "type": "win-overlay", "ipam": LOCAL}
PA = {"Type": "ProviderAddress", "Settings": {"ProviderAddress": ADDRESS}}


@pytest.fixture
def node(make_node: MakeNode) -> Node:
    made = make_node()
    overlay(made)
    return made


@pytest.mark.windows("NET-20", "NET-22", "NET-40", "SUP-NET-011", "SUP-NET-012")
def test_a_pod_gets_an_endpoint_with_a_mac_made_of_its_address(node: Node) -> None:
    result = node.add(
        {**CONF, "dns": {"nameservers": ["10.96.0.10"], "search": ["default.svc.cluster.local"]}}
    )
    assert result == {
        "interfaces": [{"name": "sandbox1_vxlan0", "mac": "0E-2A-0a-f4-03-05"}],
        "ips": [{"version": "4", "address": "10.244.3.5/24", "gateway": "10.244.3.1"}],
        "dns": {"nameservers": ["10.96.0.10"], "search": ["default.svc.cluster.local"]},
    }
    assert node.policies("sandbox1_vxlan0") == [PA]
    assert node.add(CONF, "web", "container:sandbox1") == result
    node.delete(CONF, "web", "container:sandbox1")
    node.delete(CONF)
    assert node.calls == [("host-local", "ADD"), ("host-local", "DEL"), ("host-local", "DEL")]
    assert not node.hns.list("endpoint", Name="sandbox1_vxlan0")


@pytest.mark.parametrize(
    ("change", "policies"),
    [
        (
            {"ipMasq": True},
            [PA, {"Type": "OutBoundNAT", "Settings": {"Exceptions": [SUBNET]}}],
        ),  # the node's subnet alone
        ({"policies": [{"name": "EndpointPolicy", "value": {"Type": "PA", "PA": ""}}]}, [PA]),
        (
            {"policies": [{"name": "EndpointPolicy", "value": {"Type": "PA", "PA": "172.20.0.9"}}]},
            [{"Type": "ProviderAddress", "Settings": {"ProviderAddress": "172.20.0.9"}}],
        ),
        (
            {"loopbackDSR": True},
            [PA, {"Type": "OutBoundNAT", "Settings": {"Destinations": ["10.244.3.5"]}}],
        ),
    ],
)
def test_policies(node: Node, change: dict[str, Any], policies: list[Any]) -> None:
    node.add({**CONF, **change})
    assert node.policies("sandbox1_vxlan0") == policies


def six(call: CniCall, machine: CniNode, delegate: Any) -> Result:
    return {"ips": [{"version": "6", "address": "fd00::5/64"}], "dns": {}}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"endpointMacPrefix": "0E2A"},
            "endpointMacPrefix [0E2A] is invalid, value must be of the format xx-xx",
        ),
        ({"name": "gone"}, "error while GETHNSNewtorkByName(gone): Network gone not found"),
        ({"name": "nat0"}, "network nat0 is of an unexpected type: nat"),
        (
            {"ipam": {"type": "six"}},
            "error while ProvisionEndpoint(sandbox1_vxlan0,{id},sandbox1): failed to make a new "
            "HNSEndpoint: win-overlay doesn't support IPv6 now",
        ),
        (
            {"ipam": {}},
            "error while ProvisionEndpoint(sandbox1_vxlan0,{id},sandbox1): failed to make a "
            "new HNSEndpoint: "
            'error while ipam.ExecAdd: failed to find plugin "" in path [C:\\k\\cni]',
        ),
    ],
)
@pytest.mark.windows("WIN-NET-013", "LNET-12", "LNET-13")
def test_texts(node: Node, change: dict[str, Any], text: str) -> None:
    setup.make_nat_network(node.hns, "nat0")
    node.plugins["six"] = six
    id = node.hns.list("network", Name="vxlan0")[0]["ID"]
    assert str(node.refused({**CONF, **change})) == text.replace("{id}", id)


def test_an_address_is_given_back_if_the_service_refuses(node: Node) -> None:
    node.hns.faults.fail_next("CreateEndpoint", 0x803B002F)
    node.refused(CONF)
    assert node.calls == [("host-local", "ADD"), ("host-local", "DEL")]


@pytest.mark.windows("NET-24")
def test_two_networks_may_have_the_same_addresses(node: Node) -> None:
    overlay(node, "vxlan1", vni=4097)
    first = node.add(CONF)
    second = node.add({**CONF, "name": "vxlan1"}, "sandbox2")
    assert first["ips"] == second["ips"]
    assert (
        node.endpoint("sandbox1_vxlan0")["HostComputeNetwork"]
        != node.endpoint("sandbox2_vxlan1")["HostComputeNetwork"]
    )


def test_namespaces_need_the_newer_plugin(make_node: MakeNode) -> None:
    conf = {
        **CONF,
        "ApiVersion": 2,
        "ipMasq": True,
        "runtimeConfig": {"dns": {"servers": ["10.96.0.10"]}},
    }
    old, new = make_node(), make_node(release="1.0")
    overlay(old)
    overlay(new)
    inside = str(old.hns.create("namespace", {})["ID"])
    assert str(old.refused(conf, netns=inside)).endswith("Endpoint sandbox1_vxlan0 not found")
    inside = str(new.hns.create("namespace", {})["ID"])
    result = new.add(conf, netns=inside)
    endpoint = new.endpoint("sandbox1_vxlan0")
    assert result == {
        "interfaces": [{"name": "sandbox1_vxlan0", "mac": "0E-2A-0a-f4-03-05"}],
        "ips": [{"version": "4", "address": "10.244.3.5/24", "gateway": "10.244.3.1"}],
        "dns": {"nameservers": ["10.96.0.10"]},
    }
    assert endpoint["Policies"] == [
        PA,
        {"Type": "OutBoundNAT", "Settings": {"Exceptions": [SUBNET]}},
    ]
    assert new.hns.attachment(endpoint["ID"]) == ("namespace", inside)
    new.delete(conf, netns=inside)
    assert not new.hns.endpoints
