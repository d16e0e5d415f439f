"""hostPath: a file or directory of the node, a named pipe on Windows."""

from __future__ import annotations

from transom.kubelet.base import Env, VolumeFailure
from transom.kubelet.volumes.plugin import Mounted, Plugin, Spec, Tools
from transom.machinery.objects import Object

NAME = "kubernetes.io/host-path"


async def set_up(tools: Tools, pod: Object, spec: Spec, before: Mounted | None, max_age: float) -> Mounted:
    env = tools.env
    path = env.os.host_path(spec.source.get("path") or "")
    if steps_back(env, path):
        raise VolumeFailure(f"invalid HostPath `{path}`: must not contain '..'")
    env.os.check_host_path(env.host.files, path, spec.source.get("type") or "")
    return Mounted(spec.name, path, read_only=spec.read_only)


def steps_back(env: Env, path: str) -> bool:
    return ".." in path and ".." in env.os.split(path)


PLUGIN = Plugin(NAME, set_up)
