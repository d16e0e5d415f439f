"""Processes that the supervisor starts, when the supervisor itself ends."""

from __future__ import annotations

import os
import select
import subprocess
import sys

# The child ignores SIGTERM, as a leader of etcd does for a while.
SUPERVISOR = """
import asyncio, signal, sys
from transom.cluster.ha.processes import ManagedProcess

CHILD = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"

async def main():
    child = ManagedProcess(
        "child", [sys.executable, "-c", CHILD],
        on_line=lambda line: print(child.pid, flush=True),
        parent_death_signal=signal.SIGKILL,
    )
    await child.start()
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_a_process_that_must_not_outlive_the_supervisor_is_killed_with_it() -> None:
    command = [sys.executable, "-c", SUPERVISOR]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        child = os.pidfd_open(int(supervisor.stdout.readline()))
        supervisor.kill()
    ended, _, _ = select.select([child], [], [], 20)
    os.close(child)
    assert ended
