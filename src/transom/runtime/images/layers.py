"""Unpacks a layer's archive into its own directory, in the format of an overlayfs lower directory.

What the layer removes from those below is a character device 0/0 or an opaque directory. Layers are
untrusted: anything unusual (paths that climb, links that leave the root, devices, bombs) raises
ImageError, and the caller discards the whole directory. All writing goes to a private directory.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from transom.runtime.images import compression, merged
from transom.runtime.images.merged import MergedFolder, MergedTree
from transom.runtime.images.model import ImageError
from transom.runtime.images.tarstream import TarEntry, TarStream

_PREFIX: Final = ".wh."
_META: Final = ".wh..wh."
_OPAQUE: Final = ".wh..wh..opq"
_LONGEST_PART: Final = 255  # bytes
_LONGEST_PATH: Final = 4095
# Devices that old base images have in /dev. They are skipped, because runtimes create their own.
_USUAL_DEVICES: Final = {
    "console": (5, 1),
    "full": (1, 7),
    "fuse": (10, 229),
    "kmsg": (1, 11),
    "null": (1, 3),
    "ptmx": (5, 2),
    "random": (1, 8),
    "tty": (5, 0),
    "tty0": (4, 0),
    "tty1": (4, 1),
    "urandom": (1, 9),
    "zero": (1, 5),
}
_WINDOWS_FORBIDDEN: Final = re.compile(r'[\x00-\x1f<>"|?*\\]')
_WINDOWS_RESERVED: Final = re.compile(
    r"(?:con|prn|aux|nul|com[1-9]|lpt[1-9])(?:\..*)?", re.IGNORECASE
)
_READ_ONLY: Final = 0x1  # of MSWINDOWS.fileattr
_HARMLESS: Final = (errno.ENOTSUP, errno.EPERM, errno.EACCES)


class LayerLimits(NamedTuple):
    """Limits for an unpacked layer. A layer of any size may have `floor` bytes, a larger one
    `ratio` times its size.
    """

    floor: int = 1 << 30
    ratio: int = 200
    most: int = 64 << 30
    entries: int = 2_000_000

    def bytes_for(self, packed: int) -> int:
        return min(self.most, max(self.floor, packed * self.ratio))


class AppliedLayer(NamedTuple):
    diff_id: str
    size: int  # bytes of all files
    entries: int
    whiteouts: tuple[str, ...]  # removed paths, in case overlayfs' markers could not be created
    opaque: tuple[str, ...]
    marked: bool  # whether the markers could be created


class _Counted:
    """The decompressed stream, hashed and counted as it passes."""

    def __init__(self, source: BinaryIO, most: int) -> None:
        self._pieces = compression.pieces(source)
        self._most = most
        self._hash = hashlib.sha256()
        self.size = 0

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self.size += len(piece)
            if self.size > self._most:
                raise ImageError(f"the layer is larger than {self._most} bytes when unpacked")
            self._hash.update(piece)
            yield piece

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"


def apply_layer(
    source: BinaryIO,
    folder: Path,
    below: Sequence[Path] = (),
    *,
    os_name: str = "linux",
    packed: int = 0,
    diff_id: str = "",
    limits: LayerLimits = LayerLimits(),  # noqa: B008 - a tuple
) -> AppliedLayer:
    """Unpacks a layer into an empty directory. `below`: the directories of the layers under it,
    lowest first; `packed`: its size in the store. Blocking. Raises ImageError, and OSError when the
    disk is full; then the directory is unusable.
    """
    counted = _Counted(source, limits.bytes_for(packed))
    stream = TarStream(counted)
    try:
        done = _Unpacking(
            str(folder), [str(path) for path in below], os_name == "windows", limits, stream
        ).run()
        stream.rest()
    except UnicodeError as problem:
        raise ImageError(f"a name in the layer is not UTF-8: {problem}") from problem
    if diff_id and counted.digest != diff_id:
        raise ImageError(f'wrong diff id calculated on extraction "{counted.digest}"')
    return done._replace(diff_id=counted.digest)


class _Unpacking:
    def __init__(
        self, folder: str, below: list[str], windows: bool, limits: LayerLimits, stream: TarStream
    ) -> None:
        self._tree = MergedTree(folder, below, fold=windows)
        self._windows = windows
        self._limits = limits
        self._stream = stream
        self._root = os.geteuid() == 0
        self._seen: dict[str, str] = {}  # path -> kind, of this layer's entries
        self._folders: dict[str, TarEntry] = {}
        self._whiteouts: list[str] = []
        self._opaque: list[str] = []
        self._marked = True
        self._size = 0

    def run(self) -> AppliedLayer:
        count = 0
        for entry in self._stream:
            count += 1
            if count > self._limits.entries:
                raise ImageError(f"the layer has more than {self._limits.entries} entries")
            parts = self._parts(entry.name, "an entry")
            if parts:
                self._add(entry, parts)
            elif entry.kind == "dir":
                self._folders[self._tree.root.own] = entry
        for path, before in reversed(self._tree.touched):
            if path not in self._seen:
                os.utime(path, ns=(before.st_mtime_ns, before.st_mtime_ns))
        # inner ones first: writing there changes times
        for path, entry in reversed(self._folders.items()):
            self._settle(path, entry)
        return AppliedLayer(
            "", self._size, count, tuple(self._whiteouts), tuple(self._opaque), self._marked
        )

    # ---- names ----

    def _parts(self, raw: bytes, what: str) -> tuple[str, ...]:
        """The parts of a path; none for an entry to skip. Raises ImageError for one that leaves the
        root.
        """
        if len(raw) > _LONGEST_PATH:
            raise ImageError(f"the name of {what} is too long: {raw[:60]!r}...")
        path = os.fsdecode(raw)
        parts = tuple(part for part in path.split("/") if part not in ("", "."))
        if ".." in parts or (path.startswith("/") and what == "an entry" and self._windows):
            raise ImageError(f"invalid path of {what}: {path[:200]!r}")
        for part in parts:
            if len(os.fsencode(part)) > _LONGEST_PART:
                raise ImageError(f"the name of {what} is too long: {part[:60]!r}...")
        return self._windows_parts(parts, what) if self._windows else parts

    def _windows_parts(self, parts: tuple[str, ...], what: str) -> tuple[str, ...]:
        """`Files` is the C: drive. Skips hives, which Wine cannot load, other directories, which
        are for virtual machines, and alternate data streams (`name:stream`), which cannot be stored
        here.
        """
        if not parts or parts[0].lower() != "files":
            return ()
        parts = parts[1:]
        if parts and ":" in parts[-1]:
            return ()
        for part in parts:
            bare = part.removeprefix(_PREFIX)
            if (
                _WINDOWS_FORBIDDEN.search(bare)
                or ":" in bare
                or bare != bare.rstrip(" .")
                or _WINDOWS_RESERVED.fullmatch(bare)
            ):
                raise ImageError(f"the name of {what} is not valid on Windows: {part[:200]!r}")
        return parts

    # ---- entries ----

    def _add(self, entry: TarEntry, parts: tuple[str, ...]) -> None:
        base = parts[-1]
        if any(part.startswith(_META) for part in parts[:-1]) or (
            base.startswith(_META) and base != _OPAQUE
        ):
            return  # private data of an obsolete storage driver
        if any(part.startswith(_PREFIX) for part in parts[:-1]):
            raise ImageError(f"invalid whiteout in the path {'/'.join(parts)[:200]!r}")
        if base == _OPAQUE:
            self._hide(parts[:-1])
        elif base.startswith(_PREFIX):
            self._whiteout((*parts[:-1], base[len(_PREFIX) :]))
        else:
            self._create(entry, parts)

    def _hide(self, parts: tuple[str, ...]) -> None:
        folder = self._tree.root
        if parts:
            outer, name = self._tree.parent(parts)
            found = self._tree.find(outer, name)
            if found is not None and not stat.S_ISDIR(found[1].st_mode):
                raise ImageError(f"{name[:100]!r}: not a directory")
            folder = self._tree.enter(outer, name)
            self._tree.make(folder)
        self._mark(folder)

    def _mark(self, folder: MergedFolder) -> None:
        self._tree.hide(folder)
        self._marked &= merged.mark_opaque(folder.own)
        self._opaque.append(self._relative(folder.own))

    def _whiteout(self, parts: tuple[str, ...]) -> None:
        if parts[-1] in ("", ".", ".."):
            raise ImageError(f"invalid whiteout name: {'/'.join(parts)[:200]!r}")
        folder, name = self._tree.parent(parts)
        path = f"{folder.own}/{name}"
        there = merged.lstat_or_none(path) if folder.real else None
        if there is None:
            # Nothing to hide here, but a lower layer that is not known here, Windows itself, may
            # have it.
            self._tree.make(folder)
            self._marked &= merged.make_whiteout(path)
            self._whiteouts.append(self._relative(path))
        elif stat.S_ISDIR(there.st_mode):
            # It removes only what is below; this layer's own entry of that name stays.
            self._mark(self._tree.enter(folder, name))

    def _create(self, entry: TarEntry, parts: tuple[str, ...]) -> None:
        folder, name = self._tree.parent(parts)
        path = f"{folder.own}/{name}"
        if (before := self._seen.get(path)) is not None and not (before == entry.kind == "dir"):
            raise ImageError(f"the layer has {self._relative(path)[:200]!r} twice")
        if entry.kind in ("char", "block"):
            self._device(entry, parts)
            return
        self._tree.make(folder)
        again = merged.clear_whiteout(path)
        if again:
            self._whiteouts = [other for other in self._whiteouts if other != self._relative(path)]
        there = merged.lstat_or_none(path)
        if there is not None and not (entry.kind == "dir" and stat.S_ISDIR(there.st_mode)):
            raise ImageError(f"the layer has {self._relative(path)[:200]!r} twice")
        self._seen[path] = entry.kind
        match entry.kind:
            case "dir":
                self._folder(folder, name, entry, again)
                return
            case "file":
                self._file(path, entry)
            case "hardlink":
                self._hardlink(path, entry)
                return
            case "symlink":
                self._symlink(path, entry)
            case _:
                os.mkfifo(path)
        self._settle(path, entry)

    def _folder(self, outer: MergedFolder, name: str, entry: TarEntry, again: bool) -> None:
        path = f"{outer.own}/{name}"
        below = self._tree.find(outer, name)
        folder = self._tree.enter(outer, name)
        if not folder.real:
            if below is not None and not stat.S_ISDIR(below[1].st_mode):
                self._tree.replaced()
            os.mkdir(path, 0o700)
            folder.real = True
            if again:
                self._mark(folder)
        self._folders[path] = entry

    def _file(self, path: str, entry: TarEntry) -> None:
        if entry.size > self._limits.most:
            raise ImageError(
                f"{self._relative(path)[:200]!r} is larger than {self._limits.most} bytes"
            )
        self._size += entry.size
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            if entry.sparse is None:
                for piece in self._stream.data():
                    write_all(descriptor, piece)
            else:
                _write_segments(descriptor, entry.sparse, self._stream.data())
                file.truncate(entry.size)

    def _hardlink(self, path: str, entry: TarEntry) -> None:
        parts = self._parts(entry.link, "the target of a link")
        if not parts:
            raise ImageError(f"{self._relative(path)[:200]!r} is a link to nothing in the layer")
        folder, name = self._tree.parent(parts)
        found = self._tree.find(folder, name)
        if found is None or not (stat.S_ISREG(found[1].st_mode) or stat.S_ISLNK(found[1].st_mode)):
            raise ImageError(
                f"{self._relative(path)[:200]!r} is a link to {'/'.join(parts)[:200]!r}, "
                "which is not a file here"
            )
        target, what = found
        own = f"{folder.own}/{name}"
        if target != own:  # in a layer below: copy it to this layer, as one file under both names
            self._tree.make(folder)
            if stat.S_ISREG(what.st_mode):
                self._size += what.st_size
            shutil.copy2(target, own, follow_symlinks=False)
            merged.copy_metadata(target, own)
        os.link(own, path, follow_symlinks=False)

    def _symlink(self, path: str, entry: TarEntry) -> None:
        if not entry.link or len(entry.link) > _LONGEST_PATH:
            raise ImageError(f"invalid target of the link {self._relative(path)[:200]!r}")
        target = os.fsdecode(entry.link)
        os.symlink(
            _windows_target(target, self._relative(path).count("/")) if self._windows else target,
            path,
        )
        self._tree.linked(path)

    def _device(self, entry: TarEntry, parts: tuple[str, ...]) -> None:
        usual = not self._windows and len(parts) == 2 and parts[0] == "dev" and entry.kind == "char"
        if not usual or _USUAL_DEVICES.get(parts[1]) != entry.device:
            raise ImageError(f"the layer has a device: {'/'.join(parts)[:200]!r}")

    # ---- metadata of an entry ----

    def _settle(self, path: str, entry: TarEntry) -> None:
        if self._windows:
            self._settle_windows(path, entry)
            return
        if self._root:
            os.lchown(path, entry.uid & 0xFFFFFFFF, entry.gid & 0xFFFFFFFF)
        if entry.kind != "symlink":
            os.chmod(path, entry.mode)
        for name, value in entry.xattrs.items():
            self._attribute(path, name, value)
        _set_time(path, entry.mtime_ns)

    def _settle_windows(self, path: str, entry: TarEntry) -> None:
        """Windows archives have no modes. The owner of its writable layer decides what a
        container's user may write.
        """
        if entry.kind != "symlink":
            attributes = entry.records.get("MSWINDOWS.fileattr", b"0")
            locked = entry.kind == "file" and attributes.isdigit() and int(attributes) & _READ_ONLY
            os.chmod(path, 0o555 if locked else 0o755)
        _set_time(path, entry.mtime_ns)

    def _attribute(self, path: str, name: str, value: bytes) -> None:
        if name.startswith(("trusted.", "user.overlay.")):
            raise ImageError(f"the layer has the attribute {name[:100]!r}")
        try:
            os.setxattr(path, name, value, follow_symlinks=False)
        except OSError as problem:
            if problem.errno not in _HARMLESS or (self._root and name == "security.capability"):
                raise

    def _relative(self, path: str) -> str:
        return path[len(self._tree.root.own) + 1 :]


def _windows_target(target: str, depth: int) -> str:
    """`C:\\a\\b` or `a\\b`, as in Windows links. The tree's root is the C: drive, wherever it will
    be mounted, so the target is relative to the link, which is `depth` directories below the root.
    """
    plain = re.sub(r"(?:/\?\?/)?[A-Za-z]:/", "/", target.replace("\\", "/"), count=1)
    return "../" * depth + plain.lstrip("/") if plain.startswith("/") else plain


def _set_time(path: str, mtime_ns: int) -> None:
    bounded = min(max(mtime_ns, 0), (1 << 33) * 10**9)
    os.utime(path, ns=(bounded, bounded), follow_symlinks=False)


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _write_segments(
    descriptor: int, segments: Sequence[tuple[int, int]], data: Iterable[bytes]
) -> None:
    source = iter(data)
    piece = b""
    for offset, length in segments:
        os.lseek(descriptor, offset, os.SEEK_SET)
        while length:
            piece = piece or next(source)
            write_all(descriptor, piece[:length])
            taken = min(length, len(piece))
            length -= taken
            piece = piece[taken:]
