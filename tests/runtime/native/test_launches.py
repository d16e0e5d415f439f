"""Programs that start a container's process, and that wait for something which never comes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from transom.runtime.native.client import Monitor

# In a process of its own: the monitor's loop reaps all children.
MONITOR = """
import os, sys
from transom.runtime.native.monitor import tasks
from transom.runtime.native.monitor.loop import MonitorLoop

tasks.START_SECONDS = tasks._CLEAN_UP_SECONDS = 0.05
loop = MonitorLoop()
null = os.open(os.devnull, os.O_RDWR)

def done(pid, text):
    print(pid, text)
    loop.ended = True

files = [sys.argv[2] + "/pid", sys.argv[2] + "/log"]
tasks.TaskLaunch(loop, ["/bin/sh", "-c", sys.argv[1]], [null] * 3, *files, done)
loop.run()
"""


@pytest.mark.parametrize("after", ["exit 1", "exec sleep 1000"])
def test_a_launch_that_waits_for_ever_is_ended(after: str, tmp_path: Path) -> None:
    """runc opens /etc/passwd of the container, which may be a pipe."""
    pipe = tmp_path / "passwd"
    os.mkfifo(pipe)
    command = [sys.executable, "-c", MONITOR, f"cat {pipe}; {after}", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.stderr) == ("0 context deadline exceeded\n", "")


async def test_a_turn_that_takes_long_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a few containers that hang would keep all others from starting."""
    monkeypatch.setattr("transom.runtime.native.client._LONGEST_TURN", 0.01)
    monkeypatch.setattr("transom.runtime.native.client._AT_ONCE", 1)
    monitor = Monitor(tmp_path)
    for _ in range(2):
        async with monitor.turn(), asyncio.timeout(10), monitor.turn():
            pass
