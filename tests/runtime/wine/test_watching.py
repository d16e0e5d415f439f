"""Waiting for a file or for the end of a process, without a timer."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from pathlib import Path

import pytest

from transom.runtime.wine import watching


@pytest.fixture(autouse=True)
def no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_AT_LEAST", 60.0)


def test_what_is_written_wakes(tmp_path: Path) -> None:
    async def start(file: int) -> None:
        with watching.watch_job(tmp_path, os.getpid()) as news:
            for word in (b"pid 1\n", b"exit 0\n"):
                os.write(file, word)
                await asyncio.wait_for(news.wait(), 10)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(news.wait(), 0.05)

    with open(tmp_path / "status", "wb") as file:
        asyncio.run(start(file.fileno()))


def test_an_end_wakes_again_and_again_until_it_is_seen(tmp_path: Path) -> None:
    async def start(pid: int) -> None:
        with watching.watch_job(tmp_path, pid) as news:
            for _ in range(3):
                await asyncio.wait_for(news.wait(), 10)

    with subprocess.Popen(["true"]) as child:
        asyncio.run(start(child.pid))


async def test_without_the_kernel_there_is_a_timer(tmp_path: Path) -> None:
    with watching.watch_job(tmp_path / "none", os.getpid()) as news:
        began = time.monotonic()
        await asyncio.wait_for(news.wait(), 10)
        assert time.monotonic() - began < 5


async def test_nothing_stays_open(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    with watching.watch_job(tmp_path, os.getpid()):
        assert len(os.listdir("/proc/self/fd")) == len(before) + 2
    assert len(os.listdir("/proc/self/fd")) == len(before)
