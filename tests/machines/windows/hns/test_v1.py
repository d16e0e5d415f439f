"""The v1 schema: requests as hcsshim sends them, and views of the same objects."""

from __future__ import annotations

from typing import Any

import pytest
from tests.machines.windows.hns.service import (
    NODE,
    balancer,
    made_endpoint,
    made_network,
    remote,
    service,
)

from transom.machines.windows.hns import HostNetworkService

CBR0 = {
    "Name": "cbr0",
    "Type": "L2Bridge",
    "Subnets": [{"AddressPrefix": "10.244.1.0/24", "GatewayAddress": "10.244.1.1"}],
    "DNSServerList": "10.96.0.10,10.96.0.11",
}


def ok(answer: dict[str, Any]) -> Any:
    assert answer["Success"], answer
    return answer.get("Output")


@pytest.fixture
def hns() -> HostNetworkService:
    return service()


@pytest.fixture
def net(hns: HostNetworkService) -> str:
    return str(ok(hns.call("POST", "/networks/", CBR0))["ID"])


def test_networks(hns: HostNetworkService, net: str) -> None:
    view = ok(hns.call("GET", f"/networks/{net.lower()}"))
    assert ok(hns.call("GET", "/networks/")) == [view]
    for name, value in {
        "ID": net,
        "Name": "cbr0",
        "Type": "L2Bridge",
        "ManagementIP": NODE,
        "NetworkAdapterName": "Ethernet",
        "DNSServerList": "10.96.0.10,10.96.0.11",
        "CurrentEndpointCount": 0,
        "Policies": [],
        "Version": 9 << 32 | 4,
    }.items():
        assert view[name] == value
    assert view["Subnets"] == [
        {
            "AddressPrefix": "10.244.1.0/24",
            "Flags": 0,
            "GatewayAddress": "10.244.1.1",
            "Policies": [],
        }
    ]
    assert hns.networks[net]["Dns"] == {"ServerList": ["10.96.0.10", "10.96.0.11"]}
    assert ok(hns.call("DELETE", f"/networks/{net}")) is None
    assert hns.call("GET", f"/networks/{net}")["Error"] == "The network was not found. "


def test_overlay_network_and_its_subnet_policy(hns: HostNetworkService) -> None:
    subnet = {
        "AddressPrefix": "10.244.1.0/24",
        "GatewayAddress": "10.244.1.1",
        "Policies": [{"Type": "VSID", "VSID": 4096}],
    }
    body = {
        "Name": "vxlan0",
        "Type": "overlay",
        "Subnets": [subnet],
        "NetworkAdapterName": "Ethernet",
    }
    view = ok(hns.call("POST", "/networks/", body))
    assert view["Type"] == "Overlay"
    assert view["DrMacAddress"].startswith("00-15-5D")
    assert view["Subnets"][0]["Policies"] == subnet["Policies"]
    stored = hns.networks[view["ID"]]
    assert stored["Ipams"][0]["Subnets"][0]["Policies"] == [
        {"Type": "VSID", "Settings": {"IsolationId": 4096}}
    ]
    again = ok(hns.call("POST", f"/networks/{view['ID']}", view))
    assert again["Policies"] == view["Policies"]
    assert hns.networks[view["ID"]]["Policies"] == stored["Policies"]


def test_a_subnet_needs_a_gateway(hns: HostNetworkService) -> None:
    answer = hns.call(
        "POST", "/networks/", {**CBR0, "Subnets": [{"AddressPrefix": "10.244.1.0/24"}]}
    )
    assert (
        answer["Error"]
        == "network create error, subnet has address prefix but no gateway specified"
    )


def test_an_adapter_by_its_address(hns: HostNetworkService) -> None:
    assert (
        ok(hns.call("POST", "/networks/", {**CBR0, "ManagementIP": NODE}))["ManagementIP"] == NODE
    )
    assert (
        hns.call("POST", "/networks/", {**CBR0, "Name": "b", "ManagementIP": "1.2.3.4"})[
            "ErrorCode"
        ]
        == 0x803B0006
    )


@pytest.mark.parametrize(
    "v1, v2",
    [
        (
            {
                "Type": "OutBoundNAT",
                "ExceptionList": ["10.244.0.0/16"],
                "VIP": "172.18.0.4",
                "Destinations": ["10.1.1.1"],
            },
            {
                "Type": "OutBoundNAT",
                "Settings": {
                    "Exceptions": ["10.244.0.0/16"],
                    "VirtualIP": "172.18.0.4",
                    "Destinations": ["10.1.1.1"],
                },
            },
        ),
        (
            {"Type": "ROUTE", "DestinationPrefix": "10.96.0.0/12", "NeedEncap": True},
            {
                "Type": "SDNRoute",
                "Settings": {"DestinationPrefix": "10.96.0.0/12", "NeedEncap": True},
            },
        ),
        (
            {"Type": "PA", "PA": NODE},
            {"Type": "ProviderAddress", "Settings": {"ProviderAddress": NODE}},
        ),
        (
            {"Type": "NAT", "InternalPort": 80, "ExternalPort": 8080, "Protocol": "tcp"},
            {
                "Type": "PortMapping",
                "Settings": {"InternalPort": 80, "ExternalPort": 8080, "Protocol": 6},
            },
        ),
        (
            {
                "Type": "PROXY",
                "IP": "10.0.0.1",
                "Port": "8000",
                "ExceptionList": ["10.0.0.0/8"],
                "OutboundNat": True,
            },
            {
                "Type": "L4Proxy",
                "Settings": {
                    "IP": "10.0.0.1",
                    "Port": "8000",
                    "Exceptions": ["10.0.0.0/8"],
                    "OutboundNAT": True,
                },
            },
        ),
        (
            {
                "Type": "ACL",
                "Protocols": "6",
                "Action": "Allow",
                "Direction": "In",
                "LocalPorts": "80",
            },
            {
                "Type": "ACL",
                "Settings": {
                    "Protocols": "6",
                    "Action": "Allow",
                    "Direction": "In",
                    "LocalPorts": "80",
                },
            },
        ),
        (
            {"Type": "QOS", "MaximumOutgoingBandwidthInBytes": 7},
            {"Type": "QOS", "Settings": {"MaximumOutgoingBandwidthInBytes": 7}},
        ),
    ],
)
def test_policies_have_two_names(
    hns: HostNetworkService, net: str, v1: dict[str, Any], v2: dict[str, Any]
) -> None:
    made = ok(hns.call("POST", "/endpoints/", {"VirtualNetwork": net, "Policies": [v1]}))
    assert made["Policies"] == [v1]
    assert hns.endpoints[made["ID"]]["Policies"] == [v2]


def test_old_fields_of_access_lists(hns: HostNetworkService, net: str) -> None:
    acl = {
        "Type": "ACL",
        "Protocol": 6,
        "Action": "Block",
        "Direction": "Out",
        "RemotePort": 53,
        "InternalPort": 80,
    }
    made = ok(hns.call("POST", "/endpoints/", {"VirtualNetwork": net, "Policies": [acl]}))
    assert hns.endpoints[made["ID"]]["Policies"][0]["Settings"] == {
        "Action": "Block",
        "Direction": "Out",
        "Protocols": "6",
        "RemotePorts": "53",
        "LocalPorts": "80",
    }


def test_an_endpoint_as_win_bridge_makes_it(hns: HostNetworkService, net: str) -> None:
    body = {
        "Name": "abc_cbr0",
        "VirtualNetwork": net,
        "IPAddress": "10.244.1.7",
        "GatewayAddress": "10.244.1.2",
        "DNSServerList": "10.96.0.10",
        "DNSSuffix": "default.svc.cluster.local,svc.cluster.local",
        "DisableICC": True,
    }
    view = ok(hns.call("POST", "/endpoints/", body))
    for name, value in {
        **body,
        "PrefixLength": 24,
        "State": 1,
        "VirtualNetworkName": "cbr0",
        "Type": "L2Bridge",
        "Policies": [{"Type": "L2Driver"}],
    }.items():
        assert view[name] == value
    stored = hns.endpoints[view["ID"]]
    assert "Policies" not in stored
    assert stored["Dns"] == {
        "Search": ["default.svc.cluster.local", "svc.cluster.local"],
        "ServerList": ["10.96.0.10"],
    }
    assert stored["Routes"] == [{"NextHop": "10.244.1.2", "DestinationPrefix": "0.0.0.0/0"}]
    attach = {"ContainerId": "abc", "SystemType": "Container"}
    assert hns.call("POST", f"/endpoints/{view['ID']}/attach", attach) == {"Success": True}
    assert ok(hns.call("GET", f"/endpoints/{view['ID']}"))["SharedContainers"] == ["abc"]
    again = hns.call("POST", f"/endpoints/{view['ID']}/attach", attach)
    assert (again["Error"], again["ErrorCode"]) == (
        "This endpoint is already attached to the switch. ",
        0x803B0014,
    )
    ok(hns.call("POST", f"/endpoints/{view['ID']}/detach", attach))
    assert ok(hns.call("GET", f"/endpoints/{view['ID']}"))["State"] == 4
    assert hns.call("DELETE", f"/endpoints/{view['ID']}") == {"Success": True}
    assert hns.call("DELETE", f"/endpoints/{view['ID']}")["Error"] == "The endpoint was not found. "


def test_remote_endpoints_and_networks_by_name(hns: HostNetworkService, net: str) -> None:
    body = {"VirtualNetworkName": "cbr0", "IPAddress": "10.244.2.5", "IsRemoteEndpoint": True}
    view = ok(hns.call("POST", "/endpoints/", body))
    assert view["IsRemoteEndpoint"]
    assert hns.endpoints[view["ID"]]["Flags"] == 1
    assert ok(hns.call("GET", f"/networks/{net}"))["CurrentEndpointCount"] == 1
    assert (
        hns.call("POST", "/endpoints/", {"VirtualNetworkName": "other"})["ErrorCode"] == 0x803B0001
    )


def test_an_update_replaces_policies(hns: HostNetworkService, net: str) -> None:
    view = ok(
        hns.call(
            "POST", "/endpoints/", {"VirtualNetwork": net, "Policies": [{"Type": "PA", "PA": NODE}]}
        )
    )
    acl = {"Type": "ACL", "Action": "Allow", "Direction": "In", "Priority": 7}
    new = ok(
        hns.call("POST", f"/endpoints/{view['ID']}", {**view, "Policies": [*view["Policies"], acl]})
    )
    assert new["Policies"] == [{"Type": "PA", "PA": NODE}, acl]


@pytest.mark.parametrize(
    "system, attached",
    [
        ({"SystemType": "Host", "CompartmentId": 2}, ("host", "2")),
        ({"SystemType": "VirtualMachine", "VirtualNicName": "nic"}, ("machine", "nic")),
    ],
)
def test_other_systems(
    hns: HostNetworkService, net: str, system: dict[str, Any], attached: tuple[str, str]
) -> None:
    key = made_endpoint(hns, net)
    ok(hns.call("POST", f"/endpoints/{key}/attach", system))
    assert hns.attachment(key) == attached
    ok(hns.call("POST", f"/endpoints/{key}/detach", system))
    assert hns.attachment(key) == ("", "")
    assert not hns.call("POST", f"/endpoints/{key}/attach", {"SystemType": "Moon"})["Success"]


def test_policy_lists_are_load_balancers_and_routes(hns: HostNetworkService, net: str) -> None:
    a = remote(hns, net, "10.244.2.5")
    elb = {
        "Type": "ELB",
        "Protocol": 6,
        "InternalPort": 8080,
        "ExternalPort": 80,
        "VIPs": ["10.96.0.10"],
        "ILB": True,
    }
    view = ok(
        hns.call(
            "POST", "/policylists/", {"References": [f"/endpoints/{a.lower()}"], "Policies": [elb]}
        )
    )
    stored = hns.loadbalancers[view["ID"]]
    assert stored["FrontendVIPs"] == ["10.96.0.10"]
    assert stored["PortMappings"] == [
        {"Protocol": 6, "InternalPort": 8080, "ExternalPort": 80, "Flags": 1}
    ]
    assert view["Policies"] == [elb]
    assert view["References"] == [f"/endpoints/{a}"]
    node_port = {
        name: value
        for name, value in elb.items()
        if name in ("Type", "Protocol", "InternalPort", "ExternalPort")
    }
    other = ok(
        hns.call(
            "POST", "/policylists/", {"References": [f"/endpoints/{a}"], "Policies": [node_port]}
        )
    )
    assert hns.loadbalancers[other["ID"]]["PortMappings"][0]["Flags"] == 2
    route = {"Type": "ROUTE", "DestinationPrefix": "10.0.0.0/8", "NextHop": "10.244.1.2"}
    third = ok(
        hns.call("POST", "/policylists/", {"References": [f"/endpoints/{a}"], "Policies": [route]})
    )
    assert third["Policies"] == [route]
    assert {each["ID"] for each in ok(hns.call("GET", "/policylists/"))} == {
        view["ID"],
        other["ID"],
        third["ID"],
    }
    for each in (view, other, third):
        ok(hns.call("DELETE", f"/policylists/{each['ID']}"))
    assert ok(hns.call("GET", "/policylists/")) == []
    assert hns.call("DELETE", f"/policylists/{third['ID']}")["Error"] == "Element not found. "


@pytest.mark.parametrize(
    "body, code",
    [
        (
            {"Policies": [{"Type": "ELB", "Protocol": 6, "InternalPort": 1, "ExternalPort": 1}]},
            0x803B001C,
        ),
        ({"References": ["/networks/x"], "Policies": []}, 0x803B001C),
        ({"References": [], "Policies": [{"Type": "NAT"}]}, 0x803B000D),
    ],
)
def test_refused_policy_lists(hns: HostNetworkService, body: dict[str, Any], code: int) -> None:
    assert hns.call("POST", "/policylists/", body)["ErrorCode"] == code


def test_flags_of_load_balancers_have_names() -> None:
    hns = service(18362)  # the first that keeps destinations
    net = ok(hns.call("POST", "/networks/", CBR0))["ID"]
    a = remote(hns, net, "10.244.2.5")
    mapping = {"Protocol": 6, "InternalPort": 8080, "ExternalPort": 80, "Flags": 12}
    key = hns.create(
        "loadbalancer", balancer([a], Flags=1, SourceVIP="10.244.1.9", PortMappings=[mapping])
    )["ID"]
    assert ok(hns.call("GET", f"/policylists/{key}"))["Policies"] == [
        {
            "Type": "ELB",
            "Protocol": 6,
            "InternalPort": 8080,
            "ExternalPort": 80,
            "UseMux": True,
            "PreserveDip": True,
            "IsDSR": True,
            "SourceVIP": "10.244.1.9",
            "VIPs": ["10.96.0.10"],
        }
    ]


def test_version_and_unknown_paths(hns: HostNetworkService) -> None:
    assert ok(hns.call("GET", "/globals/version")) == {"Major": 9, "Minor": 4}
    assert not service(16299).call("GET", "/globals/version")["Success"]
    assert hns.call("GET", "/moons/")["ErrorCode"] == 0x803B0015
    assert hns.call("GET", "/networks/x")["Error"] == "Failed to interpret a parameter as a GUID. "


def test_v1_works_where_v2_does_not() -> None:
    hns = service(17134)
    net = ok(hns.call("POST", "/networks/", CBR0))["ID"]
    ok(hns.call("POST", "/endpoints/", {"VirtualNetwork": net}))
    assert hns.version == (7, 2)


def test_a_network_of_v2_in_v1_calls(hns: HostNetworkService) -> None:
    net = made_network(hns)
    assert ok(hns.call("POST", "/endpoints/", {"VirtualNetwork": net}))["IPAddress"] == "10.244.1.3"
