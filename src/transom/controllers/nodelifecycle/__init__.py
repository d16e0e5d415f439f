"""The life of nodes: who has gone silent is marked, tainted, and loses its pods, but never all nodes at once.

`health.py` judges one node, `zones.py` how fast nodes of a zone may be given up, `controller.py` brings both together
every few seconds; `taint_manager.py` moves pods off nodes with NoExecute taints, whoever put those there.
"""

from transom.controllers.nodelifecycle.controller import NodeLifecycle

__all__ = ["NodeLifecycle"]
