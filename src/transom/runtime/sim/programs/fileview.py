"""A container's files as one of its processes sees them: relative paths, permissions, devices and `/proc`.

Who may do what is the tree's business; it is handed out as the process's user sees it.
"""

from __future__ import annotations

import errno
import ntpath
import os
import posixpath
from collections.abc import Iterator

from transom.hosts.api import Stat
from transom.runtime.sim.program_api import ProgramContext
from transom.runtime.sim.programs import virtual
from transom.runtime.sim.programs.streams import BytesSource, CallSink, EndlessSource, Sink, Source


class FileView:
    __slots__ = ("_context", "_files", "_posix", "_umask", "cwd")

    def __init__(self, context: ProgramContext, cwd: str, umask: int = 0o022) -> None:
        self._context = context
        self._files = context.files
        self._posix = context.os == "linux"
        self._umask = umask
        self.cwd = cwd

    def absolute(self, path: str) -> str:
        if self._posix:
            return posixpath.normpath(posixpath.join(self.cwd or "/", path)).replace("//", "/")
        path = path.replace("/", "\\")
        if path.lower().startswith("\\\\?\\"):
            path = path[4:]
        return ntpath.normpath(ntpath.join(self.cwd or "C:\\", path))

    # Reading
    def read(self, path: str) -> bytes:
        full = self.absolute(path)
        made = virtual.read(self._context, full) if self._posix else None
        if made is not None:
            return made
        if full in _EMPTY_DEVICES:
            return b""
        return self._files.read(full)

    def source(self, path: str) -> Source:
        full = self.absolute(path)
        if full in ("/dev/zero", "/dev/urandom", "/dev/random") and self._posix:
            random = self._context.rng
            return EndlessSource(bytes if full == "/dev/zero" else random.randbytes)
        return BytesSource(self.read(path))

    def text(self, path: str) -> str:
        return self.read(path).decode("utf-8", "surrogateescape")

    # Writing
    def write(self, path: str, data: bytes, mode: int = 0o666) -> None:
        full = self.absolute(path)
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
        full = self.absolute(path)
        if full.lower() in _SINK_DEVICES:
            return
        if self._files.exists(full):
            self._files.append(full, data)
        else:
            self.write(path, data)

    def sink(self, path: str, append: bool = False) -> Sink:
        """A file open for writing; what was in it is gone unless `append`."""
        full = self.absolute(path)
        if full.lower() in _SINK_DEVICES:
            return CallSink(_forget)
        if full == "/dev/full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        output = virtual.output(self._context, full) if self._posix else None
        if output is not None:
            return CallSink(output)
        if append:
            self.append(full, b"")
        else:
            self.write(full, b"")
        return CallSink(lambda data: self._files.append(full, data))

    def mkdir(self, path: str, mode: int = 0o777, *, parents: bool = False) -> None:
        full = self.absolute(path)
        missing = [full]
        if parents:
            if self._files.exists(full):
                if self._files.stat(full).kind != "directory":
                    raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), path)
                return
            while not self._files.exists(above := self.parent(missing[-1])) and above != missing[-1]:
                missing.append(above)
        for directory in reversed(missing):
            self._files.mkdir(directory, mode & ~self._umask, parents=False)

    def remove(self, path: str, *, recursive: bool = False) -> None:
        full = self.absolute(path)
        self._files.remove(full, recursive=recursive)

    def rename(self, old: str, new: str) -> None:
        source, target = self.absolute(old), self.absolute(new)
        self._files.rename(source, target)

    def symlink(self, target: str, path: str) -> None:
        full = self.absolute(path)
        self._files.symlink(target, full)

    def make_pipe(self, path: str) -> None:
        full = self.absolute(path)
        self._files.make(full, "pipe", 0o666 & ~self._umask)

    def chmod(self, path: str, mode: int) -> None:
        full = self.absolute(path)
        self._files.chmod(full, mode)

    def chown(self, path: str, uid: int, gid: int) -> None:
        self._files.chown(self.absolute(path), uid, gid)

    # Looking
    def stat(self, path: str, *, follow: bool = True) -> Stat:
        full = self.absolute(path)
        made = virtual.stat(self._context, full) if self._posix else None
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
        full = self.absolute(path)
        made = virtual.listdir(self._context, full) if self._posix else None
        if made is not None:
            return made
        return sorted(self._files.listdir(full))

    def readlink(self, path: str) -> str:
        return self._files.readlink(self.absolute(path))

    def usage(self, path: str) -> tuple[int, int]:
        return self._files.usage(self.absolute(path))

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
        if not self._posix or context.uid == 0:
            return not want & 1 or not self._posix or bool(state.mode & 0o111)
        shift = 6 if state.uid == context.uid else 3 if state.gid == context.gid or state.gid in context.groups else 0
        return want & ~(state.mode >> shift) & 7 == 0

    def walk(self, path: str) -> Iterator[tuple[str, Stat]]:
        """A tree, each entry as the path that leads to it, parents first; links are not followed."""
        state = self.stat(path, follow=False)
        yield path, state
        if state.kind == "directory":
            for name in self.listdir(path):
                yield from self.walk(self.join(path, name))

    def join(self, directory: str, name: str) -> str:
        separator = "/" if self._posix else "\\"
        return directory + name if directory.endswith(("/", "\\")) else f"{directory}{separator}{name}"

    def parent(self, full: str) -> str:
        return posixpath.dirname(full) if self._posix else ntpath.dirname(full)

    def base(self, path: str) -> str:
        return posixpath.basename(path.rstrip("/")) if self._posix else ntpath.basename(path.rstrip("\\/"))


_EMPTY_DEVICES = frozenset(("/dev/null", "NUL", "C:\\NUL"))
_SINK_DEVICES = frozenset(("/dev/null", "/dev/zero", "nul", "c:\\nul"))


def _forget(data: bytes) -> None:
    return


def problem(error: OSError) -> str:
    """The errno's text, as programs print it."""
    return os.strerror(error.errno) if error.errno else str(error)
