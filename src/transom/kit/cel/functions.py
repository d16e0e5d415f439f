"""Declarations of functions: each has overloads, each overload a signature in CEL's notation and
what it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from transom.kit.cel.types import CelType, parse_type


class Overload:
    """One signature of a function. `run` gets the target, if there is one, as its first
    argument.
    """

    __slots__ = ("args", "generic", "id", "member", "result", "run")

    def __init__(self, id: str, signature: str, run: Callable[..., Any]) -> None:
        self.id = id
        target, args, result = _split(signature)
        self.member = target is not None
        given = ([target] if target is not None else []) + args
        self.args: tuple[CelType, ...] = tuple(map(parse_type, given))
        self.result = parse_type(result)
        self.generic = any(_has_params(kind) for kind in self.args)
        self.run = run


def _has_params(kind: CelType) -> bool:
    return kind.kind == "param" or any(map(_has_params, kind.params))


def _split(signature: str) -> tuple[str | None, list[str], str]:
    """`string.(int, list(A)) -> bool` as target, arguments, result."""
    head, _, result = signature.partition(" -> ")
    opening = head.index("(") if head.startswith("(") else head.index(".(") + 1
    target = head[: opening - 1] if opening else None
    inner, args, depth, start = head[opening + 1 : -1], [], 0, 0
    for at, char in enumerate(inner + ","):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            if inner[start:at].strip():
                args.append(inner[start:at].strip())
            start = at + 1
    return target, args, result


class Function:
    __slots__ = ("name", "overloads")

    def __init__(self, name: str, overloads: Iterable[Overload]) -> None:
        self.name, self.overloads = name, tuple(overloads)


def merge_functions(libraries: Iterable[Iterable[Function]]) -> Mapping[str, Function]:
    """All functions by name; libraries may add overloads to the functions of others."""
    out: dict[str, Function] = {}
    for library in libraries:
        for function in library:
            known = out.get(function.name)
            out[function.name] = (
                function
                if known is None
                else Function(function.name, (*known.overloads, *function.overloads))
            )
    return out
