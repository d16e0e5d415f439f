"""The part of NumPy's interface that the scheduler uses, for one-dimensional arrays kept as lists.

Used where NumPy is not installed (`arrays.np`): it takes 70 MB of disk and 0.1 s to import, and a
cluster with a hundred nodes does not need it. The results are the same; a test compares both.
Slices are copies, not views. Integers do not overflow.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator
from itertools import compress, repeat
from typing import Any

# The types of elements, under NumPy's names. All integers are Python's.
bool_ = bool
int32 = int64 = intp = int
float64 = float


class uint64:
    """As a dtype only: negative numbers become the large ones that have the same bits."""

    def __new__(cls, value: Any) -> Any:
        return int(value) % (1 << 64)


class iinfo:
    """The limits of int32, the only type whose limits the scheduler needs."""

    def __init__(self, dtype: type) -> None:
        self.min, self.max = -(1 << 31), (1 << 31) - 1


_RANKS = {bool: 0, int: 1, uint64: 1, float: 2}


class ndarray:
    """Values of one type, with element-by-element operators."""

    __slots__ = ("dtype", "values")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, values: list[Any], dtype: type) -> None:
        self.values = values
        self.dtype = dtype

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __repr__(self) -> str:
        return f"array({self.values!r})"

    def __bool__(self) -> bool:
        if len(self.values) != 1:
            raise ValueError("the truth value of an array is ambiguous: use any() or all()")
        return bool(self.values[0])

    def __int__(self) -> int:
        if len(self.values) != 1:
            raise TypeError("only an array with one element can be a number")
        return int(self.values[0])

    __index__ = __int__

    @property
    def size(self) -> int:
        return len(self.values)

    # Elements.

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, ndarray):
            if at.dtype is bool:
                return ndarray(list(compress(self.values, at.values)), self.dtype)
            return ndarray([self.values[i] for i in at.values], self.dtype)
        if isinstance(at, slice):
            return ndarray(self.values[at], self.dtype)
        if isinstance(at, list):
            return self[array(at)]
        return self.values[at]

    def __setitem__(self, at: Any, new: Any) -> None:
        convert = self.dtype
        places = self._places(at)
        if places is None:
            self.values[at] = convert(new)
        elif isinstance(new, ndarray | list):
            for place, value in zip(places, new, strict=True):
                self.values[place] = convert(value)
        else:
            value = convert(new)
            for place in places:
                self.values[place] = value

    def _places(self, at: Any) -> Iterable[int] | None:
        """The indices that an index selects; None for a number, which selects one element."""
        if isinstance(at, slice):
            return range(*at.indices(len(self.values)))
        if isinstance(at, list):
            at = array(at)
        if not isinstance(at, ndarray):
            return None
        if at.dtype is bool:
            return list(compress(range(len(self.values)), at.values))
        return at.values

    def tolist(self) -> list[Any]:
        return list(self.values)

    def copy(self) -> ndarray:
        return ndarray(list(self.values), self.dtype)

    def astype(self, dtype: type) -> ndarray:
        made = bool if dtype is bool else float if dtype is float else int
        return ndarray(list(map(dtype, self.values)), made)

    # Reductions.

    def any(self) -> bool:
        return any(self.values)

    def all(self) -> bool:
        return all(self.values)

    def sum(self) -> Any:
        return sum(self.values)

    def max(self, initial: Any = None) -> Any:
        return max(self.values) if initial is None else max(initial, *self.values, initial)

    def min(self, initial: Any = None) -> Any:
        return min(self.values) if initial is None else min(initial, *self.values, initial)

    # Operators.

    def __eq__(self, other: object) -> Any:
        return self._compare(operator.eq, other)

    def __ne__(self, other: object) -> Any:
        return self._compare(operator.ne, other)

    def __lt__(self, other: Any) -> ndarray:
        return self._compare(operator.lt, other)

    def __le__(self, other: Any) -> ndarray:
        return self._compare(operator.le, other)

    def __gt__(self, other: Any) -> ndarray:
        return self._compare(operator.gt, other)

    def __ge__(self, other: Any) -> ndarray:
        return self._compare(operator.ge, other)

    def __and__(self, other: Any) -> ndarray:
        return self._calculate(operator.and_, other)

    def __or__(self, other: Any) -> ndarray:
        return self._calculate(operator.or_, other)

    def __xor__(self, other: Any) -> ndarray:
        return self._calculate(operator.xor, other)

    def __lshift__(self, other: Any) -> ndarray:
        return self._calculate(operator.lshift, other, int)

    def __add__(self, other: Any) -> ndarray:
        if self.dtype is bool and _type_of(other) is bool:
            return self | other
        return self._calculate(operator.add, other)

    def __sub__(self, other: Any) -> ndarray:
        return self._calculate(operator.sub, other)

    def __mul__(self, other: Any) -> ndarray:
        return self._calculate(operator.mul, other)

    def __floordiv__(self, other: Any) -> ndarray:
        return self._calculate(operator.floordiv, other)

    def __truediv__(self, other: Any) -> ndarray:
        return self._calculate(operator.truediv, other, float)

    __rand__, __ror__, __rxor__, __radd__, __rmul__ = __and__, __or__, __xor__, __add__, __mul__

    def __rsub__(self, other: Any) -> ndarray:
        return -self + other

    def __neg__(self) -> ndarray:
        return ndarray(list(map(operator.neg, self.values)), self.dtype)

    def __invert__(self) -> ndarray:
        flip = operator.not_ if self.dtype is bool else operator.invert
        return ndarray(list(map(flip, self.values)), self.dtype)

    def __iand__(self, other: Any) -> ndarray:
        return self._update(self & other)

    def __ior__(self, other: Any) -> ndarray:
        return self._update(self | other)

    def __iadd__(self, other: Any) -> ndarray:
        return self._update(self + other)

    def __isub__(self, other: Any) -> ndarray:
        return self._update(self - other)

    def __imul__(self, other: Any) -> ndarray:
        return self._update(self * other)

    def _compare(self, compare: Callable[[Any, Any], Any], other: Any) -> ndarray:
        return ndarray(list(map(compare, *self._pair(other))), bool)

    def _calculate(
        self, calculate: Callable[[Any, Any], Any], other: Any, dtype: type | None = None
    ) -> ndarray:
        values = list(map(calculate, *self._pair(other)))
        return ndarray(values, dtype or max(self.dtype, _type_of(other), key=_RANKS.__getitem__))

    def _pair(self, other: Any) -> tuple[Iterable[Any], Iterable[Any]]:
        if not isinstance(other, ndarray):
            return self.values, repeat(other)
        own, others = self.values, other.values
        if len(own) == len(others):
            return own, others
        if len(others) == 1:
            return own, repeat(others[0])
        if len(own) == 1:
            return repeat(own[0]), others
        raise ValueError(f"arrays of {len(own)} and {len(others)} elements do not match")

    def _update(self, new: ndarray) -> ndarray:
        """What an in-place operator leaves; as in NumPy, the type stays the same."""
        if _RANKS[new.dtype] > _RANKS[self.dtype]:
            raise TypeError(
                f"cannot keep {new.dtype.__name__} in an array of {self.dtype.__name__}"
            )
        if len(new) != len(self):
            raise ValueError(f"{len(new)} elements do not fit in {len(self)}")
        self.values[:] = new.values
        return self


def _type_of(value: Any) -> type:
    if isinstance(value, ndarray):
        return value.dtype
    return bool if value is True or value is False else float if isinstance(value, float) else int


def array(values: Iterable[Any], dtype: type | None = None) -> ndarray:
    items = list(values)
    if dtype is None:
        dtype = max(map(_type_of, items), key=_RANKS.__getitem__, default=float)
    return ndarray(list(map(dtype, items)), dtype)


def zeros(size: int, dtype: type = float) -> ndarray:
    return ndarray([dtype(0)] * size, dtype)


empty = zeros


def ones(size: int, dtype: type = float) -> ndarray:
    return ndarray([dtype(1)] * size, dtype)


def full(size: int, value: Any, dtype: type | None = None) -> ndarray:
    kept = dtype or _type_of(value)
    return ndarray([kept(value)] * size, kept)


def zeros_like(like: ndarray) -> ndarray:
    return zeros(len(like), like.dtype)


def arange(stop: int) -> ndarray:
    return ndarray(list(range(stop)), int)


def concatenate(parts: Iterable[ndarray]) -> ndarray:
    arrays = list(parts)
    dtype = max((part.dtype for part in arrays), key=_RANKS.__getitem__)
    return ndarray([dtype(value) for part in arrays for value in part.values], dtype)


def broadcast_to(value: Any, size: int) -> ndarray:
    return value if isinstance(value, ndarray) else full(size, value)


def where(condition: ndarray, yes: Any, no: Any) -> ndarray:
    dtype = max(_type_of(yes), _type_of(no), key=_RANKS.__getitem__)
    chosen = (
        dtype(a if c else b)
        for c, a, b in zip(condition.values, _elements(yes), _elements(no), strict=False)
    )
    return ndarray(list(chosen), dtype)


def _elements(value: Any) -> Iterable[Any]:
    return value.values if isinstance(value, ndarray) else repeat(value)


def isin(values: ndarray, wanted: Iterable[Any]) -> ndarray:
    known = set(wanted)
    return ndarray([value in known for value in values.values], bool)


def flatnonzero(values: ndarray) -> ndarray:
    return ndarray(list(compress(range(len(values)), values.values)), int)


def unique(values: ndarray) -> ndarray:
    return ndarray(sorted(set(values.values)), values.dtype)


def bincount(codes: ndarray, weights: ndarray, minlength: int = 0) -> ndarray:
    sums = [0.0] * max(minlength, codes.max(initial=-1) + 1)
    for code, weight in zip(codes.values, weights.values, strict=True):
        sums[code] += weight
    return ndarray(sums, float)


def maximum(first: ndarray, second: Any) -> ndarray:
    return first._calculate(max, second)


def minimum(first: ndarray, second: Any) -> ndarray:
    return first._calculate(min, second)


def clip(values: ndarray, low: Any, high: Any) -> ndarray:
    return minimum(maximum(values, low), high)


def absolute(values: ndarray) -> ndarray:
    return ndarray(list(map(operator.abs, values.values)), values.dtype)


abs = absolute


def floor(values: ndarray) -> ndarray:
    return ndarray([float(math.floor(value)) for value in values.values], float)
