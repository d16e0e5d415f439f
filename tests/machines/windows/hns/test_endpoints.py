from __future__ import annotations

from typing import Any

import pytest
from tests.machines.windows.hns.service import (
    balancer,
    endpoint,
    made_endpoint,
    made_network,
    network,
    refused,
    remote,
    service,
)

from transom.machines.windows.hns import HnsError, HostNetworkService


@pytest.fixture
def hns() -> HostNetworkService:
    return service()


@pytest.fixture
def net(hns: HostNetworkService) -> str:
    return made_network(hns)


def test_hns_assigns_addresses_in_turn(hns: HostNetworkService, net: str) -> None:
    """Neither the gateway's nor the second one, which the host's own endpoint asks for."""
    first = hns.create("endpoint", endpoint(net, Name="a"))
    second = hns.create("endpoint", endpoint(net))
    assert first["IpConfigurations"] == [{"IpAddress": "10.244.1.3", "PrefixLength": 24}]
    assert first["Routes"] == [{"NextHop": "10.244.1.1", "DestinationPrefix": "0.0.0.0/0"}]
    assert (first["Name"], second["Name"]) == ("a", "Ethernet")
    assert first["MacAddress"] != second["MacAddress"]
    hns.delete("endpoint", first["ID"])
    third = hns.create("endpoint", endpoint(net))
    assert third["IpConfigurations"][0]["IpAddress"] == "10.244.1.5", (
        "an address rests before it is given again"
    )
    assert made_endpoint(hns, net, "10.244.1.2")


def test_addresses_run_out(hns: HostNetworkService) -> None:
    small = made_network(hns, "small", prefix="192.168.255.0/30")
    made_endpoint(hns, small)
    assert refused(hns, "endpoint", endpoint(small)).code == 0x803B0005


def test_mac_addresses_come_from_the_pool_and_go_back(hns: HostNetworkService) -> None:
    pool = {
        "Ranges": [{"StartMacAddress": "00-15-5D-52-C0-00", "EndMacAddress": "00-15-5D-52-C0-01"}]
    }
    net = made_network(hns, MacPool=pool)
    first, second = made_endpoint(hns, net), made_endpoint(hns, net)
    assert hns.endpoints[second]["MacAddress"] == "00-15-5D-52-C0-01"
    assert refused(hns, "endpoint", endpoint(net)).code == 0x803B000C
    hns.delete("endpoint", first)
    assert hns.create("endpoint", endpoint(net))["MacAddress"] == "00-15-5D-52-C0-00"
    given = made_endpoint(hns, net, MacAddress="0E-2A-0a-f4-01-05")
    assert hns.endpoints[given]["MacAddress"] == "0E-2A-0a-f4-01-05"


@pytest.mark.parametrize(
    "ip, code",
    [
        ("10.244.1.0", 0x803B002F),
        ("10.244.1.1", 0x803B002F),
        ("10.244.1.255", 0x803B002F),
        ("10.244.2.7", 0x803B002F),
        ("10.244.1", 0x803B001E),
        ("10.244.1.9", 0x80071392),
    ],
)
def test_addresses_that_are_never_allocated(
    hns: HostNetworkService, net: str, ip: str, code: int
) -> None:
    made_endpoint(hns, net, "10.244.1.9")
    error = refused(hns, "endpoint", endpoint(net, ip))
    assert error.code == code
    assert len(hns.endpoints) == 1
    made_endpoint(hns, net, "10.244.1.10")


def test_text_of_a_bad_address(hns: HostNetworkService, net: str) -> None:
    assert refused(hns, "endpoint", endpoint(net, "10.244.1.1")).text == (
        "hcnCreateEndpoint failed in Win32: An address provided is invalid or reserved. "
        "(0x803b002f) "
        '{"Success":false,"Error":"An address provided is invalid or reserved. '
        '","ErrorCode":2151350319}'
    )
    made_endpoint(hns, net, "10.244.1.9")
    assert refused(hns, "endpoint", endpoint(net, "10.244.1.9")).text == (
        "hcnCreateEndpoint failed in Win32: The object already exists. (0x1392) "
        '{"Success":false,"Error":"The object already exists. ","ErrorCode":2147947410}'
    )


def test_a_gateway_that_is_not_reserved(hns: HostNetworkService) -> None:
    settings = network()
    settings["Ipams"][0]["Subnets"][0]["Flags"] = 1
    made_endpoint(hns, hns.create("network", settings)["ID"], "10.244.1.1")


def test_remote_endpoints_may_be_anywhere(hns: HostNetworkService, net: str) -> None:
    key = remote(hns, net, "172.18.0.9")
    obj = hns.endpoints[key]
    assert obj["Flags"] == 1
    assert "Routes" not in obj
    assert hns.endpoint_at(net.lower(), "172.18.0.9") is obj
    assert hns.endpoint_at(net, "172.18.0.8") is None
    for attach in (lambda: hns.hot_attach(key, "c"), lambda: hns.attach_to_host(key)):
        with pytest.raises(HnsError, match="invalid for a remote endpoint"):
            attach()


@pytest.mark.parametrize(
    "more, text",
    [
        (
            {"HostComputeNamespace": "x"},
            (
                "endpoint create error, endpoint json HostComputeNamespace is read only and "
                "should not be set"
            ),
        ),
        ({"MacAddress": "nonsense"}, "(0x803b000c)"),
        ({"ID": "nonsense"}, "(0x803b0019)"),
        ({"IpConfigurations": [{"IpAddress": "10.244.1.7", "PrefixLength": 40}]}, "(0x803b000c)"),
        (
            {"IpConfigurations": [{"IpAddress": "fd00::7"}]},
            "platform does not support feature IPv6 DualStack",
        ),
    ],
)
def test_refused_endpoints(
    hns: HostNetworkService, net: str, more: dict[str, Any], text: str
) -> None:
    assert text in refused(hns, "endpoint", endpoint(net, **more)).text
    assert not hns.endpoints


def test_containers_share_an_endpoint(hns: HostNetworkService, net: str) -> None:
    key = made_endpoint(hns, net)

    def state() -> tuple[int, tuple[str, str], tuple[str, ...]]:
        return (
            hns.call("GET", f"/endpoints/{key}")["Output"]["State"],
            hns.attachment(key),
            hns.containers(key),
        )

    assert state() == (1, ("", ""), ())
    hns.hot_attach(key, "pause")
    hns.hot_attach(key, "pause")
    assert state() == (2, ("container", "pause"), ("pause",))
    hns.hot_attach(key, "app")
    assert state() == (3, ("container", "pause"), ("pause", "app"))
    hns.hot_detach(key, "nobody")
    hns.hot_detach(key, "pause")
    assert state() == (2, ("container", "app"), ("app",))
    hns.hot_detach(key, "app")
    assert state() == (4, ("", ""), ())


def test_host_endpoints_bring_an_adapter(hns: HostNetworkService, net: str) -> None:
    key = made_endpoint(hns, net, "10.244.1.2", Name="cbr0_ep")
    hns.attach_to_host(key)
    adapter = hns.adapters["vEthernet (cbr0_ep)"]
    assert (adapter.address, adapter.compartment, adapter.endpoint) == ("10.244.1.2/24", 1, key)
    assert hns.attachment(key) == ("host", "1")
    with pytest.raises(HnsError) as caught:
        hns.attach_to_host(key)
    assert caught.value.text == (
        "failed during hnsCallRawResponse: hnsCall failed in Win32: "
        "This endpoint is already attached to the switch. (0x803b0014)"
    )
    other = made_endpoint(hns, net, Name="cbr0_ep")
    hns.attach_to_host(other, 3)
    assert hns.adapters["vEthernet (cbr0_ep) 2"].compartment == 3
    assert hns.call("POST", f"/endpoints/{other}/detach", {"SystemType": "Host"})["Success"]
    assert hns.attachment(other) == ("", "")
    hns.delete("endpoint", key)
    assert not [name for name in hns.adapters if "cbr0_ep" in name]


def test_ports_of_virtual_machines(hns: HostNetworkService, net: str) -> None:
    key = made_endpoint(hns, net)
    hns.modify(
        "endpoint",
        key,
        {"ResourceType": "Port", "RequestType": "Add", "Settings": {"VirtualNicName": "nic"}},
    )
    assert hns.attachment(key) == ("machine", "nic")
    with pytest.raises(HnsError, match="already attached"):
        hns.hot_attach(key, "c")
    hns.modify("endpoint", key, {"ResourceType": "Port", "RequestType": "Remove"})
    assert hns.attachment(key) == ("", "")


ACL = {"Type": "ACL", "Settings": {"Action": "Allow", "Direction": "In", "Priority": 100}}
NAT = {"Type": "OutBoundNAT", "Settings": {"Exceptions": ["10.244.0.0/16"]}}


def test_policies_of_an_endpoint_change(hns: HostNetworkService, net: str) -> None:
    key = made_endpoint(hns, net, Policies=[NAT])

    def change(verb: str, *policies: dict[str, Any]) -> list[dict[str, Any]]:
        request = {
            "ResourceType": "Policy",
            "RequestType": verb,
            "Settings": {"Policies": list(policies)},
        }
        obj = hns.modify("endpoint", key, request)
        assert hns.endpoints[key] is obj
        return list(obj.get("Policies", []))

    assert change("Add", ACL) == [NAT, ACL]
    assert change("Add", ACL) == [NAT, ACL]
    assert change("Remove", NAT) == [ACL]
    assert change("Update", NAT) == [NAT]
    assert change("Remove", NAT) == []
    with pytest.raises(HnsError, match="An expected policy was not found"):
        change("Remove", NAT)


def mapping(external: int, protocol: int = 6, **more: Any) -> list[dict[str, Any]]:
    settings = {"Protocol": protocol, "InternalPort": 80, "ExternalPort": external, **more}
    return [{"Type": "PortMapping", "Settings": settings}]


def test_ports_of_the_host_are_mapped_once(hns: HostNetworkService, net: str) -> None:
    key = made_endpoint(hns, net, Policies=mapping(8080))
    assert hns.mapping_at("172.18.0.4", 8080, 6) is hns.endpoints[key]
    assert hns.mapping_at("172.18.0.4", 8080, 17) is None
    assert refused(hns, "endpoint", endpoint(net, Policies=mapping(8080))).text == (
        "hcnCreateEndpoint failed in Win32: The specified port already exists. (0x803b0013) "
        '{"Success":false,"Error":"The specified port already exists. ","ErrorCode":2151350291}'
    )
    made_endpoint(hns, net, Policies=mapping(8080, 17))
    other = made_endpoint(hns, net, Policies=mapping(8081))
    request = {
        "ResourceType": "Policy",
        "RequestType": "Add",
        "Settings": {"Policies": mapping(8080)},
    }
    with pytest.raises(HnsError, match="already exists"):
        hns.modify("endpoint", other, request)
    assert refused(hns, "loadbalancer", balancer([key], "", 8080)).code == 0x803B0013
    hns.delete("endpoint", key)
    hns.modify("endpoint", other, request)
    assert len({hns.mapping_at("", port, 6)["ID"] for port in (8080, 8081)}) == 1  # type: ignore[index]
    assert (
        hns.create("endpoint", endpoint(net, Policies=mapping(0)))["Policies"][0]["Settings"][
            "ExternalPort"
        ]
        >= 49152
    )


def test_statistics(hns: HostNetworkService, net: str) -> None:
    key = made_endpoint(hns, net)
    hns.count(key, BytesReceived=100, PacketsReceived=1)
    hns.count(key.lower(), BytesReceived=50, PacketsReceived=1, DroppedPacketsOutgoing=2)
    stats = hns.call("GET", f"/endpointstats/{key}")["Output"]
    assert stats == hns.stats(key)
    assert stats.pop("InstanceId") != key
    assert stats == {
        "BytesReceived": 150,
        "BytesSent": 0,
        "DroppedPacketsIncoming": 0,
        "DroppedPacketsOutgoing": 2,
        "EndpointId": key,
        "PacketsReceived": 2,
        "PacketsSent": 0,
    }


def test_lists_and_names(hns: HostNetworkService, net: str) -> None:
    other = made_network(hns, "External", prefix="192.168.255.0/30")
    a, b = made_endpoint(hns, net, Name="x"), made_endpoint(hns, other, Name="x")
    assert [obj["ID"] for obj in hns.list("endpoint", Name="x")] == [a, b]
    assert [obj["ID"] for obj in hns.list("endpoint", HostComputeNetwork=other.lower())] == [b]
    assert [obj["ID"] for obj in hns.list("endpoint", VirtualNetwork=net, Name="x")] == [a]
    assert hns.list("endpoint", ID=a.lower()) == [hns.query("endpoint", a)] == [hns.endpoints[a]]
    assert hns.named("endpoint", "x") is hns.endpoints[a]
    assert hns.named("network", "nothing") is None
    assert hns.list("network", Type="Overlay") == []
    with pytest.raises(TypeError):
        hns.endpoints["x"] = {}  # type: ignore[index]
