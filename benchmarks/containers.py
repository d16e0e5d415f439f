"""Real containers: how soon one runs, what it costs, how long a command takes, and how many can be
had at once.

    .venv/bin/python benchmarks/containers.py --at-once 50

Needs root, runc and busybox-static. The first table is the runtime alone, the second a whole node:
an API server, a kubelet and the pods that it runs, each from its creation until the API says that
it is running. Nothing stays on the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop

from transom.apiserver.core.context import UserInfo
from transom.apiserver.server import ServerOptions, build_api_server
from transom.apiserver.serving.inprocess import InProcessClient
from transom.client.events import EventRecorder
from transom.client.resources import PODS, SERVICE_ACCOUNTS
from transom.kit.clock import RealClock
from transom.kubelet import os_linux
from transom.kubelet.base import KubeletContext
from transom.kubelet.config import KubeletConfig
from transom.kubelet.kubelet import Kubelet
from transom.machinery.errors import ApiError
from transom.machinery.releases import DEFAULT
from transom.machines.realhost import RealLinuxHost
from transom.network.api import SandboxNetwork
from transom.runtime.api import ContainerConfig, LinuxContainer, SandboxConfig
from transom.runtime.images.service import ImageService
from transom.runtime.native import cgroups
from transom.runtime.native.client import Monitor
from transom.runtime.native.core import SandboxNetworking
from transom.runtime.native.runtime import NativeRuntime, destroy_cluster
from transom.runtime.native.store import NodeImages
from transom.runtime.oci.platform import LinuxPlatform
from transom.store.memory import MemoryStore

IMAGE, NODE = "busybox", "node1"


class Network:
    """Addresses, and nothing behind them."""

    def __init__(self) -> None:
        self._number = 1

    def ready(self) -> str:
        return ""

    async def add(self, sandbox: SandboxNetwork) -> list[str]:
        self._number += 1
        return [f"10.244.{self._number >> 8}.{self._number & 255}"]

    async def remove(self, sandbox: str) -> None: ...


def row(name: str, values: list[float], budget: float = 0.0) -> None:
    middle = statistics.median(values)
    text = f"{name:<42}{middle * 1000:9.1f} ms   worst {max(values) * 1000:9.1f} ms"
    print(
        text
        + (
            f"   budget {budget * 1000:.0f} ms {'ok' if middle <= budget else 'MISSED'}"
            if budget
            else ""
        )
    )


async def timed(work: Awaitable[Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = await work
    return time.perf_counter() - began, result


async def start_one(runtime: NativeRuntime, image: str, number: int, seccomp: str) -> str:
    config = SandboxConfig(f"p{number}", "bench", f"uid-{number}", hostname=f"p{number}")
    sandbox = await runtime.run_sandbox(config)
    container = ContainerConfig(
        "c", 0, IMAGE, image, command=("sleep", "100000"), linux=LinuxContainer(seccomp=seccomp)
    )
    made = await runtime.create_container(sandbox, container)
    await runtime.start_container(made)
    return made


async def runtime_alone(runtime: NativeRuntime, group: str, rounds: int, at_once: int) -> None:
    image = await runtime.pull_image(IMAGE)
    for seccomp in ("unconfined", "runtime/default"):
        took = [await timed(start_one(runtime, image, i, seccomp)) for i in range(rounds)]
        row(f"sandbox and container, {seccomp}", [seconds for seconds, _ in took], 0.25)
        if seccomp == "unconfined":
            container = took[0][1]
            commands = [
                (await timed(runtime.exec_sync(container, ("true",))))[0] for _ in range(rounds)
            ]
            row("a command in it", commands, 0.15)
            idle = cgroups.cgroup_usage(group)
            print(
                f"{'memory of an idle pod (its cgroups)':<42}{(idle.usage if idle else 0) / rounds / 1024:9.0f} "
                "KiB"
            )
        sandboxes = [sandbox.id for sandbox in runtime.sandboxes()]
        row("stopped and removed", [(await timed(runtime.remove_sandbox(s)))[0] for s in sandboxes])
    seconds, _ = await timed(
        asyncio.gather(*(start_one(runtime, image, 1000 + i, "") for i in range(at_once)))
    )
    print(f"{f'{at_once} at once':<42}{seconds:9.2f} s")
    seconds, _ = await timed(
        asyncio.gather(*(runtime.remove_sandbox(s.id) for s in runtime.sandboxes()))
    )
    print(f"{f'{at_once} removed at once':<42}{seconds:9.2f} s")


class NoServices:
    async def synced(self) -> None: ...

    def list(self, namespace: str) -> list[Any]:
        return []


async def whole_node(
    host: RealLinuxHost, runtime: NativeRuntime, rounds: int, at_once: int
) -> None:
    clock, rng = RealClock(), random.Random(1)
    api = build_api_server(ServerOptions(store=MemoryStore(clock), clock=clock, rng=rng))
    await api.start()
    admin = InProcessClient(api, UserInfo("admin", ("system:masters", "system:authenticated")))
    client = InProcessClient(
        api,
        UserInfo(f"system:node:{NODE}", ("system:nodes", "system:authenticated")),
        user_agent="kubelet",
    )
    events = EventRecorder(client, "kubelet", clock, rng, host=NODE, release=DEFAULT)
    config = KubeletConfig(
        NODE, "192.168.0.1", max_pods=500, eviction_hard={"memory.available": "1Mi"}
    )
    env = KubeletContext(
        config,
        os_linux.RULES,
        client,
        clock,
        rng,
        events,
        host,
        runtime,
        NoServices(),
        _no_dial,
        lambda: None,
    )
    tasks = [asyncio.create_task(Kubelet(env).run()), asyncio.create_task(events.run())]
    await _when(
        lambda: admin.create(SERVICE_ACCOUNTS, "default", {"metadata": {"name": "default"}})
    )

    async def pod(name: str) -> float:
        began = time.perf_counter()
        container = {
            "name": "c",
            "image": IMAGE,
            "imagePullPolicy": "IfNotPresent",
            "command": ["sleep", "100000"],
        }
        spec = {
            "nodeName": NODE,
            "automountServiceAccountToken": False,
            "containers": [container],
            "terminationGracePeriodSeconds": 0,
        }
        await admin.create(PODS, "default", {"metadata": {"name": name}, "spec": spec})
        while True:
            found = await admin.get(PODS, "default", name)
            if (found.get("status") or {}).get("phase") == "Running":
                return time.perf_counter() - began
            await asyncio.sleep(0.002)

    await pod("first")
    row("a pod, from creation to running", [await pod(f"p{i}") for i in range(rounds)], 0.25)
    seconds, _ = await timed(asyncio.gather(*(pod(f"many{i}") for i in range(at_once))))
    print(f"{f'{at_once} pods at once':<42}{seconds:9.2f} s")
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await api.stop()


async def _when(call: Callable[[], Awaitable[Any]]) -> None:
    """As soon as the API server lets us."""
    while True:
        try:
            await call()
        except ApiError:
            await asyncio.sleep(0.01)
        else:
            return


async def _no_dial(address: str, port: int) -> Any:
    raise ConnectionRefusedError(address, port)


async def main(rounds: int, at_once: int, user_namespaces: bool | None) -> None:
    cgroup = f"/transom-bench/{os.getpid()}"
    with tempfile.TemporaryDirectory() as name:
        folder, clock = Path(name), RealClock()
        host = RealLinuxHost(NODE, clock, folder / "host")
        monitor = Monitor(folder / "native")
        images = NodeImages(ImageService(folder / "images"), f"bench/{NODE}", "linux")
        platform = LinuxPlatform(user_namespaces=user_namespaces)
        runtime = NativeRuntime(
            host, clock, monitor, platform, images, SandboxNetworking(Network()), cgroup
        )
        try:
            seconds, _ = await timed(runtime.start())
            print(
                f"{'the monitor':<42}{seconds * 1000:9.1f} ms   {_resident(monitor.pid) >> 20} MiB"
            )
            await runtime_alone(runtime, f"{cgroup}/{NODE}", rounds, at_once)
            await whole_node(host, runtime, rounds, at_once)
        finally:
            runtime.close()
            monitor.close()
            await destroy_cluster(folder / "native", cgroup)
            host.destroy()


def _resident(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--at-once", type=int, default=50)
    parser.add_argument(
        "--host-users", action="store_true", help="run pods without user namespaces"
    )
    chosen = parser.parse_args()
    uvloop.run(main(chosen.rounds, chosen.at_once, False if chosen.host_users else None))
