"""flexVolume: volumes of drivers that lie on the node as programs.

Kubernetes has the attach controller call `attach` on its own machine. The controllers here have none: a driver that attaches
is asked by the kubelet of the node.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Final

from transom.client.resources import SECRETS
from transom.kubelet import paths
from transom.kubelet.base import Env, VolumeFailure
from transom.kubelet.volumes import flex_drivers as drivers
from transom.kubelet.volumes.devices import remove_mount_point
from transom.kubelet.volumes.flex_drivers import FlexDriver, NotSupported
from transom.kubelet.volumes.plugin import Mounted, Plugin, Spec, StageFailure, Tools, change_policy, fs_group
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

_DEVICES: Final = ("plugins", "kubernetes.io/flexvolume")
_OWN: Final = "kubernetes.io~"


def present(env: Env, spec: Spec) -> bool:
    return drivers.find(env, drivers.folder_of(str(spec.source.get("driver") or ""))) is not None


async def _driver(env: Env, folder: str) -> FlexDriver:
    """Raises VolumeFailure, as for a driver that is not there or does not start."""
    path = drivers.find(env, folder)
    if path is None:
        raise VolumeFailure("no volume plugin matched")
    driver = FlexDriver(folder, path)
    answer = await drivers.call(env, driver, "init")
    driver.capabilities = answer.get("capabilities") or {}
    return driver


async def set_up(tools: Tools, pod: Object, spec: Spec, before: Mounted | None, max_age: float) -> Mounted:
    env = tools.env
    files = env.host.files
    driver = await _driver(env, drivers.folder_of(str(spec.source.get("driver") or "")))
    directory = env.os.join(paths.pod_dir(env, pod["metadata"]["uid"]), "volumes", driver.folder, spec.name)
    read_only = spec.read_only or bool(spec.source.get("readOnly"))
    options = await _options(tools, pod, spec, read_only)
    device = await _attach(env, driver, spec, options) if driver.attaches else ""
    files.mkdir(directory, 0o750)
    if not env.os.mounted(files, directory):
        try:
            await drivers.call(env, driver, "mount", directory, json.dumps(_with_pod(options, pod)))
        except NotSupported:
            files.remove(directory)
            env.os.bind(files, device, directory)
        except VolumeFailure:
            if not env.os.mounted(files, directory):
                files.remove(directory, recursive=True)
            raise
    if not read_only and driver.capabilities.get("fsGroup", True):
        env.os.set_ownership(files, directory, fs_group(pod), policy=change_policy(pod))
    return Mounted(spec.name, directory, read_only=read_only)


async def _attach(env: Env, driver: FlexDriver, spec: Spec, options: dict[str, str]) -> str:
    """Where the device is mounted for all pods of the node."""
    text, node = json.dumps(options), env.config.node_name
    path = env.os.join(env.config.root_dir, *_DEVICES, driver.folder, "mounts", spec.name)
    try:
        device = (await _optional(env, driver, "attach", text, node)).get("device", "")
        device = (await _optional(env, driver, "waitforattach", device, text)).get("device", device)
        env.host.files.mkdir(path, 0o750)
        if not env.os.mounted(env.host.files, path):
            await _optional(env, driver, "mountdevice", path, device, text)
    except VolumeFailure as problem:
        raise StageFailure("MountVolume.MountDevice failed", str(problem)) from problem
    return path


async def _optional(env: Env, driver: FlexDriver, command: str, *arguments: str) -> dict[str, Any]:
    try:
        return await drivers.call(env, driver, command, *arguments)
    except NotSupported:
        return {}


async def _options(tools: Tools, pod: Object, spec: Spec, read_only: bool) -> dict[str, str]:
    out = {
        "kubernetes.io/fsType": spec.source.get("fsType") or "", "kubernetes.io/readwrite": "ro" if read_only else "rw",
        "kubernetes.io/pvOrVolumeName": spec.name,
    }
    if fs_group(pod) is not None:
        out["kubernetes.io/mounterArgs.FsGroup"] = str(fs_group(pod))
    ref = spec.source.get("secretRef") or {}
    if ref.get("name"):
        namespace = (ref.get("namespace") if spec.persistent else None) or pod["metadata"]["namespace"]
        out |= await _secret(tools, namespace, ref["name"], str(spec.source.get("driver") or ""))
    return out | {key: str(value) for key, value in (spec.source.get("options") or {}).items()}


async def _secret(tools: Tools, namespace: str, name: str, driver: str) -> dict[str, str]:
    begin = f"Couldn't get secret {namespace}/{name} err:"
    try:
        found = await tools.env.client.get(SECRETS, namespace, name)
    except (ApiError, OSError) as problem:
        raise VolumeFailure(f"{begin} {problem}") from problem
    if found.get("type") != driver:
        raise VolumeFailure(f"{begin} cannot get secret of type {driver}")
    data = {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}
    return {f"kubernetes.io/secret/{key}": base64.b64encode(value).decode() for key, value in data.items()}


def _with_pod(options: dict[str, str], pod: Object) -> dict[str, str]:
    meta = pod["metadata"]
    return {
        "kubernetes.io/pod.name": meta["name"], "kubernetes.io/pod.namespace": meta["namespace"],
        "kubernetes.io/pod.uid": meta["uid"],
        "kubernetes.io/serviceAccount.name": pod["spec"].get("serviceAccountName") or "", **options,
    }


async def tear_down(tools: Tools, uid: str) -> None:
    env = tools.env
    files, top = env.host.files, env.os.join(paths.pod_dir(env, uid), "volumes")
    for folder in files.listdir(top) if files.exists(top) else ():
        if "~" not in folder or folder.startswith(_OWN):
            continue
        driver = await _driver(env, folder)
        for name in files.listdir(env.os.join(top, folder)):
            await _take_away(env, driver, env.os.join(top, folder, name))
            if driver.attaches:
                await _detach(tools, driver, name)


async def _take_away(env: Env, driver: FlexDriver, directory: str) -> None:
    files = env.host.files
    try:
        await drivers.call(env, driver, "unmount", directory)
    except NotSupported:
        if env.os.mounted(files, directory):
            files.remove(directory)
    try:
        remove_mount_point(env, directory)
    except OSError as problem:
        raise VolumeFailure(str(problem)) from problem


async def _detach(tools: Tools, driver: FlexDriver, name: str) -> None:
    """When no pod of the node has it any more."""
    env = tools.env
    files, pods = env.host.files, paths.pods_dir(env)
    if any(files.exists(env.os.join(pods, uid, "volumes", driver.folder, name)) for uid in files.listdir(pods)):
        return
    path = env.os.join(env.config.root_dir, *_DEVICES, driver.folder, "mounts", name)
    if files.exists(path):
        await _optional(env, driver, "unmountdevice", path)
        try:
            remove_mount_point(env, path)
        except OSError as problem:
            raise VolumeFailure(str(problem)) from problem
    await _optional(env, driver, "detach", name, env.config.node_name)


PLUGIN = Plugin("flexvolume", set_up, tear_down=tear_down, present=present)
