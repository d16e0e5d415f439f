"""The interpreter of cmd.exe: lines from the command line, from batch files or from a console."""

from __future__ import annotations

import ntpath
import re
from collections.abc import Awaitable, Callable
from typing import Any

from transom.machines.styles import device_name
from transom.userland.cmd.builtins import BUILTINS, KEEPS_ERROR_LEVEL
from transom.userland.cmd.control import BatchGoto, split_arguments
from transom.userland.cmd.loops import loop_values
from transom.userland.cmd.parser import parse_cmd
from transom.userland.cmd.state import Batch, CmdState
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
from transom.userland.process import Exit, Process, connected
from transom.userland.streams import ByteSink, CallSink, CollectingSink
from transom.userland.windows import texts
from transom.userland.windows.help_texts import help_text
from transom.userland.windows.variables import Variables

# a slash ends a name, unless the name begins with it
_NAME = re.compile(r"\s*(?:\"([^\"]+)\"|(/[^\s\",;=(<>|&]*|[^\s\",;=/(<>|&]+))")
_GLUED = re.compile(
    r"(?i)(echo|cd|chdir|md|mkdir|rd|rmdir|dir|type|del|copy|set|title)(?=[.,;:/\\\[\]+(=])"
)


class CmdInterpreter(CmdState):
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
        if batch is None:
            return self.fail("Invalid attempt to call batch label outside of batch script.")
        if label not in batch.labels:
            return self.fail(f"The system cannot find the batch label specified - {label}")
        inner = Batch(batch.path, "", [f":{label}", *arguments])
        inner.lines, inner.labels, inner.position = batch.lines, batch.labels, batch.labels[label]
        self.batch = inner
        try:
            await self._lines(inner)
        finally:
            self.batch = batch
        return self.error_level

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
        if builtin is not None and rest.split() == ["/?"] and (shown := help_text(name)):
            self.process.write(shown)
            return 0
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

    def finds(self, text: str) -> bool:
        """Whether there is a command, a program, a directory or another file of this name."""
        match = _NAME.match(text)
        name = (match[1] or match[2]) if match is not None else ""
        if not name or name.lower() in BUILTINS or self.process.files.exists(name):
            return True
        try:
            self.process.find_command(name)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return True

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


_RUN: dict[type, Callable[[CmdInterpreter, Any], Awaitable[int]]] = {
    CmdCommand: CmdInterpreter._command,
    CmdPair: CmdInterpreter._pair,
    CmdBlock: CmdInterpreter._block,
    CmdIf: CmdInterpreter._if,
    CmdFor: CmdInterpreter._for,
}
