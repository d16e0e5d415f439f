"""CEL's extended string functions (cel-go's ext/strings.go, version 2)."""

from __future__ import annotations

from typing import Any

from transom.kit.cel.errors import CelError
from transom.kit.cel.format import format_text
from transom.kit.cel.functions import Function, Overload


def _checked(text: str, at: int) -> int:
    if not 0 <= at <= len(text):
        raise CelError(f"index out of range: {at}")
    return at


def _char_at(text: str, at: int) -> str:
    return text[_checked(text, at) : at + 1]


def _index_of(text: str, wanted: str, start: int = 0) -> int:
    if not wanted:
        return start
    if not 0 <= start < max(1, len(text)):
        raise CelError(f"index out of range: {start}")
    return text.find(wanted, start)


def _last_index_of(text: str, wanted: str, start: int | None = None) -> int:
    if start is None:
        return text.rfind(wanted)
    if not wanted:
        return start
    if not 0 <= start < len(text):
        raise CelError(f"index out of range: {start}")
    return text.rfind(wanted, 0, start + len(wanted))


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    return text.replace(old, new, count if count >= 0 else -1)


def _split(text: str, separator: str, count: int = -1) -> list[str]:
    if count == 0:
        return []
    if not separator:
        pieces = list(text)
        return (
            pieces
            if count < 0 or count >= len(pieces)
            else [*pieces[: count - 1], "".join(pieces[count - 1 :])]
        )
    return text.split(separator, count - 1 if count > 0 else -1)


def _substring(text: str, start: int, end: int | None = None) -> str:
    _checked(text, start)
    if end is None:
        return text[start:]
    _checked(text, end)
    if start > end:
        raise CelError(f"invalid substring range. start: {start}, end: {end}")
    return text[start:end]


def _lower(text: str) -> str:
    return "".join(chr(ord(c) + 32) if "A" <= c <= "Z" else c for c in text)


def _upper(text: str) -> str:
    return "".join(chr(ord(c) - 32) if "a" <= c <= "z" else c for c in text)


_SPACES = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
_QUOTED = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}


def _quote(text: str) -> str:
    return '"' + "".join(_QUOTED.get(char, char) for char in text) + '"'


def _join(items: Any, separator: str = "") -> str:
    try:
        return separator.join(items)
    except TypeError:
        raise CelError("no such overload") from None


STRING_FUNCTIONS: tuple[Function, ...] = (
    Function("charAt", (Overload("string_char_at_int", "string.(int) -> string", _char_at),)),
    Function(
        "indexOf",
        (
            Overload("string_index_of_string", "string.(string) -> int", _index_of),
            Overload("string_index_of_string_int", "string.(string, int) -> int", _index_of),
        ),
    ),
    Function(
        "lastIndexOf",
        (
            Overload("string_last_index_of_string", "string.(string) -> int", _last_index_of),
            Overload(
                "string_last_index_of_string_int", "string.(string, int) -> int", _last_index_of
            ),
        ),
    ),
    Function("lowerAscii", (Overload("string_lower_ascii", "string.() -> string", _lower),)),
    Function("upperAscii", (Overload("string_upper_ascii", "string.() -> string", _upper),)),
    Function(
        "replace",
        (
            Overload("string_replace_string_string", "string.(string, string) -> string", _replace),
            Overload(
                "string_replace_string_string_int",
                "string.(string, string, int) -> string",
                _replace,
            ),
        ),
    ),
    Function(
        "split",
        (
            Overload("string_split_string", "string.(string) -> list(string)", _split),
            Overload("string_split_string_int", "string.(string, int) -> list(string)", _split),
        ),
    ),
    Function(
        "substring",
        (
            Overload("string_substring_int", "string.(int) -> string", _substring),
            Overload("string_substring_int_int", "string.(int, int) -> string", _substring),
        ),
    ),
    Function(
        "trim", (Overload("string_trim", "string.() -> string", lambda text: text.strip(_SPACES)),)
    ),
    Function("format", (Overload("string_format", "string.(list(dyn)) -> string", format_text),)),
    Function("strings.quote", (Overload("strings_quote", "(string) -> string", _quote),)),
    Function(
        "join",
        (
            Overload("list_join", "list(string).() -> string", _join),
            Overload("list_join_string", "list(string).(string) -> string", _join),
        ),
    ),
)
