"""File trees as plain data, so that the disk of a simulated machine outlives the process.

A tree is saved as the difference from the frozen tree it started from. File contents are stored
next to the JSON document, as bytes. `SavedContents.list_directories` runs on the event loop, a few
milliseconds at a time; `pack_state` does the encoding and may run in a thread.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from transom.kit.lazy import lazy_import
from transom.machines import security
from transom.machines.api import FileTimes
from transom.machines.inodes import (
    FORMAT_MASK,
    FROZEN,
    HIDDEN,
    JUNCTION,
    NOT_ARCHIVE,
    SYSTEM,
    BlockContent,
    HardLink,
    Inode,
    SocketListener,
    link_inode,
    shared,
)
from transom.machines.listing import TreeListing
from transom.machines.styles import PathStyle

if TYPE_CHECKING:
    import orjson
else:  # the stand-ins of Wine containers have only the standard library
    orjson = lazy_import("orjson")

Document = Any
"""JSON data that may contain immutable dataclasses and named tuples: `pack` encodes those."""

_IN_A_ROW: Final = 0.005  # seconds of listing before other tasks run
_MAGIC: Final = b"transom machine 1\n"
# the other flags above st_mode are not part of a disk
_MODE_BITS: Final = 0xFFFF | HIDDEN | SYSTEM | NOT_ARCHIVE | JUNCTION


class DamagedState(ValueError):
    """Saved bytes that cannot be read."""


class SavedContents:
    """File contents that a document refers to by number. Content that several files share is stored
    once.

    Holds trees whose rows are still incomplete until `complete`.
    """

    __slots__ = ("_numbers", "_pending", "items")

    def __init__(self, items: Sequence[bytes] = ()) -> None:
        self.items = list(items)
        self._numbers: dict[int, int] = {}
        self._pending: list[_Capture] = []

    def add(self, data: bytes | bytearray) -> int:
        if type(data) is not bytes:
            data = bytes(data)  # it may grow during the write
        number = self._numbers.get(id(data))
        if number is None:
            number = self._numbers[id(data)] = len(self.items)
            self.items.append(data)
        return number

    def later(self, capture: _Capture) -> None:
        self._pending.append(capture)

    async def list_directories(self) -> None:
        """Lists the directories of all captured trees, as they were when they were captured."""
        for capture in self._pending:
            done = False
            while not done:
                done = capture.listing.advance(_IN_A_ROW)
                await asyncio.sleep(0)

    def complete(self) -> None:
        """Creates the rows of all captured trees. May run in a thread after `list_directories`."""
        pending, self._pending = self._pending, []
        for capture in pending:
            capture.listing.advance(math.inf)
            capture.make_rows(self)

    def discard(self) -> None:
        """Captured trees that are not complete are not needed."""
        for capture in self._pending:
            capture.listing.stop()
        self._pending.clear()


class _Capture:
    """The names and directories of a tree at one moment, so that a file that is moved in the
    meantime is saved exactly once. File contents are read when their row is created, like a kernel
    that writes back dirty pages later.
    """

    __slots__ = ("_base", "_root", "listing", "rows")

    def __init__(self, root: Inode, base: Inode) -> None:
        self.rows: list[Document] = []
        self._root = root
        self._base = base
        self.listing = TreeListing(root)

    def make_rows(self, contents: SavedContents) -> None:
        rows, base, directories = self.rows, self._base, self.listing.entries
        moved: dict[int, list[str]] | None = None
        linked: dict[int, int] = {}  # the first rows of files with several names
        todo: list[tuple[Inode, str, int, Inode | None]] = [(self._root, "", -1, base)]
        while todo:
            node, key, parent, under = todo.pop()
            listed = directories.get(id(node))
            if node.mode & FROZEN and listed is None:
                if node is under:
                    rows.append((parent, key))
                    continue
                moved = _paths(base) if moved is None else moved
                path = moved.get(id(node))
                if path is not None:
                    rows.append((parent, key, path))
                    continue
            data = node.data
            number = len(rows)
            if node.links > 1 and linked.setdefault(id(node.file), number) != number:
                rows.append((parent, key, node.called(key), linked[id(node.file)]))
                continue
            payload: Document = None
            if type(data) is dict:
                entries = listed[1] if listed is not None else list(data.items())
                below = under.data if under is not None and type(under.data) is dict else {}
                todo += [
                    (child, name, number, below.get(name)) for name, child in reversed(entries)
                ]
            elif isinstance(data, bytes | bytearray):
                if not isinstance(data, BlockContent):  # a device's content is not on this disk
                    payload = (contents.add(data),)
            elif data is not None and not isinstance(data, SocketListener):
                payload = data  # a link's target, or the size of a file that is all zeros
            rows.append(
                (
                    parent,
                    key,
                    node.called(key),
                    node.mode & _MODE_BITS,
                    _saved_times(node.mtime),
                    _saved_owner(node),
                    payload,
                )
            )
        directories.clear()


def capture_tree(root: Inode, base: Inode, contents: SavedContents) -> list[Document]:
    """The rows of a tree that began as `base`, parents before children. The list is empty until
    `contents` is completed.

    A row is `[parent, key]` for an entry that is unchanged from `base`, `[parent, key, path]` for a
    part of `base` that was moved, `[parent, key, name, row]` for another name of the file of a
    former row, otherwise `[parent, key, name, mode, mtime, owner, data]`. Mounts
    are not included.
    """
    capture = _Capture(root, base)
    contents.later(capture)
    return capture.rows


def restore_tree(
    rows: Sequence[Document], base: Inode, contents: SavedContents, style: PathStyle
) -> Inode:
    """The tree that `capture_tree` saved. Parts that `base` no longer has are omitted. Raises
    DamagedState.
    """
    contents.complete()
    nodes: list[Inode | None] = []
    unders: list[Inode | None] = []
    kept = contents.items
    try:
        for row in rows:
            parent, key = row[0], row[1]
            above = nodes[parent] if parent >= 0 else None
            under = _child(unders[parent], key) if parent >= 0 else base
            if len(row) == 2:
                node = under
            elif len(row) == 3:
                node = base
                for part in row[2]:
                    node = _child(node, part) if node is not None else None
            elif len(row) == 4:
                node = _linked(nodes, rows, row[3]).another(row[2])
            else:
                _, _, name, mode, mtime, owner, payload = row
                node = style.node(
                    name,
                    mode,
                    _data(mode, payload, kept),
                    _restored_times(mtime),
                    _restored_owner(owner),
                )
            nodes.append(node)
            unders.append(under)
            if parent >= 0 and node is not None and above is not None:
                assert type(above.data) is dict, "a directory"
                above.data[key] = node
    except (IndexError, KeyError, TypeError, ValueError, AttributeError, AssertionError) as problem:
        raise DamagedState(f"a file tree cannot be read: {problem}") from problem
    if not nodes or nodes[0] is None:
        raise DamagedState("a file tree is empty")
    return nodes[0]


def _linked(nodes: list[Inode | None], rows: Sequence[Document], number: int) -> HardLink:
    """The restored file of a row, which now has a further name."""
    node, above, key = nodes[number], nodes[rows[number][0]], rows[number][1]
    assert node is not None and above is not None and type(above.data) is dict
    link = nodes[number] = above.data[key] = link_inode(node, key)
    return link


def _saved_times(mtime: float) -> Document:
    """A number if the other times of the file are the same."""
    if isinstance(mtime, FileTimes):
        return [float(mtime), mtime.accessed, mtime.created]
    return mtime


def _restored_times(saved: Document) -> float:
    return saved if isinstance(saved, float | int) else FileTimes(*saved)


def _saved_owner(node: Inode) -> Document:
    """A number; on Windows an access control list, unless it is one of the predefined ones."""
    if not node.of_windows or node.owner <= security.OPEN:
        return node.owner
    found = security.descriptor_of(node.owner)
    return [found.owner, found.protected, [list(ace) for ace in found.aces]]


def _restored_owner(saved: Document) -> int:
    if isinstance(saved, int):
        return saved
    owner, protected, aces = saved
    return security.number_of(
        security.SecurityDescriptor(owner, tuple(security.Ace(*ace) for ace in aces), protected)
    )


def _data(mode: int, payload: Document, contents: Sequence[bytes]) -> Any:
    if mode & FORMAT_MASK == 0o040000:
        return {}
    return shared(contents[payload[0]]) if isinstance(payload, list | tuple) else payload


def _child(node: Inode | None, key: str) -> Inode | None:
    return node.data.get(key) if node is not None and type(node.data) is dict else None


def _paths(base: Inode) -> dict[int, list[str]]:
    """The path of each node of a frozen tree."""
    out: dict[int, list[str]] = {}
    todo: list[tuple[Inode, list[str]]] = [(base, [])]
    while todo:
        node, path = todo.pop()
        out[id(node)] = path
        if type(node.data) is dict:
            todo += [(child, [*path, key]) for key, child in node.data.items()]
    return out


# ---- bytes ----


def pack_state(document: Document, contents: SavedContents) -> bytes:
    contents.complete()
    head = _dump({"document": document, "sizes": [len(item) for item in contents.items]})
    return b"".join((_MAGIC, b"%d\n" % len(head), head, *contents.items))


def unpack_state(data: bytes) -> tuple[Document, SavedContents]:
    """Raises DamagedState."""
    try:
        if not data.startswith(_MAGIC):
            raise ValueError("not a saved machine, or one of a newer version")
        end = data.index(b"\n", len(_MAGIC))
        at = end + 1 + int(data[len(_MAGIC) : end])
        head = _load(data[end + 1 : at])
        items = []
        for size in head["sizes"]:
            items.append(data[at : at + size])
            at += size
        if at != len(data):
            raise ValueError("it is not complete")
        return head["document"], SavedContents(items)
    except (ValueError, KeyError, TypeError) as problem:
        raise DamagedState(str(problem)) from problem


def _dump(value: Document) -> bytes:
    # not in real containers whose programs import this: they have the standard library only
    try:
        return orjson.dumps(value, default=_plain)
    except TypeError:  # names that are not UTF-8
        return json.dumps(value, default=_plain).encode()


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return tuple(value)  # a named tuple, which orjson does not support
    if isinstance(value, Mapping):
        return dict(value)
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    raise TypeError(f"not for a document: {type(value).__name__}")


def _load(data: bytes) -> Document:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return json.loads(data)
