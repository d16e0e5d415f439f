"""The node lifecycle: unresponsive nodes are marked and tainted, and their pods are evicted, but
never on all nodes at once.

`health.py` evaluates one node, `zones.py` limits the eviction rate of a zone, `controller.py`
combines both every few seconds; `taint_manager.py` evicts pods from nodes with NoExecute taints,
whichever component added them.
"""

from transom.controllers.nodelifecycle.controller import NodeLifecycle

__all__ = ["NodeLifecycle"]
