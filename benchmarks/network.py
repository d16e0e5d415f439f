"""How fast the kernel data plane is: python benchmarks/network.py [pods] [services] [shares]
(root only)

It prints the throughput from pod to pod relative to a plain pair of veths on a bridge in the same
run, the time until the network of a new pod works, and the times to program the rules of 1,000
services with 5,000 endpoints on a node of each system and to update them after one endpoint changes.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.network.fabrics import Cluster, make_cluster

from transom.kit.clock import RealClock
from transom.network.kernel.dataplane import KernelDataplane
from transom.network.kernel.namespaces import missing_kernel_support
from transom.network.stacks import Fabric, NetworkLink

GOALS = {"share": 0.9, "pod": 0.015, "pods": 50, "services": 2.0, "change": 0.05}
ROUNDS, SECONDS = 5, 1.0
SERVICES, BACKENDS = 1000, 5
_SERVE = """
import socket, sys, time
server = socket.create_server((sys.argv[1], 5001)); print("up", flush=True)
connection, _ = server.accept(); buffer = bytearray(1 << 20); got = 0; start = time.perf_counter()
while (size := connection.recv_into(buffer)): got += size
print(got / (time.perf_counter() - start), flush=True)
"""
_SEND = """
import socket, sys, time
connection = socket.create_connection((sys.argv[1], 5001)); data = bytes(1 << 20)
end = time.perf_counter() + float(sys.argv[2])
while time.perf_counter() < end: connection.sendall(data)
"""


def throughput(client: str, server: str, address: str) -> float:
    """Bytes in a second between processes in two namespaces."""
    enter = ["nsenter", f"--net={server}", sys.executable, "-c", _SERVE, address]
    with subprocess.Popen(enter, stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        serving.stdout.readline()
        subprocess.run(
            ["nsenter", f"--net={client}", sys.executable, "-c", _SEND, address, str(SECONDS)],
            check=True,
        )
        return float(serving.stdout.readline())


async def plain(switches: int) -> tuple[KernelDataplane, tuple[str, str, str]]:
    """Two namespaces on a bridge, or on two that are joined, with nothing in between but veths."""
    fabric = Fabric()
    for number in range(1, switches + 1):
        switch = fabric.add(f"switch-{number}", "node", "linux")
        switch.add_link(NetworkLink("br0", "bridge"))
        switch.add_link(NetworkLink("eth0", "ethernet", master="br0"))
    for number in (1, 2):
        switch = fabric.stacks[f"switch-{min(number, switches)}"]
        pod = fabric.add(f"pod-{number}", "sandbox", "linux", node=switch.name)
        port, _ = fabric.veth(switch, f"port{number}", pod, "eth0")
        port.master = "br0"
        pod.add_address("eth0", f"10.0.0.{number}/24")
    plane = KernelDataplane(fabric, "plain", RealClock())
    await plane.settled()
    paths = [(await plane.namespace(f"pod-{number}")).path for number in (1, 2)]
    return plane, (paths[0], paths[1], "10.0.0.2")


WAYS = {
    "same Linux node": ("linux-1", "linux-1"),
    "same Windows node": ("windows-1", "windows-1"),
    "Linux to Linux": ("linux-1", "linux-2"),
    "Windows to Linux": ("windows-1", "linux-1"),
}


async def shares() -> None:
    bases = {number: await plain(number) for number in (1, 2)}
    for mode in ("l2bridge", "overlay"):
        cluster = make_cluster(mode, 2, 1)
        pairs = {}
        for number, (what, (here, there)) in enumerate(WAYS.items()):
            cluster.pod(f"client-{number}", here)
            pairs[what] = (
                f"client-{number}",
                f"server-{number}",
                cluster.pod(f"server-{number}", there),
            )
        cluster.service("web", "10.96.0.10", ["server-0"])
        if mode == "overlay":
            _smaller(cluster)
        plane = KernelDataplane(cluster.fabric, mode, RealClock())
        await plane.settled()
        for what, (client, server, address) in pairs.items():
            paths = [
                (await plane.namespace(cluster.stack(name).name)).path for name in (client, server)
            ]
            base = bases[len(set(WAYS[what]))][1]
            ours = theirs = 0.0
            # in turn, and the best of each, since the machine has other work as well
            for _ in range(ROUNDS):
                theirs = max(theirs, throughput(*base))
                ours = max(ours, throughput(paths[0], paths[1], address))
            gbit = theirs * 8 / 1e9
            print(
                f"{mode:9} {what:18} {ours / theirs:5.0%} of plain veth and bridge, which "
                f"has {gbit:4.1f} Gbit/s (goal 90%)"
            )
        await plane.close()
    for plane, _ in bases.values():
        await plane.close()


def _smaller(cluster: Cluster) -> None:
    """Room for the outer header, as flannel leaves it."""
    for stack in cluster.fabric.stacks.values():
        for link in stack.links.values():
            if link.kind in ("vxlan", "veth", "bridge"):
                link.mtu = 1450


async def timed(work: Callable[[], Awaitable[object] | None]) -> float:
    start = time.perf_counter()
    waiting = work()
    if waiting is not None:
        await waiting
    return time.perf_counter() - start


async def pods() -> None:
    for node in ("linux-1", "windows-1"):
        cluster = make_cluster("l2bridge", int(node == "linux-1"), int(node == "windows-1"))
        plane = KernelDataplane(cluster.fabric, "pods", RealClock())
        await plane.settled()
        single = []
        for number in range(20):
            start = time.perf_counter()
            cluster.pod(f"one-{number}", node)
            await plane.settled()
            single.append(time.perf_counter() - start)
        start = time.perf_counter()
        for number in range(100):
            cluster.pod(f"many-{number}", node)
        await plane.settled()
        rate = 100 / (time.perf_counter() - start)
        once = statistics.median(single) * 1e3
        print(
            f"a pod on {node:9} {once:6.1f} ms (goal 15 ms), a hundred at once {rate:5.0f}/s "
            "(goal 50/s)"
        )
        await plane.close()


async def services() -> None:
    for node in ("linux-1", "windows-1"):
        cluster = make_cluster("l2bridge", int(node == "linux-1"), int(node == "windows-1"))
        cluster.pod("client", node)
        plane = KernelDataplane(cluster.fabric, "services", RealClock())
        await plane.settled()
        _services(cluster)
        start = time.perf_counter()
        cluster.fabric.refresh_node(node)
        state = time.perf_counter() - start
        kernel = await timed(plane.settled)
        changes = []
        for number in range(5):
            slice_ = _slice(number, BACKENDS - 1)
            start = time.perf_counter()
            cluster.tracker.put_slice(slice_)
            cluster.clock.advance(2)
            await plane.settled()
            changes.append(time.perf_counter() - start)
        print(
            f"{SERVICES} services, {SERVICES * BACKENDS} endpoints on {node:9}: {state:4.2f} "
            f"s state, {kernel:4.2f} s kernel "
            f"(goal {GOALS['services']} s); one change "
            f"{statistics.median(changes) * 1e3:5.1f} ms (goal 50 ms)"
        )
        if plane.problems:
            print("  refused:", plane.problems[0])
        await plane.close()


def _services(cluster: Cluster) -> None:
    for number in range(SERVICES):
        address = f"10.96.{number // 250 + 1}.{number % 250 + 1}"
        cluster.tracker.put_service(
            {
                "metadata": {"namespace": "default", "name": f"service-{number}"},
                "spec": {
                    "type": "ClusterIP",
                    "clusterIP": address,
                    "clusterIPs": [address],
                    "sessionAffinity": "None",
                    "ports": [{"port": 80, "targetPort": 80, "protocol": "TCP"}],
                },
            }
        )
        cluster.tracker.put_slice(_slice(number, BACKENDS))


def _slice(number: int, backends: int) -> dict[str, object]:
    return {
        "addressType": "IPv4",
        "ports": [{"name": "", "port": 80, "protocol": "TCP"}],
        "metadata": {
            "namespace": "default",
            "name": f"service-{number}-1",
            "labels": {"kubernetes.io/service-name": f"service-{number}"},
        },
        "endpoints": [
            {
                "addresses": [
                    f"10.244.{100 + (number * BACKENDS + at) // 250}.{(number * BACKENDS + at) % 250 + 1}"
                ],
                "conditions": {"ready": True},
                "topology": {"kubernetes.io/hostname": "elsewhere"},
            }
            for at in range(backends)
        ],
    }


async def main() -> None:
    for part in (pods, services, shares):
        if len(sys.argv) < 2 or part.__name__ in sys.argv[1:]:
            await part()


if __name__ == "__main__":
    reason = missing_kernel_support()
    if reason:
        sys.exit(reason)
    asyncio.run(main())
