"""Where the rules of the Linux proxy lead connections, feature by feature, and what a change
costs.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.proxy.nftables.evaluate import Firewall, Packet
from tests.proxy.nftables.objects import (
    CLIENT,
    NODE_IP,
    endpoint_slice,
    proxier,
    service,
    synced_tracker,
)

from transom.network.nft import NftTable
from transom.network.nft_text import nft_difference, nft_snapshot
from transom.proxy.nftables.proxier import NftablesProxier
from transom.proxy.nftables.stale import StaleFlow
from transom.proxy.tracker import ServiceTracker

VIP, EXTERNAL, BALANCER = "10.96.0.10", "198.51.100.7", "198.51.100.8"
HERE, THERE = ("10.244.1.5", "linux-1"), ("10.244.2.6", "linux-2")
POD = "10.244.1.9"
LOCAL = {NODE_IP, "10.244.1.1"}


def firewall(proxy: NftablesProxier, *, local: set[str] = LOCAL) -> Firewall:
    proxy.sync()
    return Firewall([t for key, t in proxy.stack.tables.items() if key.startswith("ip ")], local)


Places = tuple[tuple[str, str], ...]


def cluster(
    places: Places = (HERE, THERE), *, options: dict[str, Any] | None = None, **spec: Any
) -> Firewall:
    tracker = synced_tracker()
    tracker.put_service(service(**spec))
    tracker.put_slice(endpoint_slice("web", *places, protocol=spec.get("protocol", "TCP")))
    return firewall(proxier(tracker, **(options or {})))


BOTH = {"10.244.1.5:8080", "10.244.2.6:8080"}
ONLY_HERE = {"10.244.1.5:8080"}
LB = {"type": "LoadBalancer", "nodePort": 30080, "ingress": (BALANCER,), "externalIPs": [EXTERNAL]}
EXTERNAL_LOCAL = {**LB, "externalTrafficPolicy": "Local", "healthCheckNodePort": 31000}


@pytest.mark.parametrize(
    ("spec", "places", "packet", "from_here", "leads_to", "masqueraded"),
    [
        # Cluster address: pods keep their address, nodes and strangers do not.
        ({}, (HERE, THERE), Packet(POD, VIP), False, BOTH, False),
        ({}, (HERE, THERE), Packet(NODE_IP, VIP), True, BOTH, True),
        ({}, (HERE, THERE), Packet(CLIENT, VIP), False, BOTH, True),
        ({}, (HERE,), Packet(HERE[0], VIP), False, ONLY_HERE, True),  # to itself
        ({}, (HERE,), Packet(POD, VIP, 81), False, {f"{VIP}:81"}, False),
        ({}, (HERE,), Packet(POD, VIP, protocol="udp"), False, {f"{VIP}:80"}, False),
        ({}, (), Packet(POD, VIP), False, {"reject"}, False),
        ({}, (), Packet(NODE_IP, VIP), True, {"reject"}, False),
        ({"protocol": "UDP"}, (HERE,), Packet(POD, VIP, protocol="udp"), False, ONLY_HERE, False),
        ({"protocol": "SCTP"}, (HERE,), Packet(POD, VIP, protocol="sctp"), False, ONLY_HERE, False),
        # Node port, on every address of the node.
        (LB, (HERE, THERE), Packet(CLIENT, NODE_IP, 30080), False, BOTH, True),
        (LB, (HERE, THERE), Packet(POD, NODE_IP, 30080), False, BOTH, True),
        (LB, (HERE, THERE), Packet(POD, "10.244.1.1", 30080), False, BOTH, True),
        (LB, (HERE, THERE), Packet("127.0.0.1", "127.0.0.1", 30080), True, BOTH, True),
        (LB, (HERE,), Packet(CLIENT, "172.18.0.3", 30080), False, {"172.18.0.3:30080"}, False),
        (LB, (), Packet(CLIENT, NODE_IP, 30080), False, {"reject"}, False),
        # External address and load balancer.
        (LB, (HERE, THERE), Packet(CLIENT, EXTERNAL), False, BOTH, True),
        (LB, (HERE, THERE), Packet(NODE_IP, EXTERNAL), True, {f"{EXTERNAL}:80"}, False),
        (LB, (), Packet(CLIENT, EXTERNAL), False, {"reject"}, False),
        (LB, (HERE, THERE), Packet(CLIENT, BALANCER), False, BOTH, True),
        (LB, (HERE, THERE), Packet(NODE_IP, BALANCER), True, BOTH, True),
        (LB, (), Packet(CLIENT, BALANCER), False, {"reject"}, False),
        # externalTrafficPolicy: Local.
        (EXTERNAL_LOCAL, (HERE, THERE), Packet(CLIENT, NODE_IP, 30080), False, ONLY_HERE, False),
        (EXTERNAL_LOCAL, (HERE, THERE), Packet(CLIENT, BALANCER), False, ONLY_HERE, False),
        (EXTERNAL_LOCAL, (HERE, THERE), Packet(CLIENT, EXTERNAL), False, ONLY_HERE, False),
        (EXTERNAL_LOCAL, (THERE,), Packet(CLIENT, NODE_IP, 30080), False, {"drop"}, False),
        (EXTERNAL_LOCAL, (THERE,), Packet(CLIENT, BALANCER), False, {"drop"}, False),
        (EXTERNAL_LOCAL, (THERE,), Packet(POD, BALANCER), False, {"10.244.2.6:8080"}, False),
        (EXTERNAL_LOCAL, (THERE,), Packet(NODE_IP, BALANCER), True, {"10.244.2.6:8080"}, True),
        (EXTERNAL_LOCAL, (THERE,), Packet(POD, VIP), False, {"10.244.2.6:8080"}, False),
        (EXTERNAL_LOCAL, (), Packet(CLIENT, BALANCER), False, {"reject"}, False),
        (EXTERNAL_LOCAL, (), Packet(CLIENT, NODE_IP, 31000), False, {f"{NODE_IP}:31000"}, False),
        # internalTrafficPolicy: Local concerns the cluster address only.
        (
            {"internalTrafficPolicy": "Local"},
            (HERE, THERE),
            Packet(POD, VIP),
            False,
            ONLY_HERE,
            False,
        ),
        ({"internalTrafficPolicy": "Local"}, (THERE,), Packet(POD, VIP), False, {"drop"}, False),
        ({"internalTrafficPolicy": "Local"}, (), Packet(POD, VIP), False, {"reject"}, False),
        (
            {**LB, "internalTrafficPolicy": "Local"},
            (HERE, THERE),
            Packet(CLIENT, NODE_IP, 30080),
            False,
            BOTH,
            True,
        ),
        # Source ranges of a load balancer say nothing of other ways in.
        (
            {**LB, "loadBalancerSourceRanges": ["203.0.113.0/24"]},
            (HERE,),
            Packet(CLIENT, BALANCER),
            False,
            ONLY_HERE,
            True,
        ),
        (
            {**LB, "loadBalancerSourceRanges": [" 192.0.2.0/24"]},
            (HERE,),
            Packet(CLIENT, BALANCER),
            False,
            {"drop"},
            False,
        ),
        (
            {**LB, "loadBalancerSourceRanges": ["192.0.2.0/24"]},
            (HERE,),
            Packet(CLIENT, EXTERNAL),
            False,
            ONLY_HERE,
            True,
        ),
        (
            {**LB, "loadBalancerSourceRanges": ["192.0.2.0/24"]},
            (HERE,),
            Packet(CLIENT, NODE_IP, 30080),
            False,
            ONLY_HERE,
            True,
        ),
        (
            {**LB, "loadBalancerSourceRanges": ["172.18.0.0/16"]},
            (HERE,),
            Packet(BALANCER, BALANCER),
            True,
            ONLY_HERE,
            True,
        ),
        (
            {**LB, "loadBalancerSourceRanges": ["192.0.2.0/24"]},
            (HERE,),
            Packet(BALANCER, BALANCER),
            True,
            {"drop"},
            False,
        ),
    ],
)
def test_where_a_connection_is_led(
    spec: dict[str, Any],
    places: Places,
    packet: Packet,
    from_here: bool,
    leads_to: set[str],
    masqueraded: bool,
) -> None:
    wall = cluster(places, **spec)
    assert wall.places(packet, from_here=from_here) == leads_to
    result = wall.send(packet, from_here=from_here)
    assert result.masqueraded is masqueraded
    assert result.mark == 0, (
        "the mark must not leave the host, or an outer header would be masqueraded too"
    )


@pytest.mark.parametrize(
    ("options", "packet", "masqueraded"),
    [
        ({"masquerade_all": True}, Packet(POD, VIP), True),
        ({"cluster_cidrs": ()}, Packet(CLIENT, VIP), False),
        ({"cluster_cidrs": ("10.244.0.0/16", "fd00::/48")}, Packet(POD, VIP), False),
    ],
)
def test_settings_of_masquerading(
    options: dict[str, Any], packet: Packet, masqueraded: bool
) -> None:
    result = cluster(options=options).send(packet)
    assert (result.verdict, result.masqueraded) == ("accept", masqueraded)


def test_another_bit_marks() -> None:
    wall = cluster(options={"masquerade_bit": 15, "masquerade_all": True})
    assert wall.send(Packet(POD, VIP)).masqueraded
    (table,) = wall.tables
    assert "0x8000/0x8000" in str(table)


def test_node_ports_on_some_addresses_only() -> None:
    tracker = synced_tracker()
    tracker.put_service(service(type="NodePort", nodePort=30080))
    tracker.put_slice(endpoint_slice("web", HERE))
    proxy = proxier(tracker, node_port_addresses=("172.18.0.0/16",))
    wall = firewall(proxy, local={*LOCAL, "172.18.0.99"})
    assert wall.places(Packet(CLIENT, NODE_IP, 30080)) == ONLY_HERE
    assert wall.places(Packet(POD, "10.244.1.1", 30080)) == {"10.244.1.1:30080"}
    assert not proxy.dirty
    proxy.stack.add_address("eth0", "172.18.0.99/16")
    assert proxy.dirty
    assert (
        firewall(proxy, local=wall.local).places(Packet(CLIENT, "172.18.0.99", 30080)) == ONLY_HERE
    )


def test_a_client_with_affinity_comes_back_to_the_same_endpoint() -> None:
    config = {"clientIP": {"timeoutSeconds": 600}}
    wall = cluster(
        sessionAffinity="ClientIP", sessionAffinityConfig=config, nodePort=30080, type="NodePort"
    )
    wall.choice = 1
    first = wall.send(Packet(POD, VIP)).daddr
    assert first == "10.244.2.6"
    assert wall.places(Packet(POD, VIP)) == {"10.244.2.6:8080"}
    assert wall.places(Packet(POD, NODE_IP, 30080)) == {"10.244.2.6:8080"}, "by whichever way"
    wall.choice = 0
    assert wall.send(Packet("10.244.1.10", VIP)).daddr == "10.244.1.5"
    (table,) = wall.tables
    assert "seconds=600" in str(table)


def test_established_connections_and_invalid_packets_are_forwarded_or_not() -> None:
    wall = cluster()
    assert wall.send(Packet(POD, THERE[0], state="established")).verdict == "accept"
    assert wall.send(Packet(POD, THERE[0], state="invalid")).verdict == "drop"


def test_both_families_have_their_own_table() -> None:
    tracker = synced_tracker()
    both = service(externalIPs=[EXTERNAL, "2001:db8::7"])
    both["spec"]["clusterIPs"] = [VIP, "fd10::10"]
    tracker.put_service(both)
    tracker.put_slice(endpoint_slice("web", HERE))
    six = endpoint_slice("web", ("fd00::5", "linux-1"))
    six["metadata"]["name"] = "web-6"
    tracker.put_slice(six)
    proxy = proxier(tracker, cluster_cidrs=("10.244.0.0/16", "fd00::/48"))
    proxy.sync()
    wall = Firewall([proxy.stack.tables["ip6 transom-proxy"]], {"fd00:1::2"})
    assert wall.places(Packet("fd00::9", "fd10::10")) == {"fd00::5:8080"}
    assert wall.places(Packet("2001:db8::99", "2001:db8::7")) == {"fd00::5:8080"}
    assert firewall(proxy).places(Packet(POD, VIP)) == ONLY_HERE


def test_nothing_is_done_before_services_and_endpoints_are_known() -> None:
    tracker = ServiceTracker()
    tracker.put_service(service())
    proxy = proxier(tracker)
    assert not proxy.dirty
    proxy.sync()
    assert proxy.stack.tables == {}
    tracker.mark_synced("services")
    tracker.mark_synced("endpoints")
    assert proxy.dirty


def test_endpoints_that_are_not_ready_or_terminating_get_nothing() -> None:
    tracker = ServiceTracker(terminating=True)
    tracker.mark_synced("services")
    tracker.mark_synced("endpoints")
    tracker.put_service(service())
    item = endpoint_slice("web", HERE, THERE)
    item["endpoints"][1]["conditions"] = {"ready": False, "serving": True, "terminating": True}
    tracker.put_slice(item)
    assert firewall(proxier(tracker)).places(Packet(POD, VIP)) == ONLY_HERE


def test_two_services_at_one_external_address() -> None:
    tracker = synced_tracker()
    proxy = proxier(tracker)
    for name, cluster_ip, place in (("web", VIP, HERE), ("also", "10.96.0.11", THERE)):
        tracker.put_service(service(name, cluster_ip, externalIPs=[EXTERNAL]))
        tracker.put_slice(endpoint_slice(name, place))
    assert firewall(proxy).places(Packet(CLIENT, EXTERNAL)) == {"10.244.2.6:8080"}
    tracker.remove_service(service("also"))
    assert firewall(proxy).places(Packet(CLIENT, EXTERNAL)) == ONLY_HERE
    tracker.remove_service(service("web"))
    assert firewall(proxy).places(Packet(CLIENT, EXTERNAL)) == {f"{EXTERNAL}:80"}


def test_step_by_step_is_the_same_as_all_at_once() -> None:
    tracker = synced_tracker()
    proxy = proxier(tracker)
    steps = [
        lambda: tracker.put_service(service(**LB)),
        lambda: tracker.put_slice(endpoint_slice("web", HERE, THERE)),
        lambda: tracker.put_service(service(**EXTERNAL_LOCAL, sessionAffinity="ClientIP")),
        lambda: tracker.put_service(service("dns", "10.96.0.53", protocol="UDP", port=53)),
        lambda: tracker.put_slice(endpoint_slice("dns", THERE, protocol="UDP")),
        lambda: tracker.put_slice(endpoint_slice("web", THERE)),
        lambda: tracker.put_service(service(**LB, loadBalancerSourceRanges=["192.0.2.0/24"])),
        lambda: tracker.put_slice(endpoint_slice("dns", protocol="UDP")),
        lambda: tracker.remove_service(service("web")),
        lambda: tracker.remove_service(service("dns")),
    ]
    for step in steps:
        step()
        assert proxy.dirty
        proxy.sync()
        assert not proxy.dirty
        fresh = proxier(tracker)
        fresh.sync()
        assert proxy.stack.tables == fresh.stack.tables
    table = proxy.stack.tables["ip transom-proxy"]
    assert not any("/default/" in chain for chain in table.chains), "nothing is left behind"


def test_what_the_connection_tracker_should_forget() -> None:
    tracker = synced_tracker()
    proxy = proxier(tracker)

    def flows() -> set[StaleFlow]:
        proxy.sync()
        found = set(proxy.stale_udp)
        proxy.stale_udp.clear()
        return found

    dns = service(
        "dns",
        VIP,
        protocol="UDP",
        port=53,
        nodePort=30053,
        type="LoadBalancer",
        ingress=(BALANCER,),
    )
    tracker.put_service(dns)
    assert flows() == set()
    tracker.put_slice(endpoint_slice("dns", HERE, THERE, protocol="UDP"))
    assert flows() == {StaleFlow(VIP), StaleFlow(BALANCER), StaleFlow(port=30053)}
    tracker.put_slice(endpoint_slice("dns", HERE, protocol="UDP"))
    gone = THERE[0]
    assert flows() == {
        StaleFlow(VIP, endpoint=gone),
        StaleFlow(BALANCER, endpoint=gone),
        StaleFlow(port=30053, endpoint=gone),
    }
    tracker.remove_service(dns)
    assert flows() == {StaleFlow(VIP)}
    tracker.put_service(service())
    tracker.put_slice(endpoint_slice("web", HERE))
    assert flows() == set(), "connections of TCP end by themselves"
    assert StaleFlow("fd10::1", endpoint="fd00::5", ipv6=True).arguments() == [
        "-p",
        "udp",
        "--orig-dst",
        "fd10::1",
        "--dst-nat",
        "fd00::5",
        "-f",
        "ipv6",
    ]


def test_one_set_table_for_a_sync_and_a_small_difference() -> None:
    tracker = synced_tracker()
    proxy = proxier(tracker)
    for number in range(1000):
        name = f"web-{number}"
        tracker.put_service(service(name, f"10.96.{number // 250}.{number % 250 + 1}"))
        tracker.put_slice(
            endpoint_slice(name, *((f"10.244.{number % 200}.{n + 1}", "linux-2") for n in range(5)))
        )
    proxy.sync()
    recorded: list[NftTable] = []
    before = nft_snapshot(proxy.stack.tables["ip transom-proxy"])
    proxy.stack = SimpleNamespace(set_table=recorded.append, links={})  # type: ignore[assignment]
    tracker.put_slice(endpoint_slice("web-500", ("10.244.9.9", "linux-2")))
    proxy.sync()
    assert len(recorded) == 1
    assert len(nft_difference(before, recorded[0]).splitlines()) < 20


def node(name: str, zone: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone}}}


def hinted(*hints: dict[str, str]) -> dict[str, Any]:
    found = endpoint_slice("web", HERE, THERE)
    for endpoint, hint in zip(found["endpoints"], hints, strict=False):
        endpoint["hints"] = {kind: [{"name": name}] for kind, name in hint.items()}
    return found


ONLY_THERE = {"10.244.2.6:8080"}


@pytest.mark.parametrize(
    ("hints", "leads_to"),
    [
        (({"forZones": "b"}, {"forZones": "a"}), ONLY_THERE),
        (({"forZones": "b"}, {"forZones": "b"}), BOTH),  # none for this zone
        (({"forZones": "a"}, {}), BOTH),  # one has no hint
        (
            (
                {"forZones": "a", "forNodes": "linux-1"},
                {"forZones": "a", "forNodes": "linux-2"},
            ),
            ONLY_HERE,
        ),
        (
            ({"forZones": "b", "forNodes": "linux-2"}, {"forZones": "a", "forNodes": "linux-3"}),
            ONLY_THERE,
        ),
    ],
)
def test_hints_keep_connections_in_the_zone_or_on_the_node(
    hints: tuple[dict[str, str], ...], leads_to: set[str]
) -> None:
    tracker = synced_tracker()
    tracker.put_node(node("linux-1", "a"))
    tracker.put_service(service())
    tracker.put_slice(hinted(*hints))
    assert firewall(proxier(tracker)).places(Packet(POD, VIP)) == leads_to


def test_a_node_that_moves_to_another_zone_uses_other_endpoints() -> None:
    tracker = synced_tracker()
    tracker.put_node(node("linux-1", "a"))
    tracker.put_service(service())
    tracker.put_slice(hinted({"forZones": "a"}, {"forZones": "b"}))
    proxy = proxier(tracker)
    assert firewall(proxy).places(Packet(POD, VIP)) == ONLY_HERE
    assert tracker.put_node(node("linux-1", "b"))
    assert firewall(proxy).places(Packet(POD, VIP)) == ONLY_THERE
    assert not tracker.put_node(node("linux-1", "b"))
