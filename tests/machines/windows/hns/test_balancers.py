from __future__ import annotations

from typing import Any

import pytest
from tests.machines.windows.hns.service import (
    balancer,
    endpoint,
    made_endpoint,
    made_network,
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


def test_found_by_address_and_port(hns: HostNetworkService, net: str) -> None:
    a = remote(hns, net, "10.244.2.5")
    obj = hns.create("loadbalancer", balancer([a.lower()], SourceVIP="10.244.1.9"))
    assert obj["HostComputeEndpoints"] == [a]
    assert hns.loadbalancer_at("10.96.0.10", 80, 6) is obj
    assert hns.loadbalancer_at("10.96.0.10", 80, 17) is None
    assert hns.loadbalancer_at("", 80, 6) is None
    assert hns.users(a) == [obj]
    node_port = hns.create("loadbalancer", balancer([a], "", 30080))
    assert hns.loadbalancer_at("", 30080, 6) is node_port
    hns.delete("loadbalancer", obj["ID"])
    assert hns.loadbalancer_at("10.96.0.10", 80, 6) is None
    assert hns.users(a) == [node_port]


@pytest.mark.windows("LNET-08")
def test_sixty_four_destinations(hns: HostNetworkService, net: str) -> None:
    ids = [remote(hns, net, f"10.244.2.{n}") for n in range(1, 66)]
    hns.create("loadbalancer", balancer(ids[:64]))
    assert refused(hns, "loadbalancer", balancer(ids, "10.96.0.11")).text == (
        "hcnCreateLoadBalancer failed in Win32: The parameter is incorrect. (0x57) "
        '{"Success":false,"Error":"The parameter is incorrect. '
        'Unable to initialize VFP LB rule: invalid number of destinations.","ErrorCode":2147942487}'
    )
    hns.create("loadbalancer", balancer(ids[:64] * 2, "10.96.0.12"))


@pytest.mark.parametrize(
    "first, second, fits",
    [
        ({}, {}, False),
        ({}, {"port": 81}, True),
        ({}, {"vip": "10.96.0.11"}, True),
        ({"vip": ""}, {"vip": ""}, False),
        ({"vip": "", "Flags": 0}, {"vip": "", "Flags": 2}, True),
        ({}, {"FrontendVIPs": ["10.96.0.11", "10.96.0.10"]}, False),
        ({}, {"FrontendVIPs": ["10.96.0.11", "10.96.0.11"]}, False),
        ({}, {"PortMappings": [{"Protocol": 17, "InternalPort": 8080, "ExternalPort": 80}]}, True),
    ],
)
def test_one_address_and_port_has_one_owner(
    first: dict[str, Any], second: dict[str, Any], fits: bool
) -> None:
    hns = service(20348)
    a = remote(hns, made_network(hns), "10.244.2.5")
    hns.create("loadbalancer", balancer([a], **first))
    if fits:
        hns.create("loadbalancer", balancer([a], **second))
    else:
        error = refused(hns, "loadbalancer", balancer([a], **second))
        assert error.code == 0x803B0013
        assert "The specified port already exists. (0x803b0013)" in error.text


def test_no_destinations_and_unknown_ones(hns: HostNetworkService, net: str) -> None:
    assert refused(hns, "loadbalancer", balancer([])).text == (
        "hcnCreateLoadBalancer failed in Win32: The reference is invalid in the JSON "
        "document. (0x803b001c) "
        '{"Success":false,"Error":"The reference is invalid in the JSON document. A '
        'Reference is required",'
        '"ErrorCode":2151350300}'
    )
    missing = "0F5E2B0C-1111-4222-8333-444455556666"
    assert "Element not found. (0x490)" in refused(hns, "loadbalancer", balancer([missing])).text
    assert refused(hns, "loadbalancer", balancer(["x"])).code == 0x803B0019


@pytest.mark.parametrize(
    "change, code",
    [
        ({"FrontendVIPs": ["x"]}, 0x803B000D),
        ({"SourceVIP": "x"}, 0x803B000D),
        ({"PortMappings": []}, 0x803B000D),
        ({"PortMappings": [{"Protocol": 1, "InternalPort": 1, "ExternalPort": 1}]}, 0x803B000D),
        ({"PortMappings": [{"Protocol": 6, "InternalPort": 1}]}, 0x803B000D),
        ({"PortMappings": [{"Protocol": 6, "ExternalPort": 1}]}, 0x803B002D),
    ],
)
def test_refused_load_balancers(
    hns: HostNetworkService, net: str, change: dict[str, Any], code: int
) -> None:
    a = remote(hns, net, "10.244.2.5")
    assert refused(hns, "loadbalancer", balancer([a], **change)).code == code
    assert not hns.users(a)


@pytest.mark.parametrize(
    "build, flags, text",
    [
        (17763, 1, ""),
        (18362, 1, ""),
        (17763, 2, "platform does not support feature IPv6 DualStack"),
        (20348, 3, ""),
    ],
)
def test_flags_need_features(build: int, flags: int, text: str) -> None:
    hns = service(build)
    a = remote(hns, made_network(hns), "10.244.2.5")
    if text:
        assert refused(hns, "loadbalancer", balancer([a], Flags=flags)).text == text
    else:
        assert hns.create("loadbalancer", balancer([a], Flags=flags))["Flags"] == flags


@pytest.mark.parametrize("build, kept", [(17763, False), (19041, False), (20348, True)])
def test_affinity_is_not_known_to_old_builds(build: int, kept: bool) -> None:
    hns = service(build)
    a = remote(hns, made_network(hns), "10.244.2.5")
    mapping = {"Protocol": 6, "InternalPort": 80, "ExternalPort": 80, "DistributionType": 2}
    made = hns.create("loadbalancer", balancer([a], PortMappings=[mapping]))
    assert ("DistributionType" in made["PortMappings"][0]) is kept


def test_modified_in_place_by_new_builds_only() -> None:
    old = service(20348)
    a = remote(old, made_network(old), "10.244.2.5")
    key = old.create("loadbalancer", balancer([a]))["ID"]
    with pytest.raises(HnsError) as caught:
        old.modify("loadbalancer", key, balancer([a]))
    assert caught.value.text == "platform does not support feature ModifyLoadbalancer"

    new = service(25398)
    net = made_network(new)
    a, b = remote(new, net, "10.244.2.5"), remote(new, net, "10.244.2.6")
    key = new.create("loadbalancer", balancer([a]))["ID"]
    other = new.create("loadbalancer", balancer([a], "10.96.0.11"))
    changed = new.modify("loadbalancer", key, balancer([b], port=81))
    assert (changed["ID"], changed["HostComputeEndpoints"]) == (key, [b])
    assert new.loadbalancer_at("10.96.0.10", 80, 6) is None
    assert new.loadbalancer_at("10.96.0.10", 81, 6) is changed
    assert (new.users(a), new.users(b)) == ([other], [changed])
    with pytest.raises(HnsError, match="already exists"):
        new.modify("loadbalancer", key, balancer([b], "10.96.0.11"))
    assert new.loadbalancers[key] is changed


def test_deleted_endpoints_leave_their_load_balancers(hns: HostNetworkService, net: str) -> None:
    a, b = made_endpoint(hns, net), remote(hns, net, "10.244.2.5")
    key = hns.create("loadbalancer", balancer([a, b]))["ID"]
    before = hns.loadbalancers[key]
    seen: list[tuple[str, str, str]] = []
    hns.listeners.append(lambda *change: seen.append(change))
    hns.delete("endpoint", a)
    assert hns.loadbalancers[key]["HostComputeEndpoints"] == [b]
    assert before["HostComputeEndpoints"] == [a, b]
    assert seen == [("loadbalancer", key, "changed"), ("endpoint", a, "deleted")]
    hns.delete("endpoint", b)
    assert hns.loadbalancer_at("10.96.0.10", 80, 6) == hns.loadbalancers[key]
    hns.delete("loadbalancer", key)


def test_routes(hns: HostNetworkService, net: str) -> None:
    a = made_endpoint(hns, net)
    setting = {"DestinationPrefix": "10.96.0.0/12", "NeedEncap": True}
    assert refused(hns, "route", {"Setting": [setting]}).text == "missing endpoints"
    assert refused(hns, "route", {"HostComputeEndpoints": [a]}).code == 0x803B000D
    route = hns.create("route", {"HostComputeEndpoints": [a], "Setting": [setting]})
    assert (route["Setting"], hns.users(a)) == ([setting], [route])
    with pytest.raises(HnsError, match="Not implemented"):
        hns.modify("route", route["ID"], {})
    hns.delete("route", route["ID"])
    assert hns.users(a) == []


def test_thousands_of_load_balancers(hns: HostNetworkService, net: str) -> None:
    ids = [remote(hns, net, f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}") for n in range(70000, 75000)]
    for n in range(1000):
        hns.create("loadbalancer", balancer(ids[n : n + 64], f"10.96.{n >> 8}.{n & 255}"))
    assert (
        refused(
            hns,
            "endpoint",
            endpoint(net, hns.endpoints[ids[7]]["IpConfigurations"][0]["IpAddress"]),
        ).code
        == 0x803B002F
    )
    assert hns.endpoint_at(net, "10.1.17.119") is hns.endpoints[ids[7]]
