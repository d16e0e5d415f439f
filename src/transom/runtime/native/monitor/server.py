"""The monitor's socket: requests as JSON lines, each with a number `n` that its response repeats,
and events without one.

| request | what it does | response |
|---|---|---|
| `hello` | subscribes this connection to the events of all tasks | `tasks`: {id: pid} |
| `run` argv | runs a command to its end | `status`, `output` |
| `launch` id argv folder pid_file runc_log log tty stdin stdin_once oom processes root | runs a container | `pid` or `error` |
| `launch` id hold folder processes | starts a process that only holds a namespace: see `holder` | `pid` or `error` |
| `exec` key argv pid_file runc_log [3 descriptors] | starts a command in a container | `pid` or `error` |
| `kill` id or key, number, all_processes | | |
| `reopen`, `watch` id, on | reopens the log; events when it grows | |
| `mount`, `overlay`, `unmount` | | |
| `probe_users` folder lower upper work target owner | whether containers can have user namespaces | or `error` |
| `attach` id stdin | switches this connection to streams | frames |
| `shutdown` | kills every task and ends | |

Events: `exit` (id, status, finished, oom), `ended` (key, status), `grown` (id). A frame is a byte
(its kind), four bytes (its length) and data: 1 stdout, 2 stderr, 3 the end; from the client 0
input, 4 the end of the input, 5 a new size.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

from transom.machines import idmapping, mounting, pinning
from transom.runtime.native.monitor.loop import READ, WRITE, MonitorLoop
from transom.runtime.native.monitor.tasks import END, MonitorTask, TaskLaunch

_LAST_SECONDS = 10.0  # for processes that were killed
_LINGER = 3.0  # seconds without a client and without a container
_BEHIND = 256 << 10  # bytes that a client has not read yet
_LAST_WORDS = 0.1  # seconds to wait for output after the end of the input
_OUTPUT = 64 << 10
_INPUT, _INPUT_END, _RESIZE = 0, 4, 5
_HEAD = struct.Struct(">BI")

Answer = dict[str, Any]


class MonitorServer:
    def __init__(self, loop: MonitorLoop, listener: socket.socket) -> None:
        self._loop = loop
        self._listener = listener
        self._tasks: dict[str, MonitorTask] = {}
        self._launching = 0
        self._connections: set[MonitorConnection] = set()
        self._execs: dict[str, tuple[int, MonitorConnection]] = {}
        listener.setblocking(False)
        loop.watch(listener.fileno(), READ, lambda _: self._accept())
        loop.later(_LINGER, self._end_if_useless)

    def close(self) -> None:
        self._listener.close()
        for connection in tuple(self._connections):
            connection.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        self._connections.add(MonitorConnection(self, self._loop, connection))

    def left(self, connection: MonitorConnection) -> None:
        self._connections.discard(connection)
        for key, (pid, owner) in tuple(self._execs.items()):
            if owner is connection:
                self._kill(pid, signal.SIGKILL)
                del self._execs[key]
        self._loop.later(_LINGER, self._end_if_useless)

    def _end_if_useless(self) -> None:
        if not self._connections and not self._tasks and not self._launching:
            self._loop.ended = True

    def _notify(self, event: Answer) -> None:
        for connection in self._connections:
            if connection.listens:
                connection.send(event)

    @staticmethod
    def _kill(pid: int, number: int) -> None:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return

    # Requests. Each receives a function to respond with, now or later.

    def hello(
        self, request: Answer, connection: MonitorConnection, answer: Callable[..., None]
    ) -> None:
        """Waits for starts in progress, so that the response is complete."""
        if self._launching:
            self._loop.later(0.01, lambda: self.hello(request, connection, answer))
            return
        connection.listens = True
        answer(pid=os.getpid(), tasks={task.id: task.pid for task in self._tasks.values()})

    def run(
        self, request: Answer, connection: MonitorConnection, answer: Callable[..., None]
    ) -> None:
        reader, writer = os.pipe()
        null = os.open(os.devnull, os.O_RDONLY)
        output = bytearray()
        status: list[int] = []

        def read(_: int = 0) -> None:
            data = os.read(reader, _OUTPUT)
            output.extend(data[: _OUTPUT - len(output)])
            if not data:
                self._loop.forget(reader)
                os.close(reader)
                done()

        def ended(code: int) -> None:
            status.append(code)
            done(code)

        open_ends = [None, None]

        def done(_: int = 0) -> None:
            open_ends.pop()
            if not open_ends:
                answer(status=status[0], output=output.decode(errors="replace"))

        try:
            self._loop.spawn(request["argv"], (null, writer, writer), ended)
        except OSError as problem:
            os.close(reader)
            answer(error=f"{request['argv'][0]}: {problem.strerror}")
        else:
            self._loop.watch(reader, READ, read)
        finally:
            os.close(writer)
            os.close(null)

    def launch(
        self, request: Answer, connection: MonitorConnection, answer: Callable[..., None]
    ) -> None:
        if request["id"] in self._tasks:
            answer(error=f"{request['id']} runs already")
            return

        def replied(pid: int, text: str) -> None:
            self._launching -= 1
            if pid:
                answer(pid=pid, started=self._tasks[request["id"]].started)
            else:
                del self._tasks[request["id"]]
                answer(error=text)

        self._launching += 1
        try:
            self._tasks[request["id"]] = MonitorTask(
                self._loop, request, replied, self._task_ended, self._grown
            )
        except OSError as problem:
            self._launching -= 1
            where = f"{problem.filename}: " if problem.filename else ""
            answer(error=f"{where}{problem.strerror}", errno=problem.errno or 0)

    def _task_ended(self, task: MonitorTask) -> None:
        del self._tasks[task.id]
        self._notify(
            {
                "news": "exit",
                "id": task.id,
                "status": task.status,
                "finished": task.finished,
                "oom": task.out_of_memory,
            }
        )
        self._loop.later(_LINGER, self._end_if_useless)

    def _grown(self, task: MonitorTask) -> None:
        for connection in self._connections:
            if task.id in connection.watched and not connection.behind:
                connection.send({"news": "grown", "id": task.id})

    def exec(
        self, request: Answer, connection: MonitorConnection, answer: Callable[..., None]
    ) -> None:
        key = request["key"]
        given = connection.take_descriptors(3 if request.get("stdio") else 0)
        null = os.open(os.devnull, os.O_RDWR)

        def launched(pid: int, text: str) -> None:
            if not pid:
                answer(error=text or "no reason given")
                return
            if connection.closed:
                self._kill(pid, signal.SIGKILL)
            self._execs[key] = (pid, connection)
            answer(pid=pid)
            self._loop.adopt(pid, ended)

        def ended(status: int) -> None:
            self._execs.pop(key, None)
            connection.send({"news": "ended", "key": key, "status": status})

        try:
            TaskLaunch(
                self._loop,
                request["argv"],
                given or (null, null, null),
                request["pid_file"],
                request["runc_log"],
                launched,
            )
        except OSError as problem:
            answer(error=problem.strerror)
        finally:
            for fd in (null, *given):
                os.close(fd)

    def kill(
        self, request: Answer, connection: MonitorConnection, answer: Callable[..., None]
    ) -> None:
        task, running = (
            self._tasks.get(request.get("id", "")),
            self._execs.get(request.get("key", "")),
        )
        if task is not None:
            task.kill(request["number"], all_processes=bool(request.get("all_processes")))
        elif running is not None:
            self._kill(running[0], request["number"])
        answer()

    def reopen(
        self, request: Answer, connection: MonitorConnection, answer: Callable[..., None]
    ) -> None:
        task = self._tasks.get(request["id"])
        if task is not None:
            task.log.reopen()
            self._grown(task)
        answer()

    def watch(
        self, request: Answer, connection: MonitorConnection, answer: Callable[..., None]
    ) -> None:
        (connection.watched.add if request["on"] else connection.watched.discard)(request["id"])
        answer()

    def mount(
        self, request: Answer, connection: MonitorConnection, answer: Callable[..., None]
    ) -> None:
        mounting.mount_filesystem(
            request.get("source", "none"),
            request["target"],
            request.get("kind", ""),
            request.get("flags", 0),
            request.get("data", ""),
        )
        answer()

    def unmount(
        self, request: Answer, connection: MonitorConnection, answer: Callable[..., None]
    ) -> None:
        mounting.unmount_filesystem(request["target"])
        answer()

    def overlay(
        self, request: Answer, connection: MonitorConnection, answer: Callable[..., None]
    ) -> None:
        """Layers are referenced by descriptors: these are short, so that many fit, and need no
        escaping.
        """
        if request.get("user_namespace"):
            self._mapped_overlay(request)
            answer()
            return
        opened = [
            os.open(path, os.O_PATH | os.O_DIRECTORY)
            for path in (*request["lower"], request["upper"], request["work"])
        ]
        try:
            *lower, upper, work = (f"/proc/self/fd/{fd}" for fd in opened)
            options = [
                *request.get("options", ()),
                f"lowerdir={':'.join(lower)}",
                f"upperdir={upper}",
                f"workdir={work}",
            ]
            mounting.mount_filesystem("overlay", request["target"], "overlay", 0, ",".join(options))
        finally:
            for fd in opened:
                os.close(fd)
        answer()

    def probe_users(
        self, request: Answer, connection: MonitorConnection, answer: Callable[..., None]
    ) -> None:
        """Whether containers can have user namespaces here: tests an overlay of `lower`, a tmpfs,
        and the kernel's file systems, in the directory where mounts are staged.
        """
        try:
            os.makedirs(request["stage"], mode=0o711, exist_ok=True)
            idmapping.try_kernel_mounts(request["owner"], request["stage"])
        finally:
            pinning.remove_folder(request["stage"])
        with idmapping.user_namespace(request["owner"]) as path:
            self._mapped_overlay({**request, "user_namespace": path})
            mounting.unmount_filesystem(request["target"])
            mounting.mount_filesystem("tmpfs", request["target"], "tmpfs")
            fd = namespace = -1
            try:
                fd = os.open(request["target"], os.O_PATH | os.O_DIRECTORY)
                namespace = os.open(path, os.O_RDONLY)
                idmapping.mount_mapped(fd, request["target"], namespace)
                mounting.unmount_filesystem(request["target"])
            finally:
                mounting.unmount_filesystem(request["target"])
                for opened in (fd, namespace):
                    if opened >= 0:
                        os.close(opened)
        answer()

    @staticmethod
    def _mapped_overlay(request: Answer) -> None:
        """Idmaps the image's layers to a user namespace: on disk they stay unchanged. What the
        container writes belongs to its users on disk, too. Raises OSError.
        """
        stage = os.path.join(request["folder"], "layers")
        os.makedirs(stage, mode=0o700, exist_ok=True)
        opened: list[int] = []
        namespace = os.open(request["user_namespace"], os.O_RDONLY)
        mounting.mount_filesystem(
            "tmpfs", stage, "tmpfs", mounting.NO_SUID | mounting.NO_DEVICES, "mode=700,size=1m"
        )
        try:
            mounting.mount_filesystem("none", stage, "", mounting.PRIVATE)
            for number, path in enumerate(request["lower"]):
                target = f"{stage}/{number}"
                os.mkdir(target)
                fd = os.open(path, os.O_PATH | os.O_DIRECTORY)
                try:
                    idmapping.mount_mapped(fd, target, namespace, recursive=False)
                finally:
                    os.close(fd)
                opened.append(os.open(target, os.O_PATH | os.O_DIRECTORY))
            opened += [
                os.open(request[name], os.O_PATH | os.O_DIRECTORY) for name in ("upper", "work")
            ]
            os.chown(request["upper"], request["owner"], request["owner"])
            *lower, upper, work = (f"/proc/self/fd/{fd}" for fd in opened)
            options = [f"lowerdir={':'.join(lower)}", f"upperdir={upper}", f"workdir={work}"]
            mounting.mount_filesystem(
                "overlay",
                request["target"],
                "overlay",
                0,
                ",".join([*request.get("options", ()), *options]),
            )
        finally:
            os.close(namespace)
            for fd in opened:
                os.close(fd)
            mounting.unmount_filesystem(stage)
            os.rmdir(stage)

    def attach(
        self, request: Answer, connection: MonitorConnection, answer: Callable[..., None]
    ) -> None:
        task = self._tasks.get(request["id"])
        if task is None or not task.pid:
            answer(error="not running")
            return
        answer()
        connection.stream(task, bool(request.get("stdin")))

    def shutdown(
        self, request: Answer, connection: MonitorConnection, answer: Callable[..., None]
    ) -> None:
        for task in self._tasks.values():
            task.kill(signal.SIGKILL, all_processes=True)
            task.kill(signal.SIGKILL, all_processes=False)
        answer()
        self._end_when_done(time.monotonic() + _LAST_SECONDS)

    def _end_when_done(self, deadline: float) -> None:
        """Waits until the exit of each one is recorded."""
        if (not self._tasks and not self._launching) or time.monotonic() > deadline:
            self._loop.ended = True
        else:
            self._loop.later(0.01, lambda: self._end_when_done(deadline))


_REQUESTS: dict[
    str, Callable[[MonitorServer, Answer, MonitorConnection, Callable[..., None]], None]
] = {
    function.__name__: function
    for function in (
        MonitorServer.hello,
        MonitorServer.run,
        MonitorServer.launch,
        MonitorServer.exec,
        MonitorServer.kill,
        MonitorServer.reopen,
        MonitorServer.watch,
        MonitorServer.mount,
        MonitorServer.unmount,
        MonitorServer.overlay,
        MonitorServer.probe_users,
        MonitorServer.attach,
        MonitorServer.shutdown,
    )
}


class MonitorConnection:
    def __init__(self, server: MonitorServer, loop: MonitorLoop, connection: socket.socket) -> None:
        self.listens = False
        self.closed = False
        self.watched: set[str] = set()
        self._server = server
        self._loop = loop
        self._socket = connection
        self._fd = connection.fileno()
        self._in = bytearray()
        self._out = bytearray()
        self._descriptors: list[int] = []
        self._task: MonitorTask | None = None
        self._stdin = False
        self._leaves = False
        connection.setblocking(False)
        self._watch()

    # Both directions

    @property
    def behind(self) -> bool:
        return len(self._out) > _BEHIND

    def _watch(self) -> None:
        if self.closed:
            return
        full = self._task is not None and self._stdin and self._task.input_full
        events = (0 if full else READ) | (WRITE if self._out else 0)
        self._loop.watch(self._fd, events, self._ready)
        if full:
            self._loop.later(0.02, self._watch)

    def _ready(self, events: int) -> None:
        if events & WRITE:
            self.flush()
        if events & READ and not self.closed:
            self._read()

    def _read(self) -> None:
        try:
            data, ancillary, _, _ = self._socket.recvmsg(
                65536, socket.CMSG_SPACE(4 * 16), socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return
        except OSError:
            data, ancillary = b"", []
        for _, _, packed in ancillary:
            self._descriptors += struct.unpack(
                f"{len(packed) // 4}i", packed[: len(packed) // 4 * 4]
            )
        if not data:
            self.close()
            return
        self._in += data
        while not self.closed and (
            self._take_frame() if self._task is not None else self._take_line()
        ):
            pass
        self._watch()

    def take_descriptors(self, number: int) -> list[int]:
        taken, self._descriptors = self._descriptors[:number], self._descriptors[number:]
        return taken

    def _put(self, data: bytes) -> None:
        if self.closed:
            return
        was_behind = self.behind
        self._out += data
        if len(self._out) == len(data):
            self.flush()
        if self.behind != was_behind and self._task is not None:
            self._task.pace()

    def flush(self) -> None:
        was_behind = self.behind
        while self._out:
            try:
                sent = self._socket.send(self._out[:262144])
            except BlockingIOError:
                break
            except OSError:
                self.close()
                return
            del self._out[:sent]
        if was_behind and not self.behind and self._task is not None:
            self._task.pace()
        if self._leaves and not self._out:
            self.close()
            return
        self._watch()

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._loop.forget(self._fd)
        self._socket.close()
        for fd in self._descriptors:
            os.close(fd)
        task, self._task = self._task, None
        if task is not None:
            task.detach(self)
            if self._stdin and task.once:
                task.end_input()
        self._server.left(self)

    # Lines

    def _take_line(self) -> bool:
        end = self._in.find(b"\n")
        if end < 0:
            return False
        line = bytes(self._in[:end])
        del self._in[: end + 1]
        try:
            request = json.loads(line)
            number, function = request.get("n"), _REQUESTS[request["do"]]
        except (ValueError, KeyError, AttributeError):
            self.close()  # the client speaks another protocol
            return False

        def answer(**fields: Any) -> None:
            self.send({"n": number, **fields})

        try:
            function(self._server, request, self, answer)
        except OSError as problem:
            where = f"{problem.filename}: " if problem.filename else ""
            answer(error=f"{where}{problem.strerror}", errno=problem.errno)
        return True

    def send(self, message: Answer) -> None:
        self._put(json.dumps(message).encode() + b"\n")

    # Frames

    def stream(self, task: MonitorTask, stdin: bool) -> None:
        self._task = task
        self._stdin = stdin
        task.attach(self)

    def frame(self, kind: int, data: bytes) -> None:
        self._put(_HEAD.pack(kind, len(data)) + data)
        if kind == END:
            self._leave()

    def _leave(self) -> None:
        self._leaves = True
        if not self._out:
            self.close()

    def _take_frame(self) -> bool:
        if len(self._in) < _HEAD.size:
            return False
        kind, length = _HEAD.unpack_from(self._in)
        if len(self._in) < _HEAD.size + length:
            return False
        data = bytes(self._in[_HEAD.size : _HEAD.size + length])
        del self._in[: _HEAD.size + length]
        task = self._task
        if task is None:
            return False
        if kind == _RESIZE:
            task.resize(*struct.unpack(">HH", data))
        elif self._stdin and kind == _INPUT:
            task.type(data)
        elif self._stdin and kind == _INPUT_END:
            if task.once:
                task.end_input()
            else:
                self._loop.later(
                    _LAST_WORDS,
                    lambda: None if self.closed else self.frame(END, struct.pack(">i", 0)),
                )
        return True
