"""The cluster as a background process: one lock and pid file for each cluster, a log, start, stop.

The lock, not the pid, shows whether a cluster is running: the kernel releases it when the process
ends, however that happens. The caller opens the listening sockets before the fork, so a port in use
is an error in the foreground.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from transom.cluster.config import ClusterConfig, commit_config, make_state
from transom.http.server import listen_sockets
from transom.kit.escaping import escape_lines
from transom.kit.user_errors import UserError, of_disk
from transom.node.settings import name_option

_READY = b"ready\n"
_STARTING = b"starting "
_ERROR = b"error "  # followed by a JSON list: message, hint, exit code
_LOG_LIMIT = 10 * 1024 * 1024


def open_sockets(config: ClusterConfig) -> list[socket.socket]:
    """The listening sockets. A loopback address also gets its IPv6 counterpart, if the machine has
    one.
    """
    try:
        sockets = listen_sockets([config.bind], config.port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UserError(
                f"port {config.port} on {config.bind} is in use",
                "choose another port with --port N, or a free one with --port 0",
            ) from error
        raise UserError(
            f"cannot listen on {config.bind}:{config.port}: {error.strerror}",
            "choose another port with --port N",
        ) from error
    if config.bind == "127.0.0.1":
        with contextlib.suppress(OSError):
            sockets += listen_sockets(["::1"], sockets[0].getsockname()[1])
    return sockets


_ATTEMPTS = 100


class ClusterLock:
    """Held while the cluster runs; passed to the background process by fork."""

    def __init__(self, config: ClusterConfig) -> None:
        option = name_option(config.name)
        for attempt in itertools.count():
            try:
                make_state(config)
                self._fd = os.open(config.pid_file, os.O_RDWR | os.O_CREAT, 0o600)
            except (FileNotFoundError, FileExistsError):
                if attempt >= _ATTEMPTS:
                    raise
                continue  # `transom delete` removed the folder in between, or mkdir just missed it
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(self._fd)
                raise UserError(
                    f"cluster {config.name!r} is already running",
                    f"see it with: transom status{option}, get its kubeconfig with: "
                    f"transom kubeconfig{option}, stop it with: transom down{option}, "
                    "or start another one with: transom up --name OTHER",
                ) from None
            if _is_file(self._fd, config.pid_file):
                os.ftruncate(self._fd, 0)  # the pid of an earlier holder
                return
            os.close(self._fd)  # `transom delete` removed it in between

    def claim(self, *, starting: bool = False) -> None:
        """Writes the pid of this process into the file; `starting` while it only prepares the
        start.
        """
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, b"%s%d\n" % (_STARTING if starting else b"", os.getpid()), 0)

    def release(self) -> None:
        """Releases this process's hold; another process that inherited the lock keeps it."""
        os.close(self._fd)


def _is_file(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def running_pid(config: ClusterConfig) -> int | None:
    """The pid of the running cluster, 0 while it is starting, None when it is not running."""
    text = _lock_text(config)
    if text is None:
        return None
    return int(text) if text.isdigit() else 0


def _lock_text(config: ClusterConfig) -> bytes | None:
    """The content that the lock's holder wrote; None if no process holds it."""
    try:
        fd = os.open(config.pid_file, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(fd, 64, 0).strip()
    finally:
        os.close(fd)
    return None


def _holder(config: ClusterConfig) -> int:
    """The process to signal to release the lock; 0 when it is not known (yet)."""
    text = (_lock_text(config) or b"").removeprefix(_STARTING)
    pid = int(text) if text.isdigit() else 0
    return pid if pid and pid != os.getpid() and _has_open(pid, config.pid_file) else 0


def _has_open(pid: int, path: Path) -> bool:
    """Whether the process has the file open: the content may be older than the current holder of
    the lock. Without /proc, as on macOS, whether there is such a process: the holder empties the
    file at once.
    """
    try:
        if not os.path.exists("/proc/self"):
            os.kill(pid, 0)
            return True
        wanted = os.stat(path)
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(entry.path), wanted):
                    return True
    except OSError:
        pass  # the process has ended
    return False


def start_daemon(
    config: ClusterConfig,
    lock: ClusterLock,
    sockets: Sequence[socket.socket],
    serve: Callable[[Callable[[str], None]], None],
) -> int:
    """Forks the cluster into the background; returns the read end of a pipe on which it reports
    progress.

    `serve` runs there until the cluster stops. It calls its argument with progress messages for the
    user, and with an empty string once the cluster is ready.
    """
    read_end, write_end = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    # Handle Ctrl-C before and after the fork, not during it: Python's fork hooks cannot be
    # interrupted cleanly.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        child = os.fork()
    except OSError:
        lock.release()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        raise
    if child == 0:
        try:
            os.close(read_end)
            os.setsid()
            if os.fork() != 0:
                os._exit(0)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # `up` treats it as Ctrl-C
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.environ.pop("TRANSOM_NAME", None)  # of this user's shell: hints are for any client
            _run(config, lock, write_end, serve)
        finally:
            os._exit(1)  # whatever fails, only the parent process may return to the caller
    os.close(write_end)
    lock.release()
    for sock in sockets:
        sock.close()
    os.waitpid(child, 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return read_end


def _run(
    config: ClusterConfig,
    lock: ClusterLock,
    write_end: int,
    serve: Callable[[Callable[[str], None]], None],
) -> NoReturn:
    code = 1
    is_waiting = True  # a client is waiting for the cluster to become ready

    def fail(error: UserError) -> None:
        """Also report to the waiting client: the log may be on a full disk."""
        if is_waiting:
            line = json.dumps([error.message, error.hint, error.code]).encode()
            with contextlib.suppress(BrokenPipeError):
                os.write(write_end, _ERROR + line + b"\n")
        log_line(f"error: {error.message}\n{error.hint}")

    def log_line(text: str) -> None:
        with contextlib.suppress(OSError):
            print(escape_lines(text), file=sys.stderr, flush=True)  # noqa: T201

    try:
        os.chdir("/")
        null = os.open(os.devnull, os.O_RDONLY)
        log = open_log(config.log)
        for target, source in ((0, null), (1, log), (2, log)):
            os.dup2(source, target)
        lock.claim()

        def report(text: str) -> None:
            nonlocal is_waiting
            if not text:
                commit_config(config)
            with contextlib.suppress(BrokenPipeError):  # the client has stopped waiting
                os.write(write_end, text.encode() + b"\n" if text else _READY)
            if not text:
                is_waiting = False
                os.close(write_end)

        serve(report)
        code = 0
    except UserError as error:
        fail(error)
    except BaseException as error:
        known = of_disk(error) if isinstance(error, OSError) else None
        if known is not None:
            fail(known)
        else:
            log_line(traceback.format_exc())
    finally:
        os._exit(code)


class NotReadyYet(UserError):
    """The wait timed out; the cluster continues to start in the background."""


def wait_daemon_ready(
    pipe: int, config: ClusterConfig, timeout: float, report_progress: Callable[[str], None]
) -> None:
    """Returns when the cluster reports that it is ready. Raises an error with the end of its log if
    the start fails or the cluster reports nothing for `timeout` seconds. Passes progress messages
    on.
    """
    last = time.monotonic()
    reported = False
    received = b""
    option = name_option(config.name)
    try:
        while True:
            left = last + timeout - time.monotonic()
            if left <= 0:
                raise NotReadyYet(
                    f"cluster {config.name!r} is not ready and has reported nothing for "
                    f"{timeout:.0f} s; the end of its log:\n"
                    f"{tail_log(config.log, 15)}",
                    (
                        f"it continues to start in the background; see transom logs{option} and "
                        f"transom status{option}"
                    ),
                )
            if select.select([pipe], [], [], min(left, 1.0))[0]:
                piece = os.read(pipe, 65536)
                if piece:
                    *lines, received = (received + piece).split(b"\n")
                    for line in lines:
                        if line + b"\n" == _READY:
                            return
                        if line.startswith(_ERROR):
                            raise UserError(*json.loads(line.removeprefix(_ERROR)))
                        report_progress(line.decode())
                        reported = True
                        last = time.monotonic()
                    continue
                raise UserError(
                    (
                        f"cluster {config.name!r} failed to start; the end of its "
                        f"log:\n{tail_log(config.log, 15)}"
                    ),
                    f"the complete log is {config.log}",
                )
            if not reported:
                reported = True
                report_progress(f"waiting for cluster {config.name!r} to become ready ...")
    finally:
        os.close(pipe)


def stop_daemon(
    config: ClusterConfig, timeout: float, report_progress: Callable[[str], None]
) -> bool:
    """Stops a running or starting cluster and returns when its process has ended; False when it was
    not running.
    """
    if running_pid(config) is None:
        return False
    started = requested = time.monotonic()
    reported = False
    signalled = 0
    while running_pid(config) is not None:
        now = time.monotonic()
        pid = _holder(config)
        # `transom up` and its background process hold the lock in turn
        if pid and pid != signalled:
            _signal(pid, signal.SIGTERM)
            signalled, requested = pid, now
        elif pid and now - requested > timeout:
            report_progress(
                f"cluster {config.name!r} did not stop within {timeout:.0f} s, killing it"
            )
            _signal(pid, signal.SIGKILL)
            requested, timeout = now, 10.0
        elif not pid and now - requested > timeout:  # a process that is ending has no open files
            raise UserError(
                f"cluster {config.name!r} is in use by another transom command",
                "wait until that command ends, then try again",
            )
        if now - started > 1 and not reported:
            reported = True
            report_progress(f"waiting for cluster {config.name!r} to stop ...")
        time.sleep(0.01)
    return True


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def open_log(path: Path) -> int:
    """Opens the log for appending; rotates a large one first."""
    if path.exists() and path.stat().st_size > _LOG_LIMIT:
        path.rename(path.with_name(path.name + ".1"))
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def tail_log(path: Path, lines: int) -> str:
    """The last lines of a file, or the whole file if it is shorter."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 65536 - 512 * lines))
            data = file.read()
    except FileNotFoundError:
        return ""
    return b"\n".join(data.splitlines()[-lines:]).decode(errors="replace")
