"""Options of commands, as getopt parses them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from transom.userland.preemption import check_slice
from transom.userland.process import Exit, Process


class ParsedOptions:
    """The letters that were given (`in`), the values of those that take one (`value`), and the
    operands.
    """

    __slots__ = ("given", "operands", "values")

    def __init__(self) -> None:
        self.given: set[str] = set()
        self.values: dict[str, list[str]] = {}
        self.operands: list[str] = []

    def __contains__(self, name: str) -> bool:
        return name in self.given

    def value(self, name: str, default: str = "") -> str:
        found = self.values.get(name)
        return found[-1] if found else default


def parse_options(
    process: Process,
    with_value: str = "",
    long_with_value: Iterable[str] = (),
    long_names: Mapping[str, str] | None = None,
    *,
    known: str | None = None,
    stop_at_operand: bool = False,
) -> ParsedOptions:
    """`with_value`: letters that take a value; `long_names`: long options and their letters. With
    `known`, other letters end the process with the usual message.
    """
    options = ParsedOptions()
    long_names = long_names or {}
    arguments = process.argv[1:]
    takes = frozenset(long_with_value)
    position = 0
    while position < len(arguments):
        check_slice()
        argument = arguments[position]
        position += 1
        if argument == "--":
            options.operands.extend(arguments[position:])
            break
        if argument.startswith("--"):
            name, equals, value = argument[2:].partition("=")
            name = long_names.get(name, name)
            options.given.add(name)
            if equals:
                options.values.setdefault(name, []).append(value)
            elif (name in takes or (len(name) == 1 and name in with_value)) and position < len(
                arguments
            ):
                options.values.setdefault(name, []).append(arguments[position])
                position += 1
            continue
        if not argument.startswith("-") or argument == "-":
            options.operands.append(argument)
            if stop_at_operand:
                options.operands.extend(arguments[position:])
                break
            continue
        letters = argument[1:]
        for index, letter in enumerate(letters):
            if known is not None and letter not in known and letter not in with_value:
                process.complain(
                    f"{process.name}: invalid option -- '{letter}'"
                    if process.gnu
                    else f"{process.name}: unrecognized option: {letter}"
                )
                raise Exit(1)
            options.given.add(letter)
            if letter in with_value:
                value = letters[index + 1 :]
                if not value:
                    if position >= len(arguments):
                        process.complain(f"{process.name}: option requires an argument: {letter}")
                        raise Exit(1)
                    value = arguments[position]
                    position += 1
                options.values.setdefault(letter, []).append(value)
                break
    return options


def option_number(
    process: Process, text: str, message: str, *, code: int = 1, base: int = 10
) -> int:
    """The value of an option, as a number. Another text ends the process with the message, in which
    `{}` is the text.
    """
    try:
        return int(text, base)
    except ValueError:
        process.complain(f"{process.name}: {message.format(text)}")
        raise Exit(code) from None


_SUFFIXES = {
    "b": 512,
    "k": 1 << 10,
    "K": 1 << 10,
    "m": 1 << 20,
    "M": 1 << 20,
    "g": 1 << 30,
    "G": 1 << 30,
    "T": 1 << 40,
    "kB": 1000,
    "KB": 1000,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "c": 1,
    "B": 1,
    "": 1,
}


def parse_size(text: str) -> int:
    """Parses `10M` and similar. Raises ValueError."""
    digits = len(text) - len(text.lstrip("0123456789"))
    if not digits or text[digits:] not in _SUFFIXES:
        raise ValueError(text)
    return int(text[:digits]) * _SUFFIXES[text[digits:]]


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_seconds(text: str) -> float:
    """Parses `1.5`, `10s`, `2m`, `1h`, `1d` or `inf`. Raises ValueError."""
    if text in ("inf", "infinity"):
        return float("inf")
    value = float(text[:-1]) * _UNITS[text[-1]] if text[-1:] in _UNITS else float(text)
    if value < 0 or value != value:
        raise ValueError(text)
    return value
