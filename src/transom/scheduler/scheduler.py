"""The scheduler: takes pods from the queue, finds each a node, writes the binding; or says why there is none."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any

from transom.client.api import STRATEGIC_PATCH, Client
from transom.client.informer import InformerFactory
from transom.client.resources import PODS
from transom.kit.clock import Clock, rfc3339
from transom.machinery import podutil
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.scheduler.cache import PodCache
from transom.scheduler.config import SchedulerConfig
from transom.scheduler.cycle import Choice, Finder
from transom.scheduler.events import Announcer, shortened
from transom.scheduler.framework import Cycle, Failure, Handle, SchedulingError
from transom.scheduler.handlers import Handlers
from transom.scheduler.nominator import Nominator
from transom.scheduler.pods import PodInfo
from transom.scheduler.profile import Profile
from transom.scheduler.queue import SchedulingQueue, Waiting
from transom.scheduler.snapshot import Snapshot

log = logging.getLogger("transom.scheduler")

USER = "system:kube-scheduler"
USER_AGENT = "kube-scheduler"
_NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"
_TURN_SECONDS = 0.003  # how long pods are placed before others get the loop
_BINDINGS = 32  # how many are written at the same time; clients keep so many connections
_EXPIRE_SECONDS = 1.0
_BUSY_SECONDS = 0.25
_UNSCHEDULABLE, _SCHEDULER_ERROR = "Unschedulable", "SchedulerError"


class Scheduler:
    def __init__(self, client: Client, clock: Clock, rng: random.Random, config: SchedulerConfig | None = None) -> None:
        config = config or SchedulerConfig()
        self._client = client
        self._clock = clock
        self.informers = InformerFactory(client, clock, rng)
        self.pods = self.informers(PODS, field_selector=_NOT_ENDED)
        self.snapshot = Snapshot()
        self.cache = PodCache(self.snapshot, clock)
        self.nominator = Nominator(lambda key: self.pods.by_key(key) is not None)
        self.queue = SchedulingQueue(
            clock, self.nominator, initial_backoff=config.initial_backoff, max_backoff=config.max_backoff
        )
        self._announcers = {
            p.name: Announcer(client, p.name, clock, rng, self._busy) for p in config.profiles
        }
        handle = Handle(
            self.snapshot, client, self.informers, self.pods, clock, rng, self.nominator, self._announcers.__getitem__
        )
        self.profiles: dict[str, Profile] = {p.name: p.build(handle) for p in config.profiles}
        self.finder = Finder(self.snapshot, self.nominator, rng, config.percentage_of_nodes_to_score)
        self._placed_at = float("-inf")
        self._bindings: set[asyncio.Task[None]] = set()
        self._room = asyncio.Event()
        Handlers(self.snapshot, self.cache, self.queue, lambda name: name in self.profiles).register(
            self.pods, self.informers
        )

    async def run(self) -> None:
        """Work until cancelled."""
        self.informers.start()
        try:
            await self.informers.synced()
            log.info("scheduling for %s", ", ".join(self.profiles))
            self.queue.start()
            async with asyncio.TaskGroup() as group:
                for announcer in self._announcers.values():
                    group.create_task(announcer.run())
                group.create_task(self._expire())
                group.create_task(self._schedule())
        finally:
            self.queue.stop()
            for task in [*self._bindings]:
                task.cancel()
            await self.informers.stop()

    def _busy(self) -> bool:
        """Pods are being placed, or were a moment ago: when many come one by one, there are always more."""
        return self.queue.active > 0 or self._clock.monotonic() - self._placed_at < _BUSY_SECONDS

    async def _expire(self) -> None:
        while True:
            await self._clock.sleep(_EXPIRE_SECONDS)
            self.cache.expire()

    # ---- placing -------------------------------------------------------------------------------------------------

    async def _schedule(self) -> None:
        while True:
            item: Waiting | None = await self.queue.pop()
            turn_ends = self._clock.monotonic() + _TURN_SECONDS
            while item is not None:
                while len(self._bindings) >= _BINDINGS:
                    self._room.clear()
                    await self._room.wait()
                await self._schedule_one(item)
                if self._clock.monotonic() >= turn_ends:
                    break
                item = self.queue.try_pop()
            await asyncio.sleep(0)

    async def _schedule_one(self, item: Waiting) -> None:
        info = item.info
        profile = self.profiles.get(info.pod["spec"].get("schedulerName", ""))
        if profile is None or self._skip(info, profile):
            return
        try:
            cycle, result = self.finder.find(info, profile)
            if isinstance(result, Failure):
                nominated = await self._post_filter(cycle, result)
                self._failed(item, profile, result.message, _UNSCHEDULABLE, nominated)
                return
        except SchedulingError as problem:
            self._failed(item, profile, str(problem), _UNSCHEDULABLE)
            return
        except Exception as problem:
            # A bug in a plugin costs this pod an attempt, not the cluster its scheduler.
            log.exception("scheduling %s failed", info.key)
            self._failed(item, profile, f"{type(problem).__name__}: {problem}", _SCHEDULER_ERROR)
            return
        self._place(item, cycle, result)

    def _place(self, item: Waiting, cycle: Cycle, choice: Choice) -> None:
        """Count the pod on its node from now on, and write that down."""
        try:
            self.cache.assume(item.info, choice.node)
            self.nominator.delete(item.info.uid)
        except SchedulingError as problem:
            self._failed(item, cycle.profile, str(problem), _SCHEDULER_ERROR)
            return
        for plugin in cycle.profile.points["reserve"]:
            try:
                plugin.reserve(cycle, choice.node)
            except SchedulingError as problem:
                self._withdraw(item, cycle, choice, f'running Reserve plugin "{plugin.name}": {problem}')
                return
        self._placed_at = self._clock.monotonic()
        task = asyncio.create_task(self._bind(item, cycle, choice))
        self._bindings.add(task)
        task.add_done_callback(self._bound)

    def _bound(self, task: asyncio.Task[None]) -> None:
        self._bindings.discard(task)
        self._room.set()
        if not task.cancelled() and task.exception() is not None:
            log.error("binding ended badly", exc_info=task.exception())

    def _skip(self, info: PodInfo, profile: Profile) -> bool:
        if info.terminating:
            note = f"skip schedule deleting pod: {info.key}"
            self._announcers[profile.name].event(info.pod, "Warning", "FailedScheduling", "Scheduling", note)
            return True
        return self.cache.is_assumed(info.uid)

    async def _post_filter(self, cycle: Cycle, failure: Failure) -> str:
        for plugin in cycle.profile.points["postFilter"]:
            try:
                node: str = await plugin.post_filter(cycle, failure)
            except SchedulingError as problem:
                log.warning("making room for pod %s: %s", cycle.pod.key, problem)
                return ""
            if node:
                return node
        return ""

    # ---- binding -------------------------------------------------------------------------------------------------

    async def _bind(self, item: Waiting, cycle: Cycle, choice: Choice) -> None:
        profile = cycle.profile
        step = ""
        try:
            for plugin in profile.points["preBind"]:
                step = f'running PreBind plugin "{plugin.name}"'
                await plugin.pre_bind(cycle, choice.node)
            plugin = profile.points["bind"][0]
            step = f'binding rejected: running Bind plugin "{plugin.name}"'
            await plugin.bind(cycle, choice.node)
        except (SchedulingError, ApiError, OSError) as problem:
            self._withdraw(item, cycle, choice, f"{step}: {problem}")
            return
        except Exception as problem:
            # A bug in a plugin must not keep the pod's place taken for ever.
            log.exception("binding %s failed", item.info.key)
            self._withdraw(item, cycle, choice, f"{step}: {type(problem).__name__}: {problem}")
            return
        self.cache.bound(item.info)
        note = f"Successfully assigned {item.info.key} to {choice.node}"
        self._announcers[profile.name].event(item.info.pod, "Normal", "Scheduled", "Binding", note)

    def _withdraw(self, item: Waiting, cycle: Cycle, choice: Choice, why: str) -> None:
        for plugin in reversed(cycle.profile.points["reserve"]):
            plugin.unreserve(cycle, choice.node)
        self.cache.forget(item.info)
        self._failed(item, cycle.profile, why, _SCHEDULER_ERROR)

    # ---- failure -------------------------------------------------------------------------------------------------

    def _failed(self, item: Waiting, profile: Profile, message: str, reason: str, nominated: str = "") -> None:
        tried = item.info
        log.debug("cannot schedule %s: %s", tried.key, message)
        now = self.pods.by_key(tried.key)
        if now is not None and not now["spec"].get("nodeName"):
            item.info = PodInfo(now)
            self.queue.put_back(item, self.queue.cycle)
        self.nominator.add(tried, nominated)
        self._announcers[profile.name].event(
            tried.pod, "Warning", "FailedScheduling", "Scheduling", shortened(message)
        )
        patch = status_patch(tried.pod, message, reason, nominated, rfc3339(self._clock.time()))
        if patch is not None:
            task = asyncio.create_task(self._write_status(tried, patch))
            self._bindings.add(task)
            task.add_done_callback(self._bound)

    async def _write_status(self, info: PodInfo, patch: Object) -> None:
        try:
            await self._client.patch(PODS, info.namespace, info.name, patch, STRATEGIC_PATCH, subresource="status")
        except (ApiError, OSError) as problem:
            log.info("the status of pod %s could not be written: %s", info.key, problem)


def status_patch(pod: Object, message: str, reason: str, nominated: str, now: str) -> Object | None:
    """What to change in a pod's status after a failure; None when it says so already."""
    condition: dict[str, Any] = {
        "type": "PodScheduled", "status": "False", "lastProbeTime": None, "lastTransitionTime": now, "reason": reason,
        "message": message,
    }
    before = podutil.condition(pod, "PodScheduled")
    changed = before is None
    if before is not None:
        if before.get("status") == "False":
            condition["lastTransitionTime"] = before.get("lastTransitionTime")
        changed = any(before.get(k) != condition[k] for k in ("status", "reason", "message"))
    renominated = nominated and (pod.get("status") or {}).get("nominatedNodeName", "") != nominated
    if not changed and not renominated:
        return None
    status: dict[str, Any] = {}
    if changed:
        status["conditions"] = [condition]
    if nominated:
        status["nominatedNodeName"] = nominated
    return {"status": status}
