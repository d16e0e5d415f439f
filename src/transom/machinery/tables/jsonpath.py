"""The JSONPath of additional printer columns, with the semantics of Kubernetes' own evaluator.

Custom, because `[?(@.type=="Ready")]`, slices, quoted keys and escapes must behave as in kubectl. A
path is compiled once per column into steps; each step maps a list of values to a list of values.
`..` and lists of choices multiply values, so the values of one evaluation are counted.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Protocol

from transom.kit.lazy import lazy_pattern

MOST_VALUES = 80_000  # of all paths of a row, a few milliseconds


class PathError(ValueError):
    """The path is invalid, or does not fit the value."""


class Budget:
    """The number of values that may still be visited."""

    __slots__ = ("left",)

    def __init__(self, values: int = MOST_VALUES) -> None:
        self.left = values

    def spend(self, values: int) -> None:
        self.left -= values
        if self.left < 0:
            raise PathError("the path selects too many values")


Step = Callable[[list[Any], Budget], list[Any]]
# These take longer than a step to a member.
_RECURSIVE_COST = 40
_FILTER_COST = 20
_CHOICE_COST = 20


_KEY = lazy_pattern(r"'([^']*)'\Z")
_SLICE = lazy_pattern(r"(-?\d*)(:-?\d*)?(:-?\d*)?\Z")
_COMPARISON = lazy_pattern(r"([^!<>=]+)([!<>=]+)(.+?)\Z")
_NUMBER = lazy_pattern(r"[+-]?[\d.]*")
_FIELD = lazy_pattern(r"(?:\\.|[^\s.,\[\]$@{}\\])*")
_QUOTED = lazy_pattern(r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')""")
_IDENTIFIER = lazy_pattern(r"\w[^\s.,\[\]$@{}]*")
_ESCAPED = lazy_pattern(r"\\(.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}


class Path(Protocol):
    def __call__(self, obj: Any, budget: Budget | None = None) -> list[Any]: ...


def compile_path(text: str) -> Path:
    """A function from an object to all values at `text` (without the braces); raises PathError if
    it is invalid.
    """
    steps = _parse(text)

    def find(obj: Any, budget: Budget | None = None) -> list[Any]:
        return _walk(steps, [obj], Budget() if budget is None else budget)

    return find


def _walk(steps: list[Step], values: list[Any], budget: Budget) -> list[Any]:
    for step in steps:
        values = step(values, budget)
        budget.spend(len(values) + 1)
    return values


def _parse(text: str) -> list[Step]:
    steps: list[Step] = []
    at = 0
    while at < len(text):
        ch = text[at]
        if text.startswith("[?(", at):
            step, at = _filter(text, at + 3)
        elif text.startswith("..", at):
            steps.append(_recursive)
            at += 2
            if not (at < len(text) and (text[at].isalnum() or text[at] == "_")):
                continue
            step, at = _field(text, at)
        elif ch in " @$":
            at += 1
            continue
        elif ch == "[":
            end = text.find("]", at)
            if end < 0:
                raise PathError("unterminated array")
            steps += _bracket(text[at + 1 : end])
            at = end + 1
            continue
        elif ch in "\"'":
            match = _QUOTED.match(text, at)
            if match is None:
                raise PathError("unterminated quoted string")
            step, at = _constant(_unescape(match[0][1:-1])), match.end()
        elif ch == ".":
            step, at = _field(text, at + 1)
        elif ch in "+-" or ch.isdigit():
            match = _NUMBER.match(text, at)
            step, at = _constant(_number(match[0] if match else "")), match.end() if match else at
        elif (match := _IDENTIFIER.match(text, at)) and match[0] in ("true", "false"):
            step, at = _constant(match[0] == "true"), match.end()
        else:
            raise PathError(f"unrecognized character in action: {ch!r}")
        steps.append(step)
    return steps


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda m: _ESCAPES.get(m[1], m[1]), text)


def _number(text: str) -> int | float:
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    raise PathError(f"cannot parse number {text}")


def _constant(value: Any) -> Step:
    return lambda values, _budget: (
        [value] * max(len(values), 1) if isinstance(value, int | float) else [value]
    )


def _field(text: str, at: int) -> tuple[Step, int]:
    match = _FIELD.match(text, at)
    key = match[0] if match else ""
    end = at + len(key)
    if key == "*":
        return _children, end
    return _member(key.replace("\\", "")), end


def _member(key: str) -> Step:
    def step(values: list[Any], _budget: Budget) -> list[Any]:
        return [v[key] for v in values if isinstance(v, dict) and key in v]

    return step


def _children(values: list[Any], budget: Budget) -> list[Any]:
    out: list[Any] = []
    for value in values:
        if isinstance(value, dict):
            budget.spend(len(value))
            out += value.values()
        elif isinstance(value, list):
            budget.spend(len(value))
            out += value
    return out


def _recursive(values: list[Any], budget: Budget) -> list[Any]:
    """Every value that has children, before its children."""
    out: list[Any] = []
    waiting = values[::-1]
    while waiting:
        budget.spend(_RECURSIVE_COST)
        value = waiting.pop()
        inner = _children([value], budget)
        if inner:
            out.append(value)
            waiting += reversed(inner)
    return out


def _bracket(text: str) -> list[Step]:
    """`[0]`, `[-1]`, `[1:3]`, `[*]`, `['key']` or several of them, separated by commas."""
    choices = text.split(",")
    if len(choices) > 1:
        paths = [_bracket(choice.strip(" ")) for choice in choices]
        return [_choices(paths)]
    key = _KEY.match(text)
    if key:
        return _parse("." + key[1])
    match = _SLICE.match(":" if text == "*" else text)
    if match is None:
        raise PathError(f"invalid array index {text}")
    return [_slice(*(g if g is None else g.lstrip(":") for g in match.groups()))]


def _choices(paths: list[list[Step]]) -> Step:
    def step(values: list[Any], budget: Budget) -> list[Any]:
        out: list[Any] = []
        for path in paths:
            budget.spend(_CHOICE_COST)
            out += _walk(path, values, budget)
        return out

    return step


def _slice(first: str | None, last: str | None, step: str | None) -> Step:
    try:
        start = int(first) if first else 0
        derived = last is None
        stop = start + 1 if last is None else int(last) if last else None
        stride = int(step) if step else 1
    except ValueError as error:
        raise PathError(f"array index is not a number: {error}") from None

    def pick(value: Any, budget: Budget) -> list[Any]:
        if not isinstance(value, list):
            raise PathError("not an array")
        length = len(value)
        low = start + length if start < 0 else start
        high = length if stop is None else stop
        if high < 0 or (high == 0 and derived):
            high += length
        if low == high:
            return []
        if not (0 <= low < length and 0 <= high <= length and low <= high) or stride <= 0:
            raise PathError("array index out of bounds")
        budget.spend(high - low)
        return value[low:high:stride]

    return lambda values, budget: [
        element for v in values if v is not None for element in pick(v, budget)
    ]


def _filter(text: str, at: int) -> tuple[Step, int]:
    end, quote = at, ""
    while end < len(text) and (quote or text[end] != ")"):
        if quote:
            quote = "" if text[end] == quote and text[end - 1] != "\\" else quote
        elif text[end] in "\"'":
            quote = text[end]
        end += 1
    if text[end : end + 2] != ")]":
        raise PathError("unterminated filter")
    body = text[at:end]
    match = _COMPARISON.match(body)
    if match is None:
        return _keep(_existence(_parse(body))), end + 2
    # An unknown operator is detected only with the first value.
    compare = _OPERATORS.get(match[2], _no_operator)
    return _keep(_comparison(_parse(match[1]), compare, _parse(match[3]))), end + 2


def _no_operator(left: Any, right: Any) -> bool:
    raise PathError("unrecognized filter operator")


def _keep(passes: Callable[[Any, Budget], bool]) -> Step:
    def step(values: list[Any], budget: Budget) -> list[Any]:
        out = []
        for value in values:
            if not isinstance(value, list):
                raise PathError("not an array and cannot be filtered")
            out += [element for element in value if passes(element, budget)]
        return out

    return step


def _existence(path: list[Step]) -> Callable[[Any, Budget], bool]:
    def passes(element: Any, budget: Budget) -> bool:
        budget.spend(_FILTER_COST)
        try:
            return bool(_walk(path, [element], budget))
        except PathError:
            return False

    return passes


def _comparison(
    left: list[Step], compare: Callable[[Any, Any], bool], right: list[Step]
) -> Callable[[Any, Budget], bool]:
    def passes(element: Any, budget: Budget) -> bool:
        budget.spend(_FILTER_COST)
        lefts = _walk(left, [element], budget)
        rights = _walk(right, [element], budget) if lefts else []
        if not lefts or not rights:
            return False
        if len(lefts) > 1 or len(rights) > 1:
            raise PathError("can only compare one element at a time")
        a, b = lefts[0], rights[0]
        # Only scalars of the same type compare: no bool with a number, no int with a float, and
        # bools have no order.
        ordered = compare not in (operator.eq, operator.ne)
        if (
            type(a) is not type(b)
            or not isinstance(a, str | int | float)
            or (ordered and isinstance(a, bool))
        ):
            raise PathError("incompatible types for comparison")
        return compare(a, b)

    return passes
