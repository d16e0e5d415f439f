"""Translates regular expressions of grep, sed and awk into Python's notation."""

from __future__ import annotations

import re


def basic_expression(pattern: str) -> str:
    """A basic regular expression in Python's notation."""
    out: list[str] = []
    position = 0
    while position < len(pattern):
        c = pattern[position]
        if c == "\\" and position + 1 < len(pattern):
            following = pattern[position + 1]
            out.append(
                following
                if following in "(){}|+?"
                else "\\b"
                if following in "<>"
                else c + following
            )
            position += 2
            continue
        if c == "[":
            end = _bracket(pattern, position)
            out.append(_class(pattern[position : end + 1]))
            position = end + 1
            continue
        if c == "*" and not out:
            out.append("\\*")
        else:
            out.append("\\" + c if c in "(){}|+?" else c)
        position += 1
    return "".join(out)


def extended_expression(pattern: str) -> str:
    out: list[str] = []
    position = 0
    while position < len(pattern):
        if pattern[position] == "\\" and position + 1 < len(pattern):
            following = pattern[position + 1]
            out.append("\\b" if following in "<>" else pattern[position : position + 2])
            position += 2
        elif pattern[position] == "[":
            end = _bracket(pattern, position)
            out.append(_class(pattern[position : end + 1]))
            position = end + 1
        else:
            out.append(pattern[position])
            position += 1
    return "".join(out)


def _bracket(pattern: str, start: int) -> int:
    position = start + 1
    if pattern[position : position + 1] == "^":
        position += 1
    if pattern[position : position + 1] == "]":
        position += 1
    while position < len(pattern) and pattern[position] != "]":
        if pattern.startswith("[:", position):
            position = pattern.find(":]", position) + 1
        position += 1
    return position


_CLASSES = {
    "[:alpha:]": "a-zA-Z",
    "[:digit:]": "0-9",
    "[:alnum:]": "a-zA-Z0-9",
    "[:space:]": r"\s",
    "[:upper:]": "A-Z",
    "[:lower:]": "a-z",
    "[:punct:]": r"!-/:-@\[-`{-~",
    "[:xdigit:]": "0-9a-fA-F",
    "[:blank:]": r" \t",
}


def _class(text: str) -> str:
    inner = text[1:-1]
    negated = inner.startswith("^")
    body = inner[1:] if negated else inner
    for name, value in _CLASSES.items():
        body = body.replace(name, f"\0{value}\1")
    pieces = re.split(r"(\x00.*?\x01)", body)
    quoted = "".join(
        piece[1:-1]
        if piece.startswith("\0")
        else piece.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")
        for piece in pieces
    )
    return f"[{'^' if negated else ''}{quoted}]"
