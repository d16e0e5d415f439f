"""`Files` over a real folder: what a kubelet writes there, containers can mount.

A node's paths begin at the folder: `/etc/hosts` is FOLDER/etc/hosts, `C:\\var` is FOLDER/C/var, `\\\\server\\share` is
FOLDER/UNC/server/share and `\\\\.\\pipe\\x` FOLDER/pipe/x. Links are followed inside the folder only, whatever a container
may have put into a volume, and whenever: every step is taken from an open directory, so nothing can be exchanged under it.

On a Windows node the case of names does not count, and links keep their meaning for programs that see the folder as it is:
their targets are written with `/`, and those with a drive as the real path.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from transom.hosts import mounting
from transom.hosts.api import Kind, Stat
from transom.hosts.nodes import FORMAT, KIND
from transom.hosts.styles import NUL, PIPES, POSIX, WINDOWS, Style

_LINKS: Final = 40
_LOOK: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_DEVICES: Final = {"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9, "kmsg": 11}


class _Place:
    """Where a path leads: an open directory, the name in it, and what it is, None for nothing. No link, unless asked."""

    __slots__ = ("directory", "found", "name", "names")

    def __init__(self, directory: int, name: str, found: os.stat_result | None, names: list[str]) -> None:
        self.directory = directory
        self.name = name
        self.found = found
        self.names = names  # from the folder on, as they are written there

    @property
    def is_directory(self) -> bool:
        return self.found is not None and stat.S_ISDIR(self.found.st_mode)


class RealFiles:
    def __init__(self, folder: Path, style: Style = POSIX) -> None:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        self.folder = folder.resolve()
        self._style = style
        self._windows = style is WINDOWS
        self._root = os.open(self.folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        if self._windows:
            for name in ("C", "pipe"):
                (self.folder / name).mkdir(exist_ok=True)

    def close(self) -> None:
        root, self._root = self._root, -1
        if root >= 0:
            os.close(root)

    # For those who mount

    def real(self, path: str) -> str:
        """Where it is on this machine. Somebody may put a link there afterwards: better `open` it."""
        with self._at(path) as place:
            return str(self.folder.joinpath(*place.names))

    def open(self, path: str) -> int:
        """A descriptor that names it and can do nothing else (O_PATH). The caller closes it."""
        with self._at(path) as place:
            if place.found is None:
                raise self._style.error(errno.ENOENT, path)
            return os.open(place.name, _LOOK, dir_fd=place.directory)

    # Reading

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        with self._opened(path, os.O_RDONLY) as fd:
            if stat.S_ISDIR(os.fstat(fd).st_mode):
                raise self._style.error(errno.EISDIR, path)
            if size >= 0:
                return os.pread(fd, size, offset)
            pieces = []
            while piece := os.pread(fd, 1 << 20, offset):
                pieces.append(piece)
                offset += len(piece)
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

    def usage(self, path: str) -> tuple[int, int]:
        with self._at(path, follow=False) as place:
            if place.found is None:
                raise self._style.error(errno.ENOENT, path)
            return _usage(place.directory, place.name, place.found)

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
                device = os.makedev(5, 0) if place.name == "tty" else os.makedev(1, _DEVICES.get(place.name, 3))
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
        """-1 leaves as it is. Who is not root leaves everything: all containers are then the same user."""
        if not self._style.has_owners:
            raise self._style.error(errno.ENOTSUP, path)
        fd = self.open(path)
        try:
            if os.geteuid() == 0:
                os.chown(f"/proc/self/fd/{fd}", uid, gid)
        finally:
            os.close(fd)

    def grant(self, path: str) -> None:
        """Everybody may change it."""
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
                    shutil.rmtree(place.name, dir_fd=place.directory)
                else:
                    os.rmdir(place.name, dir_fd=place.directory)
        except FileNotFoundError as problem:
            if not recursive:
                raise (problem if problem.errno else self._style.error(errno.ENOENT, path)) from None

    def rename(self, old: str, new: str) -> None:
        with self._at(old, follow=False) as source, self._at(new, follow=False) as target:
            if source.found is None:
                raise self._style.error(errno.ENOENT, old)
            self._check_name(target.name, new)
            there = target.found
            if self._windows and there is not None and there.st_ino != source.found.st_ino and not stat.S_ISREG(there.st_mode):
                raise self._style.error(errno.EACCES, new)
            os.rename(source.name, target.name, src_dir_fd=source.directory, dst_dir_fd=target.directory)

    # File systems in memory

    def mount_tmpfs(self, path: str, size: int) -> None:
        """Where this process may not mount, the directory stays as it is."""
        with suppress(PermissionError), self._opened(path, os.O_RDONLY | os.O_DIRECTORY) as fd:
            mounting.mount("tmpfs", f"/proc/self/fd/{fd}", "tmpfs", 0, f"size={size},mode=1777")

    def unmount(self, path: str) -> None:
        if self.is_mount(path):
            mounting.unmount(self.real(path))

    def is_mount(self, path: str) -> bool:
        with self._at(path) as place:
            if place.found is None:
                raise self._style.error(errno.ENOENT, path)
            point = str(self.folder.joinpath(*place.names))
        return point != str(self.folder) and any(entry.point == point for entry in mounting.mounts(str(self.folder)))

    def drop_memory(self) -> None:
        """Every tmpfs is gone, as after a reboot; not the folder itself, which may be mounted on itself in one."""
        for entry in reversed(mounting.mounts(str(self.folder))):
            if entry.kind == "tmpfs" and entry.point != str(self.folder):
                mounting.unmount(entry.point)

    def share_mounts(self) -> None:
        """What is mounted below the folder from now on is seen by containers that ask for it, and what they mount is seen
        here. OSError where this process may not."""
        folder = str(self.folder)
        if not any(entry.point == folder and entry.shared for entry in mounting.mounts(folder)):
            mounting.mount(folder, folder, "", mounting.BIND | mounting.RECURSIVE)
            mounting.mount("none", folder, "", mounting.PRIVATE)
            mounting.mount("none", folder, "", mounting.SHARED)
            self._reopen()

    def _reopen(self) -> None:
        """The folder as it is now that something is mounted on it."""
        os.close(self._root)
        self._root = os.open(self.folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def destroy(self) -> None:
        """Everything, with what is mounted in it."""
        self.close()
        mounting.unmount_all(str(self.folder))
        shutil.rmtree(self.folder, ignore_errors=True)

    # Ways

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
        """Errors inside become those of the node's operating system, about this path."""
        opened: list[int] = []
        try:
            yield self._walk(path, opened, follow, make)
        except OSError as problem:
            if problem.errno is None or "winerror" in problem.__dict__ or problem.filename == path:
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
            fd = os.open(place.name, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=place.directory)
            try:
                yield fd
            finally:
                os.close(fd)

    def _walk(self, path: str, opened: list[int], follow: bool, make: int | None) -> _Place:
        left = list(reversed(self._names(path)))
        way, names = [self._root], list[str]()  # directories from the folder down to where we are
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
                    return _Place(way[-1], name, None, [*names, name])
                if make is None or ".." in left:  # there is no way back out of what is not there
                    raise self._style.error(errno.ENOENT, path, parent=True)
                self._make_directory(way[-1], name, make, path)
                name, fd = self._look(way[-1], name)
            opened.append(fd)
            found = os.fstat(fd)
            if stat.S_ISLNK(found.st_mode):
                if not left and not follow:
                    return _Place(way[-1], name, found, [*names, name])
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
                return _Place(way[-1], name, found, [*names, name])
            if not stat.S_ISDIR(found.st_mode):
                raise self._style.error(errno.ENOTDIR, path)
            way.append(fd)
            names.append(name)
        return _Place(way[-1], ".", os.stat(".", dir_fd=way[-1]), names)

    def _look(self, directory: int, name: str) -> tuple[str, int]:
        """Its name as it is written there, and a descriptor, -1 for nothing."""
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
        """In its place: it may be mounted somewhere. Room is taken first, so that a full disk changes nothing."""
        if place.is_directory:
            raise self._style.error(errno.EISDIR, path)
        assert place.found is not None, "it is there"
        if self._windows and not place.found.st_mode & 0o200:
            raise self._style.error(errno.EACCES, path)
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        fd = os.open(place.name, flags, dir_fd=place.directory)
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

    # Targets of links

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
        """An absolute target from the folder on."""
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
    """Of what was just made: its mode was cut by the process's mask."""
    fd = os.open(name, _LOOK, dir_fd=parent)
    try:
        if not stat.S_ISLNK(os.fstat(fd).st_mode):  # somebody was quick
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
        if problem.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # a file system that cannot tell
            raise


def _usage(directory: int, name: str, found: os.stat_result) -> tuple[int, int]:
    size, count = found.st_blocks * 512, 1
    if not stat.S_ISDIR(found.st_mode):
        return size, count
    try:
        fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except OSError:
        return size, count  # it has just gone
    try:
        with os.scandir(fd) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    inner = _usage(fd, entry.name, entry.stat(follow_symlinks=False))
                    size += inner[0]
                    count += inner[1]
    finally:
        os.close(fd)
    return size, count
