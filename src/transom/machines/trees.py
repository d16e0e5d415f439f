"""Builds frozen trees from tables: the disk of a fresh machine, or the content of an image."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from transom.kit.named_tuple import NamedTuple
from transom.machines.api import Kind
from transom.machines.files import FileTree
from transom.machines.inodes import FORMAT, DiskQuota, Inode, freeze_inode
from transom.machines.styles import NUL, PIPES, WINDOWS, PathStyle

INSTALLED: Final = 1608595200.0  # 2020-12-22: the tree's timestamp


class TreeFile(NamedTuple):
    data: bytes
    mode: int = 0o644
    uid: int = 0
    gid: int = 0


class TreeFolder(NamedTuple):
    mode: int = 0o755
    uid: int = 0
    gid: int = 0


class TreeOpenFolder(NamedTuple):
    """A Windows directory in which ordinary users may do anything."""


class TreePrivateFolder(NamedTuple):
    """A Windows directory that belongs to one account, by its security identifier."""

    sid: str


class TreeLink(NamedTuple):
    target: str


class TreeDevice(NamedTuple):
    kind: Kind = "char"
    mode: int = 0o666


Entry = TreeFile | TreeFolder | TreeOpenFolder | TreePrivateFolder | TreeLink | TreeDevice


def blank_tree(style: PathStyle) -> Inode:
    """An empty root; on Windows with drive C:, the pipe directory and the NUL device."""
    folder = FORMAT["directory"] | 0o755
    if style is not WINDOWS:
        return style.node("", folder, {}, INSTALLED)
    roots = (
        style.node("C:", folder, {}, INSTALLED),
        style.node(PIPES, folder, {}, INSTALLED, 1),
        style.node(NUL, FORMAT["char"] | 0o666, None, INSTALLED, 1),
    )
    return style.node("", folder, {node.called("").lower(): node for node in roots}, INSTALLED)


def make_tree(
    style: PathStyle,
    entries: Mapping[str, Entry],
    base: Inode | None = None,
    mtime: float = INSTALLED,
) -> Inode:
    """Everything in `base` plus the entries. Parent directories need no entry."""
    files = FileTree(
        style, freeze_inode(base or blank_tree(style)), DiskQuota(1 << 62), lambda: mtime
    )
    for path, entry in entries.items():
        _put(files, style.parent(path), path, entry)
    return files.frozen()


def with_share(base: Inode, name: str, folders: Iterable[str]) -> Inode:
    r"""A Windows tree with a network share (`\\server\share`) in addition to its drives."""
    folder = FORMAT["directory"] | 0o755
    assert isinstance(base.data, dict), "the root of a tree"
    share = WINDOWS.node(name, folder, {}, INSTALLED)
    root = WINDOWS.node("", folder, {**base.data, name.lower(): share}, INSTALLED)
    return make_tree(WINDOWS, {rf"{name}\{path}": TreeFolder() for path in folders}, root)


def _put(files: FileTree, parent: str, path: str, entry: Entry) -> None:
    match entry:
        case TreeFolder():
            files.mkdir(path)
            files.chmod(path, entry.mode)
        case TreeOpenFolder():
            files.mkdir(path)
            files.grant(path)
        case TreePrivateFolder():
            files.mkdir(path)
            files.make_private(path, entry.sid)
        case _:
            files.mkdir(parent)
            match entry:
                case TreeFile():
                    files.write(path, entry.data, entry.mode)
                    files.chmod(path, entry.mode)
                case TreeLink():
                    files.symlink(entry.target, path)
                case TreeDevice():
                    files.make(path, entry.kind, entry.mode)
    if isinstance(entry, TreeFile | TreeFolder) and (entry.uid or entry.gid):
        files.chown(path, entry.uid, entry.gid)
