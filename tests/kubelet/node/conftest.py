"""A machine and a runtime reduced to what a node agent uses, and an API server on virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.conftest import ContextFactory
from tests.inline_workers import InlineWorkers

from transom.apiserver.core.context import UserInfo
from transom.apiserver.server import ServerOptions, build_api_server
from transom.apiserver.serving.inprocess import InProcessClient
from transom.client.events import EventRecorder
from transom.client.resources import EVENTS, NODES
from transom.kit.clock import VirtualClock
from transom.kubelet import os_linux, os_windows
from transom.kubelet.base import KubeletContext
from transom.kubelet.config import KubeletConfig
from transom.kubelet.node.agent import NodeAgent
from transom.machinery.objects import Object
from transom.machinery.releases import DEFAULT
from transom.machines.api import DiskSpace, Hardware, SystemInfo
from transom.runtime.api import Image, RuntimeStatus, RuntimeVersion
from transom.store.memory import MemoryStore

LINUX = SystemInfo(
    "n1", "m-id", "s-uuid", "boot-1", "5.4.0-42-generic", "Ubuntu 20.04.1 LTS", "linux", "amd64"
)
WINDOWS = SystemInfo(
    "WIN1",
    "WIN1",
    "s-uuid",
    "7",
    "10.0.17763.1697",
    "Windows Server 2019 Datacenter",
    "windows",
    "amd64",
)


class FakeHost:
    def __init__(self, identity: SystemInfo = LINUX, hardware: Hardware | None = None) -> None:
        self.identity = identity
        self.hardware = hardware or Hardware(disk=101430960 * 1024)

    def disk(self) -> DiskSpace:
        return DiskSpace(self.hardware.disk, 0, 0, 0)


class FakeRuntime:
    def __init__(self) -> None:
        self.version = RuntimeVersion("docker", "19.3.14-sim")
        self.problem = RuntimeStatus()
        self.present: list[Image] = []
        self.reads = 0  # of the status

    def status(self) -> RuntimeStatus:
        self.reads += 1
        return self.problem

    def images(self) -> list[Image]:
        return self.present


class Plane:
    """An API server, and kubelets' node agents on it."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.rng = random.Random(7)
        self.api = build_api_server(
            ServerOptions(
                store=MemoryStore(self.clock),
                workers=InlineWorkers(),
                clock=self.clock,
                rng=self.rng,
            )
        )
        self.client = InProcessClient(
            self.api, UserInfo("admin", ("system:masters", "system:authenticated"))
        )
        self.host, self.runtime = FakeHost(), FakeRuntime()
        self.tasks: list[asyncio.Task[None]] = []

    def agent(self, **settings: Any) -> NodeAgent:
        identity = self.host.identity
        windows = identity.operating_system == "windows"
        if windows:
            settings = {"cgroups_per_qos": False, "enforce_node_allocatable": (), **settings}
        config = KubeletConfig(node_name="n1", node_ip="10.0.0.1", **settings)
        client = InProcessClient(
            self.api, UserInfo("system:node:n1", ("system:nodes", "system:authenticated"))
        )
        events = EventRecorder(client, "kubelet", self.clock, self.rng, release=DEFAULT, host="n1")
        env: Any = KubeletContext(
            config,
            os_windows.RULES if windows else os_linux.RULES,
            client,
            self.clock,
            self.rng,
            events,
            self.host,
            self.runtime,
            None,
            None,
            lambda: None,  # type: ignore[arg-type]
        )
        agent = NodeAgent(env)
        self.tasks += [asyncio.create_task(agent.run()), asyncio.create_task(events.run())]
        return agent

    async def settle(self, seconds: float = 0.3) -> None:
        await self.clock.run_for(seconds, turns=100)

    async def node(self) -> Object:
        return await self.client.get(NODES, "", "n1")

    async def condition(self, kind: str) -> Object:
        return next(c for c in (await self.node())["status"]["conditions"] if c["type"] == kind)

    async def events(self) -> list[tuple[str, str]]:
        listing = await self.client.list(EVENTS, "default")
        recorded = [
            e
            for e in listing.items
            if e["involvedObject"] == {"kind": "Node", "name": "n1", "uid": "n1"}
        ]
        return [
            (e["reason"], e["message"])
            for e in sorted(recorded, key=lambda e: e["metadata"]["name"])
        ]

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)
        self.tasks = []


@pytest.fixture
def control_plane() -> ContextFactory:
    @asynccontextmanager
    async def run() -> AsyncIterator[Plane]:
        plane = Plane()
        await plane.api.start()
        try:
            async with asyncio.timeout(30):
                yield plane
        finally:
            await plane.stop()
            await plane.api.stop()

    return run
