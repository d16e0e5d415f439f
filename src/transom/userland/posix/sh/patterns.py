"""Shell patterns: matching of text and of file names."""

from __future__ import annotations

import re

from transom.kit.caching import text_cache
from transom.userland.files import FileView
from transom.userland.regex import Pattern, compile_pattern

_CLASSES = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "space": r"\s",
    "upper": "A-Z",
    "lower": "a-z",
    "punct": r"!-/:-@\[-`{-~",
    "xdigit": "0-9a-fA-F",
    "blank": r" \t",
}
MAGIC = frozenset("*?[")
_TO_QUOTE = re.compile(r"([*?\[\]\\!^-])")
SPECIAL = re.compile(r"[*?\[\\]")  # text without these characters is neither a pattern nor quoted


@text_cache(1024)
def compiled(pattern: str) -> Pattern:
    """For `fullmatch`. A backslash makes the next character literal."""
    return compile_pattern(translate_glob(pattern), dot_all=True)


def translate_glob(pattern: str, *, lazy: bool = False) -> str:
    """The pattern as a regular expression; `lazy`: stars match as little as possible."""
    out: list[str] = []
    position = 0
    while position < len(pattern):
        c = pattern[position]
        position += 1
        if c == "*":
            out.append(".*?" if lazy else ".*")
        elif c == "?":
            out.append(".")
        elif c == "\\" and position < len(pattern):
            out.append(re.escape(pattern[position]))
            position += 1
        elif c == "[":
            end = _bracket_end(pattern, position)
            if end < 0:
                out.append(r"\[")
                continue
            out.append(bracket(pattern[position:end]))
            position = end + 1
        else:
            out.append(re.escape(c))
    return "".join(out)


def _bracket_end(pattern: str, position: int) -> int:
    start = position
    if pattern[position : position + 1] in ("!", "^"):
        position += 1
    if pattern[position : position + 1] == "]":
        position += 1
    while position < len(pattern):
        if pattern.startswith("[:", position):
            closing = pattern.find(":]", position)
            if closing > 0:
                position = closing + 2
                continue
        if pattern[position] == "]":
            return position if position > start else -1
        position += 1
    return -1


def bracket(inner: str) -> str:
    """A bracket expression (without the brackets) as a regular expression."""
    negated = inner[:1] in ("!", "^")
    body = inner[1:] if negated else inner
    body = body.replace("\\", r"\\").replace("]", r"\]").replace("[", r"\[").replace("^", r"\^")
    for name, characters in _CLASSES.items():
        body = body.replace(rf"\[:{name}:\]", characters)
    return f"[{'^' if negated else ''}{body}]"


def quote_glob(text: str) -> str:
    """A pattern that matches only the text itself."""
    return text if text.isalnum() else _TO_QUOTE.sub(r"\\\1", text)


def unquote(pattern: str) -> str:
    return re.sub(r"\\(.)", r"\1", pattern, flags=re.DOTALL)


def matches_glob(pattern: str, text: str) -> bool:
    return compiled(pattern).fullmatch(text) is not None


def is_magic(pattern: str) -> bool:
    escaped = False
    for c in pattern:
        if escaped:
            escaped = False
        elif c == "\\":
            escaped = True
        elif c in MAGIC:
            return True
    return False


def expand_files(pattern: str, files: FileView) -> list[str]:
    """The names of matching files, sorted; empty if there are none."""
    absolute = pattern.startswith("/")
    found = ["/"] if absolute else [""]
    pieces = [piece for piece in pattern.split("/") if piece]
    for index, piece in enumerate(pieces):
        last = index == len(pieces) - 1
        following: list[str] = []
        for base in found:
            if not is_magic(piece):
                candidate = _join(base, unquote(piece))
                if files.exists(candidate):
                    following.append(candidate)
                continue
            for name in _names(files, base or "."):
                if (name.startswith(".") and not piece.startswith(".")) or not matches_glob(
                    piece, name
                ):
                    continue
                candidate = _join(base, name)
                if last or files.is_directory(candidate):
                    following.append(candidate)
        found = following
    if pattern.endswith("/"):
        found = [name + "/" for name in found if files.is_directory(name)]
    return sorted(found)


def _names(files: FileView, directory: str) -> list[str]:
    try:
        return files.listdir(directory)
    except OSError:
        return []


def _join(base: str, name: str) -> str:
    return name if not base else base + name if base.endswith("/") else f"{base}/{name}"
