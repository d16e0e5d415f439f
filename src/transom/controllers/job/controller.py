"""One Job brought towards its end.

A failed pod is replaced at once the first time and then after 10 s, 20 s, 40 s ... up to six minutes, until a pod
succeeds or the limit of failures is reached. That waiting is the back-off of the Job in the work queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence

from transom.client.api import is_namespace_terminating, is_not_found
from transom.client.events import NORMAL, WARNING
from transom.client.ratelimit import ItemBackoff
from transom.client.resources import JOBS, PODS
from transom.client.store import key_of
from transom.client.workqueue import RetryLater, WorkQueue
from transom.controllers import pods
from transom.controllers.base import Env, work
from transom.controllers.dependents import Dependents, selector_of
from transom.controllers.expectations import Expectations
from transom.controllers.job import indexes, status
from transom.controllers.job.round import Round
from transom.controllers.ownership import claim, controller_ref, index_by_controller, owned_or_orphaned, resolve
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object, controller_of
from transom.machinery.selectors import SelectorError

_WORKERS = 5
_BACKOFF, _LONGEST_BACKOFF = 10.0, 360.0
_STATUS_TRIES = 4


class _Backoff(ItemBackoff):
    """A work queue forgets failures after every round that went well. A Job's end only when it makes progress."""

    def forget(self, item: Hashable) -> None:
        return

    def end(self, item: Hashable) -> None:
        super().forget(item)


def _failed_and_owned(pod: Object) -> bool:
    meta = pod["metadata"]
    return pods.phase(pod) == "Failed" and controller_of(pod) is not None and "deletionTimestamp" not in meta


class FailedPods(RetryLater):
    """Pods of a Job have failed since it was last looked at."""


class Jobs:
    def __init__(self, env: Env) -> None:
        self._client = env.client
        self._clock = env.clock
        self._events = env.recorder("job-controller")
        self._pod_control = pods.PodControl(env.client, self._events)
        self._expectations = Expectations(env.clock)
        self._backoff = _Backoff(_BACKOFF, _LONGEST_BACKOFF)
        self._queue: WorkQueue[str] = WorkQueue(env.clock, self._backoff, name="job")
        self._jobs = env.informers(JOBS)
        self._pods = env.informers(PODS)
        index_by_controller(self._pods)
        self._jobs.add_handler(add=self._enqueue, update=lambda _, new: self._enqueue(new), delete=self._job_deleted)
        self._pods.add_handler(update=self._pod_updated)
        Dependents(
            self._pods, self._jobs, self._enqueue, matters=lambda _, new: not _failed_and_owned(new),
            created=lambda owner: self._expectations.created(key_of(owner)),
            deleted=lambda owner, pod: self._expectations.deleted(key_of(owner), key_of(pod)),
        )

    async def run(self) -> None:
        await work(self._queue, self._sync, (self._jobs, self._pods), _WORKERS)

    # ---- what happens --------------------------------------------------------------------------------------------

    def _enqueue(self, job: Object) -> None:
        self._queue.add(key_of(job))

    def _job_deleted(self, job: Object) -> None:
        self._expectations.forget(key_of(job))
        self._enqueue(job)

    def _pod_updated(self, old: Object, new: Object) -> None:
        """A failed pod is looked at after the back-off; `Dependents` tells of all the rest at once."""
        if not _failed_and_owned(new) or old["metadata"]["resourceVersion"] == new["metadata"]["resourceVersion"]:
            return
        job = resolve(self._jobs, new["metadata"]["namespace"], controller_of(new))
        if job is not None:
            key = key_of(job)
            failures = self._queue.failures(key)
            self._queue.add_after(key, min(_BACKOFF * 2.0 ** (failures - 1), _LONGEST_BACKOFF) if failures else 0)

    # ---- one Job -------------------------------------------------------------------------------------------------

    async def _sync(self, key: str) -> None:
        job = self._jobs.by_key(key)
        if job is None or status.is_finished(job):
            self._backoff.end(key)
            if job is None:
                self._expectations.forget(key)
            return
        settled = self._expectations.satisfied(key)
        try:
            selector = selector_of(job)
        except SelectorError as error:
            raise RetryLater(f"couldn't convert Job selector: {error}") from error
        mine = await claim(self._client, JOBS, job, selector, PODS, owned_or_orphaned(self._pods, job))
        round_ = Round(job, mine, self._clock.time())
        left = round_.seconds_left()
        if left is not None and left > 0:
            self._queue.add_after(key, left)
        problem = await self._decide(key, round_, settled)
        unseen = self._expectations.seconds_left(key)
        if unseen is not None:
            self._queue.add_after(key, unseen)
        if round_.changed:
            await self._write_status(job, round_.status())
            if round_.new_failure and not round_.over:
                raise FailedPods(f'failed pod(s) detected for job key "{key}"')
        if problem is not None:
            raise problem
        if round_.changed or round_.new_success:
            self._backoff.end(key)

    async def _decide(self, key: str, now: Round, settled: bool) -> Exception | None:
        failure = now.failure()
        if failure is not None:
            problems = await self._delete(key, now.job, now.active)
            now.fail(*failure)
            self._events.event(now.job, WARNING, *failure)
            return problems[0] if problems else None
        problem = None
        if settled and "deletionTimestamp" not in now.job["metadata"]:
            problem = await self._manage(key, now)
            turned = now.turn_suspension()
            if turned:
                self._events.event(now.job, NORMAL, *turned)
        if now.is_complete():
            wanted = now.job["spec"].get("completions")
            if wanted is not None:
                if now.count_active > 0:
                    self._events.event(now.job, WARNING, "TooManyActivePods",
                                       "Too many active pods running after completion count reached")
                if now.succeeded > wanted:
                    self._events.event(now.job, WARNING, "TooManySucceededPods",
                                       "Too many succeeded pods running after completion count reached")
            now.complete()
            self._events.event(now.job, NORMAL, "Completed", "Job completed")
        return problem

    async def _manage(self, key: str, now: Round) -> Exception | None:
        """Create and delete pods so that as many are active as should be; `now.count_active` is how many then are."""
        doomed = now.to_delete()
        if doomed:
            problems = await self._delete(key, now.job, doomed)
            now.count_active -= len(doomed) - len(problems)
            return problems[0] if problems else None
        missing = now.missing()
        if missing <= 0:
            return None
        return await self._create(key, now, missing)

    async def _create(self, key: str, now: Round, count: int) -> Exception | None:
        job = now.job
        pod = pods.from_template(job["spec"]["template"], job, controller_ref(job, JOBS))
        if indexes.is_indexed(job):
            numbers = now.pending_indexes(count)
            count = len(numbers)
            made = [indexes.numbered(pod, job["metadata"]["name"], number) for number in numbers]
        else:
            made = [pod] * count
        self._expectations.expect(key, count)

        async def create(i: int) -> None:
            try:
                await self._pod_control.create(job, made[i])
            except ApiError as problem:
                if not is_namespace_terminating(problem):
                    raise

        succeeded = 0
        try:
            succeeded, problem = await pods.slow_start(count, create)
        finally:
            self._expectations.created(key, count - succeeded)
        now.count_active += succeeded
        return problem

    async def _delete(self, key: str, job: Object, doomed: Sequence[Object]) -> list[Exception]:
        """What could not be deleted, by its reason."""
        self._expectations.expect(key, 0, [key_of(pod) for pod in doomed])

        async def delete(pod: Object) -> Exception | None:
            try:
                await self._pod_control.delete(job, pod["metadata"]["name"])
            except (ApiError, OSError, pods.DeleteFailed) as problem:
                self._expectations.deleted(key, key_of(pod))
                return None if is_not_found(problem) else problem
            return None

        return [p for p in await asyncio.gather(*(delete(pod) for pod in doomed)) if p is not None]

    async def _write_status(self, job: Object, fresh: Object) -> None:
        """The status is all ours, so it goes over whatever state the object is in by now."""
        meta = job["metadata"]
        for attempt in range(_STATUS_TRIES):
            newest = await self._client.get(JOBS, meta["namespace"], meta["name"])
            if newest["metadata"]["uid"] != meta["uid"]:
                return
            try:
                await self._client.update_status(JOBS, {**newest, "status": fresh})
                return
            except ApiError:
                if attempt == _STATUS_TRIES - 1:
                    raise
