"""From a name to what runs: commands, scripts in the container's files, server programs.

Which commands an image has depends on its userland; of an image that nobody knows every command is taken to be there.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, cast

from transom.network.api import Accept
from transom.runtime.sim.program_api import Program, ProgramContext
from transom.runtime.sim.programs.process import Process
from transom.runtime.sim.programs.streams import BytesSource, Source

Command = Callable[[Process], int | Awaitable[int]]
Factory = Callable[[ProgramContext], Program]

_BIN = ("/bin", "/usr/bin", "/sbin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin")
_BINARIES = (b"\x7fELF", b"MZ")
_SHELLS = frozenset(("sh", "ash", "dash", "bash"))


def default_path(context: ProgramContext) -> str:
    return "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def find(process: Process, name: str, path: str | None = None) -> Command:
    """What to run for a name on Linux. FileNotFoundError, PermissionError or IsADirectoryError when there is nothing."""
    files = process.files
    if "/" in name:
        candidates = [name]
    else:
        candidates = [posixpath.join(directory, name) for directory in (path or default_path(process.context)).split(":")]
    refused: OSError | None = None
    for candidate in candidates:
        try:
            state = files.stat(candidate)
        except OSError:
            continue
        if state.kind == "directory":
            if "/" in name:
                raise IsADirectoryError(name)
            continue
        if state.kind != "file":
            continue
        content = files.read(candidate) if state.size else b""
        if not content or content.startswith(_BINARIES):
            break  # its name says what it does
        if not files.may(candidate, 1):
            refused = PermissionError(name)
            continue
        return script(candidate, content)
    known = command(process.context, name)
    if known is not None:
        return known
    raise refused or FileNotFoundError(name)


def command(context: ProgramContext, name: str) -> Command | None:
    """A command or program by its name or its usual path."""
    from transom.runtime.sim.programs.commands import table
    from transom.runtime.sim.programs.servers.table import program_for

    if context.os == "windows":
        from transom.runtime.sim.programs.win.launch import find as find_there

        try:
            return find_there(context, name, context.cwd)
        except FileNotFoundError:
            return None
    directory, base = posixpath.split(name)
    factory = program_for(context, name)
    if factory is not None:
        return hosted(factory)
    if directory and directory not in _BIN and not directory.startswith("/opt"):
        return None
    if base in _SHELLS and shell_there(context, base):
        from transom.runtime.sim.programs.sh.main import run

        return run
    if base == "pwsh" and (context.image.userland == "any" or "pwsh" in context.image.cmd):
        from transom.runtime.sim.programs.powershell.main import run as run_powershell

        return run_powershell
    return table.find(context, base)


def shell_there(context: ProgramContext, name: str) -> bool:
    image = context.image
    if image.userland == "busybox" and name == "bash":  # a package that few images of that kind have
        return "bash" in image.name or "bash" in image.cmd or image.program == "agnhost"
    missing = {"any": "", "gnu": "ash", "busybox": "dash"}.get(image.userland)
    return missing is not None and name != missing


def script(path: str, content: bytes) -> Command:
    """A text file with a `#!` line, or without: then a shell reads it."""
    first = content.split(b"\n", 1)[0].decode("utf-8", "replace")
    interpreter = first[2:].split() if first.startswith("#!") else ["/bin/sh"]

    async def run(process: Process) -> int:
        arguments = interpreter[1:]
        shell = interpreter[0]
        if posixpath.basename(shell) == "env" and arguments:
            shell, arguments = arguments[0], arguments[1:]
        body = command(process.context, shell)
        if body is None:
            return process.fail("not found", 127)
        process.argv = [shell, *arguments, path, *process.argv[1:]]
        result = body(process)
        return result if isinstance(result, int) else await result

    return run


class SubContext:
    """A program's context for another program within it: a server that a script starts, a command that a server runs."""

    def __init__(
        self,
        context: ProgramContext,
        argv: Sequence[str],
        out: Callable[[bytes], None],
        err: Callable[[bytes], None],
        ended: Callable[[int], None],
    ) -> None:
        self._context = context
        self._ended: Callable[[int], None] | None = ended
        self._closers: list[Callable[[], None]] = []
        self.argv = tuple(argv)
        self.env = context.env
        self.cwd = context.cwd
        self.pid = context.pid
        self.main = False
        self.stdin: Source = BytesSource()
        self.out = out
        self.err = err

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def listen(self, port: int, accept: Accept, address: str = "") -> Callable[[], None]:
        close = self._context.listen(port, accept, address)
        self._closers.append(close)
        return close

    def exit(self, code: int) -> None:
        ended, self._ended = self._ended, None
        self.release()
        if ended is not None:
            ended(code)

    def release(self) -> None:
        for close in self._closers:
            close()
        self._closers.clear()


def _settle(done: asyncio.Future[int], code: int) -> None:
    if not done.done():
        done.set_result(code)


def hosted(factory: Factory) -> Command:
    """A program as a command."""

    async def run(process: Process) -> int:
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        context = SubContext(process.context, process.argv, process.stdout.write, process.stderr.write, partial(_settle, done))
        context.env, context.cwd, context.pid, context.stdin = process.env, process.cwd, process.pid, process.stdin
        program = factory(cast(ProgramContext, context))

        def forward(name: str) -> bool:
            if name == "SIGKILL":
                return False
            program.signal(name)
            return True

        process.handler = forward
        try:
            return await done
        finally:
            program.kill()
            context.release()

    return run


async def run_captured(context: ProgramContext, argv: Sequence[str]) -> tuple[int, bytes]:
    """Runs a command to its end; its exit code and both outputs together. FileNotFoundError when there is none."""
    from transom.runtime.sim.programs import start

    output = bytearray()
    done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    sub = SubContext(context, argv, output.extend, output.extend, partial(_settle, done))
    sub.env = dict(context.env)
    sub.pid = context.processes.add(argv, context.pid, lambda name: program.signal(name))
    try:
        program = start(cast(ProgramContext, sub))
        try:
            return await done, bytes(output)
        finally:
            program.kill()
            sub.release()
    finally:
        context.processes.remove(sub.pid)
