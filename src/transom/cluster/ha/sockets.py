"""Unix sockets in the folder of a cluster, which only its owner can open. The folder may have a long
name: it is opened first, and the socket is found relative to it.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def _short_path(path: Path) -> Iterator[str]:
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def listen_unix(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX)
    mask = os.umask(0o177)
    try:
        with _short_path(path) as short:
            sock.bind(short)
        sock.listen(128)
    finally:
        os.umask(mask)
    sock.setblocking(False)
    return sock


def connect_unix(path: Path, timeout: float | None = None) -> socket.socket:
    """Connects without waiting: a Unix socket accepts at once or not at all."""
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.settimeout(timeout or 1.0)
        with _short_path(path) as short:
            sock.connect(short)
    except BaseException:
        sock.close()
        raise
    if timeout is None:
        sock.setblocking(False)
    return sock
