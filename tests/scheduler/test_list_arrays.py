"""Arrays kept as lists give the same results as NumPy's, so that the scheduler works without it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.scheduler import list_arrays

Operation = Callable[[Any, list[int], list[int], list[bool]], Any]

INTS: dict[str, Operation] = {
    "add": lambda np, a, b, m: np.array(a, np.int64) + np.array(b, np.int64),
    "subtract": lambda np, a, b, m: 7 - np.array(a, np.int64) - np.array(b, np.int64),
    "multiply": lambda np, a, b, m: 3 * np.array(a, np.int64) * np.array(b, np.int64),
    "floor": lambda np, a, b, m: np.array(a, np.int64) // np.maximum(np.array(b, np.int64), 1),
    "divide": lambda np, a, b, m: np.array(a, np.int64) / np.maximum(np.array(b, np.int64), 1),
    "truncate": lambda np, a, b, m: (np.array(a, np.int64) / 3).astype(np.int64),
    "round": lambda np, a, b, m: np.floor(np.array(a, np.int64) / 2 + 0.5).astype(np.int64),
    "compare": lambda np, a, b, m: np.array(a, np.int64) <= np.array(b, np.int64),
    "equal": lambda np, a, b, m: (np.array(a, np.int64) == 0) | (np.array(b, np.int64) != 1),
    "not": lambda np, a, b, m: ~np.array(m, np.bool_) & (np.array(a, np.int64) > 0),
    "select": lambda np, a, b, m: np.array(a, np.int64)[np.array(m, np.bool_)],
    "gather": lambda np, a, b, m: np.array(a, np.int64)[np.array([0, -1], np.intp)],
    "where": lambda np, a, b, m: np.where(np.array(m, np.bool_), np.array(a, np.int64), 5),
    "where mixed": lambda np, a, b, m: np.where(np.array(m, np.bool_), 1.0, np.array(a, np.int64)),
    "isin": lambda np, a, b, m: np.isin(np.array(a, np.int64), b),
    "unique": lambda np, a, b, m: np.unique(np.array(a, np.int64)),
    "nonzero": lambda np, a, b, m: np.flatnonzero(np.array(m, np.bool_)),
    "concatenate": lambda np, a, b, m: np.concatenate([np.array(a, np.int64), np.arange(3)]),
    "clip": lambda np, a, b, m: np.clip(np.array(a, np.int64), -2, 4),
    "absolute": lambda np, a, b, m: np.abs(np.array(a, np.int64) - np.array(b, np.int64)),
    "minimum": lambda np, a, b, m: np.minimum(np.array(a, np.int64), np.array(b, np.int64)),
    "bits": lambda np, a, b, m: (
        (np.array(m, np.bool_).astype(np.int64) << 3) | np.ones(1, np.int64)
    ),
    "largest": lambda np, a, b, m: np.array([np.array(a, np.int64).max(initial=3)]),
    "unsigned": lambda np, a, b, m: np.array([np.array(a, np.int64).astype(np.uint64).max() < 9]),
    "sums": lambda np, a, b, m: np.bincount(
        np.array([abs(x) for x in a], np.int64), weights=np.array(b, np.int64), minlength=2
    ),
    "total": lambda np, a, b, m: np.array(
        [np.array(m, np.bool_).sum(), np.array(m, np.bool_).any(), np.array(m, np.bool_).all()]
    ),
    "broadcast": lambda np, a, b, m: np.broadcast_to(4, 3),
    "zeros": lambda np, a, b, m: np.zeros_like(np.array(a, np.int64)),
    "filled": lambda np, a, b, m: np.full(2, float(a[0])),
}
CHANGES: dict[str, Operation] = {
    "add": lambda np, v, b, m: v.__iadd__(np.array(b, np.int64)),
    "subtract": lambda np, v, b, m: v.__isub__(2),
    "or": lambda np, v, b, m: v.__ior__(np.array(b, np.int64)),
    "set one": lambda np, v, b, m: v.__setitem__(0, 2.9),
    "set rows": lambda np, v, b, m: v.__setitem__(
        np.array([0], np.intp), np.array(b[:1], np.int64)
    ),
    "set slice": lambda np, v, b, m: v.__setitem__(slice(0, 1), np.array([9], np.int64)),
    "set masked": lambda np, v, b, m: v.__setitem__(np.array(m, np.bool_), 8),
    "set slice to one": lambda np, v, b, m: v.__setitem__(slice(None, -1), 3),
}
number = st.integers(-9, 9)
rows = st.integers(1, 6).flatmap(
    lambda n: st.tuples(
        *(st.lists(item, min_size=n, max_size=n) for item in (number, number, st.booleans()))
    )
)


@pytest.mark.parametrize("name", INTS)
@given(values=rows)
def test_gives_the_same_values_and_type(name: str, values: Any) -> None:
    wanted, found = (INTS[name](np, *values) for np in (numpy, list_arrays))
    assert found.tolist() == wanted.tolist()
    kind = {"b": bool, "i": int, "f": float}[wanted.dtype.kind]
    assert found.dtype is kind and all(type(value) is kind for value in found.tolist())


@pytest.mark.parametrize("name", CHANGES)
@given(values=rows)
def test_changes_in_place_alike(name: str, values: Any) -> None:
    left = []
    for np in (numpy, list_arrays):
        array: Any = np.array(values[0], np.int64)  # type: ignore[attr-defined]
        alias = array
        CHANGES[name](np, array, values[1], values[2])
        left.append(alias.tolist())
    assert left[0] == left[1]


def test_a_type_that_does_not_fit_is_an_error() -> None:
    counts = list_arrays.zeros(2, int)
    with pytest.raises(TypeError):
        counts += 0.5
    with pytest.raises(ValueError, match="do not match"):
        _ = counts + list_arrays.zeros(3, int)
    with pytest.raises(ValueError, match="ambiguous"):
        bool(counts)


def test_the_scheduler_uses_them_where_numpy_is_missing() -> None:
    script = (
        "import sys; sys.modules['numpy'] = None\n"
        "from transom.scheduler import scheduler, default_plugins\n"
        "from transom.scheduler.arrays import np; print(np.__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    assert done.stdout == "transom.scheduler.list_arrays\n"
