"""Stages a container's mounts where only root can change anything, before runc sees them.

runc receives paths and resolves them itself: a path that another container can change at that
moment may point anywhere on the machine (CVE-2021-25741, CVE-2021-30465, CVE-2024-45310). So each
file of the node that a container mounts is opened without following any link, and the open file is
mounted in a directory of our own, with its propagation; runc receives the path in that directory.
Volumes that are mounted inside other volumes are assembled here as well, because their mount points
are in directories that other containers can change; runc receives the outer one with everything in
it.

runc itself still resolves paths in the container's root file system, which has no process yet that
could change it.
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
import stat
from collections.abc import Sequence
from typing import Any, Final

from transom.machines import idmapping, mounting, pinning

PINNED: Final = "pinned"  # in an entry of `mounts`: containers can change the path of its source
SHARED: Final = "shared"  # other containers can change its content, but not the path of its source
MAPPED: Final = "mapped"  # its source already has the owners of the container's user namespace
FOLDER: Final = "mounts"  # in the folder of a container
_MARKS: Final = (PINNED, SHARED, MAPPED)
_LINKS: Final = 40
_MODE: Final = 0o755  # of missing mount points, as runc creates them
_FLAGS: Final = {"private": mounting.PRIVATE, "slave": mounting.SLAVE, "shared": mounting.SHARED}
_PROPAGATION: Final = {f"{prefix}{name}": name for prefix in ("", "r") for name in _FLAGS}
# Flags of statvfs(3) that a remount must not remove, and their mount(2) equivalents.
_OPTIONS: Final = {
    "ro": mounting.READ_ONLY,
    "nosuid": mounting.NO_SUID,
    "nodev": mounting.NO_DEVICES,
    "noexec": mounting.NO_EXEC,
}
_KEPT: Final = (
    (os.ST_NOSUID, mounting.NO_SUID),
    (os.ST_NODEV, mounting.NO_DEVICES),
    (os.ST_NOEXEC, mounting.NO_EXEC),
    (os.ST_NOATIME, 0x400),
    (os.ST_NODIRATIME, 0x800),
    (os.ST_RELATIME, 0x200000),
)
# runc binds /dev/null over masked paths, and creates the others: all by path, in the container
# (CVE-2025-31133, CVE-2025-52565). No other process may change what these names point to.
_DEVICES: Final = frozenset(
    f"/dev/{name}"
    for name in (
        "null",
        "zero",
        "full",
        "random",
        "urandom",
        "tty",
        "console",
        "ptmx",
        "pts",
        "fd",
        "stdin",
        "stdout",
        "stderr",
        "core",
    )
) | {"/dev"}

_OUTSIDE: Final = (
    "current working directory is outside of container mount namespace root -- possible "
    "container breakout detected"
)
_DESCRIPTORS: Final = re.compile(
    r"/proc/(self|thread-self|\d+)(/|$)|/dev/(fd|stdin|stdout|stderr)(/|$)"
)

Entry = dict[str, Any]


class MountStage:
    """`root` is the container's root file system, `folder` where the mounts are staged. Nothing is
    staged before `gather`.
    """

    def __init__(self, folder: str, root: str, user_namespace: int = -1) -> None:
        """`user_namespace`: a descriptor of the container's; -1 for a container in this process's
        own.
        """
        self._folder = folder
        self._root = root
        self._user_namespace = user_namespace
        self._mounted = False
        self._mounted_root = ""
        self._slots: list[_Slot] = []
        self._placed: dict[str, _Slot] = {}  # by destination, without links

    def gather(self, mounts: Sequence[Entry], *, masked: bool) -> list[Entry]:
        """The entries for runc. `masked`: some paths of the container are masked. Raises OSError,
        and then leaves nothing behind.
        """
        try:
            kept = [
                slot
                for slot in [self._place(entry, masked) for entry in mounts]
                if slot.parent is None
            ]
            # inner ones first: an outer one is mounted with everything in it
            for slot in reversed(self._slots):
                if slot.parent is not None:
                    self._nest(slot, slot.parent)
        except BaseException:
            self.close()
            raise
        finally:
            for slot in self._slots:
                slot.forget_unmapped()
        return [slot.for_runc() for slot in kept]

    def root(self) -> str:
        """Where runc finds the root file system."""
        if self._user_namespace < 0:
            return self._root
        # stays: runc requires it for each command
        path = os.path.join(os.path.dirname(self._folder), "root")
        os.makedirs(path, mode=0o711, exist_ok=True)
        mounting.mount_filesystem(self._root, path, "", mounting.BIND | mounting.RECURSIVE)
        self._mounted_root = path
        mounting.mount_filesystem("none", path, "", mounting.PRIVATE | mounting.RECURSIVE)
        return path

    def check_directory(self, path: str) -> None:
        """The working directory of the container's first process. runc changes to it before it
        closes its own descriptors, whose names in /proc could reach the machine's files
        (CVE-2024-21626). Raises OSError.
        """
        _, _, found = self._destination(path)
        if _DESCRIPTORS.match(found):
            raise OSError(errno.EACCES, _OUTSIDE, path)

    def close(self) -> None:
        """Unmounts the staged mounts once the container has its own."""
        if self._mounted:
            # Otherwise mounts inside a volume would also be unmounted at their source.
            mounting.mount_filesystem(
                "none", self._folder, "", mounting.PRIVATE | mounting.RECURSIVE
            )
            mounting.unmount_filesystem(self._folder)
            self._mounted = False
        if self._mounted_root:
            mounting.unmount_filesystem(self._mounted_root)
            self._mounted_root = ""

    def _place(self, entry: Entry, masked: bool) -> _Slot:
        pinned = bool(entry.get(PINNED))
        slot = _Slot(entry)
        slot.parent, slot.rest, destination = self._destination(str(entry["destination"]))
        slot.entry["destination"] = destination
        if masked and destination in _DEVICES and (pinned or slot.parent is not None):
            raise OSError(
                errno.EPERM,
                "a volume cannot replace devices of a container that is not privileged",
                destination,
            )
        # A user who runs runc in a user namespace cannot reach our directories.
        if (
            pinned
            or slot.parent is not None
            or (self._user_namespace >= 0 and entry["type"] == "bind")
        ):
            self._fill(slot, pinned=pinned)
        self._placed[destination] = slot
        return slot

    # ---- sources ----

    def _fill(self, slot: _Slot, *, pinned: bool) -> None:
        """Mounts the source in the staging directory."""
        source = str(slot.entry["source"])
        # The other paths are our own: no container can change them.
        fd = (
            pinning.open_without_links(source)
            if pinned
            else os.open(source, os.O_PATH | os.O_CLOEXEC)
        )
        try:
            self._open_folder()
            slot.path = f"{self._folder}/{len(self._slots)}"
            slot.is_directory = stat.S_ISDIR(os.fstat(fd).st_mode)
            if slot.is_directory:
                os.mkdir(slot.path, 0o711)
            else:
                os.close(
                    os.open(slot.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
                )
            if self._user_namespace >= 0 and not slot.is_mapped:
                idmapping.mount_mapped(fd, slot.path, self._user_namespace)
                slot.unmapped = os.dup(fd)
            else:
                mounting.mount_filesystem(
                    f"/proc/self/fd/{fd}", slot.path, "", mounting.BIND | mounting.RECURSIVE
                )
        finally:
            os.close(fd)
        self._slots.append(slot)
        mounting.mount_filesystem(
            "none", slot.path, "", _FLAGS[slot.propagation] | mounting.RECURSIVE
        )
        flags = sum(flag for option, flag in _OPTIONS.items() if option in slot.entry["options"])
        if flags:
            used = os.statvfs(slot.path).f_flag
            for bit, flag in _KEPT:
                flags |= flag if used & bit else 0
            mounting.mount_filesystem(
                "none", slot.path, "", mounting.REMOUNT | mounting.BIND | flags
            )

    def _open_folder(self) -> None:
        """A private tmpfs: one unmount removes everything."""
        if not self._mounted:
            os.makedirs(self._folder, mode=0o711, exist_ok=True)
            mounting.mount_filesystem(
                "tmpfs",
                self._folder,
                "tmpfs",
                mounting.NO_SUID | mounting.NO_DEVICES,
                "mode=711,size=1m",
            )
            self._mounted = True
            mounting.mount_filesystem("none", self._folder, "", mounting.PRIVATE)

    # ---- destinations ----

    def _destination(self, path: str) -> tuple[_Slot | None, list[str], str]:
        """The mount that contains it, if others can change that one, and the path inside; and the
        path without links.
        """
        left = [name for name in reversed(posixpath.normpath(f"/{path}").split("/")) if name]
        root = os.open(self._root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        way, names, opened, links = [root], list[str](), [root], 0
        try:
            while left:
                name = left.pop()
                if name == "..":
                    if names:
                        names.pop()
                        way.pop()
                    continue
                here = "/" + "/".join([*names, name])
                if here in self._placed and left:
                    slot = self._placed[here]
                    if slot.is_shared:
                        return self._inside(
                            slot, [part for part in reversed(left) if part not in ("", ".")], here
                        )
                    way.append(slot.open())
                    if way[-1] >= 0:
                        opened.append(way[-1])
                    names.append(name)
                    continue
                fd = self._look(way[-1], name)
                if fd >= 0:
                    opened.append(fd)
                    if stat.S_ISLNK(os.fstat(fd).st_mode):
                        links += 1
                        if links > _LINKS:
                            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                        target = os.readlink("", dir_fd=fd)
                        if target.startswith("/"):
                            way, names = [root], []
                        left += [
                            part for part in reversed(target.split("/")) if part not in ("", ".")
                        ]
                        continue
                way.append(fd)
                names.append(name)
            return None, [], "/" + "/".join(names)
        finally:
            for fd in opened:
                os.close(fd)

    @staticmethod
    def _look(directory: int, name: str) -> int:
        """-1: it does not exist, and nothing can be below it."""
        if directory < 0:
            return -1
        try:
            return os.open(name, pinning.LOOK, dir_fd=directory)
        except (FileNotFoundError, NotADirectoryError):
            return -1

    def _inside(self, slot: _Slot, rest: list[str], at: str) -> tuple[_Slot, list[str], str]:
        """Resolves further in, as far as possible without reading what others can change."""
        for end in range(len(rest) - 1, 0, -1):
            inner = self._placed.get("/".join([at, *rest[:end]]))
            if inner is not None and inner.is_shared:
                slot, rest, at = inner, rest[end:], "/".join([at, *rest[:end]])
                break
        self._require_filled(slot)
        return slot, rest, "/".join([at, *rest])

    def _require_filled(self, slot: _Slot) -> None:
        if not slot.path:
            self._fill(slot, pinned=False)

    def _nest(self, slot: _Slot, outer: _Slot) -> None:
        outer.has_inner = True
        if outer.unmapped >= 0 and "ro" not in outer.entry["options"]:
            # Our users are not mapped in it: create mount points in the unmapped source.
            os.close(_mount_point(outer.unmapped, slot.rest, is_directory=slot.is_directory))
        top = os.open(outer.path, os.O_PATH | os.O_CLOEXEC)
        try:
            point = _mount_point(top, slot.rest, is_directory=slot.is_directory)
        finally:
            os.close(top)
        try:
            mounting.mount_filesystem(
                slot.path, f"/proc/self/fd/{point}", "", mounting.BIND | mounting.RECURSIVE
            )
        finally:
            os.close(point)


class _Slot:
    """One mount."""

    __slots__ = (
        "entry",
        "has_inner",
        "is_directory",
        "is_mapped",
        "is_shared",
        "parent",
        "path",
        "rest",
        "unmapped",
    )

    def __init__(self, entry: Entry) -> None:
        self.entry = {key: value for key, value in entry.items() if key not in _MARKS}
        self.is_mapped = bool(entry.get(MAPPED))
        self.is_shared = bool(entry.get(PINNED) or entry.get(SHARED))
        self.path = ""  # in the staging directory
        self.is_directory = False
        self.parent: _Slot | None = None
        self.rest: list[str] = []  # the path from the parent's top
        self.has_inner = False
        self.unmapped = -1  # its source as on disk, while mounts are added to it

    def open(self) -> int:
        """The directory that it shows, if it is one of ours; -1: nothing is in it yet, as in
        virtual file systems of the kernel.
        """
        if self.entry["type"] != "bind":
            return -1
        try:
            return os.open(str(self.entry["source"]), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except NotADirectoryError:
            return -1

    def forget_unmapped(self) -> None:
        fd, self.unmapped = self.unmapped, -1
        if fd >= 0:
            os.close(fd)

    @property
    def propagation(self) -> str:
        return next(
            (_PROPAGATION[option] for option in self.entry["options"] if option in _PROPAGATION),
            "private",
        )

    def for_runc(self) -> Entry:
        if not self.path:
            return self.entry
        # Inner mounts have their own propagation.
        options = [
            _PROPAGATION.get(option, option) if self.has_inner else option
            for option in self.entry["options"]
        ]
        return {**self.entry, "source": self.path, "options": options}


def _mount_point(top: int, names: Sequence[str], *, is_directory: bool) -> int:
    """A descriptor (O_PATH) of a path below a directory, created if it does not exist. Follows
    links as long as they stay below. Raises OSError.
    """
    way, opened, left, links = [top], list[int](), list(reversed(names)), 0
    try:
        while left:
            name = left.pop()
            if name in ("", "."):
                continue
            if name == "..":
                if len(way) == 1:
                    raise OSError(
                        errno.EXDEV, "a mount point leads out of its volume", "/".join(names)
                    )
                way.pop()
                continue
            fd = _open_or_make(way[-1], name, is_directory=is_directory or bool(left))
            opened.append(fd)
            if stat.S_ISLNK(os.fstat(fd).st_mode):
                target = os.readlink("", dir_fd=fd)
                links += 1
                if target.startswith("/") or links > _LINKS:
                    raise OSError(
                        errno.EXDEV, "a mount point leads out of its volume", "/".join(names)
                    )
                left += reversed(target.split("/"))
                continue
            way.append(fd)
        found = stat.S_ISDIR(os.fstat(way[-1]).st_mode)
        if found != is_directory:
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), "/".join(names))
        return os.dup(way[-1])
    finally:
        for fd in opened:
            os.close(fd)


def _open_or_make(directory: int, name: str, *, is_directory: bool) -> int:
    for _ in range(_LINKS):
        try:
            return os.open(name, pinning.LOOK, dir_fd=directory)
        except FileNotFoundError:
            try:
                if is_directory:
                    os.mkdir(name, _MODE, dir_fd=directory)
                else:
                    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
                    os.close(os.open(name, flags, _MODE, dir_fd=directory))
            except FileExistsError:
                continue  # another process was faster
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), name)
