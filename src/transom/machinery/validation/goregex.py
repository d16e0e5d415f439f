"""Go's regular expressions on top of Python's: the same language as far as CRDs use it, and Go's words for mistakes.

Go has no look-around and no back-references, reads `\\d`, `\\w`, `\\s`, `\\b` as ASCII, and lets `$` match only at the
very end of the text.
"""

from __future__ import annotations

import re
from functools import lru_cache

_POSIX = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": "\\x00-\\x7F", "blank": "\\t ", "cntrl": "\\x00-\\x1F\\x7F",
    "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~", "punct": "!-/:-@\\[-`{-~",
    "space": "\\t\\n\\v\\f\\r ", "upper": "A-Z", "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}
# The Unicode classes that occur in practice, as far as Python's engine can say them outside a set.
_UNICODE = {"L": r"(?u:[^\W\d_])", "Lu": "[A-ZÀ-ÖØ-Þ]", "Ll": "[a-zß-öø-ÿ]", "N": r"(?u:\d)", "Nd": r"(?u:\d)"}
_PLAIN_ESCAPES = frozenset("dDwWbBtnrfv")
_FLAGS = re.compile(r"\(\?([imsU]*(?:-[imsU]+)?)([:)])")
_REPEAT = re.compile(r"\{(\d+)(,(\d*))?\}")
_UNICODE_CLASS = re.compile(r"[pP](?:\{(\^?)([A-Za-z_]+)\}|([A-Z]))")


class RegexError(ValueError):
    """The pattern is none; the text is Go's, without its `error parsing regexp: `."""

    def __str__(self) -> str:
        return f"error parsing regexp: {self.args[0]}: `{self.args[1]}`"


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """The pattern for `search`; raises RegexError."""
    translated = _translate(pattern)
    try:
        return re.compile(translated, re.ASCII)
    except re.error as error:
        raise _go_error(error, pattern) from None


def _go_error(error: re.error, pattern: str) -> RegexError:
    at = error.pos or 0
    text = error.msg
    if text.startswith("bad character range"):
        return RegexError("invalid character class range", text.removeprefix("bad character range "))
    if text.startswith("nothing to repeat"):
        return RegexError("missing argument to repetition operator", pattern[at : at + 1] or "*")
    if text.startswith("multiple repeat"):
        return RegexError("invalid nested repetition operator", pattern[max(at - 1, 0) : at + 1])
    return RegexError("invalid or unsupported Perl syntax", pattern)


def _translate(pattern: str) -> str:
    out: list[str] = []
    depth = 0
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            text, at = _escape(pattern, at, in_set=False)
            out.append(text)
            continue
        if char == "[":
            text, at = _set(pattern, at)
            out.append(text)
            continue
        if char == "(":
            depth += 1
            text, at = _group(pattern, at)
            if text.endswith(")"):
                depth -= 1
            out.append(text)
            continue
        if char == ")":
            depth -= 1
            if depth < 0:
                raise RegexError("unexpected )", pattern)
        elif char == "$":
            char = r"\Z"
        elif char == "{":
            found = _REPEAT.match(pattern, at)
            if found is None:
                char = r"\{"
            else:
                _check_repeat(found)
        out.append(char)
        at += 1
    if depth:
        raise RegexError("missing closing )", pattern)
    return "".join(out)


def _check_repeat(found: re.Match[str]) -> None:
    low, high = int(found[1]), int(found[3]) if found[3] else None
    if low > 1000 or (high is not None and (high > 1000 or high < low)):
        raise RegexError("invalid repeat count", found[0])


def _group(pattern: str, at: int) -> tuple[str, int]:
    if not pattern.startswith("(?", at):
        return "(", at + 1
    if pattern.startswith("(?P<", at):
        end = pattern.find(">", at)
        if end < 0 or not re.fullmatch(r"\w+", pattern[at + 4 : end], re.ASCII):
            raise RegexError("invalid named capture", pattern[at : end + 1] if end >= 0 else pattern[at:])
        return f"(?P<{pattern[at + 4 : end]}>", end + 1
    found = _FLAGS.match(pattern, at)
    if found is None:
        shown = 4 if pattern.startswith("(?<", at) else 3
        raise RegexError("invalid or unsupported Perl syntax", pattern[at : at + shown])
    flags = found[1].replace("U", "")
    if found[2] == ":":
        return f"(?{flags}:", found.end()
    # Flags for the rest of the pattern; Python takes them only at its start or in a group.
    return (f"(?{flags})" if at == 0 and "-" not in flags and flags else "(?:)"), found.end()


def _escape(pattern: str, at: int, *, in_set: bool) -> tuple[str, int]:
    if at + 1 >= len(pattern):
        raise RegexError("trailing backslash at end of expression", "")
    char = pattern[at + 1]
    if char == "s":
        return (r"\t\n\f\r " if in_set else r"[\t\n\f\r ]"), at + 2
    if char == "S" and not in_set:
        return r"[^\t\n\f\r ]", at + 2
    if char == "z" and not in_set:
        return r"\Z", at + 2
    if char == "A" and not in_set:
        return r"\A", at + 2
    if char in "pP":
        return _unicode(pattern, at, in_set)
    if char == "Q" and not in_set:
        end = pattern.find("\\E", at + 2)
        literal = pattern[at + 2 : end if end >= 0 else len(pattern)]
        return re.escape(literal), (end + 2 if end >= 0 else len(pattern))
    if char == "a":
        return r"\x07", at + 2
    if char == "x":
        found = re.compile(r"x(?:\{([0-9A-Fa-f]+)\}|([0-9A-Fa-f]{2}))").match(pattern, at + 1)
        if found is None:
            raise RegexError("invalid escape sequence", pattern[at : at + 3])
        return re.escape(chr(int(found[1] or found[2], 16))), found.end()
    if char in _PLAIN_ESCAPES or char == "S" or (not char.isalnum() and char.isascii()):
        return "\\" + char, at + 2
    if char == "0":
        return r"\x00", at + 2
    raise RegexError("invalid escape sequence", pattern[at : at + 2])


def _unicode(pattern: str, at: int, in_set: bool) -> tuple[str, int]:
    found = _UNICODE_CLASS.match(pattern, at + 1)
    name = (found[2] or found[3]) if found else ""
    if found is None or name not in _UNICODE:
        raise RegexError("invalid character class range", pattern[at : found.end() if found else at + 2])
    text = _UNICODE[name]
    if in_set:
        text = "A-Za-z\\u00c0-\\U0010ffff" if name[0] == "L" else "0-9"
    elif (pattern[at + 1] == "P") != bool(found[1]):
        text = rf"(?!{text})[\s\S]"
    return text, found.end()


def _set(pattern: str, start: int) -> tuple[str, int]:
    at = start + 1
    out = ["["]
    if pattern.startswith("^", at):
        out.append("^")
        at += 1
    first = True
    while True:
        if at >= len(pattern):
            raise RegexError("missing closing ]", pattern[start:])
        char = pattern[at]
        if char == "]" and not first:
            out.append("]")
            return "".join(out), at + 1
        first = False
        if pattern.startswith("[:", at) and (end := pattern.find(":]", at)) > 0:
            name = pattern[at + 2 : end]
            if name.removeprefix("^") not in _POSIX or name.startswith("^"):
                raise RegexError("invalid character class range", pattern[at : end + 2])
            out.append(_POSIX[name])
            at = end + 2
        elif char == "\\":
            text, at = _escape(pattern, at, in_set=True)
            out.append(text)
        else:
            out.append("\\" + char if char in "[]&~|" else char)
            at += 1
