"""What drivers mount once for the node, whatever number of pods uses it, and the notes about it on the node's disk.

The notes tell a kubelet that comes back what is to be unmounted; whether a volume is mounted it finds out by asking the
driver again.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from transom.kubelet.base import Env

NOTES: Final = "vol_data.json"
_CSI: Final = ("plugins", "kubernetes.io/csi", "pv")


class Devices:
    """`staged` has the volumes that this kubelet has had mounted."""

    __slots__ = ("_env", "_in_use", "_locks", "staged")

    def __init__(self, env: Env) -> None:
        self._env = env
        self._locks: dict[str, asyncio.Lock] = {}
        self._in_use: dict[str, str] | None = None
        self.staged: set[str] = set()

    def lock(self, volume: str) -> asyncio.Lock:
        """One thing at a time for each volume."""
        return self._locks.setdefault(volume, asyncio.Lock())

    def path(self, volume: str) -> str:
        """Where a CSI volume is mounted for all pods."""
        return self._env.os.join(self._env.config.root_dir, *_CSI, volume, "globalmount")

    def notes_of(self, volume: str) -> dict[str, Any] | None:
        return read_notes(self._env, self._env.os.join(self._env.config.root_dir, *_CSI, volume))

    def begin(self, volume: str, driver: str, handle: str) -> None:
        """Note it down before the driver is asked."""
        env = self._env
        env.host.files.mkdir(self.path(volume), 0o750)
        write_notes(env, env.os.join(env.config.root_dir, *_CSI, volume), {"driverName": driver, "volumeHandle": handle})
        self._known()[volume] = unique_name(driver, handle)

    def end(self, volume: str) -> None:
        env = self._env
        path = self.path(volume)
        remove_mount_point(env, path)
        env.host.files.remove(env.os.join(env.config.root_dir, *_CSI, volume), recursive=True)
        self.staged.discard(volume)
        self._known().pop(volume, None)

    def in_use(self) -> list[str]:
        """The unique names of what must stay attached to the node."""
        return sorted(self._known().values())

    def _known(self) -> dict[str, str]:
        if self._in_use is None:
            self._in_use = {}
            files, top = self._env.host.files, self._env.os.join(self._env.config.root_dir, *_CSI)
            for volume in files.listdir(top) if files.exists(top) else ():
                if notes := self.notes_of(volume):
                    self._in_use[volume] = unique_name(notes.get("driverName", ""), notes.get("volumeHandle", ""))
        return self._in_use


def unique_name(driver: str, handle: str) -> str:
    """What the API calls a CSI volume that is attached."""
    return f"kubernetes.io/csi/{driver}^{handle}"


def write_notes(env: Env, directory: str, notes: dict[str, str]) -> None:
    env.host.files.mkdir(directory, 0o750)
    text = json.dumps(notes, sort_keys=True, separators=(",", ":"))
    env.host.files.write(env.os.join(directory, NOTES), text.encode() + b"\n", 0o644)


def read_notes(env: Env, directory: str) -> dict[str, Any] | None:
    try:
        found = json.loads(env.host.files.read(env.os.join(directory, NOTES)))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def remove_mount_point(env: Env, path: str) -> None:
    """OSError when something is still mounted there: what is in it is not ours to remove."""
    files = env.host.files
    if env.os.mounted(files, path):
        raise OSError(f"{path} is still mounted")
    if files.exists(path):
        files.remove(path)
