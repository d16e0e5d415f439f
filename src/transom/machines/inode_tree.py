"""The nodes behind the paths of a file tree.

Resolves paths through directories, links and mounts, as far as the user may search them. Changes
copy shared nodes and account for space.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from copy import copy
from sys import intern
from typing import Final, Self

from transom.machines.inodes import (
    FORMAT,
    FORMAT_MASK,
    FROZEN,
    GONE,
    MOUNT,
    BlockContent,
    Data,
    DiskQuota,
    FileContent,
    FileVolume,
    Inode,
    content_length,
)
from transom.machines.listing import keep_listed
from transom.machines.resolved_paths import AttachedTree, ResolvedPath
from transom.machines.styles import SEARCH, WRITE, FileUser, PathStyle

_LINKS_FOLLOWED: Final = 40
DIRECTORY: Final = FORMAT["directory"]
FILE: Final = FORMAT["file"]
SOCKET: Final = FORMAT["socket"]
NOTHING: Final = Inode("", 0, None, 0.0)
STEP: Final = 20_000  # files that are removed before other tasks may run
COMMON: Final = 32  # characters
_ZEROS_COUNTED: Final = 16 << 20  # above this size, only the size of an all-zero file is stored
_GROWS_IN_PLACE: Final = (
    1024  # shorter content is replaced when it is appended to, which uses less memory
)


class InodeTree:
    """A tree of nodes, as one user sees it."""

    __slots__ = ("_mounts", "_now", "_socket_watchers", "_style", "_top", "_user")

    def __init__(
        self,
        style: PathStyle,
        root: Inode,
        space: DiskQuota,
        now: Callable[[], float],
        *,
        read_only: bool = False,
    ) -> None:
        self._style = style
        self._now = now
        self._user: FileUser | None = None
        self._socket_watchers: tuple[Callable[[], None], ...] = ()
        self._mounts: dict[Inode, AttachedTree] = {}
        self._top = AttachedTree(root, FileVolume(space), self._mounts, read_only)

    def as_user(self, user: FileUser | None) -> Self:
        """The same files as another account sees them. None and user 0 are unrestricted."""
        other = copy(self)
        other._user = user if user is not None and user.uid else None
        return other

    def _walk(
        self, path: str, *, follow: bool = True, make: int | None = None, free: bool = False
    ) -> ResolvedPath:
        """`make`: creates missing parent directories with this mode; `free`: without using
        space.
        """
        names = self._style.split(path)
        for _ in range(_LINKS_FOLLOWED):
            place = self._try(path, names, follow, make, free)
            if type(place) is ResolvedPath:
                return place
            names = place  # type: ignore[assignment]  # the other of the two
        raise self._style.error(errno.ELOOP, path)

    def _try(
        self,
        path: str,
        names: list[str],
        follow: bool,
        make: int | None,
        free: bool,
        keys: list[str] | None = None,
    ) -> ResolvedPath | list[str]:
        """The result, or the names to try instead because of a link or "..", neither before
        these.
        """
        style, user = self._style, self._user
        if keys is None:
            keys = style.fold(names)
        at = self._top
        node, parent, start, last = at.node, None, 0, len(keys) - 1
        for i, key in enumerate(keys):
            data = node.data
            if type(data) is not dict:
                if type(data) is str:
                    return style.follow(names[: i - 1], data) + names[i:]
                raise style.error(errno.ENOTDIR, path)
            if user is not None and not style.may(user, node, SEARCH):
                raise style.error(errno.EACCES, path)
            parent = node
            child = data.get(key)
            if child is None and "~" in key and (alias := style.aliased(data, key)) is not None:
                keys[i], child = alias, data[alias]
            if child is None:
                if key == "..":
                    return names[: max(i - 1, 0)] + names[i + 1 :]
                place = ResolvedPath(path, at, start, keys[: i + 1], names[i], parent, None)
                if i == last:
                    return place
                if make is None or keys[i + 1] == "..":
                    raise style.error(errno.ENOENT, path, parent=True)
                if free:
                    node = self._add(place, DIRECTORY | make, {}, free=True)
                else:
                    node = self._create(place, DIRECTORY | make, {})
                continue
            while child.mode & MOUNT and (mounted := self._mounted(child, at)) is not None:
                at, child, start = mounted, mounted.node, i + 1
                if (
                    mounted.style is not None
                    and (rest := mounted.style.fold(names[i + 1 :])) != keys[i + 1 :]
                ):
                    return self._try(path, names, follow, make, free, keys[: i + 1] + rest)
            node = child
        if follow and type(node.data) is str:
            return style.follow(names[:-1], node.data)
        return ResolvedPath(path, at, start, keys, names[-1] if names else "", parent, node)

    def _seen(self, path: str) -> Inode | None:
        """The node, or `NOTHING`, when the path needs no special handling such as links: true for
        most reads. None means undecided; use `_walk` then.
        """
        if self._user is not None:
            return None
        at = self._top
        node = at.node
        keys = self._style.fold(self._style.split(path))
        for key in keys:
            data = node.data
            if type(data) is not dict:
                return None
            child = data.get(key)
            if child is None:
                certain = (
                    key is keys[-1] and key != ".." and "~" not in key and keys.count(key) == 1
                )
                return NOTHING if certain else None
            while child.mode & MOUNT and (mounted := self._mounted(child, at)) is not None:
                if mounted.style is not None and mounted.style is not self._style:
                    return None
                at, child = mounted, mounted.node
            node = child
        return None if type(node.data) is str else node

    def _there(self, path: str, *, follow: bool = True) -> Inode:
        node = self._seen(path) if follow else None
        if node is None:
            node = self._walk(path, follow=follow).node
        if node is None or node is NOTHING:
            raise self._style.error(errno.ENOENT, path)
        return node

    def _allowed(self, node: Inode, wanted: int, path: str) -> None:
        if self._user is not None and not self._style.may(self._user, node, wanted):
            raise self._style.error(errno.EACCES, path)

    def _mounted(self, node: Inode, at: AttachedTree) -> AttachedTree | None:
        return self._mounts.get(node) or at.mounts.get(node)

    def _entries(self, directory: Inode, path: str) -> dict[str, Inode]:
        """The entries, to be changed."""
        if type(directory.data) is not dict:
            raise self._style.error(errno.ENOTDIR, path)
        keep_listed(directory)
        return directory.data

    # Changes

    def _detachable(self, place: ResolvedPath, node: Inode) -> None:
        """Whether it may be removed from its directory."""
        is_root = len(place.keys) == 1 and not self._style.may_add_root(place.name)
        if place.parent is None or node is place.at.node or is_root:
            raise self._style.error(errno.EBUSY, place.path)
        if place.at.read_only:
            raise self._style.error(errno.EROFS, place.path)
        user, style = self._user, self._style
        if user is not None and not style.may_remove(user, place.parent, node):
            raise style.error(
                errno.EACCES if not style.may(user, place.parent, WRITE | SEARCH) else errno.EPERM,
                place.path,
            )

    def _writable(self, place: ResolvedPath, node: Inode) -> bool:
        """Whether its content may be changed; False where writing has no effect on the file
        system.
        """
        form = node.mode & FORMAT_MASK
        if form == DIRECTORY:
            raise self._style.error(errno.EISDIR, place.path)
        self._allowed(node, WRITE, place.path)
        if form == SOCKET:
            raise self._style.error(errno.ENXIO, place.path)
        if form != FILE:
            return False
        if place.at.read_only:
            raise self._style.error(errno.EROFS, place.path)
        if self._style.write_protected(node):
            raise self._style.error(errno.EACCES, place.path)
        return True

    def _changeable(self, place: ResolvedPath) -> Inode:
        node = place.node
        if node is None:
            raise self._style.error(errno.ENOENT, place.path)
        if place.at.read_only:
            raise self._style.error(errno.EROFS, place.path)
        if self._user is not None and not self._style.owns(self._user, node):
            raise self._style.error(errno.EPERM, place.path)
        self._now()  # the owner of the clock is notified of every change
        return self._own(place, node)

    def _put(self, path: str, data: bytes | int, mode: int) -> None:
        place = self._walk(path)
        node = place.node
        if node is not None and isinstance(node.data, BlockContent):
            self._write_device(place, node.data, data)
        elif node is None:
            self._create(place, FILE | mode, data)
        elif self._writable(place, node):
            size, inodes = self._style.blocks(data), 0
            if node.mode & FROZEN:
                self._own_parent(place)
                inodes = 1
            else:
                size -= self._style.blocks(node.data)
            if not place.at.volume.take(size, inodes):
                raise self._style.error(errno.ENOSPC, path)
            node = self._own(place, node, free=True)
            node.data = data
            node.change(self._now())

    def _write_device(self, place: ResolvedPath, blocks: BlockContent, data: bytes | int) -> None:
        assert place.node is not None
        self._allowed(place.node, WRITE, place.path)
        if place.at.read_only:
            raise self._style.error(errno.EPERM, place.path)
        if not blocks.overwrite(
            data if isinstance(data, bytes) else bytes(min(data, blocks.size + 1))
        ):
            raise self._style.error(errno.ENOSPC, place.path)
        self._now()

    def _extend(self, node: Inode, data: bytes, volume: FileVolume, path: str) -> None:
        old, style = node.data, self._style
        before = content_length(old)
        after = before + len(data)
        if not node.mode & GONE and not volume.take(style.blocks(after) - style.blocks(before)):
            raise style.error(errno.ENOSPC, path)
        if (
            after >= _ZEROS_COUNTED
            and isinstance(old, bytes | bytearray)
            and not _any_set(data)
            and not _any_set(old)
        ):
            node.data = after  # zeros take no memory
        elif isinstance(old, bytes) and after < _GROWS_IN_PLACE:
            node.data = old + data
        elif isinstance(old, bytes | bytearray):
            content = old if isinstance(old, FileContent) else FileContent()
            if not content.grow(data if content is old else bytes(old) + data):
                if not node.mode & GONE:
                    volume.take(style.blocks(before) - style.blocks(after))
                raise style.error(errno.ENOSPC, path)
            node.data = content
        else:
            node.data = after
        node.change(self._now())

    def _create(self, place: ResolvedPath, mode: int, data: Data) -> Inode:
        if place.at.read_only:
            raise self._style.error(errno.EROFS, place.path)
        assert place.parent is not None
        self._allowed(place.parent, WRITE | SEARCH, place.path)
        return self._add(place, mode, data)

    def _add(self, place: ResolvedPath, mode: int, data: Data, *, free: bool = False) -> Inode:
        style = place.at.style or self._style
        style.check_name(place.name, place.path)
        if len(place.keys) == 1 and not style.may_add_root(place.name):
            raise style.error(errno.ENOENT, place.path, parent=True)
        parent = self._own_parent(place, free=free)
        if parent.mode & GONE:
            raise style.error(errno.ENOENT, place.path)
        owner = style.created_by(self._user, parent)
        if mode & FORMAT_MASK == DIRECTORY:
            mode |= parent.mode & 0o2000
        if place.at.style is not None:
            mode |= 0o777  # like file_mode and dir_mode of a CIFS mount
        now = self._now()
        node = style.node(place.name, mode, data, now, owner)
        if not (free and place.at is self._top) and not place.at.volume.take(style.blocks(data), 1):
            raise style.error(errno.ENOSPC, place.path)
        self._entries(parent, place.path)[kept_key(place.keys[-1])] = node
        parent.change(now)
        return node

    def _own_parent(self, place: ResolvedPath, *, free: bool = False) -> Inode:
        if place.parent is not None and not place.parent.mode & FROZEN:
            return place.parent
        return self._copy_up(place, len(place.keys) - 1, free=free)

    def _own(self, place: ResolvedPath, node: Inode, *, free: bool = False) -> Inode:
        """The node, or a copy in its place if other trees share it."""
        return self._copy_up(place, len(place.keys), free=free) if node.mode & FROZEN else node

    def _copy_up(self, place: ResolvedPath, end: int, *, free: bool) -> Inode:
        at = place.at
        free = free and at is self._top
        node = at.node
        if node.mode & FROZEN:
            node = at.node = self._copy(node, at.volume, place.path, free)
        for key in place.keys[place.start : end]:
            entries = self._entries(node, place.path)
            child = entries[key]
            if child.mode & FROZEN:
                child = self._copy(child, at.volume, place.path, free)
                entries[kept_key(key)] = child
            node = child
        return node

    def _copy(self, node: Inode, volume: FileVolume, path: str, free: bool) -> Inode:
        if not free and not volume.take(self._style.blocks(node.data), 1):
            raise self._style.error(errno.ENOSPC, path)
        return node.copy()

    def _drop(self, node: Inode, volume: FileVolume) -> None:
        """Frees its space; frozen nodes use none here."""
        for _ in self._drop_in_steps(node, volume):
            pass

    def _drop_in_steps(self, node: Inode, volume: FileVolume) -> Iterator[None]:
        size = count = 0
        for number, inner in enumerate(all_inodes(node), 1):
            if number % STEP == 0:
                yield
            if not inner.mode & FROZEN and inner.unlink():
                size += self._style.blocks(inner.data)
                count += 1
                inner.mode |= GONE
        volume.take(-size, -count)


def _any_set(data: bytes | bytearray) -> bool:
    return len(data) > 0 and (data[0] != 0 or data[-1] != 0 or data.count(0) != len(data))


def all_inodes(node: Inode) -> Iterator[Inode]:
    """A node and everything below it, parents first; without recursion, for trees of any depth."""
    todo = [node]
    while todo:
        node = todo.pop()
        yield node
        if type(node.data) is dict:
            todo += node.data.values()


def kept_key(key: str) -> str:
    """The key for a directory. Interns short ones, which many directories share (`volumes`,
    `token`), but not long ones (ids).
    """
    return intern(key) if len(key) < COMMON else key
