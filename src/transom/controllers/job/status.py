"""The status of a Job: its end and its conditions. Pure functions, also used by CronJobs and the
TTL controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from transom.kit.clock import parse_rfc3339, rfc3339
from transom.machinery.objects import Object

COMPLETE, FAILED, SUSPENDED = "Complete", "Failed", "Suspended"
# What a Job that ends has before Failed or Complete, while its pods terminate.
FAILURE_TARGET, SUCCESS_CRITERIA_MET = "FailureTarget", "SuccessCriteriaMet"


def end_condition(job: Object) -> Object | None:
    """The condition that shows that the Job has finished, successfully or not."""
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition["type"] in (COMPLETE, FAILED) and condition.get("status") == "True":
            return condition
    return None


def is_finished(job: Object) -> bool:
    return end_condition(job) is not None


def is_suspended(job: Object) -> bool:
    return bool(job["spec"].get("suspend"))


def make_job_condition(
    kind: str, now: float, reason: str = "", message: str = "", status: str = "True"
) -> Object:
    out = {
        "type": kind,
        "status": status,
        "lastProbeTime": rfc3339(now),
        "lastTransitionTime": rfc3339(now),
    }
    if reason:
        out |= {"reason": reason, "message": message}
    return out


def with_suspension(
    conditions: Sequence[Object], suspended: bool, now: float
) -> list[Object] | None:
    """The conditions with Suspended updated; None if it is up to date."""
    fresh = (
        make_job_condition(SUSPENDED, now, "JobSuspended", "Job suspended")
        if suspended
        else make_job_condition(SUSPENDED, now, "JobResumed", "Job resumed", "False")
    )
    at = next((i for i, old in enumerate(conditions) if old["type"] == SUSPENDED), None)
    if at is None:
        return [*conditions, fresh] if suspended else None  # it was never suspended
    if conditions[at].get("status") == fresh["status"]:
        return None
    return [*conditions[:at], fresh, *conditions[at + 1 :]]


def seconds_to_deadline(job: Object, start: str, now: float) -> float | None:
    """Seconds until the active deadline, negative after it; None without a deadline."""
    allowed = job["spec"].get("activeDeadlineSeconds")
    if allowed is None or not start or is_suspended(job):
        return None
    return parse_rfc3339(start) + float(allowed) - now


def restarted_too_often(job: Object, pods: Iterable[Object]) -> bool:
    """Container restarts within the pod count against the limit."""
    if (job["spec"]["template"].get("spec") or {}).get("restartPolicy") != "OnFailure":
        return False
    restarts = 0
    for pod in pods:
        status = pod.get("status") or {}
        if status.get("phase") in ("Running", "Pending"):
            for field in ("initContainerStatuses", "containerStatuses"):
                restarts += sum(
                    container.get("restartCount", 0) for container in status.get(field) or ()
                )
    limit = job["spec"].get("backoffLimit", 0)
    return restarts > 0 if limit == 0 else restarts >= limit
