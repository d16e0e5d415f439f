"""sed: addresses and the commands s, d, p, q, a, i, c, y, =, n, N, g, G, h, H."""

from __future__ import annotations

import re
from collections.abc import Iterator

from transom.kit.named_tuple import NamedTuple
from transom.userland.files import error_text
from transom.userland.posix.commands.expressions import basic_expression, extended_expression
from transom.userland.posix.commands.options import parse_options
from transom.userland.posix.commands.text import read_inputs
from transom.userland.preemption import check_slice
from transom.userland.process import Command, Process
from transom.userland.regex import Pattern, PatternTooComplexError, compile_pattern


class SedFault(Exception):
    """An error in a sed script."""


class SedAddress(NamedTuple):
    line: int = 0  # -1: the last line
    pattern: Pattern | None = None
    step: int = 0


class SedStep(NamedTuple):
    first: SedAddress | None
    second: SedAddress | None
    negated: bool
    name: str
    pattern: Pattern | None = None
    text: str = ""
    flags: str = ""
    body: tuple[SedStep, ...] = ()


class _Parser:
    def __init__(self, text: str, extended: bool) -> None:
        self.text = text
        self.position = 0
        self.extended = extended

    def steps(self, closing: bool = False) -> tuple[SedStep, ...]:
        out: list[SedStep] = []
        while True:
            while self.position < len(self.text) and self.text[self.position] in " \t\n;":
                self.position += 1
            if self.position >= len(self.text):
                return tuple(out)
            if self.text[self.position] == "#":
                end = self.text.find("\n", self.position)
                self.position = len(self.text) if end < 0 else end
                continue
            if self.text[self.position] == "}":
                self.position += 1
                if not closing:
                    raise SedFault("unexpected }")
                return tuple(out)
            out.append(self.step())

    def address(self) -> SedAddress | None:
        text = self.text
        c = text[self.position : self.position + 1]
        if c.isdigit():
            end = self.position
            while end < len(text) and text[end].isdigit():
                end += 1
            line = int(text[self.position : end])
            self.position = end
            if text[end : end + 1] == "~":
                end += 1
                start = end
                while end < len(text) and text[end].isdigit():
                    end += 1
                self.position = end
                return SedAddress(line, step=int(text[start:end] or 1))
            return SedAddress(line)
        if c == "$":
            self.position += 1
            return SedAddress(-1)
        if c in ("/", "\\"):
            if c == "\\":
                self.position += 1
            delimiter = text[self.position]
            self.position += 1
            pattern = self.until(delimiter)
            ignore_case = text[self.position : self.position + 1] == "I"
            self.position += ignore_case
            return SedAddress(pattern=self.compiled(pattern, ignore_case))
        return None

    def until(self, delimiter: str) -> str:
        out: list[str] = []
        while self.position < len(self.text):
            c = self.text[self.position]
            self.position += 1
            if c == delimiter:
                return "".join(out)
            if c == "\\" and self.position < len(self.text):
                following = self.text[self.position]
                self.position += 1
                out.append(
                    delimiter
                    if following == delimiter
                    else "\n"
                    if following == "n" and delimiter != "n"
                    else c + following
                )
                continue
            if c == "[" and delimiter != "[":
                end = self.text.find("]", self.position + 1)
                if end > 0 and delimiter in self.text[self.position : end]:
                    out.append(self.text[self.position - 1 : end + 1])
                    self.position = end + 1
                    continue
            out.append(c)
        raise SedFault("unterminated address or command")

    def compiled(self, pattern: str, ignore_case: bool = False) -> Pattern:
        try:
            notation = extended_expression if self.extended else basic_expression
            return compile_pattern(notation(pattern), ignore_case=ignore_case)
        except PatternTooComplexError:
            raise
        except re.error:
            raise SedFault(f"bad regex '{pattern}'") from None

    def skip_spaces(self) -> None:
        while self.position < len(self.text) and self.text[self.position] in " \t":
            self.position += 1

    def step(self) -> SedStep:
        check_slice()
        first = self.address()
        second = None
        self.skip_spaces()
        if first is not None and self.text[self.position : self.position + 1] == ",":
            self.position += 1
            self.skip_spaces()
            second = self.address()
        self.skip_spaces()
        negated = False
        while self.text[self.position : self.position + 1] == "!":
            negated = True
            self.position += 1
            self.skip_spaces()
        if self.position >= len(self.text):
            raise SedFault("missing command")
        name = self.text[self.position]
        self.position += 1
        if name == "{":
            return SedStep(first, second, negated, name, body=self.steps(closing=True))
        if name == "s":
            delimiter = self.text[self.position]
            self.position += 1
            pattern = self.until(delimiter)
            replacement = self.until(delimiter)
            end = self.position
            while end < len(self.text) and self.text[end] in "gpiIem0123456789":
                end += 1
            flags = self.text[self.position : end]
            self.position = end
            compiled = self.compiled(pattern, "i" in flags.lower())
            return SedStep(first, second, negated, name, compiled, replacement, flags)
        if name == "y":
            delimiter = self.text[self.position]
            self.position += 1
            return SedStep(
                first, second, negated, name, None, self.until(delimiter), self.until(delimiter)
            )
        if name in "aic":
            self.skip_spaces()
            if self.text.startswith("\\", self.position):
                self.position += 1
                if self.text.startswith("\n", self.position):
                    self.position += 1
            end = self.text.find("\n", self.position)
            end = len(self.text) if end < 0 else end
            content = self.text[self.position : end]
            self.position = end
            return SedStep(first, second, negated, name, text=content.lstrip())
        if name in "dpqQ=nNgGhHxlPD":
            if name in "qQ":
                self.skip_spaces()
                end = self.position
                while end < len(self.text) and self.text[end].isdigit():
                    end += 1
                code = self.text[self.position : end]
                self.position = end
                return SedStep(first, second, negated, name, text=code)
            return SedStep(first, second, negated, name)
        raise SedFault(f"unknown command: `{name}'")


def _replacement(template: str, match: re.Match[str]) -> str:
    out: list[str] = []
    position = 0
    while position < len(template):
        c = template[position]
        position += 1
        if c == "&":
            out.append(match[0])
        elif c == "\\" and position < len(template):
            following = template[position]
            position += 1
            if following.isdigit():
                out.append(
                    match[int(following)] or "" if int(following) <= (match.re.groups or 0) else ""
                )
            else:
                out.append({"n": "\n", "t": "\t"}.get(following, following))
        else:
            out.append(c)
    return "".join(out)


class _Editor:
    def __init__(self, steps: tuple[SedStep, ...], quiet: bool) -> None:
        self.steps = steps
        self.quiet = quiet
        self.active: dict[int, bool] = {}
        self.hold = ""
        self.code = 0

    def edit(self, lines: list[str]) -> Iterator[str]:
        self.lines = lines
        self.index = 0
        while self.index < len(lines):
            self.space = lines[self.index]
            self.deleted = self.quit = False
            self.after: list[str] = []
            yield from self.run(self.steps)
            if not self.deleted and not self.quiet:
                yield self.space
            yield from self.after
            if self.quit:
                return
            self.index += 1

    def hit(self, address: SedAddress) -> bool:
        if address.pattern is not None:
            return address.pattern.search(self.space) is not None
        number = self.index + 1
        if address.step:
            return number >= address.line and (number - address.line) % address.step == 0
        return number == address.line or (address.line == -1 and number == len(self.lines))

    def selected(self, step: SedStep) -> bool:
        check_slice()
        if step.first is None:
            return True
        if step.second is None:
            return self.hit(step.first)
        key = id(step)
        if self.active.get(key):
            ends = (
                self.hit(step.second)
                if step.second.pattern or step.second.line == -1
                else self.index + 1 >= step.second.line
            )
            if ends:
                self.active[key] = False
            return True
        if self.hit(step.first):
            over = step.second.pattern is None and 0 < step.second.line <= self.index + 1
            self.active[key] = not over
            return True
        return False

    def run(self, steps: tuple[SedStep, ...]) -> Iterator[str]:
        for step in steps:
            if self.selected(step) == step.negated:
                continue
            name = step.name
            if name == "{":
                yield from self.run(step.body)
            elif name == "s":
                if self.substitute(step) and "p" in step.flags:
                    yield self.space
            elif name == "p":
                yield self.space
            elif name == "=":
                yield str(self.index + 1)
            elif name == "i":
                yield step.text
            elif name == "c":
                yield step.text
                self.deleted = True
            elif name in ("n", "N"):
                yield from self.next_line(name)
            else:
                self.apply_silently(step)
            if self.deleted or self.quit:
                return

    def next_line(self, name: str) -> Iterator[str]:
        if self.index + 1 >= len(self.lines):
            return
        self.index += 1
        if name == "N":
            self.space += "\n" + self.lines[self.index]
        else:
            if not self.quiet:
                yield self.space
            self.space = self.lines[self.index]

    def apply_silently(self, step: SedStep) -> None:
        """The commands that write nothing immediately."""
        name = step.name
        if name == "d":
            self.deleted = True
        elif name in ("q", "Q"):
            self.quit = True
            self.code = int(step.text or 0)
            self.deleted = name == "Q"
        elif name == "a":
            self.after.append(step.text)
        elif name == "y":
            self.space = self.space.translate(str.maketrans(step.text, step.flags))
        elif name == "h":
            self.hold = self.space
        elif name == "H":
            self.hold += "\n" + self.space
        elif name == "g":
            self.space = self.hold
        elif name == "G":
            self.space += "\n" + self.hold
        elif name == "x":
            self.space, self.hold = self.hold, self.space

    def substitute(self, step: SedStep) -> bool:
        assert step.pattern is not None
        wanted = int("".join(c for c in step.flags if c.isdigit()) or 1)
        everywhere = "g" in step.flags
        seen = 0
        done = False

        def one(match: re.Match[str]) -> str:
            nonlocal seen, done
            check_slice()
            seen += 1
            if seen < wanted or (seen > wanted and not everywhere):
                return match[0]
            done = True
            return _replacement(step.text, match)

        self.space = step.pattern.sub(one, self.space, 0 if everywhere else wanted)
        return done


async def sed(process: Process) -> int:
    in_place = False
    suffix = ""
    for index, argument in enumerate(process.argv[1:], 1):
        if argument.startswith("-i"):
            in_place, suffix = True, argument[2:]
            process.argv[index] = "-s"
    options = parse_options(
        process,
        "ef",
        long_names={
            "quiet": "n",
            "silent": "n",
            "expression": "e",
            "regexp-extended": "E",
            "in-place": "i",
        },
    )
    in_place = in_place or "i" in options
    operands = list(options.operands)
    scripts = list(options.values.get("e", []))
    for path in options.values.get("f", []):
        scripts.append(process.files.text(path))
    if not scripts:
        if not operands:
            process.complain(
                "Usage: sed [OPTION]... {script-only-if-no-other-script} [input-file]..."
            )
            return 1
        scripts = [operands.pop(0)]
    try:
        steps = _Parser("\n".join(scripts), "E" in options or "r" in options).steps()
    except (SedFault, IndexError) as fault:
        return process.fail(str(fault) or "unterminated s command")
    if not in_place:
        data, code = await read_inputs(process, operands)
        editor = _Editor(steps, "n" in options)
        text = data.decode("utf-8", "surrogateescape")
        ended = text.endswith("\n") or not text
        out = "\n".join(editor.edit(text.removesuffix("\n").split("\n") if text else []))
        process.write(out + ("\n" if out and ended else ""))
        return editor.code or code
    code = 0
    for path in operands:
        try:
            text = process.files.text(path)
            if suffix:
                process.files.write(path + suffix, text.encode("utf-8", "surrogateescape"))
            out = "\n".join(
                _Editor(steps, "n" in options).edit(
                    text.removesuffix("\n").split("\n") if text else []
                )
            )
            process.files.write(
                path,
                (out + ("\n" if out and text.endswith("\n") else "")).encode(
                    "utf-8", "surrogateescape"
                ),
            )
        except OSError as error:
            process.complain(f"sed: {path}: {error_text(error)}")
            code = 1
    return code


COMMANDS: dict[str, Command] = {"sed": sed}
