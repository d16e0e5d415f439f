"""Where a path leads, and what is attached there: what walking through a tree of files deals in."""

from __future__ import annotations

from transom.hosts.nodes import Node, Volume


class Attached:
    """A tree that is seen somewhere. `mounts` are those of where it comes from: they are seen through it."""

    __slots__ = ("mounts", "node", "read_only", "volume")

    def __init__(self, node: Node, volume: Volume, mounts: dict[Node, Attached], read_only: bool = False) -> None:
        self.node = node
        self.volume = volume
        self.mounts = mounts
        self.read_only = read_only


class Place:
    """Where a path leads: the node, if it is there, and the directory that has or would have it under the last key.

    `keys[start:]` lead from the top of what is attached there, without links.
    """

    __slots__ = ("at", "keys", "name", "node", "parent", "path", "start")

    def __init__(
        self, path: str, at: Attached, start: int, keys: list[str], name: str, parent: Node | None, node: Node | None
    ) -> None:
        self.path = path
        self.at = at
        self.start = start
        self.keys = keys
        self.name = name
        self.parent = parent
        self.node = node
