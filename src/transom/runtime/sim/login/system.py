"""Windows' own services, as far as people who look after a node ask for them. Only the networking service can be restarted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

PROGRAM: Final = r"C:\Windows\System32\svchost.exe"
NETWORKING: Final = "hns"


class Row(NamedTuple):
    name: str
    display_name: str


SERVICES: Final = (
    Row("Dnscache", "DNS Client"),
    Row("EventLog", "Windows Event Log"),
    Row(NETWORKING, "Host Network Service"),
    Row("RpcSs", "Remote Procedure Call (RPC)"),
    Row("vmcompute", "Hyper-V Host Compute Service"),
    Row("W32Time", "Windows Time"),
)


class Resident:
    """A process that does what it does somewhere else: here it is only there, until it is stopped."""

    def __init__(self, pid: int, ended: Callable[[], None]) -> None:
        self.pid = pid
        self._tell = ended
        self._end: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def ready(self) -> None:
        return

    async def wait(self) -> int:
        return await asyncio.shield(self._end)

    async def stop(self) -> None:
        if not self._end.done():
            self._end.set_result(0)
            self._tell()
