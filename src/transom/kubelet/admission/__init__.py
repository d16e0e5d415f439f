"""Decides whether the node admits a pod that was bound to it, and whether an admitted pod may run.

The scheduler has checked already; the kubelet checks again, because pods can reach a node without
the scheduler.
"""

from transom.kubelet.admission.chain import PodAdmission

__all__ = ["PodAdmission"]
