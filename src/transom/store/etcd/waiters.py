"""Callers that wait until the copy in memory has reached a revision of etcd."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Sequence
from itertools import count
from typing import Any

from transom.kit.rpc import RpcError
from transom.store.api import StoreUnavailable

_WAIT_SECONDS = 15.0


class RevisionWaiters:
    def __init__(self) -> None:
        self._heap: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = count()  # so that futures are never compared

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, revision: int, *waiters: asyncio.Future[None]) -> None:
        for waiter in waiters:
            heapq.heappush(self._heap, (revision, next(self._numbers), waiter))

    def reached(self, revision: int) -> None:
        while self._heap and self._heap[0][0] <= revision:
            waiter = heapq.heappop(self._heap)[2]
            if not waiter.done():
                waiter.set_result(None)

    def take_all(self) -> list[asyncio.Future[None]]:
        waiting, self._heap = self._heap, []
        return [waiter for _, _, waiter in waiting]


async def wait_bounded(waiter: asyncio.Future[None]) -> None:
    """Waits for the copy, but not forever: the watch may fail while calls succeed."""
    try:
        async with asyncio.timeout(_WAIT_SECONDS):
            await waiter
    except TimeoutError:
        raise StoreUnavailable("etcdserver: request timed out") from None


def etcd_error_text(problem: RpcError) -> str:
    """As Kubernetes shows it: etcd's own errors and an elapsed deadline without the code of gRPC."""
    if problem.code == "DeadlineExceeded":
        return "context deadline exceeded"
    return problem.description if problem.description.startswith("etcdserver:") else str(problem)


def fail_waiters(futures: Sequence[asyncio.Future[Any]], problem: RpcError) -> None:
    for future in futures:
        if not future.done():
            error = StoreUnavailable(etcd_error_text(problem))
            error.__cause__ = problem
            future.set_exception(error)
