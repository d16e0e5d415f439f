"""What the attacks have in common: a container that exchanges files in a volume that others have
too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.runtime.behaviour import RuntimeHarness

from transom.runtime.api import LinuxContainer, Mount, RuntimeFailure

SHELL = ("sh", "-c")
ROUNDS = 8


def exchange(path: str, target: str) -> str:
    """A shell command that alternates, forever, a directory with a file and a link elsewhere, under
    the same name.
    """
    return (
        f"echo ready; while true; do rm -rf {path}; mkdir {path}; touch {path}/inside; "
        f"rm -rf {path}; ln -s -T {target} {path}; done 2>/dev/null"
    )


@asynccontextmanager
async def running(
    b: RuntimeHarness, command: str, sandbox: str, *mounts: Mount, **fields: Any
) -> AsyncIterator[str]:
    """A container that says "ready" and goes on."""
    made = await b.run((*SHELL, command), sandbox, mounts=mounts, **fields)
    await b.until(lambda: "ready" in b.printed(made))
    try:
        yield made
    finally:
        await b.runtime.stop_container(made, 0)


async def tried(
    b: RuntimeHarness, command: str, sandbox: str, *mounts: Mount, **fields: Any
) -> list[str] | None:
    """What a container says that ends by itself; None when it could not be made or started."""
    try:
        async with asyncio.timeout(20):
            made = await b.run((*SHELL, command), sandbox, mounts=mounts, **fields)
            await b.ended(made)
    except RuntimeFailure:
        return None
    return [text for stream in ("stdout", "stderr") for text in b.printed(made, stream)]


def linux(**fields: Any) -> dict[str, LinuxContainer]:
    return {"linux": LinuxContainer(**fields)}


def masked(**fields: Any) -> dict[str, LinuxContainer]:
    """As a kubelet has them for containers that are not privileged."""
    from transom.kubelet.os_linux_pods import MASKED, READ_ONLY

    return linux(masked_paths=MASKED, read_only_paths=READ_ONLY, **fields)
