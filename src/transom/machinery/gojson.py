"""Error messages of Go's encoding/json, and JSON as Go prints it, byte for byte.

The fast path reads JSON with orjson; this module is used only if that fails, to find the error
message.
"""

from __future__ import annotations

import codecs
import json
import math
from typing import Any

import orjson

from transom.kit.goquote import go_quote
from transom.machinery.objects import MAX_DEPTH, TooDeep, check_depth

_GO_MAX_DEPTH = 10_000
_SHORT_INTEGER = 19  # characters; always an int64
_LONGEST_INTEGER = 40  # digits
_SPACE = b" \t\r\n"
_DIGITS = b"0123456789"
_HEX = b"0123456789abcdefABCDEF"
_END = "unexpected end of JSON input"
_LITERALS = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}


def _replace_byte(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "\ufffd", error.start + 1


# Go replaces every single bad byte, Python's own handler every longest bad prefix.
codecs.register_error("go-replace", _replace_byte)


def go_json_text(data: bytes) -> str:
    """Bytes as Go prints them in JSON: bad UTF-8 becomes U+FFFD, byte by byte."""
    return data.decode("utf-8", "go-replace")


class _SyntaxError(Exception):
    pass


class JsonError(ValueError):
    """encoding/json cannot decode the text into an untyped value; `str()` is Go's message."""


def loads(data: bytes) -> Any:
    """JSON as Go decodes it into an untyped value. Raises JsonError or TooDeep.

    Unlike orjson, Go replaces invalid UTF-8 and lone surrogates. An integer of more than 64 bits
    becomes a float.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        mistake = syntax_error(data)
        if mistake is not None:
            raise JsonError(mistake) from None
        value = lenient_json(data, finite=True)
    if data.count(b"{") + data.count(b"[") > MAX_DEPTH:
        check_depth(value)
    return value


def loads_first(data: bytes) -> Any:
    """The first value of a stream of JSON texts."""
    start = _skip(data, 0)
    try:
        return loads(data[start : _value(data, start)])
    except _SyntaxError as e:
        raise JsonError(str(e)) from None


def lenient_json(data: bytes, *, finite: bool = False) -> Any:
    """Decodes what `syntax_error` accepts and orjson does not. With `finite`, a number beyond the
    float range is an error.
    """
    try:
        value = json.loads(
            go_json_text(data),
            parse_int=_finite if finite else parse_json_integer,
            parse_float=_finite if finite else float,
        )
    except RecursionError:
        raise TooDeep from None
    return _scalar_values(value)


def parse_json_integer(text: str) -> int | float:
    """An integer; a float if it is too long for any decoder's integers."""
    return int(text) if len(text) <= _LONGEST_INTEGER else float(text)


def _finite(text: str) -> int | float:
    if len(text) < _SHORT_INTEGER and text.lstrip("-").isdecimal():
        return int(text)
    value = float(text)
    if math.isinf(value):
        raise JsonError(f"json: cannot unmarshal number {text} into Go value of type float64")
    return value


def _scalar_values(value: Any) -> Any:
    """The value without what only Python can represent: lone surrogates and integers of more than
    64 bits.
    """
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_scalar_values(k): _scalar_values(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_scalar_values(v) for v in value]
    if value.__class__ is int and not -(1 << 63) <= value < 1 << 64:
        return float(value)
    return value


def syntax_error(data: bytes) -> str | None:
    """encoding/json's message about the first error, or None if the text is JSON."""
    try:
        end = _value(data, _skip(data, 0))
        end = _skip(data, end)
        if end < len(data):
            raise _invalid(data, end, "after top-level value")
    except _SyntaxError as e:
        return str(e)
    return None


def quote_char(code: int) -> str:
    """A byte as encoding/json quotes it: as a code point."""
    if code == ord("'"):
        return r"'\''"
    if code == ord('"'):
        return "'\"'"
    return "'" + go_quote(chr(code))[1:-1] + "'"


def _invalid(data: bytes, at: int, context: str) -> _SyntaxError:
    if at >= len(data):
        return _SyntaxError(_END)
    return _SyntaxError(f"invalid character {quote_char(data[at])} {context}")


def _skip(data: bytes, at: int) -> int:
    while at < len(data) and data[at] in _SPACE:
        at += 1
    return at


def _value(data: bytes, at: int) -> int:
    """The end of the value that starts here. Uses an explicit stack for nested values, so depth
    costs no Python stack.
    """
    closers: list[int] = []
    while True:
        if at >= len(data):
            raise _SyntaxError(_END)
        c = data[at]
        if c in b"{[":
            closers.append(ord("}") if c == ord("{") else ord("]"))
            if len(closers) > _GO_MAX_DEPTH:
                raise _invalid(data, at, "exceeded max depth")
            start = _skip(data, at + 1)
            if start < len(data) and data[start] == closers[-1]:
                at = start
            else:
                at = _key(data, start) if c == ord("{") else start
                continue
            at += 1
            closers.pop()
        else:
            at = _scalar(data, at)
        # After a value: close what ends here, or continue with the next element.
        while True:
            if not closers:
                return at
            at = _skip(data, at)
            in_object = closers[-1] == ord("}")
            if at >= len(data) or data[at] not in (ord(","), closers[-1]):
                raise _invalid(
                    data, at, "after object key:value pair" if in_object else "after array element"
                )
            if data[at] == closers[-1]:
                closers.pop()
                at += 1
                continue
            at = _skip(data, at + 1)
            if in_object:
                at = _key(data, at)
            break


def _key(data: bytes, at: int) -> int:
    """Reads a key and its colon, returns where the value starts."""
    if at >= len(data) or data[at] != ord('"'):
        raise _invalid(data, at, "looking for beginning of object key string")
    at = _skip(data, _string(data, at))
    if at >= len(data) or data[at] != ord(":"):
        raise _invalid(data, at, "after object key")
    return _skip(data, at + 1)


def _scalar(data: bytes, at: int) -> int:
    c = data[at]
    if c == ord('"'):
        return _string(data, at)
    if c in b"-0123456789":
        return _number(data, at)
    literal = _LITERALS.get(c)
    if literal is None:
        raise _invalid(data, at, "looking for beginning of value")
    for i, expected in enumerate(literal):
        if at + i >= len(data) or data[at + i] != expected:
            raise _invalid(
                data, at + i, f"in literal {literal.decode()} (expecting {quote_char(expected)})"
            )
    return at + len(literal)


def _string(data: bytes, at: int) -> int:
    at += 1
    while True:
        if at >= len(data):
            raise _SyntaxError(_END)
        c = data[at]
        if c == ord('"'):
            return at + 1
        if c < 0x20:
            raise _invalid(data, at, "in string literal")
        at += 1
        if c != ord("\\"):
            continue
        if at >= len(data) or data[at] not in b'bfnrt\\/"u':
            raise _invalid(data, at, "in string escape code")
        at += 1
        if data[at - 1] == ord("u"):
            for i in range(4):
                if at + i >= len(data) or data[at + i] not in _HEX:
                    raise _invalid(data, at + i, "in \\u hexadecimal character escape")
            at += 4


def _number(data: bytes, at: int) -> int:
    if data[at] == ord("-"):
        at += 1
        if at >= len(data) or data[at] not in _DIGITS:
            raise _invalid(data, at, "in numeric literal")
    at = at + 1 if data[at] == ord("0") else _digits(data, at)
    if at < len(data) and data[at] == ord("."):
        at += 1
        if at >= len(data) or data[at] not in _DIGITS:
            raise _invalid(data, at, "after decimal point in numeric literal")
        at = _digits(data, at)
    if at < len(data) and data[at] in b"eE":
        at += 1
        if at < len(data) and data[at] in b"+-":
            at += 1
        if at >= len(data) or data[at] not in _DIGITS:
            raise _invalid(data, at, "in exponent of numeric literal")
        at = _digits(data, at)
    return at


def _digits(data: bytes, at: int) -> int:
    while at < len(data) and data[at] in _DIGITS:
        at += 1
    return at


def escape_html(data: bytes) -> bytes:
    """JSON bytes with Go's HTML escaping."""
    if b"<" in data or b">" in data or b"&" in data:
        data = data.replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")
    if b"\xe2\x80" in data:
        data = data.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    return data


def marshal(value: Any) -> bytes:
    """json.Marshal of maps and lists: keys sorted, nothing between the tokens."""
    return escape_html(orjson.dumps(value, option=orjson.OPT_SORT_KEYS))


def kind_of(data: bytes) -> str:
    """encoding/json's name of the value in `cannot unmarshal X into`."""
    return {"{": "object", "[": "array", '"': "string", "t": "bool", "f": "bool"}.get(
        chr(data[0]), "number"
    )
