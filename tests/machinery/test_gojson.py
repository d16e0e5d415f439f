from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.machinery import gojson


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        (b"", "unexpected end of JSON input"),
        (b'{"a": "b"', "unexpected end of JSON input"),
        (b"nope", "invalid character 'o' in literal null (expecting 'u')"),
        (b"{nope", "invalid character 'n' looking for beginning of object key string"),
        (b'{"a" 1}', "invalid character '1' after object key"),
        (b'{"a":1 "b":2}', "invalid character '\"' after object key:value pair"),
        (b'{"a":01}', "invalid character '1' after object key:value pair"),
        (b"[1 2]", "invalid character '2' after array element"),
        (b"[1,]", "invalid character ']' looking for beginning of value"),
        (b"{} x", "invalid character 'x' after top-level value"),
        (b"-", "unexpected end of JSON input"),
        (b"-x", "invalid character 'x' in numeric literal"),
        (b"1.", "unexpected end of JSON input"),
        (b"1.x", "invalid character 'x' after decimal point in numeric literal"),
        (b"1ex", "invalid character 'x' in exponent of numeric literal"),
        (b'"\n"', r"invalid character '\n' in string literal"),
        (b'"\\q"', "invalid character 'q' in string escape code"),
        (b'"\\u00g0"', r"invalid character 'g' in \u hexadecimal character escape"),
        (b"'", r"invalid character '\'' looking for beginning of value"),
        (b"\x81", r"invalid character '\u0081' looking for beginning of value"),
        (b"[" * 10_001, "invalid character '[' exceeded max depth"),
    ],
)
def test_syntax_errors(text: bytes, mistake: str) -> None:
    assert gojson.syntax_error(text) == mistake


@given(st.text(alphabet='{}[],:"\\0123456789-+.eEtrufalsn \n', max_size=12))
def test_agrees_with_python_on_what_is_json(text: str) -> None:
    try:
        json.loads(text)
        valid = True
    except (ValueError, RecursionError):
        valid = False
    assert (gojson.syntax_error(text.encode()) is None) == valid


def test_go_prints_json_safe_for_html() -> None:
    assert (
        gojson.marshal({"b": "<&>", "a": "\u2028"}) == rb'{"a":"\u2028","b":"\u003c\u0026\u003e"}'
    )
