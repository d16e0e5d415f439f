"""The interpreter of cmd.exe: lines from the command line, from batch files or from a console."""

from __future__ import annotations

import ntpath
import re
from collections.abc import Awaitable, Callable
from fnmatch import fnmatchcase
from typing import Any

from transom.machines.styles import device_name
from transom.userland.cmd.builtins import BUILTINS, KEEPS_ERROR_LEVEL
from transom.userland.cmd.control import BatchGoto, split_arguments
from transom.userland.cmd.loops import loop_values
from transom.userland.cmd.parser import incomplete, parse_cmd
from transom.userland.cmd.tree import (
    CmdBlock,
    CmdCommand,
    CmdFor,
    CmdIf,
    CmdNode,
    CmdPair,
    CmdRedirect,
    CmdSyntaxError,
)
from transom.userland.limits import bounded
from transom.userland.process import Exit, Process, connected
from transom.userland.streams import ByteSink, CallSink, CollectingSink
from transom.userland.windows import texts
from transom.userland.windows.clock import wall_clock_time
from transom.userland.windows.variables import Variables

_NAME = re.compile(
    r"\s*(?:\"([^\"]+)\"|(/[^\s\",;=(<>|&]*|[^\s\",;=/(<>|&]+))"
)  # a slash ends a name, unless the name begins with it
_GLUED = re.compile(
    r"(?i)(echo|cd|chdir|md|mkdir|rd|rmdir|dir|type|del|copy|set|title)(?=[.,;:/\\\[\]+(=])"
)
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


class CmdInterpreter:
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

    def now(self) -> float:
        """The local time."""
        return wall_clock_time(self.process.context, self.process.context.clock.time())

    # Output
    def print_line(self, text: str = "") -> None:
        self.process.write(text + "\r\n")

    def complain(self, text: str) -> None:
        self.process.stderr.write((text + "\r\n").encode("utf-8", "surrogateescape"))

    def fail(self, text: str, code: int = 1) -> int:
        self.complain(text)
        return code

    # Entry points
    async def run_line(self, line: str) -> int:
        """Runs one logical line and reports syntax errors."""
        try:
            nodes = parse_cmd(self.expand(line))
        except CmdSyntaxError as error:
            self.complain(str(error))
            self.error_level = 255
            if self.batch is not None:
                raise Exit(255) from None
            return 255
        for node in nodes:
            await self.run(node)
        return self.error_level

    async def run_file(self, path: str, arguments: list[str]) -> int:
        try:
            text = self.process.files.text(path)
        except OSError as error:
            return self.fail(texts.windows_message(error))
        outer, self.batch = self.batch, Batch(path, text, [path, *arguments])
        depth = len(self.saved)
        try:
            await self._lines(self.batch)
        finally:
            self.batch = outer
            while len(self.saved) > depth:
                self.restore()
        return self.error_level

    async def _lines(self, batch: Batch) -> None:
        while batch.position < len(batch.lines):
            line = batch.lines[batch.position]
            batch.position += 1
            await self.process.breathe()
            if self.echo and line.strip() and not line.lstrip().startswith("@"):
                self.print_line()
                self.print_line(self.prompt_text() + line)
            try:
                await self.run_line(line)
            except BatchGoto as jump:
                if jump.label == "eof":
                    return
                target = batch.labels.get(jump.label)
                if target is None:
                    self.complain(
                        "The system cannot find the batch label specified - " + jump.label
                    )
                    self.error_level = 1
                    return
                batch.position = target

    async def call_label(self, label: str, arguments: list[str]) -> int:
        batch = self.batch
        if batch is None or label not in batch.labels:
            return self.fail(f"The system cannot find the batch label specified - {label}")
        inner = Batch(batch.path, "", [f":{label}", *arguments])
        inner.lines, inner.labels, inner.position = batch.lines, batch.labels, batch.labels[label]
        self.batch = inner
        try:
            await self._lines(inner)
        finally:
            self.batch = batch
        return self.error_level

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

    # Expansion
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
        if "f" in modifiers:
            return full
        if "z" in modifiers:
            try:
                return str(self.process.files.stat(full).size)
            except OSError:
                return ""
        return "".join(pieces[letter] for letter in "dpnx" if letter in modifiers)

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

    # Running
    async def run(self, node: CmdNode) -> int:
        return await _RUN[type(node)](self, node)

    async def _pair(self, node: CmdPair) -> int:
        if node.operator == "|":
            return await self._pipe(node)
        code = await self.run(node.left)
        if node.operator == "&" or (code == 0) == (node.operator == "&&"):
            return await self.run(node.right)
        return code

    async def _pipe(self, node: CmdPair) -> int:
        nodes: list[CmdNode] = [node.right]
        left: CmdNode = node.left
        while isinstance(left, CmdPair) and left.operator == "|":
            nodes.insert(0, left.right)
            left = left.left
        nodes.insert(0, left)
        shells = [self.fork() for _ in nodes]

        def body(shell: CmdInterpreter, inner: CmdNode) -> Callable[[Process], Awaitable[int]]:
            async def run(process: Process) -> int:
                return await shell.run(inner)

            return run

        bodies = [body(shell, inner) for shell, inner in zip(shells, nodes, strict=True)]
        codes = await connected([shell.process for shell in shells], bodies)
        self.error_level = codes[-1]
        return codes[-1]

    def fork(self) -> CmdInterpreter:
        """A copy of this interpreter, as for each side of a pipe."""
        new = CmdInterpreter(self.process.child(self.process.argv, shown=False))
        new.variables = Variables(self.variables.plain())
        new.error_level = self.error_level
        new.echo = self.echo
        new.interactive = self.interactive
        new.delayed = self.delayed
        new.batch = self.batch
        new.loop = dict(self.loop)
        new.directories = self.directories
        new.prompt = self.prompt
        return new

    async def _block(self, node: CmdBlock) -> int:
        async def body() -> int:
            code = self.error_level
            for inner in node.body:
                code = await self.run(inner)
            return code

        return await self._redirected(node.redirects, body)

    async def _redirected(
        self, redirects: tuple[CmdRedirect, ...], body: Callable[[], Awaitable[int]]
    ) -> int:
        process = self.process
        saved = (process.stdin, process.stdout, process.stderr)
        try:
            for redirect in redirects:
                if not self._redirect(redirect):
                    self.error_level = 1
                    process.stdin, process.stdout, process.stderr = saved
                    return 1
            return await body()
        finally:
            process.stdin, process.stdout, process.stderr = saved

    def _redirect(self, redirect: CmdRedirect) -> bool:
        process = self.process
        target = self.replaced(redirect.target).strip('"')
        if redirect.operator == ">&":
            stream = process.stderr if target == "2" else process.stdout
            if redirect.handle == 2:
                process.stderr = stream
            else:
                process.stdout = stream
            return True
        try:
            if redirect.operator == "<":
                process.stdin = process.files.source(target)
                return True
            if device_name(ntpath.basename(target)) in ("con", "conout$"):
                sink: ByteSink = CallSink(
                    process.context.terminal.out, process.context.terminal.drain
                )
            else:
                sink = process.files.sink(target, redirect.operator == ">>")
        except OSError as error:
            parent = process.files.parent(process.files.absolute(target))
            missing = isinstance(error, FileNotFoundError) and not process.files.is_directory(
                parent
            )
            self.complain(texts.NOT_FOUND_PATH if missing else texts.windows_message(error))
            return False
        if redirect.handle == 2:
            process.stderr = sink
        else:
            process.stdout = sink
        return True

    async def _if(self, node: CmdIf) -> int:
        left = self.replaced(node.left)
        right = self.replaced(node.right)
        if node.kind == "exist":
            result = self.matching(left.strip('"'))
        elif node.kind == "defined":
            result = self.variable(left) is not None
        elif node.kind == "errorlevel":
            result = self.error_level >= int(left or 0)
        elif node.kind == "cmdextversion":
            result = int(left or 0) <= 2
        else:
            result = _compare(left, node.operator, right, node.fold)
        if result != node.negated:
            return await self.run(node.then)
        return await self.run(node.otherwise) if node.otherwise is not None else self.error_level

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

    async def _for(self, node: CmdFor) -> int:
        before = self.loop
        code = self.error_level
        try:
            async for bound in loop_values(self, node):
                self.loop = before | bound
                await self.process.breathe()
                code = await self.run(node.body)
        finally:
            self.loop = before
        return code

    async def capture(self, line: str) -> str:
        """The output of a command, for `for /F`."""
        shell = self.fork()
        collected = CollectingSink()
        shell.process.stdout = collected
        try:
            for node in parse_cmd(self.replaced(line)):
                await shell.run(node)
        except CmdSyntaxError as error:
            self.complain(str(error))
        return collected.data.decode("utf-8", "surrogateescape")

    async def _command(self, node: CmdCommand) -> int:
        text = self.replaced(node.text)
        if not text.strip():
            return (
                await self._redirected(node.redirects, _nothing)
                if node.redirects
                else self.error_level
            )

        async def body() -> int:
            return await self.execute(text)

        return await self._redirected(node.redirects, body)

    async def execute(self, text: str) -> int:
        """Runs a command with its arguments, after all expansion."""
        glued = _GLUED.match(text.lstrip())
        match = _NAME.match(text)
        if glued is not None:
            name, rest = glued[1], text.lstrip()[glued.end() :]
        elif match is not None:
            name, rest = match[1] or match[2], text[match.end() :]
        else:
            return self.error_level
        builtin = BUILTINS.get(name.lower())
        if builtin is not None:
            try:
                result = builtin(self, rest)
                code = result if isinstance(result, int) else await result
            except OSError as error:  # that the command itself does not expect
                code = self.fail(texts.windows_message(error), 1)
            if name.lower() not in KEEPS_ERROR_LEVEL or code:
                self.error_level = code
            return code
        if re.fullmatch(r"[A-Za-z]:", name):
            if self.process.files.is_directory(name + "\\"):
                self.process.cwd = name.upper() + "\\"
                return 0
            return self.fail("The system cannot find the drive specified.")
        self.error_level = await self._external(name, rest)
        return self.error_level

    async def _external(self, name: str, rest: str) -> int:
        process = self.process
        process.context.env.setdefault("Path", "")
        try:
            command = process.find_command(name)
        except FileNotFoundError:
            known_path = "\\" in name and not process.files.is_directory(
                ntpath.dirname(name) or "\\"
            )
            if known_path:
                return self.fail(texts.NOT_FOUND_PATH, 1)
            self.complain(
                f"'{name}' is not recognized as an internal or external command,\r\noperable "
                "program or batch file."
            )
            return 9009
        except OSError:
            return self.fail(texts.DENIED, 1)
        child = process.child([name, *split_arguments(rest)])
        child.env = self.variables.plain()
        try:
            return await child.run(command)
        finally:
            child.ended()


async def _nothing() -> int:
    return 0


def _compare(left: str, operator: str, right: str, fold: bool) -> bool:
    if operator == "==":
        return left.lower() == right.lower() if fold else left == right
    if re.fullmatch(r"-?\d+", left) and re.fullmatch(r"-?\d+", right):
        order = (int(left) > int(right)) - (int(left) < int(right))
    else:
        a, b = (
            (left.lower(), right.lower())
            if fold or operator not in ("equ", "neq")
            else (left, right)
        )
        order = (a > b) - (a < b)
    return {
        "equ": order == 0,
        "neq": order != 0,
        "lss": order < 0,
        "leq": order <= 0,
        "gtr": order > 0,
        "geq": order >= 0,
    }[operator]


_MADE: dict[str, Callable[[CmdInterpreter], str]] = {
    "cd": lambda shell: shell.process.cwd,
    "date": lambda shell: texts.long_date(shell.now()),
    "time": lambda shell: texts.clock(shell.now()),
    "random": lambda shell: str(shell.process.context.rng.randrange(32768)),
    "errorlevel": lambda shell: str(shell.error_level),
    "cmdextversion": lambda shell: "2",
    "cmdcmdline": lambda shell: " ".join(shell.process.argv),
}

_RUN: dict[type, Callable[[CmdInterpreter, Any], Awaitable[int]]] = {
    CmdCommand: CmdInterpreter._command,
    CmdPair: CmdInterpreter._pair,
    CmdBlock: CmdInterpreter._block,
    CmdIf: CmdInterpreter._if,
    CmdFor: CmdInterpreter._for,
}
