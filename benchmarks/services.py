"""What services and policies cost a node: python benchmarks/services.py

1,000 services with 5,000 endpoints are programmed on a Windows node (kube-proxy into the host
networking service) and on a Linux one (kube-proxy into an nftables table, the text of it, and as
root the kernel that reads the text), then one endpoint changes. Besides: what the tracker and the
index of policies need for an event, a walk through the model, and a trace.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.network.fabrics import make_cluster
from tests.network.trace.inventories import inventory
from tests.proxy.nftables.objects import endpoint_slice, proxier, service, synced_tracker
from tests.proxy.policy.objects import labels, pod, policy
from tests.proxy.winkernel.nodes import OTHER, Node

from transom.network.nft_text import nft_difference, nft_snapshot, render_nft_table
from transom.network.trace.run import run_trace
from transom.proxy.policy.index import PolicyIndex
from transom.proxy.tracker import ServiceTracker

SERVICES, ENDPOINTS, CHANGES = 1_000, 5, 20
PODS, POLICIES = 10_000, 100
TABLE = "ip transom-proxy"
GOALS = {"programmed": 2.0, "one change": 0.05, "trace": 0.01}


def timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def report(what: str, seconds: float, goal: float = 0.0) -> bool:
    shown = (
        f"{seconds:.2f} s"
        if seconds >= 1
        else f"{seconds * 1e3:.1f} ms"
        if seconds >= 1e-3
        else f"{seconds * 1e6:.0f} us"
    )
    met = not goal or seconds <= goal
    print(
        f"{what:<58}{shown:>10}"
        + (f"   goal {goal:g} s{'' if met else ', MISSED'}" if goal else "")
    )
    return met


def address(number: int) -> str:
    return f"10.96.{number // 250}.{number % 250 + 1}"


def windows() -> bool:
    from tests.proxy.objects import service as windows_service

    node = Node()
    for n in range(SERVICES):
        pods = ((f"10.{245 + i}.{n // 250}.{n % 250 + 1}", OTHER) for i in range(ENDPOINTS))
        node.put(windows_service(f"s{n}", ip=address(n)), *pods)
    met = report("Windows: all services programmed", timed(node.sync), GOALS["programmed"])

    def change(i: int) -> None:
        node.put_pods("s7", (f"10.250.0.{i + 1}", OTHER))
        node.sync()

    taken = [timed(partial(change, i)) for i in range(CHANGES)]
    return (
        report("Windows: one endpoint changed", statistics.median(taken), GOALS["one change"])
        and met
    )


def slices(name: str, number: int, count: int = ENDPOINTS) -> dict[str, Any]:
    return endpoint_slice(
        name, *((f"10.245.{number % 250}.{n + 1}", "linux-2") for n in range(count))
    )


def linux() -> bool:
    tracker = synced_tracker()
    proxy = proxier(tracker)
    for n in range(SERVICES):
        tracker.put_service(service(f"web-{n}", address(n)))
        tracker.put_slice(slices(f"web-{n}", n))
    met = report("Linux: all services programmed", timed(proxy.sync), GOALS["programmed"])
    table = proxy.stack.tables[TABLE]
    report("Linux: text of the table", timed(lambda: render_nft_table(table)))
    kernel = (
        os.geteuid() == 0
        and shutil.which("nft") is not None
        and shutil.which("unshare") is not None
    )
    with_kernel = Kernel() if kernel else None
    applied = nft_snapshot(table)
    if with_kernel is not None:
        text = render_nft_table(table)
        met = (
            report(
                "Linux: the kernel has read it",
                timed(lambda: with_kernel.load(text)),
                GOALS["programmed"],
            )
            and met
        )

    def change(i: int) -> None:
        nonlocal applied
        tracker.put_slice(slices(f"web-{i}", i, ENDPOINTS - 1))
        proxy.sync()
        text = nft_difference(applied, proxy.stack.tables[TABLE])
        if with_kernel is not None:
            with_kernel.load(text)

    taken = []
    for i in range(CHANGES):
        taken.append(timed(partial(change, i)))
        applied = nft_snapshot(proxy.stack.tables[TABLE])
    where = "in the kernel" if kernel else "as text"
    met = (
        report(
            f"Linux: one endpoint changed, {where}", statistics.median(taken), GOALS["one change"]
        )
        and met
    )
    if with_kernel is not None:
        with_kernel.close()
    return met


class Kernel:
    """A network namespace of its own, for as long as this runs."""

    def __init__(self) -> None:
        self._holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        own = os.readlink("/proc/self/ns/net")
        while os.readlink(f"/proc/{self._holder.pid}/ns/net") == own:
            time.sleep(0.001)

    def load(self, text: str) -> None:
        enter = ["nsenter", "--net", "--target", str(self._holder.pid), "nft", "-f", "-"]
        subprocess.run(enter, input=text, text=True, check=True)

    def close(self) -> None:
        self._holder.kill()
        self._holder.wait()


def events() -> None:
    tracker = ServiceTracker()
    for n in range(SERVICES):
        tracker.put_service(service(f"web-{n}", address(n)))
        tracker.put_slice(slices(f"web-{n}", n))
    changes = [slices("web-7", n, 1) for n in range(200)]
    report(
        "tracker: one slice of many",
        timed(lambda: [tracker.put_slice(each) for each in changes]) / len(changes),
    )
    index = PolicyIndex()
    for n in range(POLICIES):
        rules: list[dict[str, Any]] = [{"from": [{"podSelector": {}}]}]
        index.put_policy(policy(f"p-{n}", labels(app=f"app-{n}"), inside=f"ns-{n}", ingress=rules))
    pods = [
        pod(
            f"p-{n}",
            f"10.0.{n >> 8}.{n & 255}",
            {"app": f"app-{n % 100}"},
            namespace=f"ns-{n % 100}",
            node=f"n-{n % 1000}",
        )
        for n in range(PODS)
    ]
    report(
        f"policies: one of {PODS} pods",
        timed(lambda: deque(map(index.put_pod, pods))) / PODS,
    )


def ways() -> bool:
    cluster = make_cluster()
    for name, node in _people():
        cluster.pod(name, node)
    cluster.service("web", "10.96.0.80", ["l1", "w2", "w3"])
    for origin, to in (("l1", "w2"), ("w1", "w2"), ("w1", "10.96.0.80")):
        cluster.walk(origin, to, record=False)
        taken = [timed(partial(cluster.walk, origin, to, record=False)) for _ in range(200)]
        report(f"model: from {origin} to {to} and back", statistics.median(taken))
    known = inventory(cluster)
    durations = [
        timed(lambda: asyncio.run(run_trace(cluster.world, known, "w1", "web"))) for _ in range(50)
    ]
    return report("a trace by name, hop by hop", statistics.median(durations), GOALS["trace"])


def _people() -> Iterator[tuple[str, str]]:
    yield from (("l1", "linux-1"), ("w1", "windows-1"), ("w2", "windows-1"), ("w3", "windows-2"))


def main() -> int:
    met = [windows(), linux()]
    events()
    met.append(ways())
    return 0 if all(met) else 1


if __name__ == "__main__":
    raise SystemExit(main())
