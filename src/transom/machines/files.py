"""`Files` in memory, for Linux and Windows machines and for containers on them.

One class implements them; a `Style` defines the paths, error texts and permissions of the operating
system. A tree starts from a shared frozen one and copies what it changes. Other trees can be
attached to a directory or a file of it: a tmpfs, or a part of another tree, which is then the same
files, not a copy. Links are resolved in the tree that the caller uses.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

from transom.kit.named_tuple import NamedTuple
from transom.kit.rpc import Answer
from transom.machines import security
from transom.machines.api import DiskSpace, FileTimes, Kind, Stat
from transom.machines.filesystems import FileSystem
from transom.machines.inode_tree import (
    DIRECTORY,
    FILE,
    NOTHING,
    SOCKET,
    STEP,
    InodeTree,
    all_inodes,
    kept_key,
)
from transom.machines.inodes import (
    FORMAT,
    FORMAT_MASK,
    FROZEN,
    GONE,
    JUNCTION,
    MOUNT,
    BlockContent,
    Data,
    DiskQuota,
    FileVolume,
    Inode,
    SocketListener,
    content_length,
    freeze_inode,
    link_inode,
    shared,
)
from transom.machines.resolved_paths import AttachedTree, ResolvedPath
from transom.machines.saving import Document, SavedContents, capture_tree, restore_tree
from transom.machines.styles import READ, SEARCH, WRITE

_LINK: Final = FORMAT["symlink"]


class MountEntry(NamedTuple):
    """A mount of a Linux tree."""

    path: str
    tree: AttachedTree

    @property
    def space(self) -> DiskQuota:
        return self.tree.volume.space


class FileTree(InodeTree):
    __slots__ = ()

    # Reading

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        node = self._there(path)
        self._allowed(node, READ, path)
        data = node.data
        if type(data) is dict:
            raise self._style.error(errno.EISDIR, path)
        if node.mode & FORMAT_MASK == SOCKET:
            raise self._style.error(errno.ENXIO, path)
        if type(data) is bytes and offset == 0 and size < 0:
            return data
        end = content_length(data) if size < 0 else min(content_length(data), offset + size)
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
            return node is not NOTHING if node is not None else self._walk(path).node is not None
        except OSError:
            return False

    def listdir(self, path: str) -> list[str]:
        node = self._there(path)
        return self.some_names(path, len(node.data) if type(node.data) is dict else 0)

    def some_names(self, path: str, most: int) -> list[str]:
        node = self._there(path)
        self._allowed(node, READ, path)
        if type(node.data) is not dict:
            raise self._style.error(errno.ENOTDIR, path)
        keys = sorted(node.data if len(node.data) <= most else islice(node.data, most))
        if type(next(iter(node.data.values()), None)) is Inode:  # keys are names
            return keys
        return [node.data[key].called(key) for key in keys]

    def usage(self, path: str) -> tuple[int, int]:
        size = count = 0
        place = self._walk(path, follow=False)
        if place.node is None:
            raise self._style.error(errno.ENOENT, path)
        linked: set[int] = set()
        for node in all_inodes(place.node):
            if node.links > 1:
                if id(node.file) in linked:
                    continue
                linked.add(id(node.file))
            size += self._style.blocks(node.data)
            count += 1
        return size, count

    def statfs(self, path: str) -> DiskSpace:
        place = self._walk(path)
        if place.node is None:
            raise self._style.error(errno.ENOENT, path)
        space = place.at.volume.space
        return DiskSpace(space.capacity, space.used, space.inodes, space.inodes_used)

    # Writing

    def mkdir(self, path: str, mode: int = 0o755, *, parents: bool = True) -> None:
        place = self._walk(path, make=mode if parents else None)
        if place.node is None:
            self._create(place, DIRECTORY | mode, {})
        elif (
            len(place.keys) == 1
            and type(place.node.data) is not dict
            and not self._style.has_owners
        ):
            raise self._style.error(errno.ENOTDIR, path)  # a device
        elif not parents or type(place.node.data) is not dict:
            raise self._style.error(errno.EEXIST, path)

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        self._put(path, shared(data), mode)

    def allocate(self, path: str, size: int, mode: int = 0o644) -> None:
        """Like `write` of this many zero bytes, which use space on the disk only. Appended data
        reads as zeros too.
        """
        self._put(path, size, mode)

    def append(self, path: str, data: bytes) -> None:
        place = self._walk(path)
        node = place.node
        if node is not None and isinstance(node.data, BlockContent):
            self._write_device(place, node.data, data)
        elif node is None:
            self._create(place, FILE | 0o644, data)
        elif self._writable(place, node):
            self._extend(self._own(place, node), data, place.at.volume, path)

    def appender(self, path: str) -> Callable[[bytes], None]:
        """Appends to the file that the path refers to now, even after a rename: an open log."""
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

    def junction(self, target: str, path: str) -> None:
        """Windows: a link to a directory of a local volume."""
        self.symlink(target, path)
        place = self._walk(path, follow=False)
        assert place.node is not None
        place.node.mode |= JUNCTION

    def is_junction(self, path: str) -> bool:
        return bool(self._there(path, follow=False).mode & JUNCTION)

    def link(self, existing: str, path: str) -> None:
        """Another name for a file, in the same file system."""
        source, target = self._walk(existing, follow=False), self._walk(path, follow=False)
        node = source.node
        if node is None:
            raise self._style.error(errno.ENOENT, existing)
        if target.node is not None:
            raise self._style.error(errno.EEXIST, path)
        if type(node.data) is dict:
            raise self._style.error(errno.EPERM, existing)
        if source.at is not target.at or node.mode & MOUNT:
            raise self._style.error(errno.EXDEV, path)
        if self._user is not None and not self._style.owns(self._user, node):
            raise self._style.error(errno.EPERM, existing)
        link = link_inode(self._own(source, node), source.keys[-1])
        self._entries(self._own_parent(source), existing)[kept_key(source.keys[-1])] = link
        self._create(target, FILE, b"")
        entries = self._entries(self._own_parent(target), path)
        entries[kept_key(target.keys[-1])] = link.another(target.name)
        target.at.volume.take(0, -1)

    def link_count(self, path: str) -> int:
        """The number of names of a file."""
        return self._there(path, follow=False).links

    def make(self, path: str, kind: Kind, mode: int = 0o600) -> None:
        place = self._walk(path, follow=False)
        if place.node is not None:
            raise self._style.error(errno.EEXIST, path)
        self._create(
            place,
            FORMAT[kind] | mode,
            {} if kind == "directory" else b"" if kind == "file" else None,
        )

    def make_device(self, path: str, blocks: BlockContent, mode: int = 0o660) -> None:
        """A block device with content, shared by all its device nodes."""
        place = self._walk(path, follow=False)
        if place.node is not None:
            raise self._style.error(errno.EEXIST, path)
        self._create(place, FORMAT["block"] | mode, None).data = blocks

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
        kept = place.at.style or style
        owner, now = kept.created_by(self._user, node), self._now()
        for name, content, mode in entries:
            path = style.join(directory, name)
            kept.check_name(name, path)
            (key,) = kept.fold([name])
            if key in there:  # by another name that is equivalent here
                if type(content) is str:
                    raise style.error(errno.EEXIST, path)
                self.write(path, content, mode)  # type: ignore[arg-type]
                continue
            if not place.at.volume.take(style.blocks(content), 1):
                raise style.error(errno.ENOSPC, path)
            if type(content) is str:
                there[kept_key(key)] = kept.node(name, _LINK | 0o777, content, now, owner)
            else:
                there[kept_key(key)] = kept.node(name, FILE | mode, shared(content), now, owner)  # type: ignore[arg-type]
        node.change(now)

    def chmod(self, path: str, mode: int) -> None:
        place = self._walk(path)
        node = self._changeable(place)
        node.mode = (place.at.style or self._style).changed_mode(node, mode)
        place.at.volume.take(0)

    def chown(self, path: str, uid: int, gid: int) -> None:
        """-1 leaves it unchanged."""
        place = self._walk(path)
        node = self._changeable(place)
        if not self._style.has_owners:
            raise self._style.error(errno.ENOTSUP, path)
        if place.at.style is not None:
            return  # a share does not have this system's owners
        place.at.volume.take(0)
        uid = node.owner >> 32 if uid < 0 else uid
        gid = node.owner & 0xFFFFFFFF if gid < 0 else gid
        node.owner = uid << 32 | gid

    def set_times(
        self,
        path: str,
        written: float | None = None,
        accessed: float | None = None,
        created: float | None = None,
    ) -> None:
        place = self._walk(path)
        node = self._changeable(place)
        if self._style.write_protected(node):
            raise self._style.error(errno.EACCES, path)
        place.at.volume.take(0)
        old = self._style.stat(node)
        node.mtime = FileTimes(
            float(old.mtime) if written is None else written,
            old.accessed if accessed is None else accessed,
            old.created if created is None else created,
        )

    def give_to_group(self, path: str, group: int, bits: int, directory_bits: int) -> None:
        stat = self.stat(path, follow=False)
        if stat.kind == "symlink":
            return
        if stat.kind == "directory":
            bits |= directory_bits
            for name in self.listdir(path):
                self.give_to_group(
                    self._style.join(path, name), group, bits & ~directory_bits, directory_bits
                )
        self.chown(path, stat.uid, group)
        self.chmod(path, stat.mode | bits)

    def below(self, directory: str) -> FileTree:
        """The same files, restricted to a directory. Do not keep it."""
        return BoundedFiles(self, directory)

    def grant(self, path: str) -> None:
        """Gives ordinary users write access to it, and to its future content."""
        self._changeable(self._walk(path)).owner = security.OPEN

    def make_private(self, path: str, sid: str) -> None:
        """Restricts it, and its future content, to one account and administrators."""
        self._changeable(self._walk(path)).owner = security.private_descriptor(sid)

    def space(self, path: str) -> tuple[int, int]:
        """Capacity and free space of the file system that contains a path."""
        space = self._walk(path).at.volume.space
        return space.capacity, max(0, space.capacity - space.used)

    def remove(self, path: str, *, recursive: bool = False) -> None:
        for _ in self._remove_in_steps(path, recursive):
            pass

    def remove_in_steps(self, path: str) -> Iterator[None]:
        """Like a recursive `remove`, in steps of some thousand files: other tasks may run between
        them, but nothing may use the tree.
        """
        return self._remove_in_steps(path, True)

    def _remove_in_steps(self, path: str, recursive: bool) -> Iterator[None]:
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
        for number, inner in enumerate(all_inodes(node), 1):
            if number % STEP == 0:
                yield
            if inner.mode & MOUNT and self._mounted(inner, place.at) is not None:
                raise self._style.error(errno.EBUSY, path)
            if self._user is not None and type(inner.data) is dict:
                for child in inner.data.values():
                    if not self._style.may_remove(self._user, inner, child):
                        raise self._style.error(errno.EACCES, path)
        directory = self._own_parent(place)
        del self._entries(directory, path)[place.keys[-1]]
        directory.change(self._now())
        yield from self._drop_in_steps(node, place.at.volume)
        if type(node.data) is SocketListener:
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
        if (
            type(node.data) is dict
            and target.keys[: len(source.keys)] == source.keys
            and target.keys != source.keys
        ):
            raise self._style.error(errno.EINVAL, new)
        assert target.parent is not None
        self._allowed(target.parent, WRITE | SEARCH, new)
        self._style.check_name(target.name, new)
        directory = self._own_parent(source)
        del self._entries(directory, old)[source.keys[-1]]
        directory.change(self._now())
        if node.called(target.name) != target.name:
            if node.mode & FROZEN:
                node = self._copy(node, source.at.volume, new, free=False)
            node.rename(target.name)
        directory = self._own_parent(target)
        self._entries(directory, new)[kept_key(target.keys[-1])] = node
        directory.change(self._now())
        target.at.volume.take(0)
        if there is not None and there is not source.node:
            self._drop(there, target.at.volume)

    def add_root(self, name: str) -> None:
        r"""A drive (`D:`) or a share (`\\server\share`) of a Windows machine, writable for all
        accounts.
        """
        (key,) = self._style.fold(self._style.split(name))
        root = self._style.node(name, DIRECTORY | 0o777, {}, self._now(), 1)
        place = ResolvedPath(name, self._top, 0, [key], name, self._top.node, None)
        self._entries(self._own_parent(place), name)[key] = root

    def add_drive(self, letter: str, target: str) -> None:
        r"""Another name for a directory or share until the machine restarts: `subst X: C:\k`."""
        self.add_root(letter)
        (key,) = self._style.fold([letter])
        link = self._style.node(letter, _LINK | 0o777, target, self._now(), security.OPEN)
        self._entries(self._top.node, letter)[key] = link

    def drive_targets(self) -> dict[str, str]:
        """The drives that are names for something else."""
        entries = self._entries(self._top.node, "").items()
        return {node.called(key): node.data for key, node in entries if type(node.data) is str}

    def remove_root(self, name: str) -> None:
        (key,) = self._style.fold(self._style.split(name))
        place = ResolvedPath(name, self._top, 0, [key], name, self._top.node, None)
        self._entries(self._own_parent(place), name).pop(key, None)

    # Sockets

    def listen(self, path: str, answer: Answer) -> Callable[[], None]:
        """A new socket that accepts connections until the result is called. The file stays, as real
        socket files do.
        """
        place = self._walk(path, follow=False)
        if place.node is not None:
            raise self._style.error(errno.EEXIST, path)
        listener = SocketListener(answer)
        self._create(place, SOCKET | 0o755, listener)
        self._sockets_changed()

        def close() -> None:
            listener.answer = None
            self._sockets_changed()

        return close

    def answerer(self, path: str) -> Answer:
        """The program that listens on the socket. Raises ENOENT when the socket does not exist,
        ECONNREFUSED when no program listens.
        """
        data = self._there(path).data
        if not isinstance(data, SocketListener) or data.answer is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused", path)
        return data.answer

    def on_sockets(self, function: Callable[[], None]) -> Callable[[], None]:
        """Calls back when a program starts or stops listening anywhere here, until the result is
        called.
        """
        self._socket_watchers += (function,)

        def stop() -> None:
            self._socket_watchers = tuple(
                other for other in self._socket_watchers if other != function
            )

        return stop

    def _sockets_changed(self) -> None:
        for function in self._socket_watchers:
            function()

    # Mounts

    def mount(self, system: FileSystem, path: str, read_only: bool = False) -> None:
        """Mounts an external file system on the directory until `unmount`. Raises EINVAL for one of
        another operating system.
        """
        place = self._walk(path)
        if system.style is not self._style and not system.share:
            raise self._style.error(errno.EINVAL, path)
        if place.node is None or type(place.node.data) is not dict:
            raise self._style.error(errno.ENOENT if place.node is None else errno.ENOTDIR, path)
        self._attach(path, system.attached(self._mounts, read_only))

    def mount_bind(self, source: str, path: str, read_only: bool = False) -> None:
        """Mounts another directory of this tree on the directory until `unmount`."""
        self._attach(path, self.share(source, read_only))

    def new_file_system(self, size: int) -> FileSystem:
        """An empty file system that this machine could mount."""
        return FileSystem(self._style, size, self._now())

    def bind_mount(self, source: str, path: str, read_only: bool = False) -> None:
        """Mounts another directory on the directory until `unmount`, like `mount --bind`."""
        place = self._walk(path)
        if place.node is None:
            raise self._style.error(errno.ENOENT, path)
        self._attach(path, self.share(source, read_only))

    def mount_tmpfs(self, path: str, size: int) -> None:
        """Mounts a tmpfs on the directory, which hides its content until `unmount`."""
        place = self._walk(path)
        node = place.node
        if node is None or type(node.data) is not dict:
            raise self._style.error(errno.ENOENT if node is None else errno.ENOTDIR, path)
        node = self._own(place, node)
        root = self._style.node("", DIRECTORY | 0o1777, {}, self._now())
        tmpfs = AttachedTree(root, FileVolume(DiskQuota(size, memory=True)), self._mounts)
        self._add_mount(node, tmpfs)

    def unmount(self, path: str) -> None:
        """Removes the last mount there."""
        place = self._walk(path)
        point = place.at.point
        if (
            place.node is not place.at.node
            or point is None
            or self._mounts.get(point) is not place.at
        ):
            raise self._style.error(errno.EINVAL, path)
        del self._mounts[point]

    def mount_table(self) -> list[MountEntry]:
        """What is mounted here, the root first."""
        self._walk("/")  # attaches pending mounts first
        found = [MountEntry("/", self._top)]
        todo = [("", self._top.node, self._top)]
        while todo:
            above, node, at = todo.pop()
            for key, child in node.data.items() if type(node.data) is dict else ():
                path, inner = f"{above}/{key}", at
                while child.mode & MOUNT and (mounted := self._mounted(child, inner)) is not None:
                    inner, child = mounted, mounted.node
                    found.append(MountEntry(path, mounted))
                if type(child.data) is dict:
                    todo.append((path, child, inner))
        return sorted(found, key=lambda entry: entry.path)

    def is_mount(self, path: str) -> bool:
        place = self._walk(path)
        if place.node is None:
            raise self._style.error(errno.ENOENT, path)
        return place.at is not self._top and place.node is place.at.node

    def in_memory(self, path: str) -> bool:
        """Whether it is on a tmpfs."""
        return self._walk(path).at.volume.space.memory

    def drop_memory(self) -> None:
        """Removes every tmpfs, as after a reboot, all network mounts and names of drives."""
        self._mounts.clear()
        if not self._style.has_owners:
            for letter in self.drive_targets():
                self.remove_root(letter)
        for key in [key for key in self._entries(self._top.node, "") if self._style.is_remote(key)]:
            self.remove_root(key)

    def frozen(self) -> Inode:
        """Freezes the whole tree for sharing; this tree continues as one of its users."""
        return freeze_inode(self._top.node)

    def save(self, base: Inode, contents: SavedContents) -> Document:
        """The content of the disk as a difference from `base`. Mounts are not included."""
        volume = self._top.volume
        return {
            "used": volume.used,
            "inodes": volume.inodes,
            "rows": capture_tree(self._top.node, base, contents),
        }

    def restore(self, saved: Document, base: Inode, contents: SavedContents) -> None:
        """Restores a saved tree. Raises DamagedState, and then nothing has changed."""
        root = restore_tree(saved["rows"], base, contents, self._style)
        volume = self._top.volume
        volume.release()
        volume.used, volume.inodes = saved["used"], saved["inodes"]
        volume.space.used += volume.used  # even when the disk has become smaller
        volume.space.inodes_used += volume.inodes
        self._mounts.clear()
        self._top.node = root

    def share(self, path: str, read_only: bool = False) -> AttachedTree:
        """A part of this tree to `attach` in another, whatever happens to the path here."""
        place = self._walk(path)
        if place.node is None:
            raise self._style.error(errno.ENOENT, path)
        node = self._own(place, place.node)
        return AttachedTree(
            node, place.at.volume, self._mounts, read_only or place.at.read_only, place.at.style
        )

    def _attach(self, path: str, what: AttachedTree) -> None:
        """Creates the mount point if it is missing; that uses no space here. A missing drive is
        created, too.
        """
        root = self._style.split(path)[:1]
        if root and not self._style.may_add_root(root[0]) and not self.exists(root[0]):
            self.add_root(root[0])
        place = self._walk(path, make=0o755, free=True)
        if place.node is not None:
            node = self._own(place, place.node, free=True)
        elif type(what.node.data) is dict:
            node = self._add(place, DIRECTORY | 0o755, {}, free=True)
        else:
            node = self._add(place, FILE | 0o644, b"", free=True)
        self._add_mount(node, what)

    def _add_mount(self, point: Inode, what: AttachedTree) -> None:
        point.mode |= MOUNT
        what.point = point
        self._mounts[point] = what


class BoundedFiles(FileTree):
    """A tree in which every path must stay in one directory, whatever links it contains."""

    __slots__ = ("_boundary",)

    def __init__(self, whole: FileTree, directory: str) -> None:
        self._style = whole._style
        self._now = whole._now
        self._user = whole._user
        self._socket_watchers = whole._socket_watchers
        self._mounts = whole._mounts
        self._top = whole._top
        self._boundary = whole._walk(directory).keys

    def _walk(
        self, path: str, *, follow: bool = True, make: int | None = None, free: bool = False
    ) -> ResolvedPath:
        place = super()._walk(path, follow=follow, make=make, free=free)
        self._require_inside(place)
        return place

    def _add(self, place: ResolvedPath, mode: int, data: Data, *, free: bool = False) -> Inode:
        self._require_inside(place)
        return super()._add(place, mode, data, free=free)

    def _require_inside(self, place: ResolvedPath) -> None:
        if place.keys[: len(self._boundary)] != self._boundary:
            raise self._style.error(errno.EACCES, place.path)

    def _seen(self, path: str) -> Inode | None:
        return None


def _discard(data: bytes) -> None:
    """Data written to a device is discarded."""
