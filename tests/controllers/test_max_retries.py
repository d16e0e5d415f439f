"""An item that keeps failing leaves the queue after fifteen retries."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from transom.client.workqueue import RetryLater
from transom.controllers.base import MAX_RETRIES, with_max_retries
from transom.machinery import errors
from transom.machinery.errors import ApiError


class Queue:
    def __init__(self, failures: int) -> None:
        self._failures = failures
        self.dropped: list[str] = []

    def failures(self, _key: str) -> int:
        return self._failures

    def set_aside(self, key: str) -> None:
        self.dropped.append(key)


@pytest.mark.parametrize("error", [errors.internal("broken"), RetryLater("stale")])
def test_the_last_failure_drops_the_item(error: Exception) -> None:
    async def sync(_key: str) -> None:
        raise error

    queue: Any = Queue(MAX_RETRIES - 1)
    with pytest.raises((ApiError, RetryLater)):
        asyncio.run(with_max_retries(queue, "default/web", sync, "service"))
    assert queue.dropped == []
    queue = Queue(MAX_RETRIES)
    asyncio.run(with_max_retries(queue, "default/web", sync, "service"))
    assert queue.dropped == ["default/web"]


def test_other_errors_are_raised() -> None:
    async def sync(_key: str) -> None:
        raise KeyError("bug")

    queue: Any = Queue(MAX_RETRIES)
    with pytest.raises(KeyError):
        asyncio.run(with_max_retries(queue, "default/web", sync, "service"))
    assert queue.dropped == []
