"""A process inside a container: arguments, environment, streams, signals. Commands are functions over one of these.

Processes that run one after the other share the asyncio task of whoever started them; only pipelines and background jobs
have tasks of their own. A signal that kills cancels the task, and the process that was meant stops the cancellation.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from transom.runtime.sim.program_api import ProgramContext
from transom.runtime.sim.programs.computing import compute
from transom.runtime.sim.programs.fileview import FileView
from transom.runtime.sim.programs.streams import BytesSource, CallSink, Pipe, Sink, Source

log = logging.getLogger("transom.runtime")

_CRASHED = 139
SIGNAL_NUMBERS = {
    "SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGILL": 4, "SIGTRAP": 5, "SIGABRT": 6, "SIGBUS": 7, "SIGFPE": 8, "SIGKILL": 9,
    "SIGUSR1": 10, "SIGSEGV": 11, "SIGUSR2": 12, "SIGPIPE": 13, "SIGALRM": 14, "SIGTERM": 15, "SIGSTKFLT": 16, "SIGCHLD": 17,
    "SIGCONT": 18, "SIGSTOP": 19, "SIGTSTP": 20, "SIGTTIN": 21, "SIGTTOU": 22, "SIGURG": 23, "SIGXCPU": 24, "SIGXFSZ": 25,
    "SIGVTALRM": 26, "SIGPROF": 27, "SIGWINCH": 28, "SIGIO": 29, "SIGPWR": 30, "SIGSYS": 31,
}  # fmt: skip
IGNORED_BY_DEFAULT = frozenset(("SIGCHLD", "SIGCONT", "SIGURG", "SIGWINCH", "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU"))
CONTROL_C_EXIT = 0xC000013A  # STATUS_CONTROL_C_EXIT, Windows' default answer to every console control event
BUSY_STEPS = 256  # of a script, before it has used up a slice of time
BUSY_SLICE = 0.02
BUSY_LONG = 100  # slices, after which they grow: who computes for ever is to cost the simulator little
BUSY_LONGEST = 0.5


class Exit(Exception):
    """The process ends here."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Process:
    __slots__ = (
        "argv",
        "context",
        "cwd",
        "env",
        "handler",
        "killed",
        "parent",
        "pid",
        "program",
        "stderr",
        "stdin",
        "stdout",
        "steps",
        "task",
        "umask",
    )

    def __init__(self, context: ProgramContext, program: TaskProgram) -> None:
        self.context = context
        self.program = program
        self.argv: list[str] = list(context.argv)
        self.env = context.env
        self.cwd: str = context.cwd
        self.pid: int = context.pid
        self.parent = 0
        self.stdin: Source = context.stdin
        self.stdout: Sink = CallSink(context.out, context.drain)
        self.stderr: Sink = CallSink(context.err, context.drain)
        self.umask = 0o022
        self.killed: int | None = None
        self.task: asyncio.Task[Any] | None = None
        self.handler: Callable[[str], bool] | None = None
        self.steps = 0

    @property
    def windows(self) -> bool:
        return self.context.os == "windows"

    @property
    def gnu(self) -> bool:
        """Error texts of GNU's tools rather than of busybox."""
        return self.context.image.userland == "gnu"

    @property
    def name(self) -> str:
        base = self.argv[0].rpartition("/")[2]
        return base.rpartition("\\")[2].lower().removesuffix(".exe") if self.windows else base

    @property
    def files(self) -> FileView:
        return FileView(self.context, self.cwd, self.umask)

    def child(self, argv: Sequence[str], *, shown: bool = True) -> Process:
        """A process that begins as a copy of this one. `shown`: it has a pid of its own."""
        new = Process.__new__(Process)
        new.context = self.context
        new.program = self.program
        new.argv = list(argv)
        new.env = self.env.copy()
        new.cwd = self.cwd
        new.stdin, new.stdout, new.stderr = self.stdin, self.stdout, self.stderr
        new.umask = self.umask
        new.killed = None
        new.handler = None
        new.parent = self.pid
        new.task = self.task
        new.steps = 0
        new.pid = self.context.processes.add(argv, self.pid, new.signal) if shown else self.pid
        return new

    def ended(self) -> None:
        """Of a child that was shown."""
        self.context.processes.remove(self.pid)

    # Output
    def write(self, text: str) -> None:
        self.stdout.write(text.encode("utf-8", "surrogateescape"))

    def complain(self, text: str) -> None:
        """A line on standard error."""
        self.stderr.write(f"{text}{self.newline}".encode("utf-8", "surrogateescape"))

    def fail(self, text: str, code: int = 1) -> int:
        """`name: text` on standard error; the answer is the code."""
        self.complain(f"{self.name}: {text}")
        return code

    @property
    def newline(self) -> str:
        return "\r\n" if self.windows else "\n"

    # Input
    async def read_all(self) -> bytes:
        chunks: list[bytes] = []
        while chunk := await self.stdin.read():
            chunks.append(chunk)
        return b"".join(chunks)

    def open_output(self, path: str, append: bool = False) -> Sink:
        """A file for writing, or one of the process's own streams by its name."""
        if path in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
            return self.stdout
        if path in ("/dev/stderr", "/dev/fd/2", "/proc/self/fd/2"):
            return self.stderr
        return self.files.sink(path, append)

    # Time
    async def sleep(self, seconds: float) -> None:
        self.steps = 0
        await self.context.clock.sleep(seconds)

    async def breathe(self) -> None:
        """Called by everything that may go on for ever without waiting: it costs CPU time, and others get their turn."""
        self.steps += 1
        if self.steps % BUSY_STEPS == 0:
            slices = self.steps // BUSY_STEPS
            length = min(BUSY_LONGEST, BUSY_SLICE * 2 ** max(0, slices - BUSY_LONG))
            await compute(self.context, length)
        await self.stdout.drain()

    # Signals
    def signal(self, name: str) -> None:
        if self.handler is not None and self.handler(name):
            return
        if self.windows:
            self.die(1 if name == "SIGKILL" else CONTROL_C_EXIT)  # 1: what taskkill leaves behind
        elif name not in IGNORED_BY_DEFAULT and (self.pid != 1 or name == "SIGKILL"):
            self.die(128 + SIGNAL_NUMBERS.get(name, 15))

    def die(self, code: int) -> None:
        if self.killed is None and self.task is not None:
            self.killed = code
            self.task.cancel()

    async def run(self, body: Callable[[Process], int | Awaitable[int]]) -> int:
        """The body's exit code, or that of what ended it."""
        self.task = asyncio.current_task()
        try:
            result = body(self)
            return result if isinstance(result, int) else await result
        except Exit as exit_:
            return exit_.code
        except BrokenPipeError:
            return 141 if not self.windows else 255
        except asyncio.CancelledError:
            if self.killed is None:
                raise
            if self.task is not None:
                self.task.uncancel()
            return self.killed


class TaskProgram:
    """A program that is a coroutine over a process. Tasks that it starts end with it."""

    __slots__ = ("context", "process", "tasks")

    def __init__(self, context: ProgramContext, body: Callable[[Process], int | Awaitable[int]]) -> None:
        self.context = context
        self.process = Process(context, self)
        self.tasks: set[asyncio.Task[Any]] = set()
        self.process.task = self.spawn(self._main(body))

    async def _main(self, body: Callable[[Process], int | Awaitable[int]]) -> None:
        try:
            code = await self.process.run(body)
        except Exception:
            # A script can ask for more than this simulation can do; its container ends, the machine does not.
            log.exception("a simulated program failed: %s", self.context.argv)
            code = _CRASHED
        self.context.exit(code)
        self.kill()

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def signal(self, name: str) -> None:
        self.process.signal(name)

    def kill(self) -> None:
        current = asyncio.current_task() if self.tasks else None
        for task in tuple(self.tasks):
            if task is not current:
                task.cancel()


async def connected(processes: Sequence[Process], bodies: Sequence[Callable[[Process], Awaitable[int]]]) -> list[int]:
    """Runs processes at the same time, each one's output the next one's input. Their codes."""
    pipes: list[Pipe] = []
    for left, right in itertools.pairwise(processes):
        pipe = Pipe()
        left.stdout = pipe
        right.stdin = pipe
        pipes.append(pipe)

    async def one(index: int) -> int:
        try:
            return await processes[index].run(bodies[index])
        finally:
            if index < len(pipes):
                pipes[index].close()
            if index:
                pipes[index - 1].hang_up()

    program = processes[0].program
    tasks = [program.spawn(one(index)) for index in range(len(processes) - 1)]
    try:
        last = await one(len(processes) - 1)
        return [*(await asyncio.gather(*tasks)), last]
    finally:
        for task in tasks:
            task.cancel()


EMPTY_INPUT = BytesSource()
