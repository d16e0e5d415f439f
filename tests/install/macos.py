"""Runs `transom` on a Python that has only what macOS has.

    python tests/install/macos.py up --name test

The functions and constants that Python offers on Linux and not on macOS are removed before anything
of Transom is imported, there is no /proc and no /sys, and `sys.platform` says darwin. Sockets have
no abstract names, and the loopback interface has one address.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import importlib
import mmap
import os
import resource
import select
import selectors
import signal
import socket
import sys
import time
import urllib.request
import zoneinfo
from typing import Any

ASKED_FOR_PLATFORM = (urllib.request, zoneinfo)  # when they were imported
LINUX_ONLY = {
    os: (
        "O_DIRECT O_LARGEFILE O_NOATIME O_PATH O_RSYNC O_TMPFILE copy_file_range eventfd eventfd_read "
        "eventfd_write fdatasync getrandom getresgid getresuid getxattr listxattr memfd_create "
        "pidfd_open pipe2 posix_fadvise posix_fallocate removexattr sched_getaffinity "
        "sched_setaffinity sched_getparam sched_setscheduler setns setresgid setresuid setxattr "
        "splice unshare waitid P_PIDFD SCHED_BATCH SCHED_IDLE preadv pwritev posix_openpt timerfd_create"
    ),
    fcntl: (
        "DN_ACCESS F_ADD_SEALS F_GETPIPE_SZ F_GETSIG F_NOTIFY F_OFD_SETLK F_SETLEASE F_SETPIPE_SZ "
        "F_SETSIG"
    ),
    mmap: "MADV_DONTFORK MAP_POPULATE MAP_STACK",
    resource: "RLIMIT_MSGQUEUE RLIMIT_NICE RLIMIT_RTPRIO RLIMIT_SIGPENDING RUSAGE_THREAD prlimit",
    select: "epoll EPOLLIN EPOLLOUT EPOLLEXCLUSIVE EPOLLRDHUP POLLRDHUP",
    signal: "pidfd_send_signal SIGPWR SIGRTMAX SIGRTMIN SIGSTKFLT sigtimedwait sigwaitinfo",
    socket: (
        "AF_ALG AF_NETLINK AF_PACKET AF_VSOCK IP_BIND_ADDRESS_NO_PORT IP_TRANSPARENT MSG_CMSG_CLOEXEC "
        "MSG_NOSIGNAL NETLINK_ROUTE SOCK_CLOEXEC SOCK_NONBLOCK SO_BINDTODEVICE SO_DOMAIN SO_MARK "
        "SO_PEERCRED SO_PROTOCOL TCP_CORK TCP_DEFER_ACCEPT TCP_INFO TCP_KEEPIDLE TCP_LINGER2 "
        "SOCK_SEQPACKET TCP_NOTSENT_LOWAT TCP_QUICKACK TCP_SYNCNT TCP_USER_TIMEOUT"
    ),
    time: "CLOCK_BOOTTIME CLOCK_TAI pthread_getcpuclockid",
}
_LINUX_CALLS = (
    "mallopt",
    "malloc_trim",
    "prctl",
    "unshare",
    "setns",
    "mount",
    "umount2",
    "syscall",
    "syncfs",
    "inotify_init1",
    "signalfd",
    "eventfd",
    "memfd_create",
    "timerfd_create",
    "epoll_create1",
    "close_range",
    "getrandom",
    "renameat2",
    "statx",
    "accept4",
    "sched_setaffinity",
)
_LONGEST_PATH = 103  # of a Unix socket


def _refuse_linux_files(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook: files of the kernel do not exist."""
    if event in ("open", "os.listdir", "os.scandir"):
        _refuse(arguments[0])


def _refuse(path: Any) -> None:
    if isinstance(path, str | bytes | os.PathLike):
        text = os.fsdecode(path)
        if text.startswith(("/proc/", "/sys/")) or text in ("/proc", "/sys"):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), text)


def _without_linux_files(real: Any) -> Any:
    """For calls that have no audit event."""

    def call(path: Any, *rest: Any, **more: Any) -> Any:
        _refuse(path)
        return real(path, *rest, **more)

    return call


def _check_address(address: Any, *, bound: bool) -> None:
    """Raises what macOS raises for an address of a socket."""
    if isinstance(address, tuple):
        host = str(address[0])
        if bound and host.startswith("127.") and host != "127.0.0.1":
            raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
        return
    path = os.fsencode(address)
    if path.startswith((b"\0", b"/proc/")):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    if len(path) > _LONGEST_PATH:
        raise OSError("AF_UNIX path too long")


def _checked(method: str, real: Any) -> Any:
    def call(self: socket.socket, address: Any) -> None:
        _check_address(address, bound=method == "bind")
        real(self, address)

    return call


def hide_linux() -> None:
    sys.addaudithook(_refuse_linux_files)
    for method in ("bind", "connect"):
        setattr(socket.socket, method, _checked(method, getattr(socket.socket, method)))
    for name in ("stat", "lstat", "readlink"):
        setattr(os, name, _without_linux_files(getattr(os, name)))
    socket.TCP_KEEPALIVE = socket.TCP_KEEPIDLE  # type: ignore[attr-defined]  # its name there
    for module, names in LINUX_ONLY.items():
        for name in names.split():
            module.__dict__.pop(name, None)
    importlib.reload(selectors)  # without epoll
    sys.platform = "darwin"
    real = ctypes.CDLL

    class MacLibrary(real):  # type: ignore[misc, valid-type]
        def __getattr__(self, name: str) -> Any:
            if name in _LINUX_CALLS:
                raise AttributeError(f"dlsym(RTLD_DEFAULT, {name}): symbol not found")
            return super().__getattr__(name)

    ctypes.CDLL = MacLibrary  # type: ignore[misc]


if __name__ == "__main__":
    hide_linux()
    from transom.cli.entry import main

    sys.exit(main())
