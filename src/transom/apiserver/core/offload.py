"""Which requests are too large for the event loop, and where their work runs instead.

Decoding, defaulting, field management and validation are pure functions of an object. For an object
up to a few dozen kilobytes they run on the event loop; for a larger one they run in the worker
thread of `kit.workers`, in turns by user and with a limit on CPU time, so that one large request
does not delay the others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from transom.apiserver.core.context import RequestContext
from transom.kit.workers import WorkRejected, WorkRunner, WorkTimeout
from transom.machinery import errors

T = TypeVar("T")

LARGE_JSON = 48 * 1024  # bytes of JSON or protobuf that take about 5 ms per step of the request
LARGE_YAML = 8 * 1024  # YAML takes ten times as long to parse
_COSTLY = 3 * LARGE_JSON  # bytes times the weight of their schema, which is an upper bound

_TIMEOUT = "request did not complete within requested timeout"
_BUSY = "too many requests, please try again later"


class RunInWorker(Protocol):
    """Runs a pure function in the worker thread."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


def is_large(raw: bytes, media: str, weight: float = 1.0) -> bool:
    """Whether processing a body takes long; `weight` is that of its type."""
    if weight > 1 and is_costly(len(raw), weight):
        return True
    return len(raw) > LARGE_YAML and ("yaml" in media or len(raw) > LARGE_JSON)


def is_costly(size: int, weight: float) -> bool:
    """Whether JSON of this size takes long to process, for a type whose schema has this weight."""
    return size > LARGE_JSON or size * weight > _COSTLY


async def compute_in_worker(workers: WorkRunner, ctx: RequestContext, work: Callable[[], T]) -> T:
    """The result of a pure function that may take long."""
    try:
        return await workers.run(work, group=ctx.user.name)
    except WorkTimeout:
        raise errors.timeout(f"Timeout: {_TIMEOUT}") from None
    except WorkRejected:
        raise errors.too_many_requests(_BUSY, 1) from None
