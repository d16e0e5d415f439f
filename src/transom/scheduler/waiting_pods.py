"""Pods that permit plugins have asked to wait before they are bound."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from transom.kit.clock import Clock, Timer
from transom.kit.durations import format_duration
from transom.scheduler.framework import Code, Status, unschedulable
from transom.scheduler.pods import PodInfo


class PermitWait:
    """The wait of one pod, which ends with the first rejection or time-out, or when all plugins
    allow it.
    """

    def __init__(self, pod: PodInfo, timeouts: Mapping[str, float], clock: Clock) -> None:
        self.pod = pod
        self._result: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        self._timers: dict[str, Timer] = {
            plugin: clock.call_later(seconds, partial(self._time_out, plugin, seconds))
            for plugin, seconds in timeouts.items()
        }

    def pending_plugins(self) -> list[str]:
        return [*self._timers]

    def allow(self, plugin_name: str) -> None:
        timer = self._timers.pop(plugin_name, None)
        if timer is not None:
            timer.cancel()
        if not self._timers:
            self._end(Status(Code.SUCCESS))

    def reject(self, message: str) -> None:
        self.cancel_timers()
        self._end(unschedulable(message))

    def _time_out(self, plugin: str, seconds: float) -> None:
        waited = format_duration(seconds)
        self.reject(f"rejected due to timeout after waiting {waited} at plugin {plugin}")

    def _end(self, status: Status) -> None:
        if not self._result.done():
            self._result.set_result(status)

    def cancel_timers(self) -> None:
        for timer in self._timers.values():
            timer.cancel()

    async def wait(self) -> Status:
        return await self._result


class WaitingPods:
    """The waiting pods of all profiles, by UID."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pods: dict[str, PermitWait] = {}

    def add(self, pod: PodInfo, timeouts: Mapping[str, float]) -> None:
        self._pods[pod.uid] = PermitWait(pod, timeouts, self._clock)

    def get(self, uid: str) -> PermitWait | None:
        return self._pods.get(uid)

    def remove(self, uid: str) -> None:
        wait = self._pods.pop(uid, None)
        if wait is not None:
            wait.cancel_timers()

    def list(self) -> list[PermitWait]:
        return [*self._pods.values()]
