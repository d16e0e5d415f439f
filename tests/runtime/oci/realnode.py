"""A whole node in real time: an API server, a kubelet, and a runtime whose containers are processes
of this machine.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.kubelet.conftest import IP, NODE, NoServices
from tests.runtime import behaviour
from tests.runtime.behaviour import RuntimeHarness

from transom.apiserver.core.context import UserInfo
from transom.apiserver.server import ServerOptions, build_api_server
from transom.apiserver.serving.inprocess import InProcessClient
from transom.client.events import EventRecorder
from transom.client.resources import EVENTS, PODS, SERVICE_ACCOUNTS
from transom.kit.clock import RealClock
from transom.kubelet import os_linux, os_windows
from transom.kubelet.base import KubeletContext
from transom.kubelet.config import KubeletConfig
from transom.kubelet.kubelet import Kubelet
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.machinery.releases import DEFAULT
from transom.store.memory import MemoryStore

PATIENCE = 30.0


class RealNode:
    def __init__(self, harness: RuntimeHarness) -> None:
        self.harness = harness
        self.clock = RealClock()
        self.rng = random.Random()
        self.api = build_api_server(
            ServerOptions(store=MemoryStore(self.clock), clock=self.clock, rng=self.rng)
        )
        self.client = InProcessClient(
            self.api, UserInfo("admin", ("system:masters", "system:authenticated"))
        )
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await self.api.start()
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    account = {"metadata": {"name": "default", "namespace": "default"}}
                    await self.client.create(SERVICE_ACCOUNTS, "default", account)
                    break
                except ApiError:
                    await asyncio.sleep(0.01)
        await self.start_kubelet()

    async def start_kubelet(self) -> None:
        user = UserInfo(f"system:node:{NODE}", ("system:nodes", "system:authenticated"))
        client = InProcessClient(self.api, user, user_agent="kubelet")
        events = EventRecorder(client, "kubelet", self.clock, self.rng, release=DEFAULT, host=NODE)
        settings: dict[str, Any] = {}
        if self.harness.windows:
            settings = {
                "cgroups_per_qos": False,
                "enforce_node_allocatable": (),
                "resolv_conf": "",
                "root_dir": "C:\\var\\lib\\kubelet",
                "pod_logs_dir": "C:\\var\\log\\pods",
            }
        # A full disk of the machine that runs the tests must not affect them.
        settings["eviction_hard"] = {"memory.available": "1Mi"}
        self.env = env = KubeletContext(
            KubeletConfig(NODE, IP, cluster_dns=("10.96.0.10",), **settings),
            os_windows.RULES if self.harness.windows else os_linux.RULES,
            client,
            self.clock,
            self.rng,
            events,
            self.harness.host,
            self.harness.runtime,
            NoServices(),
            _no_dial,
            lambda: None,
        )
        self.kubelet = Kubelet(env)
        self._tasks = [asyncio.create_task(self.kubelet.run()), asyncio.create_task(events.run())]

    async def stop_kubelet(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def stop(self) -> None:
        await self.stop_kubelet()
        await self.api.stop()

    async def create(
        self, name: str, *command: str, container: Object | None = None, **spec: Any
    ) -> Object:
        """A pod with one container `c`."""
        one = {
            "name": "c",
            "image": self.harness.image,
            "imagePullPolicy": "IfNotPresent",
            "command": list(command),
        }
        pod = {
            "metadata": {"name": name},
            "spec": {
                "nodeName": NODE,
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 1,
                "containers": [{**one, **(container or {})}],
                **spec,
            },
        }
        return await self.client.create(PODS, "default", pod)

    async def pod(self, name: str) -> Object:
        return await self.client.get(PODS, "default", name)

    async def until(self, name: str, condition: Callable[[Object], bool]) -> Object:
        """The pod, when it is so."""
        found: Object = {}
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    found = await self.pod(name)
                    if condition(found):
                        return found
                    await asyncio.sleep(0.005)
        except TimeoutError:
            raise AssertionError(
                found.get("status"), [e["message"] for e in await self.events()]
            ) from None

    async def gone(self, name: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    await self.pod(name)
                except ApiError:
                    return
                await asyncio.sleep(0.005)

    async def delete(self, name: str) -> None:
        await self.client.delete(PODS, "default", name)

    async def events(self) -> list[Object]:
        return (await self.client.list(EVENTS, "default")).items


async def _no_dial(address: str, port: int) -> Any:
    raise ConnectionRefusedError(address, port)


def status(pod: Object, name: str = "c") -> Object:
    """Of a container."""
    rows = (pod.get("status") or {}).get("containerStatuses") or ()
    return next((row for row in rows if row["name"] == name), {})


@asynccontextmanager
async def real_node(kind: str, folder: Path) -> AsyncIterator[RealNode]:
    async with behaviour.KINDS[kind](folder) as harness:
        node = RealNode(harness)
        await node.start()
        try:
            yield node
        finally:
            await node.stop()
