"""CEL types: what the checker knows about a value before evaluation. Types are parsed and printed
in CEL's own notation.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final


class CelType:
    """A type: its kind, its name, and the types inside (of a list, a map, an optional value)."""

    __slots__ = ("kind", "name", "params")

    def __init__(self, kind: str, name: str = "", params: tuple[CelType, ...] = ()) -> None:
        self.kind, self.name, self.params = kind, name or kind, params

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, CelType)
            and self.kind == other.kind
            and self.name == other.name
            and self.params == other.params
        )

    def __hash__(self) -> int:
        return hash((self.kind, self.name, self.params))

    def __str__(self) -> str:
        """The type as cel-go formats it in error messages."""
        if self.kind == "error":
            return "!error!"
        if self.kind in ("timestamp", "duration"):
            return self.kind
        if self.kind == "null":
            return "null"
        return f"{self.name}({', '.join(map(str, self.params))})" if self.params else self.name

    __repr__ = __str__


BOOL: Final = CelType("bool")
INT: Final = CelType("int")
UINT: Final = CelType("uint")
DOUBLE: Final = CelType("double")
STRING: Final = CelType("string")
BYTES: Final = CelType("bytes")
NULL: Final = CelType("null", "null_type")
TIMESTAMP: Final = CelType("timestamp", "google.protobuf.Timestamp")
DURATION: Final = CelType("duration", "google.protobuf.Duration")
DYN: Final = CelType("dyn")
ERROR: Final = CelType("error")
TYPE: Final = CelType("type")
SCALARS: Final = frozenset(("bool", "int", "uint", "double", "timestamp", "duration"))
_SIMPLE: Final = {
    "bool": BOOL,
    "int": INT,
    "uint": UINT,
    "double": DOUBLE,
    "string": STRING,
    "bytes": BYTES,
    "null_type": NULL,
    "timestamp": TIMESTAMP,
    "duration": DURATION,
    "dyn": DYN,
    "type": TYPE,
}
_NULLABLE: Final = frozenset(("null", "struct", "opaque", "timestamp", "duration"))


def list_type(item: CelType) -> CelType:
    return CelType("list", "list", (item,))


def map_type(key: CelType, value: CelType) -> CelType:
    return CelType("map", "map", (key, value))


def optional_type(item: CelType) -> CelType:
    return CelType("opaque", "optional_type", (item,))


def type_of_type(item: CelType) -> CelType:
    return CelType("type", "type", (item,))


def type_param(name: str) -> CelType:
    return CelType("param", name)


def struct_type(name: str) -> CelType:
    return CelType("struct", name)


def is_dyn(kind: CelType) -> bool:
    return kind.kind in ("dyn", "error")


_TOKEN = re.compile(r"[\w.]+|[(),]")


@lru_cache(maxsize=512)
def parse_type(text: str) -> CelType:
    """Read a type such as `list(map(string, A))`; one capital letter is a type parameter."""
    tokens = _TOKEN.findall(text)
    parsed, rest = _parse(tokens, 0)
    if rest != len(tokens):
        raise ValueError(f"not a type: {text}")
    return parsed


def _parse(tokens: list[str], at: int) -> tuple[CelType, int]:
    name = tokens[at]
    at += 1
    params: list[CelType] = []
    if at < len(tokens) and tokens[at] == "(":
        while tokens[at] != ")":
            inner, at = _parse(tokens, at + 1)
            params.append(inner)
        at += 1
    if name == "list":
        return list_type(params[0]), at
    if name == "map":
        return map_type(params[0], params[1]), at
    if name == "optional":
        return optional_type(params[0]), at
    if name == "type" and params:
        return type_of_type(params[0]), at
    if len(name) == 1 and name.isupper():
        return type_param(name), at
    simple = _SIMPLE.get(name)
    if simple is not None:
        return simple, at
    return CelType("opaque" if name.startswith("net.") else "struct", name), at


Substitution = dict[str, CelType]


def substitute(found: Substitution, kind: CelType, params_to_dyn: bool = False) -> CelType:
    if kind.kind == "param":
        known = found.get(kind.name)
        if known is not None:
            return substitute(found, known, params_to_dyn)
        return DYN if params_to_dyn else kind
    if not kind.params:
        return kind
    return CelType(
        kind.kind, kind.name, tuple(substitute(found, p, params_to_dyn) for p in kind.params)
    )


def is_assignable(found: Substitution, to: CelType, given: CelType) -> Substitution | None:
    """The substitution under which one type fits the other, or None. The substitution passed in is
    not changed.
    """
    if to is given and to.kind != "param":
        return found
    attempt = dict(found)
    return attempt if _assignable(attempt, to, given) else None


def _assignable(found: Substitution, one: CelType, two: CelType) -> bool:
    if two.kind == "param":
        valid, known = _valid_substitution(found, one, two)
        if valid:
            return True
        if known:
            return False
    if one.kind == "param":
        return _valid_substitution(found, two, one)[0]
    if is_dyn(one) or is_dyn(two):
        return True
    if one.kind == "null":
        return two.kind in _NULLABLE
    if two.kind == "null":
        return one.kind in _NULLABLE
    if one.kind == "type":
        return two.kind == "type"
    if one.kind != two.kind or one.name != two.name or len(one.params) != len(two.params):
        return False
    return all(_assignable(found, a, b) for a, b in zip(one.params, two.params, strict=True))


def _valid_substitution(found: Substitution, kind: CelType, param: CelType) -> tuple[bool, bool]:
    if kind == param:
        return True, True
    known = found.get(param.name)
    if known is not None:
        if kind == known:
            return True, True
        if _assignable(found, kind, known):
            general = most_general(kind, known)
            if not _refers(found, param, general):
                found[param.name] = general
            return True, True
        return False, True
    if not _refers(found, param, kind):
        found[param.name] = kind
        return True, False
    return False, False


def _refers(found: Substitution, param: CelType, within: CelType) -> bool:
    if within.kind == "param":
        if within.name == param.name:
            return True
        known = found.get(within.name)
        return known is not None and _refers(found, param, known)
    return any(_refers(found, param, inner) for inner in within.params)


def most_general(one: CelType, two: CelType) -> CelType:
    return one if _less_specific(one, two) else two


def _less_specific(one: CelType, two: CelType) -> bool:
    if one.kind in ("dyn", "param"):
        return True
    if two.kind in ("dyn", "param"):
        return False
    if one.kind != two.kind:
        return False
    if one.params:
        return (
            one.name == two.name
            and len(one.params) == len(two.params)
            and all(_less_specific(a, b) for a, b in zip(one.params, two.params, strict=True))
        )
    return one == two
