"""PowerShell's operators."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fnmatch import translate
from typing import Any

from transom.runtime.sim.programs.powershell.values import (
    DateTime,
    Hashtable,
    PowerShellError,
    PsObject,
    number,
    text,
    truth,
    type_name,
)


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, str) or isinstance(right, str):
        return text(left).lower() == text(right).lower()
    if left is None or right is None:
        return left is right
    if isinstance(left, int | float | DateTime) and isinstance(right, int | float | DateTime):
        return number(left) == number(right)
    return bool(left == right)


def _order(left: Any, right: Any) -> int:
    if isinstance(left, str):
        a, b = left.lower(), text(right).lower()
        return (a > b) - (a < b)
    x, y = number(left), number(right)
    return (x > y) - (x < y)


def like(value: Any, pattern: Any) -> bool:
    return re.match(translate(text(pattern).lower()), text(value).lower()) is not None


def expression(pattern: str) -> re.Pattern[str]:
    """A .NET regular expression, without case."""
    return re.compile(re.sub(r"\(\?<(\w+)>", r"(?P<\1>", pattern), re.IGNORECASE)


def _filtered(left: Any, test: Callable[[Any], bool]) -> Any:
    """Of an array the items that pass, of one value whether it does."""
    return [item for item in left if test(item)] if isinstance(left, list) else test(left)


def _add(left: Any, right: Any) -> Any:
    if isinstance(left, list):
        return left + (right if isinstance(right, list) else [right])
    if isinstance(left, str):
        return left + text(right)
    if isinstance(left, Hashtable) and isinstance(right, Hashtable):
        joined = Hashtable(left)
        joined.update(right)
        return joined
    if left is None:
        return right
    if isinstance(left, DateTime):
        return DateTime(left.moment + _seconds(right))
    return number(left) + number(right)


def _seconds(value: Any) -> float:
    return float(value.get("TotalSeconds") if isinstance(value, PsObject) else number(value))


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
            "Days": days, "Hours": hours, "Minutes": minutes, "Seconds": int(rest), "Milliseconds": int(rest % 1 * 1000),
            "TotalDays": seconds / 86400, "TotalHours": seconds / 3600, "TotalMinutes": seconds / 60, "TotalSeconds": seconds,
            "TotalMilliseconds": seconds * 1000,
        },
        shown,
    )  # fmt: skip


def _subtract(left: Any, right: Any) -> Any:
    if isinstance(left, DateTime):
        if isinstance(right, DateTime):
            return time_span(left.moment - right.moment)
        return DateTime(left.moment - _seconds(right))
    return number(left) - number(right)


def _multiply(left: Any, right: Any) -> Any:
    if isinstance(left, str | list):
        return left * int(number(right))
    return number(left) * number(right)


def _divide(left: Any, right: Any) -> Any:
    divisor = number(right)
    if divisor == 0:
        raise PowerShellError("Attempted to divide by zero.", "NotSpecified: (:) [], RuntimeException", "RuntimeException")
    result = number(left) / divisor
    exact = isinstance(number(left), int) and isinstance(divisor, int) and result == int(result)
    return int(result) if exact else result


def _remainder(left: Any, right: Any) -> Any:
    divisor = number(right)
    if divisor == 0:
        raise PowerShellError("Attempted to divide by zero.")
    result = math.fmod(number(left), divisor)
    return int(result) if isinstance(number(left), int) and isinstance(divisor, int) else result


def _range(left: Any, right: Any) -> list[int] | range:
    """A long one stays what it is: nobody wants its numbers all at once."""
    first, last = int(number(left)), int(number(right))
    numbers = range(first, last + 1) if first <= last else range(first, last - 1, -1)
    return numbers if len(numbers) > 100_000 else list(numbers)


def _replace(left: Any, right: Any) -> Any:
    pattern, replacement = (text(right[0]), text(right[1])) if isinstance(right, list) else (text(right), "")
    template = re.sub(r"\$\{?(\w+)\}?", r"\\g<\1>", replacement.replace("\\", "\\\\"))
    if isinstance(left, list):
        return [expression(pattern).sub(template, text(item)) for item in left]
    return expression(pattern).sub(template, text(left))


def _split(left: Any, right: Any) -> list[str]:
    pattern = text(right[0] if isinstance(right, list) else right)
    limit = int(number(right[1])) if isinstance(right, list) and len(right) > 1 else 0
    out: list[str] = []
    for item in left if isinstance(left, list) else [left]:
        out.extend(expression(pattern).split(text(item), maxsplit=max(0, limit - 1)))
    return out


def format_text(shape: str, arguments: list[Any]) -> str:
    """`-f`: .NET's composite format."""

    def one(match: re.Match[str]) -> str:
        index, width, how = int(match[1]), match[2], match[3]
        if index >= len(arguments):
            raise PowerShellError(
                "Error formatting a string: Index (zero based) must be greater than or equal to zero and "
                "less than the size of the argument list.."
            )
        shown = _formatted(arguments[index], how or "")
        if width:
            size = int(width)
            shown = shown.ljust(-size) if size < 0 else shown.rjust(size)
        return shown

    return (
        re.sub(r"\{(\d+)(?:,(-?\d+))?(?::([^}]*))?\}", one, shape.replace("{{", "\1").replace("}}", "\2"))
        .replace("\1", "{")
        .replace("\2", "}")
    )


def _formatted(value: Any, how: str) -> str:
    if isinstance(value, DateTime):
        return value.format(how) if how else text(value)
    if not how or not isinstance(value, int | float):
        return text(value)
    kind, digits = how[0], how[1:]
    if kind in "nNfFpPdDxX" and (digits.isdigit() or not digits):
        places = int(digits) if digits else 2
        if kind in "nN":
            return f"{value:,.{places}f}"
        if kind in "fF":
            return f"{value:.{places}f}"
        if kind in "pP":
            return f"{value * 100:,.{places}f} %"
        if kind in "dD":
            return f"{int(value):0{digits or 0}d}"
        return f"{int(value):0{digits or 0}{kind}}"
    if set(how) <= set("0#.,"):
        places = len(how.partition(".")[2])
        width = how.partition(".")[0].count("0")
        return f"{value:0{width + (places + 1 if places else 0)}.{places}f}"
    return text(value)


def _contains(left: Any, right: Any) -> bool:
    return any(_equal(item, right) for item in (left if isinstance(left, list) else [left]))


def _is(left: Any, right: Any) -> bool:
    wanted = getattr(right, "name", text(right)).lower().removeprefix("system.")
    own = type_name(left).lower().removeprefix("system.")
    return (
        own == wanted
        or {"int": "int32", "array": "object[]", "bool": "boolean", "hashtable": "collections.hashtable"}.get(wanted) == own
    )


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": _add,
    "-": _subtract,
    "*": _multiply,
    "/": _divide,
    "%": _remainder,
    "..": _range,
    "-f": lambda left, right: format_text(text(left), right if isinstance(right, list) else [right]),
    "-eq": lambda left, right: _filtered(left, lambda item: _equal(item, right)),
    "-ne": lambda left, right: _filtered(left, lambda item: not _equal(item, right)),
    "-ceq": lambda left, right: text(left) == text(right),
    "-cne": lambda left, right: text(left) != text(right),
    "-gt": lambda left, right: _filtered(left, lambda item: _order(item, right) > 0),
    "-ge": lambda left, right: _filtered(left, lambda item: _order(item, right) >= 0),
    "-lt": lambda left, right: _filtered(left, lambda item: _order(item, right) < 0),
    "-le": lambda left, right: _filtered(left, lambda item: _order(item, right) <= 0),
    "-like": lambda left, right: _filtered(left, lambda item: like(item, right)),
    "-notlike": lambda left, right: _filtered(left, lambda item: not like(item, right)),
    "-notmatch": lambda left, right: _filtered(left, lambda item: expression(text(right)).search(text(item)) is None),
    "-contains": _contains,
    "-notcontains": lambda left, right: not _contains(left, right),
    "-in": lambda left, right: _contains(right, left),
    "-notin": lambda left, right: not _contains(right, left),
    "-replace": _replace,
    "-split": _split,
    "-join": lambda left, right: text(right).join(text(item) for item in (left if isinstance(left, list) else [left])),
    "-is": _is,
    "-isnot": lambda left, right: not _is(left, right),
    "-xor": lambda left, right: truth(left) != truth(right),
    "-band": lambda left, right: int(number(left)) & int(number(right)),
    "-bor": lambda left, right: int(number(left)) | int(number(right)),
    "-bxor": lambda left, right: int(number(left)) ^ int(number(right)),
}
ALIASES = {"-ieq": "-eq", "-ine": "-ne", "-ilike": "-like", "-imatch": "-match", "-cmatch": "-match", "-clike": "-like",
           "-creplace": "-replace", "-ireplace": "-replace"}  # fmt: skip
