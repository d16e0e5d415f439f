"""The machine's own network is not changed, carries no packet of a cluster, and has no leftovers
when the process is killed.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.network.fabrics import CLUSTER, SERVICES, UNDERLAY, make_cluster
from tests.network.kernel.agreement import Servers, real
from tests.network.kernel.topologies import flows

from transom.kit.clock import RealClock
from transom.network.kernel.dataplane import KernelDataplane
from transom.network.kernel.namespaces import missing_kernel_support

pytestmark = pytest.mark.skipif(
    bool(missing_kernel_support()), reason=missing_kernel_support() or "-"
)
_COMMANDS = (
    ("ip", "-details", "link"),
    ("ip", "address"),
    ("ip", "route", "show", "table", "all"),
    ("ip", "rule"),
    ("nft", "list", "ruleset"),
)
_SETTINGS = (
    "net/ipv4/ip_forward",
    "net/ipv4/conf/all/rp_filter",
    "net/ipv4/ping_group_range",
    "net/ipv6/conf/all/forwarding",
)
_RANGES = [ipaddress.ip_network(text) for text in (CLUSTER, SERVICES, UNDERLAY)]


def state() -> list[str]:
    printed = [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for command in _COMMANDS
    ]
    settings = [
        path.read_text() for name in _SETTINGS if (path := Path("/proc/sys") / name).exists()
    ]
    return [*(_without_lifetimes(text) for text in printed), *settings]


def _without_lifetimes(text: str) -> str:
    return "\n".join(
        line for line in text.splitlines() if "valid_lft" not in line and "expires" not in line
    )


def strangers(capture: socket.socket) -> list[str]:
    """Packets on any of the machine's interfaces that have an address of the cluster."""
    found = []
    while True:
        try:
            frame = capture.recv(200)
        except BlockingIOError:
            return found
        if len(frame) >= 34 and frame[12:14] == b"\x08\x00":
            ends = [ipaddress.ip_address(struct.unpack_from("!I", frame, at)[0]) for at in (26, 30)]
            found += [str(end) for end in ends if any(end in network for network in _RANGES)]
        elif len(frame) >= 42 and frame[12:14] == b"\x08\x06":
            end = ipaddress.ip_address(struct.unpack_from("!I", frame, 38)[0])
            found += [str(end)] if any(end in network for network in _RANGES) else []


def test_nothing_of_the_machines_network_changes_and_nothing_leaves() -> None:
    async def run() -> list[str]:
        cluster = make_cluster("overlay", 1, 1)
        for node in cluster.nodes:
            cluster.pod(f"pod-{node}", node)
        cluster.service(
            "web", "10.96.0.10", ["pod-linux-1", "pod-windows-1"], kind="NodePort", node_port=30080
        )
        plane = KernelDataplane(cluster.fabric, "test", RealClock(), patience=0.3)
        await plane.settled()
        servers = Servers(cluster, plane)
        await asyncio.gather(*(real(cluster, plane, flow) for flow in flows(cluster, 1, 200)))
        during = state()
        servers.close()
        await plane.close()
        return during

    with socket.socket(
        socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.htons(3)
    ) as capture:
        capture.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        before = state()
        during = asyncio.run(run())
        assert strangers(capture) == []
    assert during == before
    assert state() == before


_CHILD = """
import asyncio, os
from tests.network.fabrics import make_cluster
from transom.kit.clock import RealClock
from transom.network.kernel.dataplane import KernelDataplane

async def main():
    cluster = make_cluster("l2bridge", 1, 1)
    for node in list(cluster.nodes):
        cluster.pod("pod-" + node, node)
    plane = KernelDataplane(cluster.fabric, "victim", RealClock())
    await plane.settled()
    spaces = [await plane.namespace(name) for name in ("", *cluster.fabric.stacks)]
    print(*(os.fstat(space.descriptor).st_ino for space in spaces), flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def held(namespaces: set[int]) -> set[int]:
    """Those that some process of the machine is in or has open."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        for path in (
            *_listed(process / "fd"),
            *(task / "ns" / "net" for task in _listed(process / "task")),
        ):
            try:
                found.add(os.stat(path).st_ino)
            except OSError:
                continue
    return namespaces & found


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def test_everything_goes_with_the_process_even_when_it_is_killed() -> None:
    before = state()
    root = Path(__file__).parents[3]
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD], stdout=subprocess.PIPE, text=True, cwd=root
    )
    assert child.stdout is not None
    namespaces = {int(number) for number in child.stdout.readline().split()}
    assert len(namespaces) == 6  # the underlay, the outside, two nodes, two pods
    assert held(namespaces) == namespaces
    child.send_signal(signal.SIGKILL)
    child.wait()
    end = time.monotonic() + 10
    while held(namespaces) and time.monotonic() < end:
        os.sched_yield()
    assert held(namespaces) == set()
    assert state() == before
