"""A task that starts and stops with its component."""

from __future__ import annotations

import asyncio

from transom.kit.background_task import BackgroundTask


async def _wait_until_cancelled(ended: list[str], error: Exception | None = None) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ended.append("ended")
        if error is not None:
            raise error


async def test_stop_waits_for_the_end_and_reports_whether_it_ran() -> None:
    ended: list[str] = []
    task = BackgroundTask("test")
    assert not await task.stop()
    task.start(_wait_until_cancelled(ended))
    await asyncio.sleep(0)
    assert await task.stop() and ended == ["ended"]
    assert not await task.stop()


async def test_an_error_of_the_task_does_not_keep_its_component_from_stopping() -> None:
    ended: list[str] = []
    task = BackgroundTask("test")
    task.start(_wait_until_cancelled(ended, ValueError("failed")))
    await asyncio.sleep(0)
    assert await task.stop() and ended == ["ended"]
