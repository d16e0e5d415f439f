"""A container's files: its image, which all containers of the image share, a writable layer, and
host mounts.

A mount is bound to the file or directory that was at the host's path when the container was
created, as in the kernel. Mount points in the container's own tree are created on first access,
which most containers never make.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from transom.machines.api import HostPathMount
from transom.machines.files import FileTree
from transom.machines.inodes import DiskQuota, Inode
from transom.machines.resolved_paths import AttachedTree, ResolvedPath
from transom.machines.styles import PathStyle


class LayeredFiles(FileTree):
    """`ContainerFiles` of an in-memory host. `image` is a frozen tree. `virtual_size` is the size
    of the disk that the layer seems to be, if it is not the host's.
    """

    __slots__ = ("_host", "_image", "_virtual_size", "_waiting")

    def __init__(
        self,
        style: PathStyle,
        image: Inode,
        host: FileTree,
        space: DiskQuota,
        now: Callable[[], float],
        *,
        read_only: bool = False,
        virtual_size: int = 0,
    ) -> None:
        super().__init__(style, image, space, now, read_only=read_only)
        self._virtual_size = virtual_size
        self._image = image
        self._host = host
        self._waiting: list[tuple[str, AttachedTree]] = []

    def add_mounts(self, mounts: Sequence[HostPathMount]) -> None:
        """Raises ENOENT for a missing host path, EINVAL for an invalid path of its own, and then
        adds none of them.
        """
        for mount in mounts:
            self._style.split(mount.container_path)
        self._waiting += [
            (mount.container_path, self._host.share(mount.host_path, mount.read_only))
            for mount in mounts
        ]

    def add_tree(self, path: str, tree: AttachedTree) -> None:
        """Mounts a part of another tree (`share`)."""
        self._style.split(path)
        self._waiting.append((path, tree))

    def space(self, path: str) -> tuple[int, int]:
        own = self._top.volume
        if not self._virtual_size or self._walk(path).at.volume is not own:
            return super().space(path)
        size = self._virtual_size
        return size, max(0, min(size - own.used, own.space.capacity - own.space.used))

    def layer_usage(self) -> tuple[int, int]:
        """Bytes and inodes of the writable layer."""
        volume = self._top.volume
        return volume.used, volume.inodes

    def discard(self) -> None:
        """Deletes the writable layer."""
        self._mounts.clear()
        self._waiting.clear()
        self._top.node = self._image
        self._top.volume.release()

    def _sockets_changed(self) -> None:
        self._host._sockets_changed()  # it may be in a host mount

    def _walk(
        self, path: str, *, follow: bool = True, make: int | None = None, free: bool = False
    ) -> ResolvedPath:
        if self._waiting:
            self._attach_waiting()
        return super()._walk(path, follow=follow, make=make, free=free)

    def _seen(self, path: str) -> Inode | None:
        return None if self._waiting else super()._seen(path)

    def _attach_waiting(self) -> None:
        waiting = sorted(self._waiting, key=lambda mount: len(self._style.split(mount[0])))
        self._waiting.clear()  # before, because attaching walks too
        tree = self.as_user(None)
        for where, what in waiting:  # outer ones first: they may contain inner ones
            tree._attach(where, what)
