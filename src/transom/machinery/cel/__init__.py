"""Kubernetes' CEL: the libraries and costs that k8s.io/apiserver adds to the language, and the
limits that it sets.

`environment.kubernetes_environment` is what all users of CEL compile with: rules of custom
resources today.
"""

from transom.machinery.cel.environment import kubernetes_environment
from transom.machinery.cel.limits import PER_CALL_LIMIT, RUNTIME_COST_BUDGET

__all__ = ["PER_CALL_LIMIT", "RUNTIME_COST_BUDGET", "kubernetes_environment"]
