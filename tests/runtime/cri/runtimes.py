"""A runtime with a fake CRI server and a virtual clock, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.runtime.cri.fakecri import FakeCri, running

from transom.kit.clock import VirtualClock
from transom.runtime.api import (
    ContainerConfig,
    SandboxConfig,
)

SANDBOX = SandboxConfig("web", "ns", "uid-1", labels={"a": "b"}, log_directory="/var/log/pods/x")
CONTAINER = ContainerConfig("c", 0, "busybox", "sha256:1", log_path="c/0.log")


@asynccontextmanager
async def start(folder: Path, fake: FakeCri | None = None, **options: Any) -> AsyncIterator[Any]:
    clock, runtime_of = VirtualClock(), fake or FakeCri()
    async with asyncio.timeout(20), running(runtime_of, folder, clock, **options) as runtime:
        yield (runtime, runtime_of, clock)


async def pass_time(clock: VirtualClock, seconds: float) -> None:
    """Real input and output happens between the ticks; however slow the machine, what woke up
    sleeps again before the next.
    """
    for _ in range(round(seconds / 0.5)):
        asleep = clock.pending
        clock.advance(0.5)
        for _ in range(500):
            await asyncio.sleep(0.01)
            if clock.pending >= asleep:
                break
