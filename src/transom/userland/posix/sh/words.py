"""Expansion of words when a command runs: parameters, substitutions, field splitting, file names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from transom.kit.named_tuple import NamedTuple
from transom.userland.limits import MAX_ARGUMENTS, bounded, check_size
from transom.userland.posix.sh import arithmetic, patterns
from transom.userland.posix.sh.control import ExpansionFault
from transom.userland.posix.sh.state import ShellState
from transom.userland.posix.sh.tree import Literal, ParameterExpansion, Part, Substitution, Word
from transom.userland.preemption import check_slice
from transom.userland.regex import compile_pattern

_BRACES = re.compile(
    r"^(.*?)\{(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?\}(.*)$|^(.*?)\{([^{}]*,[^{}]*)\}(.*)$", re.DOTALL
)


class _Piece(NamedTuple):
    text: str
    quoted: bool
    splits: bool = False  # from an expansion: split at IFS
    new_field: bool = False  # between two fields of "$@"


async def expand_fields(shell: ShellState, words: Iterable[Word]) -> list[str]:
    """Expands words to the arguments of a command."""
    out: list[str] = []
    for word in words:
        if (
            len(word) == 1
            and isinstance(word[0], Literal)
            and (word[0].quoted or word[0].text.isalnum())
        ):
            out.append(word[0].text)  # the common case
            continue
        for single in _braces(word) if shell.bash else (word,):
            out.extend(_to_fields(shell, await _pieces(shell, single)))
            await shell.process.take_turn()
    return bounded(out, MAX_ARGUMENTS)


async def expand_text(shell: ShellState, word: Word) -> str:
    """Expands to one string without splitting and matching: assignments, redirections,
    here-documents.
    """
    if len(word) == 1 and isinstance(word[0], Literal) and not word[0].text.startswith("~"):
        return word[0].text
    return bounded(
        "".join(" " if piece.new_field else piece.text for piece in await _pieces(shell, word))
    )


async def pattern(shell: ShellState, word: Word) -> str:
    """Like `expand_text`, with quoted characters escaped for `patterns`."""
    pieces = await _pieces(shell, word)
    return bounded(
        "".join(patterns.quote_glob(piece.text) if piece.quoted else piece.text for piece in pieces)
    )


async def parse_shell_number(shell: ShellState, word: Word) -> int:
    expression = await expand_text(shell, word)
    try:
        return arithmetic.evaluate(expression, shell.arithmetic_value, shell.assign)
    except arithmetic.ArithmeticFault as fault:
        raise ExpansionFault(str(fault)) from None


async def _pieces(shell: ShellState, word: Sequence[Part]) -> list[_Piece]:
    out: list[_Piece] = []
    size = 0
    for index, part in enumerate(word):
        check_slice()
        for piece in out[-1:]:
            size += len(piece.text)
            check_size(size)
        if isinstance(part, Literal):
            content = part.text
            if index == 0 and not part.quoted and content.startswith("~"):
                name, slash, rest = content.partition("/")
                if name == "~":
                    out.append(_Piece(shell.get("HOME") or "/root", True))
                    content = slash + rest
            out.append(_Piece(content, part.quoted))
        elif isinstance(part, ParameterExpansion):
            out.extend(await _parameter(shell, part))
        elif isinstance(part, Substitution):
            out.append(_Piece(await shell.capture(part.body), part.quoted, not part.quoted))
        else:
            out.append(
                _Piece(
                    str(await parse_shell_number(shell, part.expression)),
                    part.quoted,
                    not part.quoted,
                )
            )
    return out


class _FieldSplitter:
    """Splits the pieces of a word into patterns of fields, at the characters of IFS."""

    def __init__(self, separators: str) -> None:
        self.found: list[str] = []
        self._separators = separators
        self._current: list[str] = []
        self._there = False

    def end_field(self) -> None:
        if self._there:
            self.found.append("".join(self._current))
        self._current.clear()
        self._there = False

    def add(self, piece: _Piece) -> None:
        if piece.new_field:
            self.end_field()
            self._there = piece.quoted
        elif piece.quoted:
            self._append(patterns.quote_glob(piece.text))
        elif not piece.splits or not self._separators:
            self._current.append(piece.text)
            self._there = self._there or bool(piece.text)
        elif not self._separators.strip():
            self._split_at_spaces(piece.text)
        else:
            self._split(piece.text)

    def _append(self, text: str) -> None:
        self._current.append(text)
        self._there = True

    def _split_at_spaces(self, text: str) -> None:
        """Any number of white space characters separates."""
        starts, ends = text[:1] in self._separators, text[-1:] in self._separators
        for number, part in enumerate(re.findall(f"[^{self._separators}]+", text)):
            check_slice()
            if number or starts:
                self.end_field()
            self._append(part)
        if text and ends:
            self.end_field()

    def _split(self, text: str) -> None:
        position = 0
        for match in re.finditer(f"[{re.escape(self._separators)}]", text):
            check_slice()
            check_size(len(self.found), MAX_ARGUMENTS)
            if match.start() > position:
                self._append(text[position : match.start()])
            position = match.end()
            if not match[0].isspace() and not self._there:
                self.found.append("")
            self.end_field()
        if position < len(text):
            self._append(text[position:])


def _to_fields(shell: ShellState, pieces: list[_Piece]) -> list[str]:
    splitter = _FieldSplitter(shell.separators())
    for piece in pieces:
        check_slice()
        splitter.add(piece)
    splitter.end_field()
    out: list[str] = []
    check_size(len(splitter.found), MAX_ARGUMENTS)
    for content in splitter.found:
        check_slice()
        if not patterns.SPECIAL.search(content):
            out.append(content)
            continue
        if not shell.options["f"] and patterns.is_magic(content):
            names = patterns.expand_files(content, shell.process.files)
            if names:
                out.extend(names)
                continue
        out.append(patterns.unquote(content))
    return out


async def _parameter(shell: ShellState, part: ParameterExpansion) -> list[_Piece]:
    name, operator, quoted = part.name, part.operator, part.quoted
    if name in ("@", "*") and operator == "":
        return _positional(shell, name, quoted)
    value = shell.lookup(name)
    if operator == "length":
        return [
            _Piece(str(len(shell.arguments) if name in ("@", "*") else len(value or "")), quoted)
        ]
    if operator.rstrip("-=?+") in ("", ":") and operator not in ("", ":"):
        missing = value is None or (operator.startswith(":") and value == "")
        kind = operator[-1]
        if kind == "+":
            return [] if missing else await _operand(shell, part)
        if missing:
            if kind == "-":
                return await _operand(shell, part)
            if kind == "=":
                value = await expand_text(shell, part.operand)
                shell.assign(name, value)
            else:
                message = await expand_text(shell, part.operand) or "parameter not set"
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


async def _operand(shell: ShellState, part: ParameterExpansion) -> list[_Piece]:
    pieces = await _pieces(shell, part.operand)
    if part.quoted:
        return [piece._replace(quoted=True, splits=False) for piece in pieces] or [_Piece("", True)]
    return [piece if piece.quoted else piece._replace(splits=True) for piece in pieces]


def _positional(shell: ShellState, name: str, quoted: bool) -> list[_Piece]:
    arguments = shell.arguments
    if quoted and name == "*":
        separator = shell.get("IFS")
        return [_Piece((" " if separator is None else separator[:1]).join(arguments), True)]
    out: list[_Piece] = []
    check_size(len(arguments), MAX_ARGUMENTS // 8)
    for index, argument in enumerate(arguments):
        if index:
            out.append(_Piece("", quoted, new_field=True))
        out.append(_Piece(argument, quoted, not quoted))
    return out


async def _transformed(shell: ShellState, part: ParameterExpansion, value: str) -> str:
    operator = part.operator
    if operator in ("#", "##", "%", "%%"):
        return _stripped(value, await pattern(shell, part.operand), operator)
    if operator in ("/", "//"):
        whole = await pattern(shell, part.operand)
        found, _, replacement = _split_replacement(whole)
        expression = compile_pattern(
            patterns.translate_glob(found.lstrip("#%") if found[:1] in "#%" else found),
            dot_all=True,
        )
        plain = patterns.unquote(replacement)

        def replaced(_match: object) -> str:
            check_slice()
            return plain

        return expression.sub(replaced, value, count=0 if operator == "//" else 1)
    if operator == ":":
        offset_text, colon, length_text = (await expand_text(shell, part.operand)).partition(":")
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
    """Removes the shortest or longest matching prefix or suffix, in one pass over the value."""
    lazy = len(operator) == 1
    if operator[0] == "#":
        # If each star of a shell pattern is as short (or long) as possible, so is the whole prefix.
        found = compile_pattern(patterns.translate_glob(expression, lazy=lazy), dot_all=True).match(
            value
        )
        return value[found.end() :] if found is not None else value
    before = ".*" if lazy else ".*?"
    found = compile_pattern(
        f"({before})(?:{patterns.translate_glob(expression)})\\Z", dot_all=True
    ).match(value)
    return value[: found.end(1)] if found is not None else value


def _braces(word: Word) -> list[Word]:
    """Expands bash's `{1..5}` and `{a,b}` in unquoted text."""
    for index, part in enumerate(word):
        if not isinstance(part, Literal) or part.quoted or "{" not in part.text:
            continue
        match = _BRACES.match(part.text)
        if match is None:
            continue
        if match[2] is not None:
            first, last = int(match[2]), int(match[3])
            step = abs(int(match[4] or 1)) or 1
            check_size(abs(last - first) / step)
            values = [
                str(n)
                for n in (
                    range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
                )
            ]
            before, after = match[1], match[5]
        else:
            before, after, values = match[6], match[8], match[7].split(",")
        out: list[Word] = []
        for value in values:
            out.extend(
                _braces((*word[:index], Literal(before + value + after), *word[index + 1 :]))
            )
            check_size(len(out) * (len(before) + len(after) + 16))
        return out
    return [word]
