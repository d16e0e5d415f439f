"""Jobs: pods that run to completion.

- `tracked.py`, `tracked_sync.py`: the controller of releases that track pods with a finalizer, with
  `policies.py` (podFailurePolicy, successPolicy), `backoff.py` and `intervals.py`
- `controller.py`, `sync.py`: that of older releases, with back-off after failures
- `features.py`: which of it a release has
- `indexes.py`: Indexed Jobs
- `status.py`: the status of a Job
"""

from __future__ import annotations

from transom.controllers.base import Controller, ControllerContext
from transom.controllers.job.controller import Jobs
from transom.controllers.job.tracked import TrackedJobs

__all__ = ["Jobs", "TrackedJobs", "job_controller"]


def job_controller(env: ControllerContext) -> Controller:
    """The controller of the release."""
    if env.settings.features.enabled("JobTrackingWithFinalizers"):
        return TrackedJobs(env)
    return Jobs(env)
