"""Runs `transom` on a Python that has only what macOS has.

    python tests/install/macos.py up --name test

The functions and constants that Python offers on Linux and not on macOS are removed before anything
of Transom is imported, and `sys.platform` says darwin.
"""

from __future__ import annotations

import ctypes
import os
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
        "splice unshare"
    ),
    signal: "SIGPWR SIGRTMAX SIGRTMIN SIGSTKFLT sigtimedwait sigwaitinfo",
    socket: (
        "AF_ALG AF_NETLINK AF_PACKET AF_VSOCK IP_BIND_ADDRESS_NO_PORT IP_TRANSPARENT MSG_CMSG_CLOEXEC "
        "MSG_NOSIGNAL NETLINK_ROUTE SOCK_CLOEXEC SOCK_NONBLOCK SO_BINDTODEVICE SO_DOMAIN SO_MARK "
        "SO_PEERCRED SO_PROTOCOL TCP_CORK TCP_DEFER_ACCEPT TCP_INFO TCP_KEEPIDLE TCP_LINGER2 "
        "TCP_NOTSENT_LOWAT TCP_QUICKACK TCP_SYNCNT TCP_USER_TIMEOUT"
    ),
    time: "CLOCK_BOOTTIME CLOCK_TAI",
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
)


def hide_linux() -> None:
    socket.TCP_KEEPALIVE = socket.TCP_KEEPIDLE  # type: ignore[attr-defined]  # its name there
    for module, names in LINUX_ONLY.items():
        for name in names.split():
            module.__dict__.pop(name, None)
    sys.platform = "darwin"
    real = ctypes.CDLL

    class MacLibrary(real):  # type: ignore[misc, valid-type]
        def __getattr__(self, name: str) -> Any:
            if name in _LINUX_CALLS:
                raise AttributeError(f"dlsym(RTLD_DEFAULT, {name}): symbol not found")
            return super().__getattr__(name)

    ctypes.CDLL = MacLibrary  # type: ignore[misc]


if __name__ == "__main__":
    import asyncio  # noqa: F401
    import multiprocessing.connection  # noqa: F401

    hide_linux()
    from transom.cli.entry import main

    sys.exit(main())
