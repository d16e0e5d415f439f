"""Resolves the path of a layer's entry through the layer itself and those below it.

A layer's own directory holds only what the layer itself adds, so parent directories and links of an
entry may be in a layer below. Links are followed within the root only. Windows names are
case-insensitive and keep the spelling of the lowest layer. This module writes only parent
directories and overlayfs' markers.
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
_DEEPEST: Final = 256  # deeper trees are hard to delete
_OPAQUE: Final = ("trusted.overlay.opaque", "user.overlay.opaque")
_NO_XATTR: Final = (errno.ENODATA, errno.ENOTSUP, errno.EPERM)


class MergedFolder:
    """A directory of the merged tree. `lowers` are the visible directories of the layers below,
    topmost first.
    """

    __slots__ = ("_names", "depth", "lowers", "own", "parent", "real")

    def __init__(
        self, own: str, lowers: list[str], parent: MergedFolder | None, real: bool
    ) -> None:
        self.own = own  # its path in this layer
        self.lowers = lowers
        self.parent = parent
        self.depth: int = parent.depth + 1 if parent else 0
        self.real = real  # whether it exists in this layer
        self._names: dict[str, str] | None = None

    def spelling(self, name: str) -> str:
        """As a layer below, or this layer, spells it."""
        if self._names is None:
            self._names = {}
            for place in (*reversed(self.lowers), *((self.own,) if self.real else ())):
                for other in os.listdir(place):
                    self._names.setdefault(other.casefold(), other)
        return self._names.setdefault(name.casefold(), name)


class MergedTree:
    def __init__(self, own: str, below: Sequence[str], *, fold: bool = False) -> None:
        """`below`: the layers' directories, lowest first. `fold`: case-insensitive names, as on
        Windows.
        """
        self.root = MergedFolder(own, list(reversed(below)), None, True)
        # parent directories, and what they were below
        self.touched: list[tuple[str, os.stat_result]] = []
        self._fold = fold
        self._folders: dict[str, MergedFolder] = {own: self.root}
        self._parents: dict[tuple[str, ...], MergedFolder] = {}
        self._links: set[str] = set()  # of this layer

    def parent(self, parts: tuple[str, ...]) -> tuple[MergedFolder, str]:
        """The directory that contains the last part, and the part's name there."""
        way = parts[:-1]
        folder = self._parents.get(way)
        if folder is None:
            folder = self._parents[way] = self._walk(self.root, way, [])
        return folder, self.name(folder, parts[-1])

    def name(self, folder: MergedFolder, part: str) -> str:
        return folder.spelling(part) if self._fold else part

    def find(self, folder: MergedFolder, name: str) -> tuple[str, os.stat_result] | None:
        """What is visible under a name: its path and kind; None for nothing."""
        for place in (folder.own, *folder.lowers) if folder.real else folder.lowers:
            path = f"{place}/{name}"
            found = lstat_or_none(path)
            if found is not None:
                return None if is_whiteout(found) else (path, found)
        return None

    def enter(self, folder: MergedFolder, name: str) -> MergedFolder:
        """The directory of that name, which may not exist yet."""
        own = f"{folder.own}/{name}"
        known = self._folders.get(own)
        if known is None:
            found = lstat_or_none(own) if folder.real else None
            real = found is not None and stat.S_ISDIR(found.st_mode)
            hidden = found is not None and (not real or is_opaque(own))
            known = self._folders[own] = MergedFolder(
                own, [] if hidden else _lower_folders(folder, name), folder, real
            )
            if known.depth > _DEEPEST:
                raise ImageError(f"folders are nested more than {_DEEPEST} deep")
        return known

    def make(self, folder: MergedFolder) -> None:
        """Creates the directory in this layer with the metadata from below; one that no layer has
        belongs to root, 0755.
        """
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

    def hide(self, folder: MergedFolder) -> None:
        """Hides everything below."""
        below = f"{folder.own}/"
        for own, other in self._folders.items():
            if other is folder or own.startswith(below):
                other.lowers.clear()

    def linked(self, path: str) -> None:
        """This layer has created a link, so cached paths may resolve differently."""
        self._links.add(path)
        self._parents.clear()

    def replaced(self) -> None:
        """Something has become a directory that was not one below."""
        self._parents.clear()

    def _walk(self, folder: MergedFolder, parts: Sequence[str], links: list[str]) -> MergedFolder:
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

    def _follow(
        self, folder: MergedFolder, link: str, rest: Sequence[str], links: list[str]
    ) -> MergedFolder:
        target = os.readlink(link)
        links.append(f"{os.path.basename(link)} -> {target}")
        if len(links) > _MOST_LINKS:
            raise ImageError(f"too many links: {links[0][:200]}")
        if target.startswith("/") and link in self._links:
            # A layer is the difference of two trees: a valid layer does not go through a link that
            # it has just created.
            raise ImageError(f"a link leads out of the root: {links[-1][:200]}")
        start = self.root if target.startswith("/") else folder
        return self._walk(start, (*target.split("/"), *rest), links)


def lstat_or_none(path: str) -> os.stat_result | None:
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
    """For overlayfs; sets the trusted attribute, or the one for overlays in user namespaces.
    Returns whether either could be set.
    """
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
    """Returns whether it could be created: Linux allows that to all users from 5.8 on."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(0, 0))
    except PermissionError:
        return False
    return True


def clear_whiteout(path: str) -> bool:
    """Returns whether one was in the way."""
    found = lstat_or_none(path)
    if found is None or not is_whiteout(found):
        return False
    os.unlink(path)
    return True


def copy_metadata(source: str, target: str) -> None:
    """Owner, mode, times and attributes: a directory of a layer hides those of the directory
    below.
    """
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


def _lower_folders(folder: MergedFolder, name: str) -> list[str]:
    """Directories of that name below, down to the first opaque one."""
    found = []
    for lower in folder.lowers:
        path = f"{lower}/{name}"
        what = lstat_or_none(path)
        if what is None:
            continue
        if not stat.S_ISDIR(what.st_mode):
            break
        found.append(path)
        if is_opaque(path):
            break
    return found
