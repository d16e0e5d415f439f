"""Parts of the node's files in a container's specification.

While it is only written down, a source is a path of the node. When the container starts, the path is walked inside the
node's folder, and what is found there is mounted, for so long, where nobody else can reach: no link that another container
puts into a volume meanwhile can lead runc elsewhere.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from transom.hosts import mounting
from transom.hosts.realfiles import RealFiles
from transom.runtime.api import Mount
from transom.runtime.native.platform import Spec

_MARK: Final = "node:"
_PROPAGATION: Final = {"private": "rprivate", "hostToContainer": "rslave", "bidirectional": "rshared"}


class CannotMount(Exception):
    """A part of the node's files cannot be had; the text is containerd's."""


class NodeMounts:
    """`HostMounts` of one node."""

    def __init__(self, files: RealFiles) -> None:
        self._files = files

    def bind(self, mount: Mount, destination: str, options: Sequence[str] = ()) -> Spec:
        """A source that is not there becomes a directory. Raises CannotMount."""
        path = mount.host_path
        try:
            if not self._files.exists(path):
                self._files.mkdir(path, 0o755)
            if mount.propagation != "private":
                self._files.share_mounts()
        except OSError as problem:
            said = (problem.strerror or "").lower()
            raise CannotMount(f'failed to generate spec: failed to mkdir "{path}": mkdir {path}: {said}') from problem
        access = "ro" if mount.read_only else "rw"
        return {
            "destination": destination,
            "type": "bind",
            "source": f"{_MARK}{path}",
            "options": [*options, "rbind", _PROPAGATION[mount.propagation], access],
        }

    def real(self, path: str) -> str:
        return self._files.real(path)


class Sources:
    """While a container starts: what of the node it is to have, under paths that only we can change.

    `by_path` where this process may not mount: runc is then given the paths themselves.
    """

    def __init__(self, files: RealFiles, folder: Path, *, by_path: bool) -> None:
        self._files = files
        self._folder = folder
        self._by_path = by_path
        self._mounted: list[str] = []

    def resolve(self, spec: Spec) -> Spec:
        """With sources that runc understands, until `close`. Raises OSError."""
        return {**spec, "mounts": [self._resolved(entry) for entry in spec.get("mounts") or ()]}

    def _resolved(self, entry: Spec) -> Spec:
        source = str(entry.get("source") or "")
        if not source.startswith(_MARK):
            return entry
        path = source.removeprefix(_MARK)
        if self._by_path or _PROPAGATION["private"] not in entry["options"]:
            return {**entry, "source": self._files.real(path)}
        fd = self._files.open(path)
        try:
            return {**entry, "source": self._pinned(fd)}
        finally:
            os.close(fd)

    def _pinned(self, fd: int) -> str:
        target = self._folder / str(len(self._mounted))
        self._folder.mkdir(mode=0o700, exist_ok=True)
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            target.mkdir(exist_ok=True)
        else:
            target.touch()
        mounting.mount(f"/proc/self/fd/{fd}", str(target), "", mounting.BIND | mounting.RECURSIVE)
        self._mounted.append(str(target))
        # Else what is mounted below would go away where it comes from, too, when this is unmounted.
        mounting.mount("none", str(target), "", mounting.PRIVATE | mounting.RECURSIVE)
        return str(target)

    def close(self) -> None:
        """The container has its own by now."""
        for target in self._mounted:
            mounting.unmount(target)
        self._mounted.clear()
