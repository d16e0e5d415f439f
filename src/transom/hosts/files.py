"""`Files` in memory, for Linux and Windows machines and for containers on them.

One class does the work; a `Style` has the paths, error texts and permissions of the operating system. A tree starts from a
frozen one that many share and copies what it changes. Other trees can be attached to a directory or a file of it: a tmpfs, or
a part of another tree, which is then the same files, not a copy. Links are followed in the view of the tree that is asked.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from sys import intern
from typing import Final, Self

from transom.hosts.api import Kind, Stat
from transom.hosts.filesystems import FileSystem
from transom.hosts.nodes import (
    FORMAT,
    FORMAT_MASK,
    FROZEN,
    GONE,
    MOUNT,
    Data,
    Listener,
    Node,
    Space,
    Volume,
    freeze,
    length,
    shared,
)
from transom.hosts.places import Attached, Place
from transom.hosts.styles import READ, SEARCH, WRITE, Style, User
from transom.kit.rpc import Answer

_LINKS_FOLLOWED: Final = 40
_DIRECTORY: Final = FORMAT["directory"]
_FILE: Final = FORMAT["file"]
_LINK: Final = FORMAT["symlink"]
_SOCKET: Final = FORMAT["socket"]
_NOTHING: Final = Node("", 0, None, 0.0)
_STICKY: Final = 0o1000  # as /tmp is: only owners take things out
_COMMON: Final = 32  # characters
_GROWS_IN_PLACE: Final = 1024  # shorter content is replaced when it is added to, which takes less memory


class FileTree:
    __slots__ = ("_mounts", "_now", "_socket_watchers", "_style", "_top", "_user")

    def __init__(self, style: Style, root: Node, space: Space, now: Callable[[], float], *, read_only: bool = False) -> None:
        self._style = style
        self._now = now
        self._user: User | None = None
        self._socket_watchers: tuple[Callable[[], None], ...] = ()
        self._mounts: dict[Node, Attached] = {}
        self._top = Attached(root, Volume(space), self._mounts, read_only)

    def as_user(self, user: User | None) -> Self:
        """The same files as somebody else sees them. None, and user 0, may do everything."""
        other = copy(self)
        other._user = user if user is not None and user.uid else None
        return other

    # Reading

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        node = self._there(path)
        self._allowed(node, READ, path)
        data = node.data
        if type(data) is dict:
            raise self._style.error(errno.EISDIR, path)
        if node.mode & FORMAT_MASK == _SOCKET:
            raise self._style.error(errno.ENXIO, path)
        if type(data) is bytes and offset == 0 and size < 0:
            return data
        end = length(data) if size < 0 else min(length(data), offset + size)
        if isinstance(data, bytes | bytearray):
            return bytes(memoryview(data)[offset:end])
        return bytes(max(0, end - offset))

    def readlink(self, path: str) -> str:
        data = self._there(path, follow=False).data
        if type(data) is not str:
            raise self._style.error(errno.EINVAL, path)
        return data

    def stat(self, path: str, *, follow: bool = True) -> Stat:
        return self._style.stat(self._there(path, follow=follow))

    def exists(self, path: str) -> bool:
        try:
            node = self._seen(path)
            return node is not _NOTHING if node is not None else self._walk(path).node is not None
        except OSError:
            return False

    def listdir(self, path: str) -> list[str]:
        node = self._there(path)
        self._allowed(node, READ, path)
        if type(node.data) is not dict:
            raise self._style.error(errno.ENOTDIR, path)
        return [node.data[key].called(key) for key in sorted(node.data)]

    def usage(self, path: str) -> tuple[int, int]:
        size = count = 0
        place = self._walk(path, follow=False)
        if place.node is None:
            raise self._style.error(errno.ENOENT, path)
        for node in _everything(place.node):
            size += self._style.blocks(node.data)
            count += 1
        return size, count

    # Writing

    def mkdir(self, path: str, mode: int = 0o755, *, parents: bool = True) -> None:
        place = self._walk(path, make=mode if parents else None)
        if place.node is None:
            self._create(place, _DIRECTORY | mode, {})
        elif not parents or type(place.node.data) is not dict:
            raise self._style.error(errno.EEXIST, path)

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        self._put(path, shared(data), mode)

    def allocate(self, path: str, size: int, mode: int = 0o644) -> None:
        """As `write` of so many zero bytes, which take room on the disk only. What is added to them reads as zeros too."""
        self._put(path, size, mode)

    def append(self, path: str, data: bytes) -> None:
        place = self._walk(path)
        node = place.node
        if node is None:
            self._create(place, _FILE | 0o644, data)
        elif self._writable(place, node):
            self._extend(self._own(place, node), data, place.at.volume, path)

    def appender(self, path: str) -> Callable[[bytes], None]:
        """Adds to the file that the path now leads to, whatever becomes of the path: an open log."""
        if not self.exists(path):
            self.write(path, b"")
        place = self._walk(path)
        node = place.node
        if node is None or not self._writable(place, node):
            return _discard
        node = self._own(place, node)
        return lambda data: self._extend(node, data, place.at.volume, path)

    def symlink(self, target: str, path: str) -> None:
        place = self._walk(path, follow=False)
        if place.node is not None:
            raise self._style.error(errno.EEXIST, path)
        self._create(place, _LINK | 0o777, target)

    def make(self, path: str, kind: Kind, mode: int = 0o600) -> None:
        place = self._walk(path, follow=False)
        if place.node is not None:
            raise self._style.error(errno.EEXIST, path)
        self._create(place, FORMAT[kind] | mode, {} if kind == "directory" else b"" if kind == "file" else None)

    def fill(self, directory: str, entries: Sequence[tuple[str, bytes | str, int]]) -> None:
        place = self._walk(directory)
        style, node = self._style, place.node
        if node is None or node.mode & GONE:
            raise style.error(errno.ENOENT, directory)
        if place.at.read_only:
            raise style.error(errno.EROFS, directory)
        self._allowed(node, WRITE | SEARCH, directory)
        node = self._own(place, node)
        there = self._entries(node, directory)
        owner, now = style.created_by(self._user, node), self._now()
        for name, content, mode in entries:
            path = style.join(directory, name)
            style.check_name(name, path)
            (key,) = style.fold([name])
            if key in there:  # by another name that is the same here
                if type(content) is str:
                    raise style.error(errno.EEXIST, path)
                self.write(path, content, mode)  # type: ignore[arg-type]
                continue
            if not place.at.volume.take(style.blocks(content), 1):
                raise style.error(errno.ENOSPC, path)
            if type(content) is str:
                there[_kept(key)] = style.node(name, _LINK | 0o777, content, now, owner)
            else:
                there[_kept(key)] = style.node(name, _FILE | mode, shared(content), now, owner)  # type: ignore[arg-type]
        node.mtime = now

    def chmod(self, path: str, mode: int) -> None:
        place = self._walk(path)
        node = self._changeable(place)
        node.mode = self._style.changed_mode(node, mode)

    def chown(self, path: str, uid: int, gid: int) -> None:
        """-1 leaves as it is."""
        node = self._changeable(self._walk(path))
        if not self._style.has_owners:
            raise self._style.error(errno.ENOTSUP, path)
        uid = node.owner >> 32 if uid < 0 else uid
        gid = node.owner & 0xFFFFFFFF if gid < 0 else gid
        node.owner = uid << 32 | gid

    def grant(self, path: str) -> None:
        """On Windows: ordinary users may change it, and what will be in it."""
        self._changeable(self._walk(path)).owner = 1

    def remove(self, path: str, *, recursive: bool = False) -> None:
        try:
            place = self._walk(path, follow=False)
        except FileNotFoundError:
            if recursive:
                return
            raise
        node = place.node
        if node is None:
            if recursive:
                return
            raise self._style.error(errno.ENOENT, path)
        self._detachable(place, node)
        if node.data and type(node.data) is dict and not recursive:
            raise self._style.error(errno.ENOTEMPTY, path)
        for inner in _everything(node):
            if inner.mode & MOUNT and self._mounted(inner, place.at) is not None:
                raise self._style.error(errno.EBUSY, path)
            if self._user is not None and inner.data and type(inner.data) is dict:
                self._allowed(inner, WRITE | SEARCH, path)
        directory = self._own_parent(place)
        del self._entries(directory, path)[place.keys[-1]]
        directory.mtime = self._now()
        self._drop(node, place.at.volume)
        if type(node.data) is Listener:
            self._sockets_changed()

    def rename(self, old: str, new: str) -> None:
        source, target = self._walk(old, follow=False), self._walk(new, follow=False)
        node, there = source.node, target.node
        if node is None:
            raise self._style.error(errno.ENOENT, old)
        self._detachable(source, node)
        if there is not None:
            if there is node and source.name == target.name:
                return
            if there is not node:
                self._detachable(target, there)
                self._style.check_replace(node, there, new)
        elif target.at.read_only:
            raise self._style.error(errno.EROFS, new)
        if source.at is not target.at:
            raise self._style.error(errno.EXDEV, new)
        if type(node.data) is dict and target.keys[: len(source.keys)] == source.keys and target.keys != source.keys:
            raise self._style.error(errno.EINVAL, new)
        assert target.parent is not None
        self._allowed(target.parent, WRITE | SEARCH, new)
        self._style.check_name(target.name, new)
        directory = self._own_parent(source)
        del self._entries(directory, old)[source.keys[-1]]
        directory.mtime = self._now()
        if node.called(target.name) != target.name:
            if node.mode & FROZEN:
                node = self._copy(node, source.at.volume, new, free=False)
            node.rename(target.name)
        directory = self._own_parent(target)
        self._entries(directory, new)[_kept(target.keys[-1])] = node
        directory.mtime = self._now()
        if there is not None and there is not source.node:
            self._drop(there, target.at.volume)

    def add_root(self, name: str) -> None:
        r"""A drive (`D:`) or a share (`\\server\share`) of a Windows machine, writable for everybody."""
        (key,) = self._style.fold(self._style.split(name))
        root = self._style.node(name, _DIRECTORY | 0o777, {}, self._now(), 1)
        place = Place(name, self._top, 0, [key], name, self._top.node, None)
        self._entries(self._own_parent(place), name)[key] = root

    # Sockets

    def listen(self, path: str, answer: Answer) -> Callable[[], None]:
        """A new socket at which somebody answers until the result is called. The file stays, as sockets do."""
        place = self._walk(path, follow=False)
        if place.node is not None:
            raise self._style.error(errno.EEXIST, path)
        listener = Listener(answer)
        self._create(place, _SOCKET | 0o755, listener)
        self._sockets_changed()

        def close() -> None:
            listener.answer = None
            self._sockets_changed()

        return close

    def answerer(self, path: str) -> Answer:
        """Who answers at the socket. ENOENT when there is none, ECONNREFUSED when nobody does."""
        data = self._there(path).data
        if not isinstance(data, Listener) or data.answer is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused", path)
        return data.answer

    def on_sockets(self, function: Callable[[], None]) -> Callable[[], None]:
        """Called when somebody begins or ceases to listen anywhere here, until the result is called."""
        self._socket_watchers += (function,)

        def stop() -> None:
            self._socket_watchers = tuple(other for other in self._socket_watchers if other != function)

        return stop

    def _sockets_changed(self) -> None:
        for function in self._socket_watchers:
            function()

    # Trees in trees

    def mount(self, system: FileSystem, path: str, read_only: bool = False) -> None:
        """The directory shows a file system from elsewhere until `unmount`. EINVAL for one of another operating system."""
        place = self._walk(path)
        if system.style is not self._style:
            raise self._style.error(errno.EINVAL, path)
        if place.node is None or type(place.node.data) is not dict:
            raise self._style.error(errno.ENOENT if place.node is None else errno.ENOTDIR, path)
        self._attach(path, system.attached(self._mounts, read_only))

    def new_file_system(self, size: int) -> FileSystem:
        """An empty one that this machine could mount."""
        return FileSystem(self._style, size, self._now())

    def mount_tmpfs(self, path: str, size: int) -> None:
        """The directory is in memory from now on; what it had before is hidden until `unmount`."""
        place = self._walk(path)
        node = place.node
        if node is None or type(node.data) is not dict:
            raise self._style.error(errno.ENOENT if node is None else errno.ENOTDIR, path)
        node = self._own(place, node)
        root = self._style.node("", _DIRECTORY | 0o1777, {}, self._now())
        node.mode |= MOUNT
        self._mounts[node] = Attached(root, Volume(Space(size, memory=True)), self._mounts)

    def unmount(self, path: str) -> None:
        """What was mounted there, last, is gone."""
        place = self._walk(path)
        for point, attached in self._mounts.items():
            if attached is place.at and attached.node is place.node:
                del self._mounts[point]
                return
        raise self._style.error(errno.EINVAL, path)

    def is_mount(self, path: str) -> bool:
        place = self._walk(path)
        if place.node is None:
            raise self._style.error(errno.ENOENT, path)
        return place.at is not self._top and place.node is place.at.node

    def in_memory(self, path: str) -> bool:
        """Whether it is on a tmpfs."""
        return self._walk(path).at.volume.space.memory

    def drop_memory(self) -> None:
        """Every tmpfs is gone, as after a reboot."""
        self._mounts.clear()

    def frozen(self) -> Node:
        """All of it, to be shared from now on; this tree goes on as one of those who share it."""
        return freeze(self._top.node)

    def share(self, path: str, read_only: bool = False) -> Attached:
        """A part of this tree for `attach` in another, whatever becomes of the path here."""
        place = self._walk(path)
        if place.node is None:
            raise self._style.error(errno.ENOENT, path)
        node = self._own(place, place.node)
        return Attached(node, place.at.volume, self._mounts, read_only or place.at.read_only)

    def _attach(self, path: str, what: Attached) -> None:
        """Makes the place for it where there is none; that takes no room here."""
        place = self._walk(path, make=0o755, free=True)
        if place.node is not None:
            node = self._own(place, place.node, free=True)
        elif type(what.node.data) is dict:
            node = self._add(place, _DIRECTORY | 0o755, {}, free=True)
        else:
            node = self._add(place, _FILE | 0o644, b"", free=True)
        node.mode |= MOUNT
        self._mounts[node] = what

    # How it is done

    def _walk(self, path: str, *, follow: bool = True, make: int | None = None, free: bool = False) -> Place:
        """`make`: directories on the way that are missing are made with this mode; `free`: that takes no room."""
        names = self._style.split(path)
        for _ in range(_LINKS_FOLLOWED):
            place = self._try(path, names, follow, make, free)
            if type(place) is Place:
                return place
            names = place  # type: ignore[assignment]  # the other of the two
        raise self._style.error(errno.ELOOP, path)

    def _try(self, path: str, names: list[str], follow: bool, make: int | None, free: bool) -> Place | list[str]:
        """Where they lead, or the names to try instead, because of a link or "..", neither before these."""
        style, user = self._style, self._user
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
            if child is None:
                if key == "..":
                    return names[: max(i - 1, 0)] + names[i + 1 :]
                place = Place(path, at, start, keys[: i + 1], names[i], parent, None)
                if i == last:
                    return place
                if make is None or keys[i + 1] == "..":
                    raise style.error(errno.ENOENT, path, parent=True)
                if free:
                    node = self._add(place, _DIRECTORY | make, {}, free=True)
                else:
                    node = self._create(place, _DIRECTORY | make, {})
                continue
            while child.mode & MOUNT and (mounted := self._mounted(child, at)) is not None:
                at, child, start = mounted, mounted.node, i + 1
            node = child
        if follow and type(node.data) is str:
            return style.follow(names[:-1], node.data)
        return Place(path, at, start, keys, names[-1] if names else "", parent, node)

    def _seen(self, path: str) -> Node | None:
        """The node, or `_NOTHING`, where nothing on the way needs a second look, as a link would: so it is with most of what
        is only read. None says nothing, `_walk` does."""
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
                return _NOTHING if key is keys[-1] and key != ".." and keys.count(key) == 1 else None
            while child.mode & MOUNT and (mounted := self._mounted(child, at)) is not None:
                at, child = mounted, mounted.node
            node = child
        return None if type(node.data) is str else node

    def _there(self, path: str, *, follow: bool = True) -> Node:
        node = self._seen(path) if follow else None
        if node is None:
            node = self._walk(path, follow=follow).node
        if node is None or node is _NOTHING:
            raise self._style.error(errno.ENOENT, path)
        return node

    def _allowed(self, node: Node, wanted: int, path: str) -> None:
        if self._user is not None and not self._style.may(self._user, node, wanted):
            raise self._style.error(errno.EACCES, path)

    def _mounted(self, node: Node, at: Attached) -> Attached | None:
        return self._mounts.get(node) or at.mounts.get(node)

    def _entries(self, directory: Node, path: str) -> dict[str, Node]:
        if type(directory.data) is not dict:
            raise self._style.error(errno.ENOTDIR, path)
        return directory.data

    def _detachable(self, place: Place, node: Node) -> None:
        """It may be taken out of its directory."""
        if place.parent is None or node is place.at.node:
            raise self._style.error(errno.EBUSY, place.path)
        if place.at.read_only:
            raise self._style.error(errno.EROFS, place.path)
        self._allowed(place.parent, WRITE | SEARCH, place.path)
        user, owns = self._user, self._style.owns
        if user is not None and place.parent.mode & _STICKY and not owns(user, node) and not owns(user, place.parent):
            raise self._style.error(errno.EPERM, place.path)

    def _writable(self, place: Place, node: Node) -> bool:
        """Its content may be changed; False where writing has no effect that a file system knows of."""
        form = node.mode & FORMAT_MASK
        if form == _DIRECTORY:
            raise self._style.error(errno.EISDIR, place.path)
        self._allowed(node, WRITE, place.path)
        if form == _SOCKET:
            raise self._style.error(errno.ENXIO, place.path)
        if form != _FILE:
            return False
        if place.at.read_only:
            raise self._style.error(errno.EROFS, place.path)
        if self._style.write_protected(node):
            raise self._style.error(errno.EACCES, place.path)
        return True

    def _changeable(self, place: Place) -> Node:
        node = place.node
        if node is None:
            raise self._style.error(errno.ENOENT, place.path)
        if place.at.read_only:
            raise self._style.error(errno.EROFS, place.path)
        if self._user is not None and not self._style.owns(self._user, node):
            raise self._style.error(errno.EPERM, place.path)
        return self._own(place, node)

    def _put(self, path: str, data: bytes | int, mode: int) -> None:
        place = self._walk(path)
        node = place.node
        if node is None:
            self._create(place, _FILE | mode, data)
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
            node.mtime = self._now()

    def _extend(self, node: Node, data: bytes, volume: Volume, path: str) -> None:
        old, style = node.data, self._style
        before = length(old)
        after = before + len(data)
        if not node.mode & GONE and not volume.take(style.blocks(after) - style.blocks(before)):
            raise style.error(errno.ENOSPC, path)
        if isinstance(old, bytearray):
            old.extend(data)
        elif isinstance(old, bytes):
            node.data = old + data if after < _GROWS_IN_PLACE else bytearray(old) + data
        else:
            node.data = after
        node.mtime = self._now()

    def _create(self, place: Place, mode: int, data: Data) -> Node:
        if place.at.read_only:
            raise self._style.error(errno.EROFS, place.path)
        assert place.parent is not None
        self._allowed(place.parent, WRITE | SEARCH, place.path)
        return self._add(place, mode, data)

    def _add(self, place: Place, mode: int, data: Data, *, free: bool = False) -> Node:
        style = self._style
        style.check_name(place.name, place.path)
        if len(place.keys) == 1 and not style.may_add_root(place.name):
            raise style.error(errno.ENOENT, place.path, parent=True)
        parent = self._own_parent(place, free=free)
        if parent.mode & GONE:
            raise style.error(errno.ENOENT, place.path)
        owner = style.created_by(self._user, parent)
        if mode & FORMAT_MASK == _DIRECTORY:
            mode |= parent.mode & 0o2000
        now = self._now()
        node = style.node(place.name, mode, data, now, owner)
        if not (free and place.at is self._top) and not place.at.volume.take(style.blocks(data), 1):
            raise style.error(errno.ENOSPC, place.path)
        self._entries(parent, place.path)[_kept(place.keys[-1])] = node
        parent.mtime = now
        return node

    def _own_parent(self, place: Place, *, free: bool = False) -> Node:
        if place.parent is not None and not place.parent.mode & FROZEN:
            return place.parent
        return self._copy_up(place, len(place.keys) - 1, free=free)

    def _own(self, place: Place, node: Node, *, free: bool = False) -> Node:
        """The node, or a copy in its place if it is shared with other trees."""
        return self._copy_up(place, len(place.keys), free=free) if node.mode & FROZEN else node

    def _copy_up(self, place: Place, end: int, *, free: bool) -> Node:
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
                entries[_kept(key)] = child
            node = child
        return node

    def _copy(self, node: Node, volume: Volume, path: str, free: bool) -> Node:
        if not free and not volume.take(self._style.blocks(node.data), 1):
            raise self._style.error(errno.ENOSPC, path)
        return node.copy()

    def _drop(self, node: Node, volume: Volume) -> None:
        """The room it took is free; what is frozen took none here."""
        size = count = 0
        for inner in _everything(node):
            if not inner.mode & FROZEN:
                size += self._style.blocks(inner.data)
                count += 1
                inner.mode |= GONE
        volume.take(-size, -count)


def _everything(node: Node) -> Iterator[Node]:
    yield node
    if type(node.data) is dict:
        for child in node.data.values():
            yield from _everything(child)


def _kept(key: str) -> str:
    """The key for a directory. Short ones are the same in many (`volumes`, `token`), long ones (ids) are not."""
    return intern(key) if len(key) < _COMMON else key


def _discard(data: bytes) -> None:
    """What goes to a device goes nowhere."""
