"""Expansion: what a word of a script becomes when it runs. Parameters, substitutions, splitting, file names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from transom.runtime.sim.programs.sh import arithmetic, patterns
from transom.runtime.sim.programs.sh.tree import Literal, Parameter, Part, Substitution, Word

if TYPE_CHECKING:
    from transom.runtime.sim.programs.sh.shell import Shell

_BRACES = re.compile(r"^(.*?)\{(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?\}(.*)$|^(.*?)\{([^{}]*,[^{}]*)\}(.*)$", re.DOTALL)


class ExpansionFault(Exception):
    """`${x:?text}`, an unset variable under `set -u`, bad arithmetic. The text follows the shell's name."""


class _Piece(NamedTuple):
    text: str
    quoted: bool
    splits: bool = False  # came from an expansion: fields are cut at IFS
    new_field: bool = False  # stands between two fields of "$@"


async def fields(shell: Shell, words: Iterable[Word]) -> list[str]:
    """Words of a command as its arguments."""
    out: list[str] = []
    for word in words:
        if len(word) == 1 and isinstance(word[0], Literal) and (word[0].quoted or word[0].text.isalnum()):
            out.append(word[0].text)  # the common case
            continue
        for single in _braces(word) if shell.bash else (word,):
            out.extend(_to_fields(shell, await _pieces(shell, single)))
    return out


async def text(shell: Shell, word: Word) -> str:
    """One string, neither cut nor matched: assignments, redirections, here-documents."""
    if len(word) == 1 and isinstance(word[0], Literal) and not word[0].text.startswith("~"):
        return word[0].text
    return "".join(" " if piece.new_field else piece.text for piece in await _pieces(shell, word))


async def pattern(shell: Shell, word: Word) -> str:
    """As `text`, with what was quoted escaped for `patterns`."""
    pieces = await _pieces(shell, word)
    return "".join(patterns.quote(piece.text) if piece.quoted else piece.text for piece in pieces)


async def number(shell: Shell, word: Word) -> int:
    expression = await text(shell, word)
    try:
        return arithmetic.evaluate(expression, shell.arithmetic_value, shell.assign)
    except arithmetic.ArithmeticFault as fault:
        raise ExpansionFault(str(fault)) from None


async def _pieces(shell: Shell, word: Sequence[Part]) -> list[_Piece]:
    out: list[_Piece] = []
    for index, part in enumerate(word):
        if isinstance(part, Literal):
            content = part.text
            if index == 0 and not part.quoted and content.startswith("~"):
                name, slash, rest = content.partition("/")
                if name == "~":
                    out.append(_Piece(shell.get("HOME") or "/root", True))
                    content = slash + rest
            out.append(_Piece(content, part.quoted))
        elif isinstance(part, Parameter):
            out.extend(await _parameter(shell, part))
        elif isinstance(part, Substitution):
            out.append(_Piece(await shell.capture(part.body), part.quoted, not part.quoted))
        else:
            out.append(_Piece(str(await number(shell, part.expression)), part.quoted, not part.quoted))
    return out


def _to_fields(shell: Shell, pieces: list[_Piece]) -> list[str]:
    separators = shell.separators()
    found: list[tuple[str, bool]] = []  # pattern, whether anything was quoted
    current: list[str] = []
    there = quoted = False

    def end() -> None:
        nonlocal there, quoted
        if there:
            found.append(("".join(current), quoted))
        current.clear()
        there = quoted = False

    for piece in pieces:
        if piece.new_field:
            end()
            there = quoted = piece.quoted
        elif piece.quoted:
            current.append(patterns.quote(piece.text))
            there = quoted = True
        elif not piece.splits or not separators:
            current.append(piece.text)
            there = there or bool(piece.text)
        else:
            chunk: list[str] = []
            for c in piece.text:
                if c not in separators:
                    chunk.append(c)
                    continue
                if chunk:
                    current.append("".join(chunk))
                    chunk.clear()
                    there = True
                if not c.isspace() and not there:
                    found.append(("", True))
                end()
            if chunk:
                current.append("".join(chunk))
                there = True
    end()
    out: list[str] = []
    for content, _ in found:
        if not shell.options["f"] and patterns.is_magic(content):
            names = patterns.expand_files(content, shell.process.files)
            if names:
                out.extend(names)
                continue
        out.append(patterns.unquote(content))
    return out


async def _parameter(shell: Shell, part: Parameter) -> list[_Piece]:
    name, operator, quoted = part.name, part.operator, part.quoted
    if name in ("@", "*") and operator == "":
        return _positional(shell, name, quoted)
    value = shell.lookup(name)
    if operator == "length":
        return [_Piece(str(len(shell.arguments) if name in ("@", "*") else len(value or "")), quoted)]
    if operator.rstrip("-=?+") in ("", ":") and operator not in ("", ":"):
        missing = value is None or (operator.startswith(":") and value == "")
        kind = operator[-1]
        if kind == "+":
            return [] if missing else await _operand(shell, part)
        if missing:
            if kind == "-":
                return await _operand(shell, part)
            if kind == "=":
                value = await text(shell, part.operand)
                shell.assign(name, value)
            else:
                message = await text(shell, part.operand) or "parameter not set"
                raise ExpansionFault(f"{name}: {message}")
        if name in ("@", "*"):
            return _positional(shell, name, quoted)
        return [_Piece(value or "", quoted, not quoted)]
    if value is None:
        if shell.options["u"] and name not in ("@", "*"):
            raise ExpansionFault(f"{name}: parameter not set")
        value = ""
    if operator:
        value = await _transformed(shell, part, value)
    return [_Piece(value, quoted, not quoted)]


async def _operand(shell: Shell, part: Parameter) -> list[_Piece]:
    pieces = await _pieces(shell, part.operand)
    if part.quoted:
        return [piece._replace(quoted=True, splits=False) for piece in pieces] or [_Piece("", True)]
    return [piece if piece.quoted else piece._replace(splits=True) for piece in pieces]


def _positional(shell: Shell, name: str, quoted: bool) -> list[_Piece]:
    arguments = shell.arguments
    if quoted and name == "*":
        separator = shell.get("IFS")
        return [_Piece((" " if separator is None else separator[:1]).join(arguments), True)]
    out: list[_Piece] = []
    for index, argument in enumerate(arguments):
        if index:
            out.append(_Piece("", quoted, new_field=True))
        out.append(_Piece(argument, quoted, not quoted))
    return out


async def _transformed(shell: Shell, part: Parameter, value: str) -> str:
    operator = part.operator
    if operator in ("#", "##", "%", "%%"):
        return _stripped(value, await pattern(shell, part.operand), operator)
    if operator in ("/", "//"):
        whole = await pattern(shell, part.operand)
        found, _, replacement = _split_replacement(whole)
        expression = re.compile(patterns.translate(found.lstrip("#%") if found[:1] in "#%" else found), re.DOTALL)
        return expression.sub(lambda match: patterns.unquote(replacement), value, count=0 if operator == "//" else 1)
    if operator == ":":
        offset_text, colon, length_text = (await text(shell, part.operand)).partition(":")
        evaluate = arithmetic.evaluate
        offset = evaluate(offset_text, shell.arithmetic_value, shell.assign)
        start = max(0, len(value) + offset) if offset < 0 else offset
        if not colon:
            return value[start:]
        length = evaluate(length_text, shell.arithmetic_value, shell.assign)
        return value[start : len(value) + length] if length < 0 else value[start : start + length]
    change = {"^^": str.upper, ",,": str.lower, "^": _first_upper, ",": _first_lower}[operator]
    return change(value)


def _first_upper(value: str) -> str:
    return value[:1].upper() + value[1:]


def _first_lower(value: str) -> str:
    return value[:1].lower() + value[1:]


def _split_replacement(whole: str) -> tuple[str, str, str]:
    position = 0
    while position < len(whole):
        if whole[position] == "\\":
            position += 2
            continue
        if whole[position] == "/":
            return whole[:position], "/", whole[position + 1 :]
        position += 1
    return whole, "", ""


def _stripped(value: str, expression: str, operator: str) -> str:
    compiled = patterns.compiled(expression)
    if operator[0] == "#":
        lengths: Iterable[int] = range(len(value) + 1)
        if operator == "##":
            lengths = reversed(range(len(value) + 1))
        for length in lengths:
            if compiled.fullmatch(value[:length]):
                return value[length:]
        return value
    starts: Iterable[int] = range(len(value), -1, -1)
    if operator == "%%":
        starts = range(len(value) + 1)
    for start in starts:
        if compiled.fullmatch(value[start:]):
            return value[:start]
    return value


def _braces(word: Word) -> list[Word]:
    """bash's `{1..5}` and `{a,b}` in unquoted text."""
    for index, part in enumerate(word):
        if not isinstance(part, Literal) or part.quoted or "{" not in part.text:
            continue
        match = _BRACES.match(part.text)
        if match is None:
            continue
        if match[2] is not None:
            first, last = int(match[2]), int(match[3])
            step = abs(int(match[4] or 1)) or 1
            values = [str(n) for n in (range(first, last + 1, step) if first <= last else range(first, last - 1, -step))]
            before, after = match[1], match[5]
        else:
            before, after, values = match[6], match[8], match[7].split(",")
        out: list[Word] = []
        for value in values:
            out.extend(_braces((*word[:index], Literal(before + value + after), *word[index + 1 :])))
        return out
    return [word]
