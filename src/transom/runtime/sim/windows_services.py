"""Windows' own services, as far as node administrators need them. Only the networking service can
be restarted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

PROGRAM: Final = r"C:\Windows\System32\svchost.exe"
NETWORKING: Final = "hns"
OF_CONTAINERS: Final = (NETWORKING, "vmcompute")  # services of the feature Containers


class WindowsServiceRow(NamedTuple):
    name: str
    display_name: str


SERVICES: Final = (
    WindowsServiceRow("Dnscache", "DNS Client"),
    WindowsServiceRow("EventLog", "Windows Event Log"),
    WindowsServiceRow(NETWORKING, "Host Network Service"),
    WindowsServiceRow("RpcSs", "Remote Procedure Call (RPC)"),
    WindowsServiceRow("vmcompute", "Hyper-V Host Compute Service"),
    WindowsServiceRow("W32Time", "Windows Time"),
)


# By runtime: the display name of its service, and the command line of its process.
RUNTIMES: Final = {
    "docker": ("Docker Engine", r'"C:\Program Files\Docker\dockerd.exe" --run-service'),
    "containerd": ("containerd", r'"C:\Program Files\containerd\containerd.exe" --run-service'),
}


class ResidentProgram:
    """A placeholder process that runs until it is stopped; its work is done elsewhere."""

    def __init__(self, pid: int, ended: Callable[[], None]) -> None:
        self.pid = pid
        self._on_end = ended
        self._end: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def ready(self) -> None:
        return

    async def wait(self) -> int:
        return await asyncio.shield(self._end)

    async def stop(self) -> None:
        self.finish()

    def finish(self) -> None:
        if not self._end.done():
            self._end.set_result(0)
            self._on_end()
