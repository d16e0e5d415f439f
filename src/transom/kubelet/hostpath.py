"""Kubernetes' check of a hostPath by the type that the pod gives. The same on both systems."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from transom.kubelet.failures import VolumeFailure
from transom.machines.api import Files

FileError = Callable[[str, str, OSError], str]
"""Formats an error as the system does: the operation, the path, the error."""

_FILE_KINDS: Final = {
    "directory": "Directory",
    "file": "File",
    "socket": "Socket",
    "char": "CharDevice",
    "block": "BlockDevice",
}
_KIND_WORDS: Final = {
    "Directory": "a directory",
    "File": "a file",
    "Socket": "a socket file",
    "CharDevice": "a character device",
    "BlockDevice": "a block device",
}


def prepare_host_path(files: Files, path: str, kind: str, file_error: FileError) -> None:
    """Raises VolumeFailure. Creates the path where the type allows it."""
    if not kind:
        return
    try:
        found = _FILE_KINDS.get(files.stat(path).kind, "")
    except OSError:
        found = None
    if kind in ("DirectoryOrCreate", "FileOrCreate"):
        wanted = kind.removesuffix("OrCreate")
        if found is None:
            _make(files, path, wanted, file_error)
            return
        kind = wanted
    if kind not in _KIND_WORDS:
        raise VolumeFailure(f"{kind} is an invalid volume type")
    if found != kind:
        raise VolumeFailure(f"hostPath type check failed: {path} is not {_KIND_WORDS[kind]}")


def _make(files: Files, path: str, kind: str, file_error: FileError) -> None:
    try:
        if kind == "Directory":
            files.mkdir(path, 0o755)
        else:
            files.write(path, b"", 0o644)
    except OSError as problem:
        raise VolumeFailure(
            file_error("mkdir" if kind == "Directory" else "open", path, problem)
        ) from problem
