"""Jobs: pods that run to completion.

- `controller.py`: syncs a Job, with back-off after failures
- `indexes.py`: Indexed Jobs
- `status.py`: the status of a Job
"""

from transom.controllers.job.controller import Jobs

__all__ = ["Jobs"]
