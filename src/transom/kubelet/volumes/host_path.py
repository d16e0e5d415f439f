"""hostPath: a file or directory of the node, a named pipe on Windows."""

from __future__ import annotations

from transom.kubelet.base import KubeletContext
from transom.kubelet.failures import VolumeFailure
from transom.kubelet.volumes.plugin import MountedVolume, PodVolumeSpec, VolumeHost, VolumePlugin
from transom.machinery.objects import Object

NAME = "kubernetes.io/host-path"


async def set_up_host_path(
    tools: VolumeHost,
    pod: Object,
    spec: PodVolumeSpec,
    before: MountedVolume | None,
    max_age: float,
) -> MountedVolume:
    env = tools.env
    path = env.os.host_path(spec.source.get("path") or "")
    if steps_back(env, path):
        raise VolumeFailure(f"invalid HostPath `{path}`: must not contain '..'")
    env.os.check_host_path(env.host.files, path, spec.source.get("type") or "")
    return MountedVolume(spec.name, path, read_only=spec.read_only)


def steps_back(env: KubeletContext, path: str) -> bool:
    return ".." in path and ".." in env.os.split(path)


PLUGIN = VolumePlugin(NAME, set_up_host_path)
