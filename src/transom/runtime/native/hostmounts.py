"""Mounts of the node's files in a container's specification.

In the specification, a source is a path of the node. When the container starts, the path is
resolved inside the node's directory, and for a subPath inside its volume; the monitor then opens
the result without following any further link, and mounts it where no container can reach it
(`monitor.staging`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from transom.machines.realfiles import RealFiles
from transom.machines.smallfiles import read_small_file
from transom.runtime.api import Mount
from transom.runtime.native.monitor.staging import PINNED
from transom.runtime.native.platform import Spec

_MARK: Final = "node:"
_VOLUME: Final = "volume"
_PROPAGATION: Final = {
    "private": "rprivate",
    "hostToContainer": "rslave",
    "bidirectional": "rshared",
}


class CannotMount(Exception):
    """A file of the node cannot be mounted; the text is containerd's."""


class NodeMounts:
    """`HostMounts` of one node."""

    def __init__(self, files: RealFiles) -> None:
        self._files = files

    def bind(self, mount: Mount, destination: str, options: Sequence[str] = ()) -> Spec:
        """A missing source is created as a directory. Raises CannotMount."""
        path = mount.host_path
        try:
            files = _bounded(self._files, mount.volume_path)
            if not files.exists(path):
                files.mkdir(path, 0o755)
            if mount.propagation != "private":
                self._files.share_mounts()
        except OSError as problem:
            error_text = (problem.strerror or "").lower()
            raise CannotMount(
                f'failed to generate spec: failed to mkdir "{path}": mkdir {path}: {error_text}'
            ) from problem
        access = "ro" if mount.read_only else "rw"
        if mount.recursive_read_only:
            access = "rro"
        return {
            "destination": destination,
            "type": "bind",
            "source": f"{_MARK}{path}",
            "options": [*options, "rbind", _PROPAGATION[mount.propagation], access],
            _VOLUME: mount.volume_path,
        }

    def stat(self, path: str) -> os.stat_result:
        fd = self._files.open(path)
        try:
            return os.fstat(fd)
        finally:
            os.close(fd)

    def device(self, path: str) -> os.stat_result:
        return self._files.device(path)

    def read(self, path: str) -> bytes:
        return read_small_file(self._files, path)

    def real(self, path: str) -> str:
        return self._files.real(path)


def resolve_host_mounts(files: RealFiles, spec: Spec) -> Spec:
    """With paths of this machine as sources, for the monitor. Raises OSError."""
    return {**spec, "mounts": [_resolved(files, entry) for entry in spec.get("mounts") or ()]}


def _resolved(files: RealFiles, entry: Spec) -> Spec:
    source = str(entry.get("source") or "")
    if not source.startswith(_MARK):
        return entry
    kept = {key: value for key, value in entry.items() if key != _VOLUME}
    bounded = _bounded(files, entry.get(_VOLUME) or "")
    return {**kept, "source": bounded.real(source.removeprefix(_MARK)), PINNED: True}


def _bounded(files: RealFiles, volume: str) -> RealFiles:
    return files.below(volume) if volume else files
