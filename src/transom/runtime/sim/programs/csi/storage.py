"""The storage behind simulated drivers: volumes and snapshots by driver, reachable from every node.

It is memory of this process, and gone with it. Volumes of which it never heard are made when somebody mounts them: a
PersistentVolume may have been written by hand.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Final

from transom.hosts.filesystems import FileSystem

USUAL_SIZE: Final = 1 << 30
_SPACE: Final = uuid.UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8")


class Disk:
    """`system` is None until somebody has formatted it."""

    __slots__ = ("identity", "size", "system")

    def __init__(self, identity: str, size: int, system: FileSystem | None = None) -> None:
        self.identity = identity
        self.size = size
        self.system = system

    def formatted(self, make: Callable[[int], FileSystem]) -> FileSystem:
        if self.system is None:
            self.system = make(self.size)
        return self.system


class Storage:
    """Of one driver."""

    __slots__ = ("_name", "disks", "snapshots")

    def __init__(self, name: str) -> None:
        self._name = name
        self.disks: dict[str, Disk] = {}
        self.snapshots: dict[str, Disk] = {}

    def disk(self, identity: str) -> Disk:
        return self.disks.setdefault(identity, Disk(identity, USUAL_SIZE))

    def create(self, name: str, size: int, source: Disk | None, now: float) -> Disk:
        """The one of this name, or a new one with the content of another."""
        identity = self._identity(name)
        if identity not in self.disks:
            size = max(size, source.size if source is not None else 0)
            system = source.system.copy(size, now) if source is not None and source.system is not None else None
            self.disks[identity] = Disk(identity, size, system)
        return self.disks[identity]

    def snapshot(self, name: str, source: Disk, now: float) -> Disk:
        identity = self._identity(name)
        if identity not in self.snapshots:
            system = source.system.copy(source.size, now) if source.system is not None else None
            self.snapshots[identity] = Disk(identity, source.size, system)
        return self.snapshots[identity]

    def _identity(self, name: str) -> str:
        return str(uuid.uuid5(_SPACE, f"{self._name}/{name}"))


_STORAGE: dict[str, Storage] = {}


def of(driver: str) -> Storage:
    return _STORAGE.setdefault(driver, Storage(driver))
