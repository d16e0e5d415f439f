"""A container in the monitor: from the command that starts it to the record of its exit.

Its output goes to its log and to attached clients. A slow attached client blocks it, as a full pipe
would. When its first process has exited, the monitor reads what is left in its pipes, writes
`exit.json`, and only then notifies clients.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import struct
import termios
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from transom.kit.escaping import escape_line
from transom.runtime.native.monitor.holder import hold_namespace
from transom.runtime.native.monitor.logfile import LogFile
from transom.runtime.native.monitor.loop import READ, WRITE, DelayedCall, MonitorLoop
from transom.runtime.native.monitor.staging import FOLDER, MountStage
from transom.runtime.native.monitor.terminals import leave_to_program

EXIT = "exit.json"
STARTED = "started.json"
CONFIG = "config.json"
_OWN_USERS = "/proc/self/ns/user"
CONSOLE = "{console}"  # in a command: the socket for the terminal that runc creates
STDOUT, STDERR, END = 1, 2, 3
_CHUNK = 64 << 10
_LAST_OUTPUT = 2.0  # seconds to wait for pipes that another process keeps open after the exit
_INPUT_WAITS = 1 << 20
_ERRORS = 16 << 10
START_SECONDS = 60.0  # for runc to start a process
_CLEAN_UP_SECONDS = 5.0


class AttachedClient(Protocol):
    """A client that receives the container's output."""

    @property
    def behind(self) -> bool: ...
    def frame(self, kind: int, data: bytes) -> None: ...


class TaskLaunch:
    """One run of runc that starts a process which becomes our child. `done` receives a pid, or 0
    and the error.

    runc reads files of the container, such as /etc/passwd, where an image or another container of
    the pod can put a pipe: it would wait for ever, so it has a deadline.
    """

    def __init__(
        self,
        loop: MonitorLoop,
        argv: Sequence[str],
        stdio: Sequence[int],
        pid_file: str,
        log: str,
        done: Callable[[int, str], None],
    ) -> None:
        self._loop = loop
        self._pid_file = pid_file
        self._log = log
        self._done = done
        loop.start_begins()
        try:
            self._pid = loop.spawn(argv, stdio, self._ended)
        except OSError as problem:
            loop.start_ends()
            raise OSError(problem.errno, f"{argv[0]}: {problem.strerror}") from problem
        self._expired = False
        self._timer = loop.later(START_SECONDS, self._expire)

    def _expire(self) -> None:
        """Ends the container's first process, so that runc cleans up, and then runc itself."""
        if self._expired:
            _kill(self._pid)
            return
        self._expired = True
        for pid in child_processes(self._pid):
            _kill(pid)
        self._timer = self._loop.later(_CLEAN_UP_SECONDS, self._expire)

    def _ended(self, status: int) -> None:
        self._timer.cancel()
        pid, text = 0, ""
        if self._expired:
            text = "context deadline exceeded"
        elif status == 0:
            try:
                with open(self._pid_file) as file:
                    pid = int(file.read())
            except (OSError, ValueError) as problem:
                text = f"no pid: {problem}"
        else:
            text = _last_error(self._log)
        self._done(pid, text)  # adopts the process
        self._loop.start_ends()


def child_processes(pid: int) -> list[int]:
    """The children of all threads of a process."""
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{thread}/children") as file:
                found += map(int, file.read().split())
    return found


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _last_error(path: str) -> str:
    """What runc has logged: one JSON object per line."""
    try:
        with open(path, errors="replace") as file:
            lines = file.read()[-_ERRORS:].splitlines()
    except OSError:
        return ""
    for line in reversed(lines):
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and entry.get("level") in ("error", "fatal"):
            return str(entry.get("msg") or "")
    return "\n".join(lines)


class MonitorTask:
    """`order` is the client's request: see `server.Server.launch`."""

    def __init__(
        self,
        loop: MonitorLoop,
        order: dict[str, Any],
        replied: Callable[[int, str], None],
        ended: Callable[[MonitorTask], None],
        grown: Callable[[MonitorTask], None],
    ) -> None:
        self.id: str = order["id"]
        self.pid = 0
        self.started = 0.0
        self.status = 0
        self.finished = 0.0
        self.out_of_memory = False
        self._loop = loop
        self._order = order
        self._replied = replied
        self._ended = ended
        self._grown = grown
        self._outputs: dict[int, tuple[str, int]] = {}  # descriptor: name, kind of frame
        self._input = -1
        self._terminal = -1
        self._console: socket.socket | None = None
        self._console_folder = -1
        self._typed: deque[bytes] = deque()
        self._typed_size = 0
        self._input_ends = False
        self._attached: list[AttachedClient] = []
        self._last: DelayedCall | None = None
        self._stage: MountStage | None = None
        self.log = LogFile(order.get("log") or "")
        try:
            self._launch()
        except OSError:
            self._release()
            raise

    # Start

    def _launch(self) -> None:
        if "hold" in self._order:
            hold_namespace(self._loop, self._order["hold"], self._launched)
            return
        order, argv = self._order, list(self._order["argv"])
        null = os.open(os.devnull, os.O_RDWR)
        theirs = [null]
        try:
            if order.get("tty"):
                stdio = [null, null, null]
                argv = [self._listen_for_terminal() if part == CONSOLE else part for part in argv]
            else:
                stdio = [null]
                if order.get("stdin"):
                    stdio[0], self._input = os.pipe()
                    if order.get("owner"):
                        os.fchown(stdio[0], order["owner"], order["owner"])
                    theirs.append(stdio[0])
                    os.set_blocking(self._input, False)
                for name, kind in (("stdout", STDOUT), ("stderr", STDERR)):
                    reader, writer = os.pipe()
                    if order.get("owner"):
                        os.fchown(writer, order["owner"], order["owner"])
                    theirs.append(writer)
                    stdio.append(writer)
                    self._add_output(reader, name, kind)
            if order.get("root"):
                self._gather(order["folder"], order["root"])
            TaskLaunch(
                self._loop, argv, stdio, order["pid_file"], order["runc_log"], self._launched
            )
        finally:
            for fd in theirs:
                os.close(fd)

    def _gather(self, folder: str, root: str) -> None:
        """Rewrites `config.json` to reference only what no container can change. Raises OSError."""
        path = os.path.join(folder, CONFIG)
        with open(path) as file:
            spec = json.load(file)
        linux = spec.get("linux") or {}
        user_namespace = -1
        if linux.get("uidMappings"):
            user_namespace = os.open(
                self._order["user_namespace"] or _OWN_USERS, os.O_RDONLY | os.O_CLOEXEC
            )
            folder = self._order["stage"]
        stage = self._stage = MountStage(os.path.join(folder, FOLDER), root, user_namespace)
        try:
            spec["mounts"] = stage.gather(
                spec.get("mounts") or (),
                masked=bool(linux.get("maskedPaths") or linux.get("readonlyPaths")),
            )
            stage.check_directory(spec["process"]["cwd"])
            spec["root"]["path"] = stage.root()
        finally:
            if user_namespace >= 0:
                os.close(user_namespace)
        with open(path + ".new", "w") as file:
            json.dump(spec, file, separators=(",", ":"))
        os.rename(path + ".new", path)

    def _add_output(self, fd: int, name: str, kind: int) -> None:
        os.set_blocking(fd, False)
        self._outputs[fd] = (name, kind)

    def _listen_for_terminal(self) -> str:
        """A socket in the container's directory, by a path that always fits a socket address."""
        folder = self._console_folder = os.open(self._order["folder"], os.O_PATH | os.O_DIRECTORY)
        path = f"/proc/{os.getpid()}/fd/{folder}/console.sock"
        if os.path.lexists(path):
            os.unlink(path)
        console = self._console = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        console.bind(path)
        console.listen(1)
        self._loop.watch(console.fileno(), READ, lambda _: self._take_terminal(console, path))
        return path

    def _take_terminal(self, console: socket.socket, path: str) -> None:
        connection, _ = console.accept()
        with connection:
            _, descriptors, _, _ = socket.recv_fds(connection, 4096, 1, socket.MSG_CMSG_CLOEXEC)
        self._close_console()
        if descriptors:
            self._terminal = self._input = descriptors[0]
            if self._order.get("raw"):
                leave_to_program(self._terminal)
            self._add_output(self._terminal, "stdout", STDOUT)
            if not self._order.get("stdin"):
                self._input = -1

    def _close_console(self) -> None:
        if self._console is not None:
            path = self._console.getsockname()
            self._loop.forget(self._console.fileno())
            self._console.close()
            self._console = None
            os.unlink(path)
        if self._console_folder >= 0:
            os.close(self._console_folder)
            self._console_folder = -1

    def _launched(self, pid: int, text: str) -> None:
        self._close_console()
        self._close_stage()
        if not pid:
            text = text or self._complaint()
            self._kill_leftovers()
            self._release()
            self._replied(0, text)
            return
        self.pid = pid
        self.started = time.time()
        record = {"pid": pid, "started": self.started, "ticks": process_start_time(pid)}
        _save(os.path.join(self._order["folder"], STARTED), record)
        self._replied(pid, "")
        self._loop.adopt(pid, self._exited)
        self.pace()

    def _complaint(self) -> str:
        """The output of runc instead of the program's, when it could not write its own log."""
        for fd, (name, _) in self._outputs.items():
            if name == "stderr":
                try:
                    return (
                        os.read(fd, _ERRORS).decode(errors="replace").strip() or "no reason given"
                    )
                except BlockingIOError:
                    continue
        return "no reason given"

    # Output

    def _read(self, fd: int) -> None:
        name, kind = self._outputs[fd]
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return
        except OSError:  # a terminal whose other side is closed
            data = b""
        if not data:
            self._end_output(fd)
            return
        if self.log.write(name, data):
            self._grown(self)
        for client in self._attached:
            client.frame(kind, data)
        self.pace()

    def _end_output(self, fd: int) -> None:
        name, _ = self._outputs.pop(fd)
        self._loop.forget(fd)
        if fd != self._terminal:
            os.close(fd)
        if self.log.end(name):
            self._grown(self)
        if self.finished and not self._outputs:
            self._finish()

    def pace(self) -> None:
        """Reads its output as fast as the slowest client allows."""
        behind = not self.finished and any(client.behind for client in self._attached)
        for fd in self._outputs:
            self._loop.watch(fd, 0 if behind else READ, lambda _, fd=fd: self._read(fd))  # type: ignore[misc]

    # Input

    @property
    def input_full(self) -> bool:
        return self._typed_size > _INPUT_WAITS

    def type(self, data: bytes) -> None:
        if self._input >= 0 and not self._input_ends:
            self._typed.append(data)
            self._typed_size += len(data)
            self._feed()

    def end_input(self) -> None:
        """Closes it for good."""
        if self._input >= 0 and self._input != self._terminal:
            self._input_ends = True
            self._feed()

    def _feed(self) -> None:
        fd = self._input
        while self._typed:
            data = self._typed[0]
            try:
                written = os.write(fd, data)
            except BlockingIOError:
                break
            except OSError:  # the program no longer reads it
                self._typed.clear()
                self._typed_size = 0
                break
            self._typed_size -= written
            if written < len(data):
                self._typed[0] = data[written:]
            else:
                self._typed.popleft()
        waiting = bool(self._typed)
        if fd == self._terminal:
            if waiting:
                self._loop.later(0.01, self._feed)
            return
        self._loop.watch(fd, WRITE if waiting else 0, lambda _: self._feed())
        if self._input_ends and not waiting:
            self._loop.forget(fd)
            os.close(fd)
            self._input = -1

    # Clients

    def attach(self, client: AttachedClient) -> None:
        self._attached.append(client)

    def detach(self, client: AttachedClient) -> None:
        if client in self._attached:
            self._attached.remove(client)
            self.pace()

    @property
    def once(self) -> bool:
        """With stdinOnce, the input is closed when the first client closes it."""
        return bool(self._order.get("stdin_once")) and not self._order.get("tty")

    def resize(self, width: int, height: int) -> None:
        if self._terminal >= 0:
            fcntl.ioctl(
                self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0)
            )

    def kill(self, number: int, *, all_processes: bool) -> None:
        if all_processes:
            self._kill_leftovers(number)
        elif self.pid and not self.finished:
            os.kill(self.pid, number)  # not yet waited for: the pid is still valid

    # End

    def _exited(self, status: int) -> None:
        self.status = status
        self.finished = time.time()
        self._kill_leftovers()
        if self._outputs:
            self._last = self._loop.later(_LAST_OUTPUT, self._finish)
            for fd in tuple(self._outputs):
                self._loop.watch(fd, READ, lambda _, fd=fd: self._read(fd))  # type: ignore[misc]
        else:
            self._finish()

    def _kill_leftovers(self, number: int = signal.SIGKILL) -> None:
        """Kills processes in its cgroup: without a pid namespace of its own, nothing else ends
        them.
        """
        path = self._order.get("processes") or ""
        if self.id not in path:
            return  # never another container's
        for _ in range(16):
            try:
                with open(path) as file:
                    pids = [int(line) for line in file]
            except OSError:
                return
            for pid in pids:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    continue
            if not pids or number != signal.SIGKILL:
                return

    def _finish(self) -> None:
        if self._last is not None:
            self._last.cancel()
        self.out_of_memory = _oom_kills(self._order.get("oom") or "") > 0
        self._release()
        self._grown(self)
        record = {"status": self.status, "finished": self.finished, "oom": self.out_of_memory}
        _save(os.path.join(self._order["folder"], EXIT), record)
        for client in tuple(self._attached):
            client.frame(END, struct.pack(">i", self.status))
        self._attached.clear()
        self._ended(self)

    def _close_stage(self) -> None:
        stage, self._stage = self._stage, None
        if stage is not None:
            stage.close()

    def _release(self) -> None:
        self._close_console()
        self._close_stage()
        for fd in {*self._outputs, self._input, self._terminal} - {-1}:
            self._loop.forget(fd)
            os.close(fd)
        self._outputs.clear()
        self._input = self._terminal = -1
        self.log.close()


def process_start_time(pid: int) -> int:
    """The start time of a process, in the kernel's ticks: unique together with its pid. 0: it is
    gone.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def _oom_kills(path: str) -> int:
    try:
        with open(path) as file:
            for line in file:
                name, _, number = line.partition(" ")
                if name == "oom_kill":
                    return int(number)
    except OSError:
        return 0
    return 0


def _save(path: str, record: dict[str, Any]) -> None:
    try:
        with open(path + ".new", "w") as file:
            json.dump(record, file)
        os.rename(path + ".new", path)
    except OSError as problem:
        with suppress(OSError):  # our own log may be on the same disk, which may be full
            os.write(2, f"{escape_line(f'{path}: {problem}')}\n".encode())
