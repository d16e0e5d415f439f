"""Escapes text for logs and terminals: one record stays one line, and no character moves the
cursor.

Text from clients and containers (paths, user agents, names, messages) ends up in logs. This module
escapes control characters (line ends, ANSI escapes), Unicode's line separators, characters that
change the direction of text, and lone surrogates, which cannot be encoded at all. Imports nothing
that costs memory, because the container monitor uses it.
"""

from __future__ import annotations

import re
from typing import Final

from transom.kit.lazy import lazy_pattern

_UNSAFE: Final = lazy_pattern(
    "[\0-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_COLOUR_OR_UNSAFE: Final = lazy_pattern(rf"(\x1b\[[0-9;]{{0,8}}m|\n)|{_UNSAFE.pattern}")
_SHORT: Final = {
    "\n": "\\n",
    "\r": "\\r",
    "\x0b": "\\v",
    "\x0c": "\\f",
    "\x07": "\\a",
    "\x08": "\\b",
}


def escape_line(text: str) -> str:
    """Escapes these characters like Go's %q, without the quotes. Tabs stay."""
    # No printable character is unsafe; most texts need no search
    return text if text.isprintable() else _UNSAFE.sub(_escaped, text)


def escape_lines(text: str) -> str:
    """Several lines: indents those after the first, so that none of them looks like the start of a
    record.
    """
    return "\n  ".join(map(escape_line, text.split("\n")))


def escape_terminal(text: str) -> str:
    """For terminals: keeps line breaks and colours."""
    return (
        _COLOUR_OR_UNSAFE.sub(lambda found: found[1] or _escaped(found), text)
        if _UNSAFE.search(text)
        else text
    )


def escape_json(text: str) -> str:
    """JSON that also escapes the characters that JSON itself leaves unescaped."""
    return _UNSAFE.sub(_json_escaped, text) if _UNSAFE.search(text) else text


def _escaped(found: re.Match[str]) -> str:
    char = found[0]
    short = _SHORT.get(char)
    return short or (f"\\x{ord(char):02x}" if char < "\x80" else f"\\u{ord(char):04x}")


def _json_escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def escape_markup(text: str) -> str:
    """The three characters that begin markup in HTML and XML text, like `html.escape` without
    quotes. Neither that module nor `xml.sax.saxutils`, which imports clients of HTTP and FTP, is
    needed for it.
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
