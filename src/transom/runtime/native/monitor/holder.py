"""A process that only holds a network namespace, started without runc: it needs no file system.

Between fork and exec it joins or creates the namespace, its cgroup and its own root directory,
which contains only its program, and changes to an unprivileged user. Errors come back through a
pipe that exec closes.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import socket
import struct
from collections.abc import Callable
from typing import Any, Final

from transom.runtime.native.monitor.loop import (
    READ,
    RESET,
    MonitorLoop,
    close_descriptors_on_exec,
)

_LONGEST: Final = 4096
_NEW_NETWORK: Final = 0x40000000
_NO_NEW_PRIVILEGES: Final = 38
_GET_FLAGS, _SET_FLAGS = 0x8913, 0x8914
_UP: Final = 1
_INTERFACE: Final = struct.Struct("16sh14x")
_libc = ctypes.CDLL(None, use_errno=True)


def hold_namespace(
    loop: MonitorLoop, order: dict[str, Any], done: Callable[[int, str], None]
) -> None:
    """`order`: `program` below `root`, its `user` and `group`, `oom_score_adj`, `network` (the path
    of a namespace, "" for a new one, None for this process's own) and `processes` (the file of a
    cgroup, or ""). `done` receives a pid, or 0 and the error. Raises OSError.
    """
    reader, writer = os.pipe()
    loop.start_begins()
    try:
        pid = os.fork()
    except OSError:
        loop.start_ends()
        os.close(reader)
        os.close(writer)
        raise
    if not pid:
        _become(order, writer)
    os.close(writer)

    def answered(_: int) -> None:
        problem = os.read(reader, _LONGEST).decode(errors="replace")
        loop.forget(reader)
        os.close(reader)
        done(0 if problem else pid, problem)  # adopts the process
        loop.start_ends()

    loop.watch(reader, READ, answered)


def _become(order: dict[str, Any], error_pipe: int) -> None:
    """Never returns."""
    try:
        signal.set_wakeup_fd(-1)
        close_descriptors_on_exec()
        for number in RESET:
            signal.signal(number, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream)
        if order["processes"]:
            _write(order["processes"], os.getpid())
        _write("/proc/self/oom_score_adj", order["oom_score_adj"])
        if order["network"] is not None:
            _enter(order["network"])
        os.chroot(order["root"])
        os.chdir("/")
        os.setgroups([])
        os.setgid(order["group"])
        os.setuid(order["user"])
        _libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        os.execve(order["program"], [order["program"]], {})
    except OSError as problem:
        where = f"{problem.filename}: " if problem.filename else ""
        os.write(error_pipe, f"{where}{problem.strerror}".encode())
    finally:
        os._exit(1)


def _write(path: str, number: int) -> None:
    with open(path, "w") as file:
        file.write(str(number))


def _enter(network: str) -> None:
    if network:
        fd = os.open(network, os.O_RDONLY)
        failed = _libc.setns(fd, _NEW_NETWORK)
    else:
        failed = _libc.unshare(_NEW_NETWORK)
    if failed:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), network or None)
    if not network:
        _bring_up(b"lo")


def _bring_up(name: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        _, flags = _INTERFACE.unpack(fcntl.ioctl(control, _GET_FLAGS, _INTERFACE.pack(name, 0)))
        fcntl.ioctl(control, _SET_FLAGS, _INTERFACE.pack(name, flags | _UP))
