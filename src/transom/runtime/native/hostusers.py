"""Selects the containers of a pod with a user namespace that must run without it, as Kubernetes
1.20 runs all of them.

Such a container still joins the other namespaces of its pod: the machine's root may do anything in
them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import lru_cache

from transom.machines import idmapping, pinning
from transom.machines.realfiles import RealFiles
from transom.runtime.api import LinuxContainer, Mount
from transom.runtime.native.core import IDS, NativeCore
from transom.runtime.native.platform import Spec
from transom.runtime.native.records import NativeContainer


def container_needs_host_users(core: NativeCore, c: NativeContainer) -> bool:
    """Whether a container requests privileges, devices, ids or volumes that a user namespace cannot
    provide. Blocking.
    """
    linux = c.config.linux or LinuxContainer()
    ids = (linux.run_as_user, linux.run_as_group, *linux.supplemental_groups)
    if linux.privileged or c.config.devices or _has_unmapped(ids):
        return True
    if linux.pid_namespace == "node" or (
        linux.pid_namespace == "target" and not _shares_users(core, c, linux.target_id)
    ):
        return True
    if any(mount.propagation != "private" for mount in c.config.mounts):
        return True  # later mounts would come without mapped owners
    layers = [*c.image.layers]
    for mount in c.config.mounts:
        image = core.images.find(mount.image) if mount.image else None
        layers += image.layers if image is not None else ()
    return any(map(_layer_has_unmapped_ids, map(str, layers))) or not _can_map(core, c)


def has_unmapped_ids(spec: Spec) -> bool:
    user = spec["process"]["user"]
    return _has_unmapped((user["uid"], user["gid"], *(user.get("additionalGids") or ())))


def _has_unmapped(ids: Iterable[int | None]) -> bool:
    return any(number is not None and number >= IDS for number in ids)


def _shares_users(core: NativeCore, c: NativeContainer, target: str) -> bool:
    found = core.containers.get(target)
    return found is not None and found.sandbox is c.sandbox and found.own_users


@lru_cache(maxsize=4096)
def _layer_has_unmapped_ids(folder: str) -> bool:
    """Unpacked layers are immutable."""
    pending = [folder]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                found = entry.stat(follow_symlinks=False)
                if found.st_uid >= IDS or found.st_gid >= IDS:
                    return True
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
    return False


def _can_map(core: NativeCore, c: NativeContainer) -> bool:
    """Whether the file systems of all its volumes support idmapped mounts."""
    mounts: Sequence[Mount] = [mount for mount in c.config.mounts if not mount.image]
    if not mounts:
        return True
    namespace = os.open(c.user_namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return all(_can_map_volume(core.host.files, mount, namespace) for mount in mounts)
    finally:
        os.close(namespace)


def _can_map_volume(files: RealFiles, mount: Mount, namespace: int) -> bool:
    """A volume whose own directory belongs to an unmapped id contains such files, too."""
    try:
        bounded = files.below(mount.volume_path) if mount.volume_path else files
        source = pinning.open_without_links(bounded.real(mount.host_path))
    except OSError:
        # missing, or just being replaced: the container's start reports the error
        return True
    try:
        found = os.fstat(source)
        return not _has_unmapped((found.st_uid, found.st_gid)) and idmapping.can_map(
            source, namespace
        )
    finally:
        os.close(source)
