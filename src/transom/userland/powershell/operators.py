"""PowerShell's operators."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fnmatch import translate
from typing import Any, Final

from transom.userland.limits import MAX_INPUT, bounded, check_size
from transom.userland.powershell.dotnet_names import dotnet_name
from transom.userland.powershell.number_formats import format_dotnet_number
from transom.userland.powershell.values import (
    CUSTOM_OBJECT,
    DateTime,
    Hashtable,
    PowerShellError,
    PsObject,
    TypeName,
    to_bool,
    to_number,
    to_text,
    type_name_of,
)
from transom.userland.regex import Pattern, compile_pattern


def _equal(left: Any, right: Any, *, fold: bool = True) -> bool:
    if isinstance(left, str) or isinstance(right, str):
        one, two = to_text(left), to_text(right)
        return one.lower() == two.lower() if fold else one == two
    if left is None or right is None:
        return left is right
    if isinstance(left, PsObject) and isinstance(right, PsObject) and left.text:
        return left is right or (left.kind == right.kind and left.text == right.text)
    if isinstance(left, int | float | DateTime) and isinstance(right, int | float | DateTime):
        return to_number(left) == to_number(right)
    return bool(left == right)


def _order(left: Any, right: Any, *, fold: bool = True) -> int:
    if isinstance(left, str):
        a, b = left.lower(), to_text(right).lower()
        if a == b and not fold:  # in a culture's order, small letters come first
            a, b = left.swapcase(), to_text(right).swapcase()
        return (a > b) - (a < b)
    x, y = _sortable(left), _sortable(right)
    if isinstance(x, tuple) or isinstance(y, tuple):
        one = x if isinstance(x, tuple) else _version_key(to_text(left))
        two = y if isinstance(y, tuple) else _version_key(to_text(right))
        return (one > two) - (one < two)
    return (x > y) - (x < y)


def _sortable(value: Any) -> float | tuple[int, ...]:
    if isinstance(value, PsObject) and value.kind == "System.Version":
        return _version_key(value.text)
    if isinstance(value, PsObject) and value.kind == "System.TimeSpan":
        return float(value.properties["TotalSeconds"])
    return to_number(value)


def _version_key(shown: str) -> tuple[int, ...]:
    numbers = [int(part) if part.isdigit() else -1 for part in shown.split(".")]
    return tuple([*numbers, -1, -1, -1][:4])


def matches_wildcard(value: Any, pattern: Any, fold: bool = True) -> bool:
    wanted, shown = (
        (to_text(pattern).lower(), to_text(value).lower())
        if fold
        else (to_text(pattern), to_text(value))
    )
    wildcard = translate(wanted).replace("(?>", "(?:")  # RE2 needs no atomic groups
    return compile_pattern(wildcard, dot_all=True).match(shown) is not None


def expression(pattern: str, fold: bool = True) -> Pattern:
    """Compiles a .NET regular expression; PowerShell's operators ignore case."""
    return compile_pattern(re.sub(r"\(\?<(\w+)>", r"(?P<\1>", pattern), ignore_case=fold)


def _filtered(left: Any, test: Callable[[Any], bool]) -> Any:
    """The items of an array that match, or whether a single value does."""
    return [item for item in left if test(item)] if isinstance(left, list) else test(left)


def _add(left: Any, right: Any) -> Any:
    if isinstance(left, list):
        return bounded(left + (right if isinstance(right, list) else [right]))
    if isinstance(left, str):
        return bounded(left + to_text(right))
    if isinstance(left, Hashtable) and isinstance(right, Hashtable):
        joined = Hashtable(left)
        joined.update(right)
        return joined
    if left is None:
        return right
    if isinstance(left, DateTime):
        return DateTime(left.moment + _seconds(right), left.offset, left.kind)
    return _fitting(to_number(left) + to_number(right))


def _fitting(value: int | float) -> int | float:
    """A result of more than 64 bits is a Double."""
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return float(value)
    return value


def _seconds(value: Any) -> float:
    return float(value.get("TotalSeconds") if isinstance(value, PsObject) else to_number(value))


def time_span(seconds: float) -> PsObject:
    minutes, rest = divmod(abs(seconds), 60)
    hours, minutes = divmod(int(minutes), 60)
    days, hours = divmod(hours, 24)
    shown = f"{'-' if seconds < 0 else ''}{f'{days}.' if days else ''}{hours:02d}:{minutes:02d}:{int(rest):02d}"
    if rest % 1:
        shown += f"{rest % 1:.7f}"[1:]
    return PsObject(
        "System.TimeSpan",
        {
            "Days": days,
            "Hours": hours,
            "Minutes": minutes,
            "Seconds": int(rest),
            "Milliseconds": int(rest % 1 * 1000),
            "Ticks": round(seconds * 10_000_000),
            "TotalDays": seconds / 86400,
            "TotalHours": seconds / 3600,
            "TotalMinutes": seconds / 60,
            "TotalSeconds": seconds,
            "TotalMilliseconds": seconds * 1000,
        },
        shown,
    )


def _subtract(left: Any, right: Any) -> Any:
    if isinstance(left, DateTime):
        if isinstance(right, DateTime):
            return time_span(left.moment - right.moment)
        return DateTime(left.moment - _seconds(right), left.offset, left.kind)
    return _fitting(to_number(left) - to_number(right))


def _multiply(left: Any, right: Any) -> Any:
    if isinstance(left, str | list):
        check_size(len(left) * to_number(right))
        return left * int(to_number(right))
    return _fitting(to_number(left) * to_number(right))


def _divide(left: Any, right: Any) -> Any:
    divisor = to_number(right)
    if divisor == 0:
        raise PowerShellError(
            "Attempted to divide by zero.",
            "NotSpecified: (:) [], RuntimeException",
            "RuntimeException",
            inner="DivideByZeroException",
        )
    result = to_number(left) / divisor
    exact = isinstance(to_number(left), int) and isinstance(divisor, int) and result == int(result)
    return int(result) if exact else result


def _remainder(left: Any, right: Any) -> Any:
    divisor = to_number(right)
    if divisor == 0:
        raise PowerShellError("Attempted to divide by zero.", inner="DivideByZeroException")
    result = math.fmod(to_number(left), divisor)
    return int(result) if isinstance(to_number(left), int) and isinstance(divisor, int) else result


def _range(left: Any, right: Any) -> list[int] | range:
    """Long ranges stay lazy: their numbers are rarely needed at once."""
    first, last = int(to_number(left)), int(to_number(right))
    numbers = range(first, last + 1) if first <= last else range(first, last - 1, -1)
    return numbers if len(numbers) > 100_000 else list(numbers)


def _replace(left: Any, right: Any, fold: bool = True) -> Any:
    pattern, replacement = (
        (to_text(right[0]), to_text(right[1])) if isinstance(right, list) else (to_text(right), "")
    )
    template = re.sub(r"\$\{?(\w+)\}?", r"\\g<\1>", replacement.replace("\\", "\\\\"))
    compiled = expression(pattern, fold)
    size = 0
    out: list[str] = []
    for item in left if isinstance(left, list) else [left]:
        subject = to_text(item)
        check_size(len(subject) * (len(replacement) + 1), MAX_INPUT)
        out.append(compiled.sub(template, subject))
        size += len(out[-1])
        check_size(size, MAX_INPUT)
    return out if isinstance(left, list) else out[0]


def _split(left: Any, right: Any, *, fold: bool = True) -> list[str]:
    pattern = to_text(right[0] if isinstance(right, list) else right)
    limit = int(to_number(right[1])) if isinstance(right, list) and len(right) > 1 else 0
    out: list[str] = []
    for item in left if isinstance(left, list) else [left]:
        out.extend(expression(pattern, fold).split(to_text(item), maxsplit=max(0, limit - 1)))
    return out


def format_operator(shape: str, arguments: list[Any]) -> str:
    """`-f`: .NET's composite formatting."""

    def one(match: re.Match[str]) -> str:
        index, width, how = int(match[1]), match[2], match[3]
        if index >= len(arguments):
            raise PowerShellError(
                "Error formatting a string: Index (zero based) must be greater than or equal "
                "to zero and "
                "less than the size of the argument list.."
            )
        shown = _formatted(arguments[index], how or "")
        if width:
            check_size(abs(float(width)))
            size = int(width)
            shown = shown.ljust(-size) if size < 0 else shown.rjust(size)
        return shown

    return (
        re.sub(
            r"\{(\d+)(?:,(-?\d+))?(?::([^}]*))?\}",
            one,
            shape.replace("{{", "\1").replace("}}", "\2"),
        )
        .replace("\1", "{")
        .replace("\2", "}")
    )


def _formatted(value: Any, how: str) -> str:
    if isinstance(value, DateTime):
        return value.format(how) if how else to_text(value)
    if not how or not isinstance(value, int | float):
        return to_text(value)
    shown = format_dotnet_number(value, how)
    return to_text(value) if shown is None else shown


def _join(separator: str, values: list[Any]) -> str:
    check_size(len(values) * len(separator))
    return bounded(separator.join(to_text(item) for item in values))


def _contains(left: Any, right: Any, *, fold: bool = True) -> bool:
    items = left if isinstance(left, list) else [left]
    return any(_equal(item, right, fold=fold) for item in items)


def _comparisons(prefix: str, fold: bool) -> dict[str, Callable[[Any, Any], Any]]:
    """The operators that ignore or respect case, with the prefix of their names."""

    def equal(item: Any, right: Any) -> bool:
        return _equal(item, right, fold=fold)

    def order(item: Any, right: Any) -> int:
        return _order(item, right, fold=fold)

    def like(item: Any, right: Any) -> bool:
        return matches_wildcard(item, right, fold)

    def each(test: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
        return lambda left, right: _filtered(left, lambda item: test(item, right))

    named: dict[str, Callable[[Any, Any], Any]] = {
        "eq": each(equal),
        "ne": each(lambda item, right: not equal(item, right)),
        "gt": each(lambda item, right: order(item, right) > 0),
        "ge": each(lambda item, right: order(item, right) >= 0),
        "lt": each(lambda item, right: order(item, right) < 0),
        "le": each(lambda item, right: order(item, right) <= 0),
        "like": each(like),
        "notlike": each(lambda item, right: not like(item, right)),
        "notmatch": each(
            lambda item, right: expression(to_text(right), fold).search(to_text(item)) is None
        ),
        "contains": lambda left, right: _contains(left, right, fold=fold),
        "notcontains": lambda left, right: not _contains(left, right, fold=fold),
        "in": lambda left, right: _contains(right, left, fold=fold),
        "notin": lambda left, right: not _contains(right, left, fold=fold),
        "replace": lambda left, right: _replace(left, right, fold=fold),
        "split": lambda left, right: _split(left, right, fold=fold),
    }
    return {f"-{prefix}{name}": run for name, run in named.items()}


def _is(left: Any, right: Any) -> bool:
    wanted = right.name if isinstance(right, TypeName) else to_text(right)
    kind = type_name_of(left)
    wanted = dotnet_name(wanted).lower().removeprefix("system.")
    return kind.lower().removeprefix("system.") == wanted or wanted in _bases(left)


_LIST_INTERFACES: Final = (
    "collections.icollection",
    "collections.ienumerable",
    "collections.ilist",
)


def _bases(value: Any) -> tuple[str, ...]:
    """The base classes and interfaces of a value that scripts ask for."""
    if isinstance(value, list):
        arrays = ("array",) if type_name_of(value).endswith("[]") else ()
        return ("object", *arrays, *_LIST_INTERFACES)
    if isinstance(value, Hashtable):
        return ("object", "collections.idictionary", *_LIST_INTERFACES[:2])
    if isinstance(value, str):
        return ("object", "collections.ienumerable")
    if isinstance(value, PsObject):
        custom = ("management.automation.psobject",) if value.kind == CUSTOM_OBJECT else ()
        return ("object", *custom)
    if isinstance(value, bool | int | float | DateTime):
        return ("object", "valuetype")
    return ("object",) if value is not None else ()


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": _add,
    "-": _subtract,
    "*": _multiply,
    "/": _divide,
    "%": _remainder,
    "..": _range,
    "-f": lambda left, right: format_operator(
        to_text(left), right if isinstance(right, list) else [right]
    ),
    **_comparisons("", True),
    **_comparisons("i", True),
    **_comparisons("c", False),
    "-shl": lambda left, right: (
        (int(to_number(left)) << (int(to_number(right)) & 63)) & 0xFFFFFFFFFFFFFFFF
    ),
    "-shr": lambda left, right: int(to_number(left)) >> (int(to_number(right)) & 63),
    "-join": lambda left, right: _join(to_text(right), left if isinstance(left, list) else [left]),
    "-is": _is,
    "-isnot": lambda left, right: not _is(left, right),
    "-xor": lambda left, right: to_bool(left) != to_bool(right),
    "-band": lambda left, right: int(to_number(left)) & int(to_number(right)),
    "-bor": lambda left, right: int(to_number(left)) | int(to_number(right)),
    "-bxor": lambda left, right: int(to_number(left)) ^ int(to_number(right)),
}
