"""A containerd for the session, if it can run, and a node's runtime on it for each test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import ContextFactory
from tests.runtime.behaviour import Posix, RuntimeHarness
from tests.runtime.cri import containerd as containerds
from tests.runtime.cri.containerd import Containerd
from tests.runtime.tablenet import TableDataplane, TableNetwork

from transom.kit.clock import RealClock
from transom.machines.realhost import RealLinuxHost
from transom.runtime.cri.runtime import CriRuntime

Scenario = Callable[[RuntimeHarness], Awaitable[None]]


@pytest.fixture(scope="session")
def containerd() -> Iterator[Containerd]:
    why = containerds.unavailable()
    if why:
        pytest.skip(why)
    with containerds.running() as made:
        yield made


@asynccontextmanager
async def benched(containerd: Containerd, folder: Path) -> AsyncIterator[RuntimeHarness]:
    """Whatever happens, no sandbox stays."""
    host = RealLinuxHost("node1", RealClock(), folder / "node1")
    runtime = CriRuntime(
        RealClock(),
        containerd.endpoint,
        files=host.files,
        dial=containerd.dial,
        period=0.1,
        patience=20,
    )
    # it is not used: containerd has its own
    network = TableNetwork(TableDataplane(), "192.168.0.1", "10.88.0.0/24")
    try:
        await runtime.start()
        yield RuntimeHarness(
            "cri",
            runtime,
            host,
            Posix(),
            "busybox",
            "/var/log/pods/ns_web_uid-1",
            network,
            folder=folder,
        )
    finally:
        for sandbox in runtime.sandboxes():
            await runtime.remove_sandbox(sandbox.id)
        await runtime.close()
        host.destroy()


@pytest.fixture
def harness(containerd: Containerd, tmp_path: Path) -> ContextFactory:
    """Plays a scenario on a real containerd."""

    @asynccontextmanager
    async def start() -> AsyncIterator[Any]:
        async with asyncio.timeout(60), benched(containerd, tmp_path) as made:
            made.runtime.subscribe(made.received)
            yield made

    return start
