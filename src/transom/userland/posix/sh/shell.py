"""The shell interpreter: variables, functions, jobs and traps, and the execution of each kind of
command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from transom.userland.limits import bounded
from transom.userland.posix.scripts import find_in_path
from transom.userland.posix.sh import patterns, words
from transom.userland.posix.sh.builtins import BUILTINS
from transom.userland.posix.sh.conditions import double_bracket
from transom.userland.posix.sh.control import (
    ExpansionFault,
    FunctionReturn,
    LoopExit,
    ShellJob,
)
from transom.userland.posix.sh.parser import EMPTY, parse_shell
from transom.userland.posix.sh.redirects import RedirectFault, apply_redirects, redirected
from transom.userland.posix.sh.state import ShellState
from transom.userland.posix.sh.tree import (
    AndOr,
    ArithmeticCommand,
    BraceGroup,
    CaseCommand,
    CountingFor,
    ForLoop,
    FunctionDefinition,
    IfCommand,
    Pipeline,
    Redirected,
    ShellNode,
    ShellSyntaxError,
    Simple,
    Subshell,
    Test,
    WhileLoop,
)
from transom.userland.posix.sh.tree import Sequence as SequenceNode
from transom.userland.process import Exit, ForkError, Process, connected
from transom.userland.streams import BytesSource, CollectingSink


class Shell(ShellState):
    def __init__(self, process: Process, name: str = "sh", *, bash: bool = False) -> None:
        super().__init__(process, name, bash=bash)
        process.handler = self.on_signal

    def fork(self, *, shown: bool = False) -> Shell:
        """A subshell."""
        process = self.process.child(self.process.argv, shown=shown)
        new = Shell(process, self.name, bash=self.bash)
        new.variables = dict(self.variables)
        new.exported = set(self.exported)
        new.readonly = set(self.readonly)
        new.functions = dict(self.functions)
        new.arguments = list(self.arguments)
        new.zero = self.zero
        new.options = dict(self.options)
        new.status = self.status
        new.last_job = self.last_job
        new.traps = {name: action for name, action in self.traps.items() if action == ""}
        new.prompt = self.prompt
        new.descriptors = self.descriptors.copy(process)
        new.scopes = list(self.scopes)
        new.tested = self.tested
        new.line = self.line
        return new

    # Signals
    def on_signal(self, name: str) -> bool:
        action = self.traps.get(name)
        if action is None:
            if self.interactive and name in ("SIGINT", "SIGTERM", "SIGQUIT"):
                if name == "SIGINT":
                    self.process.stderr.write(b"\n")
                    if self.foreground is not None:
                        self.foreground.signal(name)
                    else:
                        self.process.stderr.write(self.prompt.encode("utf-8", "surrogateescape"))
                return True
            return False
        if action:
            self.pending.append(name)
            if self.waiting is not None and not self.waiting.done():
                self.waiting.set_result(None)
        return True

    async def run_traps(self) -> None:
        while self.pending:
            name = self.pending.pop(0)
            status = self.status
            await self.run_text(self.traps.get(name, ""))
            self.status = status

    # Scripts
    async def run_text(self, text: str) -> int:
        """Parses and runs a script; a syntax error is reported and results in code 2."""
        try:
            node = parse_shell(text)
        except ShellSyntaxError as error:
            self.complain(f"syntax error: {error}")
            self.status = 2
            return 2
        return await self.run(node)

    async def main(self, text: str) -> int:
        """Runs a whole script, then the EXIT trap."""
        try:
            code = await self.run_text(text)
        except Exit as end:
            code = end.code
        except FunctionReturn as end:
            code = end.code
        except LoopExit:
            code = self.status
        return await self.finish(code)

    async def finish(self, code: int) -> int:
        action = self.traps.pop("EXIT", "")
        if action:
            self.status = code
            try:
                await self.run_text(action)
            except Exit as end:
                code = end.code
        return code & 0xFF

    async def capture(self, node: ShellNode) -> str:
        """The output of `$(...)`"""
        if node == EMPTY:
            return ""
        shell = self.fork()
        collected = CollectingSink()
        shell.descriptors.set_sink(1, collected)
        shell.descriptors.give_to(shell.process)
        self.status = await shell.subshell(node)
        return bounded(
            collected.data.decode("utf-8", "surrogateescape").rstrip("\n").replace("\0", "")
        )

    async def subshell(self, node: ShellNode) -> int:
        async def body(process: Process) -> int:
            try:
                code = await self.run(node)
            except (LoopExit, FunctionReturn):
                code = self.status
            except Exit as end:
                code = end.code
            return await self.finish(code)

        return await self.process.run(body)

    # Commands
    async def run(self, node: ShellNode) -> int:
        await self.process.take_turn()
        try:
            self.status = await _RUN[type(node)](self, node)
        except (ExpansionFault, RedirectFault) as fault:
            self.complain(str(fault))
            self.status = 1 if isinstance(fault, RedirectFault) or self.bash else 2
            if isinstance(fault, ExpansionFault) and not self.interactive:
                raise Exit(self.status) from None
        if self.pending:
            await self.run_traps()
        if (
            self.status
            and self.options["e"]
            and not self.tested
            and isinstance(node, Simple | Pipeline | Subshell | Test)
        ):
            raise Exit(self.status)
        return self.status

    async def condition(self, node: ShellNode) -> bool:
        self.tested += 1
        try:
            return await self.run(node) == 0
        finally:
            self.tested -= 1

    async def _sequence(self, node: SequenceNode) -> int:
        code = 0
        for item, background in node.items:
            code = self._background(item) if background else await self.run(item)
        return code

    def _background(self, node: ShellNode) -> int:
        shell = self.fork(shown=True)
        shell.tested = 0
        if isinstance(node, Simple):
            shell.process.argv = list(self.process.argv)
        shell.descriptors.set_source(0, BytesSource())
        shell.descriptors.give_to(shell.process)

        async def body() -> int:
            try:
                return await shell.subshell(node)
            finally:
                shell.process.ended()

        try:
            task: asyncio.Task[int] = self.process.program.spawn(body())
        except ForkError:
            shell.process.ended()
            raise
        shell.process.task = task
        number = next((job.number for job in reversed(self.jobs.values())), 0) + 1
        self.jobs[shell.process.pid] = ShellJob(number, shell.process, task, "")
        self.last_job = shell.process.pid
        if self.interactive:
            self.process.complain(f"[{number}] {self.last_job}")
        return 0

    async def _and_or(self, node: AndOr) -> int:
        last = len(node.rest) - 1
        await self.condition(node.first)
        for index, (operator, command) in enumerate(node.rest):
            if (self.status == 0) != (operator == "&&"):
                continue
            if index == last:
                await self.run(command)
            else:
                await self.condition(command)
        return self.status

    async def _pipeline(self, node: Pipeline) -> int:
        started = self.process.context.clock.monotonic()
        if len(node.commands) == 1:
            self.tested += node.negated
            try:
                codes = [await self.run(node.commands[0])]
            finally:
                self.tested -= node.negated
        else:
            shells = [self.fork() for _ in node.commands]
            for shell in shells:
                shell.tested = 0 if not node.negated else 1

            def body(shell: Shell, command: ShellNode) -> Callable[[Process], Awaitable[int]]:
                async def run(process: Process) -> int:
                    shell.descriptors.take_from(process)
                    return await shell.subshell(command)

                return run

            bodies = [
                body(shell, command) for shell, command in zip(shells, node.commands, strict=True)
            ]
            codes = await connected([shell.process for shell in shells], bodies)
        code = codes[-1]
        if self.options["pipefail"]:
            code = next((c for c in reversed(codes) if c), 0)
        if node.timed:
            seconds = self.process.context.clock.monotonic() - started
            minutes, rest = divmod(seconds, 60)
            shape = (
                f"\nreal\t{int(minutes)}m{rest:.3f}s\nuser\t0m0.000s\nsys\t0m0.000s"
                if self.bash
                else (f"real\t{int(minutes)}m {rest:.2f}s\nuser\t0m 0.00s\nsys\t0m 0.00s")
            )
            self.process.complain(shape)
        return int(code == 0) if node.negated else code

    async def _group(self, node: BraceGroup) -> int:
        return await self.run(node.body)

    async def _subshell(self, node: Subshell) -> int:
        return await self.fork().subshell(node.body)

    async def _if(self, node: IfCommand) -> int:
        for condition, body in node.branches:
            if await self.condition(condition):
                return await self.run(body)
        return await self.run(node.otherwise) if node.otherwise is not None else 0

    async def _iteration(self, body: ShellNode) -> bool:
        """Runs a loop's body; False when the loop must end."""
        await self.process.breathe()
        try:
            await self.run(body)
        except LoopExit as end:
            if end.levels > 1:
                raise LoopExit(end.levels - 1, end.again) from None
            return end.again
        return True

    async def _while(self, node: WhileLoop) -> int:
        self.status = 0
        code = 0
        while await self.condition(node.condition) != node.until:
            if not await self._iteration(node.body):
                return 0
            code = self.status
        return code

    async def _for(self, node: ForLoop) -> int:
        values = (
            list(self.arguments)
            if node.words is None
            else await words.expand_fields(self, node.words)
        )
        self.status = 0
        for value in values:
            self.assign(node.name, value)
            if not await self._iteration(node.body):
                return 0
        return self.status

    async def _counting_for(self, node: CountingFor) -> int:
        await words.parse_shell_number(self, node.start)
        while not node.condition or await words.parse_shell_number(self, node.condition):
            if not await self._iteration(node.body):
                break
            await words.parse_shell_number(self, node.step)
        return self.status

    async def _case(self, node: CaseCommand) -> int:
        subject = await words.expand_text(self, node.subject)
        for alternatives, body in node.branches:
            for alternative in alternatives:
                if patterns.matches_glob(await words.pattern(self, alternative), subject):
                    return await self.run(body) if body != EMPTY else 0
        return 0

    async def _function(self, node: FunctionDefinition) -> int:
        self.functions[node.name] = node.body
        return 0

    async def _redirected(self, node: Redirected) -> int:
        async with redirected(self, node.redirects):
            return await self.run(node.body)

    async def _test(self, node: Test) -> int:
        return await double_bracket(self, node.words)

    async def _arithmetic(self, node: ArithmeticCommand) -> int:
        return int(await words.parse_shell_number(self, node.expression) == 0)

    async def _simple(self, node: Simple) -> int:
        self.status = 0 if not node.words else self.status
        argv = await words.expand_fields(self, node.words)
        if not argv:
            for name, word in node.assignments:
                await self._assignment(name, word)
            if node.redirects:
                async with redirected(self, node.redirects):
                    return 0
            return self.status if node.assignments else 0
        temporary = [(name, await words.expand_text(self, word)) for name, word in node.assignments]
        if self.options["x"]:
            shown = [*(f"{name}={value}" for name, value in temporary), *map(_traced, argv)]
            self.process.complain((self.variables.get("PS4") or "") + " ".join(shown))
        if argv[0] == "exec":
            return await self._exec(argv[1:], node, temporary)
        async with redirected(self, node.redirects):
            return await self.command(argv, temporary)

    async def _assignment(self, name: str, word: Any) -> None:
        value = await words.expand_text(self, word)
        if name.endswith("+"):
            name = name[:-1]
            value = (self.variables.get(name) or "") + value
        self.assign(name, value)
        if self.options["x"]:
            self.process.complain(
                f"{self.variables.get('PS4') or ''}{name}={_traced(value) if value else ''}"
            )

    async def command(
        self,
        argv: Sequence[str],
        temporary: Sequence[tuple[str, str]] = (),
        *,
        functions: bool = True,
    ) -> int:
        """Runs a function, a builtin or a program of the container."""
        name = argv[0]
        function = self.functions.get(name) if functions else None
        builtin = BUILTINS.get(name)
        if function is None and builtin is None:
            return await self._external(argv, temporary)
        saved = {key: self.variables.get(key) for key, _ in temporary}
        self.variables.update(temporary)
        try:
            if function is not None:
                return await self._call(function, argv)
            assert builtin is not None
            result = builtin(self, list(argv))
            return result if isinstance(result, int) else await result
        finally:
            for key, value in saved.items():
                if value is None:
                    self.variables.pop(key, None)
                else:
                    self.variables[key] = value

    async def _call(self, body: ShellNode, argv: Sequence[str]) -> int:
        saved = self.arguments
        self.arguments = list(argv[1:])
        self.scopes.append({})
        try:
            return await self.run(body)
        except FunctionReturn as end:
            return end.code
        finally:
            self.arguments = saved
            for name, value in self.scopes.pop().items():
                if value is None:
                    self.variables.pop(name, None)
                else:
                    self.variables[name] = value

    async def _external(self, argv: Sequence[str], temporary: Sequence[tuple[str, str]]) -> int:
        try:
            body = find_in_path(self.process, argv[0], self.variables.get("PATH"))
        except FileNotFoundError:
            self.complain(f"{argv[0]}: command not found" if self.bash else f"{argv[0]}: not found")
            return 127
        except PermissionError:
            self.complain(f"{argv[0]}: Permission denied")
            return 126
        except IsADirectoryError:
            self.complain(
                f"{argv[0]}: Is a directory" if self.bash else f"{argv[0]}: Permission denied"
            )
            return 126
        child = self.process.child(argv)
        child.env = self.environment()
        child.env.update(temporary)
        self.descriptors.give_to(child)
        before, self.foreground = self.foreground, child
        try:
            code = await child.run(body)
        finally:
            self.foreground = before
            child.ended()
        if code > 128 and code < 160 and code != 141 and child.killed is not None and code != 130:
            text = _DEATHS.get(code - 128)
            if text is not None:
                self.process.complain(text)
        return code

    async def _exec(
        self, argv: list[str], node: Simple, temporary: Sequence[tuple[str, str]]
    ) -> int:
        if not argv:
            await apply_redirects(self, node.redirects)
            return 0
        await apply_redirects(self, node.redirects)
        try:
            body = find_in_path(self.process, argv[0], self.variables.get("PATH"))
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            self.complain(
                f"exec: line 0: {argv[0]}: " + ("not found" if missing else "Permission denied")
            )
            raise Exit(127 if missing else 126) from None
        process = self.process
        process.argv = argv
        process.env = self.environment()
        process.env.update(temporary)
        process.handler = None
        self.descriptors.give_to(process)
        result = body(process)
        code = result if isinstance(result, int) else await result
        self.traps.clear()
        raise Exit(code)


def _traced(argument: str) -> str:
    if argument and all(c.isalnum() or c in "-_./:=,@%+^" for c in argument):
        return argument
    return "'" + argument.replace("'", "'\\''") + "'"


_DEATHS = {
    9: "Killed",
    15: "Terminated",
    11: "Segmentation fault",
    6: "Aborted",
    1: "Hangup",
    3: "Quit",
}

_RUN: dict[type, Callable[[Shell, Any], Awaitable[int]]] = {
    Simple: Shell._simple,
    Pipeline: Shell._pipeline,
    AndOr: Shell._and_or,
    SequenceNode: Shell._sequence,
    BraceGroup: Shell._group,
    Subshell: Shell._subshell,
    IfCommand: Shell._if,
    WhileLoop: Shell._while,
    ForLoop: Shell._for,
    CountingFor: Shell._counting_for,
    CaseCommand: Shell._case,
    FunctionDefinition: Shell._function,
    Redirected: Shell._redirected,
    Test: Shell._test,
    ArithmeticCommand: Shell._arithmetic,
}
