"""Work that takes processor time, and so as long as the container's limit makes it take."""

from __future__ import annotations

from transom.runtime.sim.program_api import ProgramContext


async def compute(context: ProgramContext, seconds: float) -> None:
    """Returns when one thread has used so much processor time."""
    usage = context.usage
    speed = usage.thread(True)
    try:
        await context.clock.sleep(seconds / speed)
    finally:
        usage.thread(False)
