"""Inodes, and the room they take: what every in-memory file system here is made of.

Ten thousand pods have a few hundred thousand files, so a node has four fields, and what is equal is shared: names, modes
and contents. A tree can be *frozen* (an image, the files of a fresh machine) and then be part of many file systems at once:
who wants to change a frozen node copies it first, with the directories above it. Everything below a frozen node is frozen.
"""

from __future__ import annotations

import stat
import sys
from collections.abc import Mapping
from typing import Final

from transom.hosts.api import Kind
from transom.kit.rpc import Answer

# Above the bits of st_mode.
FROZEN: Final = 1 << 16
GONE: Final = 1 << 17  # no name leads to it any more, but somebody may have it open
MOUNT: Final = 1 << 18  # some tree may have something attached here

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



class Listener:
    """Who answers at a socket; nobody, when the program that made it has ended."""

    __slots__ = ("answer",)

    def __init__(self, answer: Answer) -> None:
        self.answer: Answer | None = answer


Data = dict[str, "Node"] | bytes | bytearray | int | str | Listener | None
"""Of a directory, a file (a number: so many zero bytes), a symlink (its target), a socket in use, anything else."""


class Node:
    """`owner` is the user's id shifted by 32, and the group's; `mode` has the format and the marks above as well."""

    __slots__ = ("data", "mode", "mtime", "owner")

    data: Data

    def __init__(self, name: str, mode: int, data: Data, mtime: float, owner: int = 0) -> None:
        self.mode = _MODES.setdefault(mode, mode)
        self.data = data
        self.mtime = mtime
        self.owner = owner

    def copy(self) -> Node:
        """One that may be changed; what is in a directory is not copied."""
        data = dict(self.data) if type(self.data) is dict else self.data
        return type(self)(self.called(""), self.mode & ~FROZEN, data, self.mtime, self.owner)

    def called(self, key: str) -> str:
        """Its name, given the key under which a directory has it."""
        return key

    def rename(self, name: str) -> None:
        """Only the directory knows it."""


class NamedNode(Node):
    """One in a directory whose keys are not its names, because case does not count there."""

    __slots__ = ("name",)

    def __init__(self, name: str, mode: int, data: Data, mtime: float, owner: int = 0) -> None:
        super().__init__(name, mode, data, mtime, owner)
        self.name = sys.intern(name)

    def called(self, key: str) -> str:
        return self.name

    def rename(self, name: str) -> None:
        self.name = sys.intern(name)


_MODES: dict[int, int] = {}
_CONTENTS: dict[bytes, bytes] = {}
_CONTENTS_KEPT: Final = 256
_CONTENTS_LARGEST: Final = 64 << 10


def shared(data: bytes) -> bytes:
    """The same content as one object: each pod has the same certificate, every node the same hosts file."""
    if len(data) > _CONTENTS_LARGEST:
        return data
    if len(_CONTENTS) >= _CONTENTS_KEPT:
        _CONTENTS.clear()
    return _CONTENTS.setdefault(data, data)


def length(data: Data) -> int:
    """Of a file's content."""
    if type(data) is int:
        return data
    return len(data) if isinstance(data, bytes | bytearray) else 0


def freeze(node: Node) -> Node:
    """From now on nobody changes it or anything in it."""
    if not node.mode & FROZEN:
        mode = node.mode | FROZEN
        node.mode = _MODES.setdefault(mode, mode)
        if type(node.data) is dict:
            for child in node.data.values():
                freeze(child)
        elif isinstance(node.data, bytearray):
            node.data = bytes(node.data)
    return node


class Space:
    """A disk, or memory used as one: how much fits, how much is taken, by whomever. `inodes` 0: they are not counted."""

    __slots__ = ("capacity", "inodes", "inodes_used", "memory", "used")

    def __init__(self, capacity: int, inodes: int = 0, *, memory: bool = False) -> None:
        self.memory = memory
        self.capacity = capacity
        self.inodes = inodes
        self.used = 0
        self.inodes_used = 0

    def take(self, size: int, inodes: int = 0) -> bool:
        """False, and nothing taken, when it does not fit. Negative numbers give back and always fit."""
        used, inodes_used = self.used + size, self.inodes_used + inodes
        if (size > 0 and used > self.capacity) or (inodes > 0 and self.inodes and inodes_used > self.inodes):
            return False
        self.used = used
        self.inodes_used = inodes_used
        return True


class Volume:
    """A part of a disk that is counted by itself: a machine's own files, a container's writable layer."""

    __slots__ = ("inodes", "space", "used")

    def __init__(self, space: Space) -> None:
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
        """All of it."""
        self.space.take(-self.used, -self.inodes)
        self.used = self.inodes = 0
