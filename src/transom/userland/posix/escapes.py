"""Backslash escapes of POSIX tools."""

from __future__ import annotations

_ESCAPES = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "e": "\x1b",
    "\\": "\\",
    "'": "'",
    '"': '"',
}


def unescape(text: str) -> str:
    """Backslash escapes of `$'...'` and of printf's format."""
    out: list[str] = []
    position = 0
    while position < len(text):
        c = text[position]
        if c != "\\" or position + 1 >= len(text):
            out.append(c)
            position += 1
            continue
        following = text[position + 1]
        if following in _ESCAPES:
            out.append(_ESCAPES[following])
            position += 2
        elif following == "x":
            end = position + 2
            while end < len(text) and end < position + 4 and text[end] in "0123456789abcdefABCDEF":
                end += 1
            out.append(_byte(int(text[position + 2 : end], 16)) if end > position + 2 else "\\x")
            position = end
        elif following in "01234567":
            end = position + 1
            while end < len(text) and end < position + 5 and text[end] in "01234567":
                end += 1
            out.append(_byte(int(text[position + 1 : end], 8) & 0xFF))
            position = end
        else:
            out.append(c + following)
            position += 2
    return "".join(out)


def _byte(value: int) -> str:
    """Text here is bytes decoded with `surrogateescape`."""
    return bytes((value,)).decode("utf-8", "surrogateescape")
