"""How fast Windows containers are: python benchmarks/wine.py [CONTAINERS]

As root, with runc and Wine. A node's runtime alone, without a kubelet: sandbox and container from
the built-in nanoserver image to the running program, commands in it, memory when idle, and many
containers, four at a time. The template is made first, if there is none, and is kept in the user's
cache.

Memory is what the control group of a container counts, without inactive files,
as `transom ps` shows it, of the median container. The maximum would be the first
one, because the pages of Wine that it reads from disk are charged to it although all containers
share them; the sum over processes would count shared pages several times.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from transom.kit.clock import RealClock
from transom.machines.realhost import RealWindowsHost
from transom.network.api import SandboxNetwork
from transom.runtime.api import ContainerConfig, SandboxConfig
from transom.runtime.images.service import ImageService
from transom.runtime.native.client import Monitor
from transom.runtime.native.core import SandboxNetworking
from transom.runtime.native.runtime import NativeRuntime, destroy_cluster
from transom.runtime.native.store import NodeImages
from transom.runtime.wine.platform import WinePlatform

GOAL_START, GOAL_EXEC, GOAL_MANY = 0.6, 0.15, 15.0  # seconds; the last one for a hundred
GOAL_IDLE = 30 << 20
IMAGE = "mcr.microsoft.com/windows/nanoserver:1809"
AT_ONCE = 4
_SINGLE = 15
_IDLE = 2.0  # seconds
_WAIT = ("ping", "-n", "3600", "127.0.0.1")
_CGROUP = f"/transom-bench/{os.getpid()}"


class NoNetwork:
    """Every sandbox has a namespace with its loopback only."""

    def ready(self) -> str:
        return ""

    async def add(self, sandbox: SandboxNetwork) -> list[str]:
        return ["127.0.0.1"]

    async def remove(self, sandbox: str) -> None: ...


async def start(runtime: NativeRuntime, number: int, image: str) -> str:
    name = f"web-{number}"
    sandbox = await runtime.run_sandbox(
        SandboxConfig(name, "bench", f"uid-{number}", hostname=name)
    )
    container = await runtime.create_container(
        sandbox, ContainerConfig("c", 0, IMAGE, image, command=_WAIT)
    )
    await runtime.start_container(container)
    return container


async def single(runtime: NativeRuntime, image: str) -> tuple[list[float], list[float]]:
    starts, execs = [], []
    for number in range(_SINGLE):
        began = time.perf_counter()
        container = await start(runtime, number, image)
        starts.append(time.perf_counter() - began)
        for _ in range(3):
            began = time.perf_counter()
            assert (
                await runtime.exec_sync(container, ("cmd", "/c", "echo hi"))
            ).stdout == b"hi\r\n"
            execs.append(time.perf_counter() - began)
        for sandbox in runtime.sandboxes():
            await runtime.remove_sandbox(sandbox.id)
    return starts, execs


async def many(runtime: NativeRuntime, image: str, count: int) -> tuple[float, float, float, float]:
    """Seconds to start all, for a command in the last one, and to remove all; and the bytes of one
    in the middle, when idle.
    """
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> str:
        async with gate:
            return await start(runtime, number, image)

    began = time.perf_counter()
    made = await asyncio.gather(*(one(number) for number in range(count)))
    started = time.perf_counter() - began
    await asyncio.sleep(_IDLE)
    memory = statistics.median(stats.working_set or 0 for stats in runtime.container_stats())
    began = time.perf_counter()
    await runtime.exec_sync(made[-1], ("cmd", "/c", "echo hi"))
    requested = time.perf_counter() - began
    began = time.perf_counter()

    async def remove(sandbox: str) -> None:
        async with gate:
            await runtime.remove_sandbox(sandbox)

    await asyncio.gather(*(remove(sandbox.id) for sandbox in runtime.sandboxes()))
    return started, requested, time.perf_counter() - began, memory


async def measure(folder: Path, cache: Path, count: int) -> bool:
    platform = WinePlatform(cache, build=17763)
    began = time.perf_counter()
    await platform.prepare()
    print(f"template: {time.perf_counter() - began:.3f} s")
    host = RealWindowsHost("win", RealClock(), folder / "host")
    images = NodeImages(ImageService(folder / "images"), "bench/win", "windows", 17763)
    monitor = Monitor(folder / "native")
    runtime = NativeRuntime(
        host, RealClock(), monitor, platform, images, SandboxNetworking(NoNetwork()), _CGROUP
    )
    try:
        await runtime.start()
        image = await runtime.pull_image(IMAGE)
        starts, execs = await single(runtime, image)
        started, requested, removed, memory = await many(runtime, image, count)
    finally:
        runtime.close()
        monitor.close()
        await destroy_cluster(folder / "native", _CGROUP)
        host.destroy()
    rows = (
        ("sandbox and container to the running program", statistics.median(starts), GOAL_START),
        ("a command in it", statistics.median(execs), GOAL_EXEC),
        (f"{count} containers, {AT_ONCE} at a time", started, GOAL_MANY * count / 100),
        (f"a command with {count} containers", requested, GOAL_EXEC * 2),
    )
    for what, seconds, goal in rows:
        print(f"{what}: {seconds:.3f} s (goal {goal:g} s)")
    print(
        f"idle: {memory / (1 << 20):.1f} MiB (goal {GOAL_IDLE >> 20} MiB); all removed in "
        f"{removed:.1f} s"
    )
    return memory <= GOAL_IDLE and all(seconds <= goal for _, seconds, goal in rows)


def main() -> int:
    why = WinePlatform(Path("/nonexistent")).unusable() or (
        "" if os.geteuid() == 0 else "only root can run containers here"
    )
    if why:
        print(why)
        return 0
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "transom" / "wine"
    with tempfile.TemporaryDirectory(prefix="transom-wine-") as folder:
        good = asyncio.run(
            measure(Path(folder), cache, int(sys.argv[1]) if len(sys.argv) > 1 else 100)
        )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
