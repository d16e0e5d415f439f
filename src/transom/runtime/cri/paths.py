"""Translates between a node's paths and the runtime's.

A kubelet's files may be in a directory (`hosts.realfiles`) that is the root of its node's paths;
the runtime sees the machine itself. Without such a directory both are the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from transom.machines.api import Files


class RealNodeFiles(Files, Protocol):
    """Implemented by `machines.realfiles.RealFiles`."""

    @property
    def folder(self) -> Path: ...
    def real(self, path: str) -> str: ...
    def below(self, directory: str) -> RealNodeFiles: ...


class CriPaths:
    """`files` None: the node's files are the machine's."""

    __slots__ = ("_files", "_folder")

    def __init__(self, files: RealNodeFiles | None) -> None:
        self._files = files
        self._folder = str(files.folder).rstrip("/") if files is not None else ""

    def real(self, path: str) -> str:
        """Raises OSError when the path cannot be resolved."""
        return self._files.real(path) if self._files is not None and path else path

    def mounted(self, path: str, volume: str = "") -> str:
        """For a mount: creates a missing path as a directory, as runtimes do. `volume`: what the
        path must not leave. Raises OSError.
        """
        if self._files is None:
            return path
        files = self._files.below(volume) if volume else self._files
        if not files.exists(path):
            files.mkdir(path)
        return files.real(path)

    def shown(self, path: str) -> str:
        """A path of the machine as the node's; unchanged when it is outside of the node's
        directory.
        """
        folder = self._folder
        return path[len(folder) :] if folder and path.startswith(f"{folder}/") else path
