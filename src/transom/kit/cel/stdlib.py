"""The standard functions and operators of CEL, with cel-go's overloads and errors."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from transom.kit.cel.errors import CelError
from transom.kit.cel.functions import Function, Overload
from transom.kit.cel.times import (
    parse_cel_duration,
    parse_timestamp,
    show_duration,
    show_timestamp,
    time_in_zone,
)
from transom.kit.cel.values import (
    MAX_INT,
    MAX_UINT,
    MIN_INT,
    NONE,
    SECOND,
    CelList,
    Duration,
    Optional,
    Timestamp,
    Uint,
    cel_equals,
    format_cel_value,
    is_list,
    map_find,
    show_double,
    type_of,
)
from transom.kit.gobool import parse_go_bool
from transom.kit.regexp import RegexpError, compile_regexp


def _int(value: int) -> int:
    if not MIN_INT <= value <= MAX_INT:
        raise CelError("integer overflow")
    return value


def _uint(value: int) -> Uint:
    if not 0 <= value <= MAX_UINT:
        raise CelError("unsigned integer overflow")
    return Uint(value)


def _divide(a: int, b: int) -> int:
    if b == 0:
        raise CelError("division by zero")
    return _int(abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1))


def _divide_uint(a: int, b: int) -> Uint:
    if b == 0:
        raise CelError("division by zero")
    return Uint(int(a) // int(b))


def _divide_double(a: float, b: float) -> float:
    if b == 0:
        return (
            math.nan
            if a == 0 or math.isnan(a)
            else math.copysign(math.inf, a) * math.copysign(1, b)
        )
    return a / b


def _modulo(a: int, b: int) -> int:
    if b == 0:
        raise CelError("modulus by zero")
    return (
        int(math.fmod(a, b))
        if abs(a) < 2**53 and abs(b) < 2**53
        else a - b * (abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1))
    )


def _modulo_uint(a: int, b: int) -> Uint:
    if b == 0:
        raise CelError("modulus by zero")
    return Uint(int(a) % int(b))


def _double(make: Callable[[float, float], float]) -> Callable[[float, float], float]:
    def run(a: float, b: float) -> float:
        try:
            return make(a, b)
        except OverflowError:
            return math.inf

    return run


def _add_lists(a: Any, b: Any) -> Any:
    if isinstance(a, CelList):
        return a.add(b)
    return [*a, *b]


def index_list(items: Any, index: Any) -> Any:
    if isinstance(index, float) and index.is_integer():
        index = int(index)
    if not isinstance(index, int) or isinstance(index, bool):
        raise CelError(f"unsupported index type '{type_of(index).name}' in list")
    if not 0 <= index < len(items):
        raise CelError(f"index out of bounds: {index}")
    return items[index]


def index_map(mapping: Any, key: Any) -> Any:
    found = map_find(mapping, key)
    if not found.present:
        raise CelError(f"no such key: {format_cel_value(key)}")
    return found.value


def _in_list(value: Any, items: Any) -> bool:
    if type(value) in (str, bytes) and isinstance(items, list):
        return value in items
    return any(cel_equals(value, item) for item in items)


def _in_map(value: Any, mapping: Any) -> bool:
    return map_find(mapping, value).present


def matches_pattern(text: str, pattern: str) -> bool:
    try:
        return compile_regexp(pattern).match_string(text)
    except RegexpError as error:
        raise CelError(str(error)) from None


def _conversion(value: Any, to: str) -> CelError:
    return CelError(f"type conversion error from '{type_of(value).name}' to '{to}'")


def _text_to_int(text: str) -> int:
    try:
        if text[:1] in ("", " ") or "_" in text or not text.isascii() or len(text) > 64:
            raise ValueError
        return _int(int(text))
    except (ValueError, CelError):
        raise _conversion(text, "int") from None


def _text_to_uint(text: str) -> Uint:
    if not text.isascii() or not text.isdigit() or len(text) > 64:
        raise _conversion(text, "uint")
    try:
        return _uint(int(text))
    except CelError:
        raise _conversion(text, "uint") from None


def _double_to_int(value: float) -> int:
    if math.isnan(value) or math.isinf(value) or not MIN_INT < value < MAX_INT:
        raise CelError("integer overflow")
    return int(value)


def _double_to_uint(value: float) -> Uint:
    if math.isnan(value) or math.isinf(value) or not 0 <= value < MAX_UINT:
        raise CelError("unsigned integer overflow")
    return Uint(int(value))


def _text_to_double(text: str) -> float:
    try:
        if "_" in text or text != text.strip() or len(text) > 1000:
            raise ValueError
        return float(text)
    except ValueError:
        raise _conversion(text, "double") from None


def _text_to_bool(text: str) -> bool:
    try:
        return parse_go_bool(text)
    except ValueError:
        raise _conversion(text, "bool") from None


def _bytes_to_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise CelError("invalid UTF-8 in bytes, cannot convert to string") from None


def _text_to_timestamp(text: str) -> Timestamp:
    try:
        return parse_timestamp(text)
    except ValueError:
        raise _conversion(text, "google.protobuf.Timestamp") from None


def _text_to_duration(text: str) -> Duration:
    try:
        return parse_cel_duration(text)
    except ValueError:
        raise _conversion(text, "google.protobuf.Duration") from None


def _whole(nanos: int, unit: int) -> int:
    return abs(nanos) // unit * (1 if nanos >= 0 else -1)


def _identity(value: Any) -> Any:
    return value


def _not_strictly_false(value: Any) -> bool:
    return value is not False


_COMPARABLE = ("bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration")
_NUMBERS = (("int", "int64"), ("uint", "uint64"), ("double", "double"))
_ID = {"int": "int64", "uint": "uint64"}


def _moment(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    return lambda a, b: compare(a.nanos, b.nanos)


def _comparison(name: str, word: str, compare: Callable[[Any, Any], bool]) -> Function:
    overloads = [
        Overload(
            f"{word}_{_ID.get(kind, kind)}",
            f"({kind}, {kind}) -> bool",
            _moment(compare) if kind in ("timestamp", "duration") else compare,
        )
        for kind in _COMPARABLE
    ]
    overloads += [
        Overload(f"{word}_{a_id}_{b_id}", f"({a}, {b}) -> bool", compare)
        for a, a_id in _NUMBERS
        for b, b_id in _NUMBERS
        if a != b
    ]
    return Function(name, overloads)


_TIME_PARTS: dict[str, tuple[str, Callable[[Any], int]]] = {
    "getFullYear": ("year", lambda t: t.year),
    "getMonth": ("month", lambda t: t.month - 1),
    "getDayOfYear": ("day_of_year", lambda t: t.timetuple().tm_yday - 1),
    "getDayOfMonth": ("day_of_month", lambda t: t.day - 1),
    "getDate": ("day_of_month_1_based", lambda t: t.day),
    "getDayOfWeek": ("day_of_week", lambda t: t.isoweekday() % 7),
    "getHours": ("hours", lambda t: t.hour),
    "getMinutes": ("minutes", lambda t: t.minute),
    "getSeconds": ("seconds", lambda t: t.second),
}
_DURATION_PARTS: dict[str, Callable[[Duration], int]] = {
    "getHours": lambda d: _whole(d.nanos, 3600 * SECOND),
    "getMinutes": lambda d: _whole(d.nanos, 60 * SECOND),
    "getSeconds": lambda d: _whole(d.nanos, SECOND),
    "getMilliseconds": lambda d: _whole(d.nanos, 10**6),
}


def _time_part(name: str, id: str, part: Callable[[Any], int]) -> Function:
    overloads = [
        Overload(f"timestamp_to_{id}", "timestamp.() -> int", lambda t: part(time_in_zone(t))),
        Overload(
            f"timestamp_to_{id}_with_tz",
            "timestamp.(string) -> int",
            lambda t, zone: part(time_in_zone(t, zone)),
        ),
    ]
    if name in _DURATION_PARTS:
        overloads.append(Overload(f"duration_to_{id}", "duration.() -> int", _DURATION_PARTS[name]))
    return Function(name, overloads)


def _milliseconds() -> Function:
    def milliseconds(t: Timestamp, zone: str = "UTC") -> int:
        del zone
        return t.nanos % SECOND // 10**6

    return Function(
        "getMilliseconds",
        (
            Overload("timestamp_to_milliseconds", "timestamp.() -> int", milliseconds),
            Overload(
                "timestamp_to_milliseconds_with_tz", "timestamp.(string) -> int", milliseconds
            ),
            Overload(
                "duration_to_milliseconds", "duration.() -> int", lambda d: _whole(d.nanos, 10**6)
            ),
        ),
    )


def _unary(name: str, *rows: tuple[str, str, Callable[..., Any]]) -> Function:
    return Function(name, (Overload(*row) for row in rows))


def _strict(_a: Any, _b: Any) -> Any:
    raise CelError("no such overload")


STANDARD_FUNCTIONS: tuple[Function, ...] = (
    Function(
        "_?_:_", (Overload("conditional", "(bool, A, A) -> A", lambda c, a, b: a if c else b),)
    ),
    Function("_&&_", (Overload("logical_and", "(bool, bool) -> bool", _strict),)),
    Function("_||_", (Overload("logical_or", "(bool, bool) -> bool", _strict),)),
    Function("!_", (Overload("logical_not", "(bool) -> bool", operator.not_),)),
    Function(
        "@not_strictly_false",
        (Overload("not_strictly_false", "(bool) -> bool", _not_strictly_false),),
    ),
    Function("_==_", (Overload("equals", "(A, A) -> bool", cel_equals),)),
    Function(
        "_!=_", (Overload("not_equals", "(A, A) -> bool", lambda a, b: not cel_equals(a, b)),)
    ),
    Function(
        "_+_",
        (
            Overload("add_bytes", "(bytes, bytes) -> bytes", operator.add),
            Overload("add_double", "(double, double) -> double", operator.add),
            Overload(
                "add_duration_duration",
                "(duration, duration) -> duration",
                lambda a, b: Duration(a.nanos + b.nanos),
            ),
            Overload(
                "add_duration_timestamp",
                "(duration, timestamp) -> timestamp",
                lambda a, b: Timestamp(a.nanos + b.nanos),
            ),
            Overload(
                "add_timestamp_duration",
                "(timestamp, duration) -> timestamp",
                lambda a, b: Timestamp(a.nanos + b.nanos),
            ),
            Overload("add_int64", "(int, int) -> int", lambda a, b: _int(a + b)),
            Overload("add_list", "(list(A), list(A)) -> list(A)", _add_lists),
            Overload("add_string", "(string, string) -> string", operator.add),
            Overload("add_uint64", "(uint, uint) -> uint", lambda a, b: _uint(int(a) + int(b))),
        ),
    ),
    Function(
        "_-_",
        (
            Overload("subtract_double", "(double, double) -> double", operator.sub),
            Overload(
                "subtract_duration_duration",
                "(duration, duration) -> duration",
                lambda a, b: Duration(a.nanos - b.nanos),
            ),
            Overload("subtract_int64", "(int, int) -> int", lambda a, b: _int(a - b)),
            Overload(
                "subtract_timestamp_duration",
                "(timestamp, duration) -> timestamp",
                lambda a, b: Timestamp(a.nanos - b.nanos),
            ),
            Overload(
                "subtract_timestamp_timestamp",
                "(timestamp, timestamp) -> duration",
                lambda a, b: Duration(a.nanos - b.nanos),
            ),
            Overload(
                "subtract_uint64", "(uint, uint) -> uint", lambda a, b: _uint(int(a) - int(b))
            ),
        ),
    ),
    Function(
        "_*_",
        (
            Overload("multiply_double", "(double, double) -> double", _double(operator.mul)),
            Overload("multiply_int64", "(int, int) -> int", lambda a, b: _int(a * b)),
            Overload(
                "multiply_uint64", "(uint, uint) -> uint", lambda a, b: _uint(int(a) * int(b))
            ),
        ),
    ),
    Function(
        "_/_",
        (
            Overload("divide_double", "(double, double) -> double", _divide_double),
            Overload("divide_int64", "(int, int) -> int", _divide),
            Overload("divide_uint64", "(uint, uint) -> uint", _divide_uint),
        ),
    ),
    Function(
        "_%_",
        (
            Overload("modulo_int64", "(int, int) -> int", _modulo),
            Overload("modulo_uint64", "(uint, uint) -> uint", _modulo_uint),
        ),
    ),
    Function(
        "-_",
        (
            Overload("negate_double", "(double) -> double", operator.neg),
            Overload("negate_int64", "(int) -> int", lambda a: _int(-a)),
        ),
    ),
    _comparison("_<_", "less", operator.lt),
    _comparison("_<=_", "less_equals", operator.le),
    _comparison("_>_", "greater", operator.gt),
    _comparison("_>=_", "greater_equals", operator.ge),
    Function(
        "_[_]",
        (
            Overload("index_list", "(list(A), int) -> A", index_list),
            Overload("index_map", "(map(A, B), A) -> B", index_map),
        ),
    ),
    Function(
        "@in",
        (
            Overload("in_list", "(A, list(A)) -> bool", _in_list),
            Overload("in_map", "(A, map(A, B)) -> bool", _in_map),
        ),
    ),
    Function(
        "size",
        (
            Overload("size_bytes", "(bytes) -> int", len),
            Overload("bytes_size", "bytes.() -> int", len),
            Overload("size_list", "(list(A)) -> int", len),
            Overload("list_size", "list(A).() -> int", len),
            Overload("size_map", "(map(A, B)) -> int", len),
            Overload("map_size", "map(A, B).() -> int", len),
            Overload("size_string", "(string) -> int", len),
            Overload("string_size", "string.() -> int", len),
        ),
    ),
    Function("type", (Overload("type", "(A) -> type(A)", type_of),)),
    Function("dyn", (Overload("to_dyn", "(A) -> dyn", _identity),)),
    _unary(
        "bool",
        ("bool_to_bool", "(bool) -> bool", _identity),
        ("string_to_bool", "(string) -> bool", _text_to_bool),
    ),
    _unary(
        "bytes",
        ("bytes_to_bytes", "(bytes) -> bytes", _identity),
        ("string_to_bytes", "(string) -> bytes", lambda text: text.encode("utf-8", "replace")),
    ),
    _unary(
        "double",
        ("double_to_double", "(double) -> double", _identity),
        ("int64_to_double", "(int) -> double", float),
        ("string_to_double", "(string) -> double", _text_to_double),
        ("uint64_to_double", "(uint) -> double", float),
    ),
    _unary(
        "duration",
        ("duration_to_duration", "(duration) -> duration", _identity),
        ("int64_to_duration", "(int) -> duration", lambda n: Duration(n)),
        ("string_to_duration", "(string) -> duration", _text_to_duration),
    ),
    _unary(
        "int",
        ("int64_to_int64", "(int) -> int", _identity),
        ("double_to_int64", "(double) -> int", _double_to_int),
        ("duration_to_int64", "(duration) -> int", lambda d: d.nanos),
        ("string_to_int64", "(string) -> int", _text_to_int),
        ("timestamp_to_int64", "(timestamp) -> int", lambda t: t.nanos // SECOND),
        ("uint64_to_int64", "(uint) -> int", lambda n: _int(int(n))),
    ),
    _unary(
        "uint",
        ("uint64_to_uint64", "(uint) -> uint", _identity),
        ("double_to_uint64", "(double) -> uint", _double_to_uint),
        ("int64_to_uint64", "(int) -> uint", _uint),
        ("string_to_uint64", "(string) -> uint", _text_to_uint),
    ),
    _unary(
        "string",
        ("string_to_string", "(string) -> string", _identity),
        ("bool_to_string", "(bool) -> string", lambda b: "true" if b else "false"),
        ("bytes_to_string", "(bytes) -> string", _bytes_to_text),
        ("double_to_string", "(double) -> string", show_double),
        ("duration_to_string", "(duration) -> string", show_duration),
        ("int64_to_string", "(int) -> string", str),
        ("timestamp_to_string", "(timestamp) -> string", show_timestamp),
        ("uint64_to_string", "(uint) -> string", lambda n: str(int(n))),
    ),
    _unary(
        "timestamp",
        ("timestamp_to_timestamp", "(timestamp) -> timestamp", _identity),
        ("int64_to_timestamp", "(int) -> timestamp", lambda n: Timestamp(n * SECOND)),
        ("string_to_timestamp", "(string) -> timestamp", _text_to_timestamp),
    ),
    Function(
        "contains", (Overload("contains_string", "string.(string) -> bool", lambda s, t: t in s),)
    ),
    Function("endsWith", (Overload("ends_with_string", "string.(string) -> bool", str.endswith),)),
    Function(
        "startsWith", (Overload("starts_with_string", "string.(string) -> bool", str.startswith),)
    ),
    Function(
        "matches",
        (
            Overload("matches", "(string, string) -> bool", matches_pattern),
            Overload("matches_string", "string.(string) -> bool", matches_pattern),
        ),
    ),
    *(_time_part(name, id, part) for name, (id, part) in _TIME_PARTS.items()),
    _milliseconds(),
)


# ---- optional values ----


def _is_zero(value: Any) -> bool:
    if isinstance(value, Duration):
        return value.nanos == 0
    if isinstance(value, Timestamp | Optional):
        return False
    if isinstance(value, CelList):
        return len(value) == 0
    return value is None or not (value if not hasattr(value, "__len__") else len(value))


def _opt_index(container: Any, key: Any) -> Optional:
    if isinstance(container, Optional):
        return _opt_index(container.value, key) if container.present else NONE
    if is_list(container):
        inside = (
            isinstance(key, int | float) and not isinstance(key, bool) and 0 <= key < len(container)
        )
        return Optional(True, container[int(key)]) if inside else NONE
    return map_find(container, key)


def _or_value(value: Optional, other: Any) -> Any:
    return value.value if value.present else other


OPTIONAL_FUNCTIONS: tuple[Function, ...] = (
    Function(
        "optional.of", (Overload("optional_of", "(V) -> optional(V)", lambda v: Optional(True, v)),)
    ),
    Function(
        "optional.ofNonZeroValue",
        (
            Overload(
                "optional_ofNonZeroValue",
                "(V) -> optional(V)",
                lambda v: NONE if _is_zero(v) else Optional(True, v),
            ),
        ),
    ),
    Function("optional.none", (Overload("optional_none", "() -> optional(V)", lambda: NONE),)),
    Function("value", (Overload("optional_value", "optional(V).() -> V", Optional.get),)),
    Function(
        "hasValue", (Overload("optional_hasValue", "optional(V).() -> bool", lambda v: v.present),)
    ),
    Function(
        "or",
        (
            Overload(
                "optional_or_optional",
                "optional(V).(optional(V)) -> optional(V)",
                lambda a, b: a if a.present else b,
            ),
        ),
    ),
    Function("orValue", (Overload("optional_orValue_value", "optional(V).(V) -> V", _or_value),)),
    Function(
        "_?._", (Overload("select_optional_field", "(dyn, string) -> optional(V)", _opt_index),)
    ),
    Function(
        "_[?_]",
        (
            Overload("list_optindex_optional_int", "(list(V), int) -> optional(V)", _opt_index),
            Overload(
                "optional_list_optindex_optional_int",
                "(optional(list(V)), int) -> optional(V)",
                _opt_index,
            ),
            Overload("map_optindex_optional_value", "(map(K, V), K) -> optional(V)", _opt_index),
            Overload(
                "optional_map_optindex_optional_value",
                "(optional(map(K, V)), K) -> optional(V)",
                _opt_index,
            ),
        ),
    ),
    Function(
        "_[_]",
        (
            Overload(
                "optional_list_index_int", "(optional(list(V)), int) -> optional(V)", _opt_index
            ),
            Overload(
                "optional_map_index_value", "(optional(map(K, V)), K) -> optional(V)", _opt_index
            ),
        ),
    ),
    Function(
        "optional.unwrap",
        (
            Overload(
                "optional_unwrap",
                "(list(optional(V))) -> list(V)",
                lambda items: [i.value for i in items if i.present],
            ),
        ),
    ),
    Function(
        "unwrapOpt",
        (
            Overload(
                "optional_unwrapOpt",
                "list(optional(V)).() -> list(V)",
                lambda items: [i.value for i in items if i.present],
            ),
        ),
    ),
)


def _insert(mapping: Any, key: Any, value: Any) -> Any:
    if key in mapping:
        raise CelError(f"insert failed: key {format_cel_value(key)} already exists")
    return {**mapping, key: value}


def _insert_entry(mapping: Any, entry: Any) -> Any:
    out = dict(mapping)
    for key in entry:
        if key in out:
            raise CelError(f"insert failed: key {format_cel_value(key)} already exists")
        out[key] = map_find(entry, key).value
    return out


TWO_VARIABLE_FUNCTIONS: tuple[Function, ...] = (
    Function(
        "cel.@mapInsert",
        (
            Overload("@mapInsert_map_key_value", "(map(K, V), K, V) -> map(K, V)", _insert),
            Overload("@mapInsert_map_map", "(map(K, V), map(K, V)) -> map(K, V)", _insert_entry),
        ),
    ),
)
