r"""Maps Windows paths to files of this machine: `C:\App\x.exe` below the directory that is a
container's C: drive.

Names are case-insensitive; existing ones keep their spelling, which is looked up here.
"""

from __future__ import annotations

import ntpath
import os
import re
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Final

_DRIVE: Final = re.compile(r"([A-Za-z]):(.*)", re.DOTALL)
PIPE: Final = re.compile(r"\\\\\.\\pipe\\(.+)", re.IGNORECASE)


def split_windows_path(path: str) -> tuple[str, list[str]]:
    r"""The drive letter in lower case, and the names: `\\?\` is removed, `/` means `\`, and the
    default drive is C:.
    """
    path = path.replace("/", "\\").removeprefix("\\\\?\\")
    match = _DRIVE.fullmatch(path)
    letter, rest = (match[1].lower(), match[2]) if match else ("c", path)
    return letter, [
        name for name in ntpath.normpath("\\" + rest).split("\\") if name not in ("", ".", "..")
    ]


def spelled_path(root: Path, names: Iterable[str]) -> PurePosixPath:
    """Names below a directory with their existing spelling, as far as they exist; links are not
    followed out of it.
    """
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


def join_windows_path(snapshot: Path, template: Path, layers: Iterable[Path]) -> None:
    """Moves what layers spell differently from the template to the template's path; both are in the
    snapshot. Links in it are the image's, and may point anywhere: none is followed, and one in the
    way is removed.
    """
    for layer in layers:
        for name in os.listdir(layer):
            own = _spelling(template, name)
            if own != name and is_directory(snapshot / name):
                _move_into(snapshot / name, snapshot / own)


def is_directory(path: Path) -> bool:
    """And not a link to one."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def _move_into(source: Path, target: Path) -> None:
    if not (is_directory(source) and is_directory(target)):
        if is_directory(target):
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)
        shutil.move(source, target)
        return
    for name in os.listdir(source):
        _move_into(source / name, target / _spelling(target, name))
    source.rmdir()


def has_program(prefix: Path, name: str, folders: Iterable[str], cwd: str) -> bool:
    """Whether CreateProcess finds a program. `prefix` contains the directories of all drives."""
    candidates = [name, f"{name}.exe"] if "." not in ntpath.basename(name) else [name]
    places = [cwd] if ntpath.dirname(name) or _DRIVE.match(name) else [cwd, *folders]
    for place in places:
        for candidate in candidates:
            letter, names = split_windows_path(ntpath.join(place, candidate))
            root = prefix / drive_folder(letter)
            if os.path.lexists(root / spelled_path(root, names)):
                return True
    return False


def drive_folder(letter: str) -> str:
    """The folder of a drive, in a prefix."""
    return "drive_c" if letter == "c" else f"drives/{letter}"
