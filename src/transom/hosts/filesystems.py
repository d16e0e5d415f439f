"""A file system that is no machine's own: a disk or share of some storage, mounted by one machine or by another.

It lies in memory, in the style of the operating system that made it, and has room for so many bytes.
"""

from __future__ import annotations

from typing import Final

from transom.hosts.nodes import FORMAT, Node, Space, Volume
from transom.hosts.places import Attached
from transom.hosts.styles import Style

_DIRECTORY: Final = FORMAT["directory"]


class FileSystem:
    __slots__ = ("root", "space", "style", "volume")

    def __init__(self, style: Style, size: int, now: float) -> None:
        self.style = style
        self.space = Space(size)
        self.volume = Volume(self.space)
        # Everybody may write: on Windows that is a mark of its own.
        self.root = style.node("", _DIRECTORY | 0o777, {}, now, 0 if style.has_owners else 1)

    def attached(self, mounts: dict[Node, Attached], read_only: bool = False) -> Attached:
        """As a tree with these mounts sees it."""
        return Attached(self.root, self.volume, mounts, read_only)

    def copy(self, size: int, now: float) -> FileSystem:
        """One of its own with the same content."""
        out = FileSystem(self.style, max(size, self.space.capacity), now)
        out.root = _copied(self.root)
        out.volume.take(self.volume.used, self.volume.inodes)
        return out


def _copied(node: Node) -> Node:
    out = node.copy()
    if type(out.data) is dict:
        out.data = {key: _copied(child) for key, child in out.data.items()}
    elif isinstance(out.data, bytearray):
        out.data = bytearray(out.data)
    return out
