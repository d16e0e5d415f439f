"""Retries when another client changed the object first."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from transom.client.api import is_conflict
from transom.kit.clock import Clock
from transom.kit.named_tuple import NamedTuple
from transom.machinery.errors import ApiError

Result = TypeVar("Result")


class Backoff(NamedTuple):
    steps: int
    duration: float
    factor: float = 1.0
    jitter: float = 0.1


DEFAULT_RETRY = Backoff(5, 0.01)  # several writers of one object
DEFAULT_BACKOFF = Backoff(4, 0.01, 5.0)  # an object that a controller updates often


async def retry_on_conflict(
    attempt: Callable[[], Awaitable[Result]],
    clock: Clock,
    rng: random.Random,
    backoff: Backoff = DEFAULT_RETRY,
) -> Result:
    """Calls `attempt`, which reads the object again each time, until it raises no conflict; raises
    the last one.
    """
    duration = backoff.duration
    for _ in range(backoff.steps - 1):
        try:
            return await attempt()
        except ApiError as problem:
            if not is_conflict(problem):
                raise
        await clock.sleep(duration * (1 + backoff.jitter * rng.random()))
        duration *= backoff.factor
    return await attempt()
