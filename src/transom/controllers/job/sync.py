"""One sync of a Job: compares actual and desired state and computes the status. Makes decisions but
calls no API.
"""

from __future__ import annotations

from collections.abc import Sequence

from transom.controllers import pods
from transom.controllers.job import indexes, status
from transom.kit.clock import rfc3339
from transom.machinery.objects import Object

_COUNTS = ("active", "succeeded", "failed")


class JobSync:
    """`active` are the active pods at the start; the function that creates or deletes pods updates
    `count_active`.
    """

    def __init__(self, job: Object, mine: Sequence[Object], now: float) -> None:
        self.job = job
        self._now = now
        self._pods = mine
        self._spec = job["spec"]
        self._old = job.get("status") or {}
        self._conditions: list[Object] = list(self._old.get("conditions") or ())
        self.active = [pod for pod in mine if pods.is_pod_active(pod)]
        self.count_active = len(self.active)
        self._failed = sum(pods.pod_phase(pod) == "Failed" for pod in mine)
        self._done = (
            indexes.succeeded_indexes(mine, self._completions or 0)
            if indexes.is_indexed(job)
            else None
        )
        self.succeeded = (
            sum(pods.pod_phase(pod) == "Succeeded" for pod in mine)
            if self._done is None
            else len(self._done)
        )
        self._start = self._old.get("startTime") or (
            "" if status.is_suspended(job) else rfc3339(now)
        )
        self._completed_at = ""
        self.over = False

    @property
    def _completions(self) -> int | None:
        return self._spec.get("completions")

    @property
    def _parallelism(self) -> int:
        return self._spec.get("parallelism", 0)

    @property
    def new_failure(self) -> bool:
        return self._failed > self._old.get("failed", 0)

    @property
    def new_success(self) -> bool:
        return self.succeeded > self._old.get("succeeded", 0)

    def seconds_left(self) -> float | None:
        return status.seconds_to_deadline(self.job, self._start, self._now)

    # ---- the end ----

    def failure(self) -> tuple[str, str] | None:
        """Why the Job has failed: reason and message."""
        # If the expected number of pods is active, the failure was already seen and only its status
        # write failed.
        new = self.new_failure and self.count_active != self._parallelism
        if (new and self._failed > self._spec.get("backoffLimit", 0)) or status.restarted_too_often(
            self.job, self._pods
        ):
            return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        left = self.seconds_left()
        if left is not None and left <= 0:
            return "DeadlineExceeded", "Job was active longer than specified deadline"
        return None

    def fail(self, reason: str, message: str) -> None:
        self._failed += self.count_active
        self.count_active = 0
        self._end(status.make_job_condition(status.FAILED, self._now, reason, message))

    def is_complete(self) -> bool:
        if self._completions is not None:
            return self.succeeded >= self._completions
        # A work queue: the first success means that there is no more work; the other pods may
        # finish.
        return self.succeeded > 0 and self.count_active == 0

    def complete(self) -> None:
        self._completed_at = rfc3339(self._now)
        self._end(status.make_job_condition(status.COMPLETE, self._now))

    def _end(self, condition: Object) -> None:
        self._conditions.append(condition)
        self.over = True

    def turn_suspension(self) -> tuple[str, str] | None:
        """Updates the Suspended condition; returns the event if it changed."""
        suspended = status.is_suspended(self.job)
        changed = status.with_suspension(self._conditions, suspended, self._now)
        if changed is None:
            return None
        self._conditions = changed
        if suspended:
            return "Suspended", "Job suspended"
        self._start = rfc3339(self._now)  # its deadline starts again
        return "Resumed", "Job resumed"

    # ---- pods ----

    def to_delete(self) -> Sequence[Object]:
        if status.is_suspended(self.job):
            return self.active
        pods_to_delete = (
            indexes.surplus_index_pods(self.active, self._completions or 0, pods.deletion_rank)
            if self._done is not None
            else []
        )
        too_many = len(self.active) - len(pods_to_delete) - self._parallelism
        if too_many > 0:
            uids_to_delete = {pod["metadata"]["uid"] for pod in pods_to_delete}
            rest = [pod for pod in self.active if pod["metadata"]["uid"] not in uids_to_delete]
            pods_to_delete += sorted(rest, key=pods.deletion_rank)[:too_many]
        return pods_to_delete

    def missing(self) -> int:
        """How many pods to create."""
        if status.is_suspended(self.job):
            return 0
        if self._completions is None:
            wanted = self.count_active if self.succeeded else self._parallelism
        else:
            wanted = min(self._completions - self.succeeded, self._parallelism)
        return wanted - self.count_active

    def pending_indexes(self, count: int) -> list[int]:
        busy = {index for pod in self.active if (index := indexes.index_of(pod)) is not None}
        return indexes.pending_indexes(count, self._completions or 0, busy | set(self._done or ()))

    # ---- status ----

    @property
    def _counts(self) -> tuple[int, int, int]:
        return self.count_active, self.succeeded, self._failed

    @property
    def changed(self) -> bool:
        before = tuple(self._old.get(name, 0) for name in _COUNTS)
        return before != self._counts or self._conditions != (self._old.get("conditions") or [])

    def status(self) -> Object:
        out = {**self._old, **dict(zip(_COUNTS, self._counts, strict=True))}
        out |= {
            "conditions": self._conditions,
            "startTime": self._start,
            "completionTime": self._completed_at,
        }
        if self._done is not None:
            out["completedIndexes"] = indexes.format_indexes(self._done)
        return {name: value for name, value in out.items() if value}
