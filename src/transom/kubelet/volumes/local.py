"""local: a directory or disk of the node as a persistent volume."""

from __future__ import annotations

from transom.client.events import WARNING
from transom.kit.goquote import go_quote
from transom.kubelet import paths
from transom.kubelet.failures import VolumeFailure
from transom.kubelet.volumes.host_path import steps_back
from transom.kubelet.volumes.plugin import (
    MountedVolume,
    PodVolumeSpec,
    StageFailure,
    VolumeHost,
    VolumePlugin,
    change_policy,
    fs_group,
)
from transom.machinery.objects import Object
from transom.machines.smallfiles import list_small_directory

NAME = "kubernetes.io/local-volume"


async def set_up_local(
    tools: VolumeHost,
    pod: Object,
    spec: PodVolumeSpec,
    before: MountedVolume | None,
    max_age: float,
) -> MountedVolume:
    env = tools.env
    files = env.host.files
    path = str(spec.source.get("path") or "")
    kind = _kind(tools, path)
    if kind == "block":
        # Formatted and mounted once per node; its content is a directory here.
        path = env.os.join(env.config.root_dir, "plugins", NAME, "mounts", spec.name)
        files.mkdir(path, 0o750)
    elif kind != "directory":
        raise StageFailure(
            "MountVolume.NewMounter initialization failed",
            "only directory and block device are supported",
        )
    if steps_back(env, path):
        raise VolumeFailure(f"invalid path: {path} must not contain '..'")
    directory = paths.volume_dir(env, pod["metadata"]["uid"], NAME, spec.name)
    group = fs_group(pod)
    others = _other_pods(tools, pod, spec.name) if group is not None else 0
    if others:
        owner = env.os.owner_group(files, path)
        if owner is not None and owner != group:
            env.events.event(
                pod,
                WARNING,
                "AlreadyMountedVolume",
                f"The requested fsGroup is {group}, but the volume {spec.name} has GID "
                f"{owner}. The volume may not be "
                "shareable.",
            )
    env.os.bind(files, path, directory)
    if not spec.read_only and not others:
        env.os.set_ownership(files, path, group, policy=change_policy(pod))
    return MountedVolume(spec.name, directory, read_only=spec.read_only)


def _kind(tools: VolumeHost, path: str) -> str:
    stage = "MountVolume.NewMounter initialization failed"
    if not path:
        raise StageFailure(stage, "local volume source is nil or local path is not set")
    try:
        return tools.env.host.files.stat(path).kind
    except FileNotFoundError as problem:
        raise StageFailure(stage, f"path {go_quote(path)} does not exist") from problem
    except OSError as problem:
        raise StageFailure(stage, tools.env.os.file_error("stat", path, problem)) from problem


def _other_pods(tools: VolumeHost, pod: Object, name: str) -> int:
    """The pods of this node that already use the volume."""
    env = tools.env
    files, pods = env.host.files, paths.pods_dir(env)
    uid = pod["metadata"]["uid"]
    return sum(
        other != uid and files.exists(paths.volume_dir(env, other, NAME, name))
        for other in (list_small_directory(files, pods) if files.exists(pods) else ())
    )


PLUGIN = VolumePlugin(NAME, set_up_local)
