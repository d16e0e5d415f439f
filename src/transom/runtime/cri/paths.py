"""A node's paths as the runtime must know them, and back.

A kubelet's files may lie in a folder (`hosts.realfiles`), in which the paths of its node begin; the runtime sees the machine
as it is. Without such a folder both are the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class NodeFiles(Protocol):
    """`hosts.realfiles.RealFiles` is one."""

    @property
    def folder(self) -> Path: ...
    def real(self, path: str) -> str: ...
    def exists(self, path: str) -> bool: ...
    def mkdir(self, path: str, mode: int = 0o755, *, parents: bool = True) -> None: ...


class Paths:
    """`files` None: the node's files are the machine's."""

    __slots__ = ("_files", "_folder")

    def __init__(self, files: NodeFiles | None) -> None:
        self._files = files
        self._folder = str(files.folder).rstrip("/") if files is not None else ""

    def real(self, path: str) -> str:
        """OSError when there is no way to it."""
        return self._files.real(path) if self._files is not None and path else path

    def mounted(self, path: str) -> str:
        """For a mount: what is not there becomes a directory, as runtimes do it."""
        if self._files is not None and not self._files.exists(path):
            self._files.mkdir(path)
        return self.real(path)

    def shown(self, path: str) -> str:
        """A path of the machine as the node's; as it is when it lies outside of the node's folder."""
        folder = self._folder
        return path[len(folder) :] if folder and path.startswith(f"{folder}/") else path
