"""Idmapped mounts (Linux 5.12): what belongs to root on disk belongs to the root of a user
namespace in the mount. Only the standard library: the containers' monitor imports this.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442  # on every architecture
_CLONE, _RECURSIVE, _EMPTY_PATH, _MOVE_EMPTY_PATH, _IDMAP = 1, 0x8000, 0x1000, 4, 0x00100000
_NEW_USER: Final = 0x10000000
# mount, ipc, pid and network namespaces
_NEW_OTHERS: Final = 0x00020000 | 0x08000000 | 0x20000000 | 0x40000000
_PRIVATE: Final = 0x40000 | 0x4000  # MS_PRIVATE | MS_REC
_UNSUPPORTED: Final = "maybe the filesystem used doesn't support idmap mounts on this kernel?"

_libc = ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: object) -> int:
    result = int(_libc.syscall(number, *arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def mount_mapped(source: int, target: str, user_namespace: int, *, recursive: bool = True) -> None:
    """Mounts a descriptor's directory at a path, optionally with all its submounts. Files that
    belong to a user there belong to the user of the same number in the namespace. Raises OSError.
    """
    flags = _EMPTY_PATH | (_RECURSIVE if recursive else 0)
    tree = _call(_OPEN_TREE, source, b"", flags | _CLONE | os.O_CLOEXEC)
    try:
        attributes = struct.pack("<QQQQ", _IDMAP, 0, 0, user_namespace)
        try:
            _call(_MOUNT_SETATTR, tree, b"", flags, attributes, len(attributes))
        except OSError as problem:
            if problem.errno != errno.EINVAL:
                raise
            shown = os.readlink(f"/proc/self/fd/{source}")
            text = f"failed to set MOUNT_ATTR_IDMAP: invalid argument ({_UNSUPPORTED})"
            raise OSError(errno.EINVAL, text, shown) from problem
        _call(_MOVE_MOUNT, tree, b"", -100, os.fsencode(target), _MOVE_EMPTY_PATH)
    finally:
        os.close(tree)


def can_map(source: int, user_namespace: int) -> bool:
    """Whether `mount_mapped` works for a descriptor's directory and all its submounts. Mounts
    nothing.
    """
    flags = _EMPTY_PATH | _RECURSIVE
    attributes = struct.pack("<QQQQ", _IDMAP, 0, 0, user_namespace)
    try:
        tree = _call(_OPEN_TREE, source, b"", flags | _CLONE | os.O_CLOEXEC)
        try:
            _call(_MOUNT_SETATTR, tree, b"", flags, attributes, len(attributes))
        finally:
            os.close(tree)
    except OSError:
        return False
    return True


def try_kernel_mounts(first: int, target: str) -> None:
    """Mounts proc and sysfs at a path, as root of a new user namespace does for a container. The
    kernel refuses that inside a container where parts of them are masked. Leaves nothing behind.
    Only for single-threaded processes. Raises OSError.
    """
    ready, mapped = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        code = errno.EIO
        try:
            os.close(ready[0])
            os.close(mapped[1])
            code = ctypes.get_errno() if _libc.unshare(_NEW_USER) else 0
            os.write(ready[1], bytes([code]))
            if not code and os.read(mapped[0], 1):
                code = _mount_in_namespaces(os.fsencode(target))
        except OSError as problem:
            code = problem.errno or errno.EIO
        finally:
            os._exit(code)
    os.close(ready[1])
    os.close(mapped[0])
    try:
        if os.read(ready[0], 1) == b"\0":
            _map_ids(child, first, 1 << 16)
            os.write(mapped[1], b"x")
    finally:
        os.close(ready[0])
        os.close(mapped[1])
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        raise OSError(
            code, f"proc and sysfs cannot be mounted in a user namespace: {os.strerror(code)}"
        )


def _mount_in_namespaces(target: bytes) -> int:
    """An error number, 0 for none."""
    os.setgid(0)
    os.setuid(0)
    if _libc.unshare(_NEW_OTHERS):
        return ctypes.get_errno()
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 0
    for source, at, kind, flags in (
        (None, b"/", None, _PRIVATE),
        (b"proc", target, b"proc", 0),
        (b"sysfs", target, b"sysfs", 0),
    ):
        if not code and _libc.mount(source, at, kind, ctypes.c_ulong(flags), None):
            code = ctypes.get_errno()
    os._exit(code)


def _map_ids(process: int, first: int, size: int) -> None:
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/{process}/{name}", "w") as file:
            file.write(f"0 {first} {size}\n")


@contextmanager
def user_namespace(first: int, size: int = 1 << 16) -> Iterator[str]:
    """The path of a new user namespace without processes, mapped to users of this machine from
    `first` on. Only for single-threaded processes. Raises OSError.
    """
    ours, theirs = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(ours[0])
            os.close(theirs[1])
            failed = _libc.unshare(_NEW_USER)
            os.write(ours[1], bytes([ctypes.get_errno() if failed else 0]))
            os.read(theirs[0], 1)  # until the other end is closed
        finally:
            os._exit(0)
    os.close(ours[1])
    os.close(theirs[0])
    try:
        code = os.read(ours[0], 1)[0]
        if code:
            raise OSError(code, os.strerror(code))
        _map_ids(child, first, size)
        yield f"/proc/{child}/ns/user"
    finally:
        os.close(ours[0])
        os.close(theirs[1])
        os.waitpid(child, 0)
