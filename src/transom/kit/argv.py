"""Windows command lines: how programs split them into arguments, and how arguments are quoted."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_BEFORE_QUOTE: Final = re.compile(r'(?<!\\)(\\*+)"')
_AT_END: Final = re.compile(r"(?<!\\)(\\++)$")


def quote_argument(argument: str, special: str = " \t") -> str:
    """Quotes one argument so that a program parses it back unchanged.

    Quotes it if it is empty or contains one of the `special` characters. Backslashes are doubled
    only before a quotation mark, also before the closing one.
    """
    escaped = _BEFORE_QUOTE.sub(r'\1\1\\"', argument)
    if argument and not any(c in argument for c in special):
        return escaped
    return '"' + _AT_END.sub(r"\1\1", escaped) + '"'


def join_arguments(arguments: Iterable[str]) -> str:
    return " ".join(quote_argument(argument) for argument in arguments)


def parse_command_line(text: str, blanks: str = " \t") -> list[str]:
    found: list[str] = []
    current: list[str] | None = None
    quoted = False
    i = 0
    while i < len(text):
        c = text[i]
        if c in blanks and not quoted:
            if current is not None:
                found.append("".join(current))
                current = None
            i += 1
            continue
        current = [] if current is None else current
        if c == "\\":
            end = i
            while end < len(text) and text[end] == "\\":
                end += 1
            count = end - i
            if end < len(text) and text[end] == '"':
                current.append("\\" * (count // 2))
                if count % 2:
                    current.append('"')
                    end += 1
            else:
                current.append("\\" * count)
            i = end
        elif c == '"':
            if quoted and text[i + 1 : i + 2] == '"':  # two quotation marks inside quotes are one
                current.append('"')
                i += 1
            else:
                quoted = not quoted
            i += 1
        else:
            current.append(c)
            i += 1
    if current is not None:
        found.append("".join(current))
    return found
