"""`powershell.exe`."""

from __future__ import annotations

from transom.runtime.sim.programs.process import Process


async def run(process: Process) -> int:
    return 0
