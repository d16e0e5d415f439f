"""Frozen trees from tables: what is on the disk of a fresh machine or in an image."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from transom.hosts.api import Kind
from transom.hosts.files import FileTree
from transom.hosts.nodes import FORMAT, Node, Space, freeze
from transom.hosts.styles import NUL, PIPES, WINDOWS, Style

INSTALLED: Final = 1608595200.0  # 2020-12-22: when whoever made the tree did so


class File(NamedTuple):
    data: bytes
    mode: int = 0o644
    uid: int = 0
    gid: int = 0


class Folder(NamedTuple):
    mode: int = 0o755
    uid: int = 0
    gid: int = 0


class Open(NamedTuple):
    """A folder of Windows in which an ordinary user may do as he likes."""


class Link(NamedTuple):
    target: str


class Device(NamedTuple):
    kind: Kind = "char"
    mode: int = 0o666


Entry = File | Folder | Open | Link | Device


def blank(style: Style) -> Node:
    """The root of nothing; on Windows with drive C:, the folder of pipes and the NUL device."""
    folder = FORMAT["directory"] | 0o755
    if style is not WINDOWS:
        return style.node("", folder, {}, INSTALLED)
    roots = (
        style.node("C:", folder, {}, INSTALLED),
        style.node(PIPES, folder, {}, INSTALLED, 1),
        style.node(NUL, FORMAT["char"] | 0o666, None, INSTALLED, 1),
    )
    return style.node("", folder, {node.called("").lower(): node for node in roots}, INSTALLED)


def tree(style: Style, entries: Mapping[str, Entry], base: Node | None = None, mtime: float = INSTALLED) -> Node:
    """Everything in `base` and the entries on top. Folders on the way need no entry."""
    files = FileTree(style, freeze(base or blank(style)), Space(1 << 62), lambda: mtime)
    for path, entry in entries.items():
        _put(files, style.parent(path), path, entry)
    return files.frozen()


def with_share(base: Node, name: str, folders: Iterable[str]) -> Node:
    r"""A Windows tree with a network share (`\\server\share`) beside its drives."""
    folder = FORMAT["directory"] | 0o755
    assert isinstance(base.data, dict), "the root of a tree"
    share = WINDOWS.node(name, folder, {}, INSTALLED)
    root = WINDOWS.node("", folder, {**base.data, name.lower(): share}, INSTALLED)
    return tree(WINDOWS, {rf"{name}\{path}": Folder() for path in folders}, root)


def _put(files: FileTree, parent: str, path: str, entry: Entry) -> None:
    match entry:
        case Folder():
            files.mkdir(path)
            files.chmod(path, entry.mode)
        case Open():
            files.mkdir(path)
            files.grant(path)
        case _:
            files.mkdir(parent)
            match entry:
                case File():
                    files.write(path, entry.data, entry.mode)
                    files.chmod(path, entry.mode)
                case Link():
                    files.symlink(entry.target, path)
                case Device():
                    files.make(path, entry.kind, entry.mode)
    if isinstance(entry, File | Folder) and (entry.uid or entry.gid):
        files.chown(path, entry.uid, entry.gid)
