"""Syncs a Job until it finishes.

The first failed pod is replaced immediately, later ones after 10 s, 20 s, 40 s ... up to six
minutes, until a pod succeeds or the failure limit is reached. This delay is the back-off of the Job
in the work queue.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from transom.client.events import NORMAL, WARNING
from transom.client.ratelimit import ItemBackoff
from transom.client.resources import JOBS, PODS
from transom.client.store import object_key
from transom.client.workqueue import RetryLater, WorkQueue
from transom.controllers import pods
from transom.controllers.base import ControllerContext, run_worker
from transom.controllers.dependents import Dependents
from transom.controllers.expectations import Expectations
from transom.controllers.expected_pods import ExpectedPods
from transom.controllers.job import indexes, status
from transom.controllers.job.sync import JobSync
from transom.controllers.ownership import (
    claim_objects,
    controller_ref,
    index_by_controller,
    owned_or_orphaned_objects,
    resolve_controller_ref,
)
from transom.kit.backoff import exponential_backoff
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object, controller_of
from transom.machinery.selectors import SelectorError, owner_selector

_WORKERS = 5
_BACKOFF, _LONGEST_BACKOFF = 10.0, 360.0
_STATUS_TRIES = 4


class _Backoff(ItemBackoff):
    """A work queue normally resets its back-off after every successful sync. A Job's back-off is
    reset only when the Job makes progress.
    """

    def forget(self, item: Hashable) -> None:
        return

    def end(self, item: Hashable) -> None:
        super().forget(item)


def _failed_and_owned(pod: Object) -> bool:
    meta = pod["metadata"]
    return (
        pods.pod_phase(pod) == "Failed"
        and controller_of(pod) is not None
        and "deletionTimestamp" not in meta
    )


class FailedPods(RetryLater):
    """Whether pods of a Job have failed since its last sync."""


class Jobs:
    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        self._clock = env.clock
        self._events = env.recorder("job-controller")
        self._expectations = Expectations(env.clock)
        control = pods.PodControl(env.client, self._events)
        self._expected_pods = ExpectedPods(control, self._expectations)
        self._backoff = _Backoff(_BACKOFF, _LONGEST_BACKOFF)
        self._queue: WorkQueue[str] = WorkQueue(
            env.clock, self._backoff, name="job", metrics=env.queues
        )
        self._jobs = env.informers(JOBS)
        self._pods = env.informers(PODS)
        index_by_controller(self._pods)
        self._jobs.add_handler(
            add=self._enqueue, update=lambda _, new: self._enqueue(new), delete=self._job_deleted
        )
        self._pods.add_handler(update=self._pod_updated)
        Dependents(
            self._pods,
            self._jobs,
            self._enqueue,
            matters=lambda _, new: not _failed_and_owned(new),
            expectations=self._expectations,
        )

    async def run(self) -> None:
        await run_worker(self._queue, self._sync, (self._jobs, self._pods), _WORKERS)

    # ---- event handlers ----

    def _enqueue(self, job: Object) -> None:
        self._queue.add(object_key(job))

    def _job_deleted(self, job: Object) -> None:
        self._expectations.forget(object_key(job))
        self._enqueue(job)

    def _pod_updated(self, old: Object, new: Object) -> None:
        """Enqueues the Job of a failed pod after the back-off; `Dependents` handles all other
        changes immediately.
        """
        if (
            not _failed_and_owned(new)
            or old["metadata"]["resourceVersion"] == new["metadata"]["resourceVersion"]
        ):
            return
        job = resolve_controller_ref(self._jobs, new["metadata"]["namespace"], controller_of(new))
        if job is not None:
            key = object_key(job)
            failures = self._queue.failures(key)
            self._queue.add_after(
                key,
                exponential_backoff(_BACKOFF, _LONGEST_BACKOFF, failures - 1) if failures else 0,
            )

    # ---- one Job ----

    async def _sync(self, key: str) -> None:
        job = self._jobs.by_key(key)
        if job is None or status.is_finished(job):
            self._backoff.end(key)
            if job is None:
                self._expectations.forget(key)
            return
        settled = self._expectations.satisfied(key)
        try:
            selector = owner_selector(job)
        except SelectorError as error:
            raise RetryLater(f"couldn't convert Job selector: {error}") from error
        mine = await claim_objects(
            self._client, JOBS, job, selector, PODS, owned_or_orphaned_objects(self._pods, job)
        )
        round_ = JobSync(job, mine, self._clock.time())
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

    async def _decide(self, key: str, now: JobSync, settled: bool) -> Exception | None:
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
                    self._events.event(
                        now.job,
                        WARNING,
                        "TooManyActivePods",
                        "Too many active pods running after completion count reached",
                    )
                if now.succeeded > wanted:
                    self._events.event(
                        now.job,
                        WARNING,
                        "TooManySucceededPods",
                        "Too many succeeded pods running after completion count reached",
                    )
            now.complete()
            self._events.event(now.job, NORMAL, "Completed", "Job completed")
        return problem

    async def _manage(self, key: str, now: JobSync) -> Exception | None:
        """Creates and deletes pods to reach the desired number of active ones; updates
        `now.count_active`.
        """
        pods_to_delete = now.to_delete()
        if pods_to_delete:
            problems = await self._delete(key, now.job, pods_to_delete)
            now.count_active -= len(pods_to_delete) - len(problems)
            return problems[0] if problems else None
        missing = now.missing()
        if missing <= 0:
            return None
        return await self._create(key, now, missing)

    async def _create(self, key: str, now: JobSync, count: int) -> Exception | None:
        job = now.job
        pod = pods.pod_from_template(job["spec"]["template"], job, controller_ref(job, JOBS))
        if indexes.is_indexed(job):
            numbers = now.pending_indexes(count)
            count = len(numbers)
            made = [indexes.with_index(pod, job["metadata"]["name"], number) for number in numbers]
        else:
            made = [pod] * count
        succeeded, problem = await self._expected_pods.create(key, job, made)
        now.count_active += succeeded
        return problem

    async def _delete(
        self, key: str, job: Object, pods_to_delete: Sequence[Object]
    ) -> list[Exception]:
        """The pods that could not be deleted, and why."""
        return await self._expected_pods.delete(key, job, pods_to_delete)

    async def _write_status(self, job: Object, fresh: Object) -> None:
        """This controller owns the whole status, so it overwrites it regardless of the
        resourceVersion.
        """
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
