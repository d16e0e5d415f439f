"""The back-off of a Job's pods: 10 s after the first failure, doubled by each one that follows
without a success, at most ten minutes.
"""

from __future__ import annotations

from collections.abc import Iterable

from transom.controllers.pods import pod_ready_condition
from transom.kit.backoff import exponential_backoff
from transom.kit.clock import parse_rfc3339
from transom.kit.named_tuple import NamedTuple
from transom.machinery.objects import Object

_FIRST, _LONGEST = 10.0, 600.0


class BackoffRecord(NamedTuple):
    """Failures since the last success, and when the last one was."""

    failures: int = 0
    last_failure: float = 0.0

    def remaining(self, now: float) -> float:
        """Seconds until a failed pod may be replaced."""
        return remaining_backoff(self.failures, self.last_failure, now)

    def after(self, succeeded: Iterable[Object], failed: Iterable[Object]) -> BackoffRecord:
        """With pods that have finished since."""
        failures = sorted(map(finished_time, failed))
        successes = [*map(finished_time, succeeded)]
        if not successes:
            if not failures:
                return self
            return BackoffRecord(self.failures + len(failures), failures[-1])
        since = [time for time in failures if time > max(successes)]
        return BackoffRecord(len(since), since[-1]) if since else BackoffRecord()


def remaining_backoff(failures: int, last_failure: float, now: float) -> float:
    if not failures:
        return 0.0
    return max(exponential_backoff(_FIRST, _LONGEST, failures - 1) - (now - last_failure), 0.0)


def finished_time(pod: Object) -> float:
    """When a pod ended: its containers, else when it became unready or was deleted."""
    meta = pod["metadata"]
    ended = _containers_finished(pod)
    if ended is not None:
        return ended
    ready = pod_ready_condition(pod)
    if ready is not None and ready.get("status") == "False" and ready.get("lastTransitionTime"):
        return parse_rfc3339(ready["lastTransitionTime"])
    if "deletionTimestamp" in meta:
        return parse_rfc3339(meta["deletionTimestamp"]) - meta.get("deletionGracePeriodSeconds", 0)
    return parse_rfc3339(meta["creationTimestamp"])


def _containers_finished(pod: Object) -> float | None:
    status = pod.get("status") or {}
    sidecars = {
        container["name"]
        for container in pod["spec"].get("initContainers") or ()
        if container.get("restartPolicy") == "Always"
    }
    counted = [
        *(status.get("containerStatuses") or ()),
        *(c for c in status.get("initContainerStatuses") or () if c["name"] in sidecars),
    ]
    times = [((c.get("state") or {}).get("terminated") or {}).get("finishedAt") for c in counted]
    if not times or not all(times):
        return None
    return max(parse_rfc3339(time) for time in times if time)
