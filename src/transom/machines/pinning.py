"""Opens, removes and changes files in directories that containers can change at the same time.

A path refers to whatever is there when the kernel resolves it; a descriptor keeps referring to what
was checked. Every function here takes each step from an open directory and follows no link: with
openat2(2), or component by component on kernels without it. Only the standard library: the
containers' monitor imports this.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from transom.machines import mounting

LOOK: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPENAT2: Final = 437  # on every architecture
_NO_XDEV, _NO_MAGICLINKS, _NO_SYMLINKS = 0x01, 0x02, 0x04
_NO_OPENAT2: Final = (errno.ENOSYS, errno.EPERM, errno.EINVAL)
_DEEPEST: Final = 128  # directories that are open at the same time
_TRIES: Final = 16  # for a directory that is written to all the time
_HARMLESS: Final = frozenset(os.makedev(1, minor) for minor in (3, 5, 7, 8, 9)) | {os.makedev(5, 0)}

_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def _openat2(directory: int, path: str, flags: int, resolve: int) -> int:
    """Raises OSError."""
    how = _OpenHow(flags, 0, resolve)
    fd = int(
        _libc.syscall(_OPENAT2, directory, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
    )
    if fd < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)
    return fd


def open_without_links(path: str, flags: int = os.O_PATH) -> int:
    """A descriptor of an absolute path without any link, not even the last name. Raises OSError
    (ELOOP) if there is one.
    """
    try:
        return _openat2(-100, path, flags | os.O_CLOEXEC, _NO_SYMLINKS | _NO_MAGICLINKS)
    except OSError as problem:
        if problem.errno not in _NO_OPENAT2:
            raise
    return _walk_without_links(path, flags)


def _walk_without_links(path: str, flags: int) -> int:
    at = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in path.split("/"):
        if name in ("", "."):
            continue
        try:
            inner = os.open(name, LOOK, dir_fd=at)
        finally:
            os.close(at)
        at = inner
        if name == ".." or stat.S_ISLNK(os.fstat(at).st_mode):
            os.close(at)
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    if flags & os.O_PATH:
        return at
    try:
        return reopen_descriptor(at, flags)
    finally:
        os.close(at)


def is_harmless_device(found: os.stat_result) -> bool:
    """Whether every container may have it: null, zero, random and so on, or a node without a
    device.
    """
    return found.st_rdev == 0 or (stat.S_ISCHR(found.st_mode) and found.st_rdev in _HARMLESS)


def reopen_descriptor(fd: int, flags: int) -> int:
    """Reopens an O_PATH descriptor for reading or writing. Rejects devices other than the usual
    harmless ones (null, zero, random): a container may have created the node of a disk.
    """
    found = os.fstat(fd)
    if stat.S_ISBLK(found.st_mode) or (
        stat.S_ISCHR(found.st_mode) and found.st_rdev not in _HARMLESS
    ):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
    return os.open(f"/proc/self/fd/{fd}", (flags & ~os.O_NOFOLLOW) | os.O_CLOEXEC | os.O_NONBLOCK)


@contextmanager
def looked_at(directory: int, name: str) -> Iterator[int]:
    fd = os.open(name, LOOK, dir_fd=directory)
    try:
        yield fd
    finally:
        os.close(fd)


# ---- trees ----


def open_directory(directory: int, name: str) -> int:
    """Opens a directory in a directory for listing. Raises OSError: EXDEV for a mount point."""
    try:
        return _openat2(directory, name, _DIRECTORY, _NO_SYMLINKS | _NO_XDEV)
    except OSError as problem:
        if problem.errno not in _NO_OPENAT2:
            raise
    fd = os.open(name, _DIRECTORY, dir_fd=directory)
    if mounting.mount_id(fd) != mounting.mount_id(directory):
        os.close(fd)
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), name)
    return fd


def remove_pinned_tree(directory: int, name: str) -> None:
    """Removes a directory with everything in it, of any depth. Mounts in it are unmounted, never
    emptied: a container may have left a mount of other files. Raises OSError when something is
    left.
    """
    top = _open_to_empty(directory, name)
    stack = [(top, name, os.listdir(top), _TRIES)]
    parked = 0
    try:
        while stack:
            fd, own_name, names, tries = stack[-1]
            if names:
                child = names.pop()
                if not _unlink(fd, child):
                    if len(stack) < _DEEPEST:
                        inner = _open_to_empty(fd, child)
                        stack.append((inner, child, os.listdir(inner), _TRIES))
                    else:  # the maximum of open directories: empty it from the top
                        parked += 1
                        os.rename(child, f".transom-{parked}", src_dir_fd=fd, dst_dir_fd=top)
                        stack[0][2].append(f".transom-{parked}")
                continue
            parent = stack[-2][0] if len(stack) > 1 else directory
            try:
                os.rmdir(own_name, dir_fd=parent)
            except OSError as problem:
                if problem.errno != errno.ENOTEMPTY or not tries:
                    raise
                stack[-1] = (fd, own_name, os.listdir(fd), tries - 1)
                continue
            stack.pop()
            os.close(fd)
    except FileNotFoundError:
        if os.path.lexists(f"/proc/self/fd/{directory}/{name}"):
            raise
    finally:
        for fd, *_ in stack:
            os.close(fd)


def remove_folder(path: str) -> None:
    """Like `remove_pinned_tree`; no error when it does not exist."""
    try:
        parent = os.open(
            os.path.dirname(os.path.abspath(path)), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
        )
    except FileNotFoundError:
        return
    try:
        remove_pinned_tree(parent, os.path.basename(os.path.abspath(path)))
    except FileNotFoundError:
        return
    finally:
        os.close(parent)


def _open_to_empty(directory: int, name: str) -> int:
    for _ in range(_TRIES):
        try:
            return open_directory(directory, name)
        except OSError as problem:
            if problem.errno == errno.EXDEV:
                with looked_at(directory, name) as fd:
                    mounting.detach_mount(fd)
            elif problem.errno == errno.EACCES:  # without permissions, as overlayfs creates some
                with looked_at(directory, name) as fd:
                    if stat.S_ISDIR(os.fstat(fd).st_mode):
                        os.chmod(f"/proc/self/fd/{fd}", 0o700)
            else:
                raise
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), name)


def _unlink(directory: int, name: str) -> bool:
    """False: it is a directory."""
    for _ in range(_TRIES):
        try:
            os.unlink(name, dir_fd=directory)
            return True
        except FileNotFoundError:
            return True
        except IsADirectoryError:
            return False
        except PermissionError as problem:
            if problem.errno == errno.EPERM or os.fstat(directory).st_mode & 0o300 == 0o300:
                raise
            os.fchmod(directory, 0o700)
        except OSError as problem:
            if problem.errno != errno.EBUSY:
                raise
            with looked_at(directory, name) as fd:  # a file that is a mount point
                mounting.detach_mount(fd)
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), name)


def change_tree(fd: int, change: Callable[[int, os.stat_result], None]) -> None:
    """Calls `change` for everything in a tree, with an O_PATH descriptor; the content of a
    directory comes before it. Links are skipped, and neither links nor mounts are followed. Trees
    deeper than a container can sensibly create are not changed all the way down.
    """
    found = os.fstat(fd)
    if stat.S_ISDIR(found.st_mode):
        _change_inside(fd, change, 0)
    change(fd, found)


def _change_inside(fd: int, change: Callable[[int, os.stat_result], None], depth: int) -> None:
    opened = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in os.listdir(opened):
            try:
                inner = os.open(name, LOOK, dir_fd=opened)
            except FileNotFoundError:
                continue
            try:
                found = os.fstat(inner)
                if stat.S_ISLNK(found.st_mode):
                    continue
                if stat.S_ISDIR(found.st_mode) and depth < _DEEPEST:
                    if mounting.mount_id(inner) != mounting.mount_id(opened):
                        continue
                    _change_inside(inner, change, depth + 1)
                change(inner, found)
            finally:
                os.close(inner)
    finally:
        os.close(opened)


class TreeUsage:
    """Bytes and inodes of a tree. `whole` is false when there are more than `most`, and the rest
    was not counted.
    """

    __slots__ = ("bytes", "inodes", "most", "whole")

    def __init__(self, most: int) -> None:
        self.bytes = self.inodes = 0
        self.most = most
        self.whole = True

    def add(self, found: os.stat_result) -> bool:
        """Whether to continue."""
        self.bytes += found.st_blocks * 512
        self.inodes += 1
        self.whole = self.inodes <= self.most
        return self.whole


def tree_usage(
    directory: int, name: str, found: os.stat_result, most: int = sys.maxsize
) -> TreeUsage:
    """Links and mounts are not followed; more than a hundred directory levels are not counted."""
    counted = TreeUsage(most)
    counted.add(found)
    if stat.S_ISDIR(found.st_mode):
        try:
            # the top may itself be a mount: a volume in memory
            fd = os.open(name, _DIRECTORY, dir_fd=directory)
        except OSError:
            return counted  # just deleted
        _usage_inside(fd, 0, counted)
    return counted


def _usage_inside(fd: int, depth: int, counted: TreeUsage) -> None:
    try:
        with os.scandir(fd) as entries:
            for entry in entries:
                try:
                    found = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if not counted.add(found):
                    return
                if stat.S_ISDIR(found.st_mode) and depth < _DEEPEST:
                    try:
                        child = os.open(entry.name, _DIRECTORY, dir_fd=fd)
                    except OSError:
                        continue  # deleted, or no longer a directory
                    _usage_inside(child, depth + 1, counted)
                    if not counted.whole:
                        return
    finally:
        os.close(fd)
