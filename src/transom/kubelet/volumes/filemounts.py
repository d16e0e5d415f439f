"""File systems of the cloud provider, mounted in a node's files: in memory on a simulated node, a
directory on a real one.
"""

from __future__ import annotations

from typing import Protocol, cast, runtime_checkable

from transom.cloud.content import DiskContent
from transom.machines.api import Files
from transom.machines.filesystems import FileSystem
from transom.machines.styles import PathStyle


@runtime_checkable
class RealFolderFiles(Protocol):
    """The machine's files."""

    def bind(self, source: str, path: str) -> None: ...


class MountableFiles(Files, Protocol):
    def mount(self, system: FileSystem, path: str, read_only: bool = False) -> None: ...
    def mount_bind(self, source: str, path: str, read_only: bool = False) -> None: ...
    def unmount(self, path: str) -> None: ...
    def is_mount(self, path: str) -> bool: ...
    def add_root(self, name: str) -> None: ...


def is_mount_point(files: Files, path: str) -> bool:
    return files.exists(path) and cast(MountableFiles, files).is_mount(path)


def mount_content(
    files: Files, content: DiskContent, style: PathStyle, size: int, now: float, path: str
) -> None:
    """Mounts on an existing directory. Raises ContentError and OSError."""
    if isinstance(files, RealFolderFiles):
        files.bind(str(content.real_folder(style)), path)
    else:
        cast(MountableFiles, files).mount(content.file_system(style, size, now), path)


def unmount_content(files: Files, path: str) -> None:
    if is_mount_point(files, path):
        cast(MountableFiles, files).unmount(path)
