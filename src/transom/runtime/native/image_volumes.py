"""Image volumes of containers: the layers of another image, mounted below the container's folder.

The container gets a read-only bind mount of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from transom.machines.realfiles import RealFiles
from transom.runtime.api import Mount
from transom.runtime.imagevolumes import (
    image_sub_path_is_file,
    image_sub_path_missing,
    image_volume_path,
)
from transom.runtime.native import snapshots
from transom.runtime.native.core import NativeCore
from transom.runtime.native.records import NativeContainer

FOLDER: Final = "images"


def image_mounts(c: NativeContainer) -> list[tuple[Mount, Path]]:
    """The mounts of images and the folder of each."""
    return [
        (mount, c.folder / FOLDER / str(number))
        for number, mount in enumerate(c.config.mounts)
        if mount.image
    ]


def lease_volume_images(core: NativeCore, c: NativeContainer) -> None:
    """Raises RuntimeFailure."""
    for mount, folder in image_mounts(c):
        core.images.lease(mount.image, f"{c.id}-{folder.name}", c.folder)


def release_volume_images(core: NativeCore, c: NativeContainer) -> None:
    for _, folder in image_mounts(c):
        core.images.release(f"{c.id}-{folder.name}")


async def mount_image_volumes(
    core: NativeCore, c: NativeContainer, overlay: Sequence[str] | None
) -> None:
    """Raises RuntimeFailure, MonitorFailure and OSError."""
    if core.platform.os == "windows":
        return
    for mount, folder in image_mounts(c):
        image = core.images.find(mount.image)
        if image is None:
            raise core.texts.no_image(mount.image)
        folder.mkdir(mode=0o711, parents=True)
        await snapshots.mount_snapshot(
            core.monitor,
            image.layers,
            folder,
            overlay=overlay is not None,
            options=overlay or (),
            user_namespace=c.user_namespace,
            owner=c.first_id,
        )
        _check_sub_path(c, mount, folder / "rootfs")


def _check_sub_path(c: NativeContainer, mount: Mount, root: Path) -> None:
    if not mount.image_sub_path:
        return
    within = image_volume_path(c.sandbox.id, mount.image)
    try:
        path = image_source(root, mount)
    except OSError as problem:  # a link leads nowhere
        raise image_sub_path_missing(mount, within) from problem
    if not path.exists():
        raise image_sub_path_missing(mount, within)
    if not path.is_dir():
        raise image_sub_path_is_file(mount, within)


def image_source(root: Path, mount: Mount) -> Path:
    """The mounted directory of the image; links in it do not lead out of the image."""
    files = RealFiles(root)
    try:
        return Path(files.real(f"/{mount.image_sub_path}"))
    finally:
        files.close()


async def unmount_image_volumes(core: NativeCore, c: NativeContainer) -> None:
    for _, folder in image_mounts(c):
        if (folder / "rootfs").is_mount():
            await core.monitor.ask("unmount", target=str(folder / "rootfs"))
