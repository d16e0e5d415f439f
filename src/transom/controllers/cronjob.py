"""CronJobs: create Jobs on a schedule.

Decisions and messages are those of the Kubernetes 1.20 controller. That one polls every ten
seconds; this one sleeps until a schedule is due or a Job changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from transom.client.api import is_already_exists, is_namespace_terminating, is_not_found
from transom.client.events import NORMAL, WARNING, object_reference
from transom.client.resources import CRON_JOBS, JOBS, GroupVersionResource
from transom.client.store import object_key
from transom.client.workqueue import RetryLater, WorkQueue
from transom.controllers.base import ControllerContext, run_worker
from transom.controllers.job.status import COMPLETE, FAILED, end_condition
from transom.controllers.ownership import (
    controller_ref,
    index_by_controller,
    owned_objects,
    resolve_controller_ref,
)
from transom.kit.clock import parse_rfc3339, rfc3339
from transom.kit.named_tuple import NamedTuple
from transom.machinery.cron import CronSchedule
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object, controller_of
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.validation.cron import CronError

_WORKERS = 5
_MISSED = 100
_LONG = 16 << 10  # characters; longer schedules are parsed in a thread
_SCHEDULED_AT = "batch.kubernetes.io/cronjob-scheduled-timestamp"
_HISTORY = {COMPLETE: "successfulJobsHistoryLimit", FAILED: "failedJobsHistoryLimit"}
_RETRY_SECONDS = 10.0


class Unschedulable(Exception):
    """The next start time cannot be computed; the text is for the user."""


class CronJobs:
    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        self._clock = env.clock
        features = env.settings.features
        newer = has_behaviour(features.release, "CronJobOwnersAreV1")
        # The version of events and of owner references in Jobs.
        self._shown = CRON_JOBS.at("v1" if newer else "v1beta1")
        self._reports_success = has_behaviour(features.release, "CronJobLastSuccess")
        self._annotates = features.enabled("CronJobsScheduledAnnotation")
        self._v2 = features.enabled("CronJobControllerV2")
        self._zoned = has_behaviour(features.release, "ZonesInSchedules")
        conditions = has_behaviour(features.release, "CronJobConditionText")
        self._word = "condition" if conditions else "status"
        self._events = env.recorder("cronjob-controller")
        self._queue: WorkQueue[str] = WorkQueue(env.clock, name="cronjob", metrics=env.queues)
        self._cron_jobs = env.informers(CRON_JOBS)
        self._jobs = env.informers(JOBS)
        index_by_controller(self._jobs)
        self._cron_jobs.add_handler(add=self._enqueue, update=lambda _, new: self._enqueue(new))
        self._jobs.add_handler(
            add=self._job_changed, update=self._job_updated, delete=self._job_changed
        )

    def _enqueue(self, cron_job: Object) -> None:
        self._queue.add(object_key(cron_job))

    def _job_changed(self, job: Object) -> None:
        owner = resolve_controller_ref(
            self._cron_jobs, job["metadata"]["namespace"], controller_of(job)
        )
        if owner is not None:
            self._enqueue(owner)

    def _job_updated(self, old: Object, new: Object) -> None:
        if controller_of(old) != controller_of(new):
            self._job_changed(old)
        self._job_changed(new)

    async def run(self) -> None:
        await run_worker(self._queue, self._sync, (self._cron_jobs, self._jobs), _WORKERS)

    # ---- one CronJob ----

    async def _sync(self, key: str) -> None:
        cron_job = self._cron_jobs.by_key(key)
        if cron_job is None:
            return
        try:
            cron_job = await self._look_at_jobs(cron_job)
            if "deletionTimestamp" not in cron_job["metadata"] and not cron_job["spec"].get(
                "suspend"
            ):
                cron_job = await self._start_if_due(key, cron_job)
            await self._clean_up(cron_job)
        except ApiError as problem:
            if not is_not_found(problem):
                raise

    def _record_event(self, cron_job: Object, kind: str, reason: str, message: str) -> None:
        shown = {**cron_job, "apiVersion": self._shown.api_version}
        self._events.event(shown, kind, reason, message)

    async def _look_at_jobs(self, cron_job: Object) -> Object:
        """Updates the list of active Jobs."""
        meta = cron_job["metadata"]
        children = owned_objects(self._jobs, meta["uid"])
        active = _active(cron_job)
        if any(not end_condition(job) and job["metadata"]["uid"] not in active for job in children):
            # Possibly a Job that we have just created: our informer may lag behind.
            fresh = await self._client.get(CRON_JOBS, meta["namespace"], meta["name"])
            if fresh["metadata"]["uid"] != meta["uid"]:
                raise RetryLater(f"CronJob {object_key(cron_job)} is another one by now")
            cron_job, active = fresh, _active(fresh)
        seen = set()
        success = (cron_job.get("status") or {}).get("lastSuccessfulTime", "")
        for job in children:
            uid, name = job["metadata"]["uid"], job["metadata"]["name"]
            seen.add(uid)
            end = end_condition(job)
            if end is None and uid not in active:
                self._record_event(
                    cron_job,
                    WARNING,
                    "UnexpectedJob",
                    f"Saw a job that the controller did not create or forgot: {name}",
                )
            elif end is not None and uid in active:
                del active[uid]
                if end["type"] == COMPLETE and self._reports_success:
                    success = max(success, (job.get("status") or {}).get("completionTime", ""))
                self._record_event(
                    cron_job,
                    NORMAL,
                    "SawCompletedJob",
                    f"Saw completed job: {name}, {self._word}: {end['type']}",
                )
        for uid, ref in list(active.items()):
            if uid not in seen and not await self._exists(ref):
                del active[uid]
                self._record_event(
                    cron_job, NORMAL, "MissingJob", f"Active job went missing: {ref['name']}"
                )
        return await self._write(cron_job, active, success=success)

    async def _exists(self, ref: Object) -> bool:
        try:
            job = await self._client.get(JOBS, ref["namespace"], ref["name"])
        except ApiError as problem:
            if not is_not_found(problem):
                raise
            return False
        return bool(job["metadata"]["uid"] == ref["uid"])

    async def _write(
        self,
        cron_job: Object,
        active: dict[str, Object],
        scheduled: str = "",
        success: str = "",
    ) -> Object:
        """The CronJob with its new status, which is written only if it changes."""
        old = cron_job.get("status") or {}
        status = {name: value for name, value in old.items() if name != "active"}
        if active:
            status["active"] = list(active.values())
        if scheduled:
            status["lastScheduleTime"] = scheduled
        if success:
            status["lastSuccessfulTime"] = success
        if status == {name: value for name, value in old.items() if value}:
            return cron_job
        return await self._client.update_status(CRON_JOBS, {**cron_job, "status": status})

    # ---- starting ----

    async def _schedule(self, cron_job: Object) -> CronSchedule:
        if len(cron_job["spec"].get("schedule", "")) <= _LONG:
            return _schedule(cron_job, zoned=self._zoned)
        return await asyncio.to_thread(_schedule, cron_job, zoned=self._zoned)

    async def _start_if_due(self, key: str, cron_job: Object) -> Object:
        now = self._clock.time()
        try:
            schedule = await self._schedule(cron_job)
            due = self._due(cron_job, schedule, now)
        except (CronError, Unschedulable, ZoneInfoNotFoundError) as problem:
            if self._v2:
                self._report_schedule(cron_job, problem)
                return cron_job
            text = str(problem)
            if isinstance(problem, CronError):
                text = f"unparseable schedule: {cron_job['spec'].get('schedule', '')} : {text}"
            self._record_event(
                cron_job,
                WARNING,
                "FailedNeedsStart",
                f"Cannot determine if job needs to be started: {text}",
            )
            if isinstance(problem, Unschedulable):
                self._queue.add_after(key, _RETRY_SECONDS)
            return cron_job
        following = schedule.next(now)
        if following is not None:
            self._queue.add_after(key, following - now)
        if due is None:
            return cron_job
        spec = cron_job["spec"]
        deadline = spec.get("startingDeadlineSeconds")
        if deadline is not None and due + deadline < now:
            self._record_event(
                cron_job,
                WARNING,
                "MissSchedule",
                f"Missed scheduled time to start a job: {_rfc1123(due)}",
            )
            return cron_job
        active = _active(cron_job)
        policy = spec.get("concurrencyPolicy")
        if policy == "Forbid" and active:
            if self._v2:
                self._record_event(
                    cron_job,
                    NORMAL,
                    "JobAlreadyActive",
                    "Not starting job because prior execution is running and concurrency policy is "
                    "Forbid",
                )
            return cron_job  # synced again when that Job ends
        if policy == "Replace" and not await self._replace(cron_job, active):
            self._queue.add_after(key, _RETRY_SECONDS)
            return cron_job
        job = await self._create(cron_job, due)
        if job is None:
            self._queue.add_after(key, _RETRY_SECONDS)
            return cron_job
        active[job["metadata"]["uid"]] = object_reference(job)
        return await self._write(cron_job, active, rfc3339(due))

    def _due(self, cron_job: Object, schedule: CronSchedule, now: float) -> float | None:
        if not self._v2:
            return last_unmet(cron_job, schedule, now)
        found = most_recent_start(cron_job, schedule, now)
        if found.many_missed and found.time is not None:
            self._record_event(
                cron_job,
                WARNING,
                "TooManyMissedTimes",
                "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or "
                "check clock skew",
            )
        return found.time

    def _report_schedule(self, cron_job: Object, problem: Exception) -> None:
        spec = cron_job["spec"]
        if isinstance(problem, ZoneInfoNotFoundError):
            zone = spec.get("timeZone", "")
            reason, text = "UnknownTimeZone", f'invalid timeZone: "{zone}": {problem}'
        elif isinstance(problem, CronError):
            schedule = spec.get("schedule", "")
            reason = "UnparseableSchedule"
            text = f'unparseable schedule: "{schedule}" : {problem}'
        else:
            reason = "InvalidSchedule"
            text = f"invalid schedule: {spec.get('schedule', '')} : {problem}"
        self._record_event(cron_job, WARNING, reason, text)

    async def _replace(self, cron_job: Object, active: dict[str, Object]) -> bool:
        for uid, ref in list(active.items()):
            try:
                job = await self._client.get(JOBS, ref["namespace"], ref["name"])
            except ApiError as problem:
                self._record_event(cron_job, WARNING, "FailedGet", f"Get job: {problem}")
                return False
            if not await self._delete(cron_job, job):
                return False
            del active[uid]
        return True

    async def _create(self, cron_job: Object, due: float) -> Object | None:
        """The Job for a start time. Its name contains the time, so the same one is never created
        twice.
        """
        meta = cron_job["metadata"]
        wanted = _job(cron_job, due, self._shown, annotates=self._annotates, minutes=self._v2)
        try:
            job = await self._client.create(JOBS, meta["namespace"], wanted)
        except ApiError as problem:
            if is_already_exists(problem):
                job = await self._client.get(JOBS, meta["namespace"], wanted["metadata"]["name"])
                ref = controller_of(job)
                if ref is not None and ref["uid"] == meta["uid"]:
                    return job  # created by an earlier sync that could not update the status
            if not is_namespace_terminating(problem):
                self._record_event(
                    cron_job, WARNING, "FailedCreate", f"Error creating job: {problem}"
                )
            return None
        self._record_event(
            cron_job, NORMAL, "SuccessfulCreate", f"Created job {job['metadata']['name']}"
        )
        return job

    # ---- old Jobs ----

    async def _clean_up(self, cron_job: Object) -> None:
        ended: dict[str, list[Object]] = {COMPLETE: [], FAILED: []}
        for job in owned_objects(self._jobs, cron_job["metadata"]["uid"]):
            end = end_condition(job)
            if end is not None and "deletionTimestamp" not in job["metadata"]:
                ended[end["type"]].append(job)
        for kind, field in _HISTORY.items():
            limit = cron_job["spec"].get(field)
            if limit is not None and len(ended[kind]) > limit:
                for job in _oldest_first(ended[kind])[: len(ended[kind]) - limit]:
                    await self._delete(cron_job, job)

    async def _delete(self, cron_job: Object, job: Object) -> bool:
        meta = job["metadata"]
        try:
            await self._client.delete(
                JOBS, meta["namespace"], meta["name"], propagation="Background"
            )
        except ApiError as problem:
            if is_not_found(problem):
                return True
            self._record_event(cron_job, WARNING, "FailedDelete", f"Deleted job: {problem}")
            return False
        self._record_event(cron_job, NORMAL, "SuccessfulDelete", f"Deleted job {meta['name']}")
        return True


# ---- pure parts ----


def _active(cron_job: Object) -> dict[str, Object]:
    return {ref["uid"]: ref for ref in (cron_job.get("status") or {}).get("active") or ()}


def _schedule(cron_job: Object, *, zoned: bool) -> CronSchedule:
    name = cron_job["spec"].get("timeZone")
    zone: tzinfo = UTC
    if name:
        try:
            zone = ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError) as problem:
            raise ZoneInfoNotFoundError(f"unknown time zone {name}") from problem
    return CronSchedule(cron_job["spec"].get("schedule", ""), zone, zoned=zoned)


def last_unmet(cron_job: Object, schedule: CronSchedule, now: float) -> float | None:
    """The last start time up to now that was missed. Too many missed times are an error, so that a
    clock that was wrong by years does not cause endless work.
    """
    spec = cron_job["spec"]
    last = (cron_job.get("status") or {}).get("lastScheduleTime")
    earliest = parse_rfc3339(last or cron_job["metadata"]["creationTimestamp"])
    deadline = spec.get("startingDeadlineSeconds")
    if deadline is not None:
        earliest = max(earliest, now - deadline)
    found, count = None, 0
    due = schedule.next(earliest)
    while due is not None and due <= now:
        found = due
        count += 1
        if count > _MISSED:
            raise Unschedulable(
                "too many missed start time (> 100). Set or decrease "
                ".spec.startingDeadlineSeconds or check clock skew"
            )
        due = schedule.next(due)
    return found


class MostRecentStart(NamedTuple):
    time: float | None
    many_missed: bool = False  # more than a hundred starts


def most_recent_start(cron_job: Object, schedule: CronSchedule, now: float) -> MostRecentStart:
    """The last start time up to now that was missed, as the second controller computes it: it
    estimates how many starts were missed and looks only at the last ones.
    """
    spec = cron_job["spec"]
    last = (cron_job.get("status") or {}).get("lastScheduleTime")
    earliest = parse_rfc3339(last or cron_job["metadata"]["creationTimestamp"])
    deadline = spec.get("startingDeadlineSeconds")
    if deadline is not None:
        earliest = max(earliest, now - deadline)
    first = schedule.next(earliest)
    if first is not None and now < first:
        return MostRecentStart(None)
    second = None if first is None else schedule.next(first)
    if second is not None and now < second:
        return MostRecentStart(first)
    # A schedule that never comes, on the 31st of February say, has no next time.
    interval = 0 if first is None or second is None else round(second - first)
    if first is None or interval < 1:
        raise Unschedulable("time difference between two schedules is less than 1 second")
    missed = int(now - first) // interval + 1
    found = None
    due = schedule.next(first + (missed - 2) * interval)
    while due is not None and due <= now:
        found = due
        due = schedule.next(due)
    return MostRecentStart(found, missed > _MISSED)


def _job(
    cron_job: Object, due: float, shown: GroupVersionResource, *, annotates: bool, minutes: bool
) -> Object:
    """`annotates`: with the start time, in the time zone of the CronJob; `minutes`: the name has
    minutes, not seconds.
    """
    template = cron_job["spec"]["jobTemplate"]
    given = template.get("metadata") or {}
    meta: Object = {field: given[field] for field in ("labels", "annotations") if given.get(field)}
    stamp = int(due) // 60 if minutes else int(due)
    meta["name"] = f"{cron_job['metadata']['name']}-{stamp}"
    meta["ownerReferences"] = [controller_ref(cron_job, shown)]
    if annotates:
        name = cron_job["spec"].get("timeZone")
        zone: tzinfo = ZoneInfo(name) if name else UTC
        text = datetime.fromtimestamp(due, zone).isoformat().replace("+00:00", "Z")
        meta["annotations"] = {**(meta.get("annotations") or {}), _SCHEDULED_AT: text}
    return {
        "kind": "Job",
        "apiVersion": JOBS.api_version,
        "metadata": meta,
        "spec": template.get("spec") or {},
    }


def _oldest_first(jobs: Iterable[Object]) -> list[Object]:
    def age(job: Object) -> tuple[bool, str, str]:
        start = (job.get("status") or {}).get("startTime") or ""
        return not start, start, job["metadata"]["name"]

    return sorted(jobs, key=age)


def _rfc1123(t: float) -> str:
    return datetime.fromtimestamp(t, UTC).strftime("%a, %d %b %Y %H:%M:%S +0000")
