"""The parts of the host that a container sees: its volume mounts and its devices."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from transom.kit.goquote import go_quote
from transom.kubelet.base import KubeletContext
from transom.kubelet.environment import create_container_config_error
from transom.kubelet.expansion import ExpansionTooLarge, MissingValue, expand_strictly
from transom.kubelet.read_only import is_recursively_read_only
from transom.kubelet.volumes.plugin import MountedVolume
from transom.machinery.objects import Object
from transom.runtime.api import Image, Mount

_TURN = 500  # mounts before other tasks run


async def volume_mounts(
    env: KubeletContext,
    container: Object,
    volumes: Mapping[str, MountedVolume],
    variables: Mapping[str, str],
    images: Mapping[str, Image],
) -> list[Mount]:
    """`images` are those of image volumes, by volume. Raises ContainerFailure. Yields to other
    tasks: a container can have thousands of mounts.
    """
    mounts: list[Mount] = []
    for mount in container.get("volumeMounts") or ():
        mounts.append(_mount(env, container, mount, volumes, variables, images))
        if len(mounts) % _TURN == 0:
            await asyncio.sleep(0)
    return mounts


def _mount(
    env: KubeletContext,
    container: Object,
    mount: Object,
    volumes: Mapping[str, MountedVolume],
    variables: Mapping[str, str],
    images: Mapping[str, Image],
) -> Mount:
    volume = volumes.get(mount["name"])
    if volume is None:
        raise create_container_config_error(
            f"cannot find volume {go_quote(mount['name'])} to mount into container "
            f"{go_quote(container['name'])}"
        )
    host_path = volume.path
    sub_path = mount.get("subPath") or ""
    if expression := mount.get("subPathExpr"):
        try:
            sub_path = expand_strictly(expression, variables)
        except (MissingValue, ExpansionTooLarge) as problem:
            raise create_container_config_error(str(problem)) from problem
    recursive = False
    if env.config.pod_features.volume_mounts:
        supported = env.os.recursive_read_only_mounts(env.host, env.runtime.version)
        try:
            recursive = is_recursively_read_only(mount, supported=supported)
        except ValueError as problem:
            raise create_container_config_error(
                f"failed to resolve recursive read-only mode: {problem}"
            ) from problem
    image = images.get(mount["name"])
    if image is not None:
        return Mount(
            container_path=env.os.mount_path(mount["mountPath"]),
            host_path="",
            read_only=True,
            propagation=env.os.mount_propagation(mount.get("mountPropagation")),
            image=image.id,
            image_sub_path=sub_path,
        )
    within = ""
    if sub_path:
        within = env.os.host_path(volume.path)
        host_path = _sub_path(env, container, mount["name"], volume.path, sub_path)
    return Mount(
        container_path=env.os.mount_path(mount["mountPath"]),
        host_path=env.os.host_path(host_path),
        read_only=bool(mount.get("readOnly")) or volume.read_only,
        recursive_read_only=recursive,
        propagation=env.os.mount_propagation(mount.get("mountPropagation")),
        volume_path=within,
    )


def _sub_path(env: KubeletContext, container: Object, name: str, volume: str, sub_path: str) -> str:
    """Its path on the host; created as a directory when it does not exist."""
    if env.os.is_absolute(sub_path):
        raise create_container_config_error(
            f"error SubPath `{sub_path}` must not be an absolute path"
        )
    if ".." in env.os.split(sub_path):
        raise create_container_config_error(
            f"unable to provision SubPath `{sub_path}`: must not contain '..'"
        )
    whole = env.os.join(volume, sub_path)
    # The details stay in the log: they would reveal the node's files.
    where = f"for volumeMount {go_quote(name)} of container {go_quote(container['name'])}"
    # Containers of this pod or of others may change the volume in the meantime, and create links in
    # it that point elsewhere.
    task = "prepare subPath" if env.host.files.exists(whole) else "create subPath directory"
    try:
        files = env.host.files.below(volume)
        if task == "prepare subPath":
            files.stat(whole)
        else:
            files.mkdir(whole, files.stat(volume).mode)
    except OSError as problem:
        raise create_container_config_error(f"failed to {task} {where}") from problem
    return whole


def volume_devices(
    env: KubeletContext, container: Object, volumes: Mapping[str, MountedVolume]
) -> tuple[str, ...]:
    """`HOST:CONTAINER:PERMISSIONS` of each raw device. Raises ContainerFailure."""
    out = []
    for device in container.get("volumeDevices") or ():
        path = device.get("devicePath") or ""
        if not env.os.is_absolute(path):
            raise create_container_config_error(
                f"error DevicePath `{path}` must be an absolute path"
            )
        volume = volumes.get(device["name"])
        if volume is None:
            raise create_container_config_error(
                f"cannot find volume {go_quote(device['name'])} to pass into container "
                f"{go_quote(container['name'])}"
            )
        out.append(f"{volume.path}:{path}:{'r' if volume.read_only else 'mrw'}")
    return tuple(out)
