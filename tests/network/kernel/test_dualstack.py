"""Both families beside each other, between Linux and Windows, as far as Windows has them: on bridges, from build 19041."""

from __future__ import annotations

import asyncio
import socket

import pytest
from tests.network.fabrics import Cluster, make_cluster
from tests.network.kernel.agreement import differences
from tests.network.kernel.dual_topologies import drawn, flows

from transom.kit.clock import RealClock
from transom.network import winhost
from transom.network.cni.windows import setup
from transom.network.kernel.dataplane import KernelDataplane
from transom.network.kernel.namespaces import missing
from transom.network.stacks import Link

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")
NODES = {"linux-1": "fd00:20::2", "windows-1": "fd00:20::3"}
PODS = {"linux-1": "fd00:1::a", "windows-1": "fd00:2::a"}


def dual() -> Cluster:
    cluster = make_cluster("l2bridge", 1, 0, build=20348)
    linux = cluster.nodes["linux-1"]
    linux.add_address("eth0", "fd00:20::2/64")
    linux.add_address("cni0", "fd00:1::1/64")
    cluster.pod("linux", "linux-1")
    pod = cluster.stack("linux")
    pod.add_address("eth0", "fd00:1::a/64")
    pod.replace_route("::/0", "eth0", "fd00:1::1")
    cluster._network = lambda name, hns: setup.l2bridge(hns, "cbr0", [cluster.subnet(name), "fd00:2::/64"])["Name"]  # type: ignore[method-assign]
    windows = cluster.windows("windows-1")
    windows.add_address(winhost.management_link(windows), "fd00:20::3/64")
    assert windows.hns is not None
    network = next(iter(windows.hns.networks.values()))
    endpoint = windows.hns.create("endpoint", {
        "Name": "pod", "HostComputeNetwork": network["ID"],
        "IpConfigurations": [{"IpAddress": "10.244.2.9", "PrefixLength": 24}, {"IpAddress": "fd00:2::a", "PrefixLength": 64}],
        "Routes": [
            {"NextHop": "10.244.2.2", "DestinationPrefix": "0.0.0.0/0"}, {"NextHop": "fd00:2::2", "DestinationPrefix": "::/0"},
        ],
    })  # fmt: skip
    link, _ = winhost.sandbox_link(windows.hns, endpoint["ID"])
    sandbox = cluster.fabric.add("windows-1/windows", "sandbox", "windows", node="windows-1", sandbox="windows")
    sandbox.add_link(Link(link.name, "vnic", mac=link.mac, mtu=link.mtu, endpoint=link.endpoint))
    for address in link.addresses:
        sandbox.add_address(link.name, str(address))
    for gateway in winhost.gateways(windows.hns, endpoint["ID"]):
        sandbox.replace_route("::/0" if ":" in gateway else "0.0.0.0/0", link.name, gateway)
    linux.replace_route("fd00:2::/64", "eth0", "fd00:20::3")
    windows.replace_route("fd00:1::/64", winhost.management_link(windows), "fd00:20::2")
    return cluster


def test_pods_and_nodes_reach_each_other_by_both_families() -> None:
    async def run() -> None:
        cluster = dual()
        plane = KernelDataplane(cluster.fabric, "dual", RealClock(), patience=15)
        await plane.settled()
        assert plane.problems == []

        def accept(connection: socket.socket) -> None:
            with connection:
                connection.send(connection.getpeername()[0].encode())

        servers = [*PODS.values(), *NODES.values(), "10.244.2.9", cluster.address("linux")]
        for address in servers:
            plane.listen(address, 80, accept)
        for source in servers:
            for address in servers:
                if (":" in source) == (":" in address) and source != address:
                    with await plane.connect(address, 80, source) as connection:
                        assert (await asyncio.get_running_loop().sock_recv(connection, 100)).decode() == source, address
                    assert await plane.echo(address, source)
        await plane.close()

    asyncio.run(run())


@pytest.mark.parametrize("seed", range(6))
def test_both_data_planes_agree_on_ipv6(seed: int) -> None:
    cluster = drawn(seed)
    wrong = asyncio.run(differences(cluster, flows(cluster, seed)))
    assert not wrong, "\n".join([f"dsr={cluster.dsr} loopback={cluster.loopback_dsr} build={cluster.build}", *wrong])
