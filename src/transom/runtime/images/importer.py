"""Creates an image from a directory, for Linux or for Windows: one layer with all its files, and a
configuration from options.
"""

from __future__ import annotations

import os
import stat
import tarfile
from pathlib import Path

from transom.runtime.images import making
from transom.runtime.images.making import ImageOptions
from transom.runtime.images.model import ImageError
from transom.runtime.images.reference import parse_reference
from transom.runtime.images.store import LocalImageStore


def import_folder(
    store: LocalImageStore, folder: Path, options: ImageOptions, *, keep_owners: bool = False
) -> str:
    """The manifest digest of an image with the directory's files, which belong to root unless
    configured otherwise. The same files with the same times give the same image. Blocking; the
    caller is `busy`.
    """
    if not folder.is_dir():
        raise ImageError(f"{folder} is not a folder")
    windows = options.os == "windows"
    prefix = "Files/" if windows else ""

    def fill(tar: tarfile.TarFile) -> None:
        if windows:
            tar.addfile(making.plain_tar_entry("Files", tarfile.DIRTYPE, 0o755))
            tar.addfile(making.plain_tar_entry("Hives", tarfile.DIRTYPE, 0o755))
        _add(tar, folder, prefix, keep_owners and not windows, {})

    layer = making.write_layer(store.content, fill)
    return making.write_image(
        store.content, options._replace(comment=options.comment or "imported folder"), [layer]
    )


def import_image(
    store: LocalImageStore,
    folder: Path,
    name: str,
    options: ImageOptions,
    *,
    keep_owners: bool = False,
) -> str:
    """The same with a name, unpacked for containers; returns the image's id. Blocking. Raises
    ImageNameError.
    """
    reference = str(parse_reference(name))
    with store.busy_here():
        manifest = import_folder(store, folder, options, keep_owners=keep_owners)
        store.unpack_here(store.parse(manifest))
        return store.register(manifest, [(reference, manifest)], local=True)


def _add(
    tar: tarfile.TarFile,
    folder: Path,
    prefix: str,
    keep_owners: bool,
    links: dict[tuple[int, int], str],
) -> None:
    for entry in sorted(os.scandir(folder), key=lambda found: found.name):
        found = entry.stat(follow_symlinks=False)
        kind = found.st_mode
        if stat.S_ISSOCK(kind):
            continue
        if stat.S_ISCHR(kind) or stat.S_ISBLK(kind):
            raise ImageError(f"{entry.path} is a device; images cannot have those")
        name = prefix + entry.name
        info = making.plain_tar_entry(name, mode=stat.S_IMODE(kind))
        info.mtime = int(found.st_mtime)
        if keep_owners:
            info.uid, info.gid, info.uname, info.gname = found.st_uid, found.st_gid, "", ""
        if stat.S_ISDIR(kind):
            info.type = tarfile.DIRTYPE
            tar.addfile(info)
            _add(tar, Path(entry.path), f"{name}/", keep_owners, links)
        elif stat.S_ISLNK(kind):
            info.type, info.linkname = tarfile.SYMTYPE, os.readlink(entry.path)
            tar.addfile(info)
        elif stat.S_ISFIFO(kind):
            info.type = tarfile.FIFOTYPE
            tar.addfile(info)
        elif (found.st_dev, found.st_ino) in links and found.st_nlink > 1:
            info.type, info.linkname = tarfile.LNKTYPE, links[found.st_dev, found.st_ino]
            tar.addfile(info)
        else:
            links[found.st_dev, found.st_ino] = name
            info.size = found.st_size
            with open(entry.path, "rb") as file:
                tar.addfile(info, file)
