"""What of the host a container sees and where: its volume mounts and its devices."""

from __future__ import annotations

from collections.abc import Mapping

from transom.kubelet.base import Env
from transom.kubelet.environment import config_error
from transom.kubelet.expansion import MissingValue, expand_strictly
from transom.kubelet.volumes.plugin import Mounted
from transom.machinery.field import go_quote
from transom.machinery.objects import Object
from transom.runtime.api import Mount

_LINKS_FOLLOWED = 40


def volume_mounts(env: Env, container: Object, volumes: Mapping[str, Mounted], variables: Mapping[str, str]) -> list[Mount]:
    """Raises ContainerFailure."""
    return [_mount(env, container, mount, volumes, variables) for mount in container.get("volumeMounts") or ()]


def _mount(
    env: Env, container: Object, mount: Object, volumes: Mapping[str, Mounted], variables: Mapping[str, str]
) -> Mount:
    volume = volumes.get(mount["name"])
    if volume is None:
        raise config_error(
            f"cannot find volume {go_quote(mount['name'])} to mount into container {go_quote(container['name'])}"
        )
    host_path = volume.path
    sub_path = mount.get("subPath") or ""
    if expression := mount.get("subPathExpr"):
        try:
            sub_path = expand_strictly(expression, variables)
        except MissingValue as problem:
            raise config_error(str(problem)) from problem
    if sub_path:
        host_path = _sub_path(env, container, mount["name"], volume.path, sub_path)
    return Mount(
        container_path=env.os.mount_path(mount["mountPath"]),
        host_path=env.os.host_path(host_path),
        read_only=bool(mount.get("readOnly")) or volume.read_only,
        propagation=env.os.mount_propagation(mount.get("mountPropagation")),
    )


def _sub_path(env: Env, container: Object, name: str, volume: str, sub_path: str) -> str:
    """Where it is on the host; made as a directory when it is not there."""
    if env.os.is_absolute(sub_path):
        raise config_error(f"error SubPath `{sub_path}` must not be an absolute path")
    if ".." in env.os.split(sub_path):
        raise config_error(f"unable to provision SubPath `{sub_path}`: must not contain '..'")
    files = env.host.files
    whole = env.os.join(volume, sub_path)
    # What exactly is wrong stays in the log: it would tell of the node's files.
    where = f"for volumeMount {go_quote(name)} of container {go_quote(container['name'])}"
    inside = _stays_inside(env, volume, sub_path)
    if not files.exists(whole):
        try:
            if not inside:
                raise PermissionError(whole)
            files.mkdir(whole, files.stat(volume).mode)
        except OSError as problem:
            raise config_error(f"failed to create subPath directory {where}") from problem
    if not inside:
        raise config_error(f"failed to prepare subPath {where}")
    return whole


def _stays_inside(env: Env, volume: str, sub_path: str) -> bool:
    """Whether links on the way keep to the volume: a container may have made some that lead elsewhere."""
    files = env.host.files
    left = [part for part in reversed(env.os.split(sub_path)) if part and part != "."]
    at: list[str] = []
    links = 0
    while left:
        part = left.pop()
        if part == "..":
            if not at:
                return False
            at.pop()
            continue
        path = env.os.join(volume, *at, part)
        try:
            is_link = files.stat(path, follow=False).kind == "symlink"
        except OSError:
            is_link = False  # nothing there: it can be made
        if not is_link:
            at.append(part)
            continue
        target = files.readlink(path)
        links += 1
        if env.os.is_absolute(target) or target.startswith("/") or links > _LINKS_FOLLOWED:
            return False
        left += [step for step in reversed(env.os.split(target)) if step and step != "."]
    return True


def devices(env: Env, container: Object, volumes: Mapping[str, Mounted]) -> tuple[str, ...]:
    """`HOST:CONTAINER:PERMISSIONS` of each raw device. Raises ContainerFailure."""
    out = []
    for device in container.get("volumeDevices") or ():
        path = device.get("devicePath") or ""
        if not env.os.is_absolute(path):
            raise config_error(f"error DevicePath `{path}` must be an absolute path")
        volume = volumes.get(device["name"])
        if volume is None:
            raise config_error(
                f"cannot find volume {go_quote(device['name'])} to pass into container {go_quote(container['name'])}"
            )
        out.append(f"{volume.path}:{path}:{'r' if volume.read_only else 'mrw'}")
    return tuple(out)
