"""Which settings a policy may have, and which it must."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.machines.windows.hns.service import endpoint, made_network, network, refused, service

from transom.machines.windows.hns import HnsError, policies

_WORDS = "The provided policy configuration is invalid or missing parameters. (0x803b000d)"
_ACL = {"Action": "Block", "Direction": "Out"}

GOOD: list[tuple[int, str, dict[str, Any] | None]] = [
    (17763, "L2Driver", None),
    (17763, "OutBoundNAT", {}),
    (
        17763,
        "OutBoundNAT",
        {"VirtualIP": "172.18.0.4", "Exceptions": ["10.0.0.0/8"], "Destinations": ["10.1.1.1"]},
    ),
    (17763, "SDNRoute", {"DestinationPrefix": "10.96.0.0/12", "NeedEncap": True}),
    (17763, "SDNRoute", {"DestinationPrefix": "10.96.0.0/12", "NextHop": "10.244.1.2"}),
    (17763, "ProviderAddress", {"ProviderAddress": "172.18.0.4"}),
    (17763, "QOS", {"MaximumOutgoingBandwidthInBytes": 1000}),
    (17763, "PortName", {"Name": "port"}),
    (17763, "EncapOverhead", {"Overhead": 50}),
    (17763, "InterfaceConstraint", {"InterfaceAlias": "Ethernet"}),
    (17763, "Iov", {"IovOffloadWeight": 100}),
    (
        17763,
        "ACL",
        {
            **_ACL,
            "Protocols": "6,17",
            "LocalPorts": "80,443-445",
            "RemoteAddresses": "10.0.0.0/8,1.2.3.4",
        },
    ),
    (19041, "ACL", {**_ACL, "Protocols": "252"}),
    (
        17763,
        "L4Proxy",
        {"IP": "10.0.0.1", "Port": "8000", "Protocol": 6, "Destination": "0.0.0.0/0"},
    ),
    (20348, "L4WFPPROXY", {"OutboundProxyPort": "15001"}),
    (
        25398,
        "TierAcl",
        {
            "Name": "t",
            "Direction": "In",
            "Order": 1,
            "TierAclRules": [{"TierAclRuleAction": "Pass"}],
        },
    ),
]
BAD: list[tuple[str, dict[str, Any] | None]] = [
    ("Nonsense", {}),
    ("", {}),
    ("OutBoundNAT", None),
    ("OutBoundNAT", {"Exceptions": ["nowhere"]}),
    ("OutBoundNAT", {"Exceptions": "10.0.0.0/8"}),
    ("OutBoundNAT", {"VirtualIP": "x"}),
    ("SDNRoute", {"DestinationPrefix": "10.96.0.0/12"}),
    ("SDNRoute", {"NextHop": "10.244.1.2"}),
    ("ProviderAddress", {}),
    ("QOS", {"MaximumOutgoingBandwidthInBytes": 0}),
    ("PortName", {}),
    ("ACL", None),
    ("ACL", {"Action": "Allow"}),
    ("ACL", {"Action": "Maybe", "Direction": "In"}),
    ("ACL", {**_ACL, "Direction": "Up"}),
    ("ACL", {**_ACL, "RuleType": "Gate"}),
    ("ACL", {**_ACL, "Protocols": "tcp"}),
    ("ACL", {**_ACL, "Protocols": "300"}),
    ("ACL", {**_ACL, "LocalPorts": "90-80"}),
    ("ACL", {**_ACL, "RemotePorts": "70000"}),
    ("ACL", {**_ACL, "RemoteAddresses": "somewhere"}),
    ("ACL", {**_ACL, "Priority": 70000}),
    ("PortMapping", {"Protocol": 5, "InternalPort": 80}),
    ("PortMapping", {"Protocol": 6, "InternalPort": 80, "ExternalPort": 70000}),
]


@pytest.mark.parametrize("build, kind, settings", GOOD)
def test_good_policies(build: int, kind: str, settings: dict[str, Any] | None) -> None:
    hns = service(build)
    policy = {"Type": kind} if settings is None else {"Type": kind, "Settings": settings}
    made = hns.create("endpoint", endpoint(made_network(hns), Policies=[policy]))
    assert made["Policies"] == [policy]


@pytest.mark.parametrize("kind, settings", BAD)
def test_bad_policies(kind: str, settings: dict[str, Any] | None) -> None:
    hns = service()
    policy = {"Type": kind} if settings is None else {"Type": kind, "Settings": settings}
    error = refused(hns, "endpoint", endpoint(made_network(hns), Policies=[policy]))
    assert error.text.startswith(f"hcnCreateEndpoint failed in Win32: {_WORDS}")
    assert not hns.endpoints


@pytest.mark.parametrize(
    "build, kind, settings, text",
    [
        (
            17763,
            "PortMapping",
            {"Protocol": 6},
            "The internal port must exist and cannot be zero. (0x803b002d)",
        ),
        (
            17763,
            "ACL",
            {**_ACL, "Protocols": "252"},
            "feature HNS ACL Policies to support protocol 252 for VXLAN",
        ),
        (19041, "L4WFPPROXY", {}, "platform does not support feature L4WfpProxyPolicy"),
        (20348, "TierAcl", {}, "platform does not support feature TierAcl"),
    ],
)
def test_policies_with_words_of_their_own(
    build: int, kind: str, settings: dict[str, Any], text: str
) -> None:
    hns = service(build)
    assert (
        text
        in refused(
            hns,
            "endpoint",
            endpoint(made_network(hns), Policies=[{"Type": kind, "Settings": settings}]),
        ).text
    )


def test_no_port_mapping_without_translation() -> None:
    hns = service()
    net = hns.create("network", {"Name": "t", "Type": "Transparent"})["ID"]
    policies = [{"Type": "PortMapping", "Settings": {"Protocol": 6, "InternalPort": 80}}]
    assert refused(hns, "endpoint", endpoint(net, Policies=policies)).code == 0x803B0016
    assert "IpConfigurations" not in hns.create("endpoint", endpoint(net)), "DHCP gives it one"


def test_access_lists_name_sets_of_addresses() -> None:
    hns = service(20348)
    settings = {
        "Id": "s1",
        "Name": "web",
        "PolicyType": "IPSET",
        "Values": "10.244.1.7,10.244.2.0/24",
    }
    ipset = {"Type": "SetPolicy", "Settings": settings}
    net = made_network(hns, Policies=[ipset])

    def acl(address: str) -> dict[str, Any]:
        return endpoint(
            net, Policies=[{"Type": "ACL", "Settings": {**_ACL, "RemoteAddresses": address}}]
        )

    hns.create("endpoint", acl("s1,10.0.0.0/8"))
    assert refused(hns, "endpoint", acl("s2")).code == 0x803B000D
    changed = {**ipset, "Settings": {**settings, "Values": "10.244.1.8"}}
    request = {
        "ResourceType": "Policy",
        "RequestType": "Update",
        "Settings": {"Policies": [changed]},
    }
    sets = [p for p in hns.modify("network", net, request)["Policies"] if p["Type"] == "SetPolicy"]
    assert sets == [changed]


@pytest.mark.parametrize(
    "policy",
    [
        {"Type": "RemoteSubnetRoute", "Settings": {"DestinationPrefix": "10.0.0.0/8"}},
        {"Type": "DrMacAddress", "Settings": {"Address": "x"}},
        {"Type": "NetAdapterName"},
        {"Type": "OutBoundNAT", "Settings": {}},
    ],
)
def test_bad_policies_of_networks(policy: dict[str, Any]) -> None:
    assert _WORDS in refused(service(), "network", network("v", "Overlay", Policies=[policy])).text


def test_subnets_have_isolation_only() -> None:
    settings = network()
    settings["Ipams"][0]["Subnets"][0]["Policies"] = [{"Type": "VSID", "Settings": {}}]
    assert _WORDS in refused(service(), "network", settings).text
    settings["Ipams"][0]["Subnets"][0]["Policies"] = [
        {"Type": "VLAN", "Settings": {"IsolationId": 7}}
    ]
    assert (
        service().create("network", settings)["Ipams"][0]["Subnets"][0]["Policies"][0]["Type"]
        == "VLAN"
    )


def _remote(number: int, via: str) -> dict[str, Any]:
    return {
        "Type": "RemoteSubnetRoute",
        "Settings": {"DestinationPrefix": f"10.{number}.0.0/24", "ProviderAddress": via},
    }


_ROUTES = st.builds(_remote, st.integers(0, 4), st.sampled_from("ab"))
_OTHERS = st.sampled_from(
    [
        {"Type": "HostRoute"},
        {"Type": "VSID", "Settings": {"IsolationId": 1}},
        {"Type": "VSID", "Settings": {"IsolationId": 2}},
    ]
)
_SOME = st.lists(st.one_of(_ROUTES, _OTHERS), max_size=8)


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    if one["Type"] == other["Type"] == "RemoteSubnetRoute":
        return bool(one["Settings"]["DestinationPrefix"] == other["Settings"]["DestinationPrefix"])
    return one == other


@given(_SOME, _SOME)
def test_a_policy_that_is_there_is_replaced_or_removed_where_it_stands(
    present: list[dict[str, Any]], given_: list[dict[str, Any]]
) -> None:
    """As if each were looked for from the front, which takes too long with thousands."""
    more, fewer = list(present), list(present)
    missing = False
    for policy in given_:
        at = next((at for at, other in enumerate(more) if _same(policy, other)), len(more))
        more[at : at + 1] = [policy]
        place = next((at for at, other in enumerate(fewer) if _same(policy, other)), None)
        missing = missing or place is None
        if place is not None:
            del fewer[place]
    assert policies.with_policies(present, given_) == more
    if missing:
        with pytest.raises(HnsError):
            policies.without_policies(present, given_)
    else:
        assert policies.without_policies(present, given_) == fewer
