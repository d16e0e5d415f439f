"""Processes that the supervisor starts, when the supervisor itself ends."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

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
        child = Path("/proc") / supervisor.stdout.readline().strip()
        assert child.exists()
        supervisor.kill()
    deadline = time.monotonic() + 20
    while child.exists() and "\nState:\tZ" not in (child / "status").read_text():
        assert time.monotonic() < deadline, "it is still running"
        time.sleep(0.01)
