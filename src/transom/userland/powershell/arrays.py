"""Arrays that scripts allocate: large ones count as memory of the process."""

from __future__ import annotations

from typing import Any, Final
from weakref import finalize

from transom.userland.powershell.dotnet_collections import typed_array
from transom.userland.powershell.dotnet_names import dotnet_name
from transom.userland.powershell.session import PowerShellSession
from transom.userland.powershell.values import (
    Allocated,
    Char,
    PowerShellError,
    to_number,
)


def _allocate(evaluator: PowerShellSession, size: int) -> Allocated:
    """A large array: it counts as memory instead of holding values."""
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


_WIDE: Final = ("int64", "long", "uint64", "ulong")
_COUNTED = 1 << 16  # bytes from which an array counts as memory instead of holding values


_EMPTY: Final = {"bool": False, "boolean": False, "char": Char("\0"), "double": 0.0, "single": 0.0}


def allocate(evaluator: PowerShellSession, arguments: list[Any], kind: str = "byte") -> list[Any]:
    count = int(to_number(arguments[0] if arguments else 0))
    if count < 0:
        raise PowerShellError("Arithmetic operation resulted in an overflow.")
    if count * _SIZES.get(kind, 8) >= _COUNTED:
        made = _allocate(evaluator, count * _SIZES.get(kind, 8))
        made.size = count
        made.kind, made.element = dotnet_name(kind) + "[]", kind
        return made
    zero = 0 if kind in _SIZES or kind in _WIDE else None
    return typed_array(kind, [_EMPTY.get(kind, zero)] * count)
