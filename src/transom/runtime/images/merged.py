"""Where an entry of a layer goes: its path, followed through what the layer and those below it have already.

A layer's own folder holds only what the layer itself brings, so the folders and links on the way to an entry may be in a
layer below. Links are followed within the root only. Windows' names are the same in capitals and small letters, and are
kept as the lowest layer spells them. Nothing is written here but folders on the way, and overlayfs' marks.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Sequence
from typing import Final

from transom.runtime.images.model import ImageError

_MOST_LINKS: Final = 40
_DEEPEST: Final = 256  # a deeper tree is hard to get rid of again
_OPAQUE: Final = ("trusted.overlay.opaque", "user.overlay.opaque")
_NO_XATTR: Final = (errno.ENODATA, errno.ENOTSUP, errno.EPERM)


class Folder:
    """A folder of the merged tree. `lowers` are those folders of the layers below that show through, the topmost first."""

    __slots__ = ("_names", "depth", "lowers", "own", "parent", "real")

    def __init__(self, own: str, lowers: list[str], parent: Folder | None, real: bool) -> None:
        self.own = own  # its place in this layer
        self.lowers = lowers
        self.parent = parent
        self.depth: int = parent.depth + 1 if parent else 0
        self.real = real  # it is in this layer
        self._names: dict[str, str] | None = None

    def spelling(self, name: str) -> str:
        """As somebody below, or this layer, writes it."""
        if self._names is None:
            self._names = {}
            for place in (*reversed(self.lowers), *((self.own,) if self.real else ())):
                for other in os.listdir(place):
                    self._names.setdefault(other.casefold(), other)
        return self._names.setdefault(name.casefold(), name)


class Merged:
    def __init__(self, own: str, below: Sequence[str], *, fold: bool = False) -> None:
        """`below`: the layers' folders, the lowest first. `fold`: names as on Windows."""
        self.root = Folder(own, list(reversed(below)), None, True)
        self.touched: list[tuple[str, os.stat_result]] = []  # folders on the way, and what they were below
        self._fold = fold
        self._folders: dict[str, Folder] = {own: self.root}
        self._parents: dict[tuple[str, ...], Folder] = {}
        self._links: set[str] = set()  # of this layer

    def parent(self, parts: tuple[str, ...]) -> tuple[Folder, str]:
        """The folder that the last of the parts is in, and the name it has there."""
        way = parts[:-1]
        folder = self._parents.get(way)
        if folder is None:
            folder = self._parents[way] = self._walk(self.root, way, [])
        return folder, self.name(folder, parts[-1])

    def name(self, folder: Folder, part: str) -> str:
        return folder.spelling(part) if self._fold else part

    def find(self, folder: Folder, name: str) -> tuple[str, os.stat_result] | None:
        """What shows under a name: where it is, and what; None for nothing."""
        for place in (folder.own, *folder.lowers) if folder.real else folder.lowers:
            path = f"{place}/{name}"
            found = look(path)
            if found is not None:
                return None if is_whiteout(found) else (path, found)
        return None

    def enter(self, folder: Folder, name: str) -> Folder:
        """The folder of that name, which may not be there yet."""
        own = f"{folder.own}/{name}"
        known = self._folders.get(own)
        if known is None:
            found = look(own) if folder.real else None
            real = found is not None and stat.S_ISDIR(found.st_mode)
            hidden = found is not None and (not real or is_opaque(own))
            known = self._folders[own] = Folder(own, [] if hidden else _shining(folder, name), folder, real)
            if known.depth > _DEEPEST:
                raise ImageError(f"folders are nested more than {_DEEPEST} deep")
        return known

    def make(self, folder: Folder) -> None:
        """The folder is in this layer from now on, as it is below; one that nobody has is root's, 0755."""
        if folder.real:
            return
        assert folder.parent is not None
        self.make(folder.parent)
        again = clear_whiteout(folder.own)
        os.mkdir(folder.own, 0o755)
        if folder.lowers:
            copy_metadata(folder.lowers[0], folder.own)
            self.touched.append((folder.own, os.lstat(folder.lowers[0])))
        else:
            os.chmod(folder.own, 0o755)
        if again:
            mark_opaque(folder.own)
        folder.real = True

    def hide(self, folder: Folder) -> None:
        """Nothing shows through any longer."""
        below = f"{folder.own}/"
        for own, other in self._folders.items():
            if other is folder or own.startswith(below):
                other.lowers.clear()

    def linked(self, path: str) -> None:
        """This layer has made a link, so ways may lead elsewhere from now on."""
        self._links.add(path)
        self._parents.clear()

    def replaced(self) -> None:
        """Something has become a folder that was none below."""
        self._parents.clear()

    def _walk(self, folder: Folder, parts: Sequence[str], links: list[str]) -> Folder:
        for i, part in enumerate(parts):
            if part in ("", "."):
                continue
            if part == "..":
                if folder.parent is None:
                    raise ImageError(f"a link leads out of the root: {links[-1][:200]}")
                folder = folder.parent
                continue
            name = self.name(folder, part)
            found = self.find(folder, name)
            if found is not None and stat.S_ISLNK(found[1].st_mode):
                return self._follow(folder, found[0], parts[i + 1 :], links)
            if found is not None and not stat.S_ISDIR(found[1].st_mode):
                raise ImageError(f"{name[:100]!r}: not a directory")
            folder = self.enter(folder, name)
        return folder

    def _follow(self, folder: Folder, link: str, rest: Sequence[str], links: list[str]) -> Folder:
        target = os.readlink(link)
        links.append(f"{os.path.basename(link)} -> {target}")
        if len(links) > _MOST_LINKS:
            raise ImageError(f"too many links: {links[0][:200]}")
        if target.startswith("/") and link in self._links:
            # A layer is the difference of two trees: nobody who tells the truth goes through a link he has just made.
            raise ImageError(f"a link leads out of the root: {links[-1][:200]}")
        start = self.root if target.startswith("/") else folder
        return self._walk(start, (*target.split("/"), *rest), links)


def look(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def is_whiteout(found: os.stat_result) -> bool:
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def is_opaque(folder: str) -> bool:
    for name in _OPAQUE:
        try:
            if os.getxattr(folder, name, follow_symlinks=False) == b"y":
                return True
        except OSError as problem:
            if problem.errno not in _NO_XATTR:
                raise
    return False


def mark_opaque(folder: str) -> bool:
    """For overlayfs; root's attribute, or the one that overlays in user namespaces take. Whether either could be set."""
    for name in _OPAQUE[0 if os.geteuid() == 0 else 1 :]:
        try:
            os.setxattr(folder, name, b"y", follow_symlinks=False)
        except OSError as problem:
            if problem.errno not in _NO_XATTR:
                raise
        else:
            return True
    return False


def make_whiteout(path: str) -> bool:
    """Whether it could be made: Linux lets everybody do that from 5.8 on."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(0, 0))
    except PermissionError:
        return False
    return True


def clear_whiteout(path: str) -> bool:
    """Whether one was in the way."""
    found = look(path)
    if found is None or not is_whiteout(found):
        return False
    os.unlink(path)
    return True


def copy_metadata(source: str, target: str) -> None:
    """Owner, mode, times and attributes: a folder of a layer hides those of the folder below."""
    found = os.lstat(source)
    if os.geteuid() == 0:
        os.lchown(target, found.st_uid, found.st_gid)
    shutil.copystat(source, target, follow_symlinks=False)
    for name in _OPAQUE:
        try:
            os.removexattr(target, name, follow_symlinks=False)
        except OSError as problem:
            if problem.errno not in _NO_XATTR:
                raise


def _shining(folder: Folder, name: str) -> list[str]:
    """Folders of that name below, down to the first that hides the others."""
    found = []
    for lower in folder.lowers:
        path = f"{lower}/{name}"
        what = look(path)
        if what is None:
            continue
        if not stat.S_ISDIR(what.st_mode):
            break
        found.append(path)
        if is_opaque(path):
            break
    return found
