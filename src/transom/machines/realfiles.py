"""`Files` over a real directory: containers can mount what a kubelet writes there.

A node's paths begin at the directory: `/etc/hosts` is FOLDER/etc/hosts, `C:\\var` is FOLDER/C/var,
`\\\\server\\share` is FOLDER/UNC/server/share and `\\\\.\\pipe\\x` FOLDER/pipe/x. Links are
followed only inside the directory, whatever a container puts into a volume, and whenever: every
step is taken from an open directory, so nothing can be replaced in between.

On a Windows node names are case-insensitive, and links also work for programs that see the
directory itself: their targets are written with `/`, and those with a drive as the real path.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from itertools import islice
from pathlib import Path
from typing import Final, Self

from transom.machines import mounting, pinning
from transom.machines.api import DiskSpace, Kind, Stat
from transom.machines.inodes import FORMAT, KIND
from transom.machines.styles import NUL, PIPES, POSIX, WINDOWS, PathStyle, windows_error_code

_LINKS: Final = 40
_QUICKLY_COUNTED, _MOST_COUNTERS, _MOST_COUNTED = 2000, 4, 1000
# for whole reads: containers can create files with a terabyte of zeros
_LARGEST_FILE: Final = 64 << 20
_LOOK: Final = pinning.LOOK
_DEVICES: Final = {"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9, "kmsg": 11}


class _Place:
    """A resolved path: an open directory, the name in it, and its type, None if it does not exist.
    Never a link, unless requested.
    """

    __slots__ = ("directory", "fd", "found", "name", "names")

    def __init__(
        self,
        directory: int,
        name: str,
        found: os.stat_result | None,
        names: list[str],
        fd: int = -1,
    ) -> None:
        self.directory = directory
        self.name = name
        self.found = found
        self.names = names  # from the root directory on, as spelled there
        self.fd = fd  # O_PATH descriptor; the name may refer to something else by now

    @property
    def is_directory(self) -> bool:
        return self.found is not None and stat.S_ISDIR(self.found.st_mode)


class RealFiles:
    def __init__(self, folder: Path, style: PathStyle = POSIX) -> None:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        self.folder = folder.resolve()
        self._style = style
        self._windows = style is WINDOWS
        self._counting: set[str] = set()
        self._counted: dict[str, tuple[int, int]] = {}
        self._boundary: list[str] = []
        self._root = os.open(self.folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        if self._windows:
            for name in ("C", "pipe"):
                (self.folder / name).mkdir(exist_ok=True)

    def close(self) -> None:
        root, self._root = self._root, -1
        if root >= 0:
            os.close(root)

    def below(self, directory: str) -> Self:
        """The same files, restricted to a directory: a path that leaves it, by links that a
        container has created or by "..", fails with EACCES, and creates nothing. Do not keep it: it
        is valid only as long as its creator.
        """
        other = copy(self)
        with self._at(directory) as place:
            other._boundary = [name for name in place.names if name != "."]
        return other

    # For mounts

    def real(self, path: str) -> str:
        """Its path on this machine, without links. A container may put a link there afterwards:
        code that uses the path must reject links (`pinning.open_without_links`).
        """
        with self._at(path) as place:
            return str(self.folder.joinpath(*place.names))

    def open(self, path: str) -> int:
        """An O_PATH descriptor of it. The caller closes it."""
        with self._at(path) as place:
            if place.found is None:
                raise self._style.error(errno.ENOENT, path)
            return os.dup(place.fd)

    def device(self, path: str) -> os.stat_result:
        """For a file that a container mounts as a device. Root in a container can create a node of
        any device of this machine in a volume. So a real device is accepted only where it is
        mounted, which requires the machine's owner or a privileged container; raises
        PermissionError elsewhere.
        """
        with self._at(path) as place:
            found = place.found
            if found is None:
                raise self._style.error(errno.ENOENT, path)
            is_device = stat.S_ISBLK(found.st_mode) or stat.S_ISCHR(found.st_mode)
            is_trusted = pinning.is_harmless_device(found) or self._is_mounted(place, path)
            if is_device and not is_trusted:
                raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)
            return found

    # Reading

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        with self._opened(path, os.O_RDONLY) as fd:
            if stat.S_ISDIR(os.fstat(fd).st_mode):
                raise self._style.error(errno.EISDIR, path)
            pieces, left = list[bytes](), size if size >= 0 else _LARGEST_FILE + 1
            while left and (piece := os.pread(fd, min(left, 1 << 20), offset)):
                pieces.append(piece)
                offset += len(piece)
                left -= len(piece)
            if size < 0 and not left:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
            return b"".join(pieces)

    def readlink(self, path: str) -> str:
        with self._at(path, follow=False) as place:
            if place.found is None or not stat.S_ISLNK(place.found.st_mode):
                raise self._style.error(errno.ENOENT if place.found is None else errno.EINVAL, path)
            return self._shown_target(os.readlink(place.name, dir_fd=place.directory))

    def stat(self, path: str, *, follow: bool = True) -> Stat:
        if self._windows and self._style.split(path) == [NUL]:
            return Stat("char", 0o666, 0, 0, 0, 0.0)
        with self._at(path, follow=follow) as place:
            found = place.found
        if found is None:
            raise self._style.error(errno.ENOENT, path)
        kind, mode = KIND[stat.S_IFMT(found.st_mode)], stat.S_IMODE(found.st_mode)
        if not self._windows:
            return Stat(kind, mode, found.st_uid, found.st_gid, found.st_size, found.st_mtime)
        shown = 0o777 if kind in ("directory", "symlink") else 0o666
        size = found.st_size if kind == "file" else 0
        return Stat(kind, shown if mode & 0o200 else shown & 0o555, 0, 0, size, found.st_mtime)

    def exists(self, path: str) -> bool:
        try:
            self.stat(path)
        except OSError:
            return False
        return True

    def listdir(self, path: str) -> list[str]:
        with self._opened(path, os.O_RDONLY | os.O_DIRECTORY) as fd:
            names = os.listdir(fd)
        return sorted(names, key=str.lower) if self._windows else sorted(names)

    def some_names(self, path: str, most: int) -> list[str]:
        with self._opened(path, os.O_RDONLY | os.O_DIRECTORY) as fd, os.scandir(fd) as entries:
            return sorted(entry.name for entry in islice(entries, most))

    def usage(self, path: str) -> tuple[int, int]:
        with self._at(path, follow=False) as place:
            if place.found is None:
                raise self._style.error(errno.ENOENT, path)
            counted = pinning.tree_usage(place.directory, place.name, place.found, _QUICKLY_COUNTED)
            if counted.whole:
                return counted.bytes, counted.inodes
            return self._count_in_background(path, place, (counted.bytes, counted.inodes))

    def statfs(self, path: str) -> DiskSpace:
        with self._at(path) as place:
            if place.found is None:
                raise self._style.error(errno.ENOENT, path)
            descriptor = os.open(
                place.name or ".", os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=place.directory
            )
            try:
                found = os.fstatvfs(descriptor)
            finally:
                os.close(descriptor)
        size, free = found.f_blocks * found.f_frsize, found.f_bfree * found.f_frsize
        return DiskSpace(size, size - free, found.f_files, found.f_files - found.f_ffree)

    def _count_in_background(
        self, path: str, place: _Place, least: tuple[int, int]
    ) -> tuple[int, int]:
        """The last count, and `least` before there is one. A container may have created millions of
        files, so the caller does not wait: the count continues in a thread until the next call.
        """
        if path not in self._counting and len(self._counting) < _MOST_COUNTERS:
            self._counting.add(path)
            directory, name, found = os.dup(place.directory), place.name, place.found
            assert found is not None, "it was counted"

            def count() -> None:
                try:
                    counted = pinning.tree_usage(directory, name, found)
                    if len(self._counted) >= _MOST_COUNTED:
                        self._counted.clear()
                    self._counted[path] = counted.bytes, counted.inodes
                finally:
                    os.close(directory)
                    self._counting.discard(path)

            threading.Thread(target=count, name="usage", daemon=True).start()
        return max(self._counted.get(path, least), least)

    # Writing

    def mkdir(self, path: str, mode: int = 0o755, *, parents: bool = True) -> None:
        with self._at(path, make=mode if parents else None) as place:
            if place.found is None:
                self._make_directory(place.directory, place.name, mode, path)
            elif not parents or not place.is_directory:
                raise self._style.error(errno.EEXIST, path)

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        if self._windows and self._style.split(path) == [NUL]:
            return
        with self._at(path) as place:
            self._check_name(place.name, path)
            if place.found is None:
                self._create(place, data, mode, path)
            else:
                self._replace(place, data, path)

    def append(self, path: str, data: bytes) -> None:
        with self._at(path) as place:
            if place.found is None:
                self._create(place, data, 0o644, path)
                return
        with self._opened(path, os.O_WRONLY | os.O_APPEND) as fd:
            _write_all(fd, data)

    def appender(self, path: str) -> Callable[[bytes], None]:
        if not self.exists(path):
            self.write(path, b"")
        with self._opened(path, os.O_WRONLY | os.O_APPEND) as fd:
            return _Appender(os.dup(fd))

    def symlink(self, target: str, path: str) -> None:
        with self._new(path) as place:
            os.symlink(self._stored_target(target), place.name, dir_fd=place.directory)

    def make(self, path: str, kind: Kind, mode: int = 0o600) -> None:
        with self._new(path) as place:
            if kind == "directory":
                self._make_directory(place.directory, place.name, mode, path)
                return
            device = 0
            if kind == "char":
                device = (
                    os.makedev(5, 0)
                    if place.name == "tty"
                    else os.makedev(1, _DEVICES.get(place.name, 3))
                )
            os.mknod(place.name, FORMAT[kind] | mode, device, dir_fd=place.directory)
            _set_mode(place.directory, place.name, mode)

    def fill(self, directory: str, entries: Sequence[tuple[str, bytes | str, int]]) -> None:
        for name, content, mode in entries:
            path = self._style.join(directory, name)
            if isinstance(content, str):
                self.symlink(content, path)
            else:
                self.write(path, content, mode)

    def chmod(self, path: str, mode: int) -> None:
        fd = self.open(path)
        try:
            if self._windows:
                kept = stat.S_IMODE(os.fstat(fd).st_mode)
                mode = kept | 0o222 if mode & 0o200 else kept & ~0o222
            os.chmod(f"/proc/self/fd/{fd}", mode)
        finally:
            os.close(fd)

    def chown(self, path: str, uid: int, gid: int) -> None:
        """-1 leaves it unchanged. A no-op for unprivileged users: all containers are then the same
        user.
        """
        if not self._style.has_owners:
            raise self._style.error(errno.ENOTSUP, path)
        fd = self.open(path)
        try:
            if os.geteuid() == 0:
                os.chown(f"/proc/self/fd/{fd}", uid, gid)
        finally:
            os.close(fd)

    def give_to_group(self, path: str, group: int, bits: int, directory_bits: int) -> None:
        def change(fd: int, found: os.stat_result) -> None:
            if os.geteuid() == 0:
                os.chown(f"/proc/self/fd/{fd}", -1, group)
            extra = bits | (directory_bits if stat.S_ISDIR(found.st_mode) else 0)
            os.chmod(f"/proc/self/fd/{fd}", stat.S_IMODE(found.st_mode) | extra)

        fd = self.open(path)
        try:
            pinning.change_tree(fd, change)
        finally:
            os.close(fd)

    def grant(self, path: str) -> None:
        """Gives everyone write access."""
        with self._opened(path, os.O_RDONLY) as fd:
            os.fchmod(fd, 0o777)

    def remove(self, path: str, *, recursive: bool = False) -> None:
        try:
            with self._at(path, follow=False) as place:
                if place.found is None:
                    raise FileNotFoundError
                if not place.is_directory:
                    os.unlink(place.name, dir_fd=place.directory)
                elif recursive:
                    pinning.remove_pinned_tree(place.directory, place.name)
                else:
                    os.rmdir(place.name, dir_fd=place.directory)
        except FileNotFoundError as problem:
            if not recursive:
                raise (
                    problem if problem.errno else self._style.error(errno.ENOENT, path)
                ) from None

    def rename(self, old: str, new: str) -> None:
        with self._at(old, follow=False) as source, self._at(new, follow=False) as target:
            if source.found is None:
                raise self._style.error(errno.ENOENT, old)
            self._check_name(target.name, new)
            there = target.found
            if (
                self._windows
                and there is not None
                and there.st_ino != source.found.st_ino
                and not stat.S_ISREG(there.st_mode)
            ):
                raise self._style.error(errno.EACCES, new)
            os.rename(
                source.name, target.name, src_dir_fd=source.directory, dst_dir_fd=target.directory
            )

    # tmpfs

    def mount_tmpfs(self, path: str, size: int) -> None:
        """Where this process may not mount, the directory stays unchanged."""
        with suppress(PermissionError), self._opened(path, os.O_RDONLY | os.O_DIRECTORY) as fd:
            mounting.mount_filesystem(
                "tmpfs", f"/proc/self/fd/{fd}", "tmpfs", 0, f"size={size},mode=1777"
            )

    def bind(self, source: str, path: str) -> None:
        """Mounts a directory of this machine on a directory of the node. The target is pinned:
        links that containers create on its path in the meantime have no effect.
        """
        with self._opened(path, os.O_RDONLY | os.O_DIRECTORY) as fd:
            mounting.mount_filesystem(
                source, f"/proc/self/fd/{fd}", "", mounting.BIND | mounting.RECURSIVE
            )

    def mount_bind(self, source: str, path: str, read_only: bool = False) -> None:
        """Mounts a directory of the node on another one."""
        fd = self.open(source)
        try:
            self.bind(f"/proc/self/fd/{fd}", path)
        finally:
            os.close(fd)

    def unmount(self, path: str) -> None:
        with self._at(path) as place:
            if self._is_mounted(place, path):
                mounting.detach_mount(place.fd)

    def is_mount(self, path: str) -> bool:
        with self._at(path) as place:
            return self._is_mounted(place, path)

    def _is_mounted(self, place: _Place, path: str) -> bool:
        """By descriptors, because a path may refer to something else by now."""
        if place.found is None:
            raise self._style.error(errno.ENOENT, path)
        return mounting.mount_id(place.fd) != mounting.mount_id(place.directory)

    def drop_memory(self) -> None:
        """Removes every tmpfs, as after a reboot; not the root directory itself, which may be
        bind-mounted on itself in one.
        """
        for entry in reversed(mounting.mount_points(str(self.folder))):
            if entry.kind == "tmpfs" and entry.point != str(self.folder):
                mounting.unmount_filesystem(entry.point)

    def share_mounts(self) -> None:
        """Makes mounts below the directory propagate to containers that request it, and their
        mounts here. Raises OSError where this process may not.
        """
        folder = str(self.folder)
        if not any(
            entry.point == folder and entry.shared for entry in mounting.mount_points(folder)
        ):
            mounting.mount_filesystem(folder, folder, "", mounting.BIND | mounting.RECURSIVE)
            mounting.mount_filesystem("none", folder, "", mounting.PRIVATE)
            mounting.mount_filesystem("none", folder, "", mounting.SHARED)
            self._reopen()

    def _reopen(self) -> None:
        """Reopens the directory after something was mounted on it."""
        os.close(self._root)
        self._root = os.open(self.folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def destroy(self) -> None:
        """Removes everything, including mounts."""
        self.close()
        mounting.unmount_below(str(self.folder))
        with suppress(OSError):
            pinning.remove_folder(str(self.folder))

    # Path resolution

    def _names(self, path: str) -> list[str]:
        names = self._style.split(path)
        if not self._windows or not names:
            return names
        root, *rest = names
        if root == PIPES:
            return ["pipe", *(name.replace("/", "\\") for name in rest)]
        if root.startswith("\\\\"):
            return ["UNC", *root[2:].split("\\"), *rest]
        return [root.rstrip(":"), *rest]

    @contextmanager
    def _at(self, path: str, *, follow: bool = True, make: int | None = None) -> Iterator[_Place]:
        """Converts errors to those of the node's operating system, for this path."""
        opened: list[int] = []
        try:
            yield self._walk(path, opened, follow, make)
        except OSError as problem:
            if problem.errno is None or windows_error_code(problem) or problem.filename == path:
                raise
            raise self._translated(problem, path) from problem
        finally:
            for fd in opened:
                os.close(fd)

    def _translated(self, problem: OSError, path: str) -> OSError:
        try:
            return self._style.error(problem.errno or errno.EIO, path)
        except KeyError:
            return OSError(problem.errno, problem.strerror, path)

    @contextmanager
    def _new(self, path: str) -> Iterator[_Place]:
        with self._at(path, follow=False) as place:
            self._check_name(place.name, path)
            if place.found is not None:
                raise self._style.error(errno.EEXIST, path)
            yield place

    @contextmanager
    def _opened(self, path: str, flags: int) -> Iterator[int]:
        with self._at(path) as place:
            if place.found is None:
                raise self._style.error(errno.ENOENT, path)
            fd = pinning.reopen_descriptor(place.fd, flags)
            try:
                yield fd
            finally:
                os.close(fd)

    def _walk(self, path: str, opened: list[int], follow: bool, make: int | None) -> _Place:
        left = list(reversed(self._names(path)))
        way, names = [self._root], list[str]()  # directories from the root down to the current one
        links = 0
        while left:
            name = left.pop()
            if name in ("", "."):
                continue
            if name == "..":
                if names:
                    names.pop()
                    way.pop()
                continue
            name, fd = self._look(way[-1], name)
            if fd < 0:
                if not left:
                    return self._bounded(_Place(way[-1], name, None, [*names, name]), path)
                if make is None or ".." in left:  # a missing directory has no parent to return to
                    raise self._style.error(errno.ENOENT, path, parent=True)
                self._require_inside([*names, name], path)
                self._make_directory(way[-1], name, make, path)
                name, fd = self._look(way[-1], name)
            opened.append(fd)
            found = os.fstat(fd)
            if stat.S_ISLNK(found.st_mode):
                if not left and not follow:
                    return self._bounded(_Place(way[-1], name, found, [*names, name], fd), path)
                links += 1
                if links > _LINKS:
                    raise self._style.error(errno.ELOOP, path)
                target = os.readlink("", dir_fd=fd)
                if target.startswith("/"):
                    way, names = [self._root], []
                    target = self._inside(target)
                left += reversed(target.split("/"))
                continue
            if not left:
                return self._bounded(_Place(way[-1], name, found, [*names, name], fd), path)
            if not stat.S_ISDIR(found.st_mode):
                raise self._style.error(errno.ENOTDIR, path)
            way.append(fd)
            names.append(name)
        here = os.open(".", _LOOK, dir_fd=way[-1])
        opened.append(here)
        return self._bounded(_Place(way[-1], ".", os.fstat(here), names, here), path)

    def _bounded(self, place: _Place, path: str) -> _Place:
        self._require_inside(place.names, path)
        return place

    def _require_inside(self, names: list[str], path: str) -> None:
        if names[: len(self._boundary)] != self._boundary:
            raise self._style.error(errno.EACCES, path)

    def _look(self, directory: int, name: str) -> tuple[str, int]:
        """Its name as spelled there, and a descriptor, -1 if it does not exist."""
        try:
            return name, os.open(name, _LOOK, dir_fd=directory)
        except FileNotFoundError:
            if not self._windows:
                return name, -1
        folded = name.lower()
        for other in os.listdir(f"/proc/self/fd/{directory}"):
            if other.lower() == folded:
                with suppress(FileNotFoundError):
                    return other, os.open(other, _LOOK, dir_fd=directory)
        return name, -1

    def _make_directory(self, parent: int, name: str, mode: int, path: str) -> None:
        self._check_name(name, path)
        os.mkdir(name, dir_fd=parent)
        _set_mode(parent, name, 0o777 if self._windows else mode)

    def _create(self, place: _Place, data: bytes, mode: int, path: str) -> None:
        self._check_name(place.name, path)
        if self._windows:
            mode = 0o666 if mode & 0o200 else 0o444
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(place.name, flags, mode, dir_fd=place.directory)
        try:
            os.fchmod(fd, mode)
            _write_all(fd, data)
        except OSError:
            os.unlink(place.name, dir_fd=place.directory)
            raise
        finally:
            os.close(fd)

    def _replace(self, place: _Place, data: bytes, path: str) -> None:
        """Writes in place: it may be mounted somewhere. Space is allocated first, so that a full
        disk changes nothing.
        """
        if place.is_directory:
            raise self._style.error(errno.EISDIR, path)
        assert place.found is not None, "it is there"
        if self._windows and not place.found.st_mode & 0o200:
            raise self._style.error(errno.EACCES, path)
        fd = pinning.reopen_descriptor(place.fd, os.O_WRONLY)
        try:
            if stat.S_ISREG(place.found.st_mode):
                size = place.found.st_size
                if len(data) > size:
                    _reserve(fd, size, len(data))
                _write_all(fd, data)
                os.ftruncate(fd, len(data))
            else:
                _write_all(fd, data)
        finally:
            os.close(fd)

    def _check_name(self, name: str, path: str) -> None:
        if name not in (".", ".."):
            self._style.check_name(name, path)

    # Link targets

    def _stored_target(self, target: str) -> str:
        if not self._windows:
            return target
        if target.startswith(("\\", "/")) or target[1:2] == ":":
            return str(self.folder.joinpath(*self._names(target)))
        return target.replace("\\", "/")

    def _shown_target(self, stored: str) -> str:
        if not self._windows:
            return stored
        prefix = f"{self.folder}/"
        if not stored.startswith(prefix):
            return stored.replace("/", "\\")
        first, *rest = stored[len(prefix) :].split("/")
        if first == "UNC":
            return "\\\\" + "\\".join(rest)
        return "\\".join([PIPES if first == "pipe" else f"{first}:", *rest])

    def _inside(self, target: str) -> str:
        """An absolute target, relative to the root directory."""
        prefix = f"{self.folder}/"
        return target.removeprefix(prefix) if self._windows else target


class _Appender:
    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __call__(self, data: bytes) -> None:
        _write_all(self._fd, data)

    def __del__(self) -> None:
        os.close(self._fd)


def _set_mode(parent: int, name: str, mode: int) -> None:
    """For a new file: its mode was reduced by the umask."""
    fd = os.open(name, _LOOK, dir_fd=parent)
    try:
        if not stat.S_ISLNK(os.fstat(fd).st_mode):  # replaced in the meantime
            os.chmod(f"/proc/self/fd/{fd}", mode)
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _reserve(fd: int, before: int, after: int) -> None:
    try:
        os.posix_fallocate(fd, 0, after)
    except OSError as problem:
        os.ftruncate(fd, before)
        # a file system without this information
        if problem.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
