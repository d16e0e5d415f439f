"""Parts of the node's files in a container's specification.

While it is only written down, a source is a path of the node. When the container starts, the path is walked inside the
node's folder, and runc is given an open descriptor instead: no link that somebody puts there meanwhile can lead elsewhere.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

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


def resolved(spec: Spec, files: RealFiles, opened: list[int], *, by_path: bool) -> Spec:
    """With sources that runc understands, for as long as the descriptors in `opened` are. Raises OSError.

    `by_path` where runc may not look at this process's descriptors."""
    spec = copy.copy(spec)
    spec["mounts"] = [_resolved(entry, files, opened, by_path) for entry in spec.get("mounts") or ()]
    return spec


def _resolved(entry: Spec, files: RealFiles, opened: list[int], by_path: bool) -> Spec:
    source = str(entry.get("source") or "")
    if not source.startswith(_MARK):
        return entry
    path = source.removeprefix(_MARK)
    if by_path:
        return {**entry, "source": files.real(path)}
    opened.append(files.open(path))
    return {**entry, "source": f"/proc/{os.getpid()}/fd/{opened[-1]}"}


def close(opened: list[int]) -> None:
    for fd in opened:
        with suppress(OSError):
            os.close(fd)
    opened.clear()
