r"""The drives of a Windows container for its own Unix processes: `C:\x` is /wine/drive_c/x in any
spelling.

The kernel enforces permissions. Links are followed everywhere, as Wine does: its own programs in
System32 are links into the installation.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from transom.machines.api import Kind, Stat
from transom.machines.inodes import KIND
from transom.machines.styles import WINDOWS
from transom.runtime.wine import drives

_AT_ONCE: Final = 1 << 20


class Drives:
    """`ContainerFiles` over a prefix."""

    def __init__(self, prefix: Path) -> None:
        self._prefix = prefix

    def unix(self, path: str) -> str:
        """Its actual or prospective path. Raises FileNotFoundError for a drive that does not
        exist.
        """
        if path.replace("/", "\\").removeprefix("\\\\?\\").startswith("\\\\"):
            raise WINDOWS.error(errno.ENOENT, path, parent=True)
        letter, names = drives.split_windows_path(path)
        root = self._prefix / drives.drive_folder(letter)
        if not root.is_dir():
            raise WINDOWS.error(errno.ENOENT, path, parent=True)
        return str(root / drives.spelled_path(root, names))

    def _do(self, path: str, action: Callable[[str], object]) -> object:
        try:
            return action(self.unix(path))
        except OSError as problem:
            raise _translated(problem, path) from problem

    # Reading

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        def action(at: str) -> bytes:
            with open(at, "rb") as file:
                file.seek(offset)
                return file.read(size)

        content = self._do(path, action)
        assert isinstance(content, bytes)
        return content

    def stat(self, path: str, *, follow: bool = True) -> Stat:
        found = self._do(path, os.stat)
        assert isinstance(found, os.stat_result)
        kind = KIND[stat.S_IFMT(found.st_mode)]
        shown = 0o777 if kind == "directory" else 0o666
        writable = found.st_mode & 0o222
        size = found.st_size if kind == "file" else 0
        return Stat(kind, shown if writable else shown & 0o555, 0, 0, size, found.st_mtime)

    def exists(self, path: str) -> bool:
        try:
            self.stat(path)
        except OSError:
            return False
        return True

    def listdir(self, path: str) -> list[str]:
        names = self._do(path, os.listdir)
        assert isinstance(names, list)
        return sorted(names, key=str.lower)

    def some_names(self, path: str, most: int) -> list[str]:
        return self.listdir(path)[:most]

    def readlink(self, path: str) -> str:
        raise WINDOWS.error(errno.EINVAL, path)

    def usage(self, path: str) -> tuple[int, int]:
        size = count = 0
        for place, _, files in os.walk(self.unix(path)):
            count += 1 + len(files)
            size += sum(os.lstat(os.path.join(place, name)).st_size for name in files)
        return size, count

    def in_memory(self, path: str) -> bool:
        return False

    # Writing

    def mkdir(self, path: str, mode: int = 0o755, *, parents: bool = True) -> None:
        def action(at: str) -> None:
            if parents:
                os.makedirs(at, exist_ok=True)
            else:
                os.mkdir(at)

        self._do(path, action)

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        self._put(path, data, os.O_TRUNC)

    def append(self, path: str, data: bytes) -> None:
        self._put(path, data, os.O_APPEND)

    def _put(self, path: str, data: bytes, how: int) -> None:
        def action(at: str) -> None:
            fd = os.open(at, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how, 0o666)
            with open(fd, "wb", buffering=_AT_ONCE) as file:
                file.write(data)

        self._do(path, action)

    def appender(self, path: str) -> Callable[[bytes], None]:
        return lambda data: self.append(path, data)

    def symlink(self, target: str, path: str) -> None:
        self._do(path, lambda at: os.symlink(self.unix(target), at))

    def link(self, existing: str, path: str) -> None:
        self._do(path, lambda at: os.link(self.unix(existing), at))

    def link_count(self, path: str) -> int:
        found = self._do(path, os.stat)
        assert isinstance(found, os.stat_result)
        return found.st_nlink

    def make(self, path: str, kind: Kind, mode: int = 0o600) -> None:
        raise WINDOWS.error(errno.EACCES, path)

    def fill(self, directory: str, entries: Sequence[tuple[str, bytes | str, int]]) -> None:
        for name, content, mode in entries:
            if isinstance(content, bytes):
                self.write(f"{directory}\\{name}", content, mode)
            else:
                self.symlink(content, f"{directory}\\{name}")

    def chmod(self, path: str, mode: int) -> None:
        def action(at: str) -> None:
            kept = stat.S_IMODE(os.stat(at).st_mode)
            os.chmod(at, kept | 0o222 if mode & 0o200 else kept & ~0o222)

        self._do(path, action)

    def set_times(
        self,
        path: str,
        written: float | None = None,
        accessed: float | None = None,
        created: float | None = None,
    ) -> None:
        """Linux' file systems have no creation time that can be set."""
        old = self.stat(path)
        times = (
            old.accessed if accessed is None else accessed,
            old.mtime if written is None else written,
        )
        self._do(path, lambda at: os.utime(at, times))

    def chown(self, path: str, uid: int, gid: int) -> None:
        raise WINDOWS.error(errno.EACCES, path)

    def remove(self, path: str, *, recursive: bool = False) -> None:
        def action(at: str) -> None:
            if os.path.isdir(at) and not os.path.islink(at):
                (shutil.rmtree if recursive else os.rmdir)(at)
            elif not recursive or os.path.lexists(at):
                os.unlink(at)

        self._do(path, action)

    def rename(self, old: str, new: str) -> None:
        target = self.unix(new)
        if os.path.isdir(target):
            raise WINDOWS.error(errno.EACCES, new)
        self._do(old, lambda at: shutil.move(at, target))


def _translated(problem: OSError, path: str) -> OSError:
    try:
        return WINDOWS.error(problem.errno or errno.EIO, path)
    except KeyError:
        return OSError(problem.errno, problem.strerror, path)
