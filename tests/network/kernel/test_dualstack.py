"""Both families together, between Linux and Windows, where Windows supports it: on bridges, from
build 19041.
"""

from __future__ import annotations

import asyncio
import socket

import pytest
from tests.network.dual import DualCluster
from tests.network.kernel.agreement import differences
from tests.network.kernel.dual_topologies import drawn, flows

from transom.kit.clock import RealClock
from transom.network.kernel.dataplane import KernelDataplane
from transom.network.kernel.namespaces import missing_kernel_support

# The comparison itself computes on the loop.
pytestmark = [
    pytest.mark.skipif(bool(missing_kernel_support()), reason=missing_kernel_support() or "-"),
    pytest.mark.loop_budget(None),
]


async def test_pods_and_nodes_reach_each_other_by_both_families() -> None:
    cluster = DualCluster("l2bridge", build=20348)
    cluster.linux("linux-1")
    cluster.windows("windows-1")
    cluster.pod("linux", "linux-1")
    cluster.pod("windows", "windows-1")
    plane = KernelDataplane(cluster.fabric, "dual", RealClock(), patience=15)
    await plane.settled()
    assert plane.problems == []

    def accept(connection: socket.socket) -> None:
        with connection:
            connection.send(connection.getpeername()[0].encode())

    servers = [
        cluster.source(place, to)
        for place in (*cluster.nodes, "linux", "windows")
        for to in ("::", "0.0.0.0")
    ]
    for address in servers:
        plane.listen(address, 80, accept)
    for source in servers:
        for address in servers:
            if (":" in source) == (":" in address) and source != address:
                with await plane.connect(address, 80, source) as connection:
                    seen = (await asyncio.get_running_loop().sock_recv(connection, 100)).decode()
                # flannel on Linux gives pods their node's address outside of the pods' network.
                assert seen in (source, cluster.source("linux-1", source)), (source, address)
                assert await plane.echo(address, source)
    await plane.close()


@pytest.mark.parametrize("seed", range(6))
def test_both_data_planes_agree_on_ipv6(seed: int) -> None:
    cluster = drawn(seed)
    wrong = asyncio.run(differences(cluster, flows(cluster, seed)))
    assert not wrong, "\n".join(
        [f"dsr={cluster.dsr} loopback={cluster.loopback_dsr} build={cluster.build}", *wrong]
    )
