"""Whether a node takes a pod that was bound to it, and whether it may run one it has taken.

The scheduler has looked before; the kubelet looks again, because pods get to a node in other ways too.
"""

from transom.kubelet.admission.chain import PodAdmission

__all__ = ["PodAdmission"]
