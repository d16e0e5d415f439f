"""emptyDir: a directory that lives as long as its pod."""

from __future__ import annotations

from transom.kit.goquote import go_quote
from transom.kubelet import paths
from transom.kubelet.failures import VolumeFailure
from transom.kubelet.volumes.plugin import (
    MountedVolume,
    PodVolumeSpec,
    VolumeHost,
    VolumePlugin,
    fs_group,
)
from transom.machinery import quantity
from transom.machinery.objects import Object

NAME = "kubernetes.io/empty-dir"
_MODE = 0o777
_HUGE = "HugePages"


async def set_up_empty_dir(
    tools: VolumeHost,
    pod: Object,
    spec: PodVolumeSpec,
    before: MountedVolume | None,
    max_age: float,
) -> MountedVolume:
    env = tools.env
    files = env.host.files
    uid = pod["metadata"]["uid"]
    directory = paths.volume_dir(env, uid, NAME, spec.name)
    notes = paths.plugin_dir(env, uid, NAME, spec.name)
    ready = env.os.join(notes, "ready")
    if files.exists(ready) and files.exists(directory):
        return MountedVolume(spec.name, directory)
    medium = spec.source.get("medium") or ""
    if medium == "":
        files.mkdir(directory, _MODE)
    elif medium == "Memory":
        env.os.mount_tmpfs(files, directory, env.host.hardware.memory // 2)
    elif medium == _HUGE or medium.startswith(_HUGE + "-"):
        env.os.mount_huge_pages(files, directory, _page_size(pod, medium))
    else:
        raise VolumeFailure(f"unknown storage medium {go_quote(medium)}")
    if files.stat(directory).mode & _MODE != _MODE:  # a tmpfs keeps its sticky bit
        files.chmod(directory, _MODE)
    env.os.set_ownership(files, directory, fs_group(pod))
    files.mkdir(notes, 0o750)
    files.write(ready, b"", 0o644)
    return MountedVolume(spec.name, directory)


def _page_size(pod: Object, medium: str) -> str:
    """The page size that the pod requests, which the medium may name."""
    named = quantity.parse_quantity(medium.removeprefix(_HUGE + "-")) if medium != _HUGE else None
    found: quantity.Quantity | None = None
    for container in (
        *(pod["spec"].get("containers") or ()),
        *(pod["spec"].get("initContainers") or ()),
    ):
        for name in (container.get("resources") or {}).get("requests") or {}:
            if not name.startswith("hugepages-"):
                continue
            size = quantity.parse_quantity(name.removeprefix("hugepages-"))
            if named is None and found is not None and found != size:
                raise VolumeFailure(
                    f"medium: {medium} can't be used if container requests multiple huge page sizes"
                )
            if named is None or size == named:
                found = size
    if found is None:
        raise VolumeFailure(
            f"medium {medium}: hugePages storage requested, but there is no resource request "
            "for huge pages"
        )
    return str(found)


PLUGIN = VolumePlugin(NAME, set_up_empty_dir)
