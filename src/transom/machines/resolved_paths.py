"""Resolved paths and attached trees: the types for walking through a file tree."""

from __future__ import annotations

from transom.machines.inodes import FileVolume, Inode
from transom.machines.styles import PathStyle


class AttachedTree:
    """An attached tree. `mounts` are those of its origin, which are visible through it.

    `style` is set for a network share: its names and permissions are the server's, whatever the
    client's system. `point` is the directory or file that it is mounted on, once it is.
    """

    __slots__ = ("mounts", "node", "point", "read_only", "style", "volume")

    def __init__(
        self,
        node: Inode,
        volume: FileVolume,
        mounts: dict[Inode, AttachedTree],
        read_only: bool = False,
        style: PathStyle | None = None,
    ) -> None:
        self.node = node
        self.volume = volume
        self.mounts = mounts
        self.read_only = read_only
        self.style = style
        self.point: Inode | None = None


class ResolvedPath:
    """A resolved path: the node, if it exists, and the directory that has or would have it under
    the last key.

    `keys[start:]` is the path from the top of the attached tree, without links.
    """

    __slots__ = ("at", "keys", "name", "node", "parent", "path", "start")

    def __init__(
        self,
        path: str,
        at: AttachedTree,
        start: int,
        keys: list[str],
        name: str,
        parent: Inode | None,
        node: Inode | None,
    ) -> None:
        self.path = path
        self.at = at
        self.start = start
        self.keys = keys
        self.name = name
        self.parent = parent
        self.node = node
