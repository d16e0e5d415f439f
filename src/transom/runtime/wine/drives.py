r"""Paths of Windows as files of this machine: `C:\App\x.exe` below the folder that is a container's C: drive.

Names are the same in capitals and small letters; those that are there keep their spelling, which is looked up here.
"""

from __future__ import annotations

import ntpath
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Final

_DRIVE: Final = re.compile(r"([A-Za-z]):(.*)", re.DOTALL)
PIPE: Final = re.compile(r"\\\\\.\\pipe\\(.+)", re.IGNORECASE)


def split(path: str) -> tuple[str, list[str]]:
    r"""The drive's letter, small, and the names: `\\?\` is taken off, `/` means `\`, and no drive means C:."""
    path = path.replace("/", "\\").removeprefix("\\\\?\\")
    match = _DRIVE.fullmatch(path)
    letter, rest = (match[1].lower(), match[2]) if match else ("c", path)
    return letter, [name for name in ntpath.normpath("\\" + rest).split("\\") if name not in ("", ".", "..")]


def spelt(root: Path, names: Iterable[str]) -> PurePosixPath:
    """Names below a folder as they are spelt there, as far as they are there; links are not followed out."""
    found = PurePosixPath()
    here: Path | None = root
    for name in names:
        name = _spelling(here, name) if here is not None else name
        found /= name
        here = here / name if here is not None and (here / name).is_dir() else None
    return found


def _spelling(folder: Path, name: str) -> str:
    if os.path.lexists(folder / name):
        return name
    folded = name.lower()
    try:
        return next((other for other in os.listdir(folder) if other.lower() == folded), name)
    except OSError:
        return name


def unite(snapshot: Path, template: Path, layers: Iterable[Path]) -> None:
    """Moves what layers spell otherwise than the template to where the template has it; both lie in the snapshot."""
    for layer in layers:
        for name in os.listdir(layer):
            own = _spelling(template, name)
            if own != name and (snapshot / name).is_dir():
                _move_into(snapshot / name, snapshot / own)


def _move_into(source: Path, target: Path) -> None:
    if not (source.is_dir() and not source.is_symlink() and target.is_dir()):
        target.unlink(missing_ok=True)
        shutil.move(source, target)
        return
    for name in os.listdir(source):
        _move_into(source / name, target / _spelling(target, name))
    source.rmdir()


def find_program(prefix: Path, name: str, folders: Iterable[str], cwd: str) -> bool:
    """Whether CreateProcess finds a program. `prefix` has the folders of all drives."""
    candidates = [name, f"{name}.exe"] if "." not in ntpath.basename(name) else [name]
    places = [cwd] if ntpath.dirname(name) or _DRIVE.match(name) else [cwd, *folders]
    for place in places:
        for candidate in candidates:
            letter, names = split(ntpath.join(place, candidate))
            root = prefix / folder(letter)
            if os.path.lexists(root / spelt(root, names)):
                return True
    return False


def folder(letter: str) -> str:
    """Of a drive, in a prefix."""
    return "drive_c" if letter == "c" else f"drives/{letter}"
