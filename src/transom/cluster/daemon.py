"""The cluster as a process in the background: one lock and pid file for each cluster, a log, start, stop.

The lock, not the pid, says whether a cluster runs: the kernel lets go of it with the process, however that ends. The
caller opens the listening sockets before the fork, so a port that is taken is an error in the foreground.
"""

from __future__ import annotations

import contextlib
import fcntl
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

from transom.cluster.config import ClusterConfig
from transom.cluster.errors import ClusterError

_READY = b"ready\n"
_LOG_LIMIT = 10 * 1024 * 1024


class Lock:
    """Held for as long as the cluster runs; handed to the background process by fork."""

    def __init__(self, config: ClusterConfig) -> None:
        config.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._fd = os.open(config.pid_file, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            option = "" if config.name == "transom" else f" --name {config.name}"
            raise ClusterError(
                f"cluster {config.name!r} is already running",
                f"see it with: transom status{option}, stop it with: transom down{option}, "
                "or start another one with: transom up --name OTHER",
            ) from None

    def claim(self) -> None:
        """Writes the pid of this process into the file."""
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, b"%d\n" % os.getpid(), 0)

    def release(self) -> None:
        """Lets go of this process's hold; another process that inherited the lock keeps it."""
        os.close(self._fd)


def running_pid(config: ClusterConfig) -> int | None:
    """The process of the running cluster, 0 while it is just starting, None when it does not run."""
    try:
        fd = os.open(config.pid_file, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(fd, 32, 0).strip()
        return int(text) if text.isdigit() else 0
    finally:
        os.close(fd)
    return None


def start(
    config: ClusterConfig,
    lock: Lock,
    sockets: Sequence[socket.socket],
    serve: Callable[[Callable[[str], None]], None],
) -> int:
    """Forks the cluster into the background; returns the end of a pipe on which it says how far it is.

    `serve` runs there until the cluster stops; it calls what it is given with a line for the user as it gets on, and with
    the empty text once it is ready.
    """
    read_end, write_end = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        _run(config, lock, write_end, serve)
    os.close(write_end)
    lock.release()
    for sock in sockets:
        sock.close()
    os.waitpid(child, 0)
    return read_end


def _run(
    config: ClusterConfig, lock: Lock, write_end: int, serve: Callable[[Callable[[str], None]], None]
) -> NoReturn:
    code = 1
    try:
        os.chdir("/")
        null = os.open(os.devnull, os.O_RDONLY)
        log = open_log(config.log)
        for target, source in ((0, null), (1, log), (2, log)):
            os.dup2(source, target)
        lock.claim()

        def report(text: str) -> None:
            with contextlib.suppress(BrokenPipeError):  # nobody waits any more
                os.write(write_end, text.encode() + b"\n" if text else _READY)
            if not text:
                os.close(write_end)

        serve(report)
        code = 0
    except ClusterError as error:
        print(f"error: {error.message}\n{error.hint}", file=sys.stderr)  # noqa: T201
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


class NotReadyYet(ClusterError):
    """It goes on starting, without anybody who waits for it."""


def wait_ready(pipe: int, config: ClusterConfig, timeout: float, tell: Callable[[str], None]) -> None:
    """Returns when the cluster says it is ready; an error with the end of its log when it does not, or says nothing for
    `timeout` seconds. What it says before is passed on."""
    last = time.monotonic()
    told = False
    heard = b""
    try:
        while True:
            left = last + timeout - time.monotonic()
            if left <= 0:
                raise NotReadyYet(
                    f"cluster {config.name!r} is not ready, and has said nothing for {timeout:.0f} s; the end of its log:\n"
                    f"{tail(config.log, 15)}",
                    "it goes on starting in the background; see transom logs and transom status",
                )
            if select.select([pipe], [], [], min(left, 1.0))[0]:
                piece = os.read(pipe, 65536)
                if piece:
                    *lines, heard = (heard + piece).split(b"\n")
                    for line in lines:
                        if line + b"\n" == _READY:
                            return
                        tell(line.decode())
                        told = True
                        last = time.monotonic()
                    continue
                raise ClusterError(
                    f"cluster {config.name!r} failed to start; the end of its log:\n{tail(config.log, 15)}",
                    f"the whole log is {config.log}",
                )
            if not told:
                told = True
                tell(f"waiting for cluster {config.name!r} to get ready ...")
    finally:
        os.close(pipe)


def stop(config: ClusterConfig, timeout: float, tell: Callable[[str], None]) -> bool:
    """Stops a running cluster and returns when it is gone; False when it did not run."""
    pid = running_pid(config)
    if pid is None:
        return False
    if pid == 0:
        raise ClusterError(f"cluster {config.name!r} is just starting", "try again in a moment")
    started = time.monotonic()
    told = False
    os.kill(pid, signal.SIGTERM)
    while running_pid(config) is not None:
        waited = time.monotonic() - started
        if waited > timeout:
            tell(f"cluster {config.name!r} did not stop within {timeout:.0f} s, killing it")
            os.kill(pid, signal.SIGKILL)
            started = time.monotonic()
            timeout = 10.0
        elif waited > 1 and not told:
            told = True
            tell(f"waiting for cluster {config.name!r} to stop ...")
        time.sleep(0.01)
    return True


def open_log(path: Path) -> int:
    """The log, to append to; one that has grown large is put aside first."""
    if path.exists() and path.stat().st_size > _LOG_LIMIT:
        path.rename(path.with_name(path.name + ".1"))
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def tail(path: Path, lines: int) -> str:
    """The last lines of a file, or all it has."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 65536 - 512 * lines))
            data = file.read()
    except FileNotFoundError:
        return ""
    return b"\n".join(data.splitlines()[-lines:]).decode(errors="replace")
