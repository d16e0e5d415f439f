"""Flags as Go programs parse them: spf13/pflag (kubelet, kube-proxy) and the standard library's
flag (flanneld).

A table lists the flags and their kinds; error messages are those of the library.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from transom.kit.durations import parse_duration
from transom.kit.gobool import parse_go_bool
from transom.kit.goquote import go_quote
from transom.kit.lazy import lazy_pattern
from transom.kit.lazy_dataclass import dataclass

_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_INTEGER: Final = lazy_pattern(r"[+-]?(0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]*|[1-9][0-9]*)\Z")


class FlagError(Exception):
    """The command line is invalid; the text is the library's."""


@dataclass(frozen=True, slots=True)
class FlagKind:
    """How a flag's value is parsed. `shown` is the word for its value in a program's help; a flag
    with `alone` needs no value.
    """

    shown: str
    read: Callable[[str], Any]
    alone: str = ""
    adds: bool = False  # a repeated flag adds to its value


Table = Mapping[str, FlagKind]


@dataclass(slots=True)
class ParsedFlags:
    values: dict[str, Any] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)  # as written, in order
    arguments: list[str] = field(default_factory=list)  # positional arguments

    def get(self, name: str, default: Any) -> Any:
        return self.values.get(name, default)


# ---- values ----


def _integer(bits: int, *, signed: bool = True) -> Callable[[str], int]:
    function = "ParseInt" if signed else "ParseUint"
    least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)

    def read(text: str) -> int:
        found = _INTEGER.match(text)
        if found is None or (not signed and text[:1] in "+-"):
            raise ValueError(f"strconv.{function}: parsing {go_quote(text)}: invalid syntax")
        digits = found[1]
        octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()
        value = int(digits, 8 if octal else 0) * (-1 if text.startswith("-") else 1)
        if not least <= value <= most:
            raise ValueError(f"strconv.{function}: parsing {go_quote(text)}: value out of range")
        return value

    return read


def _real(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"strconv.ParseFloat: parsing {go_quote(text)}: invalid syntax") from None


def _list(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def _pairs(separator: str, kind: str) -> Callable[[str], dict[str, Any]]:
    def read(text: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for part in filter(None, text.split(",")):
            name, between, value = part.partition(separator)
            if not between:
                raise ValueError(f"malformed pair, expect string{separator}{kind}")
            name, value = name.strip(), value.strip()
            if kind == "bool":
                try:
                    found[name] = parse_go_bool(value)
                except ValueError as problem:
                    raise ValueError(f"invalid value of {name}: {value}, err: {problem}") from None
            else:
                found[name] = value
        return found

    return read


def _labels(text: str) -> dict[str, str]:
    """A name alone has an empty value."""
    found = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        found[name.strip()] = value.strip()
    return found


def _taints(text: str) -> tuple[dict[str, str], ...]:
    found = []
    for part in text.split(",") if text else ():
        pieces = part.split(":")
        key, _, value = pieces[0].partition("=")
        if len(pieces) > 2 or "=" in value or not key:
            raise ValueError(f"invalid taint spec: {part}")
        if len(pieces) == 2 and pieces[1] not in _EFFECTS:
            raise ValueError(f"invalid taint effect: {pieces[1]}, unsupported taint effect")
        taint = {"key": key, "value": value, "effect": pieces[1] if len(pieces) == 2 else ""}
        found.append({name: text for name, text in taint.items() if text})
    return tuple(found)


def _address(text: str) -> str:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(f"{go_quote(text)} is not a valid IP address") from None
    return text


BOOL: Final = FlagKind("", parse_go_bool, alone="true")
STRING: Final = FlagKind("string", str)
INT32: Final = FlagKind("int32", _integer(32))
INT64: Final = FlagKind("int", _integer(64))
UINT64: Final = FlagKind("uint", _integer(64, signed=False))
FLOAT: Final = FlagKind("float", _real)
DURATION: Final = FlagKind("duration", parse_duration)
STRINGS: Final = FlagKind("strings", _list, adds=True)
STRING_MAP: Final = FlagKind("mapStringString", _pairs("=", "string"), adds=True)
LANGLE_MAP: Final = FlagKind("mapStringString", _pairs("<", "string"), adds=True)
COLON_MAP: Final = FlagKind("colonSeparatedMultimapStringString", _pairs(":", "string"), adds=True)
BOOL_MAP: Final = FlagKind("mapStringBool", _pairs("=", "bool"), adds=True)
LABELS: Final = FlagKind("mapStringString", _labels, adds=True)
TAINTS: Final = FlagKind("[]api.Taint", _taints)
ADDRESS: Final = FlagKind("ip", _address)
LEVEL: Final = FlagKind("Level", _integer(32))


# ---- command lines ----


def parse_pflag(table: Table, argv: Sequence[str]) -> ParsedFlags:
    """One-letter flags may have a single dash; an underscore counts as a dash. Parses up to the
    first error.
    """
    parsed = ParsedFlags()
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word == "-":
            parsed.arguments.append(word)
        elif word == "--":
            parsed.arguments += rest
            rest = []
        elif word.startswith("--"):
            _long(table, word, rest, parsed)
        else:
            _short(table, word, rest, parsed)
    return parsed


def _following(kind: FlagKind, rest: list[str], flag: str) -> str:
    """The value of a flag without an equals sign."""
    if kind.alone:
        return kind.alone
    if not rest:
        raise FlagError(f"flag needs an argument: {flag}")
    return rest.pop(0)


def _long(table: Table, word: str, rest: list[str], parsed: ParsedFlags) -> None:
    name, equals, value = word[2:].partition("=")
    if not name or name[0] in "-=":
        raise FlagError(f"bad flag syntax: {word}")
    name = name.replace("_", "-")
    kind = table.get(name)
    if kind is None:
        raise FlagError(f"unknown flag: --{name}")
    if not equals:
        value = _following(kind, rest, word)
    shown = f"-{name}, --{name}" if len(name) == 1 else f"--{name}"
    _set(parsed, name, kind, value, "invalid argument {} for " + f'"{shown}" flag: ')


def _short(table: Table, word: str, rest: list[str], parsed: ParsedFlags) -> None:
    letters = word[1:]
    while letters:
        letter, letters = letters[0], letters[1:]
        name = _SHORT.get(letter, letter)
        kind = table.get(name)
        if kind is None:
            raise FlagError(f"unknown shorthand flag: '{letter}' in -{letter}{letters}")
        if letters.startswith("="):
            value, letters = letters[1:], ""
        elif letters and not kind.alone:
            value, letters = letters, ""
        else:
            value = _following(kind, rest, f"'{letter}' in {word}")
        _set(
            parsed,
            name,
            kind,
            value,
            "invalid argument {} for " + f'"-{letter}, --{name}" flag: ',
        )


_SHORT: Final = {"h": "help"}


def parse_flag(table: Table, argv: Sequence[str]) -> ParsedFlags:
    """One dash or two; the first word that is not a flag ends them."""
    parsed = ParsedFlags()
    rest = list(argv)
    while rest:
        word = rest[0]
        if not word.startswith("-") or word == "-":
            break
        rest.pop(0)
        if word == "--":
            break
        name, equals, value = word[2 if word.startswith("--") else 1 :].partition("=")
        if not name or name[0] in "-=":
            raise FlagError(f"bad flag syntax: {word}")
        kind = table.get(name)
        if kind is None:
            raise FlagError(f"flag provided but not defined: -{name}")
        if not equals:
            value = _following(kind, rest, f"-{name}")
        what = "boolean value" if kind is BOOL else "value"
        for_flag = f"for -{name}" if kind is BOOL else f"for flag -{name}"
        _set(
            parsed,
            name,
            kind,
            value,
            f"invalid {what} {{}} {for_flag}: ",
            problem="parse error",
        )
    parsed.arguments = rest
    return parsed


def _set(
    parsed: ParsedFlags, name: str, kind: FlagKind, text: str, prefix: str, problem: str = ""
) -> None:
    try:
        value = kind.read(text)
    except ValueError as wrong:
        raise FlagError(prefix.format(go_quote(text)) + (problem or str(wrong))) from None
    before = parsed.values.get(name)
    if kind.adds and before is not None:
        value = {**before, **value} if isinstance(before, dict) else before + value
    parsed.values[name] = value
    parsed.texts[name] = text


def flag_usage(command: str, table: Table) -> str:
    """The names of all flags, as a program prints them with an error."""
    lines = [f"Usage:\n  {command}\n\nFlags:"]
    for name in sorted(table):
        kind = table[name]
        lines.append(f"      --{name}{' ' if kind.shown else ''}{kind.shown}")
    return "\n".join(lines) + "\n"
