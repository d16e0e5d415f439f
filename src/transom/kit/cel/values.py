"""CEL values as Python values, their types, their equality and their texts.

bool, int, float, str, bytes, None, list and dict are themselves; an unsigned integer is a Uint. A
map whose keys are bools keeps them as BoolKey, because True and 1 are the same key in Python.
CelList and CelMap are views of other data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from transom.kit.cel.errors import CelError
from transom.kit.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    CelType,
    list_type,
    map_type,
    optional_type,
)

MAX_INT: Final = (1 << 63) - 1
MIN_INT: Final = -(1 << 63)
MAX_UINT: Final = (1 << 64) - 1
SECOND: Final = 10**9
MIN_TIME: Final = -62135596800 * SECOND
MAX_TIME: Final = 253402300799 * SECOND + SECOND - 1


class Uint(int):
    __slots__ = ()


class Duration:
    __slots__ = ("nanos",)

    def __init__(self, nanos: int) -> None:
        if not MIN_INT <= nanos <= MAX_INT:
            raise CelError("integer overflow")
        self.nanos = nanos

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Duration) and self.nanos == other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)


class Timestamp:
    __slots__ = ("nanos",)

    def __init__(self, nanos: int) -> None:
        if not MIN_TIME <= nanos <= MAX_TIME:
            raise CelError("timestamp overflow")
        self.nanos = nanos

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timestamp) and self.nanos == other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)


class Optional:
    __slots__ = ("present", "value")

    def __init__(self, present: bool, value: Any = None) -> None:
        self.present, self.value = present, value

    def get(self) -> Any:
        if not self.present:
            raise CelError("optional.none() dereference")
        return self.value


NONE: Final = Optional(False)


class BoolKey:
    __slots__ = ("value",)

    def __init__(self, value: bool) -> None:
        self.value = value


_TRUE_KEY, _FALSE_KEY = BoolKey(True), BoolKey(False)


class CelList:
    """A list whose items are created on access."""

    __slots__ = ()

    def __len__(self) -> int:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError

    def equals(self, other: Any) -> bool:
        return _same_items(self, other)

    def add(self, other: Any) -> Any:
        return [*self, *other]


class CelMap:
    """A map or an object whose values are created on access."""

    __slots__ = ()
    cel_type: CelType = map_type(STRING, DYN)

    def __len__(self) -> int:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError

    def find(self, key: Any) -> Optional:
        raise NotImplementedError

    def is_set(self, key: Any) -> bool:
        return self.find(key).present


class Opaque:
    """A value of a type that a library declares."""

    __slots__ = ()
    cel_type: CelType = DYN

    def equals(self, other: Any) -> bool:
        raise NotImplementedError


def is_list(value: Any) -> bool:
    return isinstance(value, list | CelList)


def is_map(value: Any) -> bool:
    return isinstance(value, dict | CelMap)


def type_of(value: Any) -> CelType:
    simple = _TYPES.get(type(value))
    if simple is not None:
        return simple
    if isinstance(value, CelList):
        return list_type(DYN)
    if isinstance(value, CelMap | Opaque):
        return value.cel_type
    if isinstance(value, Optional):
        return optional_type(DYN)
    if isinstance(value, CelType):
        return TYPE
    raise CelError(f"unsupported conversion to ref.Val: ({type(value).__name__}){value}")


_TYPES: Final[dict[type, CelType]] = {
    bool: BOOL,
    int: INT,
    Uint: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    type(None): NULL,
    Duration: DURATION,
    Timestamp: TIMESTAMP,
    list: list_type(DYN),
    dict: map_type(DYN, DYN),
}


def fits_int64(value: Any, kind: CelType) -> bool:
    """Whether a value can be an argument of this type; the types inside lists and maps are not
    checked.
    """
    name = kind.kind
    if name in ("dyn", "param"):
        return True
    if name == "list":
        return is_list(value)
    if name == "map":
        return is_map(value)
    if name == "opaque" and kind.name == "optional_type":
        return isinstance(value, Optional)
    if name == "type":
        return isinstance(value, CelType)
    found = type_of(value)
    return found.kind == name and found.name == kind.name


def cel_type_name(value: Any) -> str:
    return value.name if isinstance(value, CelType) else type_of(value).name


def cel_equals(one: Any, two: Any) -> bool:
    """CEL's equality: numbers compare by value regardless of type, other values only with the same
    type.
    """
    kind = type(one)
    if kind is type(two) and kind in _PLAIN:
        return bool(one == two)
    if isinstance(one, bool) or isinstance(two, bool):
        return one is two
    if isinstance(one, int | float):
        return isinstance(two, int | float) and one == two
    if isinstance(one, CelList):
        return is_list(two) and one.equals(two)
    if isinstance(two, CelList):
        return is_list(one) and two.equals(one)
    if isinstance(one, list):
        return isinstance(two, list) and _same_items(one, two)
    if is_map(one):
        return is_map(two) and _same_entries(one, two)
    if isinstance(one, Optional):
        return (
            isinstance(two, Optional)
            and one.present == two.present
            and (not one.present or cel_equals(one.value, two.value))
        )
    if isinstance(one, CelType):
        return isinstance(two, CelType) and one.name == two.name
    if isinstance(one, Opaque):
        return isinstance(two, Opaque) and one.cel_type == two.cel_type and one.equals(two)
    return bool(one == two)


_PLAIN: Final = frozenset((str, int, bytes, float, bool, Uint, Duration, Timestamp, type(None)))


def _same_items(one: Any, two: Any) -> bool:
    return len(one) == len(two) and all(cel_equals(a, b) for a, b in zip(one, two, strict=True))


def _same_entries(one: Any, two: Any) -> bool:
    if len(one) != len(two):
        return False
    for key in map_keys(one):
        other = map_find(two, key)
        if not other.present or not cel_equals(map_find(one, key).value, other.value):
            return False
    return True


def map_key(key: Any) -> Any:
    """A key as a dict holds it."""
    if isinstance(key, bool):
        return _TRUE_KEY if key else _FALSE_KEY
    if isinstance(key, str | int):
        return key
    if isinstance(key, float) and key.is_integer():
        return key
    raise CelError(f"unsupported key type: {cel_type_name(key)}")


def map_keys(value: Any) -> Iterator[Any]:
    for key in value:
        yield key.value if isinstance(key, BoolKey) else key


def map_find(value: Any, key: Any) -> Optional:
    if isinstance(value, CelMap):
        return value.find(key)
    if isinstance(key, bool):
        key = map_key(key)
    elif not isinstance(key, str | int | float):
        return NONE
    try:
        return Optional(True, value[key])
    except KeyError:
        return NONE


def size_of(value: Any) -> int:
    """The size that determines the cost of an operation: the length of strings, lists and maps, 1
    for everything else.
    """
    if isinstance(value, str | bytes | list | dict | CelList | CelMap):
        return len(value)
    if isinstance(value, Optional) and value.present:
        return size_of(value.value)
    return 1


def show_double(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value == int(value) and abs(value) < 1e21:
        return str(int(value)) if value or math.copysign(1, value) > 0 else "-0"
    text = repr(value)
    if "e" not in text:
        return text
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa.removesuffix('.0')}e{exponent[0]}{exponent[1:].zfill(2)}"


def format_cel_value(value: Any) -> str:
    """A value in an error message, as Go's %v prints it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return show_double(value)
    return str(value)
