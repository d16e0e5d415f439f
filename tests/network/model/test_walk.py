"""The path of packets in small clusters: what is reachable from where, and the addresses that
servers see.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.network.fabrics import OUTSIDE, Cluster, Mode, make_cluster, story

from transom.network.model import fast
from transom.network.model.conntrack import Conntrack, ConntrackTables, packet_flow
from transom.network.model.walk import walk_packet
from transom.network.nft import DROP, NftChain, NftHook, NftMatch, NftRule, NftTable
from transom.network.packets import Packet
from transom.network.stacks import NetworkStack

VIP = "10.96.0.20"
MODES: tuple[Mode, ...] = ("l2bridge", "overlay")
NODE_PORT = 30080


def peopled(mode: Mode = "l2bridge", **more: Any) -> Cluster:
    cluster = make_cluster(mode, **more)
    for name, node in (
        ("l1", "linux-1"),
        ("l2", "linux-1"),
        ("w1", "windows-1"),
        ("w2", "windows-1"),
        ("w3", "windows-2"),
    ):
        cluster.pod(name, node)
    return cluster


def nodes_serve_nothing_else(stack: NetworkStack, _address: str, port: int, _protocol: str) -> bool:
    return stack.role != "node" or port < 30000


@pytest.mark.windows("FLOW-01", "SUP-NET-019", "LNET-16", "SUP-NET-029")
@pytest.mark.parametrize("protocol", ["tcp", "udp"])
@pytest.mark.parametrize("mode", [*MODES, "transparent"])
def test_pods_reach_pods_with_their_own_addresses(mode: Mode, protocol: str) -> None:
    cluster = peopled(mode)
    for origin in ("l1", "w1", "w3"):
        for target in ("l2", "w2", "w3", "l1"):
            if origin != target:
                found = cluster.walk(origin, target, protocol=protocol)
                assert found.outcome == "delivered", story(found)
                assert found.packet is not None and found.packet.source == cluster.address(
                    origin
                ), story(found)
                assert found.stack.endswith("/" + target)


@pytest.mark.windows("FLOW-06", "SUP-NET-024", "NET-12", "SUP-NET-008", "NET-30")
@pytest.mark.parametrize("mode", [*MODES, "transparent", "l2tunnel", "nat"])
def test_pods_reach_the_outside_with_their_nodes_address(mode: Mode) -> None:
    cluster = peopled(mode)
    for origin in ("l1", "w1"):
        for to in (OUTSIDE, "8.8.8.8"):
            found = cluster.walk(origin, to)
            assert found.outcome == "delivered" and found.stack == "external", story(found)
            assert found.packet is not None and found.packet.source == cluster.ip(
                cluster.stack(origin).node
            )


@pytest.mark.windows("NET-11", "NET-12")
def test_only_the_nodes_mac_address_leaves_a_bridge() -> None:
    cluster = peopled()
    found = cluster.walk("w1", "w3")
    crossed = next(h for h in found.hops if h.device == "underlay")
    card = next(
        link for link in cluster.nodes["windows-1"].links.values() if link.kind == "ethernet"
    )
    assert crossed.packet.source_mac == card.mac
    assert crossed.packet.source == cluster.address("w1"), (
        "inside the ExceptionList the IP address stays"
    )


@pytest.mark.windows("NET-20", "NET-21", "SUP-NET-011")
def test_overlay_packets_have_an_outer_header() -> None:
    cluster = peopled("overlay")
    for origin, target in (("w1", "w3"), ("w1", "l1"), ("l1", "w1")):
        found = cluster.walk(origin, target)
        crossed = next(h for h in found.hops if h.device == "underlay")
        assert crossed.packet.outer is not None, story(found)
        there, here = cluster.stack(target).node, cluster.stack(origin).node
        assert (crossed.packet.outer.source, crossed.packet.outer.destination) == (
            cluster.ip(here),
            cluster.ip(there),
        )
        assert (crossed.packet.outer.vni, crossed.packet.outer.port) == (4096, 4789)


@pytest.mark.windows("NET-28", "NET-27", "SUP-NET-014")
def test_transparent_networks_tunnel_by_geneve() -> None:
    found = peopled("transparent").walk("w1", "w3")
    assert [h.device for h in found.hops].count("GENEVE") == 2, story(found)
    assert next(h for h in found.hops if h.device == "underlay").packet.outer is not None


@pytest.mark.windows("NET-30", "NET-35", "SUP-NET-015")
def test_ovn_translates_what_leaves_its_logical_networks() -> None:
    cluster = peopled("transparent")
    for to, protocol in ((OUTSIDE, "tcp"), (OUTSIDE, "icmp"), (cluster.ip("linux-1"), "tcp")):
        found = cluster.walk("w1", to, protocol=protocol)
        assert found.outcome == "delivered" and found.packet is not None, story(found)
        assert found.packet.source == cluster.ip("windows-1")
    for name in ("w3", "l1"):
        found = cluster.walk("w1", name)
        assert found.packet is not None and found.packet.source == cluster.address("w1")


@pytest.mark.windows("NET-16", "NET-17", "SUP-NET-010")
def test_l2tunnel_passes_the_virtualization_host_with_the_pods_address() -> None:
    cluster = peopled("l2tunnel")
    for target in ("w2", "w3"):
        found = cluster.walk("w1", target)
        assert found.outcome == "delivered" and "virtualization host" in [
            h.device for h in found.hops
        ], story(found)
        assert found.packet is not None and found.packet.source == cluster.address("w1")
    assert cluster.walk("windows-1", "w1").outcome == "delivered"


@pytest.mark.windows("NET-36", "NET-37", "NET-38", "WIN-NET-012", "SUP-NET-016")
def test_nat_networks_are_not_reached_from_other_machines() -> None:
    cluster = peopled("nat")
    assert (
        cluster.walk("w1", "w2").outcome == cluster.walk("windows-1", "w1").outcome == "delivered"
    )
    for origin, target in (("w1", "w3"), ("l1", "w1"), ("external", "w1")):
        assert cluster.walk(origin, target).outcome == "dropped"
    for changed in (
        cluster,
        peopled("nat", loopback_dsr=True),
    ):  # a rule for loopback alone leaves WinNAT in force
        for protocol in ("tcp", "icmp"):
            found = changed.walk("w1", OUTSIDE, protocol=protocol)
            assert found.outcome == "delivered" and found.packet is not None, story(found)
            assert found.packet.source == cluster.ip("windows-1")


@pytest.mark.windows("FLOW-08", "FLOW-09", "SUP-NET-026", "SUP-NET-027")
@pytest.mark.parametrize("mode", MODES)
def test_nodes_and_pods(mode: Mode) -> None:
    cluster = peopled(mode)
    for node in ("windows-1", "linux-1", "windows-2"):
        assert cluster.walk("w1", node).outcome == "delivered", node
    assert (
        cluster.walk("windows-1", "w1").outcome
        == cluster.walk("linux-1", "w3").outcome
        == "delivered"
    )
    assert (cluster.walk("windows-1", "w3").outcome == "delivered") is (mode == "l2bridge")


@pytest.mark.windows("CNI-03", "WIN-NET-006", "CNI-04", "WIN-NET-007")
def test_overlay_nodes_reach_their_own_pods_by_the_host_route() -> None:
    with_route, without = peopled("overlay"), peopled("overlay", host_route=False)
    assert with_route.walk("windows-1", "w1").outcome == "delivered"
    assert with_route.walk("windows-1", "w3").outcome == "dropped"
    assert without.walk("windows-1", "w1").outcome == "dropped"


@pytest.mark.windows("NET-23")
def test_the_underlay_cannot_address_overlay_pods() -> None:
    cluster = peopled("overlay")
    cluster.stack("external").replace_route(
        cluster.subnet("windows-1"), "eth0", cluster.ip("windows-1")
    )
    assert cluster.walk("external", "w1").outcome == "dropped"
    bridged = peopled()
    bridged.stack("external").replace_route(
        bridged.subnet("windows-1"), "eth0", bridged.ip("windows-1")
    )
    assert bridged.walk("external", "w1").outcome == "delivered"


@pytest.mark.windows("NET-15", "WIN-NET-017")
def test_bridges_need_routes_between_nodes() -> None:
    cluster = peopled(flannel_routes=False)
    assert cluster.walk("w1", "w2").outcome == "delivered"
    found = cluster.walk("w1", "w3")
    assert (found.outcome, found.reason) == ("dropped", "no-route"), story(found)


def test_a_node_that_does_not_forward_keeps_its_pods_in() -> None:
    cluster = peopled()
    cluster.nodes["windows-1"].set_forwarding(False)
    assert cluster.walk("w1", "w3").reason == "no-forwarding"
    assert cluster.walk("w1", OUTSIDE).outcome == "delivered", (
        "translated packets leave by the switch itself"
    )


@pytest.mark.windows("LNET-14", "LNET-15", "LNET-17", "WIN-NET-001", "SUP-NET-028", "TRB-73")
@pytest.mark.parametrize("mode", [*MODES, "l2tunnel"])
def test_ping(mode: Mode) -> None:
    cluster = peopled(mode)
    for target in ("w2", "w3"):
        assert cluster.walk("w1", target, protocol="icmp").outcome == "delivered"
    found = cluster.walk("w1", OUTSIDE, protocol="icmp")
    assert found.outcome == "dropped" and found.facts["untranslated"] == "icmp", story(found)
    assert cluster.walk("l1", OUTSIDE, protocol="icmp").outcome == "delivered"


@pytest.mark.windows("LNET-17", "WIN-NET-001")
def test_a_node_that_is_a_backend_is_still_outside_of_an_overlay() -> None:
    """kube-proxy makes a remote endpoint with its address; it is no reason for a tunnel."""
    cluster = peopled("overlay")
    agent = {
        "metadata": {"namespace": "default", "name": "agent"},
        "spec": {"nodeName": "linux-1", "hostNetwork": True},
        "status": {"podIP": cluster.ip("linux-1")},
    }
    cluster.objects["pods"].append(agent)
    cluster.service("host", VIP, ["agent"], port=80, target=10250)
    for target in ("linux-1", VIP):
        found = cluster.walk("w1", target, port=80)
        assert found.outcome == "delivered", story(found)
        assert not any(hop.packet.outer for hop in found.hops), story(found)
    assert cluster.walk("w1", "linux-1", protocol="icmp").outcome == "dropped"


@pytest.mark.windows("TRB-77", "TRB-78", "WIN-NET-018")
def test_outside_addresses_in_the_exception_list_never_answer() -> None:
    cluster = peopled(
        exceptions=("10.244.0.0/16", "10.96.0.0/16", "172.20.0.0/16", "203.0.113.0/24")
    )
    found = cluster.walk("w1", OUTSIDE)
    assert (found.outcome, found.reason, found.facts["exception"]) == (
        "dropped",
        "reply-lost",
        "203.0.113.0/24",
    ), story(found)
    assert cluster.walk("w1", "8.8.8.8").outcome == "delivered"


# ---- services ----


@pytest.mark.windows(
    "FLOW-03", "SVC-01", "SVC-04", "SVC-09", "SUP-SVC-001", "SUP-SVC-004", "SUP-NET-021"
)
@pytest.mark.parametrize("mode", [*MODES, "transparent"])
def test_pods_reach_services_of_both_systems(mode: Mode) -> None:
    cluster = peopled(mode)
    cluster.service("web", VIP, ["l2", "w2", "w3"], port=80, target=8080)
    for origin in ("l1", "w1"):
        met = set()
        for port in range(33000, 33060):
            found = cluster.walk(origin, VIP, source_port=port, record=False)
            assert (
                found.outcome == "delivered"
                and found.packet is not None
                and found.packet.destination_port == 8080
            )
            met.add(found.stack.split("/")[1])
        assert met == {"l2", "w2", "w3"}, origin


@pytest.mark.windows("LB-03", "SUP-SVC-009")
@pytest.mark.parametrize("mode", MODES)
def test_source_that_a_backend_sees(mode: Mode) -> None:
    plain, dsr = peopled(mode), peopled(mode, dsr=True)
    for cluster in (plain, dsr):
        cluster.service("near", VIP, ["w2"])
        cluster.service("far", "10.96.0.21", ["w3"])
    mine = plain.address("w1")
    node = plain.ip("windows-1") if mode == "l2bridge" else "10.244.2.254"

    def seen(cluster: Cluster, to: str) -> str:
        found = cluster.walk("w1", to)
        assert found.outcome == "delivered" and found.packet is not None, story(found)
        return found.packet.source

    assert (seen(plain, VIP), seen(plain, "10.96.0.21")) == (mine, node)
    assert (seen(dsr, VIP), seen(dsr, "10.96.0.21")) == (mine, mine)


@pytest.mark.windows("LNET-07", "WIN-NET-002", "TRB-100")
@pytest.mark.parametrize("mode", MODES)
def test_a_windows_node_reaches_no_service_address(mode: Mode) -> None:
    cluster = peopled(mode)
    cluster.service("web", VIP, ["w2", "l1"])
    found = cluster.walk("windows-1", VIP)
    assert (found.outcome, found.stack) == ("dropped", "external"), story(found)
    assert cluster.walk("linux-1", VIP).outcome == "delivered"


@pytest.mark.windows(
    "LNET-06", "WIN-NET-003", "SVC-03", "SVC-08", "TRB-82", "TRB-83", "SUP-SVC-003"
)
@pytest.mark.parametrize("mode", MODES)
def test_node_ports(mode: Mode) -> None:
    cluster = peopled(mode)
    cluster.service("web", VIP, ["l1", "w2", "w3"], kind="NodePort", node_port=NODE_PORT)
    for origin in ("external", "linux-1", "windows-2", "w1", "w3", "l2"):
        for port in range(33000, 33010):
            found = cluster.walk(
                origin, "windows-1", NODE_PORT, source_port=port, listening=nodes_serve_nothing_else
            )
            assert found.outcome == "delivered", f"{origin}: {story(found)}"
    own = cluster.walk("windows-1", "windows-1", NODE_PORT, listening=nodes_serve_nothing_else)
    assert (own.outcome, own.reason) == ("refused", "no-listener")
    assert (
        cluster.walk("linux-1", "linux-1", NODE_PORT, listening=nodes_serve_nothing_else).outcome
        == "delivered"
    )


@pytest.mark.windows(
    "LB-12", "LB-13", "WIN-SVC-012", "SUP-SVC-011", "SVC-05", "SVC-10", "SUP-SVC-005"
)
def test_local_traffic_policy_keeps_the_clients_address_and_forwards_nowhere() -> None:
    cluster = peopled(dsr=True)
    cluster.service(
        "web",
        VIP,
        ["w1", "w2"],
        kind="LoadBalancer",
        node_port=NODE_PORT,
        ingress="198.51.100.7",
        externalTrafficPolicy="Local",
        announced_by=cluster.ip("windows-1"),
    )
    outside = cluster.stack("external")
    for to, port in ((cluster.ip("windows-1"), NODE_PORT), ("198.51.100.7", 80)):
        packet = Packet(OUTSIDE, to, "tcp", 40000, port)
        found = walk_packet(cluster.world, packet, outside, record=True)
        assert found.outcome == "delivered" and found.packet is not None, story(found)
        assert found.packet.source == OUTSIDE
    elsewhere = cluster.walk("external", "windows-2", NODE_PORT, listening=nodes_serve_nothing_else)
    assert elsewhere.outcome == "refused"


@pytest.mark.windows("LB-06", "LB-07", "SUP-SVC-010")
def test_preserve_destination_shows_the_services_address_to_the_backend() -> None:
    cluster = peopled(dsr=True, build=18362)
    cluster.service(
        "web",
        VIP,
        ["w1"],
        kind="LoadBalancer",
        node_port=NODE_PORT,
        ingress="198.51.100.7",
        annotations={"preserve-destination": "true"},
        announced_by=cluster.ip("windows-1"),
    )
    found = cluster.walk("external", "198.51.100.7")
    assert found.outcome == "delivered" and found.packet is not None, story(found)
    assert found.packet.destination == "198.51.100.7"
    assert found.facts["socket"][0] == cluster.address("w1")


@pytest.mark.windows("LB-01", "LB-02", "WIN-SVC-002", "SUP-SVC-008")
@pytest.mark.parametrize(("build", "sticky"), [(17763, False), (20348, True)])
def test_session_affinity_by_build(build: int, sticky: bool) -> None:
    cluster = peopled(build=build)
    cluster.service("web", VIP, ["l1", "l2", "w2", "w3"], sessionAffinity="ClientIP")
    met = {
        cluster.walk("w1", VIP, source_port=port, record=False).stack
        for port in range(33000, 33040)
    }
    assert (len(met) == 1) is sticky


@pytest.mark.windows("LNET-08", "WIN-SVC-001")
def test_64_backends_and_65() -> None:
    cluster = make_cluster()
    names = [f"p{number}" for number in range(65)]
    for number, name in enumerate(names):
        cluster.pod(name, ("windows-1", "windows-2", "linux-1")[number % 3])
    cluster.service("web", VIP, names[:64])
    assert cluster.walk("p0", VIP).outcome == "delivered"
    cluster.endpoints("web", names)
    found = cluster.walk("p0", VIP)
    assert found.outcome == "dropped" and "balancer" not in found.facts
    assert cluster.walk("p2", VIP).outcome == "delivered", "a Linux pod"
    cluster.endpoints("web", names[1:])
    assert cluster.walk("p0", VIP).outcome == "delivered"


def test_a_pod_that_left_the_slice_gets_no_connection() -> None:
    cluster = peopled()
    cluster.service("web", VIP, ["l2", "w2", "w3"])
    cluster.walk("w1", VIP)
    cluster.endpoints("web", ["w3"])
    for origin in ("w1", "l1"):
        met = {
            cluster.walk(origin, VIP, source_port=port, record=False).stack
            for port in range(33000, 33060)
        }
        assert met == {"windows-2/w3"}


@pytest.mark.parametrize(
    ("dsr", "loopback", "outcome"),
    [(False, False, "delivered"), (True, False, "dropped"), (True, True, "delivered")],
)
def test_a_pod_that_is_its_own_backend(dsr: bool, loopback: bool, outcome: str) -> None:
    cluster = peopled(dsr=dsr, loopback_dsr=loopback)
    cluster.service("web", VIP, ["w1"])
    cluster.service("lin", "10.96.0.21", ["l1"])
    assert cluster.walk("w1", VIP).outcome == outcome
    assert cluster.walk("l1", "10.96.0.21").outcome == "delivered"


def test_a_service_without_endpoints_is_refused_on_linux_and_lost_on_windows() -> None:
    cluster = peopled()
    cluster.service("web", VIP, [])
    assert cluster.walk("l1", VIP).outcome == "refused"
    assert cluster.walk("w1", VIP).outcome == "dropped"


def test_a_refusal_has_to_find_back() -> None:
    """A Windows pod asks a Linux node, which knows of no way to pods: neither an answer nor a
    refusal arrives.
    """
    for routes, outcome in ((True, "refused"), (False, "dropped")):
        cluster = peopled(flannel_routes=routes)
        cluster.service("empty", VIP, [], kind="NodePort", node_port=30080)
        found = cluster.walk("w1", cluster.ip("linux-1"), 30080)
        assert (found.outcome, found.reason) == (outcome, "rejected" if routes else "reply-lost"), (
            story(found)
        )


# ---- rules, ends, laws ----


def block(direction: str, **more: Any) -> dict[str, Any]:
    return {
        "Type": "ACL",
        "Settings": {"Action": "Block", "Direction": direction, "Priority": 2000, **more},
    }


@pytest.mark.windows("NET-08", "SUP-NET-004")
def test_access_rules_are_stateful() -> None:
    cluster = make_cluster()
    cluster.pod("w1", "windows-1", policies=[block("In")])
    cluster.pod("w2", "windows-1", policies=[block("Out", RemoteAddresses="10.244.3.0/24")])
    cluster.pod("w3", "windows-2")
    assert cluster.walk("w1", "w3").outcome == "delivered", "answers to what it asked may come in"
    assert cluster.walk("w3", "w1").reason == "policy"
    assert cluster.walk("w3", "w2").outcome == "delivered", "answers may go out"
    assert cluster.walk("w2", "w3").reason == "policy"
    cluster.service("web", VIP, ["w3"])
    assert cluster.walk("w2", VIP).reason == "policy", "rules see the backend, not the service"


def test_firewall_of_a_linux_node_sees_what_is_bridged() -> None:
    cluster = peopled()
    rule = NftRule((DROP,), (NftMatch("daddr", (cluster.address("l2"),)),), "blocked")
    cluster.nodes["linux-1"].set_table(
        NftTable("ip", "t", {"f": NftChain([rule], NftHook("filter", "forward", 0))})
    )
    found = cluster.walk("l1", "l2")
    assert (found.outcome, found.reason, found.explanation) == ("dropped", "policy", "blocked")


def test_paths_that_do_not_arrive() -> None:
    cluster = peopled()
    unserved = cluster.walk("w1", "w2", 81, listening=lambda *_: False)
    assert (unserved.outcome, unserved.reason) == ("refused", "no-listener")
    assert cluster.walk("w1", "10.244.2.200").outcome == "dropped"
    gone = cluster.stack("w2")
    address = cluster.address("w2")
    cluster.fabric.remove(gone.name)
    leaked = cluster.walk("w1", address)
    assert (leaked.outcome, leaked.reason) == ("dropped", "no-pod"), "its HNS endpoint has leaked"
    assert cluster.walk("external", "w1").outcome == "dropped"


def test_every_node_is_looked_at_before_it_is_read() -> None:
    cluster = peopled()
    looked: list[str] = []
    cluster.fabric.before_look.append(looked.append)
    cluster.walk("w1", "w3")
    assert sorted(looked) == ["windows-1", "windows-2"]


@pytest.mark.parametrize("mode", ["l2bridge", "overlay", "l2tunnel", "transparent", "nat"])
def test_walks_are_the_same_every_time(mode: Mode) -> None:
    def recorded() -> list[str]:
        cluster = peopled(mode)
        cluster.service("web", VIP, ["l1", "w2", "w3"], kind="NodePort", node_port=NODE_PORT)
        places = ["l1", "w1", "w3", "linux-1", "windows-1", "external"]
        targets = [*((place, 80) for place in places), (VIP, 80), ("windows-2", NODE_PORT)]
        return [story(cluster.walk(origin, to, port)) for origin in places for to, port in targets]

    assert recorded() == recorded()


@pytest.mark.parametrize("mode", ["l2bridge", "overlay", "l2tunnel", "nat"])
def test_the_short_way_says_what_the_long_way_says(mode: Mode) -> None:
    cluster = peopled(mode)
    cluster.service("web", VIP, ["l1", "w2", "w3"], kind="NodePort", node_port=NODE_PORT)
    taken = 0
    for origin in ("linux-1", "windows-1", "windows-2", "w1", "external"):
        for target in ("l1", "l2", "w1", "w3", "windows-1"):
            for received in (True, False):
                stack = cluster.stack(origin)
                packet = Packet(cluster.address(origin), cluster.address(target), "tcp", 40000, 80)
                short = fast.walk_nearby(
                    cluster.world, stack, packet, lambda *_, received=received: received
                )
                long = walk_packet(
                    cluster.world, packet, stack, listening=lambda *_, received=received: received
                )
                if short is not None:
                    taken += 1
                    assert (
                        short.outcome,
                        short.stack,
                        short.reason,
                        short.packet,
                        short.facts["socket"],
                    ) == (long.outcome, long.stack, long.reason, long.packet, long.facts["socket"])
    assert taken or mode != "l2bridge"


addresses = st.integers(1, 20).map(lambda n: f"10.0.0.{n}")
ports = st.integers(1, 50)


@given(
    addresses, ports, addresses, ports, addresses, ports, addresses, st.booleans(), st.booleans()
)
def test_translation_is_reversed(
    client: str,
    client_port: int,
    requested: str,
    asked_port: int,
    server: str,
    server_port: int,
    source: str,
    dnat: bool,
    snat: bool,
) -> None:
    tracked = Conntrack()
    sent = Packet(client, requested, "tcp", client_port, asked_port)
    entry = tracked.start(sent)
    if dnat:
        tracked.translate_destination(entry, server, server_port)
    if snat:
        tracked.translate_source(entry, source)
    arrived = entry.with_source(entry.with_destination(sent, False), False)
    answer = Packet(
        arrived.destination, arrived.source, "tcp", arrived.destination_port, arrived.source_port
    )
    if packet_flow(answer) == packet_flow(sent):
        return  # a packet to oneself is its own answer
    found = tracked.find(answer)
    assert found is not None
    back = found[0].with_source(found[0].with_destination(answer, found[1]), found[1])
    assert packet_flow(back) == ("tcp", requested, asked_port, client, client_port)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(["l2bridge", "overlay"]),
    st.booleans(),
    st.integers(1, 2),
    st.integers(1, 2),
    st.lists(
        st.sampled_from(["linux-1", "windows-1", "windows-2", "linux-2"]), min_size=2, max_size=6
    ),
    st.integers(0, 99),
)
def test_laws_of_random_clusters(
    mode: Mode, dsr: bool, linux: int, windows: int, homes: list[str], seed: int
) -> None:
    """Pods reach each other and every service; later packets of a connection go where its first
    went.
    """
    cluster = make_cluster(mode, linux, windows, dsr=dsr, seed=seed, loopback_dsr=True)
    names = [f"p{n}" for n, home in enumerate(homes) if home in cluster.nodes]
    for name, home in zip(names, (h for h in homes if h in cluster.nodes), strict=True):
        cluster.pod(name, home)
    if len(names) < 2:
        return
    rng = random.Random(seed)
    cluster.service(
        "web",
        VIP,
        rng.sample(names, rng.randint(1, len(names))),
        kind="NodePort",
        node_port=NODE_PORT,
    )
    for origin in names:
        for target, port in [
            *((n, 80) for n in names if n != origin),
            (VIP, 80),
            *((n, NODE_PORT) for n in cluster.nodes),
        ]:
            same: dict[str, Any] = {
                "listening": nodes_serve_nothing_else,
                "tracks": ConntrackTables(),
                "source_port": rng.randint(33000, 60000),
            }
            first = cluster.walk(origin, target, port, **same)
            assert first.outcome == "delivered", f"{origin} {target}:{port}\n{story(first)}"
            again = cluster.walk(origin, target, port, **same)
            assert (again.stack, again.packet and packet_flow(again.packet)) == (
                first.stack,
                first.packet and packet_flow(first.packet),
            )
