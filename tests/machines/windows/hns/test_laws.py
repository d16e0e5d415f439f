"""Invariants of the host networking service after any sequence of calls."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.machines.windows.hns.service import NODE, balancer, endpoint, network, service

from transom.machines.windows.hns import HnsError, HostNetworkService, v1
from transom.machines.windows.hns.balancers import load_balancer_keys
from transom.machines.windows.hns.rest import hns_view

_PREFIX = st.sampled_from(("10.0.0.0/8", "10.244.1.0/24", "192.168.0.0/16", "10.1.2.3"))
_PORT = st.integers(1, 65535)


def _settings(**fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Any of the fields, but those whose strategy is a pair (it, True) always."""
    always = {name: each[0] for name, each in fields.items() if isinstance(each, tuple)}
    return st.fixed_dictionaries(
        always, optional={n: e for n, e in fields.items() if n not in always}
    )


def _policy(
    kind: str, some: st.SearchStrategy[dict[str, Any]]
) -> st.SearchStrategy[dict[str, Any]]:
    return some.map(lambda settings: {"Type": kind, "Settings": settings})


POLICY = st.one_of(
    _policy(
        "OutBoundNAT", _settings(Exceptions=st.lists(_PREFIX, min_size=1), VirtualIP=st.just(NODE))
    ),
    _policy(
        "SDNRoute",
        _settings(
            DestinationPrefix=(_PREFIX, True),
            NeedEncap=(st.just(True), True),
            NextHop=st.just(NODE),
        ),
    ),
    _policy("ProviderAddress", _settings(ProviderAddress=(st.just(NODE), True))),
    _policy(
        "PortMapping",
        _settings(
            Protocol=(st.sampled_from((6, 17, 132)), True),
            InternalPort=(_PORT, True),
            ExternalPort=(_PORT, True),
            VIP=st.just(NODE),
        ),
    ),
    _policy(
        "ACL",
        _settings(
            Action=(st.sampled_from(("Allow", "Block")), True),
            Direction=(st.sampled_from(("In", "Out")), True),
            Protocols=st.sampled_from(("6", "17", "6,17")),
            RemotePorts=st.just("80,443"),
            Priority=_PORT,
        ),
    ),
    _policy("QOS", _settings(MaximumOutgoingBandwidthInBytes=(st.integers(1, 1 << 40), True))),
    _policy("EncapOverhead", _settings(Overhead=(st.integers(1, 65535), True))),
    _policy(
        "L4Proxy",
        _settings(
            IP=st.just(NODE), Exceptions=st.lists(_PREFIX, min_size=1), OutboundNAT=st.booleans()
        ),
    ),
)


@given(
    found=st.lists(POLICY, max_size=5, unique_by=lambda p: p["Type"]),
    name=st.text(st.characters(codec="ascii", categories=("Ll", "Nd")), min_size=1),
    gateway=st.booleans(),
    servers=st.lists(st.sampled_from(("10.96.0.10", "8.8.8.8")), max_size=2, unique=True),
    remote=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_an_endpoint_made_of_its_v1_view_is_the_same(
    found: list[dict[str, Any]], name: str, gateway: bool, servers: list[str], remote: bool
) -> None:
    hns = service(20348)
    net = hns.create("network", network())["ID"]
    wanted = endpoint(
        net,
        "10.244.1.7",
        Name=name,
        Policies=found,
        Flags=int(remote),
        MacAddress="02-11-0a-f4-02-05",
    )
    if gateway:
        wanted["Routes"] = [{"NextHop": "10.244.1.2", "DestinationPrefix": "0.0.0.0/0"}]
    if servers and not remote:
        wanted["Dns"] = {"ServerList": servers, "Search": ["svc.cluster.local"]}
    obj = hns.create("endpoint", wanted)
    shown = hns_view(hns, "endpoint", obj["ID"])
    hns.delete("endpoint", obj["ID"])
    again = hns.endpoints[hns.call("POST", "/endpoints/", shown)["Output"]["ID"]]

    def sorted_policies(one: dict[str, Any]) -> dict[str, Any]:
        return {**one, "Policies": sorted(one.get("Policies", ()), key=lambda p: p["Type"])}

    assert sorted_policies(again) == sorted_policies(obj)


@given(
    kind=st.sampled_from(("L2Bridge", "Overlay", "NAT")),
    vsid=st.integers(4096, 65535),
    flags=st.sampled_from((0, 8)),
    servers=st.lists(st.sampled_from(("10.96.0.10", "8.8.8.8")), max_size=2, unique=True),
)
@settings(max_examples=30, deadline=None)
def test_a_network_made_of_its_v1_view_is_the_same(
    kind: str, vsid: int, flags: int, servers: list[str]
) -> None:
    hns = service(20348)
    wanted = network("n", kind, Flags=flags)
    wanted["Ipams"][0]["Subnets"][0]["Policies"] = [
        {"Type": "VSID", "Settings": {"IsolationId": vsid}}
    ]
    if servers:
        wanted["Dns"] = {"ServerList": servers}
    obj = hns.create("network", wanted)
    shown = hns_view(hns, "network", obj["ID"])
    hns.delete("network", obj["ID"])
    made, _ = v1.network_settings(shown)
    again = hns.create("network", made)
    assert {**again, "Health": {}} == {**obj, "Health": {}}, (
        "except for the switch, which is a new one"
    )


ADDRESSES = [f"10.244.1.{n}" for n in range(9)]
STEP = st.one_of(
    st.tuples(st.just("endpoint"), st.sampled_from(ADDRESSES), st.booleans()),
    st.tuples(st.just("assigned"), st.just(""), st.just(False)),
    st.tuples(
        st.just("balancer"), st.sampled_from(("10.96.0.1", "10.96.0.2", "")), st.integers(0, 7)
    ),
    st.tuples(st.just("delete"), st.integers(0, 99), st.booleans()),
    st.tuples(st.just("space"), st.integers(0, 99), st.just(False)),
    st.tuples(st.just("reboot"), st.just(0), st.just(False)),
)


def _play(hns: HostNetworkService, net: str, step: tuple[Any, ...]) -> None:
    what, which, more = step
    ids = list(hns.endpoints)
    match what:
        case "endpoint":
            hns.create("endpoint", endpoint(net, which, Flags=int(more)))
        case "assigned":
            hns.create("endpoint", endpoint(net))
        case "balancer":
            hns.create("loadbalancer", balancer(ids[more : more + 3], which))
        case "delete":
            table, kind = (
                (hns.loadbalancers, "loadbalancer") if more else (hns.endpoints, "endpoint")
            )
            if table:
                hns.delete(kind, list(table)[which % len(table)])
        case "space":
            if ids:
                hns.add_to_namespace(hns.create("namespace", {})["ID"], ids[which % len(ids)])
        case _:
            hns.reboot()


@given(st.lists(STEP, max_size=40))
@settings(max_examples=150, deadline=None)
def test_indices_agree_with_a_scan(steps: list[tuple[Any, ...]]) -> None:
    hns = service()
    net = hns.create("network", network())["ID"]
    for step in steps:
        try:
            _play(hns, net, step)
        except HnsError as refusal:
            assert refusal.text
    store = hns.store
    scan = {
        a["IpAddress"]: key for key, obj in hns.endpoints.items() for a in obj["IpConfigurations"]
    }
    assert store.network_records[net].by_ip == scan
    assert (
        store.network_records[net].endpoints.keys()
        == hns.endpoints.keys()
        == store.endpoint_records.keys()
    )
    assert store.balancer_of == {
        each: key for key, obj in hns.loadbalancers.items() for each in load_balancer_keys(obj)
    }
    assert {(e, b) for e, users in store.users.items() for b in users} == {
        (e, key) for key, obj in hns.loadbalancers.items() for e in obj["HostComputeEndpoints"]
    }
    assert {
        key for ids in store.names_of["endpoint"].values() for key in ids
    } == hns.endpoints.keys()
    inside = {
        (r["Data"]["ID"], key)
        for key, obj in hns.namespaces.items()
        for r in obj.get("Resources", ())
    }
    assert inside == {
        (k, o["HostComputeNamespace"])
        for k, o in hns.endpoints.items()
        if "HostComputeNamespace" in o
    }
    everything = [*hns.networks, *hns.endpoints, *hns.loadbalancers, *hns.namespaces]
    assert len(set(everything)) == len(everything)
    macs = [obj["MacAddress"] for obj in hns.endpoints.values() if "MacAddress" in obj]
    assert len(set(macs)) == len(macs)
