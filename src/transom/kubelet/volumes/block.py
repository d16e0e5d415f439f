"""Raw block devices: a link to the device in the pod's directory. Only local volumes have a device;
for other kinds an empty file on the node's disk takes its place.
"""

from __future__ import annotations

from transom.kubelet import paths
from transom.kubelet.volumes.plugin import MountedVolume, PodVolumeSpec, StageFailure, VolumeHost
from transom.machinery.objects import Object


async def map_device(
    tools: VolumeHost, pod: Object, spec: PodVolumeSpec, plugin: str
) -> MountedVolume:
    env = tools.env
    files, uid = env.host.files, pod["metadata"]["uid"]
    everywhere = env.os.join(env.config.root_dir, "plugins", plugin, "volumeDevices", spec.name)
    unsupported = env.os.block_devices()
    if unsupported:
        raise StageFailure(
            "MapVolume.MapBlockVolume failed",
            (
                f"blkUtil.AttachFileDevice failed. globalMapPath:{everywhere}, podUID: {uid}: "
                f"AttachFileDevice {unsupported}"
            ),
            "FailedMapVolume",
        )
    device = (
        str(spec.source.get("path") or "")
        if spec.kind == "local"
        else env.os.join(everywhere, "dev")
    )
    if spec.kind != "local" and not files.exists(device):
        files.mkdir(everywhere, 0o750)
        files.make(device, "block")
    if not files.exists(device):
        raise StageFailure(
            "MapVolume.EvalHostSymlinks failed",
            f"lstat {device}: no such file or directory",
            "FailedMapVolume",
        )
    directory = paths.device_dir(env, uid, plugin)
    link = env.os.join(directory, spec.name)
    files.mkdir(directory, 0o750)
    if not files.exists(link):
        files.symlink(device, link)
    return MountedVolume(spec.name, link, read_only=spec.read_only, group=spec.group)
