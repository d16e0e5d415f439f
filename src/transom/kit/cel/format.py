"""`format()` of CEL's string library."""

from __future__ import annotations

import math
from typing import Any

from transom.kit.cel.errors import CelError
from transom.kit.cel.times import show_duration, show_timestamp
from transom.kit.cel.types import CelType
from transom.kit.cel.values import (
    Duration,
    Timestamp,
    cel_type_name,
    is_list,
    is_map,
    map_find,
    map_keys,
    show_double,
)
from transom.kit.lazy import lazy_pattern

_CLAUSE = lazy_pattern(r"%(%|(?:\.(\d{1,4}))?([a-zA-Z]))")
_SUPERSCRIPTS = str.maketrans("0123456789-+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺")


def format_text(template: str, args: Any) -> str:
    out: list[str] = []
    at = used = 0
    while (percent := template.find("%", at)) >= 0:
        out.append(template[at:percent])
        found = _CLAUSE.match(template, percent)
        if found is None:
            raise CelError(
                "could not parse formatting clause: unexpected end of string"
                if percent + 1 >= len(template)
                else (
                    "could not parse formatting clause: unrecognized formatting clause "
                    f'"{template[percent + 1]}"'
                )
            )
        at = found.end()
        if found[1] == "%":
            out.append("%")
            continue
        if used >= len(args):
            raise CelError(f"index {used} out of range")
        out.append(_formatted(found[3], int(found[2]) if found[2] else None, args[used]))
        used += 1
    out.append(template[at:])
    if used < len(args):
        raise CelError(
            f"too many arguments supplied to string.format (expected {used}, got {len(args)})"
        )
    return "".join(out)


def _wrong(clause: str, wanted: str, value: Any) -> CelError:
    return CelError(
        f"error during formatting: {clause} clause can only be used on {wanted}, was given "
        f"{cel_type_name(value)}"
    )


def _formatted(clause: str, precision: int | None, value: Any) -> str:
    if clause == "s":
        return _text(value)
    if clause == "d":
        if isinstance(value, float) and not math.isfinite(value):
            return _not_finite(value)
        if not _is_number(value):
            raise _wrong("decimal", "integers", value)
        return str(int(value))
    if clause in "fe":
        return _double(clause, 6 if precision is None else precision, value)
    if clause == "b":
        if isinstance(value, bool):
            return "1" if value else "0"
        if not _is_number(value):
            raise _wrong("binary", "integers and bools", value)
        return f"{int(value):b}"
    if clause in "xX":
        shown = _hex(value)
        return shown.upper() if clause == "X" else shown
    if clause == "o":
        if not _is_number(value):
            raise _wrong("octal", "integers", value)
        return f"{int(value):o}"
    raise CelError(f'could not parse formatting clause: unrecognized formatting clause "{clause}"')


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _double(clause: str, precision: int, value: Any) -> str:
    if not isinstance(value, float) and not _is_number(value):
        raise _wrong("fixed-point" if clause == "f" else "scientific", "doubles", value)
    if not math.isfinite(value):
        return _not_finite(value)
    if clause == "f":
        return f"{value:.{precision}f}"
    mantissa, _, exponent = f"{value:.{precision}e}".partition("e")
    return f"{mantissa}×10{exponent.removeprefix('+').translate(_SUPERSCRIPTS)}"


def _hex(value: Any) -> str:
    if isinstance(value, str | bytes):
        return (value.encode() if isinstance(value, str) else value).hex()
    if not _is_number(value):
        raise _wrong("hex", "integers, byte buffers, and strings", value)
    return f"{int(value):x}"


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, float):
        return show_double(value) if math.isfinite(value) else _not_finite(value)
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, Duration):
        return show_duration(value)
    if isinstance(value, Timestamp):
        return show_timestamp(value)
    if isinstance(value, CelType):
        return value.name
    if is_list(value):
        return "[" + ", ".join(map(_text, value)) + "]"
    if is_map(value):
        entries = sorted((_text(key), _text(map_find(value, key).value)) for key in map_keys(value))
        return "{" + ", ".join(f"{key}: {text}" for key, text in entries) + "}"
    raise CelError(
        "error during formatting: string clause can only be used on strings, bools, bytes, "
        "ints, doubles, maps, "
        f"lists, types, durations, and timestamps, was given {cel_type_name(value)}"
    )
