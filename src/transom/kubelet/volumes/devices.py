"""Volumes that drivers mount once per node, for any number of pods, and the records about them on
the node's disk.

After a kubelet restart the records show what must be unmounted; whether a volume is mounted, the
kubelet learns by calling the driver again.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

import orjson

from transom.kubelet.base import KubeletContext
from transom.kubelet.failures import VolumeFailure
from transom.machines.smallfiles import list_small_directory, read_small_file

NOTES: Final = "vol_data.json"
_CSI: Final = ("plugins", "kubernetes.io/csi", "pv")


class SilentFailure(VolumeFailure):
    """The volume is not attached yet. No event is recorded before the timeout."""


class Devices:
    """`staged` holds the volumes that this kubelet has mounted."""

    __slots__ = ("_env", "_in_use", "_locks", "_wanted", "disks", "staged")

    def __init__(self, env: KubeletContext) -> None:
        self._env = env
        self.disks: set[str] | None = (
            None  # unique names of mounted disks; None before the records are read
        )
        # pod -> unique names of the volumes that it needs attached
        self._wanted: dict[str, set[str]] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._in_use: dict[str, str] | None = None
        self.staged: set[str] = set()

    def lock(self, volume: str) -> asyncio.Lock:
        """Serializes the operations on each volume."""
        return self._locks.setdefault(volume, asyncio.Lock())

    def path(self, volume: str) -> str:
        """Where a CSI volume is mounted for all pods."""
        return self._env.os.join(self._env.config.root_dir, *_CSI, volume, "globalmount")

    def notes_of(self, volume: str) -> dict[str, Any] | None:
        return read_notes(self._env, self._env.os.join(self._env.config.root_dir, *_CSI, volume))

    def begin(self, volume: str, driver: str, handle: str) -> None:
        """Records it before the driver is called."""
        env = self._env
        env.host.files.mkdir(self.path(volume), 0o750)
        write_notes(
            env,
            env.os.join(env.config.root_dir, *_CSI, volume),
            {"driverName": driver, "volumeHandle": handle},
        )
        self._known()[volume] = unique_name(driver, handle)

    def end(self, volume: str) -> None:
        env = self._env
        path = self.path(volume)
        remove_mount_point(env, path)
        env.host.files.remove(env.os.join(env.config.root_dir, *_CSI, volume), recursive=True)
        self.staged.discard(volume)
        self._known().pop(volume, None)

    def in_use(self) -> list[str]:
        """The unique names of the volumes that must stay attached to the node: mounted ones, and
        those that pods wait for.
        """
        known = {*self._known().values(), *(self.disks or ())}
        return sorted(known.union(*self._wanted.values()))

    def want(self, uid: str, name: str) -> None:
        """A pod needs the volume attached."""
        self._wanted.setdefault(uid, set()).add(name)

    def release(self, uid: str) -> None:
        """Called when the pod has unmounted its volumes."""
        self._wanted.pop(uid, None)

    def check_attached(self, name: str, volume: str) -> None:
        """Raises SilentFailure until the node's status has the volume in `volumesInUse`, so that it
        is not detached any more, and in `volumesAttached`. `volume` is its name in messages.
        """
        status = (self._env.node() or {}).get("status") or {}
        if name not in (status.get("volumesInUse") or ()):
            raise SilentFailure(
                "Volume has not been added to the list of VolumesInUse in the node's volume "
                "status for volume "
                f'"{volume}"'
            )
        if name not in {row["name"] for row in status.get("volumesAttached") or ()}:
            raise SilentFailure(
                f'Volume not attached according to node status for volume "{volume}"'
            )

    def _known(self) -> dict[str, str]:
        if self._in_use is None:
            self._in_use = {}
            files, top = self._env.host.files, self._env.os.join(self._env.config.root_dir, *_CSI)
            for volume in list_small_directory(files, top) if files.exists(top) else ():
                if notes := self.notes_of(volume):
                    self._in_use[volume] = unique_name(
                        notes.get("driverName", ""), notes.get("volumeHandle", "")
                    )
        return self._in_use


def unique_name(driver: str, handle: str) -> str:
    """The API's name for an attached CSI volume."""
    return f"kubernetes.io/csi/{driver}^{handle}"


def write_notes(env: KubeletContext, directory: str, notes: dict[str, str]) -> None:
    env.host.files.mkdir(directory, 0o750)
    text = json.dumps(notes, sort_keys=True, separators=(",", ":"))
    env.host.files.write(env.os.join(directory, NOTES), text.encode() + b"\n", 0o644)


def read_notes(env: KubeletContext, directory: str) -> dict[str, Any] | None:
    try:
        found = orjson.loads(read_small_file(env.host.files, env.os.join(directory, NOTES)))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def remove_mount_point(env: KubeletContext, path: str) -> None:
    """Raises OSError when something is still mounted there: its content must not be removed."""
    files = env.host.files
    if env.os.mounted(files, path):
        raise OSError(f"{path} is still mounted")
    if files.exists(path):
        files.remove(path)
