"""The Job controller of releases that track pods with a finalizer.

Pods keep the finalizer until they are counted in the status, so that none is lost or counted twice.
A Job that has ended, or that another controller manages, is not synced; pods without a Job lose the
finalizer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from transom.client.api import STRATEGIC_PATCH, is_not_found
from transom.client.events import NORMAL, WARNING
from transom.client.ratelimit import ControllerLimiter
from transom.client.resources import JOBS, PODS
from transom.client.store import object_key
from transom.client.workqueue import RetryLater, WorkQueue
from transom.controllers import pods
from transom.controllers.base import ControllerContext
from transom.controllers.dependents import Dependents
from transom.controllers.expectations import Expectations
from transom.controllers.expected_pods import ExpectedPods
from transom.controllers.job import indexes, status
from transom.controllers.job.backoff import BackoffRecord
from transom.controllers.job.features import job_features
from transom.controllers.job.tracked_sync import (
    TRACKING_FINALIZER,
    TrackedSync,
    has_tracking_finalizer,
)
from transom.controllers.ownership import (
    claim_objects,
    controller_ref,
    index_by_controller,
    owned_objects,
    owned_or_orphaned_objects,
    resolve_controller_ref,
)
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object, controller_of
from transom.machinery.selectors import SelectorError, owner_selector

_WORKERS = 5
_API_BACKOFF, _LONGEST_API_BACKOFF = 1.0, 60.0
_REMOVE_FINALIZER = {"metadata": {"$deleteFromPrimitiveList/finalizers": [TRACKING_FINALIZER]}}


class TrackedJobs:
    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        self._clock = env.clock
        self._features = job_features(env.settings.features)
        self._events = env.recorder("job-controller")
        self._pod_control = pods.PodControl(env.client, self._events)
        self._expectations = Expectations(env.clock)
        self._expected_pods = ExpectedPods(self._pod_control, self._expectations)
        self._losing_finalizer: dict[str, set[str]] = {}  # uids of pods by the key of the Job
        self._records: dict[str, BackoffRecord] = {}
        self._written: dict[str, Object] = {}  # Jobs that the informer does not show yet
        limiter = ControllerLimiter(env.clock, _API_BACKOFF, _LONGEST_API_BACKOFF)
        self._queue: WorkQueue[str] = WorkQueue(env.clock, limiter, name="job", metrics=env.queues)
        self._orphans: WorkQueue[str] = WorkQueue(
            env.clock, name="job_orphan_pod", metrics=env.queues
        )
        self._jobs = env.informers(JOBS)
        self._pods = env.informers(PODS)
        index_by_controller(self._pods)
        self._jobs.add_handler(
            add=self._enqueue, update=lambda _, new: self._job_updated(new), delete=self._deleted
        )
        self._pods.add_handler(
            add=self._check_orphan,
            update=lambda _, new: self._pod_changed(new),
            delete=self._pod_deleted,
        )
        Dependents(
            self._pods,
            self._jobs,
            self._enqueue,
            expectations=self._expectations,
        )

    async def run(self) -> None:
        await self._jobs.synced()
        await self._pods.synced()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.run(self._sync, _WORKERS))
            group.create_task(self._orphans.run(self._sync_orphan))

    # ---- event handlers ----

    def _enqueue(self, job: Object) -> None:
        self._queue.add(object_key(job))

    def _job_updated(self, job: Object) -> None:
        if status.is_finished(job):
            self._offer_pods(job)
        self._enqueue(job)

    def _deleted(self, job: Object) -> None:
        self._forget(object_key(job))
        self._offer_pods(job)
        self._enqueue(job)

    def _forget(self, key: str) -> None:
        self._expectations.forget(key)
        self._losing_finalizer.pop(key, None)
        self._records.pop(key, None)
        self._written.pop(key, None)

    def _offer_pods(self, job: Object) -> None:
        for pod in owned_objects(self._pods, job["metadata"]["uid"]):
            self._check_orphan(pod)

    def _pod_changed(self, pod: Object) -> None:
        if not has_tracking_finalizer(pod):
            self._finalizer_gone(pod)
        self._check_orphan(pod)

    def _pod_deleted(self, pod: Object) -> None:
        self._finalizer_gone(pod)

    def _finalizer_gone(self, pod: Object) -> None:
        job = resolve_controller_ref(self._jobs, pod["metadata"]["namespace"], controller_of(pod))
        if job is not None:
            self._losing_finalizer.get(object_key(job), set()).discard(pod["metadata"]["uid"])

    def _check_orphan(self, pod: Object) -> None:
        if has_tracking_finalizer(pod) and self._is_orphan(pod):
            self._orphans.add(object_key(pod))

    def _is_orphan(self, pod: Object) -> bool:
        """Whether no Job is going to count the pod."""
        ref = controller_of(pod)
        if ref is None:
            return True
        if (ref.get("kind"), ref.get("apiVersion")) != (JOBS.kind, JOBS.api_version):
            return False
        job = resolve_controller_ref(self._jobs, pod["metadata"]["namespace"], ref)
        if job is None:
            return True
        return status.is_finished(job) and not self._features.is_managed_elsewhere(job)

    async def _sync_orphan(self, key: str) -> None:
        pod = self._pods.by_key(key)
        if pod is not None and has_tracking_finalizer(pod) and self._is_orphan(pod):
            await self._remove_finalizer(pod)

    async def _remove_finalizer(self, pod: Object) -> None:
        meta = pod["metadata"]
        try:
            await self._client.patch(
                PODS, meta["namespace"], meta["name"], _REMOVE_FINALIZER, STRATEGIC_PATCH
            )
        except ApiError as problem:
            if not is_not_found(problem):
                raise

    # ---- one Job ----

    def _is_stale(self, key: str, job: Object) -> bool:
        """Whether the informer does not show our last write yet; its update syncs the Job again."""
        written = self._written.get(key)
        if written is None:
            return False
        if (
            written["metadata"]["uid"] == job["metadata"]["uid"]
            and written["metadata"]["resourceVersion"] != job["metadata"]["resourceVersion"]
            and int(written["metadata"]["resourceVersion"])
            > int(job["metadata"]["resourceVersion"])
        ):
            return True
        del self._written[key]
        return False

    async def _sync(self, key: str) -> None:
        job = self._jobs.by_key(key)
        if job is None or status.is_finished(job):
            self._forget(key)
            return
        if self._features.is_managed_elsewhere(job) or self._is_stale(key, job):
            return
        settled = self._expectations.satisfied(key)
        try:
            selector = owner_selector(job)
        except SelectorError as error:
            raise RetryLater(f"couldn't convert Job selector: {error}") from error
        mine = await claim_objects(
            self._client,
            JOBS,
            job,
            selector,
            PODS,
            owned_or_orphaned_objects(self._pods, job),
            finalizers=(TRACKING_FINALIZER,),
        )
        record = self._records.get(key, BackoffRecord())
        losing = self._losing_finalizer.get(key, ())
        now = TrackedSync(job, mine, self._features, record, losing, self._clock.time())
        left = now.seconds_to_deadline()
        if left is not None and left > 0:
            self._queue.add_after(key, left)
        suspension_changed = False
        problem: Exception | None = None
        if now.finished is not None:
            problem = await self._stop_pods(key, now, settled)
        else:
            problem, suspension_changed = await self._manage(key, now, settled)
        unseen = self._expectations.seconds_left(key)
        if unseen is not None:
            self._queue.add_after(key, unseen)
        await self._track(key, now, changed=now.set_counts() or suspension_changed)
        if problem is not None:
            raise problem

    async def _stop_pods(self, key: str, now: TrackedSync, settled: bool) -> Exception | None:
        """Deletes the active pods of a Job that ends; their finalizers go with the counting."""
        to_delete = now.active
        problems = await self._delete(now, to_delete, remove_finalizer=False)
        now.count_terminating += len(to_delete) - len(problems)
        if problems or not settled:
            now.finished = None
        return problems[0] if problems else None

    async def _manage(
        self, key: str, now: TrackedSync, settled: bool
    ) -> tuple[Exception | None, bool]:
        problem: Exception | None = None
        managed = settled and "deletionTimestamp" not in now.job["metadata"]
        if managed:
            problem = await self._scale(key, now)
        now.find_completion()
        if now.finished is not None or not managed:
            return problem, False
        turned = now.turn_suspension()
        if turned is not None:
            self._events.event(now.job, NORMAL, *turned)
        return problem, turned is not None

    async def _scale(self, key: str, now: TrackedSync) -> Exception | None:
        to_delete = now.to_delete()
        if to_delete:
            self._expectations.expect(key, 0, [object_key(pod) for pod in to_delete])
            problems = await self._delete(now, to_delete, remove_finalizer=True, key=key)
            now.count_terminating += len(to_delete) - len(problems)
            return problems[0] if problems else None
        missing = now.missing()
        if missing <= 0:
            return None
        wait = now.backoff()
        numbers: list[int] = []
        if wait <= 0 and indexes.is_indexed(now.job):
            numbers, wait = now.plan_indexes(missing)
            missing = len(numbers)
        if wait > 0:
            self._queue.add_after(key, wait)
            return None
        return await self._create(key, now, missing, numbers)

    async def _create(
        self, key: str, now: TrackedSync, count: int, numbers: Sequence[int]
    ) -> Exception | None:
        job = now.job
        pod = pods.pod_from_template(job["spec"]["template"], job, controller_ref(job, JOBS))
        meta = pod["metadata"]
        finalizers = [*(meta.get("finalizers") or ())]
        if TRACKING_FINALIZER not in finalizers:
            finalizers.append(TRACKING_FINALIZER)
        pod = {**pod, "metadata": {**meta, "finalizers": finalizers}}
        made = [pod] * count
        if indexes.is_indexed(job):
            made = [
                indexes.with_index(
                    pod,
                    job["metadata"]["name"],
                    number,
                    label=self._features.index_label,
                    annotations=now.failure_annotations(number),
                )
                for number in numbers
            ]
        succeeded, problem = await self._expected_pods.create(key, job, made)
        now.count_active += succeeded
        return problem

    async def _delete(
        self,
        now: TrackedSync,
        to_delete: Sequence[Object],
        *,
        remove_finalizer: bool,
        key: str = "",
    ) -> list[Exception]:
        """Deletes pods and updates the counts; returns what failed."""

        async def delete(pod: Object) -> Exception | None:
            try:
                if remove_finalizer and has_tracking_finalizer(pod):
                    await self._remove_finalizer(pod)
                await self._pod_control.delete(now.job, pod["metadata"]["name"])
            except (ApiError, OSError, pods.DeleteFailed) as problem:
                if key:
                    self._expectations.deleted(key, object_key(pod))
                if not is_not_found(problem):
                    return problem
            now.count_active -= 1
            now.count_ready -= pods.is_pod_ready(pod)
            return None

        results = await asyncio.gather(*(delete(pod) for pod in to_delete))
        return [problem for problem in results if problem is not None]

    # ---- counting ----

    async def _track(self, key: str, now: TrackedSync, *, changed: bool) -> None:
        """Counts finished pods, takes their finalizers, and ends the Job."""
        left = now.with_finalizer()
        changed = now.count_without(left) or changed
        losing, listed, more = now.uncount_finished()
        changed = now.announce_end() or listed or changed
        job = now.job
        if changed:
            job = await self._write(key, job, now)
            self._records[key] = now.record
        problem: BaseException | None = None
        if losing:
            gone, problem = await self._take_finalizers(key, losing)
            left -= gone
        changed = now.count_without(left)
        ended = problem is None and not more and now.end()
        if changed or ended:
            await self._write(key, job, now)
        if problem is not None:
            raise problem
        if ended:
            self._record_end(now)

    async def _write(self, key: str, job: Object, now: TrackedSync) -> Object:
        written = await self._client.update_status(JOBS, {**job, "status": now.current_status()})
        self._written[key] = written
        return written

    async def _take_finalizers(
        self, key: str, losing: Sequence[Object]
    ) -> tuple[set[str], BaseException | None]:
        expected = self._losing_finalizer.setdefault(key, set())
        expected.update(pod["metadata"]["uid"] for pod in losing)
        results = await asyncio.gather(
            *(self._remove_finalizer(pod) for pod in losing), return_exceptions=True
        )
        gone: set[str] = set()
        problem: BaseException | None = None
        for pod, result in zip(losing, results, strict=True):
            uid = pod["metadata"]["uid"]
            if result is None:
                gone.add(uid)
                if self._pods.by_key(object_key(pod)) is None:
                    expected.discard(uid)
            else:
                problem = result
                expected.discard(uid)
        return gone, problem

    def _record_end(self, now: TrackedSync) -> None:
        end = now.finished
        if end is None:
            return
        if end["type"] == status.FAILED:
            self._events.event(now.job, WARNING, end.get("reason", ""), end.get("message", ""))
            return
        wanted = now.job["spec"].get("completions")
        if wanted is not None and now.status.get("succeeded", 0) > wanted:
            self._events.event(
                now.job,
                WARNING,
                "TooManySucceededPods",
                "Too many succeeded pods running after completion count reached",
            )
        self._events.event(now.job, NORMAL, "Completed", "Job completed")
