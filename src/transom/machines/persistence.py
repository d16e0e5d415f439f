"""Encodes the tree of one file system as bytes, to keep it in a file of this machine.

A `TreeImage` is captured on the event loop, which is quick because contents are shared; it may be
encoded in a thread. The format is that of `saving`.
"""

from __future__ import annotations

from typing import Any, Final

from transom.kit.named_tuple import NamedTuple
from transom.machines.inodes import FORMAT, Inode
from transom.machines.saving import (
    DamagedState,
    SavedContents,
    capture_tree,
    pack_state,
    restore_tree,
    unpack_state,
)
from transom.machines.styles import POSIX, WINDOWS, PathStyle

_STYLES: Final[dict[str, PathStyle]] = {"linux": POSIX, "windows": WINDOWS}
_EMPTY: Final = Inode("", FORMAT["directory"], {}, 0.0)

DamagedTree = DamagedState


class TreeImage:
    """A tree at one moment. `details` is for the caller: anything that JSON can represent."""

    __slots__ = ("_contents", "_rows", "details", "style")

    def __init__(
        self, root: Inode, style: PathStyle, details: dict[str, Any] | None = None
    ) -> None:
        self.style = style
        self.details = details or {}
        self._contents = SavedContents()
        self._rows = capture_tree(root, _EMPTY, self._contents)

    def encode(self) -> bytes:
        style = next(name for name, style in _STYLES.items() if style is self.style)
        return pack_state(
            {"style": style, "details": self.details, "rows": self._rows}, self._contents
        )


class StoredTree(NamedTuple):
    root: Inode
    style: PathStyle
    details: dict[str, Any]
    size: int  # bytes on a disk
    inodes: int


def decode_tree(data: bytes) -> StoredTree:
    """Raises DamagedTree."""
    document, contents = unpack_state(data)
    try:
        style = _STYLES[document["style"]]
        root = restore_tree(document["rows"], _EMPTY, contents, style)
        details = document["details"]
    except (KeyError, TypeError) as problem:
        raise DamagedTree(f"not a stored tree of files: {problem}") from problem
    size = count = 0
    todo = [root]
    while todo:
        node = todo.pop()
        if type(node.data) is dict:
            todo += node.data.values()
        if node is not root:
            size += style.blocks(node.data)
            count += 1
    return StoredTree(root, style, details, size, count)
