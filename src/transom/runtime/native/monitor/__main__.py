"""`python -m transom.runtime.native.monitor FOLDER`: daemonizes, and returns when the monitor is
ready.

There is one per directory: a second one exits immediately, without an error.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import signal
import socket
import sys

from transom.runtime.native.monitor.loop import MonitorLoop
from transom.runtime.native.monitor.server import MonitorServer

LOCK, SOCKET, LOG = "monitor.lock", "monitor.sock", "monitor.log"
_SET_NAME, _SET_CHILD_SUBREAPER = 15, 36
_LEAST_LIKELY = "-999"  # OOM score: killing it would end the logs of all containers


def main(folder: str) -> int:
    os.chdir(folder)
    lock = os.open(LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0
    listener = _listen()
    if os.fork():
        os._exit(0)  # the socket exists: clients can connect
    _detach()
    loop = MonitorLoop()
    server = MonitorServer(loop, listener)
    loop.run()
    server.close()
    os.unlink(os.path.join(folder, SOCKET))
    return 0


def _listen() -> socket.socket:
    if os.path.lexists(SOCKET):
        os.unlink(SOCKET)  # of a monitor that was killed
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    listener.bind(SOCKET)  # by its bare name: a full path may be too long for a socket address
    os.umask(mask)
    listener.listen(64)
    return listener


def _detach() -> None:
    os.setsid()
    os.umask(0o022)
    null = os.open(os.devnull, os.O_RDWR)
    log = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for number, source in ((0, null), (1, log), (2, log)):
        os.dup2(source, number)
    os.close(null)
    os.close(log)
    os.chdir("/")
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # it ends by a request on its socket, or by SIGKILL
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_SET_NAME, b"transom-monitor", 0, 0, 0)
    if libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each container has a few of them
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write(_LEAST_LIKELY)
    except PermissionError:
        sys.stderr.write(
            "no CAP_SYS_RESOURCE: the monitor may be killed for want of memory as any process\n"
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
