"""Arrays that scripts allocate: large ones count as memory of the process."""

from __future__ import annotations

from typing import Any
from weakref import finalize

from transom.userland.powershell.session import PowerShellSession
from transom.userland.powershell.values import (
    Allocated,
    PowerShellError,
    to_number,
)


def _allocate(evaluator: PowerShellSession, size: int) -> list[Any]:
    """A large array: it counts as memory instead of holding values."""
    if size < _COUNTED:
        return [0] * size
    evaluator.allocated += size
    if not evaluator.process.context.usage.memory(evaluator.allocated):
        evaluator.allocated -= size
        raise PowerShellError(
            "Exception of type 'System.OutOfMemoryException' was thrown.",
            "OperationStopped: (:) [], OutOfMemoryException",
            "System.OutOfMemoryException",
        )
    made = Allocated([0] * 64)
    finalize(made, _release, evaluator, size)
    return made


def _release(evaluator: PowerShellSession, size: int) -> None:
    """The array is no longer referenced."""
    evaluator.allocated -= size
    evaluator.process.context.usage.memory(evaluator.allocated)


_SIZES = {
    "byte": 1,
    "sbyte": 1,
    "bool": 1,
    "char": 2,
    "int16": 2,
    "int": 4,
    "int32": 4,
    "uint32": 4,
    "single": 4,
}


_COUNTED = 1 << 16  # bytes from which an array counts as memory instead of holding values


def allocate(evaluator: PowerShellSession, arguments: list[Any], kind: str = "byte") -> list[Any]:
    count = int(to_number(arguments[0] if arguments else 0))
    if count < 0:
        raise PowerShellError("Arithmetic operation resulted in an overflow.")
    made = (
        _allocate(evaluator, count * _SIZES.get(kind, 8))
        if count * _SIZES.get(kind, 8) >= _COUNTED
        else [0] * count
    )
    if isinstance(made, Allocated):
        made.size = count
    return made
