"""OVN on transparent networks: load balancers of logical switches and gateway routers, management
ports, GENEVE tunnels with the key of the logical switch.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from transom.machines.windows.hns import Adapter, HostNetworkService
from transom.network import winhost
from transom.network.cni.windows import setup
from transom.network.model.packet_trip import NetworkState
from transom.network.model.walk import walk_packet
from transom.network.ovn.database import GENEVE_PORT, MTU, OvnDatabase, OvnVip, ovn_mac
from transom.network.packets import Packet, Walk
from transom.network.stacks import Fabric, NetworkLink
from transom.proxy.ovn import OvnServices
from transom.proxy.tracker import ServiceTracker
from transom.windows.builds import BUILDS

PODS, SERVICES, NODES = "10.244.0.0/16", "10.96.0.0/16", "172.20.0.0/16"
VIP = "10.96.0.7"


class Cluster:
    """Two Windows nodes with one pod each (.3), and a Linux node whose tunnel has its range."""

    def __init__(self) -> None:
        self.fabric = Fabric(NODES)
        self.database = OvnDatabase(self.fabric)
        outside = self.fabric.add("external", "external", "linux")
        outside.add_link(NetworkLink("eth0", "ethernet", mac="02:00:00:00:00:01"))
        outside.add_address("eth0", "172.20.0.1/16")
        outside.add_address("eth0", "203.0.113.10/32")
        for number in (2, 3):
            self._windows(number)
        self._linux()
        self.world = NetworkState(self.fabric, lambda: 0.0, random.Random(1))

    def _windows(self, number: int) -> None:
        name, address, subnet = f"w{number}", f"172.20.0.{number}", f"10.244.{number}.0/24"
        adapter = Adapter("Ethernet", f"00-15-5D-00-00-0{number}", f"{address}/16", "172.20.0.1")
        hns = HostNetworkService(BUILDS[17763], [adapter], name)
        stack = self.fabric.add(name, "node", "windows", hns=hns)
        winhost.bind_windows_host(stack, hns)
        network = setup.make_transparent_network(hns, "external", subnet)
        switch = self.database.put_switch(name, subnet, address, windows=True)
        stack.ovn = self.database
        stack.add_link(
            NetworkLink(
                switch.management_port,
                "vnic",
                mac=ovn_mac(switch.management),
                mtu=MTU,
                logical=True,
            )
        )
        stack.add_address(switch.management_port, f"{switch.management}/24")
        for prefix in (PODS, SERVICES):
            stack.replace_route(prefix, switch.management_port, switch.gateway)
        stack.set_forwarding(True)
        pod = f"10.244.{number}.3"
        endpoint = hns.create(
            "endpoint",
            {
                "Name": f"default_p{number}",
                "HostComputeNetwork": network["ID"],
                "IpConfigurations": [{"IpAddress": pod, "PrefixLength": 24}],
            },
        )
        sandbox = self.fabric.add(f"{name}/p", "sandbox", "windows", node=name, sandbox="p")
        sandbox.add_link(NetworkLink("Ethernet", "vnic", mac=ovn_mac(pod), endpoint=endpoint["ID"]))
        sandbox.add_address("Ethernet", f"{pod}/24")
        sandbox.replace_route("0.0.0.0/0", "Ethernet", switch.gateway)
        self.database.put_pod(name, f"default_p{number}", pod)

    def _linux(self) -> None:
        stack = self.fabric.add("l4", "node", "linux")
        stack.add_link(NetworkLink("eth0", "ethernet", mac="02:00:00:00:00:04"))
        stack.add_address("eth0", "172.20.0.4/16")
        stack.replace_route("0.0.0.0/0", "eth0", "172.20.0.1")
        self.database.put_switch("l4", "10.244.4.0/24", "172.20.0.4", windows=False)
        stack.ovn = self.database
        tunnel = NetworkLink(
            "genev_sys_6081", "geneve", mtu=MTU, port=GENEVE_PORT, local="172.20.0.4"
        )
        stack.add_link(tunnel)
        stack.add_address(tunnel.name, "10.244.4.0/32")
        stack.replace_route(PODS, tunnel.name)

    def send(self, origin: str, to: str, port: int = 80, source: str = "") -> Walk:
        packet = Packet(source, to, "tcp", 40000, port)
        return walk_packet(self.world, packet, self.fabric.stacks[origin], record=True)


def hops(found: Walk) -> list[str]:
    return [hop.device for hop in found.hops]


def test_a_pod_reaches_a_service_by_the_load_balancer_of_its_logical_switch() -> None:
    cluster = Cluster()
    cluster.database.cluster_vips["tcp", VIP, 80] = OvnVip("default/a", (("10.244.3.3", 8080),))
    found = cluster.send("w2/p", VIP)
    assert found.outcome == "delivered" and found.packet is not None
    assert (found.packet.source, found.packet.destination_port) == ("10.244.2.3", 8080)
    assert hops(found).count("OVN load balancer") == 1
    [wrapped] = {hop.packet.outer for hop in found.hops if hop.packet.outer is not None}
    assert wrapped.port == 6081 and wrapped.vni == cluster.database.switches["w3"].key


def test_more_than_64_backends_work() -> None:
    cluster = Cluster()
    backends = tuple([("10.244.3.3", 80 + number) for number in range(200)])
    cluster.database.cluster_vips["tcp", VIP, 80] = OvnVip("default/a", backends)
    assert cluster.send("w2/p", VIP).outcome == "delivered"


def test_a_node_reaches_services_and_pods_by_its_management_port() -> None:
    cluster = Cluster()
    cluster.database.cluster_vips["tcp", VIP, 80] = OvnVip("default/a", (("10.244.3.3", 80),))
    for to in (VIP, "10.244.3.3", "10.244.2.3"):
        found = cluster.send("w2", to)
        assert found.outcome == "delivered" and found.packet is not None, to
        assert found.packet.source == cluster.database.switches["w2"].management


def test_a_service_without_endpoints_is_refused() -> None:
    cluster = Cluster()
    cluster.database.cluster_vips["tcp", VIP, 80] = OvnVip("default/a", ())
    for origin in ("w2/p", "w2"):
        found = cluster.send(origin, VIP)
        assert (found.outcome, found.reason) == ("refused", "rejected")


def test_a_pod_that_is_its_own_backend_sees_the_address_of_the_service() -> None:
    cluster = Cluster()
    cluster.database.cluster_vips["tcp", VIP, 80] = OvnVip("default/a", (("10.244.2.3", 80),))
    found = cluster.send("w2/p", VIP)
    assert found.outcome == "delivered" and found.packet is not None
    assert found.packet.source == VIP


@pytest.mark.parametrize(("origin", "seen"), [("external", "172.20.0.2"), ("w3", "172.20.0.2")])
def test_the_gateway_router_serves_node_ports_with_the_nodes_address(
    origin: str, seen: str
) -> None:
    cluster = Cluster()
    cluster.database.node_ports["tcp", 30080] = OvnVip("default/a", (("10.244.3.3", 80),))
    found = cluster.send(origin, "172.20.0.2", 30080)
    assert found.outcome == "delivered" and found.packet is not None
    assert found.packet.source == seen
    # The node's own packets do not pass the gateway router.
    own = cluster.send("w2", "172.20.0.2", 30080)
    assert own.stack == "w2" and "OVN load balancer" not in hops(own)


def test_linux_nodes_are_reached_by_tunnels_too() -> None:
    cluster = Cluster()
    found = cluster.send("l4", "10.244.2.3")
    assert found.outcome == "delivered" and found.packet is not None
    assert found.packet.source == "10.244.4.0"
    assert "GENEVE genev_sys_6081" in hops(found) and "GENEVE" in hops(found)


def test_an_address_that_no_logical_port_has_is_dropped() -> None:
    cluster = Cluster()
    found = cluster.send("w2/p", "10.244.2.99")
    assert (found.outcome, found.reason) == ("dropped", "no-port")
    assert cluster.database.switch_of("10.244.9.1") is None


def test_no_tunnel_leads_to_a_node_that_is_gone() -> None:
    cluster = Cluster()
    received: list[bool] = []
    cluster.database.listeners.append(lambda: received.append(True))
    before = cluster.database.switches["w3"].key
    cluster.database.remove_switch("w3")
    assert received and cluster.send("w2/p", "10.244.3.3").outcome == "dropped"
    again = cluster.database.put_switch("w3", "10.244.3.0/24", "172.20.0.3", windows=True)
    assert again.key != before
    assert cluster.send("w2/p", "10.244.3.3").outcome == "delivered"


def test_logical_ports_go_with_their_pods() -> None:
    cluster = Cluster()
    switch = cluster.database.switches["w2"]
    assert [port.name for port in cluster.database.ports(switch)] == [
        "default_p2",
        "k8s-w2",
        "stor-w2",
    ]
    cluster.fabric.remove("w2/p")
    assert [port.name for port in cluster.database.ports(switch)] == ["k8s-w2", "stor-w2"]


def test_services_become_entries_of_load_balancers() -> None:
    tracker, database = ServiceTracker("endpoints"), OvnDatabase(Fabric())
    services = OvnServices(tracker, database)
    service: dict[str, Any] = {
        "metadata": {"namespace": "default", "name": "a"},
        "spec": {
            "type": "NodePort",
            "clusterIP": VIP,
            "sessionAffinity": "ClientIP",
            "externalTrafficPolicy": "Local",
            "externalIPs": ["192.0.2.1"],
            "ports": [{"port": 80, "nodePort": 30080}],
        },
    }
    tracker.put_service(service)
    assert not services.dirty  # until everything is known
    tracker.mark_synced("services")
    tracker.mark_synced("endpoints")
    services.sync()
    assert database.cluster_vips["tcp", VIP, 80].backends == ()
    addresses = [{"ip": "10.244.2.3", "nodeName": "w2"}, {"ip": "10.244.3.3", "nodeName": "w3"}]
    endpoints = {
        "metadata": service["metadata"],
        "subsets": [{"addresses": addresses, "ports": [{"port": 8080}]}],
    }
    tracker.put_endpoints(endpoints)
    services.sync()
    both = (("10.244.2.3", 8080), ("10.244.3.3", 8080))
    assert database.vip("tcp", VIP, 80) == OvnVip("default/a", both)
    assert database.gateway_vip("tcp", "192.0.2.1", 80, own=False) == OvnVip("default/a", both)
    assert database.gateway_vip("tcp", "172.20.0.2", 30080, own=True) == OvnVip("default/a", both)
    assert database.gateway_vip("tcp", "192.0.2.9", 30080, own=False) is None
    tracker.remove_service(service)
    services.sync()
    assert not (database.cluster_vips or database.external_vips or database.node_ports)
