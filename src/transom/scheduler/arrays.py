"""The array types of the scheduler, and a cache of computed columns that is updated row by row.

`np` is NumPy where it is installed (the extra `fast`), otherwise `list_arrays`. The arrays are small:
threads inside NumPy would only cost memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, overload

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Rows = NDArray[np.intp]  # rows of the snapshot, each a node
    Mask = NDArray[np.bool_]
    Ints = NDArray[np.int64]
    Codes = NDArray[np.int32]
    Floats = NDArray[np.float64]
    Values = Mask | Ints
    Some = Rows | slice
else:
    if find_spec("numpy") is not None:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        import numpy as np
    else:
        from transom.scheduler import list_arrays as np
    Rows = Mask = Ints = Codes = Floats = np.ndarray
    Values = np.ndarray
    Some = np.ndarray | slice

__all__ = [
    "Codes",
    "Floats",
    "Ints",
    "Mask",
    "RowCache",
    "Rows",
    "Some",
    "Values",
    "no_rows",
    "np",
]

_LOGGED = 8192
_KEPT = 192


def no_rows() -> Rows:
    return np.zeros(0, np.intp)


class _Entry:
    __slots__ = ("at", "values")

    def __init__(self, values: Values, at: int) -> None:
        self.values = values
        self.at = at


class RowCache:
    """Columns computed row by row. After a row is invalidated with `touch`, only that row is
    computed again.

    Later calls overwrite the returned column: use it immediately.
    """

    def __init__(self) -> None:
        self._entries: dict[Hashable, _Entry] = {}
        self._log: list[int] = []
        self._base = 0
        self._capacity = 0

    @property
    def version(self) -> int:
        """Increases with each change of a row."""
        return self._base + len(self._log)

    def touch(self, row: int) -> None:
        self._log.append(row)
        if len(self._log) > _LOGGED:
            cut = _LOGGED // 2
            del self._log[:cut]
            self._base += cut

    def resize(self, capacity: int) -> None:
        self._entries.clear()
        self._capacity = capacity

    @overload
    def get(self, key: Hashable, compute: Callable[[Rows], Values]) -> Values: ...
    @overload
    def get(
        self, key: Hashable, compute: Callable[[Some], Values], *, slices: Literal[True]
    ) -> Values: ...
    def get(
        self, key: Hashable, compute: Callable[[Any], Values], *, slices: bool = False
    ) -> Values:
        """The column of `key`; `compute` returns its values for some rows. With `slices` a single
        row is passed as a slice, which is much faster than an array.
        """
        entry = self._entries.get(key)
        now = self._base + len(self._log)
        if entry is None:
            if len(self._entries) >= _KEPT:
                del self._entries[next(iter(self._entries))]
            entry = self._entries[key] = _Entry(compute(np.arange(self._capacity)), now)
            return entry.values
        behind = now - entry.at
        if behind:
            if behind == 1:  # the usual case, after a pod was scheduled
                row = self._log[-1]
                one: Some = slice(row, row + 1) if slices else np.array([row], np.intp)
                entry.values[one] = compute(one)
            elif behind * 4 > self._capacity or entry.at < self._base:
                entry.values = compute(np.arange(self._capacity))
            else:
                rows = np.array(list(set(self._log[entry.at - self._base :])), np.intp)
                entry.values[rows] = compute(rows)
            entry.at = now
        return entry.values
