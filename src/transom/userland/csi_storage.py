"""The storage behind simulated CSI drivers: volumes and snapshots by driver, reachable from every
node of a cluster.

Unknown volumes are created when they are mounted: a PersistentVolume may have been created by hand.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Final

from transom.machines.filesystems import FileSystem
from transom.machines.inodes import BlockContent
from transom.machines.saving import Document, SavedContents

USUAL_SIZE: Final = 1 << 30
_SPACE: Final = uuid.UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8")


class CsiDisk:
    """`system` is None until it is formatted; `blocks` is its content as a raw device."""

    __slots__ = ("blocks", "identity", "size", "system")

    def __init__(self, identity: str, size: int, system: FileSystem | None = None) -> None:
        self.identity = identity
        self.size = size
        self.system = system
        self.blocks = BlockContent(size)

    def copy(self, identity: str, size: int, now: float) -> CsiDisk:
        out = CsiDisk(
            identity, size, self.system.copy(size, now) if self.system is not None else None
        )
        out.blocks = BlockContent(size, bytes(self.blocks))
        return out

    def formatted(self, make: Callable[[int], FileSystem]) -> FileSystem:
        if self.system is None:
            self.system = make(self.size)
        return self.system

    def save(self, contents: SavedContents) -> Document:
        return {
            "size": self.size,
            "system": None if self.system is None else self.system.save(contents),
            "blocks": contents.add(self.blocks),
        }


def _restored(identity: str, saved: Document, contents: SavedContents) -> CsiDisk:
    system = saved["system"]
    disk = CsiDisk(
        identity, saved["size"], None if system is None else FileSystem.restored(system, contents)
    )
    disk.blocks = BlockContent(disk.size, contents.items[saved["blocks"]])
    return disk


class DriverStorage:
    """The storage of one driver."""

    __slots__ = ("_name", "disks", "snapshots")

    def __init__(self, name: str) -> None:
        self._name = name
        self.disks: dict[str, CsiDisk] = {}
        self.snapshots: dict[str, CsiDisk] = {}

    def disk(self, identity: str) -> CsiDisk:
        return self.disks.setdefault(identity, CsiDisk(identity, USUAL_SIZE))

    def create(self, name: str, size: int, source: CsiDisk | None, now: float) -> CsiDisk:
        """The disk of this name, or a new one with the content of `source`."""
        identity = self._identity(name)
        if identity not in self.disks:
            size = max(size, source.size if source is not None else 0)
            self.disks[identity] = (
                source.copy(identity, size, now) if source is not None else CsiDisk(identity, size)
            )
        return self.disks[identity]

    def snapshot(self, name: str, source: CsiDisk, now: float) -> CsiDisk:
        identity = self._identity(name)
        if identity not in self.snapshots:
            self.snapshots[identity] = source.copy(identity, source.size, now)
        return self.snapshots[identity]

    def _identity(self, name: str) -> str:
        return str(uuid.uuid5(_SPACE, f"{self._name}/{name}"))


class CsiStorage:
    """The storage of all simulated drivers of a cluster."""

    __slots__ = ("_drivers",)

    def __init__(self) -> None:
        self._drivers: dict[str, DriverStorage] = {}

    def of(self, driver: str) -> DriverStorage:
        return self._drivers.setdefault(driver, DriverStorage(driver))

    def is_empty(self) -> bool:
        return not self._drivers

    def save(self, contents: SavedContents) -> Document:
        return {
            name: {
                "disks": {disk.identity: disk.save(contents) for disk in storage.disks.values()},
                "snapshots": {
                    disk.identity: disk.save(contents) for disk in storage.snapshots.values()
                },
            }
            for name, storage in self._drivers.items()
        }

    def restore(self, saved: Document, contents: SavedContents) -> None:
        """Raises DamagedState."""
        for name, rows in saved.items():
            storage = self.of(name)
            storage.disks = {
                identity: _restored(identity, row, contents)
                for identity, row in rows["disks"].items()
            }
            storage.snapshots = {
                identity: _restored(identity, row, contents)
                for identity, row in rows["snapshots"].items()
            }
