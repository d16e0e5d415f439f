"""A file system that belongs to no machine: a disk or share of a storage system, which any machine
can mount.

It is in memory, in the style of the operating system that created it, and has a capacity in bytes.
"""

from __future__ import annotations

from typing import Final

from transom.machines.inodes import FORMAT, DiskQuota, FileVolume, Inode
from transom.machines.resolved_paths import AttachedTree
from transom.machines.saving import Document, SavedContents, capture_tree, restore_tree
from transom.machines.styles import POSIX, WINDOWS, PathStyle

_DIRECTORY: Final = FORMAT["directory"]
_EMPTY: Final = Inode("", _DIRECTORY, {}, 0.0)


class _CountedVolume(FileVolume):
    """Counts changes, so that the code that stores the content knows whether it changed."""

    __slots__ = ("changes",)

    def __init__(self, space: DiskQuota) -> None:
        super().__init__(space)
        self.changes = 0

    def take(self, size: int, inodes: int = 0) -> bool:
        self.changes += 1
        return super().take(size, inodes)


class FileSystem:
    """`share`: it is served over the network, and machines of any operating system can mount it."""

    __slots__ = ("root", "share", "space", "style", "volume")

    def __init__(
        self,
        style: PathStyle,
        size: int,
        now: float,
        *,
        share: bool = False,
        root: Inode | None = None,
    ) -> None:
        self.style = style
        self.share = share
        self.space = DiskQuota(size)
        self.volume = _CountedVolume(self.space)
        # Everyone may write: on Windows that is a separate flag.
        self.root = root or style.node(
            "", _DIRECTORY | 0o777, {}, now, 0 if style.has_owners else 1
        )

    @property
    def changes(self) -> int:
        """Increases with every change of the content."""
        return self.volume.changes

    def attached(self, mounts: dict[Inode, AttachedTree], read_only: bool = False) -> AttachedTree:
        """As a tree with these mounts sees it."""
        return AttachedTree(
            self.root, self.volume, mounts, read_only, self.style if self.share else None
        )

    def copy(self, size: int, now: float) -> FileSystem:
        """A copy with the same content."""
        out = FileSystem(
            self.style,
            max(size, self.space.capacity),
            now,
            share=self.share,
            root=_copied(self.root),
        )
        out.volume.take(self.volume.used, self.volume.inodes)
        return out

    def save(self, contents: SavedContents) -> Document:
        return {
            "style": "windows" if self.style is WINDOWS else "linux",
            "size": self.space.capacity,
            "used": self.volume.used,
            "inodes": self.volume.inodes,
            "rows": capture_tree(self.root, _EMPTY, contents),
        }

    @classmethod
    def restored(cls, saved: Document, contents: SavedContents) -> FileSystem:
        """Raises DamagedState."""
        style = WINDOWS if saved["style"] == "windows" else POSIX
        out = cls(
            style, saved["size"], 0.0, root=restore_tree(saved["rows"], _EMPTY, contents, style)
        )
        out.volume.take(saved["used"], saved["inodes"])
        return out


def _copied(node: Inode) -> Inode:
    out = node.copy()
    if type(out.data) is dict:
        out.data = {key: _copied(child) for key, child in out.data.items()}
    elif isinstance(out.data, bytearray):
        out.data = bytes(out.data)
    return out
