"""Rotates container logs by size and keeps a limited number of files.

The newest rotated file stays uncompressed for its readers; older ones are compressed. Names contain
the time, so they sort chronologically. Docker rotates its own logs, so this is for the other
runtimes.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import time
from collections.abc import Sequence

from transom.kubelet.base import KubeletContext
from transom.machines.api import Files
from transom.machines.smallfiles import list_small_directory
from transom.runtime.api import Container, RuntimeFailure

log = logging.getLogger("transom.kubelet")

PERIOD = 10.0
_COMPRESSED, _TEMPORARY = ".gz", ".tmp"
_MUCH = 1 << 18
_OWN_ROTATION = frozenset(("docker",))


class LogRotator:
    __slots__ = ("_env",)

    def __init__(self, env: KubeletContext) -> None:
        self._env = env

    @property
    def enabled(self) -> bool:
        return (
            self._env.config.container_log_max_size >= 0
            and self._env.runtime.version.name not in _OWN_ROTATION
        )

    def due(self) -> list[Container]:
        """Rotates the logs of running containers that have grown too long."""
        return [
            container
            for container in self._env.runtime.containers()
            if container.state == "running" and container.log_path and self._is_long(container)
        ]

    async def rotate(self, containers: Sequence[Container]) -> None:
        for container in containers:
            try:
                await self._rotate(container)
            except (OSError, RuntimeFailure) as problem:
                log.warning("the log %s was not rotated: %s", container.log_path, problem)

    def _is_long(self, container: Container) -> bool:
        files, path = self._env.host.files, container.log_path
        try:
            try:
                size = files.stat(path).size
            except FileNotFoundError:  # lost in an interrupted rotation
                self._env.runtime.reopen_log(container.id)
                size = files.stat(path).size
        except (OSError, RuntimeFailure) as problem:
            log.debug("the log %s cannot be looked at: %s", path, problem)
            return False
        return size >= self._env.config.container_log_max_size

    async def _rotate(self, container: Container) -> None:
        path = container.log_path
        # Pods may mount the directory as a volume: do not follow links out of it.
        files = self._env.host.files.below(self._env.os.parent(path))
        in_use, unused = split_log_names(is_rotated(files, path))
        # The current file and the one rotated now count in addition to the kept ones.
        keep = max(0, self._env.config.container_log_max_files - 2)
        excess = max(0, len(in_use) - keep)
        for name in (*unused, *in_use[:excess]):
            files.remove(name)
        for name in in_use[excess:]:
            if not name.endswith(_COMPRESSED):
                await self._compress(files, name)
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(self._env.clock.time()))
        newest = f"{path}.{stamp}"
        files.rename(path, newest)
        try:
            self._env.runtime.reopen_log(container.id)
        except RuntimeFailure:
            files.rename(newest, path)  # retried in the next round
            raise

    async def _compress(self, files: Files, name: str) -> None:
        data = files.read(name)
        # Compressing a long log would block the event loop for too long.
        packed = await asyncio.to_thread(_pack, data) if len(data) > _MUCH else _pack(data)
        files.write(name + _TEMPORARY, packed)
        files.rename(name + _TEMPORARY, name + _COMPRESSED)
        files.remove(name)


def _pack(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def is_rotated(files: Files, path: str) -> list[str]:
    """All rotated files of a log."""
    cut = max(path.rfind("/"), path.rfind("\\")) + 1
    directory, base = path[:cut], path[cut:]
    names = list_small_directory(files, directory.rstrip("/\\") or directory)
    return sorted(directory + name for name in names if name.startswith(base + "."))


def split_log_names(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The files in use, oldest first, and leftovers of an interrupted rotation."""
    known = set(names)
    in_use: list[str] = []
    unused: list[str] = []
    for name in sorted(names):
        left_over = name.endswith(_TEMPORARY) or (
            not name.endswith(_COMPRESSED) and name + _COMPRESSED in known
        )
        (unused if left_over else in_use).append(name)
    return in_use, unused


def remove_logs(files: Files, path: str) -> None:
    """Removes the log and its rotated files."""
    try:
        names = [*is_rotated(files, path), path]
    except FileNotFoundError:
        return
    for name in names:
        if files.exists(name):
            files.remove(name)
