"""The cost limits of CEL in Kubernetes (k8s.io/apiserver/pkg/apis/cel)."""

from typing import Final

PER_CALL_LIMIT: Final = 1_000_000  # one evaluation of one expression
RUNTIME_COST_BUDGET: Final = 10_000_000  # all expressions for one object
STATIC_COST_LIMIT: Final = 10_000_000  # the estimate for one rule of a custom resource
STATIC_CRD_COST_LIMIT: Final = 100_000_000  # the estimate for all rules of one schema
MATCH_CONDITIONS_COST_BUDGET: Final = 2_500_000  # all match conditions of one webhook or policy
MAX_REQUEST_BYTES: Final = 3 * 1024 * 1024
MAX_MESSAGE_BYTES: Final = 5 * 1024
