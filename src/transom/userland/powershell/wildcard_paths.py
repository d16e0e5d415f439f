"""Paths with wildcards: `C:\\k\\*.ps1`, `C:\\Users\\*\\notes.txt`."""

from __future__ import annotations

import ntpath
from fnmatch import fnmatchcase

from transom.userland.files import FileView


def has_wildcards(path: str) -> bool:
    return "*" in path or "?" in path


def expand_path(files: FileView, path: str) -> list[str]:
    """The items that match a path; a path without wildcards is returned unchanged."""
    if not has_wildcards(path):
        return [path]
    directory, mask = ntpath.split(path.replace("/", "\\"))
    mask = "*" if mask == "*.*" else mask
    out: list[str] = []
    for parent in expand_path(files, directory) if has_wildcards(directory) else [directory]:
        try:
            names = files.listdir(parent or ".") if has_wildcards(mask) else [mask]
        except OSError:
            continue
        for name in names:
            found = files.join(parent, name) if parent else name
            if fnmatchcase(name.lower(), mask.lower()) and files.exists(found):
                out.append(found)
    return out


def is_picked(name: str, include: list[str], exclude: list[str]) -> bool:
    """-Include and -Exclude, for the last part of a path."""
    lower = name.lower()
    if include and not any(fnmatchcase(lower, one.lower()) for one in include):
        return False
    return not any(fnmatchcase(lower, one.lower()) for one in exclude)
