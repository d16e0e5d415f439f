"""What CEL expressions may cost on the event loop. Those that cost more are evaluated again in a
worker thread, with the limits of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:  # CEL is slow to load
    from transom.kit.cel.interpreter import CelProgram, EvaluationResult

BRIEF_COST: Final = 20_000  # about 10 ms


class BriefBudgetSpentError(Exception):
    """The expressions cost too much for the event loop: evaluate them in a worker thread."""


class BriefBudget:
    """What expressions may cost on the event loop, for one request."""

    __slots__ = ("remaining",)

    def __init__(self, remaining: int = BRIEF_COST) -> None:
        self.remaining = remaining

    def evaluate(self, program: CelProgram, variables: Mapping[str, Any]) -> EvaluationResult:
        """Raises BriefBudgetSpentError."""
        if program.compiles_patterns:
            raise BriefBudgetSpentError
        found = program.evaluate(variables, max(0, self.remaining))
        self.remaining -= found.cost
        if self.remaining < 0:
            raise BriefBudgetSpentError
        return found
