"""One sync of a Job whose pods carry the tracking finalizer: counts pods, decides whether the Job
has ended, and computes its status. Calls no API.

A finished pod is counted in three steps: its uid is listed in `uncountedTerminatedPods`, it loses
its finalizer, and it moves from the list to the counter.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from transom.controllers import pods
from transom.controllers.job import indexes, policies, status
from transom.controllers.job.backoff import BackoffRecord, finished_time, remaining_backoff
from transom.controllers.job.features import JobFeatures
from transom.controllers.job.intervals import IndexIntervals
from transom.kit.clock import rfc3339
from transom.machinery.objects import Object

TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"
FAILURE_COUNT = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURE_COUNT = "batch.kubernetes.io/job-index-ignored-failure-count"
MAX_PODS_PER_SYNC = 500
_MAX_UNCOUNTED = 500


def has_tracking_finalizer(pod: Object) -> bool:
    return TRACKING_FINALIZER in (pod["metadata"].get("finalizers") or ())


def is_terminating(pod: Object) -> bool:
    """Being deleted and not ended yet."""
    return pods.is_pod_terminating(pod) and pods.pod_phase(pod) not in ("Succeeded", "Failed")


def _annotated_number(pod: Object, name: str) -> int:
    text = (pod["metadata"].get("annotations") or {}).get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _uid(pod: Object) -> str:
    uid: str = pod["metadata"]["uid"]
    return uid


class TrackedSync:
    """`count_active`, `count_ready` and `count_terminating` are updated by the caller when it
    creates or deletes pods; `finished` is the condition that ends the Job.
    """

    def __init__(
        self,
        job: Object,
        mine: Sequence[Object],
        features: JobFeatures,
        record: BackoffRecord,
        losing_finalizer: Collection[str],
        now: float,
    ) -> None:
        self.job = job
        self._spec = job["spec"]
        self._features = features
        self._now = now
        self._indexed = indexes.is_indexed(job)
        self._completions: int | None = self._spec.get("completions")
        self._losing = losing_finalizer
        self.pods = sorted(mine, key=_index_order) if self._indexed else list(mine)
        self.status: Object = {**(job.get("status") or {})}
        self._conditions: list[Object] = list(self.status.get("conditions") or ())
        uncounted = self.status.get("uncountedTerminatedPods") or {}
        self.uncounted_succeeded: list[str] = list(uncounted.get("succeeded") or ())
        self.uncounted_failed: list[str] = list(uncounted.get("failed") or ())
        self.active = [pod for pod in mine if pods.is_pod_active(pod)]
        self.count_active = len(self.active)
        self.count_ready = sum(map(pods.is_pod_ready, self.active))
        self.count_terminating = sum(map(is_terminating, mine))
        self._only_failed = features.only_replaces_failed(job)
        self._per_index = features.has_backoff_per_index(job)
        self._policy: Object | None = self._spec.get("podFailurePolicy")
        new_succeeded = self._new_finished(
            self.uncounted_succeeded, lambda pod: pods.pod_phase(pod) == "Succeeded"
        )
        new_failed = self._new_finished(self.uncounted_failed, self.is_failed)
        self.succeeded = (
            self.status.get("succeeded", 0) + len(new_succeeded) + len(self.uncounted_succeeded)
        )
        self.failed = (
            self.status.get("failed", 0)
            + sum(self._decide(pod).counts for pod in new_failed)
            + len(self.uncounted_failed)
        )
        self.record = record.after(new_succeeded, new_failed)
        self.succeeded_indexes = self._previous_indexes = IndexIntervals()
        self.failed_indexes: IndexIntervals | None = None
        self._to_replace: dict[int, Object] = {}
        if not self.status.get("startTime") and not self.suspended:
            self.status["startTime"] = rfc3339(now)
        self.finished: Object | None = None
        self._find_end()

    # ---- facts ----

    @property
    def suspended(self) -> bool:
        return status.is_suspended(self.job)

    def seconds_to_deadline(self) -> float | None:
        return status.seconds_to_deadline(self.job, self.status.get("startTime", ""), self._now)

    def is_failed(self, pod: Object) -> bool:
        """Failed, or deleted before it could end."""
        phase = pods.pod_phase(pod)
        if phase == "Failed" or self._only_failed:
            return phase == "Failed"
        return pods.is_pod_terminating(pod) and phase != "Succeeded"

    def _decide(self, pod: Object) -> policies.FailureDecision:
        return policies.match_pod_failure_policy(
            self._policy, pod, fail_index=self._features.per_index
        )

    def _tracked(self, pod: Object) -> bool:
        return has_tracking_finalizer(pod) and _uid(pod) not in self._losing

    def _valid_index(self, pod: Object) -> int | None:
        index = indexes.index_of(pod)
        return index if index is not None and index < (self._completions or 0) else None

    def _new_finished(
        self, counted: Collection[str], wanted: Callable[[Object], bool]
    ) -> list[Object]:
        return [
            pod
            for pod in self.pods
            if self._tracked(pod)
            and _uid(pod) not in counted
            and (not self._indexed or self._valid_index(pod) is not None)
            and wanted(pod)
        ]

    # ---- the end ----

    def _condition(self, kind: str, reason: str = "", message: str = "") -> Object:
        return status.make_job_condition(kind, self._now, reason, message)

    def _failure(self, reason: str, message: str) -> Object:
        kind = status.FAILURE_TARGET if self._features.interim_conditions else status.FAILED
        return self._condition(kind, reason, message)

    def _find(self, kind: str) -> Object | None:
        for condition in self._conditions:
            if condition["type"] == kind and condition.get("status") == "True":
                return condition
        return None

    @property
    def _knows_success_criteria(self) -> bool:
        return self._features.success_policy or self._features.interim_conditions

    def _find_end(self) -> None:
        self.finished = (
            self._find(status.SUCCESS_CRITERIA_MET) if self._knows_success_criteria else None
        )
        if self.finished is None:
            self.finished = self._failed_by_policy() or self._failed_by_limits()
        if self._indexed:
            self._find_indexed_end()

    def _failed_by_policy(self) -> Object | None:
        target = self._find(status.FAILURE_TARGET)
        if target is not None:
            return self._condition(
                status.FAILED, target.get("reason", ""), target.get("message", "")
            )
        failed = [pod for pod in self.pods if self.is_failed(pod)]
        message = policies.failure_message(
            self._policy, failed, fail_index=self._features.per_index
        )
        if not message:
            return None
        return self._condition(status.FAILURE_TARGET, "PodFailurePolicy", message)

    def _failed_by_limits(self) -> Object | None:
        if self.failed > self._spec.get("backoffLimit", 0) or status.restarted_too_often(
            self.job, self.pods
        ):
            return self._failure(
                "BackoffLimitExceeded", "Job has reached the specified backoff limit"
            )
        left = self.seconds_to_deadline()
        if left is not None and left <= 0:
            return self._failure(
                "DeadlineExceeded", "Job was active longer than specified deadline"
            )
        return None

    def _find_indexed_end(self) -> None:
        completions = self._completions or 0
        self._previous_indexes = IndexIntervals.parse(
            self.status.get("completedIndexes", ""), completions
        )
        done = [
            index
            for pod in self.pods
            if pods.pod_phase(pod) == "Succeeded"
            and has_tracking_finalizer(pod)
            and (index := self._valid_index(pod)) is not None
        ]
        self.succeeded_indexes = self._previous_indexes.union(IndexIntervals.of(done))
        self.succeeded = self.succeeded_indexes.total
        if self._per_index:
            self._find_failed_indexes(completions)
        if self.finished is None and self._features.success_policy:
            met = policies.match_success_policy(
                self._spec.get("successPolicy"), completions, self.succeeded_indexes
            )
            if met is not None:
                self.finished = self._condition(status.SUCCESS_CRITERIA_MET, "SuccessPolicy", met)

    def _find_failed_indexes(self, completions: int) -> None:
        before = IndexIntervals.parse(self.status.get("failedIndexes") or "", completions)
        failed = [
            index
            for pod in self.pods
            if has_tracking_finalizer(pod)
            and (index := self._valid_index(pod)) is not None
            and self._is_index_failed(pod)
        ]
        self.failed_indexes = before.union(IndexIntervals.of(failed))
        count = self.failed_indexes.total
        if self.finished is None:
            limit = self._spec.get("maxFailedIndexes")
            if limit is not None and count > limit:
                self.finished = self._failure(
                    "MaxFailedIndexesExceeded",
                    "Job has exceeded the specified maximal number of failed indexes",
                )
            elif count and count + self.succeeded_indexes.total >= completions:
                self.finished = self._failure("FailedIndexes", "Job has failed indexes")
        self._find_pods_to_replace()

    def _is_index_failed(self, pod: Object) -> bool:
        if not self.is_failed(pod):
            return False
        decision = self._decide(pod)
        if decision.action == "FailIndex":
            return True
        limit = self._spec["backoffLimitPerIndex"]
        return decision.counts and _annotated_number(pod, FAILURE_COUNT) >= limit

    def _find_pods_to_replace(self) -> None:
        """The last failed pod of each index that waits for a new one: it keeps its finalizer until
        its failure count is on the new pod.
        """
        active = {indexes.index_of(pod) for pod in self.active}
        failed = self.failed_indexes or IndexIntervals()
        for pod in self._new_finished((), self.is_failed):
            index = self._valid_index(pod)
            if (
                index is None
                or index in self.succeeded_indexes
                or index in failed
                or index in active
            ):
                continue
            before = self._to_replace.get(index)
            if before is None or (
                _absolute_failures(before) <= _absolute_failures(pod)
                and finished_time(pod) >= finished_time(before)
            ):
                self._to_replace[index] = pod

    def find_completion(self) -> None:
        """Ends the Job if it has its completions."""
        if self._completions is None:
            # A work queue: the first success means that there is no more work.
            complete = self.succeeded > 0 and self.count_active == 0
        else:
            complete = self.succeeded >= self._completions and self.count_active == 0
        if not complete:
            return
        kind = status.SUCCESS_CRITERIA_MET if self._features.interim_conditions else status.COMPLETE
        text = (
            ("CompletionsReached", "Reached expected number of succeeded pods")
            if self._features.success_policy
            else ("", "")
        )
        self.finished = self._condition(kind, *text)

    def turn_suspension(self) -> tuple[str, str] | None:
        """Updates the Suspended condition; returns the event if it changed."""
        changed = status.with_suspension(self._conditions, self.suspended, self._now)
        if changed is None:
            return None
        self._conditions = changed
        if self.suspended:
            if self._features.resets_start:
                self.status.pop("startTime", None)
            return "Suspended", "Job suspended"
        self.status["startTime"] = rfc3339(self._now)  # its deadline starts again
        return "Resumed", "Job resumed"

    # ---- pods ----

    @property
    def _wanted_active(self) -> int:
        parallelism: int = self._spec.get("parallelism", 0)
        if self._completions is None:
            return self.count_active if self.succeeded else parallelism
        return max(min(self._completions - self.succeeded, parallelism), 0)

    def to_delete(self) -> list[Object]:
        if self.suspended:
            return self.active
        out = (
            indexes.surplus_index_pods(self.active, self._completions or 0, pods.deletion_rank)
            if self._indexed
            else []
        )
        too_many = self.count_active - self._wanted_active - len(out)
        if too_many > 0:
            chosen = {_uid(pod) for pod in out}
            rest = [pod for pod in self.active if _uid(pod) not in chosen]
            out += sorted(rest, key=pods.deletion_rank)[:too_many]
        return out[:MAX_PODS_PER_SYNC]

    def missing(self) -> int:
        """How many pods to create, regardless of the back-off."""
        if self.suspended:
            return 0
        terminating = self.count_terminating if self._only_failed else 0
        return min(self._wanted_active - terminating - self.count_active, MAX_PODS_PER_SYNC)

    def plan_indexes(self, count: int) -> tuple[list[int], float]:
        """The indexes to create pods for now; if there is none, the seconds until there is."""
        taken = [*self.active]
        if self._only_failed:
            taken += [pod for pod in self.pods if is_terminating(pod)]
        used = IndexIntervals.of(i for pod in taken if (i := indexes.index_of(pod)) is not None)
        used = self.succeeded_indexes.union(used)
        if self.failed_indexes is not None:
            used = used.union(self.failed_indexes)
        found = used.first_missing(count, self._completions or 0)
        if not self._per_index:
            return found, 0.0
        waits = {index: self._index_backoff(index) for index in found}
        now = [index for index in found if waits[index] <= 0]
        return now, 0.0 if now else min(waits.values(), default=0.0)

    def _index_backoff(self, index: int) -> float:
        before = self._to_replace.get(index)
        if before is None:
            return 0.0
        failures = _absolute_failures(before) + 1
        return remaining_backoff(failures, finished_time(before), self._now)

    def backoff(self) -> float:
        """Seconds until pods may be created; with a limit per index each index has its own."""
        return 0.0 if self._per_index else self.record.remaining(self._now)

    def failure_annotations(self, index: int) -> dict[str, str]:
        """The failures of an index, for its new pod."""
        if not self._per_index:
            return {}
        before = self._to_replace.get(index)
        if before is None:
            return {FAILURE_COUNT: "0"}
        counted = _annotated_number(before, FAILURE_COUNT)
        ignored = _annotated_number(before, IGNORED_FAILURE_COUNT)
        if self._decide(before).counts:
            counted += 1
        else:
            ignored += 1
        out = {FAILURE_COUNT: str(counted)}
        if ignored:
            out[IGNORED_FAILURE_COUNT] = str(ignored)
        return out

    # ---- counting ----

    def with_finalizer(self) -> set[str]:
        return {_uid(pod) for pod in self.pods if self._tracked(pod)}

    def count_without(self, with_finalizer: Collection[str]) -> bool:
        """Moves uncounted pods that have lost their finalizer to the counters."""
        changed = False
        for name in ("succeeded", "failed"):
            uids = self.uncounted_succeeded if name == "succeeded" else self.uncounted_failed
            left = [uid for uid in uids if uid in with_finalizer]
            if len(left) != len(uids):
                self.status[name] = self.status.get(name, 0) + len(uids) - len(left)
                uids[:] = left
                changed = True
        return changed

    def uncount_finished(self) -> tuple[list[Object], bool, bool]:
        """Lists finished pods as uncounted. Returns the pods to take the finalizer from, whether
        the status changed, and whether there are more pods than fit in the lists.
        """
        out: list[Object] = []
        new_indexes: list[int] = []
        changed = False
        for pod in self.pods:
            if not self._tracked(pod) or not self._may_lose_finalizer(pod):
                continue
            out.append(pod)
            changed = self._uncount(pod, new_indexes) or changed
            if (
                len(new_indexes) + len(self.uncounted_succeeded) + len(self.uncounted_failed)
                >= _MAX_UNCOUNTED
            ):
                self._set_indexes(new_indexes)
                return out, True, True
        return out, self._set_indexes(new_indexes) or changed, False

    def _may_lose_finalizer(self, pod: Object) -> bool:
        if (
            "deletionTimestamp" in self.job["metadata"]
            or self.finished is not None
            or pods.pod_phase(pod) == "Succeeded"
        ):
            return True
        if not self.is_failed(pod):
            return False
        index = indexes.index_of(pod)
        waiting = self._to_replace.get(index) if index is not None else None
        return waiting is None or _uid(waiting) != _uid(pod)

    def _uncount(self, pod: Object, new_indexes: list[int]) -> bool:
        uid, index = _uid(pod), self._valid_index(pod)
        if pods.pod_phase(pod) == "Succeeded" and uid not in self.uncounted_failed:
            if self._indexed:
                if index is None or index in self._previous_indexes:
                    return False
                new_indexes.append(index)
                return True
            if uid in self.uncounted_succeeded:
                return False
            self.uncounted_succeeded.append(uid)
            return True
        ends_in_failure = (
            self.finished is not None and self.finished["type"] != status.SUCCESS_CRITERIA_MET
        )
        if not (self.is_failed(pod) or ends_in_failure) or uid in self.uncounted_failed:
            return False
        if (self._indexed and index is None) or not self._decide(pod).counts:
            return False
        self.uncounted_failed.append(uid)
        return True

    def _set_indexes(self, new: Sequence[int]) -> bool:
        if not self._indexed:
            return False
        done = self._previous_indexes.union(IndexIntervals.of(new))
        # The indexes of pods beyond the limit of one sync follow with the next.
        self.succeeded_indexes = self.succeeded_indexes.union(done)
        fresh: Object = {"completedIndexes": str(self.succeeded_indexes)}
        if self.failed_indexes is not None:
            fresh["failedIndexes"] = str(self.failed_indexes)
        changed = any(self.status.get(name, "") != text for name, text in fresh.items()) or (
            self.failed_indexes is not None and self.status.get("failedIndexes") is None
        )
        self.status |= fresh
        self.status["succeeded"] = self.succeeded_indexes.total
        return changed

    def set_counts(self) -> bool:
        """Puts the numbers of pods into the status; returns whether they changed."""
        fresh: Object = {"active": self.count_active}
        if self._features.ready:
            fresh["ready"] = self.count_ready
        if self._features.replacement:
            fresh["terminating"] = self.count_terminating
        changed = self.status.get("active", 0) != self.count_active or any(
            self.status.get(name) != count for name, count in fresh.items() if name != "active"
        )
        self.status |= fresh
        return changed

    def announce_end(self) -> bool:
        """Adds the interim condition; `finished` becomes the final one. Returns whether the status
        changed.
        """
        interim = self.finished
        if interim is None or interim["type"] not in (
            status.FAILURE_TARGET,
            status.SUCCESS_CRITERIA_MET,
        ):
            return False
        kind = status.FAILED if interim["type"] == status.FAILURE_TARGET else status.COMPLETE
        known = self._find(interim["type"]) is not None
        if not known:
            self._conditions.append(interim)
        self.finished = self._condition(kind, interim.get("reason", ""), interim.get("message", ""))
        return not known

    def end(self) -> bool:
        """Adds the final condition, once all pods are counted and none is terminating."""
        if self.finished is None or self.uncounted_succeeded or self.uncounted_failed:
            return False
        if self._features.interim_conditions and self.count_terminating > 0:
            return False
        self._conditions.append(self.finished)
        if self.finished["type"] == status.COMPLETE:
            self.status["completionTime"] = self.finished["lastTransitionTime"]
        return True

    def current_status(self) -> Object:
        out: Object = {name: value for name, value in self.status.items() if name not in _ZERO}
        out |= {name: self.status[name] for name in _ZERO if self.status.get(name)}
        uncounted: Object = {
            name: list(uids)
            for name, uids in (
                ("succeeded", self.uncounted_succeeded),
                ("failed", self.uncounted_failed),
            )
            if uids
        }
        out["uncountedTerminatedPods"] = uncounted
        if self._conditions:
            out["conditions"] = self._conditions
        return out


_ZERO = ("active", "succeeded", "failed", "completedIndexes")  # omitted when zero or empty


def _index_order(pod: Object) -> int:
    index = indexes.index_of(pod)
    return -1 if index is None else index


def _absolute_failures(pod: Object) -> int:
    return _annotated_number(pod, FAILURE_COUNT) + _annotated_number(pod, IGNORED_FAILURE_COUNT)
