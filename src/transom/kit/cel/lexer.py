"""The CEL tokenizer, with cel-go's error messages for invalid tokens."""

from __future__ import annotations

import re

from transom.kit.cel.errors import Issues
from transom.kit.lazy import lazy_pattern
from transom.kit.named_tuple import NamedTuple

_ESCAPE = (
    r"""\\(?:[abfnrtv"'\\?`]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2})"""
)
# No possessive quantifiers after groups: Python 3.11 has bugs there.
_TEXT = rf"""(?:
    [rR](?:\"\"\".*?\"\"\"|'''.*?'''|"[^"\n\r]*+"|'[^'\n\r]*+')
  | \"\"\"(?:{_ESCAPE}|[^\\])*?\"\"\" | '''(?:{_ESCAPE}|[^\\])*?'''
  | "[^\\"\n\r]*+(?:{_ESCAPE}[^\\"\n\r]*+)*" | '[^\\'\n\r]*+(?:{_ESCAPE}[^\\'\n\r]*+)*'
)"""
_TOKEN = lazy_pattern(
    rf"""
    (?P<BYTES>[bB]{_TEXT}) | (?P<STRING>{_TEXT})
  | (?P<NUM_FLOAT>[0-9]++\.[0-9]++(?:[eE][+-]?[0-9]++)?|[0-9]++[eE][+-]?[0-9]++|\.[0-9]++(?:[eE][+-]?[0-9]++)?)
  | (?P<NUM_UINT>0x[0-9a-fA-F]++[uU]|[0-9]++[uU]) | (?P<NUM_INT>0x[0-9a-fA-F]++|[0-9]++)
  | (?P<IDENTIFIER>[A-Za-z_][A-Za-z0-9_]*+)
  | (?P<op>==|!=|<=|>=|&&|\|\||[<>\[\]{{}}().,\-!?:+*/%])
    """,
    re.VERBOSE | re.DOTALL,
)
_SPACE = lazy_pattern(r"[\t \r\n\f]++|//[^\n]*+")
_BAD_TEXT = lazy_pattern(r"[bB]?[rR]?[\"'][^\n]*")
_KEYWORDS = frozenset(("in", "true", "false", "null"))


class CelToken(NamedTuple):
    kind: str  # the name of a class of tokens, or the operator or keyword itself
    text: str
    pos: int


def tokenize(source: str, issues: Issues) -> list[CelToken]:
    out: list[CelToken] = []
    at, end = 0, len(source)
    match, space = _TOKEN.match, _SPACE.match
    while at < end:
        if source[at] in " \t\r\n\f/":
            skipped = space(source, at)
            if skipped is not None:
                at = skipped.end()
                continue
        found = match(source, at)
        if found is None:
            bad = _BAD_TEXT.match(source, at)
            text = bad[0] if bad is not None else source[at]
            issues.report(at, f"Syntax error: token recognition error at: '{_shown(text)}'")
            at += len(text)
            continue
        kind = found.lastgroup or ""
        text = found[0]
        exact = kind == "op" or (kind == "IDENTIFIER" and text in _KEYWORDS)
        out.append(CelToken(text if exact else kind, text, at))
        at = found.end()
    out.append(CelToken("EOF", "<EOF>", end))
    return out


def _shown(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")


_SIMPLE = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    '"': '"',
    "'": "'",
    "\\": "\\",
    "?": "?",
    "`": "`",
}
_ESCAPED = lazy_pattern(
    r"\\(?:([xX])([0-9a-fA-F]{2})|[uU]([0-9a-fA-F]{4,8})|([0-3][0-7]{2})|(.))", re.DOTALL
)


def text_value(token: str) -> str:
    """The value of a string literal."""
    body, raw = _body(token)
    if raw or "\\" not in body:
        return body
    return _ESCAPED.sub(lambda found: _unescaped(found), body)


def bytes_value(token: str) -> bytes:
    """The value of a bytes literal: `\\x` and octal escapes are bytes there."""
    body, raw = _body(token[1:])
    if raw:
        return body.encode()
    out, at = bytearray(), 0
    for found in _ESCAPED.finditer(body):
        out += body[at : found.start()].encode()
        if found[2] is not None:
            out.append(int(found[2], 16))
        elif found[4] is not None:
            out.append(int(found[4], 8))
        else:
            out += _unescaped(found).encode()
        at = found.end()
    return bytes(out + body[at:].encode())


def _body(token: str) -> tuple[str, bool]:
    raw = token[0] in "rR"
    if raw:
        token = token[1:]
    width = 3 if token[:3] in ('"""', "'''") else 1
    return token[width:-width], raw


def _unescaped(found: re.Match[str]) -> str:
    if found[2] is not None:
        return chr(int(found[2], 16))
    if found[3] is not None:
        return chr(int(found[3], 16))
    if found[4] is not None:
        return chr(int(found[4], 8))
    return _SIMPLE[found[5]]
