"""What Go's encoding/json says about text that is no JSON, and how Go prints JSON where bytes matter.

The fast path reads JSON with orjson; this module is asked only when that fails, to find the text of the error.
"""

from __future__ import annotations

import codecs
from typing import Any

import orjson

from transom.machinery.field import go_quote

MAX_DEPTH = 10_000
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


def text_of(data: bytes) -> str:
    """Bytes as Go prints them in JSON: bad UTF-8 becomes U+FFFD, byte by byte."""
    return data.decode("utf-8", "go-replace")


class _SyntaxError(Exception):
    pass


def syntax_error(data: bytes) -> str | None:
    """encoding/json's message about the first mistake, or None when the text is JSON."""
    try:
        end = _value(data, _skip(data, 0))
        end = _skip(data, end)
        if end < len(data):
            raise _invalid(data, end, "after top-level value")
    except _SyntaxError as e:
        return str(e)
    return None


def quote_char(code: int) -> str:
    """A byte as encoding/json quotes it: it takes the byte for a code point."""
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
    """The end of the value that starts here. Nested values are kept on a list, so depth costs no Python stack."""
    closers: list[int] = []
    while True:
        if at >= len(data):
            raise _SyntaxError(_END)
        c = data[at]
        if c in b"{[":
            closers.append(ord("}") if c == ord("{") else ord("]"))
            if len(closers) > MAX_DEPTH:
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
        # After a value: close what ends here, or go on to the next element.
        while True:
            if not closers:
                return at
            at = _skip(data, at)
            in_object = closers[-1] == ord("}")
            if at >= len(data) or data[at] not in (ord(","), closers[-1]):
                raise _invalid(data, at, "after object key:value pair" if in_object else "after array element")
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
            raise _invalid(data, at + i, f"in literal {literal.decode()} (expecting {quote_char(expected)})")
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
    """JSON bytes with the characters escaped that Go escapes for the sake of HTML."""
    if b"<" in data or b">" in data or b"&" in data:
        data = data.replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")
    if b"\xe2\x80" in data:
        data = data.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    return data


def marshal(value: Any) -> bytes:
    """json.Marshal of maps and lists: keys sorted, nothing between the tokens."""
    return escape_html(orjson.dumps(value, option=orjson.OPT_SORT_KEYS))


def kind_of(data: bytes) -> str:
    """What encoding/json calls the value in `cannot unmarshal X into`."""
    return {"{": "object", "[": "array", '"': "string", "t": "bool", "f": "bool"}.get(chr(data[0]), "number")
