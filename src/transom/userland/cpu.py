"""CPU time: work takes as long as the container's limit makes it take."""

from __future__ import annotations

from transom.userland.api import ProgramContext


async def use_cpu(context: ProgramContext, seconds: float) -> None:
    """Returns after one thread has used this much CPU time."""
    usage = context.usage
    speed = usage.thread(True)
    try:
        await context.clock.sleep(seconds / speed)
    finally:
        usage.thread(False)
