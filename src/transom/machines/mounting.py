"""mount(2) and umount(2), and the mount table. Only the standard library: the containers' monitor
imports this.
"""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Final

from transom.kit.named_tuple import NamedTuple

READ_ONLY: Final = 0x1
NO_SUID: Final = 0x2
NO_DEVICES: Final = 0x4
NO_EXEC: Final = 0x8
REMOUNT: Final = 0x20
BIND: Final = 0x1000
RECURSIVE: Final = 0x4000
PRIVATE: Final = 0x40000
SLAVE: Final = 0x80000
SHARED: Final = 0x100000

_DETACH: Final = 2
_NO_FOLLOW: Final = 8

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, path: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)


def mount_filesystem(
    source: str, target: str, kind: str = "", flags: int = 0, data: str = ""
) -> None:
    _call(
        "mount",
        target,
        os.fsencode(source),
        os.fsencode(target),
        kind.encode() or None,
        ctypes.c_ulong(flags),
        os.fsencode(data) or None,
    )


def unmount_filesystem(target: str, *, lazily: bool = True) -> None:
    """No error where nothing is mounted. `lazily`: detaches it now; processes with open files there
    keep them.
    """
    try:
        _call("umount2", target, os.fsencode(target), (_DETACH if lazily else 0) | _NO_FOLLOW)
    except OSError as problem:
        if problem.errno not in (errno.EINVAL, errno.ENOENT):
            raise


def detach_mount(fd: int) -> None:
    """Unmounts the mount whose top is a descriptor, whatever its path refers to now, and no
    submounts elsewhere. Raises OSError where nothing is mounted.
    """
    path = f"/proc/self/fd/{fd}"
    mount_filesystem("none", path, "", PRIVATE | RECURSIVE)
    _call("umount2", path, path.encode(), _DETACH)


def mount_id(fd: int) -> int:
    """The mount id of a descriptor, in this process's namespace."""
    with open(f"/proc/self/fdinfo/{fd}") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("mnt_id:"))


class MountPoint(NamedTuple):
    point: str
    kind: str
    shared: bool


def mount_points(below: str = "/") -> list[MountPoint]:
    """The mounts at a directory and everywhere below it, as this process sees them; in mount
    order.
    """
    prefix = below.rstrip("/") + "/"
    found = []
    with open("/proc/self/mountinfo", "rb") as file:
        for line in file:
            fields, _, rest = line.partition(b" - ")
            parts = fields.split(b" ")
            point = os.fsdecode(_unescaped(parts[4]))
            if point == below or point.startswith(prefix):
                kind = rest.split(b" ", 1)[0].decode()
                found.append(
                    MountPoint(point, kind, any(part.startswith(b"shared:") for part in parts[6:]))
                )
    return found


def unmount_below(below: str) -> None:
    """Unmounts everything at a directory and below it. Raises OSError when something cannot be
    unmounted.
    """
    for entry in reversed(mount_points(os.path.realpath(below))):
        unmount_filesystem(entry.point)


def _unescaped(path: bytes) -> bytes:
    """The kernel escapes blanks, tabs, newlines and backslashes as three octal digits."""
    if b"\\" not in path:
        return path
    head, *tails = path.split(b"\\")
    return head + b"".join(bytes([int(tail[:3], 8)]) + tail[3:] for tail in tails)
