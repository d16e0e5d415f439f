"""Measurements: sends many requests over several clients, and formats the report."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import field
from time import perf_counter
from typing import Any

from transom.bench.client import BenchConnection, BenchError, BenchTarget
from transom.kit.lazy_dataclass import dataclass


@dataclass(slots=True)
class BenchResult:
    """One line of the report. `seconds` is wall time, `latencies` are in seconds."""

    test: str
    clients: int
    seconds: float
    latencies: list[float]
    errors: Counter[str] = field(default_factory=Counter)
    server_cpu: float | None = None
    more: dict[str, Any] = field(default_factory=dict)

    def report(self) -> dict[str, Any]:
        """The stable machine-readable form."""
        count = len(self.latencies)
        out: dict[str, Any] = {
            "test": self.test,
            "clients": self.clients,
            "count": count,
            "seconds": round(self.seconds, 4),
            "perSecond": round(count / self.seconds, 1) if self.seconds else 0.0,
            "p50Ms": round(percentile(self.latencies, 50) * 1e3, 3),
            "p99Ms": round(percentile(self.latencies, 99) * 1e3, 3),
            "errors": dict(self.errors),
        }
        if self.server_cpu is not None:
            out["serverCpuSeconds"] = round(self.server_cpu, 2)
        return {**out, **self.more}


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that is at least as large as `percent` of all values."""
    if not values:
        return 0.0
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, min(len(ordered) - 1, int(rank) - 1))]


class BenchServer:
    """The processes of the server, if they are known and run on this machine: several with
    `transom up --servers`.
    """

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids

    def cpu(self) -> float | None:
        """CPU seconds used so far, by all of them together."""
        ticks = 0
        for pid in self._pids:
            try:
                with open(f"/proc/{pid}/stat") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                return None
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK") if self._pids else None

    def resident_mib(self) -> float | None:
        pages = 0
        for pid in self._pids:
            try:
                with open(f"/proc/{pid}/statm") as file:
                    pages += int(file.read().split()[1])
            except OSError:
                return None
        return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1) if self._pids else None


async def run_load(
    target: BenchTarget, server: BenchServer, test: str, requests: Sequence[bytes], clients: int
) -> BenchResult:
    """Sends all requests over `clients` connections, with one request in flight on each."""
    connections = await asyncio.gather(*[BenchConnection.open(target) for _ in range(clients)])
    todo = iter(requests)
    latencies: list[float] = []
    errors: Counter[str] = Counter()

    async def work(connection: BenchConnection) -> None:
        for request in todo:
            began = perf_counter()
            try:
                status, body = await connection.request(request)
            except BenchError as error:
                errors[str(error)] += 1
                return
            latencies.append(perf_counter() - began)
            if status >= 300:
                errors[f"{status} {body[:120].decode(errors='replace')}"] += 1

    cpu_before, began = server.cpu(), perf_counter()
    await asyncio.gather(*[work(connection) for connection in connections])
    seconds = perf_counter() - began
    cpu_after = server.cpu()
    for connection in connections:
        connection.close()
    used = cpu_after - cpu_before if cpu_after is not None and cpu_before is not None else None
    return BenchResult(test, clients, seconds, latencies, errors, used)
