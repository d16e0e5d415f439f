"""flexVolume: volumes of drivers that are executables on the node.

The kubelet calls all commands, including attach and detach, as Kubernetes' kubelet does with
--enable-controller-attach-detach=false: the controllers have no machine to install drivers on.
"""

from __future__ import annotations

import base64
from typing import Any, Final

from transom.client.events import NORMAL
from transom.client.resources import PERSISTENT_VOLUME_CLAIMS, SECRETS
from transom.kubelet import paths
from transom.kubelet.base import KubeletContext
from transom.kubelet.failures import VolumeFailure
from transom.kubelet.volumes import flex_drivers as drivers
from transom.kubelet.volumes.devices import remove_mount_point
from transom.kubelet.volumes.flex_drivers import FlexDriver, NotSupported, NotTrusted
from transom.kubelet.volumes.plugin import (
    MountedVolume,
    PodVolumeSpec,
    StageFailure,
    VolumeHost,
    VolumePlugin,
    change_policy,
    fs_group,
)
from transom.machinery import gojson
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.machinery.quantity import Quantity, parse_quantity
from transom.machines.smallfiles import list_small_directory

_DEVICES: Final = ("plugins", "kubernetes.io/flexvolume")
_OWN: Final = "kubernetes.io~"
_NO_PLUGIN: Final = "no volume plugin matched"
Options = dict[str, str]


def _folder(spec: PodVolumeSpec) -> str:
    return drivers.flex_driver_folder(str(spec.source.get("driver") or ""))


async def has_flex_driver(tools: VolumeHost, spec: PodVolumeSpec) -> bool:
    try:
        return await tools.flex.get(tools.env, _folder(spec)) is not None
    except NotTrusted:
        return True  # the pod's events show what is wrong with it


async def _driver(tools: VolumeHost, folder: str) -> FlexDriver:
    driver = await tools.flex.get(tools.env, folder)
    if driver is None:
        raise VolumeFailure(_NO_PLUGIN)
    return driver


# ---- set up ----


async def set_up_flex(
    tools: VolumeHost,
    pod: Object,
    spec: PodVolumeSpec,
    before: MountedVolume | None,
    max_age: float,
) -> MountedVolume:
    env = tools.env
    files = env.host.files
    driver = await _driver(tools, _folder(spec))
    read_only = spec.read_only if spec.persistent else bool(spec.source.get("readOnly"))
    options = _options(spec, read_only)
    if driver.attaches:
        await _optional(env, driver, "getvolumename", _json(options))
        await _attach(tools, pod, driver, spec, options)
    directory = env.os.join(
        paths.pod_dir(env, pod["metadata"]["uid"]), "volumes", driver.folder, spec.name
    )
    if not _is_mounted(env, directory):
        files.mkdir(directory, 0o750)
        try:
            given = options | await _mount_options(tools, pod, spec)
            await _mount(env, driver, spec, directory, given | _own_options(spec))
        except VolumeFailure:
            _remove_empty(env, directory)
            raise
    if not read_only and driver.gives_group:
        env.os.set_ownership(files, directory, fs_group(pod), policy=change_policy(pod))
    return MountedVolume(spec.name, directory, read_only=read_only)


async def _mount(
    env: KubeletContext, driver: FlexDriver, spec: PodVolumeSpec, directory: str, options: Options
) -> None:
    try:
        await drivers.call_flex_driver(env, driver, "mount", directory, _json(options))
    except NotSupported:
        files, device = env.host.files, _device_path(env, driver, spec.name)
        if not files.exists(device):
            raise VolumeFailure(
                f"mount {directory}: special device {device} does not exist."
            ) from None
        files.remove(directory)
        env.os.bind(files, device, directory)


def _is_mounted(env: KubeletContext, directory: str) -> bool:
    """A dangling link was created before a reboot, and its target must be connected again."""
    files = env.host.files
    if not env.os.mounted(files, directory):
        return False
    if files.exists(directory):
        return True
    files.remove(directory)
    return False


def _remove_empty(env: KubeletContext, directory: str) -> None:
    files = env.host.files
    if (
        files.exists(directory)
        and not env.os.mounted(files, directory)
        and not list_small_directory(files, directory)
    ):
        files.remove(directory)


def _device_path(env: KubeletContext, driver: FlexDriver, name: str) -> str:
    return env.os.join(env.config.root_dir, *_DEVICES, driver.folder, "mounts", name)


async def _attach(
    tools: VolumeHost, pod: Object, driver: FlexDriver, spec: PodVolumeSpec, options: Options
) -> None:
    """Attached to the node, and its device mounted for all pods of the node."""
    env, text = tools.env, _json(options)
    node, path = env.config.node_name, _device_path(env, driver, spec.name)
    device = driver.devices.get(spec.name)
    if device is not None and not await _is_attached(env, driver, text):
        device = None
    if device is None:
        device = await _stage(
            "AttachVolume.Attach failed",
            env,
            driver,
            "attach",
            text,
            node,
            reason="FailedAttachVolume",
        )
        driver.devices[spec.name] = device
        env.events.event(
            pod,
            NORMAL,
            "SuccessfulAttachVolume",
            f'AttachVolume.Attach succeeded for volume "{spec.name}" ',
        )
    device = await _stage(
        "MountVolume.WaitForAttach failed",
        env,
        driver,
        "waitforattach",
        device,
        text,
        default=device,
    )
    if env.host.files.exists(path) and env.os.mounted(env.host.files, path):
        return
    env.host.files.mkdir(path, 0o750)
    try:
        await drivers.call_flex_driver(env, driver, "mountdevice", path, device, text)
    except NotSupported:
        if device and not env.host.files.exists(device):
            raise StageFailure(
                "MountVolume.MountDevice failed", _no_device(spec, device, path)
            ) from None
    except VolumeFailure as problem:
        raise StageFailure("MountVolume.MountDevice failed", str(problem)) from problem


async def _is_attached(env: KubeletContext, driver: FlexDriver, text: str) -> bool:
    try:
        return bool(
            (
                await drivers.call_flex_driver(
                    env, driver, "isattached", text, env.config.node_name
                )
            ).get("attached")
        )
    except VolumeFailure:
        return True  # as far as is known


async def _stage(
    stage: str,
    env: KubeletContext,
    driver: FlexDriver,
    command: str,
    *arguments: str,
    reason: str = "FailedMount",
    default: str = "",
) -> str:
    """The device that the driver returns; `default` when it leaves the command to the kubelet."""
    try:
        return str(
            (await drivers.call_flex_driver(env, driver, command, *arguments)).get("device") or ""
        )
    except NotSupported:
        return default
    except VolumeFailure as problem:
        raise StageFailure(stage, str(problem), reason) from problem


def _no_device(spec: PodVolumeSpec, device: str, path: str) -> str:
    kind = spec.source.get("fsType") or "ext4"
    return (
        "mount failed: exit status 32\nMounting command: mount\nMounting arguments: -t "
        f"{kind} -o defaults,rw {device} {path}\n"
        f"Output: mount: {path}: special device {device} does not exist.\n"
    )


async def _optional(
    env: KubeletContext, driver: FlexDriver, command: str, *arguments: str
) -> dict[str, Any]:
    try:
        return await drivers.call_flex_driver(env, driver, command, *arguments)
    except NotSupported:
        return {}


# ---- options for drivers ----


def _json(options: Options) -> str:
    return gojson.marshal(options).decode()


def _own_options(spec: PodVolumeSpec) -> Options:
    return {key: str(value) for key, value in (spec.source.get("options") or {}).items()}


def _options(spec: PodVolumeSpec, read_only: bool) -> Options:
    return {
        "kubernetes.io/fsType": spec.source.get("fsType") or "",
        "kubernetes.io/readwrite": "ro" if read_only else "rw",
        "kubernetes.io/pvOrVolumeName": spec.name,
        **_own_options(spec),
    }


async def _mount_options(tools: VolumeHost, pod: Object, spec: PodVolumeSpec) -> Options:
    """Sent for `mount` only: the pod, and the secret."""
    meta = pod["metadata"]
    out = {
        "kubernetes.io/pod.name": meta["name"],
        "kubernetes.io/pod.namespace": meta["namespace"],
        "kubernetes.io/pod.uid": meta["uid"],
        "kubernetes.io/serviceAccount.name": pod["spec"].get("serviceAccountName") or "",
    }
    ref = spec.source.get("secretRef") or {}
    if ref.get("name"):
        namespace = (ref.get("namespace") if spec.persistent else None) or meta["namespace"]
        out |= await _secret(tools, namespace, ref["name"], str(spec.source.get("driver") or ""))
    if fs_group(pod) is not None:
        out["kubernetes.io/mounterArgs.FsGroup"] = str(fs_group(pod))
    return out


async def _secret(tools: VolumeHost, namespace: str, name: str, driver: str) -> Options:
    begin = f"Couldn't get secret {namespace}/{name} err:"
    try:
        found = await tools.env.client.get(SECRETS, namespace, name)
    except (ApiError, OSError) as problem:
        raise VolumeFailure(f"{begin} {problem}") from problem
    if found.get("type") != driver:
        raise VolumeFailure(f"{begin} cannot get secret of type {driver}")
    data = {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}
    return {
        f"kubernetes.io/secret/{key}": base64.b64encode(value).decode()
        for key, value in data.items()
    }


# ---- tear down ----


async def tear_down_flex(tools: VolumeHost, uid: str) -> None:
    env = tools.env
    files, top = env.host.files, env.os.join(paths.pod_dir(env, uid), "volumes")
    for folder in list_small_directory(files, top) if files.exists(top) else ():
        if "~" not in folder or folder.startswith(_OWN):
            continue
        driver = await _driver(tools, folder)
        for name in paths.volume_names(env, env.os.join(top, folder)):
            await _unmount(env, driver, env.os.join(top, folder, name))
            if driver.attaches:
                await _detach(tools, driver, name)


async def _unmount(env: KubeletContext, driver: FlexDriver, directory: str) -> None:
    try:
        await drivers.call_flex_driver(env, driver, "unmount", directory)
    except NotSupported:
        _default_unmount(env, directory)
    try:
        remove_mount_point(env, directory)
    except OSError as problem:
        raise VolumeFailure(str(problem)) from problem


def _default_unmount(env: KubeletContext, path: str) -> None:
    files = env.host.files
    # how simulated nodes and Windows bind-mount a directory
    if files.stat(path, follow=False).kind == "symlink":
        files.remove(path)
    else:
        env.os.unmount(files, path)


async def _detach(tools: VolumeHost, driver: FlexDriver, name: str) -> None:
    """Called when no pod of the node uses it any more."""
    env = tools.env
    files, pods = env.host.files, paths.pods_dir(env)
    if any(
        files.exists(env.os.join(pods, uid, "volumes", driver.folder, name))
        for uid in list_small_directory(files, pods)
    ):
        return
    path = _device_path(env, driver, name)
    if files.exists(path):
        if env.os.mounted(files, path):
            try:
                await drivers.call_flex_driver(env, driver, "unmountdevice", path)
            except NotSupported:
                _default_unmount(env, path)
        try:
            remove_mount_point(env, path)
        except OSError as problem:
            raise VolumeFailure(str(problem)) from problem
    await _optional(env, driver, "detach", name, env.config.node_name)
    driver.devices.pop(name, None)


async def grow_flex(tools: VolumeHost, spec: PodVolumeSpec, path: str, size: Quantity) -> bool:
    """`expandvolume`, which Kubernetes' controller calls, and `expandfs`. Volumes of a driver that
    supports neither need no work to be expanded.
    """
    env = tools.env
    driver = await _driver(tools, _folder(spec))
    options = _json(_options(spec, spec.read_only))
    mounted, device = _device_path(env, driver, spec.name), driver.devices.get(spec.name, "")
    sizes = str(int(size.value())), str(await _claimed_size(tools, spec))
    await _optional(env, driver, "expandvolume", options, mounted, *sizes)
    await _optional(env, driver, "expandfs", options, device, mounted, *sizes)
    return True


async def _claimed_size(tools: VolumeHost, spec: PodVolumeSpec) -> int:
    """The old size: what the claim's status still shows."""
    assert spec.persistent is not None
    ref = spec.persistent["spec"].get("claimRef") or {}
    try:
        claim = await tools.env.client.get(
            PERSISTENT_VOLUME_CLAIMS, ref.get("namespace", ""), ref.get("name", "")
        )
    except (ApiError, OSError) as problem:
        raise VolumeFailure(str(problem)) from problem
    has = ((claim.get("status") or {}).get("capacity") or {}).get("storage", "0")
    return int(parse_quantity(has).value())


PLUGIN = VolumePlugin(
    "flexvolume", set_up_flex, tear_down=tear_down_flex, present=has_flex_driver, grow=grow_flex
)
