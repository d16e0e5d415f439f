"""Lists the directories of a tree as they were at one moment, a few at a time.

A tree may have hundreds of thousands of directories, and programs change it between two parts of
the listing. Code that changes a directory calls `keep_listed` before: the listing then has the
entries from before the change. Everything runs on the event loop.
"""

from __future__ import annotations

import time
import weakref

from transom.machines.inodes import FROZEN, Inode

_running: list[weakref.ref[TreeListing]] = []  # a listing that is dropped ends
_IN_A_ROW = 100  # directories between two looks at the clock


class TreeListing:
    """`entries` has the names of all mutable directories, by the id of their node, once `advance`
    has returned True. Holding the nodes prevents the reuse of their ids.
    """

    __slots__ = ("__weakref__", "_reference", "_todo", "entries")

    def __init__(self, root: Inode) -> None:
        self.entries: dict[int, tuple[Inode, list[tuple[str, Inode]]]] = {}
        self._todo = [root]
        self._reference = weakref.ref(self, _forget)
        _running.append(self._reference)

    def advance(self, seconds: float) -> bool:
        """Lists directories for about this long; whether all are listed."""
        end = time.perf_counter() + seconds
        todo = self._todo
        while todo and time.perf_counter() < end:
            for _ in range(min(_IN_A_ROW, len(todo))):
                node = todo.pop()
                self.keep(node)
                kept = self.entries.get(id(node))
                if kept is not None:
                    todo += [child for _, child in kept[1] if type(child.data) is dict]
        if not todo:
            self.stop()
        return not todo

    def keep(self, node: Inode) -> None:
        data = node.data
        if type(data) is dict and not node.mode & FROZEN and id(node) not in self.entries:
            self.entries[id(node)] = (node, list(data.items()))

    def stop(self) -> None:
        """Changes are no longer of interest."""
        _forget(self._reference)


def _forget(reference: weakref.ref[TreeListing]) -> None:
    if reference in _running:
        _running.remove(reference)


def keep_listed(directory: Inode) -> None:
    """Call this before the entries of a directory change."""
    for reference in _running:
        listing = reference()
        if listing is not None:
            listing.keep(directory)
