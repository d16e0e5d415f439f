"""Inodes and their space accounting: the basis of every in-memory file system here.

Ten thousand pods have a few hundred thousand files, so a node has four fields, and equal values are
shared: names, modes and contents. A tree can be *frozen* (an image, the files of a fresh machine)
and then be part of many file systems at once: changing a frozen node first copies it and the
directories above it. Everything below a frozen node is frozen.
"""

from __future__ import annotations

import stat
import sys
from collections.abc import Mapping
from typing import Final

from transom.kit.rpc import Answer
from transom.machines.api import FileTimes, Kind

# Above the bits of st_mode.
FROZEN: Final = 1 << 16
GONE: Final = 1 << 17  # it has no name any more, but a process may have it open
MOUNT: Final = 1 << 18  # some tree may have a mount here
HIDDEN: Final = 1 << 19  # Windows attributes; read-only means that no account may write
SYSTEM: Final = 1 << 20
NOT_ARCHIVE: Final = 1 << 21
JUNCTION: Final = 1 << 22  # a link of Windows that is not a symbolic link

FORMAT: Mapping[Kind, int] = {
    "file": stat.S_IFREG,
    "directory": stat.S_IFDIR,
    "symlink": stat.S_IFLNK,
    "socket": stat.S_IFSOCK,
    "pipe": stat.S_IFIFO,
    "char": stat.S_IFCHR,
    "block": stat.S_IFBLK,
}
KIND: Mapping[int, Kind] = {bits: kind for kind, bits in FORMAT.items()}
FORMAT_MASK: Final = 0o170000


class SocketListener:
    """The program that listens on a socket; none when the program that created it has ended."""

    __slots__ = ("answer",)

    def __init__(self, answer: Answer) -> None:
        self.answer: Answer | None = answer


Data = dict[str, "Inode"] | bytes | bytearray | int | str | SocketListener | None
"""The data of a directory, a file (a number: that many zero bytes), a symlink (its target), a socket in use,
anything else.
"""


class Inode:
    """`owner` is the uid shifted by 32, plus the gid; `mode` includes the file type and the flags
    above.
    """

    __slots__ = ("data", "mode", "mtime", "owner")

    data: Data
    mode: int
    mtime: float
    owner: int

    def __init__(self, name: str, mode: int, data: Data, mtime: float, owner: int = 0) -> None:
        self.mode = _MODES.setdefault(mode, mode)
        self.data = data
        self.mtime = mtime
        self.owner = owner

    def copy(self) -> Inode:
        """A mutable copy; the content of a directory is not copied."""
        data = dict(self.data) if type(self.data) is dict else self.data
        return type(self)(self.called(""), self.mode & ~FROZEN, data, self.mtime, self.owner)

    def change(self, now: float) -> None:
        """Its content changes now."""
        self.mtime = now

    def called(self, key: str) -> str:
        """Its name, given its key in a directory."""
        return key

    def rename(self, name: str) -> None:
        """Only the directory has the name."""

    @property
    def of_windows(self) -> bool:
        """Whether its owner is an access control list."""
        return False

    @property
    def file(self) -> Inode:
        """The file itself; hard links to one file have the same."""
        return self

    @property
    def links(self) -> int:
        """The number of names that the file has."""
        return 1

    def unlink(self) -> bool:
        """One of its names is removed. Returns whether it was the last one."""
        return True


def created_at(mtime: float) -> float:
    return mtime.created if isinstance(mtime, FileTimes) else mtime


class NamedInode(Inode):
    """A node in a directory whose keys are not its names, because names are case-insensitive
    there.
    """

    __slots__ = ("name",)

    def __init__(self, name: str, mode: int, data: Data, mtime: float, owner: int = 0) -> None:
        super().__init__(name, mode, data, mtime, owner)
        self.name = sys.intern(name)

    def change(self, now: float) -> None:
        if now != self.mtime:
            self.mtime = FileTimes(now, now, created_at(self.mtime))

    def called(self, key: str) -> str:
        return self.name

    def rename(self, name: str) -> None:
        self.name = sys.intern(name)

    @property
    def of_windows(self) -> bool:
        return True


class LinkedFile:
    """A file with several names."""

    __slots__ = ("inode", "links")

    def __init__(self, inode: Inode) -> None:
        self.inode = inode
        self.links = 0


class HardLink(Inode):
    """One of several names of a file. `name` is empty where the directory has it."""

    __slots__ = ("_linked", "_name")

    def __init__(self, name: str, linked: LinkedFile) -> None:
        linked.links += 1
        self._linked = linked
        self._name = sys.intern(name)

    @property
    def data(self) -> Data:
        return self._linked.inode.data

    @data.setter
    def data(self, data: Data) -> None:
        self._linked.inode.data = data

    @property
    def mode(self) -> int:
        return self._linked.inode.mode

    @mode.setter
    def mode(self, mode: int) -> None:
        self._linked.inode.mode = mode

    @property
    def mtime(self) -> float:
        return self._linked.inode.mtime

    @mtime.setter
    def mtime(self, mtime: float) -> None:
        self._linked.inode.mtime = mtime

    def change(self, now: float) -> None:
        self._linked.inode.change(now)

    @property
    def owner(self) -> int:
        return self._linked.inode.owner

    @owner.setter
    def owner(self, owner: int) -> None:
        self._linked.inode.owner = owner

    def copy(self) -> Inode:
        """A file of its own: copying a file to a writable layer breaks its links."""
        copied = self._linked.inode.copy()
        if self._name:
            copied.rename(self._name)
        return copied

    def called(self, key: str) -> str:
        return self._name or key

    def rename(self, name: str) -> None:
        if self._name:
            self._name = sys.intern(name)

    @property
    def of_windows(self) -> bool:
        return bool(self._name)

    @property
    def file(self) -> Inode:
        return self._linked.inode

    @property
    def links(self) -> int:
        return self._linked.links

    def another(self, name: str) -> HardLink:
        return HardLink(name if self._name else "", self._linked)

    def unlink(self) -> bool:
        self._linked.links -= 1
        return self._linked.links == 0


def link_inode(node: Inode, key: str) -> HardLink:
    """What replaces a file's entry in its directory before it gets a second name."""
    if isinstance(node, HardLink):
        return node
    return HardLink(node.called(key) if node.of_windows else "", LinkedFile(node))


_MODES: dict[int, int] = {}
_CONTENTS: dict[bytes, bytes] = {}
_CONTENTS_KEPT: Final = 256
_CONTENTS_LARGEST: Final = 64 << 10


def shared(data: bytes) -> bytes:
    """Interns equal content as one object: each pod has the same certificate, every node the same
    hosts file.
    """
    if len(data) > _CONTENTS_LARGEST:
        return data
    if len(_CONTENTS) >= _CONTENTS_KEPT:
        _CONTENTS.clear()
    return _CONTENTS.setdefault(data, data)


class FileContent(bytearray):
    """Content that can grow, with accounting: the files of all machines share the memory of one
    process.
    """

    __slots__ = ("__weakref__",)
    LIMIT = 512 << 20
    held = 0

    def grow(self, data: bytes) -> bool:
        """Returns False, and adds nothing, when all files together would exceed the memory
        limit.
        """
        if FileContent.held + len(data) > FileContent.LIMIT:
            return False
        FileContent.held += len(data)
        self += data
        return True

    def __del__(self) -> None:
        FileContent.held -= len(self)


class BlockContent(bytearray):
    """The content of a block device as far as it was written; zeros follow, up to `size`."""

    def __init__(self, size: int, content: bytes = b"") -> None:
        super().__init__(content)
        self.size = size

    def overwrite(self, data: bytes) -> bool:
        """Writes from the beginning. Returns False, and writes nothing, when it does not fit."""
        if len(data) > self.size:
            return False
        self[: len(data)] = data
        return True


def content_length(data: Data) -> int:
    """The size of a file's content."""
    if type(data) is int:
        return data
    return len(data) if isinstance(data, bytes | bytearray) else 0


def freeze_inode(node: Inode) -> Inode:
    """Makes it and everything in it immutable."""
    if not node.mode & FROZEN:
        mode = node.mode | FROZEN
        node.mode = _MODES.setdefault(mode, mode)
        if type(node.data) is dict:
            for child in node.data.values():
                freeze_inode(child)
        elif isinstance(node.data, bytearray):
            node.data = bytes(node.data)
    return node


class DiskQuota:
    """A disk or tmpfs: its capacity and total usage. `inodes` 0: they are not counted."""

    __slots__ = ("capacity", "inodes", "inodes_used", "installed", "memory", "used")
    MAX_FILES = 250_000  # files use the server's memory, whatever the size of the simulated disk

    def __init__(self, capacity: int, inodes: int = 0, *, memory: bool = False) -> None:
        self.memory = memory
        self.capacity = capacity
        self.inodes = inodes
        self.used = 0
        self.inodes_used = 0
        self.installed = 0  # inodes without a file, only counted

    def install(self, size: int, inodes: int) -> None:
        """The operating system's own disk usage."""
        self.used += size
        self.inodes_used += inodes
        self.installed += inodes

    def take(self, size: int, inodes: int = 0) -> bool:
        """Returns False, and reserves nothing, when it does not fit. Negative numbers release and
        always fit.
        """
        used, inodes_used = self.used + size, self.inodes_used + inodes
        most = self.MAX_FILES + self.installed
        if (size > 0 and used > self.capacity) or (
            inodes > 0 and inodes_used > min(self.inodes or most, most)
        ):
            return False
        self.used = used
        self.inodes_used = inodes_used
        return True


class FileVolume:
    """A separately accounted part of a disk: a machine's own files, a container's writable
    layer.
    """

    __slots__ = ("inodes", "space", "used")

    def __init__(self, space: DiskQuota) -> None:
        self.space = space
        self.used = 0
        self.inodes = 0

    def take(self, size: int, inodes: int = 0) -> bool:
        if not self.space.take(size, inodes):
            return False
        self.used += size
        self.inodes += inodes
        return True

    def release(self) -> None:
        """Releases all of it."""
        self.space.take(-self.used, -self.inodes)
        self.used = self.inodes = 0
