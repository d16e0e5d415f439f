"""Durable writes per second of the SQLite store, with 1, 16 and 64 concurrent writers and values of
2 KB.

Usage: python benchmarks/store.py [DIRECTORY]      the directory decides which disk is measured
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

import uvloop

from transom.store.sqlite import SqliteStore

VALUE = os.urandom(2048)
SECONDS = 2.0


async def measure(path: Path, writers: int) -> None:
    store = SqliteStore(path)
    await store.start()
    latencies: list[float] = []
    end = time.perf_counter() + SECONDS

    async def write(writer: int) -> None:
        number = 0
        while (begin := time.perf_counter()) < end:
            number += 1
            await store.put(f"pods/default/web-{writer}-{number % 500}", lambda revision: VALUE)
            latencies.append(time.perf_counter() - begin)

    cpu = time.process_time()
    begin = time.perf_counter()
    await asyncio.gather(*(write(writer) for writer in range(writers)))
    elapsed = time.perf_counter() - begin
    cpu = time.process_time() - cpu
    await store.close()
    latencies.sort()
    middle, tail = latencies[len(latencies) // 2], latencies[len(latencies) * 99 // 100]
    print(
        f"{writers:3d} writers: {len(latencies) / elapsed:8.0f} writes/s   median "
        f"{middle * 1e3:6.2f} ms   "
        f"99% {tail * 1e3:6.2f} ms   max {latencies[-1] * 1e3:6.2f} ms   CPU "
        f"{cpu / len(latencies) * 1e6:4.0f} us/write"
    )


async def restart(path: Path) -> None:
    store = SqliteStore(path)
    await store.start()
    await asyncio.gather(
        *(store.put(f"pods/default/web-{n}", lambda revision: VALUE * 2) for n in range(11_000))
    )
    await store.close()
    begin = time.perf_counter()
    store = SqliteStore(path)
    await store.start()
    print(
        f"start with {store.count('')} keys of 4 KB: {(time.perf_counter() - begin) * 1e3:.0f} ms"
    )
    await store.close()


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as directory:
        for writers in (1, 16, 64):
            uvloop.run(measure(Path(directory) / f"{writers}.db", writers))
        uvloop.run(restart(Path(directory) / "restart.db"))


if __name__ == "__main__":
    main()
