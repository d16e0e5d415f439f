"""Events of the events.k8s.io group, as the scheduler records them: with an action, and repeats as
a series.

An event about the same state of the same object as before starts a series; the series is written
when it begins, every half hour while it lasts, and after six minutes without a new event.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Hashable

from transom.client.api import STRATEGIC_PATCH, ApiClient, is_already_exists, is_not_found
from transom.client.events import REFERENCE, TRIES, TRY_SECONDS, EventStamp, object_reference
from transom.client.keyed_tasks import KeyedTasks
from transom.client.resources import NEW_EVENTS
from transom.kit.clock import Clock, parse_rfc3339, rfc3339_micro
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

log = logging.getLogger("transom.client")

_FINISH_SECONDS = 360.0
_REFRESH_SECONDS = 1800.0


class SeriesRecorder:
    """`controller` and `instance` are the reporter that users see. Run `run` as a task."""

    def __init__(
        self, client: ApiClient, controller: str, instance: str, clock: Clock, rng: random.Random
    ) -> None:
        self._client = client
        self._reporter = {"reportingController": controller, "reportingInstance": instance}
        self._clock = clock
        self._rng = rng
        self._stamp = EventStamp(clock)
        self._lanes: KeyedTasks[Object] = KeyedTasks(self._record)
        self._recorded: dict[Hashable, Object] = {}

    def event(
        self,
        about: Object,
        kind: str,
        reason: str,
        action: str,
        note: str,
        *,
        related: Object | None = None,
    ) -> None:
        """Records an event about an object; `related` is another object that is involved. Both may
        be references.
        """
        regarding = _reference(about)
        event: Object = {
            "kind": "Event",
            "apiVersion": "events.k8s.io/v1",
            "metadata": {
                "name": self._stamp.name(regarding["name"]),
                "namespace": regarding.get("namespace") or "default",
            },
            "eventTime": rfc3339_micro(self._clock.time()),
            **self._reporter,
            "action": action,
            "reason": reason,
            "regarding": regarding,
            "note": note,
            "type": kind,
        }
        if related is not None:
            event["related"] = _reference(related)
        self._lanes.add(regarding.get("uid") or regarding["name"], event)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._lanes.run())
            group.create_task(self._every(_FINISH_SECONDS, self._finish))
            group.create_task(self._every(_REFRESH_SECONDS, self._refresh))

    async def _every(self, seconds: float, act: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._clock.sleep(seconds)
            await act()

    async def _record(self, event: Object) -> None:
        key = _key(event)
        recorded = self._recorded.get(key)
        if recorded is not None:
            now = rfc3339_micro(self._clock.time())
            if "series" in recorded:
                recorded["series"] = {
                    "count": recorded["series"]["count"] + 1,
                    "lastObservedTime": now,
                }
                return
            event = {**recorded, "series": {"count": 1, "lastObservedTime": now}}
        self._recorded[key] = event
        for _ in range(TRIES):
            if await self._write(event):
                return
            await self._clock.sleep(TRY_SECONDS * (1 + 0.25 * self._rng.random()))
        log.warning("the event %s is given up", event["metadata"]["name"])

    async def _refresh(self) -> None:
        for event in [*self._recorded.values()]:
            if "series" in event:
                await self._write(event)

    async def _finish(self) -> None:
        before = self._clock.time() - _FINISH_SECONDS
        for key, event in [*self._recorded.items()]:
            series = event.get("series")
            last = series["lastObservedTime"] if series else event["eventTime"]
            if parse_rfc3339(last) < before and (series is None or await self._write(event)):
                self._recorded.pop(key, None)

    async def _write(self, event: Object) -> bool:
        """Returns whether it is done, without a retry."""
        meta = event["metadata"]
        try:
            if "series" in event:
                try:
                    patch = {"series": event["series"]}
                    await self._client.patch(
                        NEW_EVENTS, meta["namespace"], meta["name"], patch, STRATEGIC_PATCH
                    )
                    return True
                except ApiError as problem:
                    if not is_not_found(problem):
                        raise
            await self._client.create(NEW_EVENTS, meta["namespace"], event)
        except ApiError as problem:
            if not is_already_exists(problem):
                log.info("the server refused the event %s: %s", meta["name"], problem)
        except OSError as problem:
            log.info("the event %s could not be written: %s", meta["name"], problem)
            return False
        return True


def _reference(about: Object) -> Object:
    return object_reference(about) if "metadata" in about else about


def _key(event: Object) -> Hashable:
    """Events that differ only in their note are the same."""
    regarding, related = event["regarding"].get, (event.get("related") or {}).get
    return (event["action"], event["reason"], *map(regarding, REFERENCE), *map(related, REFERENCE))
