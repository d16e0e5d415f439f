"""A container's file system: the layers of its image, shared by all, and a writable one on top.

Where overlayfs works, nothing is copied. Elsewhere (a folder that is itself on an overlay) the layers are, one over the
other, with the same result: what a layer hides is a character device 0:0, and an opaque directory has an attribute.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from transom.runtime.native.client import Monitor, MonitorFailure

_OPAQUE: Final = ("trusted.overlay.opaque", "user.overlay.opaque")


async def works(monitor: Monitor, folder: Path, options: Sequence[str]) -> bool:
    """Whether overlayfs does, in this folder."""
    at = folder / "overlay-probe"
    for name in ("lower", "upper", "work", "target"):
        (at / name).mkdir(parents=True, exist_ok=True)
    try:
        await _mount(monitor, [at / "lower"], at, at / "target", options)
        await monitor.ask("unmount", target=str(at / "target"))
    except MonitorFailure:
        return False
    finally:
        remove_tree(at)
    return True


async def mount(monitor: Monitor, layers: Sequence[Path], folder: Path, *, overlay: bool, options: Sequence[str]) -> None:
    """FOLDER/rootfs is the file system afterwards. `layers` are the lowest first. Raises MonitorFailure and OSError."""
    target = folder / "rootfs"
    for name in ("upper", "work", "rootfs"):
        (folder / name).mkdir(exist_ok=True)
    if overlay:
        if not layers:
            (folder / "empty").mkdir(exist_ok=True)
            layers = [folder / "empty"]
        await _mount(monitor, layers, folder, target, options)
    else:
        for layer in layers:
            copy_over(layer, target)


async def _mount(monitor: Monitor, layers: Sequence[Path], at: Path, target: Path, options: Sequence[str]) -> None:
    await monitor.ask(
        "overlay", lower=[str(path) for path in reversed(layers)], upper=str(at / "upper"), work=str(at / "work"),
        target=str(target), options=list(options),
    )  # fmt: skip


def usage(folder: Path) -> tuple[int, int]:
    """Bytes and inodes of what the container itself has written."""
    size = count = 0
    pending = [str(folder / "upper")]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):
                        found = entry.stat(follow_symlinks=False)
                        size += found.st_blocks * 512
                        count += 1
                        if stat.S_ISDIR(found.st_mode):
                            pending.append(entry.path)
        except OSError:
            continue  # gone meanwhile
    return size + 4096, count + 1


def remove_tree(folder: Path) -> None:
    """Also directories that nobody may enter, as overlayfs makes them. OSError when something stays."""

    def opened(function: object, path: str, failure: tuple[type[BaseException], BaseException, object]) -> None:
        if not isinstance(failure[1], PermissionError):
            if isinstance(failure[1], FileNotFoundError):
                return
            raise failure[1]
        os.chmod(os.path.dirname(path), 0o700)
        if os.path.isdir(path) and not os.path.islink(path):
            os.chmod(path, 0o700)
            shutil.rmtree(path)
        else:
            os.unlink(path)

    shutil.rmtree(folder, onerror=opened)


# ---- copies ----------------------------------------------------------------------------------------------------------


def copy_over(layer: Path, target: Path) -> None:
    links: dict[tuple[int, int], str] = {}
    _copy_directory(str(layer), str(target), links)


def _copy_directory(source: str, target: str, links: dict[tuple[int, int], str]) -> None:
    if _opaque(source):
        for name in os.listdir(target):
            _remove(os.path.join(target, name))
    with os.scandir(source) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            _copy(entry.path, os.path.join(target, entry.name), entry.stat(follow_symlinks=False), links)
    _copy_attributes(source, target, os.stat(source))


def _copy(source: str, target: str, found: os.stat_result, links: dict[tuple[int, int], str]) -> None:
    directory = stat.S_ISDIR(found.st_mode)
    if os.path.lexists(target) and not (directory and os.path.isdir(target) and not os.path.islink(target)):
        _remove(target)
    if stat.S_ISCHR(found.st_mode) and found.st_rdev == 0:
        return  # it hides what was below
    if directory:
        if not os.path.isdir(target):
            os.mkdir(target)
        _copy_directory(source, target, links)
        return
    known = links.get((found.st_dev, found.st_ino)) if found.st_nlink > 1 else None
    if known is not None:
        os.link(known, target, follow_symlinks=False)
        return
    if stat.S_ISLNK(found.st_mode):
        os.symlink(os.readlink(source), target)
    elif stat.S_ISREG(found.st_mode):
        shutil.copyfile(source, target, follow_symlinks=False)
    else:
        os.mknod(target, found.st_mode, found.st_rdev)
    _copy_attributes(source, target, found)
    if found.st_nlink > 1:
        links[found.st_dev, found.st_ino] = target


def _copy_attributes(source: str, target: str, found: os.stat_result) -> None:
    with suppress(PermissionError):
        os.chown(target, found.st_uid, found.st_gid, follow_symlinks=False)
    if not stat.S_ISLNK(found.st_mode):
        os.chmod(target, stat.S_IMODE(found.st_mode))
    for name in os.listxattr(source, follow_symlinks=False):
        if name not in _OPAQUE:
            with suppress(OSError):
                os.setxattr(target, name, os.getxattr(source, name, follow_symlinks=False), follow_symlinks=False)
    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns), follow_symlinks=False)


def _opaque(folder: str) -> bool:
    for name in _OPAQUE:
        try:
            if os.getxattr(folder, name) == b"y":
                return True
        except OSError as problem:
            if problem.errno not in (errno.ENODATA, errno.ENOTSUP, errno.EPERM):
                raise
    return False


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)
