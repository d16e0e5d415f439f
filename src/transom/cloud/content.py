"""The contents of a disk or a share: a file system in memory for simulated nodes, a folder of this
machine for real ones.

There is one copy of the content. It is stored in the folder of the cluster, and read from there
when a node mounts it. Disks are converted to the other form when a node of the other kind mounts
them.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
from pathlib import Path
from typing import Final

from transom.kit.files import write_atomic
from transom.machines.filesystems import FileSystem
from transom.machines.inodes import FORMAT, Inode
from transom.machines.persistence import DamagedTree, TreeImage, decode_tree
from transom.machines.styles import POSIX, WINDOWS, PathStyle

_LARGEST_FILE: Final = 64 << 20  # limit for reading a folder into memory


class ContentError(Exception):
    """The content cannot be used, for the reason in the message."""


class DiskContent:
    """`folder` holds all contents of the cluster; None keeps this one in memory only."""

    def __init__(self, folder: Path | None, name: str, *, share: bool = False) -> None:
        self._tree = folder / f"{name}.tree" if folder is not None else None
        self._files = folder / f"{name}.files" if folder is not None else None
        self._share = share
        self._system: FileSystem | None = None
        self._saved = -1  # `changes` of the file system when it was last written

    # ---- simulated nodes ----

    def file_system(self, style: PathStyle, size: int, now: float) -> FileSystem:
        """The existing file system, or a new, empty one. Raises ContentError."""
        found = self._loaded(style, size, now)
        if found is None:
            found = self._system = FileSystem(style, size, now, share=self._share)
        found.space.capacity = max(found.space.capacity, size)
        return found

    def style(self) -> PathStyle | None:
        """The style of the operating system that formatted it; None for an empty disk."""
        if self._system is None and self._files is not None and self._files.is_dir():
            return WINDOWS if (self._files / ".ntfs").exists() else POSIX
        found = self._loaded(POSIX, 0, 0.0)
        return found.style if found is not None else None

    def _loaded(self, style: PathStyle, size: int, now: float) -> FileSystem | None:
        if self._system is not None:
            return self._system
        if self._files is not None and self._files.is_dir():
            if is_content_mounted(self._files):
                raise ContentError("it is in use by a node whose containers are real processes")
            kept = self.style() or style
            root = _read_folder(self._files / "root", kept, now)
            self._system = FileSystem(kept, size, now, share=self._share, root=root)
            shutil.rmtree(self._files)
        elif self._tree is not None and self._tree.exists():
            try:
                stored = decode_tree(self._tree.read_bytes())
            except DamagedTree as problem:
                raise ContentError(f"{self._tree}: {problem}") from problem
            capacity = max(size, int(stored.details.get("size", 0)))
            self._system = FileSystem(
                stored.style, capacity, now, share=self._share, root=stored.root
            )
            self._system.volume.take(stored.size, stored.inodes)
            self._saved = self._system.changes
        return self._system

    def separate(self, now: float) -> None:
        """Nodes that have it mounted keep a private copy: the disk was detached from a running
        machine.
        """
        if self._system is not None:
            self._system = self._system.copy(0, now)
            self._saved = -1

    # ---- nodes with real files ----

    def real_folder(self, style: PathStyle) -> Path:
        """The folder to mount. Raises ContentError and OSError."""
        if self._files is None:
            raise ContentError("this cluster has no folder")
        if not self._files.is_dir():
            system = self._loaded(style, 0, 0.0)
            if system is not None and self._share:
                raise ContentError("it is in use by a simulated node")
            root = self._files / "root"
            root.mkdir(parents=True)
            os.chmod(root, 0o777)
            if system is not None:
                _write_folder(system.root, root)
            if (system.style if system is not None else style) is WINDOWS:
                (self._files / ".ntfs").touch()
            self._system = None
            if self._tree is not None:
                self._tree.unlink(missing_ok=True)
        return self._files / "root"

    # ---- persistence ----

    def clear(self) -> None:
        """Clears the content when the disk is deleted or reformatted."""
        self._system, self._saved = None, -1
        for path in (self._tree, self._files):
            if path is not None and path.is_dir():
                shutil.rmtree(path)
            elif path is not None:
                path.unlink(missing_ok=True)

    @property
    def used(self) -> int:
        """Used bytes, while a simulated node has it in memory."""
        return self._system.space.used if self._system is not None else 0

    @property
    def changed(self) -> bool:
        """Whether memory has changes that are not in the folder."""
        return (
            self._system is not None
            and self._tree is not None
            and self._system.changes != self._saved
        )

    def _image(self) -> tuple[Path, TreeImage] | None:
        system = self._system
        if system is None or self._tree is None:
            return None
        self._saved = system.changes
        return self._tree, TreeImage(system.root, system.style, {"size": system.space.capacity})

    def save(self) -> None:
        if self.changed and (image := self._image()) is not None:
            _write(*image)

    async def save_in_background(self) -> None:
        if self.changed and (image := self._image()) is not None:
            await asyncio.to_thread(_write, *image)


def is_content_mounted(folder: Path) -> bool:
    """Whether a part of the folder is mounted anywhere. Content names are unique, so comparing the
    end of the path is enough.
    """
    with open("/proc/self/mountinfo", "rb") as file:
        return f"/{folder.name}/".encode() in file.read()


def _write(path: Path, image: TreeImage) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, image.encode(), 0o600)


def _read_folder(folder: Path, style: PathStyle, now: float) -> Inode:
    root = style.node("", FORMAT["directory"] | 0o777, {}, now, 0 if style.has_owners else 1)

    def add(directory: Path, entries: dict[str, Inode]) -> None:
        with os.scandir(directory) as found:
            for entry in found:
                seen = entry.stat(follow_symlinks=False)
                owner = seen.st_uid << 32 | seen.st_gid if style.has_owners else 1
                node = style.node(
                    entry.name,
                    stat.S_IFMT(seen.st_mode) | seen.st_mode & 0o7777,
                    None,
                    seen.st_mtime,
                    owner,
                )
                if entry.is_symlink():
                    node.data = os.readlink(entry.path)
                elif entry.is_dir():
                    node.data = {}
                    add(Path(entry.path), node.data)
                elif entry.is_file():
                    if seen.st_size > _LARGEST_FILE:
                        raise ContentError(f"{entry.path} is too large for a simulated node")
                    node.data = Path(entry.path).read_bytes()
                else:
                    continue
                (key,) = style.fold([entry.name])
                entries[key] = node

    assert type(root.data) is dict
    add(folder, root.data)
    return root


def _write_folder(node: Inode, folder: Path) -> None:
    """Writes as much as this process may: setting owners requires root. Names come from a file
    system and cannot escape the folder.
    """
    for key, child in node.data.items() if type(node.data) is dict else ():
        path = folder / child.called(key)
        if type(child.data) is dict:
            path.mkdir()
            _write_folder(child, path)
        elif type(child.data) is str:
            path.symlink_to(child.data)
            continue
        elif isinstance(child.data, bytes | bytearray):
            path.write_bytes(child.data)
        elif type(child.data) is int:
            with path.open("wb") as file:
                file.truncate(child.data)
        else:
            continue
        if os.geteuid() == 0 and not child.of_windows:
            os.chown(path, child.owner >> 32, child.owner & 0xFFFFFFFF)
        path.chmod(child.mode & 0o7777 or 0o644)
