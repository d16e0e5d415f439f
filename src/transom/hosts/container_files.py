"""A container's files: its image, which all containers of the image share, a writable layer, and parts of the host.

A mount is bound to the file or directory that was at the host's path when the container was made, as the kernel does it. The
places for mounts in the container's own tree are made when somebody first looks, for most containers that is never.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from transom.hosts.api import Mounted
from transom.hosts.files import FileTree
from transom.hosts.nodes import Node, Space
from transom.hosts.places import Attached, Place
from transom.hosts.styles import Style


class LayeredFiles(FileTree):
    """`ContainerFiles` of an in-memory host. `image` is a frozen tree."""

    __slots__ = ("_host", "_image", "_waiting")

    def __init__(
        self,
        style: Style,
        image: Node,
        host: FileTree,
        space: Space,
        now: Callable[[], float],
        *,
        read_only: bool = False,
    ) -> None:
        super().__init__(style, image, space, now, read_only=read_only)
        self._image = image
        self._host = host
        self._waiting: list[tuple[str, Attached]] = []

    def add_mounts(self, mounts: Sequence[Mounted]) -> None:
        """A host path that is not there: ENOENT, and none of them is added."""
        self._waiting += [(mount.container_path, self._host.share(mount.host_path, mount.read_only)) for mount in mounts]

    def layer_usage(self) -> tuple[int, int]:
        """Bytes and inodes of the writable layer."""
        volume = self._top.volume
        return volume.used, volume.inodes

    def discard(self) -> None:
        """The writable layer goes away."""
        self._mounts.clear()
        self._waiting.clear()
        self._top.node = self._image
        self._top.volume.release()

    def _sockets_changed(self) -> None:
        self._host._sockets_changed()  # it may be in a part of the host

    def _walk(self, path: str, *, follow: bool = True, make: int | None = None, free: bool = False) -> Place:
        if self._waiting:
            self._attach_waiting()
        return super()._walk(path, follow=follow, make=make, free=free)

    def _seen(self, path: str) -> Node | None:
        return None if self._waiting else super()._seen(path)

    def _attach_waiting(self) -> None:
        waiting = sorted(self._waiting, key=lambda mount: len(self._style.split(mount[0])))
        self._waiting.clear()  # before, because attaching walks too
        tree = self.as_user(None)
        for where, what in waiting:  # outer ones first: an inner one may be in them
            tree._attach(where, what)
