"""A container's files as one of its processes sees them: relative paths, permissions, devices and
`/proc`.

The tree checks permissions; it is the view of the process's user.
"""

from __future__ import annotations

import errno
import ntpath
import os
import posixpath
from collections.abc import Iterator

from transom.machines import ntfs
from transom.machines.api import Stat
from transom.machines.files import FileTree, MountEntry
from transom.machines.security import READ_DATA, WRITE_DATA, SecurityDescriptor
from transom.machines.styles import WINDOWS
from transom.userland import procfs as virtual
from transom.userland.api import ProgramContext
from transom.userland.limits import MAX_FILE, MAX_TEXT, check_size
from transom.userland.preemption import check_slice
from transom.userland.streams import (
    ByteSink,
    ByteSource,
    BytesSource,
    CallSink,
    EndlessSource,
    PartsSource,
)

_REMOVED_AT_ONCE = 5000  # entries
MAX_POSIX_PATH = 4096  # Linux' PATH_MAX, including the NUL
MAX_PATH = 260  # characters of a path on Windows, unless it begins with \\?\


def decode_text(data: bytes) -> str:
    """The text of a file: UTF-8, or what its byte order mark says."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace")
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")


def windows_error(code: int, path: str) -> OSError:
    return WINDOWS.error(code, path)


def _has_drive(full: str) -> bool:
    return full[1:3] == ":\\"


class FileView:
    __slots__ = ("_context", "_files", "_posix", "_umask", "cwd")

    def __init__(self, context: ProgramContext, cwd: str, umask: int = 0o022) -> None:
        self._context = context
        self._files = context.files
        self._posix = context.os == "linux"
        self._umask = umask
        self.cwd = cwd

    def absolute(self, path: str) -> str:
        check_slice()
        if self._posix:
            return posixpath.normpath(posixpath.join(self.cwd or "/", path)).replace("//", "/")
        path = path.replace("/", "\\")
        if path.startswith("\\\\?\\"):
            return path
        return ntpath.normpath(ntpath.join(self.cwd or "C:\\", path))

    def _full(self, path: str) -> str:
        """The absolute path. Windows programs support 260 characters, including a NUL."""
        full = self.absolute(path)
        if not self._posix and len(full) >= MAX_PATH and not full.startswith("\\\\?\\"):
            raise windows_error(errno.ENAMETOOLONG, path)
        if self._posix and len(full) >= MAX_POSIX_PATH:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)
        return full

    # Reading
    def read(self, path: str) -> bytes:
        full = self._full(path)
        made = virtual.read_procfs(self._context, full) if self._posix else None
        if made is not None:
            return made
        if full in _EMPTY_DEVICES:
            return b""
        check_size(self._files.stat(full).size, MAX_FILE)
        return self._files.read(full)

    def source(self, path: str) -> ByteSource:
        full = self._full(path)
        if full in ("/dev/zero", "/dev/urandom", "/dev/random") and self._posix:
            random = self._context.rng
            return EndlessSource(bytes if full == "/dev/zero" else random.randbytes)
        made = virtual.read_procfs(self._context, full) if self._posix else None
        if made is None and full not in _EMPTY_DEVICES:
            state = self._files.stat(full)
            if state.kind == "file" and state.size > MAX_TEXT:
                self._files.read(full, 0, 1)  # check that the process may read it
                return PartsSource(lambda offset, size: self._files.read(full, offset, size))
        return BytesSource(self.read(path))

    def text(self, path: str) -> str:
        return decode_text(self.read(path))

    # Writing
    def write(self, path: str, data: bytes, mode: int = 0o666) -> None:
        full = self._full(path)
        if full.lower() in _SINK_DEVICES:
            return
        try:
            old = self._files.stat(full)
        except OSError:
            self._files.write(full, data, mode & ~self._umask)
            return
        if old.kind == "directory":
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        self._files.write(full, data, old.mode)

    def append(self, path: str, data: bytes) -> None:
        full = self._full(path)
        if full.lower() in _SINK_DEVICES:
            return
        if self._files.exists(full):
            self._files.append(full, data)
        else:
            self.write(path, data)

    def sink(self, path: str, append: bool = False) -> ByteSink:
        """A file open for writing; it is truncated unless `append`."""
        full = self._full(path)
        if full.lower() in _SINK_DEVICES:
            return CallSink(_forget)
        if full == "/dev/full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        output = virtual.process_output(self._context, full) if self._posix else None
        if output is not None:
            return CallSink(output)
        if append:
            self.append(full, b"")
        else:
            self.write(full, b"")
        return CallSink(lambda data: self._files.append(full, data))

    def mkdir(self, path: str, mode: int = 0o777, *, parents: bool = False) -> None:
        full = self._full(path)
        missing = [full]
        if parents:
            if self._files.exists(full):
                if self._files.stat(full).kind != "directory":
                    raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), path)
                return
            while (
                not self._files.exists(above := self.parent(missing[-1])) and above != missing[-1]
            ):
                missing.append(above)
                check_slice()
        for directory in reversed(missing):
            self._files.mkdir(directory, mode & ~self._umask, parents=False)
            check_slice()

    def remove(self, path: str, *, recursive: bool = False) -> None:
        full = self._full(path)
        if recursive and self._files.exists(full):
            self._remove_large(full)
        self._files.remove(full, recursive=recursive)

    def _remove_large(self, full: str) -> None:
        """The content of a tree that is too large to be removed in one step."""
        found: list[str] = []
        todo = [full]
        while todo:
            path = todo.pop()
            found.append(path)
            if self._files.stat(path, follow=False).kind == "directory":
                todo += [self.join(path, name) for name in self._files.listdir(path)]
            check_slice()
        if len(found) > _REMOVED_AT_ONCE:
            for path in reversed(found[1:]):
                self._files.remove(path)
                check_slice()

    def rename(self, old: str, new: str) -> None:
        source, target = self._full(old), self._full(new)
        self._files.rename(source, target)

    def symlink(self, target: str, path: str) -> None:
        full = self._full(path)
        self._files.symlink(target, full)

    def link(self, existing: str, path: str) -> None:
        """Another name for a file."""
        self._files.link(self._full(existing), self._full(path))

    def link_count(self, path: str) -> int:
        try:
            return self._files.link_count(self._full(path))
        except OSError:
            return 1  # of a virtual file

    def make_pipe(self, path: str) -> None:
        full = self._full(path)
        self._files.make(full, "pipe", 0o666 & ~self._umask)

    def chmod(self, path: str, mode: int) -> None:
        full = self._full(path)
        self._files.chmod(full, mode)

    def chown(self, path: str, uid: int, gid: int) -> None:
        self._files.chown(self._full(path), uid, gid)

    def set_times(
        self,
        path: str,
        written: float | None = None,
        accessed: float | None = None,
        created: float | None = None,
    ) -> None:
        self._files.set_times(self._full(path), written, accessed, created)

    def mount_table(self) -> list[MountEntry]:
        """Linux: what is mounted, the root first."""
        tree = self._files
        return tree.mount_table() if isinstance(tree, FileTree) else []

    # Windows only

    @property
    def _ntfs(self) -> FileTree | None:
        return None if self._posix else self._context.windows.ntfs

    def _tree(self, path: str) -> FileTree:
        tree = self._ntfs
        if tree is None:
            raise OSError(errno.ENOTSUP, "The request is not supported.", path)
        return tree

    def junction(self, target: str, path: str) -> None:
        """A link to a directory of a local volume."""
        tree, full = self._ntfs, self._full(path)
        if tree is None:
            self._files.symlink(self.absolute(target), full)
        else:
            tree.junction(self.absolute(target), full)

    def is_junction(self, path: str) -> bool:
        tree = self._ntfs
        return tree is not None and tree.is_junction(self._full(path))

    def hard_links(self, path: str) -> list[str]:
        """All names of a file, as paths."""
        return ntfs.hard_links(self._tree(path), self._full(path))

    def descriptor(self, path: str) -> SecurityDescriptor:
        """The access control list."""
        return ntfs.security_descriptor(self._tree(path), self._full(path))

    def set_descriptor(self, path: str, wanted: SecurityDescriptor) -> None:
        ntfs.set_security_descriptor(self._tree(path), self._full(path), wanted)

    def take_ownership(self, path: str, sid: str) -> None:
        """Administrators may do this regardless of the access control list."""
        full = self._full(path)
        ntfs.take_ownership(self._tree(path), full, sid)

    def attributes(self, path: str, *, follow: bool = True) -> str:
        """Those of A, S, H and R that are set."""
        tree = self._ntfs
        if tree is not None:
            return ntfs.file_attributes(tree, self._full(path), follow=follow)
        state = self.stat(path, follow=follow)
        return ("A" if state.kind == "file" else "") + ("" if state.mode & 0o200 else "R")

    def copy(self, source: str, target: str) -> None:
        """As CopyFile: the content, the time of the last write, and the attributes."""
        state = self.stat(source)
        self.write(target, self.read(source))
        if target.lower() == "nul" or self.stat(target).kind != "file":
            return
        self.set_times(target, state.mtime)
        on = self.attributes(source)
        self.set_attributes(target, on, "".join(set("ASHR") - set(on)))

    def set_attributes(self, path: str, on: str = "", off: str = "") -> None:
        tree = self._ntfs
        if tree is not None:
            ntfs.set_file_attributes(tree, self._full(path), on, off)
        elif "R" in on + off:
            self.chmod(path, 0o444 if "R" in on else 0o666)

    def short_name(self, path: str) -> str:
        return ntfs.short_name(self._tree(path), self._full(path))

    def real_path(self, path: str) -> str:
        """The path with its names as the directories have them; a short name becomes the long one."""
        full, tree = self.absolute(path), self._ntfs
        if tree is None or not _has_drive(full):
            return full
        shown = full[:2].upper() + "\\"
        for name in full[3:].split("\\"):
            if name:
                shown = self.join(shown, ntfs.real_name(tree, self.join(shown, name)))
        return shown

    def add_drive(self, letter: str, target: str) -> None:
        """A drive letter for a directory or share."""
        self._tree(letter).add_drive(letter, target)

    def remove_drive(self, letter: str) -> None:
        self._tree(letter).remove_root(letter)

    def drive_targets(self) -> dict[str, str]:
        """The drives that `add_drive` made."""
        tree = self._ntfs
        return tree.drive_targets() if tree is not None else {}

    def drives(self) -> list[str]:
        tree = self._ntfs
        return ntfs.drive_letters(tree) if tree is not None else ["C:"]

    def space(self, path: str) -> tuple[int, int]:
        """The capacity and free space of the drive of a path."""
        tree = self._ntfs
        if tree is not None:
            return tree.space(self._full(path))
        resources = self._context.windows.resources
        return resources.disk, resources.disk_free

    def make_profile(self, path: str, sid: str) -> None:
        """Creates a user's profile directory if it does not exist."""
        own = self._ntfs
        if own is not None and not own.exists(path):
            tree = own.as_user(None)
            tree.mkdir(path)
            tree.make_private(path, sid)
            for name in (
                "Desktop",
                "Documents",
                "Downloads",
                r"AppData\Local\Temp",
                r"AppData\Roaming",
            ):
                tree.mkdir(rf"{path}\{name}")

    # Looking
    def stat(self, path: str, *, follow: bool = True) -> Stat:
        full = self._full(path)
        made = virtual.stat_procfs(self._context, full) if self._posix else None
        if made is not None and not self._files.exists(full):
            return made
        return self._files.stat(full, follow=follow)

    def exists(self, path: str) -> bool:
        try:
            self.stat(path)
        except OSError:
            return False
        return True

    def is_directory(self, path: str) -> bool:
        try:
            return self.stat(path).kind == "directory"
        except OSError:
            return False

    def listdir(self, path: str) -> list[str]:
        full = self._full(path)
        made = virtual.list_procfs(self._context, full) if self._posix else None
        if made is not None:
            return made
        return sorted(self._files.listdir(full))

    def readlink(self, path: str) -> str:
        return self._files.readlink(self._full(path))

    def usage(self, path: str) -> tuple[int, int]:
        return self._files.usage(self._full(path))

    def in_memory(self, path: str) -> bool:
        """Whether it is on a tmpfs."""
        return self._files.in_memory(self.absolute(path))

    def may(self, path: str, want: int) -> bool:
        """Whether the process may read (4), write (2) or run (1) it."""
        try:
            state = self.stat(path)
        except OSError:
            return False
        context = self._context
        tree = self._ntfs
        if tree is not None:
            rights = (
                (READ_DATA if want & 4 else 0)
                | (WRITE_DATA if want & 2 else 0)
                | (0x20 if want & 1 else 0)
            )
            return ntfs.may_access(tree, self._full(path), rights)
        if not self._posix or context.credentials.uid == 0:
            return not want & 1 or not self._posix or bool(state.mode & 0o111)
        shift = (
            6
            if state.uid == context.credentials.uid
            else 3
            if state.gid == context.credentials.gid or state.gid in context.credentials.groups
            else 0
        )
        return want & ~(state.mode >> shift) & 7 == 0

    def walk(self, path: str) -> Iterator[tuple[str, Stat]]:
        """All entries of a tree with their paths, parents first; links are not followed."""
        todo = [path]
        while todo:
            path = todo.pop()
            state = self.stat(path, follow=False)
            yield path, state
            if state.kind == "directory":
                todo += [self.join(path, name) for name in reversed(self.listdir(path))]

    def join(self, directory: str, name: str) -> str:
        separator = "/" if self._posix else "\\"
        return (
            directory + name if directory.endswith(("/", "\\")) else f"{directory}{separator}{name}"
        )

    def parent(self, full: str) -> str:
        return posixpath.dirname(full) if self._posix else ntpath.dirname(full)

    def base(self, path: str) -> str:
        return (
            posixpath.basename(path.rstrip("/"))
            if self._posix
            else ntpath.basename(path.rstrip("\\/"))
        )


_EMPTY_DEVICES = frozenset(("/dev/null", "NUL", "C:\\NUL"))
_SINK_DEVICES = frozenset(("/dev/null", "/dev/zero", "nul", "c:\\nul"))


def _forget(data: bytes) -> None:
    return


def error_text(error: OSError) -> str:
    """The text of the errno, as programs print it."""
    return os.strerror(error.errno) if error.errno else str(error)
