from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.machines.windows.hns.service import (
    NODE,
    endpoint,
    made_endpoint,
    made_network,
    network,
    refused,
    service,
)

from transom.machines.windows.hns import Adapter, HnsError
from transom.windows.builds import BUILDS


def test_external_switch_takes_the_adapter_over_and_gives_it_back() -> None:
    hns = service()
    seen: list[tuple[str, str, str]] = []
    hns.listeners.append(lambda *change: seen.append(change))
    first = made_network(hns, "External", prefix="192.168.255.0/30")
    second = made_network(hns)
    assert hns.adapters["Ethernet"].address == ""
    above = hns.adapters["vEthernet (Ethernet)"]
    assert (above.address, above.gateway, above.mac) == (
        f"{NODE}/16",
        "172.18.0.1",
        hns.adapters["Ethernet"].mac,
    )
    assert hns.management_ip(first) == hns.management_ip(second) == NODE
    assert len(hns.outages) == 1, "networks of one type share a switch"
    hns.delete("network", first)
    assert "vEthernet (Ethernet)" in hns.adapters
    hns.delete("network", second)
    assert list(hns.adapters) == ["Ethernet"]
    assert hns.adapters["Ethernet"].address == f"{NODE}/16"
    assert ("adapter", "vEthernet (Ethernet)", "created") in seen
    assert ("network", second, "deleted") in seen


def test_adapters_may_come_later_and_change() -> None:
    from transom.machines.windows.hns import HostNetworkService

    hns = HostNetworkService(BUILDS[17763], seed="x")
    assert refused(hns, "network", network()).code == 0x803B0006
    hns.set_adapters([Adapter("Ethernet 2", "00-15-5D-00-00-01")])
    key = made_network(hns)
    assert hns.management_ip(key) == ""
    hns.set_adapters([Adapter("Ethernet 2", "00-15-5D-00-00-01", "172.18.0.9/16", "172.18.0.1")])
    assert hns.management_ip(key) == "172.18.0.9"
    assert hns.adapters["vEthernet (Ethernet 2)"].ip == "172.18.0.9"


def test_nat_has_no_type_an_adapter_and_a_subnet_of_its_own() -> None:
    hns = service()
    obj = hns.create("network", {"Name": "nat", "Type": "NAT"})
    assert "Type" not in obj
    subnet = obj["Ipams"][0]["Subnets"][0]
    adapter = hns.adapters["vEthernet (nat)"]
    assert adapter.ip == subnet["Routes"][0]["NextHop"]
    assert adapter.kind == "internal"
    assert hns.call("GET", f"/networks/{obj['ID']}")["Output"]["Type"] == "nat"
    made_endpoint(hns, obj["ID"])
    hns.delete("network", obj["ID"])
    assert list(hns.adapters) == ["Ethernet"]
    assert not hns.endpoints


def test_overlay_has_a_router_and_a_mac_pool() -> None:
    obj = service().create("network", network("vxlan0", "Overlay", Flags=8))
    types = [policy["Type"] for policy in obj["Policies"]]
    assert types == ["NetAdapterName", "DrMacAddress"]
    assert obj["Policies"][1]["Settings"]["Address"].startswith("00-15-5D-")
    pool = obj["MacPool"]["Ranges"][0]
    assert (pool["StartMacAddress"][:8], pool["EndMacAddress"][-5:]) == (
        "00-15-5D",
        pool["StartMacAddress"][-5] + "F-FF",
    )
    assert obj["Flags"] == 8


@pytest.mark.parametrize(
    "change, text",
    [
        (
            {"Routes": [{"DestinationPrefix": "0.0.0.0/0"}]},
            "subnet has address prefix but no gateway specified",
        ),
        ({"Routes": []}, "no default gateway"),
        (
            {"Routes": [{"NextHop": "10.244.1.1", "DestinationPrefix": "10.0.0.0/8"}]},
            "no default gateway",
        ),
    ],
)
def test_client_checks_of_subnets(change: dict[str, Any], text: str) -> None:
    settings = network()
    settings["Ipams"][0]["Subnets"][0].update(change)
    assert refused(service(), "network", settings).text == f"network create error, {text}"


@pytest.mark.parametrize(
    "settings, code",
    [
        (network(kind="Bridge"), 0x803B000B),
        ({"Name": "n", "Type": "L2Bridge"}, 0x803B000A),
        (network(prefix="10.244.1.0/99"), 0x803B0030),
        (
            network(
                Policies=[
                    {"Type": "NetAdapterName", "Settings": {"NetworkAdapterName": "Ethernet 7"}}
                ]
            ),
            0x803B0006,
        ),
        (network(MacPool={"Ranges": [{"StartMacAddress": "x", "EndMacAddress": "y"}]}), 0x803B000A),
        (network(ID="not a guid"), 0x803B0019),
    ],
)
def test_refused_networks(settings: dict[str, Any], code: int) -> None:
    error = refused(service(), "network", settings)
    assert error.code == code
    assert error.text.startswith("hcnCreateNetwork failed in Win32: ")
    assert f"(0x{code:x})" in error.text


def test_names_ids_and_switches_are_taken_once() -> None:
    hns = service()
    key = made_network(hns)
    assert refused(hns, "network", network()).code == 0x803B0010
    assert refused(hns, "network", network("other", ID=key.lower())).code == 0x80071392
    assert refused(hns, "network", network("vxlan0", "Overlay")).code == 0x803B0011
    hns.create("network", {"Name": "nat", "Type": "NAT"})
    assert not hns.outages[1:]


@pytest.mark.windows("WIN-NET-010")
@pytest.mark.parametrize(
    "number, ubr, works", [(17763, 348, False), (17763, 379, True), (18362, 1, True)]
)
def test_overlay_needs_an_update_of_2019(number: int, ubr: int, works: bool) -> None:
    hns = service(replace(BUILDS[number], ubr=ubr))
    if works:
        made_network(hns, "vxlan0", "Overlay")
    else:
        assert refused(hns, "network", network("vxlan0", "Overlay")).code == 0x803B0015
        made_network(hns, "cbr0", "L2Bridge")


@pytest.mark.parametrize(
    "build, feature, settings",
    [
        (17134, "V2 Api/Schema", network()),
        (
            17763,
            "VXLAN port configuration",
            network("v", "Overlay", Policies=[{"Type": "VxlanPort", "Settings": {"Port": 1}}]),
        ),
        (19041, "SetPolicy", network(Policies=[{"Type": "SetPolicy", "Settings": {}}])),
        (20348, "NetworkACL", network(Policies=[{"Type": "NetworkACL", "Settings": {}}])),
        (20348, "DisableHostPort", network(Flags=1024)),
        (17763, "L4ProxyPolicy", network(Policies=[{"Type": "L4Proxy", "Settings": {}}])),
    ],
)
def test_unsupported_features(build: int, feature: str, settings: dict[str, Any]) -> None:
    hns = service(build)
    assert not hns.supports(feature)
    assert refused(hns, "network", settings).text == f"platform does not support feature {feature}"


def test_ipv6_needs_a_build_and_no_overlay() -> None:
    six = {
        "IpAddressPrefix": "fd00:1::/64",
        "Routes": [{"NextHop": "fd00:1::1", "DestinationPrefix": "::/0"}],
    }
    settings = network()
    settings["Ipams"][0]["Subnets"].append(six)
    assert (
        refused(service(17763), "network", settings).text
        == "platform does not support feature IPv6 DualStack"
    )
    hns = service(20348)
    key = hns.create("network", settings)["ID"]
    addresses = hns.create("endpoint", endpoint(key))["IpConfigurations"]
    assert [a["IpAddress"] for a in addresses] == ["10.244.1.3", "fd00:1::3"]
    assert hns.create("endpoint", endpoint(key))["Routes"][1] == {
        "NextHop": "fd00:1::1",
        "DestinationPrefix": "::/0",
    }
    settings["Type"] = "Overlay"
    assert refused(service(20348), "network", settings).code == 0x803B0015


def route(prefix: str, provider: str = "172.18.0.5") -> dict[str, Any]:
    return {
        "Type": "RemoteSubnetRoute",
        "Settings": {
            "DestinationPrefix": prefix,
            "IsolationId": 4096,
            "ProviderAddress": provider,
            "DistributedRouterMacAddress": "00-15-5d-01-02-03",
        },
    }


def policy(verb: str, *policies: dict[str, Any]) -> dict[str, Any]:
    return {"ResourceType": "Policy", "RequestType": verb, "Settings": {"Policies": list(policies)}}


def test_remote_subnets_are_added_replaced_and_removed() -> None:
    hns = service()
    key = made_network(hns, "vxlan0", "Overlay")
    before = hns.networks[key]
    hns.modify("network", key, policy("Add", route("10.244.2.0/24"), route("10.244.3.0/24")))
    hns.modify("network", key, policy("Add", route("10.244.2.0/24", "172.18.0.6")))
    remote = [
        p["Settings"] for p in hns.networks[key]["Policies"] if p["Type"] == "RemoteSubnetRoute"
    ]
    assert [(r["DestinationPrefix"], r["ProviderAddress"]) for r in remote] == [
        ("10.244.2.0/24", "172.18.0.6"),
        ("10.244.3.0/24", "172.18.0.5"),
    ]
    assert all(p["Type"] != "RemoteSubnetRoute" for p in before["Policies"]), (
        "what was handed out does not change"
    )
    hns.modify("network", key, policy("Remove", route("10.244.2.0/24", "172.18.0.6")))
    with pytest.raises(HnsError, match="An expected policy was not found"):
        hns.modify("network", key, policy("Remove", route("10.244.9.0/24")))
    assert len(hns.networks[key]["Policies"]) == 3


def test_remote_subnets_are_for_overlays() -> None:
    hns = service()
    key = made_network(hns)
    with pytest.raises(HnsError) as caught:
        hns.modify("network", key, policy("Add", route("10.244.2.0/24")))
    assert caught.value.text.startswith(
        "hcnModifyNetwork failed in Win32: The provided policy configuration is invalid"
    )


def test_dns_extensions_and_other_requests() -> None:
    hns = service()
    key = made_network(hns)
    hns.modify(
        "network",
        key,
        {
            "ResourceType": "DNS",
            "RequestType": "Update",
            "Settings": {"ServerList": ["10.96.0.10"]},
        },
    )
    assert hns.networks[key]["Dns"] == {"ServerList": ["10.96.0.10"]}
    assert hns.create("endpoint", endpoint(key))["Dns"] == {"ServerList": ["10.96.0.10"]}
    hns.modify("network", key, {"ResourceType": "DNS", "RequestType": "Remove"})
    assert "Dns" not in hns.networks[key]
    hns.modify(
        "network",
        key,
        {
            "ResourceType": "Extension",
            "RequestType": "Add",
            "Settings": {"ExtensionID": "E", "Enable": True},
        },
    )
    assert hns.networks[key]["Policies"][-1]["Type"] == "VSwitchExtension"
    with pytest.raises(HnsError) as caught:
        hns.modify("network", key, {"ResourceType": "Policy", "RequestType": "Sing"})
    assert caught.value.code == 0x803B0015


@pytest.mark.parametrize(
    "kind, title, text",
    [
        ("network", "network", 'Network ID "{}" not found'),
        ("endpoint", "endpoint", 'Endpoint ID "{}" not found'),
        ("namespace", "namespace", 'Namespace ID "{}" not found'),
        ("loadbalancer", "load balancer", 'LoadBalancer "{}" not found'),
        ("route", "route", 'SDN Route "{}" not found'),
    ],
)
def test_what_is_not_there(kind: str, title: str, text: str) -> None:
    hns = service()
    missing = "0F5E2B0C-1111-4222-8333-444455556666"
    with pytest.raises(HnsError) as caught:
        hns.query(kind, missing)
    assert caught.value.text == text.format(missing)
    assert caught.value.not_found
    for call in (lambda: hns.delete(kind, "x"), lambda: hns.modify(kind, "x", {})):
        with pytest.raises(HnsError) as caught:
            call()
        assert caught.value.text == f"invalid {title} ID"
    with pytest.raises(HnsError) as caught:
        hns.delete(kind, missing)
    assert caught.value.not_found
    assert caught.value.text.startswith("hcnDelete")
    with pytest.raises(ValueError):
        hns.list("switch")


def test_network_of_an_endpoint_must_exist() -> None:
    hns = service()
    missing = "0F5E2B0C-1111-4222-8333-444455556666"
    assert refused(hns, "endpoint", endpoint("x")).text == "invalid network ID"
    assert refused(hns, "endpoint", endpoint(missing)).text == (
        "hcnOpenNetwork failed in Win32: The network was not found. (0x803b0001) "
        '{"Success":false,"Error":"The network was not found. ","ErrorCode":2151350273}'
    )


def test_identifiers_are_the_same_for_the_same_seed() -> None:
    one, two, other = service(seed="a"), service(seed="a"), service(seed="b")
    assert one.create("network", network()) == two.create("network", network())
    assert one.networks.keys().isdisjoint([made_network(other)])
