"""The rules of the Linux proxy in a kernel, tested with real sockets."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from tests.proxy.nftables.lab import QUIET, Lab, needs_root
from tests.proxy.nftables.objects import endpoint_slice, proxier, service, synced_tracker

from transom.network.nft import NftTable
from transom.network.nft_text import nft_difference, nft_snapshot, render_nft_table

pytestmark = needs_root

VIP, EXTERNAL, BALANCER = "10.96.0.10", "198.51.100.7", "198.51.100.8"
HERE, ALSO, THERE = ("10.244.1.5", "linux-1"), ("10.244.1.6", "linux-1"), ("10.244.2.6", "linux-2")


class Running:
    """A lab with a proxy whose tables are in force."""

    def __init__(self) -> None:
        self.lab = Lab()
        self.tracker = synced_tracker()
        self.proxier = proxier(self.tracker, cluster_cidrs=("10.244.0.0/16",))
        self._applied: NftTable | None = None
        for name, address in (
            ("client", "10.244.1.4"),
            ("here", HERE[0]),
            ("also", ALSO[0]),
            ("there", THERE[0]),
        ):
            self.lab.pod(name, address)

    def put(self, *places: tuple[str, str], protocol: str = "TCP", **spec: Any) -> None:
        self.tracker.put_service(service(protocol=protocol, **spec))
        self.tracker.put_slice(endpoint_slice("web", *places, protocol=protocol))
        self.apply()

    def apply(self) -> None:
        self.proxier.sync()
        table = self.proxier.stack.tables["ip transom-proxy"]
        self.lab.load(nft_difference(self._applied, table))
        self._applied = nft_snapshot(table)
        while self.proxier.stale_udp:
            self.lab.node.run(
                f"conntrack -D {' '.join(self.proxier.stale_udp.popleft().arguments())}",
                check=False,
            )


@pytest.fixture
def running() -> Iterator[Running]:
    made = Running()
    yield made
    made.lab.close()


def test_cluster_address(running: Running) -> None:
    client = running.lab.pods["client"]
    running.put(HERE, THERE)
    answers = {client.ask(VIP, 80) for _ in range(30)}
    assert answers == {"here 10.244.1.4", "there 10.244.1.4"}, "a pod keeps its address"
    assert running.lab.node.ask(VIP, 80).split()[0] in ("here", "there")
    assert running.lab.outside.ask(VIP, 80).split()[1] == "10.244.1.1", "a stranger gets the node's"
    running.put(HERE)
    assert running.lab.pods["here"].ask(VIP, 80) == "here 10.244.1.1", (
        "a pod reaches itself through its service"
    )
    running.put()
    assert client.ask(VIP, 80) == "refused"
    assert running.lab.node.ask(VIP, 80) == "refused"


def test_datagrams_follow_the_endpoints(running: Running) -> None:
    client = running.lab.pods["client"]
    running.put(protocol="UDP")
    questions = client.datagrams()
    assert client.ask(VIP, 80, udp=questions) == "refused"
    running.put(HERE, protocol="UDP")
    assert client.ask(VIP, 80, udp=questions) == "here 10.244.1.4"
    running.put(THERE, protocol="UDP")
    assert client.ask(VIP, 80, udp=questions) == "there 10.244.1.4", (
        "the same socket must not be led to the old endpoint"
    )


def test_ways_from_outside(running: Running) -> None:
    outside, node = running.lab.outside, running.lab.node
    everything: dict[str, Any] = {
        "type": "LoadBalancer",
        "nodePort": 30080,
        "externalIPs": [EXTERNAL],
        "ingress": (BALANCER,),
    }
    running.put(HERE, THERE, **everything)
    for address, port in ((Lab.NODE_IP, 30080), (EXTERNAL, 80), (BALANCER, 80)):
        answers = {outside.ask(address, port) for _ in range(30)}
        assert {a.split()[0] for a in answers} == {"here", "there"}
        assert {a.split()[1] for a in answers} == {"10.244.1.1"}
    assert node.ask(Lab.NODE_IP, 30080).split()[0] in ("here", "there")
    assert node.ask("127.0.0.1", 30080).split()[0] in ("here", "there")
    running.put(**everything)
    for address, port in ((Lab.NODE_IP, 30080), (EXTERNAL, 80), (BALANCER, 80)):
        assert outside.ask(address, port) == "refused"


def test_local_external_traffic_keeps_the_client(running: Running) -> None:
    outside, client = running.lab.outside, running.lab.pods["client"]
    local: dict[str, Any] = {
        "type": "LoadBalancer",
        "nodePort": 30080,
        "ingress": (BALANCER,),
        "externalTrafficPolicy": "Local",
        "healthCheckNodePort": 31000,
    }
    running.put(HERE, THERE, **local)
    assert {outside.ask(BALANCER, 80) for _ in range(20)} == {f"here {Lab.CLIENT}"}
    assert outside.ask(Lab.NODE_IP, 30080, source=Lab.CLIENT) == f"here {Lab.CLIENT}"
    assert {client.ask(BALANCER, 80).split()[0] for _ in range(30)} == {"here", "there"}
    running.put(THERE, **local)
    assert outside.ask(BALANCER, 80, timeout=QUIET) == "silence"
    assert client.ask(BALANCER, 80) == "there 10.244.1.4"
    assert running.lab.node.ask(BALANCER, 80).split()[0] == "there"


def test_local_internal_traffic(running: Running) -> None:
    client = running.lab.pods["client"]
    running.put(HERE, THERE, internalTrafficPolicy="Local")
    assert {client.ask(VIP, 80) for _ in range(20)} == {"here 10.244.1.4"}
    running.put(THERE, internalTrafficPolicy="Local")
    assert client.ask(VIP, 80, timeout=QUIET) == "silence"


def test_affinity_and_its_end(running: Running) -> None:
    client, also = running.lab.pods["client"], running.lab.pods["also"]
    sticky: dict[str, Any] = {
        "sessionAffinity": "ClientIP",
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 600}},
    }
    running.put(HERE, ALSO, THERE, **sticky)
    first = client.ask(VIP, 80)
    assert {client.ask(VIP, 80) for _ in range(20)} == {first}
    running.put(HERE, ALSO, THERE, **sticky, externalIPs=[EXTERNAL])
    assert client.ask(VIP, 80) == first, "a change of the service keeps client affinity"
    assert also.ask(VIP, 80).split()[0] in ("here", "also", "there")
    listed = running.lab.node.run("nft list table ip transom-proxy")
    assert "10.244.1.4 timeout 10m" in listed
    stays = [
        place
        for name, place in (("here", HERE), ("also", ALSO), ("there", THERE))
        if name != first.split()[0]
    ]
    running.put(*stays, **sticky)
    assert client.ask(VIP, 80).split()[0] != first.split()[0], (
        "an endpoint that has left gets no connections"
    )


def test_source_ranges(running: Running) -> None:
    balanced: dict[str, Any] = {"type": "LoadBalancer", "nodePort": 30080, "ingress": (BALANCER,)}
    running.put(HERE, **balanced, loadBalancerSourceRanges=["203.0.113.0/24", "192.0.2.0/24"])
    assert running.lab.outside.ask(BALANCER, 80) == "here 10.244.1.1"
    running.put(HERE, **balanced, loadBalancerSourceRanges=["192.0.2.0/24"])
    assert running.lab.outside.ask(BALANCER, 80, timeout=QUIET) == "silence"
    assert running.lab.outside.ask(Lab.NODE_IP, 30080) == "here 10.244.1.1", (
        "a node port has no ranges"
    )


def test_a_server_on_the_node_is_reached_past_the_rules(running: Running) -> None:
    running.put(HERE)
    running.lab.node.serve(9000, socket.SOCK_STREAM)
    assert running.lab.pods["client"].ask(Lab.NODE_IP, 9000) == "node 10.244.1.4"


def test_the_kernel_takes_both_families_and_long_names(running: Running) -> None:
    name, six = "n" * 63, "2001:db8:1:2:3:4:5:6"
    long = service(
        name,
        "10.96.0.99",
        protocol="SCTP",
        externalIPs=[EXTERNAL, six],
        ingress=(BALANCER, "2001:db8::8"),
    )
    long["metadata"]["namespace"] = "m" * 63
    long["spec"] |= {
        "clusterIPs": ["10.96.0.99", "fd10::99"],
        "type": "LoadBalancer",
        "sessionAffinity": "ClientIP",
        "externalTrafficPolicy": "Local",
        "healthCheckNodePort": 31000,
        "internalTrafficPolicy": "Local",
        "loadBalancerSourceRanges": ["10.0.0.0/8", "10.1.0.0/16", "2001:db8::/32"],
    }
    long["spec"]["ports"][0]["nodePort"] = 30099
    running.tracker.put_service(long)
    for number, place in enumerate((HERE, (six, "linux-1"), ("fd00::1", "linux-2"))):
        item = endpoint_slice(name, place, protocol="SCTP")
        item["metadata"] |= {"namespace": "m" * 63, "name": f"slice-{number}"}
        running.tracker.put_slice(item)
    running.proxier.sync()
    for table in running.proxier.stack.tables.values():
        running.lab.load(render_nft_table(table))
    listed = running.lab.node.run("nft list ruleset")
    assert f"dnat to [{six}]:8080" in listed
    assert "dnat to 10.244.1.5:8080" in listed


def test_the_kernel_takes_a_thousand_services_and_a_change(running: Running) -> None:
    for number in range(1000):
        name = f"web-{number}"
        running.tracker.put_service(service(name, f"10.97.{number // 250}.{number % 250 + 1}"))
        places = ((f"10.245.{number % 250}.{n + 1}", "linux-2") for n in range(5))
        running.tracker.put_slice(endpoint_slice(name, *places))
    running.apply()
    running.tracker.put_slice(endpoint_slice("web-7", ("10.245.7.9", "linux-2")))
    running.apply()
    assert "dnat to 10.245.7.9:8080" in running.lab.node.run("nft list ruleset")
