"""A process in a container: arguments, environment, streams, signals. Commands are functions of a
process.

Processes that run one after the other share the asyncio task of their parent; only pipelines and
background jobs have tasks of their own. A fatal signal cancels the task, and the process that it
was sent to catches the cancellation.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol

from transom.kit.task_set import TaskSet
from transom.userland.api import ProgramContext
from transom.userland.cpu import use_cpu
from transom.userland.files import FileView
from transom.userland.limits import MAX_INPUT, MAX_TASKS, SLICE
from transom.userland.preemption import check_slice, start_preemptible
from transom.userland.regex import PatternTooComplexError
from transom.userland.streams import ByteSink, ByteSource, CallSink, Pipe
from transom.userland.termination import termination_code

log = logging.getLogger("transom.runtime")

_CRASHED = 139
SIGNAL_NUMBERS = {
    "SIGHUP": 1,
    "SIGINT": 2,
    "SIGQUIT": 3,
    "SIGILL": 4,
    "SIGTRAP": 5,
    "SIGABRT": 6,
    "SIGBUS": 7,
    "SIGFPE": 8,
    "SIGKILL": 9,
    "SIGUSR1": 10,
    "SIGSEGV": 11,
    "SIGUSR2": 12,
    "SIGPIPE": 13,
    "SIGALRM": 14,
    "SIGTERM": 15,
    "SIGSTKFLT": 16,
    "SIGCHLD": 17,
    "SIGCONT": 18,
    "SIGSTOP": 19,
    "SIGTSTP": 20,
    "SIGTTIN": 21,
    "SIGTTOU": 22,
    "SIGURG": 23,
    "SIGXCPU": 24,
    "SIGXFSZ": 25,
    "SIGVTALRM": 26,
    "SIGPROF": 27,
    "SIGWINCH": 28,
    "SIGIO": 29,
    "SIGPWR": 30,
    "SIGSYS": 31,
}
IGNORED_BY_DEFAULT = frozenset(
    ("SIGCHLD", "SIGCONT", "SIGURG", "SIGWINCH", "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU")
)
CONTROL_C_EXIT = 0xC000013A  # STATUS_CONTROL_C_EXIT, the default for console control events
BUSY_STEPS = 256  # steps of a script until it has used a time slice
BUSY_SLICE = 0.02
BUSY_LONG = 100  # slices after which they grow: endless computation must cost the simulator little
BUSY_LONGEST = 0.5


class FindCommand(Protocol):
    """Finds programs by name; each kind of container has its own."""

    def __call__(self, context: ProgramContext, name: str, cwd: str) -> Command:
        """Raises FileNotFoundError, PermissionError or IsADirectoryError."""


class Exit(Exception):
    """Ends the process."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class ForkError(OSError):
    """The program has reached its maximum number of processes."""

    def __init__(self) -> None:
        super().__init__(errno.EAGAIN, os.strerror(errno.EAGAIN))


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

    def __init__(
        self,
        program: TaskProgram,
        argv: Sequence[str],
        env: dict[str, str],
        cwd: str,
        pid: int,
        stdin: ByteSource,
        stdout: ByteSink,
        stderr: ByteSink,
        *,
        parent: int = 0,
        umask: int = 0o022,
    ) -> None:
        self.context: ProgramContext = program.context
        self.program = program
        self.argv: list[str] = list(argv)
        self.env = env
        self.cwd = cwd
        self.pid = pid
        self.parent = parent
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self.umask = umask
        self.killed: int | None = None
        self.task: asyncio.Task[Any] | None = None
        self.handler: Callable[[str], bool] | None = None
        self.steps = 0

    @property
    def windows(self) -> bool:
        return self.context.os == "windows"

    @property
    def gnu(self) -> bool:
        """Whether error messages are those of GNU's tools rather than of busybox."""
        return self.context.image.userland == "gnu"

    @property
    def name(self) -> str:
        base = self.argv[0].rpartition("/")[2]
        return base.rpartition("\\")[2].lower().removesuffix(".exe") if self.windows else base

    @property
    def files(self) -> FileView:
        return FileView(self.context, self.cwd, self.umask)

    def child(self, argv: Sequence[str], *, shown: bool = True) -> Process:
        """A copy of this process. `shown`: it has its own pid."""
        child = Process(
            self.program,
            argv,
            self.env.copy(),
            self.cwd,
            self.pid,
            self.stdin,
            self.stdout,
            self.stderr,
            parent=self.pid,
            umask=self.umask,
        )
        child.task = self.task
        if shown:
            child.pid = self.context.processes.add(argv, self.pid, child.signal)
        return child

    def find_command(self, name: str) -> Command:
        """Raises FileNotFoundError, PermissionError or IsADirectoryError."""
        return self.program.find_command(self.context, name, self.cwd)

    def ended(self) -> None:
        """Removes a child that has its own pid from the process table."""
        self.context.processes.remove(self.pid)

    # Output
    def write(self, text: str) -> None:
        check_slice()
        self.stdout.write(text.encode("utf-8", "surrogateescape"))

    def print_line(self, text: str = "") -> None:
        self.write(text + self.newline)

    def complain(self, text: str) -> None:
        """Writes a line to standard error."""
        check_slice()
        self.stderr.write(f"{text}{self.newline}".encode("utf-8", "surrogateescape"))

    def fail(self, text: str, code: int = 1) -> int:
        """Writes `name: text` to standard error and returns the code."""
        self.complain(f"{self.name}: {text}")
        return code

    @property
    def newline(self) -> str:
        return "\r\n" if self.windows else "\n"

    # Input
    async def read_all(self, limit: int = MAX_INPUT) -> bytes:
        chunks: list[bytes] = []
        size = 0
        while chunk := await self.stdin.read():
            size += len(chunk)
            if size > limit:
                raise MemoryError
            chunks.append(chunk)
            await self.take_turn()
        return b"".join(chunks)

    def open_output(self, path: str, append: bool = False) -> ByteSink:
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
        """Called by everything that may run for a long time without waiting: it uses CPU time and
        yields to other programs.
        """
        self.steps += 1
        if self.steps % BUSY_STEPS == 0:
            slices = self.steps // BUSY_STEPS
            length = min(BUSY_LONGEST, BUSY_SLICE * 2 ** min(10, max(0, slices - BUSY_LONG)))
            await use_cpu(self.context, length)
        await self.take_turn()
        await self.stdout.drain()

    async def take_turn(self) -> None:
        """Yields if this program has used the event loop for too long."""
        if time.perf_counter() - self.program.resumed > SLICE:
            await asyncio.sleep(0)
            self.program.resumed = time.perf_counter()

    # Signals
    def signal(self, name: str) -> None:
        if self.handler is not None and self.handler(name):
            return
        if self.windows:
            code = termination_code(name, windows=True)
            self.die(CONTROL_C_EXIT if code is None else code)
        elif name not in IGNORED_BY_DEFAULT and (self.pid != 1 or name == "SIGKILL"):
            self.die(128 + SIGNAL_NUMBERS.get(name, 15))

    def die(self, code: int) -> None:
        if self.killed is None and self.task is not None:
            self.killed = code
            self.task.cancel()

    async def run(self, body: Command) -> int:
        """The exit code of the body, or of what ended it."""
        self.task = asyncio.current_task()
        try:
            result = body(self)
            return result if isinstance(result, int) else await result
        except Exit as exit_:
            return exit_.code
        except BrokenPipeError:
            return 141 if not self.windows else 255
        except PatternTooComplexError:
            return self.fail("regular expression is too complex", 2)
        except MemoryError:
            return self.fail("out of memory")
        except ForkError as error:
            return self.fail(f"can't fork: {os.strerror(error.errno or 0)}", 2)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            return self.fail(f"write error: {os.strerror(errno.ENOSPC)}")
        except asyncio.CancelledError:
            if self.killed is None:
                raise
            if self.task is not None:
                self.task.uncancel()
            return self.killed


Command = Callable[[Process], int | Awaitable[int]]


class TaskProgram:
    """A program that is a coroutine over a process. Its tasks end with it.

    `find_command` finds the programs that it starts.
    """

    __slots__ = ("context", "find_command", "process", "resumed", "tasks")

    def __init__(self, context: ProgramContext, body: Command, find_command: FindCommand) -> None:
        self.context = context
        self.find_command = find_command
        self.resumed = time.perf_counter()
        terminal = context.terminal
        self.process = Process(
            self,
            context.argv,
            context.env,
            context.cwd,
            context.pid,
            terminal.stdin,
            CallSink(terminal.out, terminal.drain),
            CallSink(terminal.err, terminal.drain),
        )
        self.tasks = TaskSet()
        self.process.task = self.spawn(self._main(body))

    async def _main(self, body: Command) -> None:
        try:
            code = await self.process.run(body)
        except RecursionError:
            log.warning("a simulated program called itself too often: %.200s", self.context.argv)
            code = _CRASHED
        except Exception:
            # A script can do what this simulation does not support; its container ends, the machine
            # does not.
            log.exception("a simulated program failed: %s", self.context.argv)
            code = _CRASHED
        self.context.exit(code)
        self.kill()

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        if len(self.tasks) >= MAX_TASKS:
            coroutine.close()
            raise ForkError
        return start_preemptible(self.tasks, coroutine)

    def signal(self, name: str) -> None:
        self.process.signal(name)

    def kill(self) -> None:
        self.tasks.cancel_others()


async def connected(
    processes: Sequence[Process], bodies: Sequence[Callable[[Process], Awaitable[int]]]
) -> list[int]:
    """Runs a pipeline of processes, each one's output the next one's input. Returns their exit
    codes.
    """
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
