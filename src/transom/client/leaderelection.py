"""Leader election with a Lease that its holder renews.

A candidate acquires the lease if it is free or was not renewed for its duration, measured by the
candidate's own clock since it saw the last renewal; clocks of different machines are never
compared.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from transom.client.api import DELETED, ApiClient, is_conflict, is_not_found
from transom.client.events import NORMAL, EventRecorder
from transom.client.metrics import LeaderMetrics
from transom.client.resources import LEASES
from transom.kit.clock import Clock, rfc3339_micro
from transom.kit.lazy_dataclass import dataclass
from transom.machinery import errors
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

log = logging.getLogger("transom.client")
_JITTER = 1.2


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    lease: float = 15.0  # candidates wait this long after the last renewal
    renew: float = 10.0  # the leader gives up if it could not renew for this long
    retry: float = 2.0  # between attempts

    def __post_init__(self) -> None:
        if not self.lease > self.renew > _JITTER * self.retry > 0:
            raise ValueError("a lease must outlast its renewal, and that its retries")


class LeaderElector:
    def __init__(
        self,
        client: ApiClient,
        namespace: str,
        name: str,
        identity: str,
        clock: Clock,
        rng: random.Random,
        *,
        times: LeaseTimes | None = None,
        recorder: EventRecorder | None = None,
        release: bool = True,
        on_new_leader: Callable[[str], None] | None = None,
        watch_client: ApiClient | None = None,
        metrics: LeaderMetrics | None = None,
    ) -> None:
        """`release`: release the lease at the end, so that the next leader need not wait for its
        expiry. `watch_client`: a client that may watch the lease; with it, a candidate acquires a
        released lease at once instead of at its next attempt. `metrics` shows who leads.
        """
        self._metrics = metrics or LeaderMetrics()
        self._metrics.set_leading(name, False)
        self._client = client
        self._namespace, self._name, self._identity = namespace, name, identity
        self._clock = clock
        self._rng = rng
        self._times = times or LeaseTimes()
        self._recorder = recorder
        self._release = release
        self._on_new_leader = on_new_leader
        self._watch_client = watch_client
        self._released = asyncio.Event()
        self._lease: Object = {}
        self._seen: Object = {}  # the spec that was last observed, and when
        self._seen_at = 0.0
        self._reported = ""

    @property
    def leader(self) -> str:
        return str(self._seen.get("holderIdentity") or "")

    @property
    def is_leader(self) -> bool:
        return self.leader == self._identity

    def check_leading(self) -> None:
        """Raises ApiError if the lease is not ours or was not renewed in time. A process that was
        suspended continues where it was: this keeps it from working beside the next leader.
        """
        late = self._clock.monotonic() - self._seen_at >= self._times.renew
        if late or not self.is_leader:
            raise errors.service_unavailable("leaderelection lost")

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Waits to become the leader, then runs `lead` until it ends or the lease is lost, which
        cancels it.
        """
        await self._acquire()
        self._metrics.set_leading(self._name, True)
        work = asyncio.ensure_future(lead())
        renewal = asyncio.ensure_future(self._renew())
        try:
            await asyncio.wait((work, renewal), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                self._notify("stopped leading")
        finally:
            self._metrics.set_leading(self._name, False)
            for task in (work, renewal):
                task.cancel()
            results = await asyncio.gather(work, renewal, return_exceptions=True)
            if self._release and self.is_leader:
                await self._hand_back()
        if isinstance(results[0], Exception):
            raise results[0]

    async def _acquire(self) -> None:
        log.info("attempting to acquire leader lease %s/%s...", self._namespace, self._name)
        following = (
            None
            if self._watch_client is None
            else asyncio.ensure_future(self._follow(self._watch_client))
        )
        try:
            while True:
                self._released.clear()
                if await self._attempt():
                    break
                pause = self._times.retry * (1 + _JITTER * self._rng.random())
                timer = self._clock.call_later(pause, self._released.set)
                await self._released.wait()
                timer.cancel()
        finally:
            if following is not None:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
        log.info("successfully acquired lease %s/%s", self._namespace, self._name)
        self._notify("became leader")

    async def _follow(self, client: ApiClient) -> None:
        """Notices when the lease is released or deleted."""
        while True:
            try:
                watch = await client.watch(
                    LEASES, self._namespace, field_selector=f"metadata.name={self._name}"
                )
                with contextlib.closing(watch):
                    while events := await watch.next():
                        held = (events[-1].object.get("spec") or {}).get("holderIdentity")
                        if events[-1].type == DELETED or not held:
                            self._released.set()
            except (ApiError, OSError) as problem:
                log.info("lease %s/%s: %s", self._namespace, self._name, problem)
            await self._clock.sleep(self._times.retry)

    async def _renew(self) -> None:
        """Keeps renewing; returns when that has failed for too long."""
        renewed = self._clock.monotonic()
        while True:
            await self._clock.sleep(self._times.retry)
            left = self._times.renew - (self._clock.monotonic() - renewed)
            if await self._within(left, self._attempt()):
                renewed = self._clock.monotonic()
            elif not self.is_leader or self._clock.monotonic() - renewed >= self._times.renew:
                log.info("failed to renew lease %s/%s", self._namespace, self._name)
                return

    async def _within(self, seconds: float, attempt: Coroutine[Any, Any, bool]) -> bool:
        """Runs an attempt with a time-out: a leader must know when its time is over."""
        task = asyncio.ensure_future(attempt)
        timer = self._clock.call_later(seconds, task.cancel)
        try:
            await asyncio.wait((task,))
        finally:
            timer.cancel()
            task.cancel()
        return not task.cancelled() and task.result()

    async def _attempt(self) -> bool:
        """Acquires or renews the lease; returns whether it is ours afterwards."""
        try:
            return await self._try()
        except (ApiError, OSError) as problem:
            log.info("lease %s/%s: %s", self._namespace, self._name, problem)
            return False
        finally:
            self._report()

    async def _try(self) -> bool:
        now = rfc3339_micro(self._clock.time())
        spec: Object = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(self._times.lease),
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": 0,
        }
        try:
            self._lease = await self._client.get(LEASES, self._namespace, self._name)
        except ApiError as problem:
            if not is_not_found(problem):
                raise
            meta = {"name": self._name, "namespace": self._namespace}
            self._lease = await self._client.create(
                LEASES, self._namespace, {"metadata": meta, "spec": spec}
            )
            self._observe(spec)
            return True
        current = self._lease.get("spec") or {}
        if current != self._seen:
            self._observe(current)
        fresh = self._seen_at + self._times.lease > self._clock.monotonic()
        if current.get("holderIdentity") and fresh and not self.is_leader:
            return False
        if self.is_leader:
            spec["acquireTime"] = current.get("acquireTime", now)
            spec["leaseTransitions"] = current.get("leaseTransitions", 0)
        else:
            spec["leaseTransitions"] = current.get("leaseTransitions", 0) + 1
        await self._write(spec)
        return True

    async def _write(self, spec: Object) -> None:
        self._lease = await self._client.update(LEASES, {**self._lease, "spec": spec})
        self._observe(self._lease.get("spec") or {})

    def _observe(self, spec: Object) -> None:
        self._seen = spec
        self._seen_at = self._clock.monotonic()

    async def _hand_back(self) -> None:
        now = rfc3339_micro(self._clock.time())
        spec = {
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": self._seen.get("leaseTransitions", 0),
        }
        try:
            try:
                await self._write(spec)
            except ApiError as problem:
                if not is_conflict(problem):
                    raise
                # A renewal was cancelled in flight, but was committed.
                self._lease = await self._client.get(LEASES, self._namespace, self._name)
                if (self._lease.get("spec") or {}).get("holderIdentity") == self._identity:
                    await self._write(spec)
        except (ApiError, OSError) as problem:
            log.info(
                "the lease %s/%s could not be released: %s", self._namespace, self._name, problem
            )

    def _report(self) -> None:
        if self.leader != self._reported:
            self._reported = self.leader
            if self._on_new_leader is not None:
                self._on_new_leader(self.leader)

    def _notify(self, what: str) -> None:
        if self._recorder is not None and self._lease:
            self._recorder.event(self._lease, NORMAL, "LeaderElection", f"{self._identity} {what}")
