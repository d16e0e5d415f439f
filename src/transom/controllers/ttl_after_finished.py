"""Deletes finished Jobs after their ttlSecondsAfterFinished."""

from __future__ import annotations

from transom.client.api import is_not_found
from transom.client.resources import JOBS
from transom.client.store import object_key
from transom.client.workqueue import WorkQueue
from transom.controllers.base import ControllerContext, run_worker
from transom.controllers.job.status import end_condition
from transom.kit.clock import parse_rfc3339
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

_WORKERS = 5


class FinishedJobs:
    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        self._clock = env.clock
        self._queue: WorkQueue[str] = WorkQueue(
            env.clock, name="ttl_jobs_to_delete", metrics=env.queues
        )
        self._jobs = env.informers(JOBS)
        self._jobs.add_handler(add=self._changed, update=lambda _, new: self._changed(new))

    def _changed(self, job: Object) -> None:
        if _expiry(job) is not None:
            self._queue.add(object_key(job))

    async def run(self) -> None:
        await run_worker(self._queue, self._sync, (self._jobs,), _WORKERS)

    async def _sync(self, key: str) -> None:
        job = self._jobs.by_key(key)
        if job is None or not self._is_due(key, job):
            return
        meta = job["metadata"]
        try:
            # The informer may lag behind: the TTL may have been extended, or the Job replaced.
            fresh = await self._client.get(JOBS, meta["namespace"], meta["name"])
            if self._is_due(key, fresh):
                await self._client.delete(
                    JOBS,
                    meta["namespace"],
                    meta["name"],
                    uid=fresh["metadata"]["uid"],
                    propagation="Foreground",
                )
        except ApiError as problem:
            if not is_not_found(problem):
                raise

    def _is_due(self, key: str, job: Object) -> bool:
        expiry = _expiry(job)
        if expiry is None:
            return False
        left = expiry - self._clock.time()
        if left > 0:
            self._queue.add_after(key, left)
        return left <= 0


def _expiry(job: Object) -> float | None:
    """When to delete it; None if it must not be deleted."""
    seconds = job["spec"].get("ttlSecondsAfterFinished")
    end = end_condition(job)
    if seconds is None or end is None or "deletionTimestamp" in job["metadata"]:
        return None
    ended = end.get("lastTransitionTime")
    return parse_rfc3339(ended) + float(seconds) if ended else None
