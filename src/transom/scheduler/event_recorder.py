"""Records the scheduler's events. While pods are waiting to be scheduled only few events are
written, so that bindings come first.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections import deque
from collections.abc import Callable

from transom.client.api import ApiClient
from transom.client.events import object_reference
from transom.client.series import SeriesRecorder
from transom.kit.clock import Clock
from transom.kit.named_tuple import NamedTuple
from transom.machinery.objects import Object

NOTE_LIMIT = 1024
_QUEUED = 20_000
_PRESSING = 10_000  # with this many queued events, they are no longer delayed
_PAUSE = 0.01
_AT_ONCE, _AT_ONCE_BUSY = 20, 1


class _Event(NamedTuple):
    regarding: Object
    kind: str
    reason: str
    action: str
    note: str
    related: Object | None


class SchedulerEventRecorder:
    """Records events of one profile. `busy` reports whether pods are waiting to be scheduled."""

    def __init__(
        self,
        client: ApiClient,
        name: str,
        clock: Clock,
        rng: random.Random,
        busy: Callable[[], bool],
    ) -> None:
        self._recorder = SeriesRecorder(client, name, f"{name}-{socket.gethostname()}", clock, rng)
        self._clock = clock
        self._busy = busy
        self._queue: deque[_Event] = deque()
        self._wake = asyncio.Event()

    def event(
        self,
        regarding: Object,
        kind: str,
        reason: str,
        action: str,
        note: str,
        related: Object | None = None,
    ) -> None:
        if len(self._queue) < _QUEUED:
            # Queue references only, so that the queue does not keep whole objects alive.
            of = None if related is None else object_reference(related)
            self._queue.append(_Event(object_reference(regarding), kind, reason, action, note, of))
            self._wake.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._recorder.run())
            group.create_task(self._forward())

    async def _forward(self) -> None:
        while True:
            waits = self._busy() and len(self._queue) < _PRESSING
            for _ in range(_AT_ONCE_BUSY if waits else _AT_ONCE):
                if self._queue:
                    event = self._queue.popleft()
                    self._recorder.event(*event[:5], related=event.related)
            if self._queue:
                await self._clock.sleep(_PAUSE)
            else:
                self._wake.clear()
                await self._wake.wait()


def truncate_message(note: str) -> str:
    return note if len(note) <= NOTE_LIMIT else note[: NOTE_LIMIT - 4] + " ..."
