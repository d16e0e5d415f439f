"""A container's file system: the shared layers of its image, and a writable one on top.

Where overlayfs works, nothing is copied. Elsewhere (a directory that is itself on an overlay) the
layers are copied over each other, with the same result: a whiteout is a character device 0:0, and
an opaque directory has an attribute.
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

from transom.machines import pinning
from transom.runtime.native.client import Monitor, MonitorFailure

_OPAQUE: Final = ("trusted.overlay.opaque", "user.overlay.opaque")


async def overlay_works(monitor: Monitor, folder: Path, options: Sequence[str]) -> bool:
    """Whether overlayfs works in this directory."""
    at = folder / "overlay-probe"
    for name in ("lower", "upper", "work", "target"):
        (at / name).mkdir(parents=True, exist_ok=True)
    try:
        await _mount(monitor, [at / "lower"], at, at / "target", options)
        await monitor.ask("unmount", target=str(at / "target"))
    except MonitorFailure:
        return False
    finally:
        remove_snapshot_tree(at)
    return True


async def maps_users(monitor: Monitor, folder: Path, stage: Path, owner: int) -> str:
    """Why containers cannot have user namespaces in this directory; empty when they can."""
    at = folder / "users-probe"
    for name in ("lower", "upper", "work", "target"):
        (at / name).mkdir(parents=True, exist_ok=True)
    try:
        await monitor.ask(
            "probe_users",
            folder=str(at),
            lower=[str(at / "lower")],
            upper=str(at / "upper"),
            work=str(at / "work"),
            target=str(at / "target"),
            owner=owner,
            stage=str(stage),
        )
    except MonitorFailure as problem:
        return problem.text
    finally:
        remove_snapshot_tree(at)
    return ""


async def mount_snapshot(
    monitor: Monitor,
    layers: Sequence[Path],
    folder: Path,
    *,
    overlay: bool,
    options: Sequence[str],
    user_namespace: str = "",
    owner: int = 0,
) -> None:
    """Sets up the file system at FOLDER/rootfs. `layers` are lowest first. `user_namespace`: the
    path of the namespace whose root, here `owner`, owns the layers' root files. Raises
    MonitorFailure and OSError.
    """
    target = folder / "rootfs"
    for name in ("upper", "work", "rootfs"):
        (folder / name).mkdir(exist_ok=True)
    if overlay:
        if not layers:
            (folder / "empty").mkdir(exist_ok=True)
            layers = [folder / "empty"]
        await _mount(monitor, layers, folder, target, options, user_namespace, owner)
    else:
        for layer in layers:
            copy_over(layer, target)


async def _mount(
    monitor: Monitor,
    layers: Sequence[Path],
    at: Path,
    target: Path,
    options: Sequence[str],
    user_namespace: str = "",
    owner: int = 0,
) -> None:
    await monitor.ask(
        "overlay",
        lower=[str(path) for path in reversed(layers)],
        upper=str(at / "upper"),
        work=str(at / "work"),
        target=str(target),
        options=list(options),
        folder=str(at),
        user_namespace=user_namespace,
        owner=owner,
    )


def snapshot_usage(folder: Path) -> tuple[int, int]:
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
            continue  # deleted in the meantime
    return size + 4096, count + 1


def remove_snapshot_tree(folder: Path) -> None:
    """Also removes directories without permissions, as overlayfs creates them. Mounts in it are
    unmounted, never emptied. Raises OSError when something is left.
    """
    pinning.remove_folder(str(folder))


# ---- copies ----


def copy_over(layer: Path, target: Path) -> None:
    links: dict[tuple[int, int], str] = {}
    _copy_directory(str(layer), str(target), links)


def _copy_directory(source: str, target: str, links: dict[tuple[int, int], str]) -> None:
    if _opaque(source):
        for name in os.listdir(target):
            _remove(os.path.join(target, name))
    with os.scandir(source) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            _copy(
                entry.path,
                os.path.join(target, entry.name),
                entry.stat(follow_symlinks=False),
                links,
            )
    _copy_attributes(source, target, os.stat(source))


def _copy(
    source: str, target: str, found: os.stat_result, links: dict[tuple[int, int], str]
) -> None:
    directory = stat.S_ISDIR(found.st_mode)
    if os.path.lexists(target) and not (
        directory and os.path.isdir(target) and not os.path.islink(target)
    ):
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
                os.setxattr(
                    target,
                    name,
                    os.getxattr(source, name, follow_symlinks=False),
                    follow_symlinks=False,
                )
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
