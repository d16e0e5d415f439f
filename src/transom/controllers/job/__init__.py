"""Jobs: pods that run to their end, as often as asked for.

- `controller.py`: one Job brought towards its end, and the waiting after failures
- `indexes.py`: Jobs whose pods are numbered
- `status.py`: what a Job says of itself
"""

from transom.controllers.job.controller import Jobs

__all__ = ["Jobs"]
