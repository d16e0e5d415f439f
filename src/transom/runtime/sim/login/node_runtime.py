"""A node's container runtime, as the programs on its machine use it."""

from __future__ import annotations

from typing import Protocol

from transom.runtime.api import RuntimeStatus, RuntimeVersion
from transom.runtime.sim.core import SimCore
from transom.runtime.sim.service import RuntimeService


class NodeRuntime(Protocol):
    service: RuntimeService

    @property
    def core(self) -> SimCore: ...
    @property
    def version(self) -> RuntimeVersion: ...
    def status(self) -> RuntimeStatus: ...
    async def shut_down(self, seconds: float) -> None: ...
