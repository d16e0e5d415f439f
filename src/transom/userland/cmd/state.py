"""The state of cmd.exe: variables, the batch file that runs, and the expansion of lines.

Builtins work on it. Running commands is left to `CmdInterpreter`.
"""

from __future__ import annotations

import ntpath
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from fnmatch import fnmatchcase

from transom.userland.cmd.parser import incomplete
from transom.userland.limits import bounded
from transom.userland.process import Process
from transom.userland.windows import texts
from transom.userland.windows.clock import wall_clock_time
from transom.userland.windows.variables import Variables

_LOOP_VARIABLE = re.compile(r"%{1,2}(?:~([fdpnxsatz$]*))?([A-Za-z?#$@])")


class Batch:
    """A batch file that runs: its logical lines, labels and arguments."""

    __slots__ = ("arguments", "labels", "lines", "path", "position")

    def __init__(self, path: str, text: str, arguments: list[str]) -> None:
        self.path = path
        self.arguments = arguments
        self.position = 0
        self.lines: list[str] = []
        self.labels: dict[str, int] = {}
        pending = ""
        for line in text.replace("\r\n", "\n").split("\n"):
            if not pending and line.strip().startswith(":"):
                if not line.strip().startswith("::"):
                    self.labels[re.split(r"[\s:]", line.strip()[1:])[0].lower()] = len(self.lines)
                continue
            pending = f"{pending}\n{line}" if pending else line
            if not incomplete(pending):
                self.lines.append(pending)
                pending = ""
        if pending:
            self.lines.append(pending)


class CmdState(ABC):
    def __init__(self, process: Process) -> None:
        self.process = process
        self.variables = Variables(process.env)
        self.error_level = 0
        self.echo = True
        self.interactive = False
        self.delayed = False
        self.batch: Batch | None = None
        self.loop: dict[str, str] = {}
        self.saved: list[tuple[Variables, str, bool]] = []
        self.directories: list[str] = []
        self.prompt = "$P$G"

    @abstractmethod
    async def execute(self, text: str) -> int:
        """Runs a command with its arguments, after all expansion."""

    @abstractmethod
    def finds(self, text: str) -> bool:
        """Whether there is a command, a program, a directory or another file of this name."""

    @abstractmethod
    async def call_label(self, label: str, arguments: list[str]) -> int:
        """Runs the batch file from a label on."""

    @abstractmethod
    async def capture(self, line: str) -> str:
        """The output of a command, for `for /F`."""

    @abstractmethod
    def fork(self) -> CmdState:
        """A copy of this interpreter, as for each side of a pipe."""

    def now(self) -> float:
        """The local time."""
        return wall_clock_time(self.process.context, self.process.context.clock.time())

    def print_line(self, text: str = "") -> None:
        self.process.write(text + "\r\n")

    def complain(self, text: str) -> None:
        self.process.stderr.write((text + "\r\n").encode("utf-8", "surrogateescape"))

    def fail(self, text: str, code: int = 1) -> int:
        self.complain(text)
        return code

    def restore(self) -> None:
        if self.saved:
            self.variables, self.process.cwd, self.delayed = self.saved.pop()

    def prompt_text(self) -> str:
        return (
            self.prompt.replace("$P", self.process.cwd)
            .replace("$p", self.process.cwd)
            .replace("$G", ">")
            .replace("$g", ">")
        )

    def variable(self, name: str) -> str | None:
        if name in self.variables:
            return self.variables[name]
        made = _MADE.get(name.lower())
        return made(self) if made is not None else None

    def expand(self, line: str) -> str:
        """Expands %variables% and, in batch files, arguments."""
        out: list[str] = []
        position = 0
        while position < len(line):
            c = line[position]
            if c != "%":
                out.append(c)
                position += 1
                continue
            if self.batch is not None:
                argument = re.compile(r"%(?:~([fdpnxsatz]*))?([0-9*])").match(line, position)
                if argument is not None:
                    out.append(self._argument(argument[2], argument[1]))
                    position = argument.end()
                    continue
                if line.startswith("%%", position):
                    out.append("%%" if _LOOP_VARIABLE.match(line, position) else "%")
                    position += 2
                    continue
            end = line.find("%", position + 1)
            if end < 0:
                out.append("%")
                position += 1
                continue
            inner = line[position + 1 : end]
            value = self._changed(inner)
            if value is None:
                if self.batch is not None and inner and not _LOOP_VARIABLE.match(line, position):
                    position = end + 1
                    continue
                out.append("%")
                position += 1
                continue
            out.append(value)
            position = end + 1
        return bounded("".join(out))

    def _changed(self, inner: str) -> str | None:
        """The value of `NAME`, `NAME:a=b` or `NAME:~1,3`."""
        name, colon, change = inner.partition(":")
        value = self.variable(name)
        if value is None or not colon:
            return value
        if change.startswith("~"):
            first, comma, count = change[1:].partition(",")
            try:
                start = int(first or 0)
                start = max(0, len(value) + start) if start < 0 else start
                if not comma:
                    return value[start:]
                length = int(count)
                return (
                    value[start : len(value) + length]
                    if length < 0
                    else value[start : start + length]
                )
            except ValueError:
                return None
        old, equals, new = change.partition("=")
        if not equals or not old:
            return None
        if old.startswith("*"):
            index = value.lower().find(old[1:].lower())
            return value if index < 0 else new + value[index + len(old) - 1 :]
        return re.sub(re.escape(old), lambda match: new, value, flags=re.IGNORECASE)

    def _argument(self, number: str, modifiers: str | None) -> str:
        assert self.batch is not None
        if number == "*":
            return " ".join(self.batch.arguments[1:])
        index = int(number)
        value = self.batch.arguments[index] if index < len(self.batch.arguments) else ""
        return value if modifiers is None else self.modified(value, modifiers)

    def modified(self, value: str, modifiers: str) -> str:
        value = value.strip('"')
        if not modifiers:
            return value
        full = self.process.files.absolute(value)
        drive, rest = ntpath.splitdrive(full)
        directory, name = ntpath.split(rest)
        stem, extension = ntpath.splitext(name)
        pieces = {"d": drive, "p": directory.rstrip("\\") + "\\", "n": stem, "x": extension}
        path = "".join(pieces[letter] for letter in "dpnx" if letter in modifiers)
        if "f" in modifiers:
            path = full
        details = [*self._details(full, modifiers), path]
        return " ".join(one for one in details if one)

    def _details(self, path: str, modifiers: str) -> list[str]:
        """%~a, %~t and %~z: the attributes, the time and the size of a file, in cmd's order."""
        try:
            state = self.process.files.stat(path)
        except OSError:
            return []
        out = []
        if "a" in modifiers:
            out.append(self._attributes(path, state.kind == "directory"))
        if "t" in modifiers:
            moment = wall_clock_time(self.process.context, state.mtime)
            out.append(texts.date_time(moment).replace("  ", " "))
        if "z" in modifiers:
            out.append(str(state.size))
        return out

    def _attributes(self, path: str, directory: bool) -> str:
        """As `%~a` shows them: `d--------`, `--a------`."""
        found = self.process.files.attributes(path)
        shown = ["d" if directory else "-"]
        shown += [letter.lower() if letter in found else "-" for letter in "RAHS"]
        return "".join(shown) + "----"

    def replaced(self, text: str) -> str:
        """Expands loop variables and, if delayed expansion is on, !variables!."""
        if self.loop and "%" in text:
            text = _LOOP_VARIABLE.sub(self._loop_value, text)
        if self.delayed and "!" in text:
            text = re.sub(r"!([^!\s]+)!", lambda match: self._changed(match[1]) or "", text)
        return text

    def _loop_value(self, match: re.Match[str]) -> str:
        value = self.loop.get(match[2])
        if value is None:
            return match[0]
        return value if match[1] is None else self.modified(value, match[1])

    def matching(self, path: str) -> bool:
        if "*" not in path and "?" not in path:
            return self.process.files.exists(path)
        return bool(self.names(path))

    def names(self, pattern: str, *, directories: bool | None = None) -> list[str]:
        """Files that match a pattern, as paths of the same form as the pattern."""
        directory, mask = ntpath.split(pattern.replace("/", "\\"))
        files = self.process.files
        try:
            found = files.listdir(directory or ".")
        except OSError:
            return []
        mask = "*" if mask == "*.*" else mask
        out: list[str] = []
        for name in sorted(found, key=str.lower):
            if fnmatchcase(name.lower(), mask.lower()):
                path = ntpath.join(directory, name) if directory else name
                if directories is None or files.is_directory(path) == directories:
                    out.append(path)
        return out


_MADE: dict[str, Callable[[CmdState], str]] = {
    "cd": lambda shell: shell.process.cwd,
    "date": lambda shell: texts.long_date(shell.now()),
    "time": lambda shell: texts.clock(shell.now()),
    "random": lambda shell: str(shell.process.context.rng.randrange(32768)),
    "errorlevel": lambda shell: str(shell.error_level),
    "cmdextversion": lambda shell: "2",
    "cmdcmdline": lambda shell: " ".join(shell.process.argv),
}
