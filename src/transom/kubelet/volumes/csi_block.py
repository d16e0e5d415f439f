"""Raw block volumes of CSI drivers: staged and published as devices, and linked into the pod's
directory.

plugins/kubernetes.io/csi/volumeDevices/staging/PV       staging path
plugins/kubernetes.io/csi/volumeDevices/publish/PV/UID   publish path, where the driver puts the device
plugins/kubernetes.io/csi/volumeDevices/PV/data          what is to be unpublished
pods/UID/volumeDevices/kubernetes.io~csi/PV              link to the publish path
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from transom.kit.rpc import RpcError
from transom.kubelet import paths
from transom.kubelet.base import KubeletContext
from transom.kubelet.failures import VolumeFailure
from transom.kubelet.plugins.drivers import STAGE_UNSTAGE, CsiDriverInfo, NotRegistered
from transom.kubelet.volumes.devices import read_notes, write_notes
from transom.kubelet.volumes.plugin import MountedVolume, PodVolumeSpec, StageFailure, VolumeHost
from transom.machinery.objects import Object
from transom.machines.smallfiles import list_small_directory

_NAME: Final = "kubernetes.io/csi"
_MAP, _SET_UP = "MapVolume.MapPodDevice failed", "MapVolume.SetUpDevice failed"
_REASON: Final = "FailedMapVolume"

Request = Mapping[str, Any]


def _top(env: KubeletContext) -> str:
    return env.os.join(env.config.root_dir, "plugins", _NAME, "volumeDevices")


def _staging_path(env: KubeletContext, name: str) -> str:
    return env.os.join(_top(env), "staging", name)


def _publish_path(env: KubeletContext, name: str, uid: str) -> str:
    return env.os.join(_top(env), "publish", name, uid)


async def publish_csi_device(
    tools: VolumeHost,
    pod: Object,
    spec: PodVolumeSpec,
    driver: CsiDriverInfo,
    handle: str,
    stage: Request,
    request: Request,
) -> MountedVolume:
    """`stage` and `request` are what the driver receives, without the paths. Raises
    StageFailure.
    """
    env, uid, name = tools.env, pod["metadata"]["uid"], spec.name
    files, staging, target = env.host.files, "", _publish_path(env, spec.name, uid)
    unsupported = env.os.block_devices()
    if unsupported:
        raise StageFailure(
            "MapVolume.MapBlockVolume failed",
            "blkUtil.AttachFileDevice failed. "
            f"globalMapPath:{env.os.join(_top(env), name, 'dev')}, podUID: {uid}: "
            f"AttachFileDevice {unsupported}",
            _REASON,
        )
    notes = {"driverName": driver.name, "volumeHandle": handle, "specVolID": name}
    write_notes(env, env.os.join(_top(env), name, "data"), notes)
    try:
        if await driver.can(STAGE_UNSTAGE):
            staging = _staging_path(env, name)
            files.mkdir(staging, 0o750)
            await driver.node("NodeStageVolume", {**stage, "staging_target_path": staging})
    except RpcError as problem:
        raise StageFailure(_SET_UP, str(problem), _REASON) from problem
    try:
        files.mkdir(env.os.join(_top(env), "publish", name), 0o750)
        await driver.node(
            "NodePublishVolume",
            {
                **request,
                "staging_target_path": staging,
                "target_path": target,
                "readonly": spec.read_only,
            },
        )
    except RpcError as problem:
        raise StageFailure(_MAP, str(problem), _REASON) from problem
    if not files.exists(target):
        raise StageFailure(
            "MapVolume.EvalHostSymlinks failed",
            f"lstat {target}: no such file or directory",
            _REASON,
        )
    directory = paths.device_dir(env, uid, _NAME)
    link = env.os.join(directory, name)
    files.mkdir(directory, 0o750)
    if not files.exists(link):
        files.symlink(target, link)
    return MountedVolume(name, link, read_only=spec.read_only, group=spec.group)


async def tear_down_csi_devices(tools: VolumeHost, uid: str) -> None:
    """Unpublishes all devices of the pod, and unstages those that no pod of the node uses any more.
    Raises VolumeFailure.
    """
    env, files = tools.env, tools.env.host.files
    directory = paths.device_dir(env, uid, _NAME)
    for name in paths.volume_names(env, directory) if files.exists(directory) else ():
        notes = read_notes(env, env.os.join(_top(env), name, "data")) or {}
        target = _publish_path(env, name, uid)
        try:
            driver = tools.drivers.get(notes.get("driverName", ""))
            request = {"volume_id": notes.get("volumeHandle", ""), "target_path": target}
            await driver.node("NodeUnpublishVolume", request)
            files.remove(env.os.join(directory, name))
            files.remove(target, recursive=True)
            await _unstage(tools, driver, name, notes)
        except (NotRegistered, RpcError, OSError) as problem:
            raise VolumeFailure(
                f"{_NAME}: blockMapper.UnmapPodDevice failed: {problem}"
            ) from problem


async def _unstage(
    tools: VolumeHost, driver: CsiDriverInfo, name: str, notes: Mapping[str, Any]
) -> None:
    env, files = tools.env, tools.env.host.files
    published = env.os.join(_top(env), "publish", name)
    if files.exists(published) and list_small_directory(files, published):
        return
    if await driver.can(STAGE_UNSTAGE):
        request = {
            "volume_id": notes.get("volumeHandle", ""),
            "staging_target_path": _staging_path(env, name),
        }
        await driver.node("NodeUnstageVolume", request)
    for path in (published, _staging_path(env, name), env.os.join(_top(env), name)):
        files.remove(path, recursive=True)
