"""Both data planes agree on every flow: whether it arrives, where, and with which source address it
is seen there.
"""

from __future__ import annotations

import asyncio
import os
from typing import get_args

import pytest
from tests.network.fabrics import Mode, make_cluster
from tests.network.kernel.agreement import Flow, Servers, differences
from tests.network.kernel.topologies import drawn, enforce, flows

from transom.kit.clock import RealClock
from transom.network.kernel.dataplane import KernelDataplane
from transom.network.kernel.namespaces import missing_kernel_support

# The comparison itself computes on the loop.
pytestmark = [
    pytest.mark.skipif(bool(missing_kernel_support()), reason=missing_kernel_support() or "-"),
    pytest.mark.loop_budget(None),
]
SEEDS = range(int(os.environ.get("TRANSOM_SEEDS", "12")))


@pytest.mark.parametrize("mode", get_args(Mode))
def test_every_kind_of_network(mode: Mode) -> None:
    cluster = make_cluster(mode, 1, 2)
    for node in cluster.nodes:
        cluster.pod(f"a-{node}", node)
    cluster.pod("b-windows-1", "windows-1")
    pods = [pod["metadata"]["name"] for pod in cluster.objects["pods"]]
    cluster.service("all", "10.96.0.10", pods, kind="NodePort", node_port=30080)
    cluster.service("one", "10.96.0.11", ["a-windows-2"], kind="NodePort", node_port=30081)
    cluster.service("datagrams", "10.96.0.12", ["a-windows-1", "a-linux-1"], protocol="UDP")
    cluster.service("nobody", "10.96.0.13", [])
    enforce(cluster, [])
    wrong = asyncio.run(differences(cluster, flows(cluster, 1, 400)))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("seed", SEEDS)
def test_clusters_drawn_at_random(seed: int) -> None:
    cluster, policies = drawn(seed)
    wrong = asyncio.run(differences(cluster, flows(cluster, seed)))
    assert not wrong, "\n".join(
        [f"{cluster.mode} dsr={cluster.dsr} build={cluster.build} {policies}", *wrong]
    )


def test_node_ports_on_the_loopback_and_public_addresses() -> None:
    """kube-proxy on Linux lets 127.0.0.1 have node ports; the external host has every public
    address.
    """
    cluster = make_cluster("l2bridge", 2, 1)
    for node in cluster.nodes:
        cluster.pod(f"a-{node}", node)
    cluster.service("far", "10.96.0.10", ["a-linux-2"], kind="NodePort", node_port=30080)
    cluster.service("none", "10.96.0.11", [], kind="NodePort", node_port=30081)
    origins = [*cluster.nodes, *(f"a-{node}" for node in cluster.nodes), "external"]
    wrong = asyncio.run(
        differences(
            cluster,
            [
                Flow(origin, address, port)
                for origin in origins
                for address, port in (
                    ("127.0.0.1", 30080),
                    ("127.0.0.1", 30081),
                    ("8.8.8.8", 80),
                    ("8.8.8.8", 53),
                )
            ],
        )
    )
    assert not wrong, "\n".join(wrong)


def test_the_comparison_would_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules of another program in the kernel alone: the planes differ, and that is reported."""
    from transom.network.kernel import plan

    cluster = make_cluster("l2bridge", 2, 0)
    cluster.pod("a", "linux-1")
    cluster.pod("b", "linux-2")
    whole = plan.base_stack_plan
    monkeypatch.setattr(plan, "base_stack_plan", lambda stack: _without_routes(whole(stack)))
    assert len(asyncio.run(differences(cluster, [Flow("a", cluster.address("b"), 80)]))) == 1


def _without_routes(made):  # type: ignore[no-untyped-def]
    made.routes = {d: way for d, way in made.routes.items() if not d.startswith("10.244.2.")}
    return made


async def test_the_kernel_knows_what_a_trace_has_to_know_of_listening_sockets() -> None:
    cluster = make_cluster("l2bridge", 1, 1)
    for node in cluster.nodes:
        cluster.pod(f"a-{node}", node)
    plane = KernelDataplane(cluster.fabric, "listening", RealClock())
    try:
        await plane.settled()
        servers = Servers(cluster, plane)
        places = [
            (stack, address, port, protocol)
            for stack in cluster.fabric.stacks.values()
            for address in stack.addresses()
            for port in (80, 81, 10250)
            for protocol in ("tcp", "udp")
        ]
        assert len({servers.listening(*place) for place in places}) == 2
        assert [plane.listening(*place) for place in places] == [
            servers.listening(*place) for place in places
        ]
        servers.close()
        await asyncio.sleep(0)
        assert not any(plane.listening(*place) for place in places)
    finally:
        await plane.close()
