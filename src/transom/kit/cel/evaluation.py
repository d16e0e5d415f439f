"""The state of an evaluation, which the closures of a program share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transom.kit.cel.errors import CelError


class Evaluation:
    """The state of one evaluation: variables by name, the cost so far and its limit."""

    __slots__ = ("cost", "limit", "variables")

    def __init__(self, variables: dict[str, Any], limit: int) -> None:
        self.variables, self.limit, self.cost = variables, limit, 0


Run = Callable[[Evaluation], Any]


class Constant:
    """A value that is known before the evaluation. It costs nothing."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self, state: Evaluation) -> Any:
        return self.value


class FailedValue:
    """The accumulator of a comprehension whose step failed: `&&` and `||` may still decide without
    it.
    """

    __slots__ = ("error",)

    def __init__(self, error: CelError) -> None:
        self.error = error
