"""Logs of containers are cut into files of a limited size, of which a limited number is kept.

The newest rotated file stays as it is for those who still read it; older ones are compressed. Names carry the time, so
their order is that of the alphabet. Docker rotates its own logs, so the kubelet's rotation is for the other runtimes.
"""

from __future__ import annotations

import gzip
import logging
import time
from collections.abc import Sequence

from transom.hosts.api import Files
from transom.kubelet.base import Env
from transom.runtime.api import Container, RuntimeFailure

log = logging.getLogger("transom.kubelet")

PERIOD = 10.0
_COMPRESSED, _TEMPORARY = ".gz", ".tmp"
_OWN_ROTATION = frozenset(("docker",))


class LogRotator:
    __slots__ = ("_env", "_files")

    def __init__(self, env: Env) -> None:
        self._env = env
        self._files = env.host.files

    @property
    def enabled(self) -> bool:
        return self._env.config.container_log_max_size >= 0 and self._env.runtime.version.name not in _OWN_ROTATION

    def rotate(self) -> None:
        """Look at the logs of all running containers."""
        for container in self._env.runtime.containers():
            if container.state == "running" and container.log_path:
                try:
                    self._look_at(container)
                except (OSError, RuntimeFailure) as problem:
                    log.warning("the log %s was not rotated: %s", container.log_path, problem)

    def _look_at(self, container: Container) -> None:
        try:
            size = self._files.stat(container.log_path).size
        except FileNotFoundError:
            self._env.runtime.reopen_log(container.id)
            size = self._files.stat(container.log_path).size
        if size >= self._env.config.container_log_max_size:
            self._rotate(container)

    def _rotate(self, container: Container) -> None:
        path = container.log_path
        in_use, unused = split(rotated(self._files, path))
        for name in unused:
            self._files.remove(name)
        # The file written next and the one rotated now come on top of these.
        keep = max(0, self._env.config.container_log_max_files - 2)
        for name in in_use[: max(0, len(in_use) - keep)]:
            self._files.remove(name)
        for name in in_use[max(0, len(in_use) - keep):]:
            if not name.endswith(_COMPRESSED):
                self._compress(name)
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(self._env.clock.time()))
        newest = f"{path}.{stamp}"
        self._files.rename(path, newest)
        try:
            self._env.runtime.reopen_log(container.id)
        except RuntimeFailure:
            self._files.rename(newest, path)  # tried again in the next round
            raise

    def _compress(self, name: str) -> None:
        temporary = name + _TEMPORARY
        self._files.write(temporary, gzip.compress(self._files.read(name), mtime=0))
        self._files.rename(temporary, name + _COMPRESSED)
        self._files.remove(name)


def rotated(files: Files, path: str) -> list[str]:
    """All files beside a log that were made of it."""
    cut = max(path.rfind("/"), path.rfind("\\")) + 1
    directory, base = path[:cut], path[cut:]
    names = files.listdir(directory.rstrip("/\\") or directory)
    return sorted(directory + name for name in names if name.startswith(base + "."))


def split(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Those in use, the oldest first, and leftovers of a rotation that was interrupted."""
    known = set(names)
    in_use: list[str] = []
    unused: list[str] = []
    for name in sorted(names):
        left_over = name.endswith(_TEMPORARY) or (not name.endswith(_COMPRESSED) and name + _COMPRESSED in known)
        (unused if left_over else in_use).append(name)
    return in_use, unused


def remove_all(files: Files, path: str) -> None:
    """The log and everything made of it."""
    try:
        names = [*rotated(files, path), path]
    except FileNotFoundError:
        return
    for name in names:
        if files.exists(name):
            files.remove(name)
